"""The report is a pure function of a run folder: deterministic, harmless, honest, and never silent about damage."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from graph_runs import make_run, some_edges, write_edges
from pages import NASTY, Page, change, guarantee, harmless, promise, table
from silograph.core.errors import DamageError
from silograph.report import figures, words
from silograph.report.build import build
from silograph.report.read import site_file


def test_names_cannot_inject(tmp_path: Path) -> None:
    nodes = [NASTY, "'; DROP TABLE", "line\nbreak", "x" * 500, "\u202egpj.exe", "a,b", "Ünïcødé 🙂", ""]
    sites = [NASTY, "../../outside", "C:\\temp", " "]
    clean = build(make_run(tmp_path / "clean", nodes=8, sites=4, edges=10))
    folder = make_run(tmp_path / "nasty", nodes=nodes, sites=sites, edges=10)
    change(folder, seed=2**127, versions={NASTY: NASTY}, parameters={NASTY: NASTY})
    ledger = [{"silo": NASTY, "release_point": NASTY, "mechanism": NASTY, "why": "\ud800", "noise": "loud", "l2": True}]
    (folder / "ledger.jsonl").write_text("\n".join(map(json.dumps, ledger)))
    harmless(build(folder), clean)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean", "nasty"]


def test_site_files_stay_in_their_folder() -> None:
    assert site_file("Oslo north") == "Oslo north.csv"
    assert "/" not in site_file("../../etc/passwd")


def test_every_row_of_a_small_run_is_drawn(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, nodes=12, sites=3, edges=25, consensus=18))
    drawn = re.findall(r'<path d="M[\d. ]+L[\d. ]+" stroke-width="[\d.]+"><title>', html)
    assert len(drawn) == 18 + 3 * 25
    assert "strongest 1" not in html


def test_site_pictures_tell_own_edges_from_shared_ones(tmp_path: Path) -> None:
    folder = make_run(tmp_path, nodes=["a", "b", "c"], sites=["s"], edges=2)
    write_edges(folder / "consensus.csv", [("a", "b", 1.0)])
    write_edges(folder / "sites" / "s.csv", [("b", "a", 1.0), ("c", "a", 0.5)])
    picture = build(folder).split('aria-label="Graph of s', 1)[1].split("</svg>", 1)[0]
    own, shared = picture.split('class="edge own"')[1].split('class="edge shared"')
    assert "c – a: 0.5" in own
    assert "b – a: 1" in shared


def test_large_graphs_draw_only_the_strongest_edges_and_say_so(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, nodes=300, sites=4, edges=5000, rounds=500))
    assert html.count("<title>node ") <= 1000 + 300 + 4 * (400 + 300)
    assert "Only the strongest 1,000 of 5,000 edges are drawn." in html
    assert html.count("only the strongest 400 are drawn") == 4
    assert len(html.encode()) < 6_000_000


def test_many_sites_and_nodes_still_make_a_small_page(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, nodes=900, sites=60, edges=600, rounds=3))
    assert "900 nodes are too many for a picture with lines" in html
    assert len(html.encode()) < 6_000_000
    assert "The first 40 of 60 sites are drawn." in build(make_run(tmp_path / "fewer", nodes=90, sites=60, edges=60))


def test_empty_graphs_one_site_and_no_trace(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, sites=1, edges=0, trace=[], rounds=0))
    assert "It has no edges" in html
    assert "1 site learned a graph over 12 nodes." in html
    assert "The consensus graph has 0 edges" in html
    for empty in ("Convergence", "Heat map", "Strongest edges"):
        assert empty not in html
    Page(build(make_run(tmp_path / "nothing", nodes=[], sites=[], edges=0, trace=[])))


def test_a_null_gap_is_said_in_words(tmp_path: Path) -> None:
    trace = [{"round": 1, "objective": None, "gap": None}, {"round": 2, "objective": -3.0, "gap": None}]
    html = build(make_run(tmp_path, solver="paper", certified_gap=None, trace=trace))
    assert "No certificate" in html
    assert "Solved:" not in html


def test_gaps_in_words() -> None:
    assert words.how_exact(3.2e-7).startswith("Solved: the objective is proven to be at most 0.0001 % above")
    assert "at most 0.301 %" in words.how_exact(3.0001e-3)
    assert words.how_exact(0.5).startswith("Not solved")
    assert words.how_exact(float("inf")).startswith("The certificate is empty")
    assert words.how_exact(-1e-16).startswith("Solved")


def test_infinite_and_undefined_numbers_are_printed(tmp_path: Path) -> None:
    folder = make_run(tmp_path, objective=float("inf"), certified_gap=float("inf"))
    change(folder, trace=[{"round": 1, "objective": float("nan"), "gap": float("inf")}])
    site = json.loads((folder / "result.json").read_text())["sites"][0]
    change(folder, sites=[site | {"weight": float("inf"), "smoothness": float("nan"), "mean_weight": None}])
    page = Page(build(folder))
    assert "∞" in page.text
    assert "not a number" in page.text


def test_no_protection_is_the_headline(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, mode="exact"))
    assert html.index("No privacy protection: whoever receives these files") < html.index("<main>")
    assert "∞ (no protection)" in html
    assert "Released on purpose without protection: second moment, 90 times" in html


def test_a_guarantee_names_observers_unit_and_relation(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, mode="dp"))
    page, box = Page(html), promise(html)
    assert box["Protected"] == "One row of one site’s table"
    assert box["Against"] == "Own server, other sites and the public"
    assert box["Strength"].startswith("ε = 1 and δ = 10⁻⁵ . This means: an attacker")
    assert (
        "In exact terms: (ε, δ)-differential privacy over the whole run. Protected unit: one signal of one site. "
        "Neighbouring relation: replace-one. Observers: own server, other sites and public." in page.text
    )
    assert "No privacy protection" not in page.text
    assert "remove the noise" not in page.text
    assert ("div", "class", "verdict full") in page.attributes


def test_the_box_of_a_private_run_names_what_is_not_protected_before_any_graph(tmp_path: Path) -> None:
    folder = make_run(tmp_path, mode="dp")
    row = {"silo": "site 0", "round": 1, "release_point": "counts", "observer": "server", "mechanism": "reveal"}
    with (folder / "ledger.jsonl").open("a") as file:
        file.write(json.dumps(row | {"why": "public"}) + "\n")
    html = build(folder)
    box = promise(html)["Not protected"]
    for part in ("as they are: counts", "several rows", "names of nodes", "Who took part", "costs of all runs"):
        assert part in box
    assert html.index("Not protected") < html.index("<svg")
    link = re.search(r'<a href="#(\w+)">Details</a>', html)
    assert link is not None
    assert f'<h3 id="{link[1]}">What was not protected</h3>' in html
    assert promise(build(make_run(tmp_path / "bare", mode="exact"))) == {}


@pytest.mark.parametrize(
    "protected, plan, said",
    [
        ("one person of one site: all signals with the same 'who'", "", "One person at one site, with all rows"),
        ("one signal of one site: its value at every node", '[data]\nnodes_in = "rows"\n', "One column of one site’s"),
    ],
)
def test_what_is_protected_is_what_the_tables_have(tmp_path: Path, protected: str, plan: str, said: str) -> None:
    folder = make_run(tmp_path, mode="dp")
    privacy = json.loads((folder / "result.json").read_text())["privacy"]
    change(folder, privacy=privacy | {"protected_unit": protected})
    with (folder / "plan.toml").open("a") as file:
        file.write(plan)
    assert promise(build(folder))["Protected"].startswith(said)


def test_on_what_a_promise_depends_is_in_the_box(tmp_path: Path) -> None:
    folder = make_run(tmp_path, mode="dp")
    privacy = json.loads((folder / "result.json").read_text())["privacy"]
    note = "Sites share the noise. The guarantee holds only if no site fails: by telling others. Read on."
    change(folder, privacy=privacy | {"notes": [note, "Another note."]})
    assert promise(build(folder))["Condition"] == "The guarantee holds only if no site fails: by telling others."


def test_a_private_page_says_how_to_check_it(tmp_path: Path) -> None:
    """A page of a run without privacy promises nothing that could be checked."""
    private, bare = (build(make_run(tmp_path / mode, mode=mode)) for mode in ("dp", "exact"))
    for command in ("silograph privacy .", "silograph audit plan.toml"):
        assert f'<pre tabindex="0">{command}</pre>' in private
        assert command not in bare


def test_partial_protection_is_not_oversold(tmp_path: Path) -> None:
    folder = make_run(tmp_path, mode="dp", sites=["a", "b", "c"])
    privacy = json.loads((folder / "result.json").read_text())["privacy"]
    rows = [
        guarantee("a", "public", 0.50001),
        guarantee("b", "public", 2.0),
        guarantee("a", "own server", "infinity"),
        guarantee("b", "own server", 2.0),
    ]
    change(folder, privacy=privacy | {"guarantees": rows, "notes": ["Read <this> first"]})
    html = build(folder)
    page, box = Page(html), promise(html)
    assert box["Protected"] == "One row of one site’s table, only at a and b"
    assert box["Strength"].startswith("ε from 0.5001 to 2 and")
    assert "No protection against own server for a " in box["Not protected"]
    assert "No guarantee is stated for c" in box["Not protected"]
    assert "Not every site is protected against the public and own server" in page.text
    assert ("div", "class", "verdict full") not in page.attributes
    assert "Against own server there is no protection (ε = ∞) for a." in page.text
    assert "No guarantee is stated for c: assume none." in page.text
    assert "Read <this> first" in page.text


def test_noise_from_a_printed_seed_is_warned_about(tmp_path: Path) -> None:
    folder = make_run(tmp_path, mode="dp")
    ledger = folder / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace("secret entropy", "named stream"))
    html = build(folder)
    assert html.index("This run was a rehearsal") < html.index("<main>")
    assert "whoever knows the seed can remove the noise" in html
    change(folder, seed=None)
    assert "remove the noise" not in build(folder)


def test_a_papers_claim_stands_beside_the_accounted_number(tmp_path: Path) -> None:
    folder = make_run(tmp_path, mode="paper")
    privacy = json.loads((folder / "result.json").read_text())["privacy"]
    claim = {"epsilon": 25, "delta": 1e-5, "basis": "Corollary 1", "defect": "momentum is carried over"}
    change(folder, privacy=privacy | {"guarantees": [guarantee("site 0", "public", 3.0512, claim=claim)]})
    page = Page(build(folder))
    assert re.search(r"3\.052 .* 25 .* Corollary 1.*Defect: momentum is carried over", page.text)


def test_equal_sites_share_a_line_of_guarantees(tmp_path: Path) -> None:
    folder = make_run(tmp_path, mode="dp", sites=["a", "b", "c"])
    everybody = "Own server, other sites and the public"
    assert table(build(folder), "Guarantees")[1:] == [["Every site", "1", "10⁻⁵", everybody, "analytic Gaussian"]]
    privacy = json.loads((folder / "result.json").read_text())["privacy"]
    rows = [row | {"epsilon": 2.0} if row["site"] == "b" else row for row in privacy["guarantees"]]
    change(folder, privacy=privacy | {"guarantees": rows})
    assert [row[:2] for row in table(build(folder), "Guarantees")[1:]] == [["a and c", "1"], ["b", "2"]]


def test_a_page_can_be_filed(tmp_path: Path) -> None:
    """Date, run and plan, as sha256sum gives them."""
    folder = make_run(tmp_path)
    run, plan = (hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("result.json", "plan.toml"))
    change(folder, plan=plan, finished="2026-05-28T20:26:40Z")
    run = hashlib.sha256((folder / "result.json").read_bytes()).hexdigest()
    page = Page(build(folder))
    assert f"Finished 2026-05-28 20:26 UTC. Run {run[:12]} , plan {plan[:12]} ." in page.text
    assert plan in page.text


def test_numbers_are_marked_released_or_simulation_only(tmp_path: Path) -> None:
    html = build(make_run(tmp_path, numbers_are={"sites.smoothness": "simulation only", "signals": "released"}))
    assert 'Smoothness <span class="mark simulation only">simulation only</span>' in " ".join(html.split())
    assert 'Signals <span class="mark released">released</span>' in " ".join(html.split())
    assert 'class="mark' not in build(make_run(tmp_path / "plain"))
    # A mark that no number has is not explained.
    assert "only because this run was a simulation" in html
    known = build(make_run(tmp_path / "known", numbers_are={"signals": "released"}))
    assert "are those that leave the sites, or follow from what leaves them." in Page(known).text
    assert "only because this run was a simulation" not in known


def test_ledger_is_summarised(tmp_path: Path) -> None:
    folder = make_run(tmp_path, sites=["a", "b"])
    rows = [
        {"silo": silo, "round": t, "release_point": "gradient", "observer": "server", "mechanism": "gaussian"}
        | {"l2": 0.5, "noise": 2.0 + t, "dim": 190, "randomness": "secret", "why": "clip"}
        for t in range(1, 1501)
        for silo in ("a", "b")
    ]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = Page(build(folder)).text
    assert "3,000 releases in all" in text
    assert "Every site gradient clip gaussian server 3,000 1 to 1,500 190 0.5 3 to 1,502" in text
    rows[-2]["noise"] = rows[-1]["noise"] = 1.0
    (folder / "ledger.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = Page(build(folder)).text
    assert "Every site gradient clip gaussian server 3,000 1 to 1,500 190 0.5 1 to 1,501" in text


def test_bounds_are_never_rounded_in_our_favour() -> None:
    assert words.bound(3.05119) == "3.052"
    assert words.bound(1.0) == "1"
    assert words.bound(9.99999) == "10"
    assert words.bound(1.00001e-5) == "1.001 × 10⁻⁵"
    assert words.number(1234567) == "1,234,567"
    assert words.number(-0.5) == "−0.5"
    assert words.number(12345.678) == "12,350"


def test_what_is_half_way_is_rounded_up() -> None:
    """In binary 0.7675 is a little less, and so is this mean of 0.765 and 0.77."""
    assert words.column([1.0, 0.7675, (0.765 + 0.77) / 2, -0.7675, 0.76745]) == [
        "1.000",
        "0.768",
        "0.768",
        "−0.768",
        "0.767",
    ]
    assert words.number(0.12345) == "0.1235"


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"format": 2}, "format 1"),
        ({"nodes": "abc"}, "nodes: expected a list"),
        ({"nodes": ["a", "a"]}, "comes twice"),
        ({"nodes": ["node 0"]}, "line 2: expected a node named in result.json"),
        ({"rounds": "many"}, "rounds: expected a whole number"),
        ({"rounds": True}, "rounds: expected a whole number"),
        ({"privacy": {}}, "the keys 'mode'"),
        ({"sites": [{"name": "x"}]}, re.escape("sites[0]")),
        ({"numbers_are": [1]}, "numbers_are"),
    ],
)
def test_a_damaged_result_says_where(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = make_run(tmp_path)
    change(folder, **changes)
    with pytest.raises(DamageError, match=message):
        build(folder)


@pytest.mark.parametrize("epsilon", ["small", -1, float("nan")])
def test_an_epsilon_that_is_none_is_refused(tmp_path: Path, epsilon: float | str) -> None:
    folder = make_run(tmp_path)
    privacy = json.loads((folder / "result.json").read_text())["privacy"]
    change(folder, privacy=privacy | {"guarantees": [guarantee("site 0", "public", epsilon)]})
    with pytest.raises(DamageError, match="epsilon"):
        build(folder)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "the columns"),
        ("source,target\n", "the columns"),
        ("source,target,weight\n", "expected 20 edges, as result.json counts them, but found 0"),
        ("source,target,weight\nnode 0,node 1\n", "line 2: expected 3 values"),
        ("source,target,weight\nnode 0,node 1,nan\n", "line 2: expected a finite weight"),
        ("source,target,weight\nnode 0,node 1,heavy\n", "line 2: expected a finite weight"),
        ("source,target,weight\nnode 0,node 0,1\n", "line 2: expected an edge between two nodes"),
        ("source,target,weight\n" + "x" * 200_000 + ",node 0,1\n", "line 2: expected a CSV row"),
    ],
)
def test_a_damaged_graph_says_where(tmp_path: Path, text: str, message: str) -> None:
    folder = make_run(tmp_path)
    (folder / "consensus.csv").write_text(text)
    with pytest.raises(DamageError, match=message):
        build(folder)


@pytest.mark.parametrize("line", ['{"silo": "a"', "[]", '{"silo": "a", "site": "x"}'])
def test_a_damaged_ledger_says_where(tmp_path: Path, line: str) -> None:
    folder = make_run(tmp_path, sites=1, rounds=1)
    with (folder / "ledger.jsonl").open("a") as file:
        file.write(line)
    with pytest.raises(DamageError, match=r"ledger\.jsonl: line 2"):
        build(folder)


def test_a_picture_stands_alone() -> None:
    nodes = ["a", "b", NASTY, "nobody's neighbour"]
    svg = figures.graph_svg(nodes, [("a", "b", 1.0), ("b", NASTY, 0.2)], highlight=[("b", "a")])
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert figures.LIGHT.own in svg
    assert figures.LIGHT.shared in svg
    assert "var(" not in svg
    assert "class=" in svg


def test_layout_stays_in_the_unit_square_and_ignores_row_order() -> None:
    nodes = [f"n{i}" for i in range(20)]
    edges = [*some_edges(nodes[:8], 12, 0), *some_edges(nodes[8:12], 4, 1)]
    places = figures.layout(nodes, edges)
    assert places == figures.layout(nodes, [(b, a, weight) for a, b, weight in reversed(edges)])
    assert sorted(places) == sorted(nodes)
    assert all(-1e-9 <= x <= 1 + 1e-9 and -1e-9 <= y <= 1 + 1e-9 for x, y in places.values())


def test_the_top_says_what_to_believe_before_how_exact_it_is(silograph, tmp_path: Path) -> None:
    silograph("sample", tmp_path / "sites")
    sites = sorted((tmp_path / "sites").glob("*.csv"))
    silograph("learn", *sites, "-o", tmp_path / "open")
    silograph("learn", *sites, "-o", tmp_path / "private", "--degree", 6, "--epsilon", 2, "--seed", 1)
    page = build(tmp_path / "open")
    assert page.index("What to believe") < page.index("Exactness")
    with (tmp_path / "open" / "consensus.csv").open() as lines:
        chances = [float(row["probability"]) for row in csv.DictReader(lines)]
    wrong = sum(1 - chance for chance in chances)
    told = f"about {wrong:.0f} may be" if wrong >= 0.5 else "probably none is"
    assert f"Of {len(chances)} edges of the consensus, {told} wrong" in page
    doubtful = 0
    for site in (tmp_path / "open" / "sites").glob("*.csv"):
        with site.open() as lines:
            doubtful += sum(float(row["probability"]) < 0.5 for row in csv.DictReader(lines))
    assert doubtful > 0
    assert f"In the graphs of the sites, {doubtful} edge" in page
    private = build(tmp_path / "private")
    rows = [site["effective_rows"] for site in json.loads((tmp_path / "private/result.json").read_text())["sites"]]
    assert f"as much as having only {min(rows):.0f} to {max(rows):.0f} rows for the graph of a site" in private
    assert "about 500 are needed for nine edges in ten to be right (measured with 20 nodes" in private
    assert "Only positive relations were learned; negative ones are missing." in private
    assert "single edges can be wrong or have the wrong sign" in private
    assert "Only positive relations" not in page
    assert "wrong sign" not in page
    assert "at most 12 of 100 rows that are there, if it accepts 5 false alarms for 100 rows that are not" in private


def test_a_private_graph_in_the_columns_own_units_is_not_to_be_believed_without_more(silograph, tmp_path: Path) -> None:
    """A clip says how long rows are as they stand; these columns have a level each."""
    draw = np.random.default_rng(5)
    for name in "abc":
        rows = draw.standard_normal((400, 6)) * [1, 30, 9, 4, 25, 2] + [6, 200, 130, 27, 110, 140]
        columns = ",".join(f"column {k}" for k in range(6))
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header=columns, comments="", fmt="%.6f")
    silograph("learn", tmp_path, "-o", tmp_path / "run", "--epsilon", 40, "--clip", 300, "--seed", 1)
    page = build(tmp_path / "run")
    assert page.index("do not believe this graph unless all columns have one unit") < page.index(
        "The noise costs as much"
    )


@pytest.mark.parametrize("noise", [["--mechanism", "laplace"], ["--privacy", "correlated"]])
def test_noise_that_no_private_scale_can_have_is_refused_for_raw_columns(silograph, tmp_path: Path, noise) -> None:
    """Before anything is spent: edges would follow the size of units."""
    silograph("sample", tmp_path / "sites")
    code, _, error = silograph("learn", tmp_path / "sites", "-o", tmp_path / "run", "--epsilon", 8, *noise)
    assert code == 2
    assert "Nothing was spent" in error
    assert "--scale none" in error
    assert not (tmp_path / "run").exists()


def of_a_chain(folder: Path, rows: int, turned: Collection[str] = ()) -> list[Path]:
    """Tables of eight columns, each with a part of the one before it; it is taken away at the sites in `turned`."""
    draw = np.random.default_rng(3)
    for name in "abcdef":
        x = draw.standard_normal((rows, 8))
        for k in range(1, 8):
            x[:, k] += (-0.8 if name in turned and k == 4 else 0.8) * x[:, k - 1]
        header = ",".join(f"column {k}" for k in range(8))
        np.savetxt(folder / f"{name}.csv", x, delimiter=",", header=header, comments="", fmt="%.6f")
    return sorted(folder.glob("*.csv"))


def test_signs_that_were_asked_for_and_few_columns_are_said(silograph, tmp_path: Path) -> None:
    sites = of_a_chain(tmp_path, 800)
    options = ("--epsilon", 8, "--scale", "none", "--seed", 1)
    for name, more in (("signed", ["--signed"]), ("positive", ["--nonnegative"])):
        status, out, _ = silograph("learn", *sites, "-o", tmp_path / name, *options, *more)
        assert status == 0
        assert "20 nodes" not in out
        page = build(tmp_path / name)
        assert "about 500" not in page
        assert "with few columns (below about 20)" in page
        assert ("Only positive relations were learned" in page) == (name == "positive")
        assert ("Graphs have signs, as you asked" in page) == (name == "signed")
        assert "fits better with signs" not in page


def test_a_site_with_the_other_sign_does_not_count_among_those_that_share_an_edge(silograph, tmp_path: Path) -> None:
    silograph("learn", *of_a_chain(tmp_path, 400, turned="c"), "-o", tmp_path / "run", "--edges", 7)
    signs = {}
    for name in "abcdef":
        with (tmp_path / f"run/sites/{name}.csv").open() as lines:
            signs[name] = {(row["source"], row["target"]): row["sign"] for row in csv.DictReader(lines)}
    assert [signs[name]["column 3", "column 4"] for name in "abcdef"] == ["1", "1", "-1", "1", "1", "1"]
    page = build(tmp_path / "run")
    assert page.count("5 of 6; other sign at c<") == 1
    assert page.count(">6 of 6<") == 6
    assert "<b><bdi>c</bdi></b><br>7 edges, 6 in the consensus" in page


def test_a_run_beside_the_tables_is_not_one_of_them(silograph, tmp_path: Path) -> None:
    silograph("sample", tmp_path / "sites")
    for name in ("out", "again"):
        silograph("learn", tmp_path / "sites", "-o", tmp_path / "sites" / name, "--degree", 6)
    assert (tmp_path / "sites/out/consensus.csv").read_bytes() == (tmp_path / "sites/again/consensus.csv").read_bytes()
