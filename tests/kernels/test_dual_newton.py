"""The exact solver: is what it calls optimal optimal, and is its certificate true?

Three oracles, none of which shares code with the solver: cvxpy; a lower bound from the primal's strong convexity
alone; and weak duality against feasible graphs.
"""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import squareform

from silograph.kernels.dual_newton import lower_bound, solve

TIGHT = 1e-15


def pieces(c, w, alpha, beta, zeta):
    """The three terms of g, from the dense matrix."""
    degree = squareform(w).sum(0) + zeta
    log = -np.inf if (degree <= 0.0).any() else np.log(degree).sum()
    return c @ w, -alpha * log, 2.0 * beta * (w @ w)


def g(c, w, alpha, beta, zeta=0.0):
    return sum(pieces(c, w, alpha, beta, zeta))


def rounding(c, w, alpha, beta, zeta=0.0):
    """How far rounding may move g: its terms may be large and cancel."""
    return 1e-13 * (np.abs(c) @ w + sum(np.abs(pieces(c, w, alpha, beta, zeta)[1:])) + alpha * len(w))


def below(c, w, alpha, beta, zeta=0.0):
    """A lower bound of min g from any w: g is 4 beta-strongly convex, so no dual is needed.

    g(x) >= g(w) + sum_e [ g'_e (x_e - w_e) + 2 beta (x_e - w_e)^2 ], least at x_e = max(0, w_e - g'_e / (4 beta)).
    """
    degree = squareform(w).sum(0) + zeta
    a, b = np.triu_indices(len(degree), 1)
    slope = c - alpha * (1.0 / degree[a] + 1.0 / degree[b]) + 4.0 * beta * w
    move = np.maximum(0.0, w - slope / (4.0 * beta)) - w
    return g(c, w, alpha, beta, zeta) + (slope * move + 2.0 * beta * move**2).sum()


def distances(rng, nodes, count):
    x = rng.standard_normal((count, nodes))
    return np.array([((x[:, a] - x[:, b]) ** 2).mean() for a in range(nodes) for b in range(a + 1, nodes)])


def costs(kind, nodes, seed):
    rng = np.random.default_rng([seed, nodes])
    p = nodes * (nodes - 1) // 2
    z = distances(rng, nodes, 2 * nodes)
    return {
        "distances": z,
        "few signals": distances(rng, nodes, 2),
        "heavy tails": np.exp(2.0 * rng.standard_normal(p)),
        "pulled": z - 4.0 * rng.random(p) * (rng.random(p) < 0.5),
        "all negative": -5.0 * rng.random(p),
        "half zero": z * (rng.random(p) < 0.5),
        "all zero": np.zeros(p),
        "all equal": np.ones(p),
    }[kind]


KINDS = ["distances", "few signals", "heavy tails", "pulled", "all negative", "half zero", "all zero", "all equal"]


def cvxpy_optimum(c, alpha, beta, zeta):
    nodes = len(squareform(c))
    a, b = np.triu_indices(nodes, 1)
    s = np.zeros((nodes, len(c)))
    s[a, np.arange(len(c))] = s[b, np.arange(len(c))] = 1.0
    w = cp.Variable(len(c), nonneg=True)
    objective = c @ w - alpha * cp.sum(cp.log(s @ w + zeta)) + 2.0 * beta * cp.sum_squares(w)
    problem = cp.Problem(cp.Minimize(objective))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return problem.value


# ---- the optimum -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "kind", "alpha", "beta", "zeta"),
    [
        (3, "distances", 1.0, 0.05, 0.0),
        (3, "all equal", 1.0, 10.0, 0.0),
        (4, "all zero", 2.0, 0.3, 0.0),
        (5, "pulled", 1.0, 0.5, 0.0),
        (5, "all negative", 1.0, 0.5, 1.0),
        (8, "half zero", 1.0, 0.02, 1e-2),
        (8, "heavy tails", 5.0, 1.0, 0.0),
        (12, "few signals", 0.3, 0.1, 0.0),
        (20, "distances", 1.0, 0.03, 1e-4),
        (30, "pulled", 1.0, 0.2, 0.0),
    ],
)
def test_optimum_is_cvxpys(nodes, kind, alpha, beta, zeta):
    c = costs(kind, nodes, 1)
    found = solve(c[None], alpha, beta, zeta)
    value = g(c, found.w[0], alpha, beta, zeta)
    expected = cvxpy_optimum(c, alpha, beta, zeta)
    size = max(abs(value), alpha)
    assert (found.w >= 0.0).all()
    assert abs(value - expected) <= 1e-6 * size
    assert abs(found.objective[0] - value) <= rounding(c, found.w[0], alpha, beta, zeta)
    assert found.gap[0] <= 1e-6 * size


