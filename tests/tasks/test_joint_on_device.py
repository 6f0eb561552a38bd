"""The joint likelihood by proximal gradients, as a GPU computes it: the minimum of the compiled kernel, certified."""

import numpy as np
import pytest

from silograph.core.errors import InputError
from silograph.kernels import joint_likelihood
from silograph.kernels.joint_likelihood import Penalty

torch = pytest.importorskip("torch")
from silograph.tasks.joint_on_device import solve  # noqa: E402


def moments(seed, sites=3, nodes=12, rows=60):
    rng = np.random.default_rng(seed)
    mixing = np.eye(nodes) + 0.4 * np.eye(nodes, k=1)
    tables = rng.normal(size=(sites, rows, nodes)) @ mixing
    return np.array([np.corrcoef(table.T) for table in tables])


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize(("lam", "gam"), [(0.1, 0.0), (0.0, 0.2), (0.05, 0.1)])
def test_it_finds_the_minimum_of_the_compiled_kernel(lam, gam, nonnegative):
    s, nu = moments(1), np.array([0.5, 1.0, 1.5])
    relief = np.where(np.random.default_rng(2).random((12, 12)) < 0.2, 0.2, 1.0)
    relief = np.minimum(relief, relief.T)
    penalty = Penalty(lam * np.sqrt(nu)[:, None, None] * relief, gam * relief, nonnegative=nonnegative)
    expected = joint_likelihood.solve(s, nu, penalty, tolerance=1e-9)
    found = solve(s, nu, penalty, None, 1e-8, "cpu")
    assert found.relative_gap <= 1e-8
    assert found.objective == pytest.approx(expected.objective, abs=1e-6)
    assert np.abs(found.theta - expected.theta).max() < 1e-3
    assert np.allclose(found.covariance @ found.theta, np.eye(12), atol=1e-8)


def test_its_certificate_is_a_bound_and_not_a_guess():
    """Stopped early, the true distance to the minimum is never above the gap that is stated."""
    s, nu, penalty = moments(3), np.ones(3), Penalty(0.05, 0.1)
    best = joint_likelihood.solve(s, nu, penalty, tolerance=1e-10).objective
    for tolerance in (1e-1, 1e-2, 1e-4):
        found = solve(s, nu, penalty, None, tolerance, "cpu")
        assert 0.0 <= found.objective - best <= found.gap + 1e-9
        assert found.relative_gap <= tolerance


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    with pytest.raises(InputError, match="GPU"):
        solve(moments(1), np.ones(3), Penalty(0.1), None, 1e-4, "cuda")
