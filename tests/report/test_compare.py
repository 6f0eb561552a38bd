"""Runs side by side: every difference is one of the files, and what cannot be compared is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graph_runs import make_run, some_edges, write_edges
from pages import NASTY, Page, change, guarantee, only_own_scripts, refuse_requests, table
from silograph.cli import app
from silograph.core.errors import InputError
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy
from silograph.report.compare import compare
from silograph.report.compare_page import page
from silograph.run.run import execute


def two_runs(base: Path) -> tuple[Path, Path]:
    """The second lost a – b, gained a – c at the consensus, has another budget, and a site that the first has not."""
    first = make_run(base / "first", nodes=["a", "b", "c", "d"], sites=["s", "t"], edges=3)
    second = make_run(base / "second", nodes=["d", "c", "b", "a"], sites=["s", "u"], edges=3, mode="dp")
    write_edges(first / "consensus.csv", [("a", "b", 1.0), ("b", "c", 2.0)])
    write_edges(second / "consensus.csv", [("c", "b", 2.5), ("a", "c", 0.5)])
    (second / "plan.toml").write_text('[method]\nname = "consensus_graph"\ndegree = 4.0\n')
    return first, second


def test_edges_gained_lost_and_kept(tmp_path: Path) -> None:
    told = compare(two_runs(tmp_path)).to_json()
    assert [(each["graph"], each["run"]) for each in told["graphs"]] == [("consensus", "second"), ("s", "second")]
    assert told["graphs"][0]["gained"] == [["a", "c", 0.5]]
    assert told["graphs"][0]["lost"] == [["a", "b", 1.0]]
    assert told["graphs"][0]["kept"] == 1
    assert told["graphs"][0]["alike"] == pytest.approx(1 / 3)
    assert told["not_in_all"] == ["t", "u"]
    assert {"name": "method.degree", "values": [None, 4.0]} in told["differences"]
    assert not any(row["name"] == "method.name" for row in told["differences"])


def test_costs_stand_side_by_side_and_equal_ones_together(tmp_path: Path) -> None:
    first, second = two_runs(tmp_path)
    privacy = json.loads((second / "result.json").read_text())["privacy"]
    rows = [guarantee("s", "server", 1.00001), guarantee("s", "public", 0.5), guarantee("u", "public", 0.5)]
    change(second, privacy=privacy | {"guarantees": rows})
    html = page(compare([first, second]))
    assert table(html, "Guarantees") == [
        ["Of", "Against", "first", "second"],
        ["s", "own server and other sites", "none", "not stated"],
        ["s", "public", "none", "0.5 at 10⁻⁵"],
        ["t", "own server, other sites and public", "none", "not stated"],
        ["s", "server", "not stated", "1.001 at 10⁻⁵"],
        ["u", "public", "not stated", "0.5 at 10⁻⁵"],
    ]


def test_a_graph_against_itself_has_changed_nothing(tmp_path: Path) -> None:
    first = make_run(tmp_path / "first")
    shutil.copytree(first, tmp_path / "second")
    found = compare([first, tmp_path / "second"])
    assert all(not each.gained and not each.lost and each.alike == 1.0 for each in found.changes())
    assert found.differences() == []
    assert "Nothing: the plans, the parameters and the software are the same." in page(found)


def test_runs_that_promise_different_things_are_not_held_against_each_other(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "first", mode="dp"), make_run(tmp_path / "second", mode="dp")
    assert "Not the same promise" not in page(compare([first, second]))
    privacy = json.loads((second / "result.json").read_text())["privacy"]
    change(second, privacy=privacy | {"protected_unit": "one person"})
    assert "Not the same promise" in page(compare([first, second]))


def test_learners_are_listed_and_smoothness_is_not_compared_across_them(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "first"), make_run(tmp_path / "second")
    assert "smoothness" in {row["measure"] for row in compare([first, second]).errors()}
    for learner in ("log-det", "likelihood"):  # the first has a smoothness of its own, the second none
        change(second, learner=learner)
        found = compare([first, second])
        assert {"name": "result: learner", "values": ["papers", learner]} in found.differences()
        assert "smoothness" not in {row["measure"] for row in found.errors()}
        assert "Not compared, because the learners differ: smoothness." in page(found)


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    first, second = two_runs(tmp_path)
    with pytest.raises(InputError, match="two run folders or more"):
        compare([first])
    with pytest.raises(InputError, match="was named before"):
        compare([first, second, tmp_path / "second" / ".." / "first"])
    strange = make_run(tmp_path / "strange", nodes=["a", "b", "c", "e"], edges=3)
    with pytest.raises(InputError, match="graphs over the same nodes, but only one of them has d and e"):
        compare([first, strange])
    change(strange, method="another_method")
    with pytest.raises(InputError, match=r"expected a method: one of consensus_graph, .*, but found 'another_method'"):
        compare([first, strange])


def test_the_page_asks_for_nothing_and_names_cannot_inject(tmp_path: Path) -> None:
    names = [NASTY, "</script>", "a", "b"]
    first = make_run(tmp_path / "first", nodes=names, sites=[NASTY], edges=3)
    second = make_run(tmp_path / "second", nodes=names, sites=[NASTY], edges=4, consensus=2)
    html = page(compare([first, second]))
    refuse_requests(html)
    only_own_scripts(Page(html))
    assert NASTY in Page(html).text
    assert html == page(compare([first, second]))


def test_many_nodes_are_counted_and_not_drawn(tmp_path: Path) -> None:
    nodes = [f"n{i}" for i in range(900)]
    first, second = (make_run(tmp_path / name, nodes=nodes, sites=2, edges=50) for name in ("first", "second"))
    write_edges(second / "consensus.csv", some_edges(nodes, 50, seed=9))
    html = page(compare([first, second]))
    assert "too many nodes for a picture with lines" in html
    assert Page(html).tags["svg"] == 0


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Real runs, whose bills can be checked."""
    from silograph.data.synthetic import write_sample_sites
    from silograph.report.build import build

    base = tmp_path_factory.mktemp("finished")
    data = Data(tuple(map(str, write_sample_sites(base / "sites", 1)[:2])), scale="none")
    budgets = {"open": None, "tight": Privacy(1.0), "loose": Privacy(4.0)}
    plans = {name: GraphPlan(data, ConsensusGraph(degree=5.0), privacy) for name, privacy in budgets.items()}
    return {name: execute(plan, base, base / name, lambda *_: None, build).folder for name, plan in plans.items()}