@pytest.mark.parametrize("beta", [10.0**k for k in range(-6, 7, 2)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nodes", [2, 3, 8, 25])
def test_optimum_over_twelve_orders_of_beta(nodes, kind, beta):
    c = costs(kind, nodes, 2)
    for alpha, zeta in ((1.0, 0.0), (30.0, 0.0), (1.0, 1e-4), (1.0, 1.0)):
        found = solve(c[None], alpha, beta, zeta, tolerance=TIGHT)
        w, size = found.w[0], max(abs(found.objective[0]), alpha)
        assert (w >= 0.0).all()
        assert g(c, w, alpha, beta, zeta) - below(c, w, alpha, beta, zeta) <= 1e-6 * size
        assert found.gap[0] <= 1e-6 * size


@pytest.mark.parametrize("nodes", [80, 200])
@pytest.mark.parametrize("beta", [1e-4, 1e-2, 1.0, 1e4])
def test_optimum_of_large_graphs(nodes, beta):
    rng = np.random.default_rng(nodes)
    c = costs("distances", nodes, 3)
    found = solve(c[None], 1.0, beta, tolerance=TIGHT)
    w, value = found.w[0], g(c, found.w[0], 1.0, beta)
    assert value - below(c, w, 1.0, beta) <= 1e-6 * abs(value)
    bound = lower_bound(c[None], found.q, 1.0, beta)[0]
    assert value - bound <= 1e-6 * abs(value)
    for scale in (1e-6, 1e-3, 0.1, 1.0):  # nearby and far feasible graphs
        other = np.maximum(0.0, w + scale * w.max() * rng.standard_normal(len(w)))
        assert bound <= g(c, other, 1.0, beta) + rounding(c, other, 1.0, beta)


@pytest.mark.parametrize("c", [-1e4, -1e6, -1e8])
def test_optimum_of_strongly_negative_costs(c):
    """A large coupling makes c = z - pull v very negative: all edges equal here, so the optimum is a square root.

    g(w) = p c w - d log((d-1) w) + 2 beta p w^2 gives 4 beta w^2 + c w - 2/(d-1) = 0.
    """
    nodes, beta = 5, 1e-6
    found = solve(np.full((1, 10), c), 1.0, beta, tolerance=TIGHT)
    root = (-c + np.sqrt(c * c + 32.0 * beta / (nodes - 1))) / (8.0 * beta)
    np.testing.assert_allclose(found.w[0], root, rtol=1e-9)


def test_edges_that_cost_infinitely_much_are_not_used_and_do_not_matter():
    """Candidate edges: the optimum over the others is what it would be if the forbidden ones did not exist."""
    nodes, beta = 9, 0.1
    c = costs("distances", nodes, 18)
    a, b = np.triu_indices(nodes, 1)
    allowed = (b - a == 1) | (np.random.default_rng(18).random(len(c)) < 0.4)  # a path, so that no node is alone
    walled = np.where(allowed, c, np.inf)
    found = solve(walled[None], 1.0, beta, tolerance=TIGHT)
    assert (found.w[0][~allowed] == 0.0).all()
    s = np.zeros((nodes, len(c)))
    s[a, np.arange(len(c))] = s[b, np.arange(len(c))] = 1.0
    w = cp.Variable(int(allowed.sum()), nonneg=True)
    log = cp.sum(cp.log(s[:, allowed] @ w))
    problem = cp.Problem(cp.Minimize(c[allowed] @ w - log + 2.0 * beta * cp.sum_squares(w)))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert abs(found.objective[0] - problem.value) <= 1e-6 * max(1.0, abs(problem.value))
    np.testing.assert_allclose(lower_bound(walled[None], found.q, 1.0, beta), found.objective, rtol=1e-9)


# ---- the certificate -------------------------------------------------------------------------------------------------


def early_stops(tolerance):
    """(certificate, true distance from the optimum, rounding) of solves that stop at `tolerance`."""
    for kind in KINDS:
        for nodes, beta, zeta in ((6, 1e-3, 0.0), (12, 0.1, 1e-3), (12, 10.0, 0.0)):
            c = costs(kind, nodes, 4)
            best = solve(c[None], 1.0, beta, zeta, tolerance=TIGHT).w[0]
            for q in (None, 10.0 ** np.random.default_rng(7).uniform(-3, 3, (1, nodes))):
                early = solve(c[None], 1.0, beta, zeta, q, tolerance)
                assert early.gap[0] <= tolerance * max(1.0, abs(early.objective[0]))
                true = g(c, early.w[0], 1.0, beta, zeta) - g(c, best, 1.0, beta, zeta)
                yield early.gap[0], true, rounding(c, early.w[0], 1.0, beta, zeta)


@pytest.mark.parametrize("tolerance", [1e3, 1e-1, 1e-2, 1e-4, 1e-6])
def test_certificate_is_true_however_early_it_stops(tolerance):
    for certified, true, slack in early_stops(tolerance):
        assert true <= certified + slack


def test_a_certificate_five_per_cent_smaller_would_be_caught():
    stops = [stop for tolerance in (1e-1, 1e-2) for stop in early_stops(tolerance)]
    assert any(true > 0.95 * certified + slack for certified, true, slack in stops)


@pytest.mark.parametrize("kind", KINDS)
def test_certificate_is_objective_minus_lower_bound(kind):
    c = costs(kind, 10, 5)
    for tolerance in (1e3, 1e-1, 1e-3):
        found = solve(c[None], 2.0, 0.1, 1e-3, tolerance=tolerance)
        value = g(c, found.w[0], 2.0, 0.1, 1e-3)
        bound = lower_bound(c[None], found.q, 2.0, 0.1, 1e-3)[0]
        slack = 10.0 * rounding(c, found.w[0], 2.0, 0.1, 1e-3)
        assert abs((value - bound) - found.gap[0]) <= slack


def raw_costs(nodes):
    number = st.floats(-50.0, 50.0, allow_subnormal=False)
    return st.lists(number, min_size=nodes * (nodes - 1) // 2, max_size=nodes * (nodes - 1) // 2).map(np.array)


@given(data=st.data(), nodes=st.integers(2, 7))
@settings(derandomize=True, deadline=None, max_examples=200)
def test_lower_bound_is_below_every_graph(data, nodes):
    """Weak duality: for any potentials q > 0 and any graph w >= 0."""
    c = data.draw(raw_costs(nodes))
    positive = st.floats(1e-4, 1e4)
    q = np.array(data.draw(st.lists(positive, min_size=nodes, max_size=nodes)))
    w = np.array(data.draw(st.lists(st.floats(0.0, 1e3), min_size=len(c), max_size=len(c))))
    alpha, beta = data.draw(st.floats(1e-2, 1e2)), data.draw(st.floats(1e-4, 1e4))
    zeta = data.draw(st.sampled_from([0.0, 1e-4, 1.0]))
    bound = lower_bound(c[None], q[None], alpha, beta, zeta)[0]
    size = 1e-12 * (alpha * nodes * 20.0 + zeta * q.sum() + (np.abs(q).max() * 2.0 + 50.0) ** 2 * len(c) / (8.0 * beta))
    assert bound <= g(c, w, alpha, beta, zeta) + rounding(c, w, alpha, beta, zeta) + size
    best = solve(c[None], alpha, beta, zeta)
    assert bound <= best.objective[0] + rounding(c, best.w[0], alpha, beta, zeta) + size


def test_lower_bound_is_tight_at_the_optimum_and_a_twin_that_is_not_a_bound_is_caught():
    c = costs("distances", 8, 6)
    found = solve(c[None], 1.0, 0.1, tolerance=TIGHT)
    value = g(c, found.w[0], 1.0, 0.1)
    bound = lower_bound(c[None], found.q, 1.0, 0.1)[0]
    assert 0.0 <= value - bound + 1e-12 <= 1e-9
    twin = lower_bound(c[None], found.q, 1.0, 0.2)[0]  # half the quadratic term
    assert twin > value + 1e-3


def test_lower_bound_says_nothing_where_a_potential_is_not_positive():
    c = np.ones((3, 3))
    q = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, -1.0, 1.0]])
    found = lower_bound(c, q, 1.0, 1.0)
    assert np.isfinite(found[0])
    assert (found[1:] == -np.inf).all()


