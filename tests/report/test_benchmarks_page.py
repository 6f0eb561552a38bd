"""The page of benchmarks, from stored rows: every number, ratio and peer, growth on logarithmic axes, the machine."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pages import NASTY, Page, refuse_requests

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _benchmarks_can_be_imported():
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


@pytest.fixture
def page():
    return importlib.import_module("benchmarks.page")


def row(case, ours, peer=None, theirs=None, **more):
    ratio = None if theirs is None else theirs / ours
    return {"case": case, "ours": ours, "peer": peer, "theirs": theirs, "ratio": ratio, "unit": "ms CPU"} | more


def results():
    sizes = (10, 100, 1000)
    dense = [row(f"d={n}", 0.01 * n, "slow", 1.0 * n * n, sweep="nodes", size=n) for n in sizes]
    refused = {"case": "N=200", "ours": None, "peer": "chance", "theirs": 0.4, "ratio": None, "unit": "F-score"}
    about = {"date": "2026-01-02 03:04 UTC", "machine": {"processor": NASTY, "cores": "2"}}
    return {
        "dense_graph": {"rows": [*dense, row("alone", 7.0, peak_gb=1.234)]} | about,
        "private_graph": {"rows": [refused]} | about,
    }


def test_the_page_shows_every_row_and_asks_for_nothing(page):
    html = page.html(results())
    refuse_requests(html)
    assert "<script>alert" not in html
    reader = Page(html)
    assert reader.tags["svg"] == 1
    for words in ("0.1 ms CPU", "10,000", "1,000", "refused", "1.23", "2026-01-02 03:04 UTC", "opacus==1.6.0", "slow"):
        assert words in reader.text
    assert reader.tags["tr"] == 2 + 4 + 1


def test_markdown_has_the_same_numbers(page):
    text = page.markdown(results())
    assert "| d=1000 | 10 ms CPU | slow | 1,000,000 | 100,000 |" in text.replace("10⁶", "1,000,000").replace(
        "10⁵", "100,000"
    )
    assert "| N=200 | refused | chance | 0.4 |  |" in text
    assert "growth-dense_graph.svg" in text
    assert "growth-private_graph.svg" not in text


def test_growth_is_a_straight_line_on_logarithmic_axes(page):
    """A power law: equal ratios are equal distances, and twice the power is twice the slope."""
    picture = ElementTree.fromstring(page.standing_alone(page.growth_svg(results()["dense_graph"]["rows"])))
    slopes = []
    for path in picture.iter("{http://www.w3.org/2000/svg}path"):
        if path.get("class", "").startswith("curve") and len(path):
            points = [tuple(map(float, spot.split())) for spot in re.findall(r"[\d.]+ [\d.]+", path.get("d"))]
            steps = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(points)]
            assert steps[0] == pytest.approx(steps[1], rel=0.01)
            slopes.append(steps[0])
    assert slopes[1] == pytest.approx(2.0 * slopes[0], rel=0.02)


def test_one_size_is_no_growth(page):
    assert page.growth_svg([row("d=10", 1.0, sweep="nodes", size=10), row("x", 2.0)]) == ""


def test_the_machine_is_described(page):
    told = page.machine()
    assert int(told["cores"]) >= 1
    assert float(told["memory"].split()[0]) > 0.1
    assert {"processor", "Python", "silograph", "numpy"} <= set(told)
    assert math.isfinite(float(told["load before"]))


def test_every_benchmark_says_what_it_measures(page):
    main = importlib.import_module("benchmarks.__main__")
    assert "page" not in main.all_names()
    for name in main.all_names():
        title, text = page.described(name)
        assert title
        assert "python -m" not in title
        assert len(text) > 40
        # `make bench` asks each one for JSON.
        source = (Path(main.HERE) / f"{name}.py").read_text(encoding="utf-8")
        assert '"--json"' in source
        assert '__name__ == "__main__"' in source


def test_pages_are_made_of_what_is_stored(page, tmp_path):
    main = importlib.import_module("benchmarks.__main__")
    for name, result in results().items():
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    main.write_pages(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".json") == [
        "benchmarks.md",
        "growth-dense_graph.svg",
        "index.html",
    ]
    assert main.line(results()["private_graph"]["rows"][0]) == "  N=200: refused"
