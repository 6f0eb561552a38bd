"""Every page in a real browser: it asks for nothing, says nothing wrong, and can be read by anybody, anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chromium import faults
from graph_runs import make_run
from silograph.report.build import build

KINDS = [
    *("graph-open", "graph-private", "federation", "clusters", "meta", "compare-graphs", "compare-models"),
    *("deployment-server", "deployment-organisation", "deployment-over", "reproduced", "gallery"),
]
Visit = Callable[..., Any]


def paper_of(page: Any) -> tuple[int, ...]:
    """The colour behind everything."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return tuple(map(int, re.findall(r"\d+", colour)[:3]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_silent_and_open_to_everybody(kind: str, pages: dict[str, Path], visit: Visit) -> None:
    opened = visit(pages[kind])
    opened.shoot("light")
    assert faults(opened.page) == []
    assert min(paper_of(opened.page)) > 200
    # In print there is nothing to click, and paper is white.
    opened.page.emulate_media(media="print")
    opened.page.pdf(path=opened.shoot("print").with_suffix(".pdf"), print_background=True)
    assert paper_of(opened.page) == (255, 255, 255)
    assert not any(each.is_visible() for each in opened.page.locator("nav, .controls").all())
    assert opened.console == []
    assert opened.asked == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_dark_where_the_reader_wants_it(kind: str, pages: dict[str, Path], visit: Visit) -> None:
    opened = visit(pages[kind], scheme="dark")
    opened.shoot("dark")
    assert max(paper_of(opened.page)) < 60
    assert faults(opened.page, "color-contrast") == []
    assert opened.console == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_fits_a_telephone(kind: str, pages: dict[str, Path], visit: Visit) -> None:
    opened = visit(pages[kind], width=375)
    opened.shoot("narrow")
    wide = opened.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 375
    for control in opened.page.locator(".controls :is(select, input)").all():
        box = control.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 375


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_can_be_read_without_its_script(kind: str, pages: dict[str, Path], visit: Visit) -> None:
    html, bare = pages[kind].read_text(), visit(pages[kind], scripts=False).page
    assert bare.locator("h2:visible").count() == html.count("<h2")
    assert bare.locator("main svg:visible").count() == html.count("<svg")
    assert bare.locator("#explorer:visible, thead button").count() == 0


def test_an_audit_with_axe_has_teeth(pages: dict[str, Path], visit: Visit) -> None:
    page = visit(pages["graph-open"]).page
    page.evaluate("document.querySelector('#find').previousSibling.remove()")
    page.evaluate("document.querySelector('.lead').style.color = 'silver'")
    assert {fault.split(":")[0] for fault in faults(page, "color-contrast", "label")} == {"color-contrast", "label"}


def test_a_script_that_is_not_ours_does_not_run(pages: dict[str, Path], visit: Visit, tmp_path: Path) -> None:
    """The broken twin: a page into which somebody wrote a script. Its policy refuses it."""
    html = pages["graph-open"].read_text()
    (tmp_path / "twin.html").write_text(html.replace("<main>", "<main><script>document.title = 'owned'</script>"))
    opened = visit(tmp_path / "twin.html")
    assert opened.page.title() != "owned"
    assert any("Content Security Policy" in line for line in opened.console)
    assert opened.page.locator("#explorer").is_visible()


@pytest.mark.parametrize("kind", ["graph-private", "federation", "clusters", "meta"])
def test_epsilon_is_seen_on_a_telephone(kind: str, pages: dict[str, Path], visit: Visit) -> None:
    box = visit(pages[kind], width=375).page.locator("[aria-label=Guarantees] tbody td").first.bounding_box()
    assert box["x"] + box["width"] <= 375


def test_sixty_sites_of_three_hundred_nodes_open_quickly_and_in_pages(tmp_path: Path, visit: Visit) -> None:
    (tmp_path / "sixty.html").write_text(build(make_run(tmp_path / "run", nodes=300, sites=60, edges=600, mode="dp")))
    height = "document.documentElement.scrollHeight"
    assert visit(tmp_path / "sixty.html", width=375).page.evaluate(height) < 12_000
    opened = visit(tmp_path / "sixty.html", width=1200)
    page = opened.page
    assert page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") < 3000
    assert page.evaluate(height) < 12_000
    rows = page.locator("[aria-label=Sites] tbody tr")
    turns = page.get_by_role("group", name="Pages: Sites")
    assert rows.locator("visible=true").count() == 12
    turns.get_by_role("button", name="Next").focus()
    page.keyboard.press("Enter")
    assert turns.get_by_role("status").inner_text() == "13 to 24 of 60"
    assert rows.nth(12).is_visible()
    page.locator("[aria-label=Sites] thead button").first.click()
    assert turns.get_by_role("status").inner_text() == "1 to 12 of 60"
    turns.get_by_role("button", name="Show all").click()
    assert rows.locator("visible=true").count() == 60
    assert faults(page) == []
    assert opened.console == []
    # On paper nothing can be turned: everything is there.
    page.emulate_media(media="print")
    assert page.locator(".multiples figure").locator("visible=true").count() == 40


def column(table: Any, index: int) -> list[str]:
    return [text.strip() for text in table.locator(f"tbody tr > :nth-child({index + 1})").all_inner_texts()]


def test_tables_sort(pages: dict[str, Path], visit: Visit) -> None:
    page = visit(pages["graph-open"]).page
    table = page.locator('[aria-label="Sites"] table')
    edges = next(k for k, text in enumerate(table.locator("th[scope=col]").all_inner_texts()) if "Edges" in text)
    head = table.locator("th[scope=col]").nth(edges)
    before = column(table, edges)
    last = table.locator("tfoot").inner_text()
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(table, edges) == sorted(before, key=int)
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert column(table, edges) == sorted(before, key=int, reverse=True)
    table.locator("th[scope=col] button").first.click()
    assert head.get_attribute("aria-sort") is None
    assert column(table, 0) == sorted(column(table, 0))
    assert table.locator("tfoot").inner_text() == last


def test_numbers_sort_as_the_page_writes_them(visit: Visit, tmp_path: Path) -> None:
    script = Path("src/silograph/report/templates/tables.js").read_text()
    cells = ["12,350", "–", "10⁻⁵", "∞ (no protection)", "−0.5", "1.2 × 10⁻³", "0.066 better", "3 of 5", "1"]
    cells += ["0.2 worse", "no better"]
    rows = "".join(f"<tr><td>{cell}</td></tr>" for cell in cells)
    path = tmp_path / "table.html"
    head = '<meta charset="utf-8"><table><thead><tr><th>n</th></tr></thead><tbody>'
    path.write_text(f"{head}{rows}</tbody></table><script>{script}</script>")
    table = visit(path).page.locator("table")
    table.locator("button").click()
    rising = [
        "−0.5",
        "0.2 worse",
        "no better",
        "10⁻⁵",
        "1.2 × 10⁻³",
        "0.066 better",
        "1",
        "3 of 5",
        "12,350",
        "∞ (no protection)",
    ]
    assert column(table, 0) == [*rising, "–"]
    table.locator("button").click()
    assert column(table, 0) == [*reversed(rising), "–"]


#: A4 between the margins of the style sheet.
PAPER = 688


@pytest.mark.parametrize("kind", KINDS)
def test_paper_is_wide_enough(kind: str, pages: dict[str, Path], visit: Visit) -> None:
    """Nobody can scroll paper, and one table that is too wide would shrink the print of the whole page."""
    page = visit(pages[kind], width=PAPER).page
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER
