"""Graphs from second moments: numbers of edges as asked, selection, units, order of sites, and what sharing gains."""

import numpy as np
import pytest

from silograph.core.errors import InputError
from silograph.kernels.edges import pairs
from silograph.methods.joint_graphs import best_number, drawn_to_mean, learn_graphs

NODES, SITES = 16, 4
_A, _B = pairs(NODES)


def truths(seed=0, signed=True, degree=3, kept=0.8):
    """Precision matrices of sites that keep most of a common graph, and that graph's edges."""
    rng = np.random.default_rng(seed)
    number = NODES * degree // 2
    base = rng.choice(len(_A), number, replace=False)
    weight = rng.uniform(0.6, 1.2, len(_A)) * (np.where(rng.random(len(_A)) < 0.5, -1.0, 1.0) if signed else 1.0)
    found = []
    for _ in range(SITES):
        edges = base[rng.random(number) < kept]
        own = rng.choice(np.setdiff1d(np.arange(len(_A)), base), number - len(edges), replace=False)
        theta = np.zeros((NODES, NODES))
        taken = np.concatenate([edges, own])
        theta[_A[taken], _B[taken]] = -weight[taken]
        theta += theta.T
        found.append(theta + np.diag(np.abs(theta).sum(0) + 0.3))
    return np.array(found), np.isin(np.arange(len(_A)), base)


def rows_of(precision, rows, seed):
    rng = np.random.default_rng(seed)
    return [rng.multivariate_normal(np.zeros(NODES), np.linalg.inv(theta), rows) for theta in precision]


def moments_of(tables):
    return np.array([np.cov(table.T, bias=True) for table in tables]), np.array([len(table) for table in tables])


def score(found, truth):
    return 2.0 * (found & truth).sum() / (found.sum() + truth.sum())


def test_edges_and_their_signs_are_found():
    """With 1500 rows a site the graphs are nearly known: chance is below .2."""
    precision, base = truths()
    learned = learn_graphs(*moments_of(rows_of(precision, 1500, 1)))
    truth = -np.sign(precision[:, _A, _B])
    assert np.mean([score(learned.signs[k] != 0, truth[k] != 0) for k in range(SITES)]) > 0.9
    both = (learned.signs != 0) & (truth != 0)
    assert (learned.signs[both] == truth[both]).mean() > 0.99
    assert score(learned.consensus_signs != 0, base) > 0.85
    assert learned.first_gap <= 1e-4
    assert learned.gap <= 1e-4


@pytest.mark.parametrize(
    ("asked", "number"), [({"edges": 17}, 17), ({"degree": 4.0}, 32), ({"density": 0.25}, 30), ({"edges": 0}, 0)]
)
def test_what_was_asked_for_is_met(asked, number):
    learned = learn_graphs(*moments_of(rows_of(truths()[0], 100, 2)), **asked, consensus_edges=9)
    assert ((learned.signs != 0).sum(1) == number).all()
    assert (learned.consensus_signs != 0).sum() == 9
    assert next(iter(asked)) in learned.reason


