"""Open runs from tables to pages: which learner, signed files, probabilities, numbers of edges as asked."""

import csv
import json
import tomllib
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from sklearn.covariance import GraphicalLassoCV

from silograph import cli, open_run
from silograph.audit.audit import audit_job
from silograph.core.errors import DamageError, InputError
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy, learner_of
from silograph.kernels.edges import pairs
from silograph.report.build import build as build_report
from silograph.report.build import read
from silograph.report.compare import compare
from silograph.run.jobs import open_job
from silograph.run.plan import dumps, parse
from silograph.run.run import execute

NODES = 12
SITES = {"ada": 700, "bob": 800, "cyd": 1000}
A, B = pairs(NODES)
NAMES = [f"n{k:02d}" for k in range(NODES)]


@pytest.fixture(scope="module")
def truth():
    """Signs of a graph that all sites share."""
    rng = np.random.default_rng(7)
    theta = np.zeros((NODES, NODES))
    taken = rng.choice(len(A), 16, replace=False)
    theta[A[taken], B[taken]] = rng.uniform(0.6, 1.2, 16) * np.where(np.arange(16) % 2, -1.0, 1.0)
    theta += theta.T
    return theta + np.diag(np.abs(theta).sum(0) + 0.3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, truth):
    made, rng = tmp_path_factory.mktemp("signed"), np.random.default_rng(8)
    for name, count in SITES.items():
        rows = rng.multivariate_normal(np.zeros(NODES), np.linalg.inv(truth), count)
        np.savetxt(made / f"{name}.csv", rows, delimiter=",", header=",".join(NAMES), comments="")
    return made


def plan(sites=tuple(SITES), privacy=None, **method):
    data = {name: method.pop(name) for name in ("candidates", "neighbours") if name in method}
    return GraphPlan(Data(tuple(f"{name}.csv" for name in sites), **data), ConsensusGraph(**method), privacy)


def learn(folder, out, **method):
    return execute(plan(**method), folder, out, lambda *_: None, build_report)


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    return learn(folder, tmp_path_factory.mktemp("run") / "out")


def signs_in(path):
    found = {frozenset((row["source"], row["target"])): int(row["sign"]) for row in rows_of(path)}
    return np.array([found.get(frozenset((NAMES[a], NAMES[b])), 0) for a, b in zip(A, B, strict=True)])


def score(found, expected):
    """F of edges that have the right sign."""
    return 2.0 * ((found == expected) & (expected != 0)).sum() / ((found != 0).sum() + (expected != 0).sum())


def test_the_default_finds_signed_edges_at_least_as_well_as_scikit_learn(finished, folder, truth):
    expected = -np.sign(truth[A, B])
    consensus = score(signs_in(finished.folder / "consensus.csv"), expected)
    assert consensus > 0.9
    pooled = np.concatenate([np.loadtxt(folder / f"{name}.csv", delimiter=",", skiprows=1) for name in SITES])
    peer = GraphicalLassoCV().fit(pooled).precision_[A, B]
    assert consensus >= score(-np.sign(np.where(np.abs(peer) > 1e-6, peer, 0.0)), expected)
    for name in SITES:
        assert score(signs_in(finished.folder / "sites" / f"{name}.csv"), expected) > 0.8


