"""Where nodes are: read once for each, by name, and written into the run's folder and its GraphML."""

import csv

import networkx as nx
import numpy as np
import pytest

from silograph.core.errors import InputError
from silograph.data.coordinates import read_coordinates
from silograph.data.synthetic import write_sample_sites
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan
from silograph.report.build import build as build_report
from silograph.run.jobs import open_job
from silograph.run.plan import dumps, load
from silograph.run.run import execute

NODES = ("a", "b", "c")


def write(tmp_path, text):
    path = tmp_path / "places.csv"
    path.write_text(text)
    return path


def test_places_come_in_the_order_of_the_nodes(tmp_path):
    path = write(tmp_path, "\ufeffnode,y,x,colour\n c ,3,30,red\na,1,10,blue\nb,-2e0,20,\n")
    known = read_coordinates(path, NODES)
    assert known.axes == ("x", "y")
    np.testing.assert_array_equal(known.places, [[10, 1], [20, -2], [30, 3]])
    assert known.attributes()["b"] == {"x": 20.0, "y": -2.0}


def test_what_is_written_is_read_back(tmp_path):
    known = read_coordinates(write(tmp_path, 'node,x,y,z\n"b, north",.1,2,3\na,1e-300,5,6\n'), ("a", "b, north"))
    (tmp_path / "again.csv").write_bytes(known.to_csv())
    again = read_coordinates(tmp_path / "again.csv", known.nodes)
    np.testing.assert_array_equal(again.places, known.places)
    assert again.axes == ("x", "y", "z")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "found nothing"),
        ("node,x\na,1\n", "found node,x"),
        ("node,x,y\na,1,2\nb,1,2\n", "it lacks 'c'"),
        ("node,x,y\na,1,2\nb,1,2\nc,1,2\nd,1,2\n", "it also has 'd'"),
        ("node,x,y\na,1,2\na,1,2\n", "row 2: expected every node once"),
        ("node,x,y\na,1,east\n", "row 1, y: expected a finite number"),
        ("node,x,y\na,1\n", "row 1, y: expected a finite number"),
        ("node,x,y,z\na,1,2,inf\n", "row 1, z: expected a finite number"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        read_coordinates(write(tmp_path, text), NODES)


def test_files_that_are_none(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match="a CSV of coordinates"):
            read_coordinates(path, NODES)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run whose plan names coordinates, and the run of the plan it left."""
    base = tmp_path_factory.mktemp("placed")
    files = write_sample_sites(base / "sites", 1)
    with open(files[0], newline="") as file:
        nodes = next(csv.reader(file))
    lines = [f"{node},{k},{-k / 3}\n" for k, node in enumerate(nodes)]
    (base / "places.csv").write_text("node,x,y\n" + "".join(reversed(lines)))
    data = Data(tuple(str(path.relative_to(base)) for path in files), coordinates="places.csv")
    plan = GraphPlan(data, ConsensusGraph(degree=4.0, rounds=30, tolerance=1e-3))
    first = execute(plan, base, base / "out", lambda number, line: None, build_report).folder
    again = execute(load(first / "plan.toml"), first, base / "again", lambda number, line: None, build_report).folder
    return base, nodes, first, again


def test_a_run_leaves_the_places_of_its_nodes(finished):
    _, nodes, first, again = finished
    known = read_coordinates(first / "nodes.csv", nodes)
    np.testing.assert_array_equal(known.places[:, 0], np.arange(len(nodes)))
    for path in (first / "consensus.graphml", *(first / "sites").glob("*.graphml")):
        graph = nx.read_graphml(path)
        assert {node: (place["x"], place["y"]) for node, place in graph.nodes(data=True)} == {
            node: (float(k), -k / 3) for k, node in enumerate(nodes)
        }
    for name in ("nodes.csv", "consensus.graphml", "consensus.csv"):
        assert (again / name).read_bytes() == (first / name).read_bytes()


def test_the_plan_names_the_file(finished):
    base, _, first, _ = finished
    plan = load(first / "plan.toml")
    assert (first / plan.data.coordinates).resolve() == (base / "places.csv").resolve()
    assert "coordinates" in dumps(plan)


def test_places_of_other_nodes_are_refused_before_work_starts(finished):
    base, *_ = finished
    (base / "wrong.csv").write_text("node,x,y\nsomewhere,1,2\n")
    files = tuple(f"sites/{path.name}" for path in sorted((base / "sites").iterdir()))
    with pytest.raises(InputError, match="it lacks"):
        open_job(GraphPlan(Data(files, coordinates="wrong.csv")), base)
