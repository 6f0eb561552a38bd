"""The page of a reproduced figure shows every curve and every number, ours beside the paper's."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from pages import NASTY, Page, everywhere_in, only_own_scripts, refuse_requests
from silograph.core.errors import DamageError
from silograph.report import charts
from silograph.report.reproduced_page import page

SCHEMES = ("none", "homomorphic", "edge", "sender")


def curve(panel: str, label: str, end: float, rounds: int = 200, **more: Any) -> dict[str, Any]:
    """A made-up curve that falls from 0 to `end`."""
    values = [end * (1 - math.exp(-t / 25)) + math.sin(9 * t) / 2 for t in range(rounds)]
    return {"panel": panel, "label": label, "x": list(range(rounds)), "y": values, "unit": "dB"} | more


def payload(**changes: Any) -> dict[str, Any]:
    ends = {"centroid, metropolis": (-42.2, -39.2, -24.6, -15.2), "units, metropolis": (-39.9, -8.6, -15.5, -12.5)}
    steady = [
        (panel, scheme, end) for panel, values in ends.items() for scheme, end in zip(SCHEMES, values, strict=True)
    ]
    return {
        "name": "gfl-fig2",
        "title": "Mean-square deviation of the models under four kinds of noise",
        "seeds": 20,
        "rows": [
            {"case": panel, "method": scheme, "metric": "steady state, dB", "ours": end, "std": 0.123, "paper": None}
            | ({"paper": -42.0} if scheme == "none" else {})
            for panel, scheme, end in steady
        ],
        "notes": ["The paper does not say how noise is drawn."],
        "curves": [curve(*line) for line in steady],
    } | changes


def pictures(html: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)


def test_the_page_is_well_formed_deterministic_and_asks_for_nothing() -> None:
    html = page(payload())
    assert html == page(payload())
    refuse_requests(html)
    reader = Page(html)
    assert html.startswith("<!doctype html>")
    assert reader.tags["h1"] == reader.tags["table"] == reader.tags["caption"] == 1
    assert re.findall(r"<h2[^>]*>([^<]*)", html) == ["Curves", "Ours beside the paper’s", "Notes"]
    assert "Done again, with 20 random repetitions." in reader.text
    assert "The paper does not say how noise is drawn." in reader.text


def test_numbers_stand_beside_the_papers() -> None:
    html = page(payload())
    rows = [Page(row).text for row in re.findall(r"<tr>(<th scope=\"row\">.*?)</tr>", html, flags=re.DOTALL)]
    assert len(rows) == 8
    assert rows[0] == "centroid, metropolis none steady state, dB −42.20 ± 0.12 −42.00"
    assert rows[5] == "units, metropolis homomorphic steady state, dB −8.60 ± 0.12 –"


def test_where_the_paper_prints_nothing_another_implementations_numbers_may_stand() -> None:
    rows = [row | {"paper": None, "reference": -42.1 - index} for index, row in enumerate(payload()["rows"])]
    html = page(payload(rows=rows))
    assert re.findall(r"<th scope=\"col\"[^>]*>([^<]*)", html) == [
        "Case", "Method", "Measure", "Ours", "Deviation", "Reference"
    ]  # fmt: skip
    assert "centroid, metropolis none steady state, dB −42.20 ± 0.12 −42.10" in Page(html).text
    assert "The paper prints no numbers." in Page(html).text


def test_every_panel_is_a_picture_with_named_axes_and_lines() -> None:
    html = page(payload())
    assert re.findall(r"<h3>([^<]*)", html) == ["centroid, metropolis", "units, metropolis"]
    first, second = pictures(html)
    for picture in (first, second):
        words = re.findall(r"<text[^>]*>([^<]*)", picture)
        assert {"round", "dB", *SCHEMES} <= set(words)
        assert len(re.findall(r'class="curve \w+" [^>]*stroke-linejoin', picture)) == 4
    assert "−40" in first


def test_eight_lines_differ_without_their_colours() -> None:
    lines = [(f"line {i}", [(0.0, 0.0), (1.0, float(i))]) for i in range(8)]
    picture = charts.lines_svg(lines, "Eight", x_name="round", y_name="dB")
    drawn = re.findall(r'<path class="curve (\w+)" .*?stroke-dasharray="([^"]*)"[^>]*stroke-linejoin', picture)
    assert len({dash for _, dash in drawn}) == 8
    levels = [float(y) for y in re.findall(r'y="([\d.]+)">line \d</text>', picture)]
    assert len(levels) == 8
    assert min(b - a for a, b in pairwise(levels)) >= 18.9


def test_labels_of_lines_that_end_together_do_not_overlap_or_leave_the_picture() -> None:
    places = charts._apart([300.0] * 8, 19, 34, 312)
    assert places == sorted(places)
    assert min(b - a for a, b in pairwise(places)) >= 19
    assert places[0] >= 34
    assert places[-1] <= 312


def test_a_point_lies_where_its_numbers_say() -> None:
    picture = charts.lines_svg([("a", [(20, -40), (40, -20), (100, -10)])], "One", x_name="round", y_name="dB")
    spots = [(float(x), float(y)) for x, y in re.findall(r'<circle[^>]*cx="([\d.]+)" cy="([\d.]+)"', picture)]
    marks = {word: place for *place, word in re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)', picture)}
    for (x, y), across, up in zip(spots, ("20", "40", "100"), ("−40", "−20", "−10"), strict=True):
        # A mark's text stands 4 pixels below its line.
        assert x == pytest.approx(float(marks[across][0]), abs=0.2)
        assert y == pytest.approx(float(marks[up][1]) - 4, abs=0.2)


def test_long_curves_keep_their_peaks() -> None:
    values = [(float(t), 100.0 if t == 7001 else 0.0) for t in range(20_000)]
    kept = charts._thinned(values)
    assert len(kept) <= charts.MOST_POINTS + 1
    assert (7001.0, 100.0) in kept
    assert kept[0][0] == 0
    assert kept[-1][0] == 19_999


def test_holes_and_infinities_are_not_drawn() -> None:
    line = curve("p", "a", -3.0, x=[1, 2, 3, 4, 5], y=[0.0, 1.0, None, 1.0, float("inf")])
    (picture,) = pictures(page(payload(curves=[line])))
    assert len(re.findall(r' d="M[^"]*M[^"]*"', picture)) == 1
    assert "nan" not in picture
    assert "inf" not in picture
    html = page(payload(curves=[curve("p", "a", 0.0, x=[1], y=[None]), curve("q", "b", 0.0, x=[], y=[])]))
    assert pictures(html) == []
    assert html.count("There is nothing to draw") == 2


def test_a_sweep_may_name_its_axis_and_use_powers_of_ten() -> None:
    sweep = curve("p", "a", 0.0, x=[0.001, 0.01, 0.1, 1, 10], y=[1, 2, 3, 4, 5], x_name="noise variance", x_log=True)
    (picture,) = pictures(page(payload(curves=[sweep])))
    spots = [float(x) for x in re.findall(r'<circle[^>]*cx="([\d.]+)"', picture)]
    steps = [b - a for a, b in pairwise(spots)]
    assert len(spots) == 5
    assert steps == pytest.approx([steps[0]] * 4, abs=0.2)
    assert "noise variance" in picture


def test_tables_without_curves_and_without_rows() -> None:
    assert Page(page(payload(curves=[]))).tags["svg"] == 0
    assert Page(page(payload(rows=[], notes=[]))).tags["table"] == 0


def test_names_cannot_inject() -> None:
    rows = [{"case": NASTY, "method": NASTY, "metric": NASTY, "ours": 1.0, "std": 0.0, "paper": None}]
    lines = [curve(NASTY, NASTY, -1.0, unit=NASTY, x_name=NASTY)]
    html = page(payload(name=NASTY, title=NASTY, rows=rows, notes=[NASTY], curves=lines))
    reader = Page(html)
    only_own_scripts(reader)
    assert NASTY in reader.text
    for picture in pictures(html):
        ElementTree.fromstring(picture)


@pytest.mark.parametrize("key", ["name", "title", "seeds", "rows", "notes", "curves"])
def test_a_missing_key_is_refused_by_name(key: str) -> None:
    broken = payload()
    del broken[key]
    with pytest.raises(DamageError, match=f"the key '{key}'"):
        page(broken)


def test_a_curve_with_unequal_axes_is_refused() -> None:
    with pytest.raises(DamageError, match=r"curves\[0\]: expected as many values in x as in y, but found 2 and 1"):
        page(payload(curves=[curve("p", "a", 0.0, x=[1, 2], y=[1])]))


def test_any_single_damage_is_drawn_or_refused() -> None:
    small = payload(curves=[curve("p", "a", -3.0, rounds=3), curve("p", "b", -2.0, x=[1, 2], y=[5, 5], x_log=True)])
    for odd in (None, -1, 10**290, 1e308, 5e-324, float("inf"), float("nan"), "odd", [], {}, True):
        for container, key in list(everywhere_in(small)):
            kept, container[key] = container[key], odd
            try:
                Page(page(small))
            except DamageError:
                pass
            finally:
                container[key] = kept