def test_one_exchange_and_what_it_reveals(finished):
    result = finished.result
    assert (result["learner"], result["rounds"], result["trace"]) == ("likelihood", 1, [])
    assert {site["bytes_sent"] for site in result["sites"]} == {5 * 8 * NODES * (NODES + 1) // 2}  # of five parts
    assert (
        "every site reveals exactly, once, the second moments of 5 parts of its rows" in result["privacy"]["notes"][0]
    )
    assert {row["epsilon"] for row in result["privacy"]["guarantees"]} == {"infinity"}
    assert result["certified_gap"] <= 1e-3
    path = result["path"]
    assert path["values"][int(np.argmax(path["scores"]))] == path["chosen"] == result["sites"][0]["edges"]
    assert "largest expected F-score" in result["reason"]


def test_files_and_the_opened_run_have_signs_and_probabilities(finished):
    rows = rows_of(finished.folder / "consensus.csv")
    assert list(rows[0]) == ["source", "target", "weight", "sign", "probability"]
    assert all(float(row["weight"]) > 0.0 and 0.0 <= float(row["probability"]) <= 1.0 for row in rows)
    assert {row["sign"] for row in rows} == {"1", "-1"}
    assert list(rows_of(finished.folder / "sites" / "ada.csv")[0])[3:] == ["sign", "probability", "shared"]
    graph = nx.read_graphml(finished.folder / "consensus.graphml")
    source, target = rows[0]["source"], rows[0]["target"]
    assert graph[source][target]["sign"] == int(rows[0]["sign"])
    assert graph[source][target]["probability"] == pytest.approx(float(rows[0]["probability"]), rel=1e-5)
    assert open_run(finished.folder).graph()[source][target]["sign"] == int(rows[0]["sign"])


def test_the_page_draws_negative_edges_in_another_colour_and_line(finished):
    page = (finished.folder / "report.html").read_text()
    assert 'class="edge negative"' in page
    assert 'stroke-dasharray="6 3"' in page
    assert 'class="dot negative"' in page
    assert "dashed orange" in page
    assert "How the number of edges was chosen" in page


@pytest.mark.parametrize(("asked", "number"), [({"degree": 2.5}, 15), ({"density": 0.3}, 20), ({"edges": 9}, 9)])
def test_numbers_of_edges_are_met(asked, number, folder, tmp_path, capsys):
    result = learn(folder, tmp_path / "out", **asked, consensus_density=0.25).result
    assert {site["edges"] for site in result["sites"]} == {number}
    assert result["consensus"]["edges"] == round(0.25 * len(A))
    assert "was asked for" in result["reason"]


def test_without_negative_relations_there_are_none_and_what_is_missing_is_said(folder, tmp_path, monkeypatch, capsys):
    files = [str(folder / f"{name}.csv") for name in SITES]
    command = ["silograph", "learn", *files, "-o", str(tmp_path / "out"), "--nonnegative", "--edges", "40"]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code in (0, None)
    assert set(signs_in(tmp_path / "out" / "consensus.csv")) <= {0, 1}
    assert "is the nearest that was found: a graph has a whole number of edges" in capsys.readouterr().out


def test_only_edges_of_the_wanted_probability_are_drawn(finished, folder, tmp_path):
    sure = learn(folder, tmp_path / "out", confidence=0.99)
    for name in ("consensus.csv", "sites/bob.csv"):
        every = {(r["source"], r["target"]) for r in rows_of(finished.folder / name) if float(r["probability"]) >= 0.99}
        assert {(r["source"], r["target"]) for r in rows_of(sure.folder / name)} == every


def test_a_sum_leaves_a_consensus_alone(folder, tmp_path, truth):
    finished = learn(folder, tmp_path / "out", reveal="sum")
    assert not (finished.folder / "sites").exists()
    assert score(signs_in(finished.folder / "consensus.csv"), -np.sign(truth[A, B])) > 0.9
    assert finished.result["privacy"]["mode"] == "exact"
    assert "no site's own (secure sum)" in finished.result["privacy"]["notes"][0]
    assert "nobody saw more than the sum" in (finished.folder / "report.html").read_text()


@pytest.mark.parametrize("reveal", [None, "sum"])
def test_an_audit_says_what_lies_open(reveal, folder):
    found = audit_job(open_job(plan(reveal=reveal), folder))
    assert not found.claimed
    assert "lie" in found.attacks[0]["words"]


def test_runs_compare_by_sign(finished, folder, tmp_path):
    other = learn(folder, tmp_path / "out", learner="papers")
    told = compare([finished.folder, other.folder])
    change = told.changes()[0]
    signs = open_run(finished.folder).signs["consensus"]
    assert {frozenset(edge[:2]) for edge in change.turned} == {
        frozenset(edge[:2]) for edge in change.kept if signs[frozenset(edge[:2])] < 0
    }
    both = len(change.kept) - len(change.turned)
    assert change.alike == pytest.approx(both / (len(change.before) + len(change.gained)))


def test_a_broken_sign_is_found(finished, tmp_path):
    copy = tmp_path / "copy"
    (copy / "sites").mkdir(parents=True)
    for path in finished.folder.rglob("*"):
        if path.is_file():
            (copy / path.relative_to(finished.folder)).write_bytes(path.read_bytes())
    text = (copy / "consensus.csv").read_text()
    (copy / "consensus.csv").write_text(text.replace(",-1,", ",-2,", 1))
    with pytest.raises(DamageError, match="a sign, 1 or -1"):
        read(copy)


# ---- which learner ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "nodes", "learner"),
    [
        ({}, 12, "likelihood"),
        ({}, 2000, "likelihood"),
        ({}, 2001, "papers"),
        ({"nonnegative": True}, 2001, "likelihood"),
        ({"learner": "likelihood"}, 9000, "likelihood"),
        ({"degree": 4.0, "consensus_density": 0.1, "confidence": 0.9}, 12, "likelihood"),
        *(
            ({name: value}, 12, "papers")
            for name, value in {
                "beta": 0.1, "nu": 1.0, "lam": 0.1, "alpha": 2.0, "zeta": 0.1, "rounds": 9, "solver": "paper",
                "coupling_by": "held-out", "resamples": 5, "candidates": "c.csv", "neighbours": 3, "tolerance": 1e-5,
                "learner": "log-degree",
            }.items()
        ),
    ],
)  # fmt: skip
def test_settings_and_size_choose_the_learner(method, nodes, learner):
    assert learner_of(plan(**method), nodes) == learner


