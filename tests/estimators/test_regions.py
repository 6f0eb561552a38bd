"""Regions as an estimator, without privacy: nothing to choose, and no result where a given step diverges."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from silograph import RegionModels
from silograph.core.errors import SolverError


@pytest.mark.parametrize("rounds", [8, 50])
def test_a_step_that_does_not_settle_is_an_error_and_no_result_however_few_rounds_there_are(rounds):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (60, 20, 6))
    agents = [(own, own @ np.arange(6.0) + rng.normal(size=20)) for own in x]
    assert np.abs(RegionModels("ridge", step=1.0, ridge=0.001, rounds=rounds).fit(agents).models_).max() < 10.0
    with pytest.raises(SolverError, match="step size 2 is too large"):
        RegionModels("ridge", step=2.0, ridge=0.001, rounds=rounds).fit(agents)


def test_raw_columns_of_any_units_are_learned_as_well_as_scikit_learn_does_from_all_records():
    """Two regions that differ in their constant; columns a million times apart, far from 0."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 3))
    region = np.arange(400) // 10 % 2
    y = x @ [1.0, -2.0, 0.5] + 3.0 * region + rng.normal(size=400)
    raw = x * [1.0, 1e3, 1e-3] + [0.0, 5e3, 1.0]
    agents = [(raw[k : k + 10], y[k : k + 10]) for k in range(0, 300, 10)]
    model = RegionModels("ridge").fit(agents, regions=[str(region[k]) for k in range(0, 300, 10)])
    ours = [y[300:][here] - model.predict(raw[300:][here], str(r)) for r in (0, 1) if (here := region[300:] == r).any()]
    design = np.column_stack([x, region])
    theirs = y[300:] - LinearRegression().fit(design[:300], y[:300]).predict(design[300:])
    assert (np.concatenate(ours) ** 2).mean() < 1.03 * (theirs**2).mean()
