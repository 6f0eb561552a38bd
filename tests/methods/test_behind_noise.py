"""Which graph is drawn behind privacy noise: held against known truths, and against the learners it chooses among."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from silograph.core.errors import InputError
from silograph.data.synthetic import paper_graphs, smooth_signals
from silograph.families.graphs.expected import MEASURED, expected_score
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy
from silograph.kernels.edges import pairs
from silograph.methods.behind_noise import BehindNoise, SignedGraphs, sparser_with_signs
from silograph.methods.private_graph import LikelyGraphs, ReleasedConsensus, Statistics
from silograph.methods.summed_graph import SmoothestGraph, SummedConsensus
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Gaussian, SharedGaussian
from silograph.report.build import build, read
from silograph.run.cost import cost_of_plan
from silograph.run.loop import simulate
from silograph.run.plan import dumps
from silograph.run.run import execute
from silograph.tasks.smooth_graph import SmoothGraph, centred_basis, distances_of

NODES, SITES, ROWS = 16, 4, 2000


def chain(rng, nodes, signs):
    """Rows of a Gaussian whose precision is a ring with these signs."""
    weights = np.zeros((nodes, nodes))
    a = np.arange(nodes)
    weights[a, (a + 1) % nodes] = weights[(a + 1) % nodes, a] = signs
    precision = np.diag(np.abs(weights).sum(0) + 0.2) - weights
    return rng.standard_normal((ROWS, nodes)) @ np.linalg.cholesky(np.linalg.inv(precision)).T


def ring(nodes):
    a, b = pairs(nodes)
    return ((b - a) % nodes == 1) | ((a - b) % nodes == 1)


def tables(seed, signs):
    rng = np.random.default_rng(seed)
    return {f"site {k}": chain(rng, NODES, signs) for k in range(SITES)}


def released(inner, rows, multiplier=3.0, seed=5, scaled=False):
    nodes = next(iter(rows.values())).shape[1]
    task, noise = SmoothGraph(nodes, "moment", with_mean=scaled), Gaussian(multiplier)
    method = ReleasedConsensus(task, inner, noise, tuple(len(table) for table in rows.values()))
    return simulate(method, task, rows, noise, seed=seed)[0]


MIXED = np.where(np.arange(NODES) % 2 == 0, 1.0, -1.0)


def test_negative_relations_are_found_with_their_signs():
    outcome = released(BehindNoise(2.0), tables(1, MIXED))
    a, b = pairs(NODES)
    truth = ring(NODES)
    sign = np.where(np.minimum(a, b) % 2 == 0, 1.0, -1.0)
    sign[(a == 0) & (b == NODES - 1)] = MIXED[-1]
    for w, signs in [
        *zip(outcome.arrays["graph"], outcome.arrays["signs"], strict=True),
        (outcome.arrays["consensus"], outcome.arrays["consensus_signs"]),
    ]:
        assert np.array_equal(w > 0.0, truth)
        assert np.array_equal(signs[truth], sign[truth])
        assert not signs[~truth].any()
    assert outcome.facts["learner"] == "signed"
    # A Laplacian has no negative relations: it finds half of these edges.
    laplacian = released(LikelyGraphs(2.0), tables(1, MIXED)).arrays["consensus"]
    assert ((laplacian > 0.0) & truth).sum() <= 0.6 * truth.sum()


def test_the_number_of_signed_edges_is_chosen_where_nobody_says_it():
    found = released(BehindNoise(), tables(2, MIXED)).arrays["consensus"] > 0.0
    truth = ring(NODES)
    assert found[truth].all()
    assert found.sum() <= 2 * truth.sum()  # of 120 pairs


def test_nonnegative_draws_no_negative_relation():
    outcome = released(BehindNoise(2.0, nonnegative=True), tables(1, MIXED))
    assert "signs" not in outcome.arrays
    assert outcome.facts["learner"] == "log-det"


def test_signs_can_be_asked_for_where_few_relations_are_negative():
    few = np.where(np.arange(NODES) == 3, -1.0, 1.0)
    for nonnegative, learner in ((None, "log-det"), (False, "signed")):
        outcome = released(BehindNoise(2.0, nonnegative=nonnegative), tables(4, few))
        assert outcome.facts["learner"] == learner
    assert np.array_equal(outcome.arrays["consensus"] > 0.0, ring(NODES))
    assert (outcome.arrays["consensus_signs"] < 0.0).sum() == 1


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_positive_truths_keep_the_laplacian_to_the_last_bit(keep):
    # 252 runs of benchmarks.private_graph chose no signs; here eight, at little and at much noise.
    for seed, multiplier in ((11, 2.0), (12, 2.0), (13, 12.0), (14, 12.0)):
        graphs = paper_graphs(seed, SITES, NODES, keep)
        rng = np.random.default_rng(seed)
        rows = {f"site {k}": smooth_signals(rng, w, ROWS) for k, w in enumerate(graphs.local)}
        chosen, laplacian = (released(inner(7.0), rows, multiplier) for inner in (BehindNoise, LikelyGraphs))
        for name in ("graph", "consensus", "agreement", "smoothness"):
            assert np.array_equal(chosen.arrays[name], laplacian.arrays[name], equal_nan=True)
        assert chosen.facts == laplacian.facts


def test_a_secure_sum_has_signs_too():
    rows, task, noise = tables(3, MIXED), SmoothGraph(NODES, "moment"), SharedGaussian(3.0)
    method = SummedConsensus(task, BehindNoise(2.0), noise, (ROWS,) * SITES)
    outcome = simulate(method, task, rows, noise, seed=1, masks=Masks("skipped"))[0]
    assert np.array_equal(outcome.arrays["consensus"] > 0.0, ring(NODES))
    assert (outcome.arrays["consensus_signs"] < 0.0).sum() == NODES // 2


def statistics(nodes, effective, seed=0):
    """Of rows of positive rings, with other numbers of effective rows than they have."""
    rng, basis = np.random.default_rng(seed), centred_basis(nodes)
    rows = [chain(rng, nodes, np.ones(nodes)) @ basis for _ in effective]
    inner = np.array([y.T @ y / len(y) for y in rows])
    around = np.einsum("ak,ikl,bl->iab", basis, inner, basis)
    share = np.full(len(effective) - 1, 1.0 / (len(effective) - 1))
    return Statistics(distances_of(inner, nodes), around, np.array(effective), share)


def test_beyond_fifty_nodes_effective_rows_choose_the_learner_statistic_by_statistic():
    nodes, drawn = 51, np.array([True, True, False, True])
    known = statistics(nodes, [15.0 * 50 - 1.0, 15.0 * 50, 20.0, 15.0 * 50 + 1.0])
    found = BehindNoise(2.0).learn(known, drawn)
    laplacian, smoothest = (learner.learn(known, drawn) for learner in (LikelyGraphs(2.0), SmoothestGraph(degree=2.0)))
    for row, theirs in ((0, smoothest), (1, laplacian), (3, laplacian)):
        np.testing.assert_allclose(found.w[row], theirs.w[row], rtol=1e-6, atol=1e-9)
    assert not found.w[2].any()
    assert not np.allclose(laplacian.w[0], smoothest.w[0])
    assert found.facts["learner"] == "log-det"  # the consensus'
    dense = BehindNoise(0.2 * 50)
    assert dense.shrinks(nodes)
    assert not BehindNoise(0.19 * 50).shrinks(nodes)
    assert not BehindNoise(40.0).shrinks(50)
    assert dense.learn(known, drawn).facts["learner"] == "papers"


def test_fifty_nodes_are_few():
    known, drawn = statistics(50, [100.0, 100.0]), np.ones(2, bool)
    assert np.array_equal(BehindNoise(2.0).learn(known, drawn).w, LikelyGraphs(2.0).learn(known, drawn).w)


def test_walls_between_nodes_and_a_mean_that_is_noise_say_nothing_of_signs():
    rng, basis = np.random.default_rng(0), centred_basis(NODES)
    y = chain(rng, NODES, MIXED) @ basis
    inner = (y.T @ y / len(y))[None]
    around = np.einsum("ak,ikl,bl->iab", basis, inner, basis)
    known, drawn = Statistics(distances_of(inner, NODES), around, np.array([2000.0]), np.zeros(0)), np.ones(1, bool)

    def learner(**changed):
        return BehindNoise(2.0).learn(replace(known, **changed), drawn).facts["learner"]

    assert learner() == "signed"
    assert learner(effective_rows=np.array([10.0 * (NODES - 1) - 1.0])) == "log-det"
    walls = known.zbar.copy()
    walls[0, 3] = np.inf
    assert learner(zbar=walls) == "log-det"
    assert SignedGraphs(2.0).learn(known, drawn).agreement.shape == (1,)


# ---- columns that were scaled one by one -----------------------------------------------------------------------------


def few_columns(seed, nodes=8, edges=16):
    """Six sites' rows of columns with spread 1, and which pairs are joined: of 28, by relations of both signs."""
    rng, (a, b) = np.random.default_rng([seed, nodes]), pairs(nodes)
    joined = np.isin(np.arange(len(a)), rng.permutation(len(a))[:edges])
    weights = np.zeros((nodes, nodes))
    weights[a, b] = joined * rng.uniform(0.5, 1.5, len(a)) * rng.choice([1.0, 1.0, -1.0], len(a))
    weights += weights.T
    degree = np.abs(weights).sum(0)
    factor = np.linalg.cholesky(np.linalg.inv(np.diag(degree + 0.3 * degree.mean()) - weights))
    x = rng.standard_normal((6 * 600, nodes)) @ factor.T
    x /= x.std(0)
    return {f"site {k}": part for k, part in enumerate(np.split(x, 6))}, joined


