"""What the live graph of a report is given: every edge once, names that cannot harm, communities, places, sizes."""

from __future__ import annotations

import csv
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from graph_runs import make_run, recount, some_edges, write_edges
from pages import NASTY, Page, change, table
from silograph.core.errors import DamageError
from silograph.report import heat_map, projections
from silograph.report.build import build


def data_of(html: str) -> Any:
    found = [json.loads(text) for kind, text in Page(html).scripts if kind == "application/json"]
    assert len(found) == 1
    return found[0]


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def test_every_edge_of_every_graph_is_there_with_its_exact_weight(tmp_path: Path) -> None:
    folder = make_run(tmp_path, nodes=30, sites=["a", "b"], edges=80, consensus=50)
    data = data_of(build(folder))
    assert [graph["name"] for graph in data["graphs"]] == ["the consensus", "a", "b"]
    shared = {frozenset(row[:2]) for row in rows_of(folder / "consensus.csv")}
    for graph, file in zip(data["graphs"], ("consensus.csv", "sites/a.csv", "sites/b.csv"), strict=True):
        told = {
            frozenset((data["nodes"][a], data["nodes"][b])): (weight, data["kinds"][kind][0])
            for a, b, weight, kind in graph["edges"]
        }
        assert told == {
            frozenset(row[:2]): (float(row[2]), "shared" if frozenset(row[:2]) in shared else "own")
            for row in rows_of(folder / file)
        }
        weights = [edge[2] for edge in graph["edges"]]
        assert weights == sorted(weights, reverse=True)


def test_hostile_names_stay_data(tmp_path: Path) -> None:
    names = [NASTY, "</script><script>alert(1)</script>", "<!--", "]]>", "\u2028", "\u202egpj", "a", "b"]
    html = build(make_run(tmp_path, nodes=names, sites=[NASTY], edges=10))
    data = data_of(html)
    assert data["nodes"] == [*names[:5], "\ufffdgpj", "a", "b"]
    assert "<script>alert" not in html


def test_a_confidence_is_shown_where_the_run_states_it(tmp_path: Path) -> None:
    folder = make_run(tmp_path, nodes=["a", "b", "c"], sites=["s"], edges=2)
    text = "source,target,weight,confidence\na,b,1.5,0.75\nb,c,0.5,\n"
    (folder / "consensus.csv").write_text(text)
    recount(folder)
    html = build(folder)
    assert [edge[4:] for edge in data_of(html)["graphs"][0]["edges"]] == [[0.75], []]
    assert "a – b: 1.5, confidence 0.75" in html
    assert [row[3] for row in table(html, "Strongest edges of the consensus")] == ["Confidence", "0.7500", "–"]
    assert "Confidence" not in build(make_run(tmp_path / "without"))


@pytest.mark.parametrize("share", ["1.01", "-0.1", "sure", "nan"])
def test_a_confidence_that_is_none_is_refused(tmp_path: Path, share: str) -> None:
    folder = make_run(tmp_path)
    (folder / "consensus.csv").write_text(f"source,target,weight,confidence\nnode 0,node 1,1.5,{share}\n")
    with pytest.raises(DamageError, match="line 2: expected a confidence from 0 to 1"):
        build(folder)


def test_communities_are_those_that_were_planted() -> None:
    """Three cliques of eight joined by single light edges: any method of modularity finds them."""
    nodes = [f"n{i}" for i in range(24)] + ["alone"]
    edges = [(nodes[a], nodes[b], 1.0) for a in range(24) for b in range(a) if a % 3 == b % 3]
    edges += [(nodes[0], nodes[1], 0.1), (nodes[1], nodes[2], 0.1)]
    found = heat_map.communities(nodes, edges)
    assert {frozenset(group) for group in found.groups} == {frozenset(nodes[k:24:3]) for k in range(3)}
    assert found.lonely == ["alone"]
    assert sorted(found.order) == sorted(nodes)
    random.Random(1).shuffle(edges)
    assert heat_map.communities(nodes, [(b, a, weight) for a, b, weight in edges]) == found


def test_a_heat_map_has_a_cell_for_each_end_of_each_edge() -> None:
    nodes = [f"n{i}" for i in range(50)]
    edges = some_edges(nodes, 120, 3)
    found = heat_map.communities(nodes, edges)
    svg = heat_map.heat_svg(found, edges, "heat")
    place = {name: index for index, name in enumerate(found.order)}
    for a, b, _ in edges:
        assert f"M{place[a]} {place[b]}h1v1h-1z" in svg
        assert f"M{place[b]} {place[a]}h1v1h-1z" in svg
    assert svg.count("h1v1h-1z") == 2 * len(edges)


def test_blocks_show_the_mean_weight_of_their_pairs() -> None:
    """Two blocks of two nodes: of the four pairs between them two are joined, inside one pair of one."""
    cells = heat_map._cells({"a": 0, "b": 0, "c": 1, "d": 1}, [("a", "c", 2.0), ("b", "c", 1.0), ("a", "b", 1.0)], 2)
    assert cells == {(0, 1): 0.375, (1, 0): 0.375, (0, 0): 0.5}