def test_a_private_run_chooses_among_the_likelihoods_of_what_was_released():
    assert learner_of(plan(privacy=Privacy(1.0)), 50) == "likelihood"
    assert learner_of(plan(privacy=Privacy(1.0)), 51) == "likelihood"
    assert plan(privacy=Privacy(1.0)).deployable() == plan(privacy=Privacy(1.0))
    assert learner_of(plan(privacy=Privacy(1.0), consensus_density=0.1), 9) == "papers"


def test_the_old_name_of_the_papers_model_is_read_and_says_the_same(folder, tmp_path):
    old, new = (learn(folder, tmp_path / name, learner=name) for name in ("log-degree", "papers"))
    assert (old.folder / "consensus.csv").read_bytes() == (new.folder / "consensus.csv").read_bytes()
    assert old.result["learner"] == "papers"


def test_plans_come_back_from_their_files():
    full = plan(learner="likelihood", reveal="sum", choose_by="ebic", nonnegative=True, confidence=0.9)
    for each in (full, plan()):
        assert parse(tomllib.loads(dumps(each)), "plan") == each
    assert "learner" not in dumps(plan())
    assert plan().deployable().method.learner == "likelihood"
    assert plan(beta=0.1).deployable() == replace(plan(beta=0.1), data=replace(plan().data, scale="own"))


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"learner": "log-det"}, "one private release for log-det"),
        ({"learner": "likelihood", "beta": 0.1}, "likelihood has no such setting"),
        ({"learner": "papers", "nonnegative": True}, "expected the learner 'likelihood'"),
        ({"reveal": "sum", "beta": 0.1}, "beta asks for another"),
        ({"reveal": "sum", "choose_by": "held-out"}, "moments of every site"),
        ({"reveal": "sum", "consensus_density": 0.1}, "moments of every site"),
        ({"choose_by": "ebic", "degree": 3.0}, "found both"),
        ({"confidence": 0.0}, "above 0 and at most 1"),
        ({"privacy": Privacy(1.0), "reveal": "sum"}, "privacy was asked for"),
        ({"privacy": Privacy(1.0), "confidence": 0.5}, "none with privacy"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(method, words):
    with pytest.raises(InputError, match=words):
        plan(**method)


@pytest.mark.parametrize(
    ("rows", "method", "words"),
    [
        (1, {}, "at least 2"),
        (6, {"choose_by": "held-out"}, "at least 10 signals"),
    ],
)
def test_too_few_rows_are_refused_by_name(rows, method, words, folder, tmp_path):
    text = (folder / "ada.csv").read_text().splitlines()[: 1 + rows]
    (folder / "few.csv").write_text("\n".join([*text, ""]))
    with pytest.raises(InputError, match=words):
        learn(folder, tmp_path / "out", sites=("few", "bob"), **method)
    assert not (tmp_path / "out").exists()


def test_a_sum_of_two_sites_is_refused(folder, tmp_path):
    with pytest.raises(InputError, match="at least 3 sites"):
        learn(folder, tmp_path / "out", sites=("ada", "bob"), reveal="sum")


@pytest.mark.parametrize(("value", "words"), [("inf", "infinite"), ("1e80", "larger")])
def test_what_is_no_number_is_refused_where_it_is(value, words, folder, tmp_path):
    lines = (folder / "ada.csv").read_text().splitlines()
    lines[4] = ",".join([value, *lines[4].split(",")[1:]])
    (folder / "odd.csv").write_text("\n".join([*lines, ""]))
    with pytest.raises(InputError, match=f"n00.*{words}|{words}"):
        learn(folder, tmp_path / "out", sites=("odd", "bob"))


def test_a_node_that_never_changes_is_refused_by_name(folder, tmp_path):
    lines = (folder / "ada.csv").read_text().splitlines()
    lines[1:] = [",".join(["0.1", *line.split(",")[1:]]) for line in lines[1:]]
    (folder / "still.csv").write_text("\n".join([*lines, ""]))
    with pytest.raises(InputError, match="constant"):
        learn(folder, tmp_path / "out", sites=("still", "bob"))


def test_units_do_not_matter_not_even_huge_ones(finished, folder, tmp_path):
    for name in SITES:
        rows = np.loadtxt(folder / f"{name}.csv", delimiter=",", skiprows=1) * np.geomspace(1e-60, 1e60, NODES)
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header=",".join(NAMES), comments="")
    scaled = learn(tmp_path, tmp_path / "out")
    for name in ("consensus.csv", "sites/bob.csv"):
        np.testing.assert_array_equal(signs_in(scaled.folder / name), signs_in(finished.folder / name))


def test_the_order_of_files_does_not_matter(finished, folder, tmp_path):
    turned = learn(folder, tmp_path / "out", sites=("cyd", "ada", "bob"))
    for name in ("consensus.csv", "sites/bob.csv", "consensus.graphml"):
        assert (turned.folder / name).read_bytes() == (finished.folder / name).read_bytes()


def test_results_are_plain_json(finished):
    text = (finished.folder / "result.json").read_text()
    assert json.loads(text) == finished.result
    assert "NaN" not in text
