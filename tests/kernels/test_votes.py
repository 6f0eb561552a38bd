"""A person's votes: the definition, and that no data give more than k of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.covariance import ShrunkCovariance

from silograph.kernels.votes import vote


def test_votes_are_the_strongest_positive_partial_correlations_of_a_shrunk_correlation() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 12)) @ rng.standard_normal((12, 12)) * np.geomspace(1e-3, 1e3, 12) + 5.0
    scaled = (rows - rows.mean(0)) / rows.std(0)
    # scikit-learn shrinks towards the mean variance, which is 1 here: the same matrix by other code.
    precision = ShrunkCovariance(shrinkage=0.5, assume_centered=True).fit(scaled).precision_
    a, b = np.triu_indices(12, 1)
    partial = -precision[a, b] / np.sqrt(precision[a, a] * precision[b, b])
    expected = set(np.argsort(-partial)[:10])
    assert set(np.flatnonzero(vote(rows, 10))) == expected


def test_there_are_fewer_votes_where_fewer_relations_are_positive() -> None:
    x = np.random.default_rng(1).standard_normal(200)
    assert vote(np.column_stack([x, -x]), 1).sum() == 0
    assert vote(np.column_stack([x, x]), 5).sum() == 1


@pytest.mark.parametrize("hole", [np.nan, np.inf, 7.0])
def test_a_node_that_does_not_vary_or_has_a_gap_gets_no_vote_and_disturbs_no_other(hole: float) -> None:
    rows = np.random.default_rng(2).standard_normal((50, 6))
    rows[:, 1] += rows[:, 0]
    broken = rows.copy()
    broken[:, 3] = 7.0
    broken[0, 3] = hole
    a, b = np.triu_indices(6, 1)
    touching = (a == 3) | (b == 3)
    assert not vote(broken, 5)[touching].any()
    apart, c = np.delete(rows, 3, axis=1), np.triu_indices(5, 1)
    names = np.array([0, 1, 2, 4, 5])
    others = {(names[i], names[j]) for i, j, chosen in zip(*c, vote(apart, 5), strict=True) if chosen}
    assert {(i, j) for i, j, chosen in zip(a, b, vote(broken, 5), strict=True) if chosen} == others


@settings(max_examples=200, deadline=None)
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(2, 7)), elements=st.floats(width=64)),
    st.integers(1, 25),
)
def test_no_rows_at_all_give_more_than_k_votes(rows: np.ndarray, edges: int) -> None:
    votes = vote(rows, edges)
    assert votes.dtype == np.bool_
    assert votes.shape == (rows.shape[1] * (rows.shape[1] - 1) // 2,)
    assert votes.sum() <= edges