def score_of(found, joined):
    return 2.0 * (found & joined).sum() / (found.sum() + joined.sum())


@pytest.mark.parametrize("nonnegative", [None, False])
def test_few_scaled_columns_with_relations_of_both_signs_get_their_graph(nonnegative):
    """The same rows, with the same noise, get many wrong edges if they are taken around their mean over nodes."""
    scores = []
    for seed in range(6):
        rows, joined = few_columns(seed)
        found = [released(BehindNoise(nonnegative=nonnegative), rows, 2.0, seed, way) for way in (True, False)]
        scores.append([score_of(each.arrays["consensus"] > 0.0, joined) for each in found])
        assert found[0].facts["learner"] == "signed"
    kept, lost = np.mean(scores, axis=0)
    assert kept > 0.95
    assert lost < 0.8


def test_of_scaled_columns_nonnegative_draws_the_positive_relations():
    rows, _ = few_columns(1)
    both, one = (released(BehindNoise(nonnegative=way), rows, 2.0, 1, True).arrays for way in (None, True))
    assert (both["consensus_signs"] < 0.0).any()
    assert (one["consensus"] > 0.0).any()
    assert not (one["consensus_signs"] < 0.0).any()


def test_scaled_signals_that_sum_to_little_are_learned_as_those_in_one_unit():
    """They have no level to keep: as they are, every two nodes would look negatively related."""
    scores = []
    for seed in range(3):
        graphs, rng = paper_graphs(30 + seed, SITES, 20, 0.9), np.random.default_rng(seed)
        rows = {f"site {k}": smooth_signals(rng, w, ROWS) for k, w in enumerate(graphs.local)}
        rows = {name: x / x.std(0) for name, x in rows.items()}
        found = released(BehindNoise(7.0), rows, 3.0, seed, scaled=True)
        assert found.facts["learner"] == "log-det"
        scores.append(score_of(found.arrays["consensus"] > 0.0, graphs.consensus > 0.0))
    assert np.mean(scores) > 0.85