def test_units_do_not_matter():
    moments, counts = moments_of(rows_of(truths()[0], 200, 3))
    units = np.geomspace(1e-4, 1e4, NODES)
    plain, other = learn_graphs(moments, counts), learn_graphs(moments * np.outer(units, units), counts)
    np.testing.assert_allclose(other.probability, plain.probability, atol=1e-8)
    np.testing.assert_allclose(other.precision * np.outer(units, units), plain.precision, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(other.signs, plain.signs)


def test_the_order_of_sites_does_not_matter():
    moments, counts = moments_of([table[: 80 + 40 * k] for k, table in enumerate(rows_of(truths()[0], 300, 4))])
    order = [2, 0, 3, 1]
    plain, other = learn_graphs(moments, counts), learn_graphs(moments[order], counts[order])
    np.testing.assert_allclose(other.probability, plain.probability[order], atol=1e-6)
    np.testing.assert_allclose(other.shared, plain.shared, atol=1e-6)


def test_sites_learn_more_together_than_alone():
    """At 80 rows; mean over 6 worlds of the F-score at the true number of edges."""
    together, alone = [], []
    for seed in range(6):
        precision, _ = truths(seed)
        moments, counts = moments_of(rows_of(precision, 80, seed))
        truth = precision[:, _A, _B] != 0.0
        number = int(truth[0].sum())
        joint = learn_graphs(moments, counts, edges=number).signs != 0
        for k in range(SITES):
            single = learn_graphs(moments[k : k + 1], counts[k : k + 1], edges=number).signs[0] != 0
            together.append(score(joint[k], truth[k]))
            alone.append(score(single, truth[k]))
    assert np.mean(together) > np.mean(alone) + 0.08


@pytest.mark.parametrize("criterion", ["expected-F", "ebic", "held-out"])
def test_every_criterion_chooses_near_the_truth_and_shows_its_path(criterion):
    precision, _ = truths(5)
    tables = rows_of(precision, 800, 5)
    moments, counts = moments_of(tables)
    folds = np.array([[np.cov(part.T, bias=True) for part in np.array_split(table, 4)] for table in tables])
    learned = learn_graphs(moments, counts, folds=folds, criterion=criterion)
    number, true = (learned.signs[0] != 0).sum(), (precision[0, _A, _B] != 0.0).sum()
    assert 0.6 * true <= number <= (2.5 if criterion == "held-out" else 1.4) * true
    values = {line["edges"]: next(value for name, value in line.items() if name != "edges") for line in learned.path}
    assert len(values) >= 8
    assert values[number] == max(values.values())


def test_positive_relations_only():
    precision, _ = truths(6, signed=False)
    learned = learn_graphs(*moments_of(rows_of(precision, 400, 6)), nonnegative=True)
    assert (learned.precision[:, _A, _B] <= 0.0).all()
    assert (learned.signs >= 0).all()
    assert learned.gap <= 1e-4


def test_alike_sites_are_drawn_together_and_different_ones_are_not():
    precision, _ = truths(7, kept=1.0)
    alike, counts = moments_of(rows_of(np.array([precision[0]] * SITES), 100, 7))
    others, _ = moments_of(rows_of(np.array([truths(seed)[0][0] for seed in range(SITES)]), 100, 8))
    scaled = [each / np.sqrt(np.einsum("ka,kb->kab", *[np.einsum("kaa->ka", each)] * 2)) for each in (alike, others)]
    near, far = (drawn_to_mean(each, counts)[1].mean() for each in scaled)
    assert near > 0.7
    assert far < 0.5


def test_noise_seen_between_folds_counts():
    """Rows that repeat ten times say no more: folds show it, the count does not."""
    tables = [np.repeat(table, 10, axis=0) for table in rows_of(truths(8)[0], 40, 9)]
    moments, counts = moments_of(tables)
    folds = np.array([[np.cov(part.T, bias=True) for part in np.array_split(table, 5)] for table in tables])
    assert (
        learn_graphs(moments, counts, folds=folds).drawn_to_mean > learn_graphs(moments, counts).drawn_to_mean
    ).all()


def test_rows_that_repeat_count_once():
    """Of rows that repeat ten times a tenth is effective, as parts of them show; all of independent ones are, give or
    take what 5 parts can tell (12 % at 120 pairs and 4 sites)."""
    plain = rows_of(truths(8)[0], 200, 9)
    for times in (1, 10):
        tables = [np.repeat(table, times, axis=0) for table in plain]
        moments, counts = moments_of(tables)
        folds = np.array([[np.cov(part.T, bias=True) for part in np.array_split(table, 5)] for table in tables])
        assert learn_graphs(moments, counts, folds=folds).effective_rows == pytest.approx(counts / times, rel=0.25)


def test_edges_that_are_certain_are_ranked_by_strength():
    """With 20,000 rows everything true is certain; the strongest half is what a few edges show."""
    precision, _ = truths(9, kept=1.0)
    precision = np.array([precision[0]] * SITES)
    learned = learn_graphs(*moments_of(rows_of(precision, 20_000, 10)), edges=8)
    deviation = np.sqrt(np.einsum("kaa->ka", precision))
    partial = np.abs(precision[0, _A, _B]) / (deviation[0, _A] * deviation[0, _B])
    strongest = np.isin(np.arange(len(_A)), np.argsort(-partial)[:8])
    assert np.mean([score(signs != 0, strongest) for signs in learned.signs]) > 0.85


def test_in_a_long_chain_friends_of_friends_are_no_edges():
    """220 nodes, 400 rows, five sites: shrinkage of the chain's strong edges must not show as others."""
    nodes, link = 220, np.arange(219)
    theta = np.eye(nodes)
    theta[link, link + 1] = theta[link + 1, link] = -0.4
    root = np.linalg.cholesky(theta).T
    rng = np.random.default_rng(11)
    tables = [np.linalg.solve(root, rng.standard_normal((nodes, 400))).T for _ in range(5)]
    learned = learn_graphs(*moments_of(tables))
    a, b = pairs(nodes)
    assert np.mean([score(signs != 0, b == a + 1) for signs in learned.signs]) > 0.98


@pytest.mark.parametrize("rows", [100, 1000])
def test_what_both_owe_to_a_third_node_is_no_edge_however_strong(rows):
    """Every node follows one other and correlates with it by .9: all are alike, and 15 pairs alone are edges."""
    said = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        parents = [rng.integers(node) for node in range(1, NODES)]
        tables = []
        for _ in range(SITES):
            x = rng.standard_normal((rows, NODES))
            for node, parent in enumerate(parents, 1):
                x[:, node] = 0.9 * x[:, parent] + np.sqrt(1.0 - 0.9**2) * x[:, node]
            tables.append(x)
        true = np.isin(_A * NODES + _B, [parent * NODES + node for node, parent in enumerate(parents, 1)])
        learned = learn_graphs(*moments_of(tables))
        assert np.mean([score(signs != 0, true) for signs in learned.signs]) > 0.9
        said += [true[probability > 0.9] for probability in learned.probability]
    assert np.concatenate(said).mean() > 0.9


def test_the_expected_f_score_counts_probabilities():
    assert best_number(np.array([[1.0, 1.0, 0.0, 0.0]])) == 2
    assert best_number(np.array([[0.9, 0.45, 0.3, 0.0]])) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"counts": np.array([5.0, 1.0])}, "two or more"),
        ({"moments": np.ones((2, 3))}, "sites, nodes, nodes"),
        ({"moments": np.array([np.eye(4), np.diag([1.0, 0.0, 1.0, 1.0])])}, "node 1 never changes"),
        ({"moments": np.full((2, 4, 4), np.nan)}, "finite"),
        ({"edges": 3, "degree": 2.0}, "together"),
        ({"degree": 4.0}, "from 0 to 3"),
        ({"criterion": "held-out"}, "Send folds"),
    ],
)
def test_bad_input_says_what_to_do(change, words):
    given = {"moments": np.tile(np.eye(4) + 0.1, (2, 1, 1)), "counts": np.array([50.0, 60.0])} | change
    with pytest.raises(InputError, match=words):
        learn_graphs(given.pop("moments"), given.pop("counts"), **given)