def test_many_nodes_fall_back_to_blocks_and_strongest_edges(tmp_path: Path) -> None:
    nodes = [f"node {i}" for i in range(5000)]
    draw = random.Random(0)
    edges = sorted({tuple(sorted(draw.sample(range(5000), 2))) for _ in range(20_000)})
    folder = make_run(tmp_path, nodes=nodes, sites=3, edges=10)
    write_edges(folder / "consensus.csv", [(nodes[a], nodes[b], draw.uniform(0.1, 2.0)) for a, b in edges])
    begun = time.monotonic()
    html = build(folder)
    assert time.monotonic() - begun < 30.0
    assert len(html.encode()) < 6_000_000
    assert "5,000 nodes are too many for a picture with lines: see the heat map and the strongest edges" in html
    assert "blocks of up to 42 by 42 nodes" in html
    assert len(table(html, "Strongest edges of the consensus")) == 201
    assert len(data_of(html)["graphs"][0]["edges"]) == 10_000  # a quarter of what a page holds
    assert data_of(html)["graphs"][0]["total"] == len(edges)


def test_a_huge_graph_still_makes_a_small_page(tmp_path: Path) -> None:
    nodes = [f"a sensor with a long name, number {i}" for i in range(60_000)]
    draw = random.Random(0)
    ends = sorted({(a, draw.randrange(a)) for a in range(1, 60_000)})
    folder = make_run(tmp_path, nodes=nodes, sites=1, edges=0)
    write_edges(folder / "consensus.csv", [(nodes[a], nodes[b], draw.uniform(0.1, 2.0)) for a, b in ends])
    html = build(folder)
    data = data_of(html)
    assert len(html.encode()) < 6_000_000
    assert "Nodes are in their given order: they are too many to look for communities." in html
    assert data["all_nodes"] == 60_000
    assert len(data["graphs"][0]["edges"]) == 5_000
    assert {node for edge in data["graphs"][0]["edges"] for node in edge[:2]} == set(range(len(data["nodes"])))


def write_places(folder: Path, places: dict[str, tuple[float, ...]]) -> None:
    axes = "xyz"[: len(next(iter(places.values())))]
    lines = [",".join(("node", *axes)), *(",".join((name, *map(str, at))) for name, at in places.items())]
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")


def test_nodes_with_coordinates_are_seen_from_three_sides(tmp_path: Path) -> None:
    folder = make_run(tmp_path, nodes=6, edges=8)
    write_places(folder, {f"node {i}": (i, i * i, -i) for i in range(5)})
    html = build(folder)
    for name in ("x and y", "x and z", "y and z"):
        assert f'aria-label="The consensus in space, {name}' in html
    assert "Left out, because they have no coordinates: 1 node." in html
    write_places(folder, {f"node {i}": (i, i * i) for i in range(6)})
    assert build(folder).count('aria-label="The consensus in space') == 1
    assert "in space" not in build(make_run(tmp_path / "nowhere"))


def test_a_projection_keeps_shapes() -> None:
    corners = {"a": (0.0, 0.0, 0.0), "b": (100.0, 0.0, 0.0), "c": (0.0, 50.0, 0.0), "d": (0.0, 0.0, 25.0)}
    above, front, _ = projections.views(corners)
    assert [view.name for view in projections.views(corners)] == ["x and y", "x and z", "y and z"]
    wide = above.places["b"][0] - above.places["a"][0]
    assert above.places["a"][1] - above.places["c"][1] == pytest.approx(wide / 2)
    assert front.places["a"][1] - front.places["d"][1] == pytest.approx(wide / 4)
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in [*above.places.values(), *above.outline])


@pytest.mark.parametrize(
    "text, message",
    [
        ("node,x\n", "the columns node,x,y"),
        ("node,x,y\nnobody,1,2\n", "a node named in result.json, once"),
        ("node,x,y\nnode 0,1,2\nnode 0,1,2\n", "a node named in result.json, once"),
        ("node,x,y,z\nnode 0,1,2,far\n", "finite coordinates"),
    ],
)
def test_damaged_coordinates_say_where(tmp_path: Path, text: str, message: str) -> None:
    folder = make_run(tmp_path)
    (folder / "nodes.csv").write_text(text)
    with pytest.raises(DamageError, match=message):
        build(folder)


def test_who_took_part_is_what_the_ledger_says(tmp_path: Path) -> None:
    folder = make_run(tmp_path, sites=["a", "b"], rounds=9)
    rows = [{"silo": "a", "round": t, "release_point": "x", "mechanism": "reveal", "dim": 66} for t in range(9)]
    rows += [{"silo": "b", "round": t, "release_point": "x", "mechanism": "reveal", "dim": 66} for t in (0, 4)]
    rows += [{"silo": name, "round": 9, "release_point": "result", "mechanism": "reveal", "dim": 5} for name in "ab"]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sent = Counter(a for row in rows for a in [row["silo"]] * int(str(row["dim"])))
    assert table(build(folder), "Who took part") == [
        ["Sent by", "Rounds, of 9", "Releases", "Numbers sent", "Bytes sent"],
        ["a", "9", "10", f"{sent['a']}", f"{8 * sent['a']:,}"],
        ["b", "2", "3", f"{sent['b']}", f"{8 * sent['b']:,}"],
    ]


def test_how_a_parameter_was_chosen(tmp_path: Path) -> None:
    tried = {"parameter": "nu", "values": [0.1, 1.0, 10.0], "scores": [3.0, 2.0, None], "spread": [0.1, 0.2, None]}
    folder = make_run(tmp_path, path=tried | {"chosen": 1.0, "score": "held-out loss"})
    text = Page(build(folder)).text
    assert "How nu was chosen" in text
    assert "The held-out loss for each value of nu that was tried, with its spread. Chosen: 1 ." in text
    change(folder, path=tried | {"spread": [0.1], "chosen": 1.0, "score": "held-out loss"})
    with pytest.raises(DamageError, match="as many scores and spreads as values"):
        build(folder)