# ---- as a run --------------------------------------------------------------------------------------------------------


def plan_of(folder, rows, **method):
    for name, table in rows.items():
        header = ",".join(f"node{k}" for k in range(table.shape[1]))
        np.savetxt(folder / f"{name}.csv", table, delimiter=",", header=header, comments="")
    files = tuple(f"{name}.csv" for name in rows)
    return GraphPlan(Data(files, scale="none"), ConsensusGraph(degree=2.0, **method), Privacy(4.0, 1e-6), seed=3)


def test_a_private_run_writes_signs_and_its_page_reads_them(tmp_path):
    plan = plan_of(tmp_path, tables(1, MIXED))
    execute(plan, tmp_path, tmp_path / "out", lambda *_: None, build)
    lines = (tmp_path / "out" / "consensus.csv").read_text().splitlines()
    assert lines[0] == "source,target,weight,sign"
    assert len(lines) == NODES + 1
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["learner"] == "signed"
    assert any("Graphs have signs" in note for note in result["privacy"]["notes"])
    run = read(tmp_path / "out")
    assert sorted(run.sign_of[None].values()) == [-1] * (NODES // 2) + [1] * (NODES // 2)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "relations of both signs" in page
    assert "Probability is" not in page


def test_a_secure_sum_is_recommended_where_it_finds_more(tmp_path):
    plan = plan_of(tmp_path, tables(1, MIXED))

    def notes(epsilon, mode):
        asked = replace(plan, privacy=replace(plan.privacy, epsilon=epsilon, mode=mode))
        (tmp_path / "plan.toml").write_text(dumps(asked))
        return " ".join(cost_of_plan(tmp_path / "plan.toml")["notes"])

    recommended = notes(0.2, "one-release")
    assert "--privacy secure-sum costs the same" in recommended
    told = notes(0.2, "secure-sum").split("at most ")[1].split()[0]
    assert f"about {told} effective rows" in recommended
    assert "secure-sum costs" not in notes(0.2, "secure-sum")
    assert "secure-sum costs" not in notes(8.0, "one-release")  # one release has enough


def test_expected_scores_rise_with_effective_rows():
    for rows, least, most in MEASURED:
        assert expected_score(rows * 99.0, 100) == pytest.approx((least, most))
    scores = [expected_score(rows, 20) for rows in (1.0, 30.0, 300.0, 3000.0, 1e6)]
    assert scores == sorted(scores)
    assert all(least <= most for least, most in scores)


@pytest.mark.parametrize(
    ("privacy", "method", "words"),
    [
        (Privacy(1.0), {"reveal": "sum"}, "privacy was asked for"),
        (Privacy(1.0), {"choose_by": "ebic"}, "privacy was asked for"),
        (Privacy(1.0), {"nonnegative": False, "candidates": "c.csv"}, "no list of candidates"),
        (Privacy(1.0), {"nonnegative": True, "beta": 0.1}, "beta asks for another"),
        (
            Privacy(1.0, mode="per-round", clip=1.0),
            {"learner": "likelihood", "solver": "paper", "beta": 1.0, "nu": 1.0, "lam": 1.0},
            "one private release for likelihood",
        ),
    ],
)
def test_settings_that_have_no_meaning_with_privacy_are_refused(privacy, method, words):
    method = dict(method)
    with pytest.raises(InputError, match=words):
        GraphPlan(Data(candidates=method.pop("candidates", None)), ConsensusGraph(**method), privacy)


def plain_world(seed, nodes=12, rows=6000):
    """Rows of a sparse precision as most tables have one: its rows do not sum to 0."""
    rng = np.random.default_rng(seed)
    a, b = np.triu_indices(nodes, 1)
    edges = rng.permutation(len(a))[:nodes]
    precision = np.zeros((nodes, nodes))
    precision[a[edges], b[edges]] = precision[b[edges], a[edges]] = -rng.uniform(0.2, 0.4, len(edges))
    np.fill_diagonal(precision, -precision.sum(1) + 0.6)
    x = rng.multivariate_normal(np.zeros(nodes), np.linalg.inv(precision), size=rows)
    return x / x.std(0)


def around_their_mean(x):
    y = x - x.mean(1, keepdims=True)
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    return (len(x.T) - 1) * y.T @ y / len(y)


def test_a_level_that_all_nodes_have_is_not_taken_for_edges_between_all_of_them():
    """Without signs Schwarz' criterion joins most pairs of such rows; of shuffled columns, nearly all."""
    for seed in range(4):
        x = plain_world(seed)
        assert sparser_with_signs(around_their_mean(x), float(len(x)))
        shuffled = np.random.default_rng(seed).permuted(x, axis=0)
        assert sparser_with_signs(around_their_mean(shuffled), float(len(x)))


def test_the_papers_rows_stay_with_positive_relations():
    for seed in range(4):
        rng = np.random.default_rng(100 + seed)
        x = np.concatenate([smooth_signals(rng, w, 600) for w in paper_graphs(seed, 5, 20, 0.9).local])
        assert not sparser_with_signs(around_their_mean(x), float(len(x)))
