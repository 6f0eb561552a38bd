"""Persons' votes from a plan to its folder: when they are taken, what is refused beforehand, what is said."""

import json
import math
import re
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from silograph.cli import app
from silograph.core.errors import InputError
from silograph.data.silos import People, Silos
from silograph.families.graphs.build import build
from silograph.families.graphs.communities import reliable
from silograph.families.graphs.feasible import NOISE, TABLE, expected, feasibility
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy, learner_of
from silograph.families.graphs.who_votes import adds_up
from silograph.kernels.share_law import learn_shares
from silograph.methods.person_votes import ReleasedVotes, SummedVotes
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.mechanisms import Gaussian
from silograph.report.build import build as report
from silograph.run.plan import dumps, load, parse
from silograph.run.run import execute
from silograph.tasks.person_votes import PersonVotes

NODES, PERSONS, ROWS, SITES = 54, 40, 20, ("ada", "bob", "cyd")
NAMES = [f"n{k}" for k in range(NODES)]
PEOPLE = Data(tuple(f"{site}.csv" for site in SITES), unit_column="who")
PLAN = GraphPlan(PEOPLE, ConsensusGraph(edges=NODES), Privacy(8.0, 1e-3), seed=3)


def rows(rng):
    """Everybody's graph is a ring."""
    ring = np.eye(NODES, k=1) + np.eye(NODES, k=-1) + np.eye(NODES, k=NODES - 1) + np.eye(NODES, k=1 - NODES)
    return rng.standard_normal((ROWS, NODES)) @ np.linalg.cholesky(np.linalg.inv(2.05 * np.eye(NODES) - ring)).T


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("votes")
    rng = np.random.default_rng(0)
    for site in SITES:
        lines = [",".join(["who", *NAMES])]
        for person in range(PERSONS):
            lines += [",".join([f"p{person}", *(f"{x:.5g}" for x in row)]) for row in rows(rng)]
        (made / f"{site}.csv").write_text("\n".join(lines) + "\n")
    angle = 2.0 * np.pi * np.arange(NODES) / NODES
    places = zip(NAMES, np.cos(angle) + 2.0, np.sin(angle), strict=True)
    (made / "places.csv").write_text("node,x,y,z\n" + "".join(f"{n},{x},{y},0\n" for n, x, y in places))
    return made


def run(plan, folder, goal):
    return execute(plan, folder, goal, lambda *_: None, report)


def setup_of(plan, persons=200, nodes=NODES, sites=SITES, rows_each=ROWS):
    """From shapes alone: the rows are zero."""
    people = People(np.zeros((persons * rows_each, nodes)), np.repeat(np.arange(persons), rows_each))
    return build(plan, Silos(sites, tuple(f"n{k}" for k in range(nodes)), (people,) * len(sites)))


# ---- when persons vote -----------------------------------------------------------------------------------------------


def test_beyond_50_nodes_persons_vote_in_a_secure_sum_and_the_run_says_why():
    setup = setup_of(PLAN)
    assert isinstance(setup.method, SummedVotes)
    assert setup.masks is not None
    assert "54 nodes are more than 50" in setup.learner_why
    assert learner_of(PLAN, 50) == "likelihood"
    assert isinstance(setup_of(PLAN, sites=SITES[:2]).method, ReleasedVotes)  # two sites hide nobody in a sum


def test_votes_can_be_asked_for_at_any_size_and_by_a_release_a_site():
    forced = replace(PLAN, method=replace(PLAN.method, learner="votes", edges=5))
    assert isinstance(setup_of(forced, nodes=10).method, SummedVotes)
    assert setup_of(forced, nodes=10).learner_why is None
    each = replace(forced, privacy=replace(forced.privacy, mode="one-release"))
    setup = setup_of(each)
    assert isinstance(setup.method, ReleasedVotes)
    assert setup.masks is None


@pytest.mark.parametrize(
    ("changes", "learner"),
    [
        ({"data": replace(PEOPLE, unit_column=None)}, "likelihood"),
        ({"privacy": replace(PLAN.privacy, clip=1.0)}, "likelihood"),
        ({"privacy": replace(PLAN.privacy, mode="correlated")}, "likelihood"),
        ({"privacy": Privacy(8.0, mechanism="laplace")}, "likelihood"),
        ({"method": ConsensusGraph(beta=0.1)}, "papers"),
        ({"method": ConsensusGraph(learner="log-det")}, "log-det"),
    ],
)
def test_who_asks_for_anything_else_gets_it(changes, learner):
    assert learner_of(replace(PLAN, **changes), 100) == learner


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"privacy": None, "data": replace(PEOPLE, unit_column=None)}, "a privacy budget for votes"),
        ({"data": replace(PEOPLE, unit_column=None)}, "persons, who vote"),
        ({"privacy": replace(PLAN.privacy, clip=1.0)}, "no clip for votes"),
        ({"privacy": Privacy(8.0, mechanism="laplace")}, "gaussian noise for votes"),
        ({"privacy": replace(PLAN.privacy, mode="correlated")}, "one release or a secure sum"),
        ({"method": ConsensusGraph(learner="votes", beta=0.1)}, "no beta"),
        ({"data": replace(PEOPLE, candidates="edges.csv")}, "all pairs of nodes"),
    ],
)
def test_votes_with_settings_they_do_not_have_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        replace(PLAN, **{"method": ConsensusGraph(learner="votes"), **changes})