def test_the_command(finished: dict[str, Path], tmp_path: Path) -> None:
    folders = [str(finished[name]) for name in ("tight", "loose")]
    made = CliRunner().invoke(app, ["compare", *folders, "-o", str(tmp_path / "page.html"), "--json"])
    assert made.exit_code == 0
    told = json.loads(made.stdout)
    assert told["page"] == str(tmp_path / "page.html")
    assert [run["privacy"] for run in told["runs"]] == ["Private", "Private"]
    assert len(told["costs"]) == 2 * 4  # sites and observers
    for row in told["costs"]:
        assert [cell["epsilon"] for cell in row["values"]] == pytest.approx([1.0, 4.0], rel=1e-6)
    assert {"name": "privacy.epsilon", "values": [1.0, 4.0]} in told["differences"]
    refuse_requests((tmp_path / "page.html").read_text())
    spoken = CliRunner().invoke(app, ["compare", *folders]).stdout
    assert "gained against tight" in spoken
    assert spoken.count("epsilon 1, delta 1e-06") == 1


def test_the_command_checks_bills_and_leaves_no_page_of_a_false_one(finished: dict[str, Path], tmp_path: Path) -> None:
    false = tmp_path / "false"
    shutil.copytree(finished["loose"], false)
    result = json.loads((false / "result.json").read_text())
    for row in result["privacy"]["guarantees"]:
        row["epsilon"] = 0.1
    (false / "result.json").write_text(json.dumps(result))
    made = CliRunner().invoke(app, ["compare", str(finished["open"]), str(false), "-o", str(tmp_path / "page.html")])
    assert made.exit_code != 0
    assert "as its ledger says" in str(made.exception)
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("name", ["result.json", "page.html", "."])
def test_nothing_but_a_page_is_written_over(name: str, tmp_path: Path) -> None:
    first, second = two_runs(tmp_path)
    kept = first / name
    if name == "page.html":
        kept.write_text("something of the user's")
    before = kept.read_bytes() if kept.is_file() else None
    found = CliRunner().invoke(app, ["compare", str(first), str(second), "-o", str(kept)])
    assert isinstance(found.exception, InputError)
    assert before is None or kept.read_bytes() == before
