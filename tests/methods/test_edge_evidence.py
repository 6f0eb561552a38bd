"""Evidence for edges: strengths have the noise they state, and the papers' own graphs are found."""

from __future__ import annotations

import numpy as np
import pytest

from silograph.data.synthetic import laplacian, paper_graphs, smooth_signals
from silograph.methods.consensus_graph import ExactConsensus
from silograph.methods.edge_evidence import _laplacian_strengths, laplacian_evidence
from silograph.methods.moments_once import JointLearner
from silograph.methods.relation_signs import has_negative
from silograph.run.loop import simulate
from silograph.tasks.smooth_graph import SmoothGraph, centred_basis, distances_of

NODES, SITES = 20, 5


def world(seed, keep, rows):
    graphs = paper_graphs(seed, SITES, NODES, keep)
    rng = np.random.default_rng(seed)
    return graphs, [smooth_signals(rng, w, rows) for w in graphs.local]


def moments_of(tables):
    return np.array([np.cov(table.T, bias=True) for table in tables])


def at_true_number(rank, truth):
    return truth[np.argsort(-rank, kind="stable")[: truth.sum()]].mean()


def test_strengths_of_a_laplacian_are_its_weights_by_resistance_with_the_noise_of_so_many_rows():
    w, rows = paper_graphs(3, 1, 8, 0.9).local[0], 400
    basis = centred_basis(8)
    inner = np.linalg.inv(basis.T @ laplacian(w) @ basis)
    z = distances_of(inner[None], 8)  # what the graph expects: resistances, by an inverse of its own
    exact = _laplacian_strengths(z, w[None])[0]
    np.testing.assert_allclose(exact, w * z[0] / np.sqrt(2.0), atol=1e-12)
    rng, root = np.random.default_rng(0), np.linalg.cholesky(inner)
    samples = [(root @ rng.standard_normal((7, rows))) for _ in range(400)]
    noisy = _laplacian_strengths(distances_of(np.array([y @ y.T / rows for y in samples]), 8), np.tile(w, (400, 1)))
    # 400 draws: the mean over 28 pairs of their variances has a deviation of about 3 % if pairs were one.
    assert rows * noisy.var(0).mean() == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize(("keep", "rows"), [(0.9, 100), (0.9, 1000), (0.5, 400)])
def test_the_papers_own_graphs_are_found_better_than_by_their_model(keep, rows):
    ours, papers = [], []
    for seed in (41, 42):
        graphs, tables = world(seed, keep, rows)
        truth, counts = graphs.local > 0.0, np.full(SITES, float(rows))
        learned = JointLearner().learn(moments_of(tables), counts)
        assert "no common level" in learned.reason
        ours += [at_true_number(learned.probability[k], truth[k]) for k in range(SITES)]
        task = SmoothGraph(NODES)
        method = ExactConsensus(NODES, degree=2.0 * truth[0].sum() / NODES)
        named = {f"site {k}": table for k, table in enumerate(tables)}
        found = simulate(method, task, named, None, seed=0)[0].arrays["graph"]
        papers += [at_true_number(found[k], truth[k]) for k in range(SITES)]
    assert np.mean(ours) > np.mean(papers) + 0.02


def test_a_dense_graph_of_few_rows_is_not_taken_for_noise():
    graphs, tables = world(43, 0.5, 40)
    learned = JointLearner().learn(moments_of(tables), np.full(SITES, 40.0))
    found, true = (learned.signs != 0).sum(1).mean(), (graphs.local > 0.0).sum(1).mean()
    assert 0.5 * true <= found <= 1.5 * true


def test_the_first_fit_is_certified_and_probabilities_are_probabilities():
    _, tables = world(44, 0.9, 200)
    found = laplacian_evidence(moments_of(tables), np.full(SITES, 200.0))
    assert found.gap <= 1e-4
    for each in (found.site, found.shared, found.probability, found.probability_shared):
        assert each.min() >= 0.0
        assert each.max() <= 1.0
    pairs = NODES * (NODES - 1) // 2
    assert found.strengths.shape == (SITES, pairs)
    assert 0 < found.schwarz <= pairs


def test_positive_graphs_have_no_negative_relations_and_signed_ones_do():
    for seed in range(50, 54):
        for rows in (50, 200, 1000):
            _, tables = world(seed, 0.7, rows)
            assert not has_negative(moments_of(tables).mean(0), SITES * rows)
    rng = np.random.default_rng(0)
    weights = np.zeros((NODES, NODES))
    ring = np.arange(NODES)
    weights[ring, (ring + 1) % NODES] = np.where(ring % 2 == 0, 1.0, -1.0)
    weights += weights.T
    covariance = np.linalg.inv(np.diag(np.abs(weights).sum(0) + 0.2) - weights)
    rows = rng.multivariate_normal(np.zeros(NODES), covariance, 2000)
    assert has_negative(np.cov((rows - rows.mean(1, keepdims=True)).T), 2000.0)