def test_plans_of_other_jobs_are_written_as_before():
    """Where nobody can vote the mode is named as it was; where somebody can, the number of nodes decides later."""
    other = replace(PLAN, data=replace(PEOPLE, unit_column=None))
    assert other.privacy.mode == "one-release"
    assert 'mode = "one-release"' in dumps(other)
    assert PLAN.privacy.mode is None
    assert "mode" not in dumps(PLAN)


def test_organisations_agree_on_votes_by_their_name():
    agreed = PLAN.spelled_out(NODES, 3)
    assert (agreed.method.learner, agreed.privacy.mode) == ("votes", "secure-sum")
    assert PLAN.spelled_out(NODES, 2).privacy.mode == "one-release"
    assert PLAN.spelled_out(50, 3) == PLAN
    assert adds_up(agreed.privacy, 3)


# ---- before anything is spent ----------------------------------------------------------------------------------------


def test_noise_that_swamps_votes_is_refused_and_sure_edges_are_offered():
    poor = replace(PLAN, privacy=Privacy(0.2, 1e-5))
    with pytest.raises(InputError, match=r"Nothing was spent\. Draw only the edges that are sure \(confidence=0\.9\)"):
        setup_of(poor, persons=50)
    sure = replace(poor, method=replace(PLAN.method, confidence=0.9))
    assert setup_of(sure, persons=50).method.confidence == 0.9


def test_a_person_with_too_few_rows_is_refused_by_its_row():
    with pytest.raises(InputError, match=r"site 'ada', data row 1: expected at least 3 rows of every person"):
        setup_of(PLAN, rows_each=2)


def test_more_votes_than_pairs_are_refused():
    with pytest.raises(InputError, match="edges: expected at most"):
        setup_of(replace(PLAN, method=ConsensusGraph(edges=NODES * NODES)))


def test_a_column_of_persons_with_another_name_is_refused(folder, tmp_path):
    for site in SITES:
        (tmp_path / f"{site}.csv").write_bytes((folder / f"{site}.csv").read_bytes())
    (tmp_path / "bob.csv").write_text((folder / "bob.csv").read_text().replace("who", "whose", 1))
    with pytest.raises(InputError, match=r"bob\.csv: expected a column 'who', which names the person of each row"):
        run(PLAN, tmp_path, tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))


def test_a_confidence_without_votes_is_refused_once_the_nodes_are_known():
    plan = replace(PLAN, method=ConsensusGraph(confidence=0.9))
    with pytest.raises(InputError, match=r"confidence: expected votes"):
        setup_of(plan, nodes=20)


def test_what_is_expected_lies_between_what_was_measured_and_falls_with_noise():
    """Persons needed are those at whom the table itself says nine in ten."""
    task = PersonVotes(100, 300, "who")
    made = [ReleasedVotes(task, Gaussian(gaussian_multiplier(e, 1e-5, 1)), (200,) * 10) for e in (1.0, 2.0, 8.0)]
    found = [expected(method) for method in made]
    assert [each.most for each in found] == sorted(each.most for each in found)
    assert all(each.least < each.most for each in found)
    for method, each in zip(made, found, strict=True):
        assert each.noise == pytest.approx(math.sqrt(10.0 * 600.0) * method.mechanism.multiplier / 2000.0)
        grown = replace(method, counts=tuple(math.ceil(each.persons[1] / 10) for _ in range(10)))
        assert expected(grown).least == pytest.approx(0.9, abs=0.01)
    assert all(len(curve) == len(NOISE) for curves in TABLE.values() for curve in curves)


def test_where_sites_could_add_up_the_run_says_what_that_would_gain():
    each = replace(PLAN, privacy=replace(PLAN.privacy, mode="one-release"))
    several, few = (list(feasibility(setup_of(each, sites=sites).method)) for sites in (SITES, SITES[:2]))
    assert "A secure sum (--privacy secure-sum) would have noise of" in several[-1]
    assert len(few) == 1
    assert len(list(feasibility(setup_of(PLAN).method))) == 1


def test_the_table_says_what_a_fresh_simulation_finds():
    """Another seed than those of the table, one of its cells: F at noise .1 varies by about .02 between seeds."""
    from benchmarks.expected_votes import scores

    found = scores(60, "geometric", 7)
    at = NOISE.index(0.1)
    assert found[at] == pytest.approx(TABLE[60][0][at], abs=0.1)
    assert found[0] > found[at] > found[-1]


