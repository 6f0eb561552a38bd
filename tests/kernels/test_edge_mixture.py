"""Probabilities of edges: calibrated on worlds drawn from the model, silent on noise, whatever the order of sites."""

import numpy as np
import pytest

from silograph.kernels.edge_mixture import posterior

COUNTS = np.array([100.0, 200.0, 200.0, 400.0, 100.0])


def world(seed, edges=4000, shared=0.12, kept=0.75, own=0.04, negative=0.5):
    rng = np.random.default_rng(seed)
    strength = rng.uniform(0.12, 0.4, edges) * np.where(rng.random(edges) < negative, -1.0, 1.0)
    base = rng.random(edges) < shared
    sites = len(COUNTS)
    inherited = base & (rng.random((sites, edges)) < kept)
    alone = ~base & (rng.random((sites, edges)) < own)
    single = rng.uniform(0.12, 0.4, (sites, edges)) * np.where(rng.random((sites, edges)) < negative, -1.0, 1.0)
    truth = np.where(inherited, strength, np.where(alone, single, 0.0))
    return truth + rng.standard_normal(truth.shape) / np.sqrt(COUNTS)[:, None], truth, base


@pytest.mark.parametrize("which", ["site", "shared"])
def test_probabilities_are_calibrated(which):
    """Of edges with about the same probability that share exists, within .06 (the widest bin's standard error is .015,
    so a right model fails once in 10,000 runs)."""
    said, true = [], []
    for seed in range(6):
        r, truth, base = world(seed)
        found = posterior(r, COUNTS)
        said.append((found.site if which == "site" else found.shared).ravel())
        true.append((truth != 0.0 if which == "site" else base).ravel())
    said, true = np.concatenate(said), np.concatenate(true)
    for low, high in ((0.0, 0.1), (0.1, 0.35), (0.35, 0.65), (0.65, 0.9), (0.9, 1.01)):
        inside = (said >= low) & (said < high)
        assert abs(said[inside].mean() - true[inside].mean()) < 0.06


def test_the_prior_is_learned():
    prior = posterior(world(0)[0], COUNTS).prior
    assert prior["shared"] == pytest.approx(0.12, abs=0.03)
    assert prior["kept"] == pytest.approx(0.75, abs=0.08)
    assert prior["own"] == pytest.approx(0.04, abs=0.02)
    assert prior["positive"] == pytest.approx(0.5, abs=0.1)
    assert posterior(world(0, negative=0.0)[0], COUNTS).prior["positive"] > 0.9


def test_noise_has_no_edges():
    r = np.random.default_rng(1).standard_normal((5, 4000)) / np.sqrt(COUNTS)[:, None]
    found = posterior(r, COUNTS)
    assert found.site.mean() < 0.01
    assert found.shared.max() < 0.5


def test_other_sites_help():
    """Weak edges that all sites share are found better together than from one site alone."""
    r, truth, _ = world(2, kept=0.98, own=0.002)
    there = truth[0] != 0.0
    together, alone = posterior(r, COUNTS).site[0], posterior(r[:1], COUNTS[:1]).site[0]
    assert there[np.argsort(-together)[: there.sum()]].mean() > there[np.argsort(-alone)[: there.sum()]].mean() + 0.2


def test_the_order_of_sites_does_not_matter():
    r, _, _ = world(3)
    order = [3, 1, 4, 0, 2]
    plain, other = posterior(r, COUNTS), posterior(r[order], COUNTS[order])
    np.testing.assert_allclose(other.site, plain.site[order], atol=1e-9)
    np.testing.assert_allclose(other.shared, plain.shared, atol=1e-9)


def test_a_mean_off_zero_is_no_edge():
    """A level common to all nodes shifts what edges seem: the law of "no edge" follows."""
    r, _, _ = world(4)
    plain, moved = posterior(r, COUNTS).site, posterior(r - 0.1, COUNTS).site
    assert np.mean((plain > 0.5) == (moved > 0.5)) > 0.98
