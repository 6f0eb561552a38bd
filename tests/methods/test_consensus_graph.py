"""Private consensus graphs: without noise they are the plain ones, and nobody pays twice."""

from dataclasses import replace

import numpy as np

from silograph.privacy.mechanisms import Gaussian
from silograph.tasks.smooth_graph import SmoothGraph
from support import COUNTS, NODES, cases, federation, run


def test_without_noise_the_papers_private_algorithm_is_the_plain_one():
    signals = federation()
    model = next(c for c in cases() if c.name == "per round, Corollary 1")
    roomy = SmoothGraph(NODES, "clipped-distances", 1e6)
    silent = replace(
        model, task=roomy, method=replace(model.method, release=roomy), mechanism=Gaussian(0.0), budget=None
    )
    plain = replace(
        model, task=SmoothGraph(NODES), method=replace(model.method, release=None), mechanism=None, budget=None
    )
    _, noisy, _ = run(silent, signals)
    _, exact, _ = run(plain, signals)
    # The grid is the only difference: 2^-20 of a sensitivity that the roomy clip makes 1e6 / N.
    np.testing.assert_allclose(noisy.arrays["graph"], exact.arrays["graph"], atol=1e-2)
    tight = SmoothGraph(NODES, "clipped-distances", 100.0)
    silent = replace(silent, task=tight, method=replace(model.method, release=tight))
    np.testing.assert_allclose(run(silent, signals)[1].arrays["graph"], exact.arrays["graph"], atol=1e-6)


def test_without_noise_one_release_of_one_silo_is_the_exact_graph():
    signals = {"ada": federation()["ada"]}
    case = next(c for c in cases() if c.name == "one release, clip")
    roomy = SmoothGraph(NODES, "moment", 50.0)
    method = replace(case.method, task=roomy, mechanism=Gaussian(0.0), counts=(COUNTS["ada"],))
    _, noisy, _ = run(replace(case, task=roomy, method=method, mechanism=Gaussian(0.0), budget=None), signals)
    _, exact, _ = run(replace(case, task=SmoothGraph(NODES), method=method.inner, mechanism=None, budget=None), signals)
    np.testing.assert_allclose(noisy.arrays["graph"], exact.arrays["graph"], atol=1e-4)


def test_a_released_silo_that_is_asked_again_is_not_charged_again():
    """bob comes late, so ada and cyd are asked twice: one row each."""
    case = next(c for c in cases() if c.name == "one release")
    signals = federation()
    _, _, door = run(case, signals, present=lambda t: ["ada", "cyd"] if t == 0 else list(signals))
    assert sorted(row.silo for row in door.ledger.rows) == ["ada", "bob", "cyd"]