# ---- laws the solution obeys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [3, 20, 100])
@pytest.mark.parametrize("beta", [1e-3, 0.1, 100.0])
@pytest.mark.parametrize("alpha", [1.0, 7.0])
def test_the_scale_of_the_optimum_is_fixed_by_alpha(nodes, beta, alpha):
    """At zeta = 0: zbar.w + 4 beta |w|^2 = alpha d. It is alpha sum r_a, and the certificate bounds sum (r_a - 1)^2."""
    z = costs("distances", nodes, 8)
    found = solve(z[None], alpha, beta, tolerance=TIGHT)
    w = found.w[0]
    slack = 1.01 * np.sqrt(2.0 * nodes * alpha * found.gap[0]) + 1e-12 * alpha * nodes
    assert abs(z @ w + 4.0 * beta * (w @ w) - alpha * nodes) <= slack
    assert slack <= 1e-4 * alpha * nodes


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 40.0, 1e9])
def test_data_in_other_units_give_the_same_graph_in_other_units(scale):
    """z -> s z, beta -> s^2 beta: w -> w / s."""
    z = costs("distances", 15, 9)
    one = solve(z[None], 1.0, 0.05, tolerance=TIGHT)
    other = solve(scale * z[None], 1.0, scale**2 * 0.05, tolerance=TIGHT)
    np.testing.assert_allclose(scale * other.w, one.w, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(other.objective, one.objective + 15.0 * np.log(scale), rtol=1e-12)


def test_alpha_only_sets_the_scale():
    """Minimising with alpha and beta is minimising with 1 and alpha beta, then multiplying w by alpha."""
    z = costs("distances", 15, 10)
    one = solve(z[None], 1.0, 6.0 * 0.05, tolerance=TIGHT)
    other = solve(z[None], 6.0, 0.05, tolerance=TIGHT)
    np.testing.assert_allclose(other.w, 6.0 * one.w, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", ["distances", "pulled", "half zero"])
def test_renaming_the_nodes_renames_the_solution(kind):
    nodes = 14
    order = np.random.default_rng(11).permutation(nodes)
    c = costs(kind, nodes, 12)
    shuffled = squareform(squareform(c)[np.ix_(order, order)])
    one = solve(c[None], 1.0, 0.1, tolerance=TIGHT).w[0]
    other = solve(shuffled[None], 1.0, 0.1, tolerance=TIGHT).w[0]
    np.testing.assert_allclose(squareform(other), squareform(one)[np.ix_(order, order)], rtol=1e-6, atol=1e-8)


def test_ties_and_equal_nodes_get_equal_weights():
    w = solve(np.full((1, 28), 2.5), 1.0, 0.4, tolerance=TIGHT).w[0]
    # all edges equal: 4 beta w^2 + c w - 2/(d-1) = 0
    root = (-2.5 + np.sqrt(2.5**2 + 32.0 * 0.4 / 7.0)) / 3.2
    np.testing.assert_allclose(w, root, rtol=1e-7)


def test_the_coupling_is_a_change_of_c_and_beta():
    """g(w) + (pull/2)|w - v|^2 has the optimum of c - pull v and beta + pull/4."""
    rng = np.random.default_rng(13)
    z, v, pull, beta = costs("distances", 9, 13), rng.random(36), 3.0, 0.05
    w = solve((z - pull * v)[None], 1.0, beta + pull / 4.0, tolerance=TIGHT).w[0]
    degree = squareform(w).sum(0)
    a, b = np.triu_indices(9, 1)
    slope = z - 1.0 / degree[a] - 1.0 / degree[b] + 4.0 * beta * w + pull * (w - v)
    assert np.abs(slope[w > 0.0]).max() <= 1e-6
    assert slope[w == 0.0].min(initial=0.0) >= -1e-6


# ---- many rows, warm starts ------------------------------------------------------------------------------------------


def test_rows_do_not_depend_on_their_company():
    nodes = 17
    c = np.stack([costs(kind, nodes, 14) for kind in KINDS])
    beta = np.geomspace(1e-3, 1e2, len(c))
    warm = 10.0 ** np.random.default_rng(15).uniform(-1, 1, (len(c), nodes))
    for q in (None, warm):
        together = solve(c, 1.3, beta, 1e-3, q)
        for i in range(len(c)):
            alone = solve(c[i : i + 1], 1.3, beta[i], 1e-3, None if q is None else q[i : i + 1])
            for field in ("w", "q", "objective", "gap", "steps"):
                np.testing.assert_array_equal(getattr(alone, field)[0], getattr(together, field)[i])


def test_a_warm_start_is_not_changed_and_saves_steps():
    c = costs("distances", 40, 16)
    cold = solve(c[None], 1.0, 0.05)
    given_q = cold.q.copy()
    warm = solve(c[None], 1.0, 0.0505, q=given_q)
    np.testing.assert_array_equal(given_q, cold.q)
    assert warm.steps[0] < cold.steps[0]


@pytest.mark.parametrize(
    "bad",
    [1e-20, 1e20, 1e100, 1e-100, 1e200, 1e-200, np.inf, np.nan, -1.0, 0.0],
    ids=lambda bad: f"{bad:g}",
)
@pytest.mark.parametrize("where", ["everywhere", "not at the first node", "at one node"])
def test_a_bad_warm_start_costs_time_not_truth(bad, where):
    """Whatever potentials it starts from, the answer is certified and the certificate is true."""
    nodes, beta = 12, 0.1
    c = costs("distances", nodes, 17)
    q = np.full((1, nodes), 0.5)
    q[0, {"everywhere": slice(None), "not at the first node": slice(1, None), "at one node": 5}[where]] = bad
    found = solve(c[None], 1.0, beta, q=q)
    value = g(c, found.w[0], 1.0, beta)
    assert value - below(c, found.w[0], 1.0, beta) <= 1e-6 * max(abs(value), 1.0)
    assert found.gap[0] <= 1e-6 * max(abs(value), 1.0)