# ---- what comes out --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    plan = replace(PLAN, data=replace(PEOPLE, coordinates="places.csv"))
    return run(plan, folder, tmp_path_factory.mktemp("run") / "out")


def test_edges_have_probabilities_and_weights_are_shares(finished):
    result = finished.result
    assert result["learner"] == "votes"
    header, *lines = (finished.folder / "consensus.csv").read_text().splitlines()
    assert header == "source,target,weight,probability"
    known = np.array([[float(cell) for cell in line.split(",")[2:]] for line in lines])
    assert len(known) == NODES
    assert ((known > 0.0) & (known <= 1.0)).all()
    assert result["expected_true"] == pytest.approx(known[:, 1].sum(), abs=1e-3)
    graph = nx.read_graphml(finished.folder / "consensus.graphml")
    assert {"weight", "probability"} == set(next(iter(graph.edges(data=True)))[2])
    true = sum((int(a[1:]) - int(b[1:])) % NODES in (1, NODES - 1) for a, b in graph.edges)
    assert true >= 0.85 * NODES
    assert "Probability" in (finished.folder / "report.html").read_text()


def test_distance_alone_and_communities_are_beside_it(finished):
    """Neighbours on the ring are its nearest pairs."""
    assert finished.result["distance_alone"] > 0.7
    known = finished.result["communities"]
    assert 0.3 < known["agreement"] <= 1.0
    assert all(0.0 <= share <= 1.0 for share in known["kept"])


def test_viewers_of_connectomes_can_read_it(finished):
    weights = np.loadtxt(finished.folder / "consensus.edge")
    assert weights.shape == (NODES, NODES)
    assert (weights == weights.T).all()
    assert (weights > 0.0).sum() == 2 * NODES
    lines = [line.split() for line in (finished.folder / "consensus.node").read_text().splitlines()]
    assert [line[5] for line in lines] == NAMES
    assert all(len(line) == 6 for line in lines)
    assert [int(line[4]) for line in lines] == (weights > 0.0).sum(0).tolist()


def test_the_ledger_says_how_far_a_person_moves_the_votes(finished):
    for line in (finished.folder / "ledger.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert row["l2"] == pytest.approx(math.sqrt(2 * NODES), rel=1e-5)
        assert "sqrt(2k) where two persons share none" in row["why"]
        assert row["protected_unit"].startswith("one person")


def test_a_confidence_draws_the_edges_above_it(folder, tmp_path):
    out = run(replace(PLAN, method=replace(PLAN.method, confidence=0.9)), folder, tmp_path / "out").folder
    known = [float(line.split(",")[3]) for line in (out / "consensus.csv").read_text().splitlines()[1:]]
    assert known
    assert min(known) > 0.9


def test_the_command_says_beforehand_what_to_expect(folder, tmp_path, capsys):
    path = folder / "plan.toml"
    path.write_text(dumps(PLAN))
    assert load(path) == PLAN
    app(["privacy", str(path)], standalone_mode=False)
    told = capsys.readouterr().out
    assert f"Expected: of {NODES} edges" in told
    assert "For 90 % you need" in told
    assert not (tmp_path / "out").exists()


def test_the_report_begins_with_how_many_edges_are_true(folder, tmp_path):
    header = report(run(PLAN, folder, tmp_path / "out").folder).split("<main>")[0]
    believe = header[header.index("What to believe") :].split("</div>")[0]
    assert f"expected to be among the {NODES} that most persons have" in believe
    assert re.search(rf"Expected: of {NODES} edges, \d+ to \d+ % are true", believe)


def test_plans_name_votes(folder):
    content = {"format": 1, "data": {"files": ["a.csv"], "unit_column": "who"}, "privacy": {"epsilon": 1.0}}
    plan = parse({**content, "method": {"learner": "votes", "degree": 6.0}}, "plan")
    assert learner_of(plan, 20) == "votes"


# ---- communities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "low", "high"), [(0.01, 0.95, 1.0), (2.0, -0.1, 0.35)])
def test_communities_are_relied_on_as_far_as_the_noise_lets_them(noise, low, high):
    """Four blocks that nothing joins: without noise all possible graphs have them, behind much noise none."""
    names = [f"n{k}" for k in range(24)]
    a, b = np.triu_indices(24, 1)
    truth = (a // 6 == b // 6).astype(float)
    rng = np.random.default_rng(1)
    known = learn_shares(truth + noise * rng.standard_normal(len(a)), noise, int(truth.sum()))
    again = known.drawn_again(10, rng)
    kept = again >= np.sort(again, 1)[:, [-int(truth.sum())]]
    groups = [names[k : k + 6] for k in range(0, 24, 6)]
    found = reliable(groups, names, np.where(kept, np.maximum(again, 1e-9), 0.0))
    assert low <= found["agreement"] <= high
    assert len(found["kept"]) == 4
