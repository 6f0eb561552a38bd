"""What the two private modes that rest on other sites say of it is true of the sites that came."""

from pathlib import Path

import numpy as np
import pytest

from silograph.core.errors import InputError
from silograph.data.silos import People, Silos, from_arrays
from silograph.families.graphs.job import GraphJob
from silograph.families.graphs.plan import Data, GraphPlan, Privacy
from silograph.privacy.correlated import CorrelatedGaussian
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.run.loop import ENGINES, REHEARSAL, rounds

SITES, NODES = 6, 5


def job(mode, unit=None):
    rng = np.random.default_rng(0)
    silos = from_arrays([rng.normal(size=(600, NODES)) for _ in range(SITES)], private=True)
    if unit is not None:
        people = tuple(People(np.asarray(x), np.arange(600) // 2) for x in silos.signals)
        silos = Silos(silos.names, silos.nodes, people)
    data = Data(unit_column=unit, scale="none" if mode == "correlated" else None)
    return GraphJob.of(GraphPlan(data, privacy=Privacy(4.0, 1e-6, mode), seed=1), silos, Path())


def told(plan, here, folder):
    door = Door(5, Ledger(), plan.mechanism, plan.budget, REHEARSAL, plan.masks)
    place = ENGINES["vector"](plan.data(), plan.topo, door)
    *_, last = rounds(plan.method, plan.topo, place, door, present=lambda _: plan.topo.silos[:here])
    outcome = plan.method.outcome(last.servers, place.deliver(plan.method, last), plan.topo)
    return " ".join(plan.write(folder, outcome, [], door).privacy.notes), door


@pytest.mark.parametrize(
    ("here", "enough", "spared"),
    [(6, "4 of 6", "if at most 1 of 6 sites fails"), (3, "2 of 3", "only if no site fails")],
)
def test_how_many_may_fail_is_said_of_the_sites_in_the_sum(here, enough, spared, tmp_path):
    notes, door = told(job("secure-sum"), here, tmp_path)
    assert f"{enough} shares are enough" in notes
    assert f"The guarantee holds {spared}: by dropping out" in notes
    assert f"sum of {here} sites" in door.ledger.rows[0].why


def test_who_drops_out_in_the_middle_counts_among_those_who_may_fail(tmp_path):
    """Shares were dealt for six, four of whom are counted on; of five who stay one may look, and nobody may tell."""
    plan = job("secure-sum")
    door = Door(5, Ledger(), plan.mechanism, plan.budget, REHEARSAL, plan.masks)
    place = ENGINES["vector"](plan.data(), plan.topo, door)
    *_, last = rounds(plan.method, plan.topo, place, door)
    stayed = {**last.servers, "summed": np.arange(SITES) < SITES - 1}
    outcome = plan.method.outcome(stayed, {}, plan.topo)
    notes = " ".join(plan.write(tmp_path, outcome, [], door).privacy.notes)
    assert "4 of 6 shares are enough" in notes
    assert "holds if at most 1 of 6 sites fails: by dropping out during the sum, or by" in notes
    assert "In this run 1 dropped out." in notes


def test_a_forecast_says_that_fewer_may_fail_where_fewer_come():
    notes = " ".join(job("secure-sum").forecast()["notes"])
    assert "That is if all take part" in notes
    assert "of 3, none" in notes


def test_rows_of_shared_noise_say_that_it_is_shared(tmp_path):
    _, door = told(job("correlated"), SITES, tmp_path)
    assert {row.why.split("; ", 1)[1] for row in door.ledger.rows} == {
        "noise of which every two of 6 sites share a part; 4 of them are counted on"
    }


@pytest.mark.parametrize(("mode", "adds"), [("one-release", True), ("secure-sum", False), ("correlated", False)])
def test_a_person_at_several_sites_is_promised_no_sum_of_budgets_where_noise_is_not_independent(mode, adds, tmp_path):
    notes, _ = told(job(mode, unit="person"), SITES, tmp_path)
    assert ("spends the budget of each" in notes) == adds
    assert ("for a person with signals at one site" in notes) != adds


def test_noise_that_could_never_be_enough_is_refused_and_not_searched_for():
    sites = tuple(f"s{k:04d}" for k in range(1000))
    with pytest.raises(InputError, match="fewer sites or nodes"):
        CorrelatedGaussian(5.0, (sites,), 666).scale_in_steps(124_750)
