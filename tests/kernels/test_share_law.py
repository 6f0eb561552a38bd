"""The law of shares: probabilities that are right as often as they say, with and without groups."""

from __future__ import annotations

import numpy as np
import pytest

from silograph.kernels.share_law import learn_shares


def _world(seed: int, noise: float, edges: int = 300, pairs: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    share = rng.beta(1.0, 30.0, pairs)
    share[:edges] = rng.beta(8.0, 4.0, edges)
    return share, share + noise * rng.standard_normal(pairs)


@pytest.mark.parametrize("noise", [0.12, 0.2, 0.3])
def test_probabilities_are_calibrated(noise: float) -> None:
    """Pooled over 10 worlds there are thousands of edges in a bin: 5 % is more than five standard errors there."""
    said, true = [], []
    for seed in range(10):
        share, noisy = _world(seed, noise)
        known = learn_shares(noisy, noise, 300)
        said.append(known.probability)
        true.append(share > np.sort(share)[-300])
    said, true = np.concatenate(said), np.concatenate(true)
    for low, high in ((0.1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01)):
        here = (said >= low) & (said < high)
        assert here.sum() > 20
        assert true[here].mean() == pytest.approx(said[here].mean(), abs=0.05 + 2.0 / np.sqrt(here.sum()))


def test_as_many_edges_are_expected_as_were_asked_for() -> None:
    _, noisy = _world(3, 0.1)
    for edges in (1, 40, 300, 5000, 6000):
        assert learn_shares(noisy, 0.1, edges).probability.sum() == pytest.approx(min(edges, 5000), rel=1e-6)


def test_expected_shares_are_nearer_to_the_truth_than_the_noisy_ones() -> None:
    share, noisy = _world(4, 0.15)
    known = learn_shares(noisy, 0.15, 300)
    assert np.mean((known.share - share) ** 2) < 0.2 * np.mean((noisy - share) ** 2)


def test_groups_that_differ_help_and_groups_of_chance_do_not_hurt() -> None:
    share, noisy = _world(5, 0.35)
    truth = share > np.sort(share)[-300]
    rng = np.random.default_rng(6)
    near = np.where(truth, rng.random(len(share)) < 0.8, rng.random(len(share)) < 0.1).astype(np.intp)

    def found(group: np.ndarray | None) -> float:
        return float(truth[np.argsort(-learn_shares(noisy, 0.35, 300, group).probability)[:300]].mean())

    assert found(near) > found(None) + 0.1
    assert found(rng.integers(12, size=len(share))) > found(None) - 0.03


def test_without_noise_the_largest_shares_are_sure() -> None:
    share, _ = _world(7, 0.0)
    known = learn_shares(share, 0.0, 300)
    assert set(np.flatnonzero(known.probability > 0.5)) <= set(np.argsort(-share)[:400])
    assert (known.probability[np.argsort(-share)[:200]] > 0.9).all()
