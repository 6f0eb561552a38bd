"""A client's exact step reaches its minimum however ill-conditioned: a sensitivity holds only there."""

import numpy as np
import pytest

from silograph.core.errors import InputError
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.tasks.clustered import Proximal


@pytest.mark.parametrize("loss", ["huber", "logistic"])
def test_what_is_left_of_the_gradient_is_nothing_beside_one_records(loss):
    """300 problems with many records, small penalties and features of all lengths; residuals by plain numpy."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        count, features = int(rng.integers(20, 200)), int(rng.integers(1, 12))
        radius, delta = 10.0 ** rng.uniform(0, 2), 10.0 ** rng.uniform(-3, 0)
        rho = 10.0 ** rng.uniform(-5, 0) * radius**2 * 1e-2
        x = rng.normal(size=(count, features)) * 10.0 ** rng.uniform(-1, 2, size=(count, 1))
        y = (
            np.sign(rng.normal(size=count))
            if loss == "logistic"
            else 10.0 ** rng.uniform(-2, 3) * rng.normal(size=count)
        )
        task = Proximal(features, count, loss, delta, radius=radius)
        data = task.prepare_all([(x, y)])
        what, phi = rng.normal(size=(1, features)), 0.1 * rng.normal(size=(1, features))
        w = task.step(what, phi, rho, np.zeros(1), data)
        rows = data["x"][0, :count]
        if loss == "logistic":
            slope = -y / (1.0 + np.exp(np.clip(y * (rows @ w[0]), -700, 700)))
        else:
            slope = -np.clip(y - rows @ w[0], -delta, delta)  # with the half of (49)
        left = rows.T @ slope / count - phi[0] + rho * (w[0] - what[0])
        largest = task.largest
        assert np.linalg.norm(left) <= 1e-6 * 2.0 * largest / count + 1e-10 * np.abs(rows.T @ slope).max()


def test_a_penalty_too_small_to_find_the_minimum_for_certain_is_refused_where_records_are_protected():
    task = Proximal(3, 4, "huber", radius=100.0)
    ClusteredADMM(task, (0, 0), 1e-3, 5, protect="records")
    with pytest.raises(InputError, match="curvature"):
        ClusteredADMM(task, (0, 0), 1e-6, 5, protect="records")
