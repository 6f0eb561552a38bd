"""One sum over all regions: a curator's update and noise, the same model everywhere, and models of the regions' own."""

import math
from dataclasses import replace

import numpy as np
import pytest

from federations import DELTA, EPSILON, FEATURES, ROUNDS, SIZES, cases, records, run, topology
from servers import door_of, engine_of
from silograph.core.errors import BudgetError, InputError, LeakError
from silograph.methods.graph_federation import GraphFederation
from silograph.privacy.accounting import cost, gaussian_mu, gaussian_multiplier, rdp_epsilon, zcdp_rho
from silograph.privacy.bound import clip_rows
from silograph.privacy.door import Budget
from silograph.privacy.masking import Masks, planned
from silograph.privacy.mechanisms import DistributedGaussian, SharedGaussian
from silograph.run.loop import rounds
from silograph.topology import graph_from

OWN = SharedGaussian(gaussian_multiplier(EPSILON, DELTA, ROUNDS))
AGENTS = sum(SIZES)


def case(name, **changes):
    found = next(each for each in cases() if each.name == name)
    return replace(found, method=replace(found.method, sample=None, reach="all", **changes))


def private(epsilon=EPSILON, masks="skipped", **changes):
    share = changes.get("personal", 0.0)
    own = SharedGaussian(gaussian_multiplier(epsilon, DELTA, ROUNDS) / math.sqrt(1.0 - share))
    made = case("private, masks skipped", **changes)
    return replace(made, mechanism=own, budget=Budget(epsilon, DELTA), masks=Masks(masks))


def test_the_model_moves_by_the_mean_of_all_clipped_updates():
    """The oracle: one gradient step of every agent, clipped by hand, and their mean."""
    topo = topology()
    plain = case("masks", epochs=(1, 1), batch=None)
    ran = run(plain)
    method, data = plain.method, records()
    prepared = [method.task.prepare(data[name]) for name in topo.silos]
    model = np.zeros(FEATURES)
    for state in ran.states:
        steps = []
        for part in prepared:
            count = np.array([int(part["count"])])
            batch = np.arange(method.task.most)[None, None]
            one = {name: value[None] for name, value in part.items()}
            moved = method.task.descend(model[None], one, batch, np.ones(1, dtype=np.int64), count, method.step)[0]
            steps.append(clip_rows((moved - model)[None], method.clip)[0])
        model = model + np.mean(steps, axis=0)
        np.testing.assert_allclose(state.servers["model"], np.tile(model, (len(SIZES), 1)), atol=1e-5)


def test_servers_agree_exactly_in_every_round():
    ran = run(private(masks="protocol"))
    for state in ran.states:
        assert (state.servers["model"] == state.servers["model"][0]).all()
        assert private().method.trace(state.servers)["disagreement"] == 0.0
    assert ran.outcome.facts["disagreement"] == 0.0
    np.testing.assert_array_equal(ran.outcome.arrays["centroid"], ran.outcome.arrays["model"][1])


def test_the_protocol_over_the_servers_graph_changes_no_bit():
    one, other = run(private(masks="protocol")), run(private())
    np.testing.assert_array_equal(one.outcome.arrays["model"], other.outcome.arrays["model"])
    assert [row.digest for row in one.door.ledger.rows] == [row.digest for row in other.door.ledger.rows]


def test_every_region_has_a_row_a_round_that_says_who_is_counted_on():
    ran = run(private())
    topo, clip = topology(), private().method.clip
    assert len(ran.door.ledger.rows) == ROUNDS * len(SIZES)
    for row in ran.door.ledger.rows:
        assert row.observer == "own server and everybody else"
        assert row.l2 == pytest.approx(2.0 * clip, rel=1e-6)
        assert "16 agents of 3 servers" in row.why
        assert "10 of them are counted on" in row.why
    for server in topo.servers:
        rows = ran.door.ledger.of(server)
        assert 0.9999 * EPSILON < cost(rows, DELTA).epsilon <= EPSILON
        assert rdp_epsilon(rows, DELTA) >= cost(rows, DELTA).epsilon


def test_a_round_beyond_the_budget_is_refused_before_it_is_summed():
    more = private()
    more = replace(more, method=replace(more.method, rounds=ROUNDS + 1))
    topo = topology()
    door = door_of(more)
    place = engine_of(more, records(topo=topo), topo, door)
    with pytest.raises(BudgetError, match=f"round {ROUNDS}"):
        list(rounds(more.method, topo, place, door))
    assert max(row.round for row in door.ledger.rows) == ROUNDS - 1


def test_an_absent_region_has_no_row_and_the_same_model_as_all():
    topo = topology()
    away = topo.servers[1]
    ran = run(private(), present=lambda t: [name for name in topo.silos if t != 2 or not name.startswith(away)])
    absent = [row for row in ran.door.ledger.rows if row.round == 2]
    assert {row.silo for row in absent} == set(topo.servers) - {away}
    assert all("12 agents of 2 servers" in row.why for row in absent)
    assert ran.outcome.facts["disagreement"] == 0.0


def test_too_few_agents_are_never_added_up():
    topo = topology()
    ran = run(private(), present=lambda t: topo.silos[:2])
    assert not ran.door.ledger.rows
    assert not ran.outcome.arrays["model"].any()


def test_without_masks_there_is_no_sum_over_servers():
    with pytest.raises(LeakError, match="masks for a sum over several servers"):
        run(case("private, trusted server"))


def test_what_servers_hide_from_each_other_needs_sums_by_region():
    task = case("masks").method.task
    for perturbation in ("edge", "sender", "homomorphic"):
        with pytest.raises(InputError, match="none or private"):
            GraphFederation(task, 0.5, 3, perturbation=perturbation, reach="all")
    with pytest.raises(InputError, match="a connected graph"):
        graph_from(np.zeros((2, 2)), ["north", "south"])


def test_the_noise_is_that_of_a_curator_and_the_exact_curve_saves_a_tenth_of_its_power():
    """Per coordinate of the mean: all agents together against each region for itself."""
    one, each = (planned(n, 0.3, FEATURES, OWN).charged for n in (AGENTS, 5))
    assert one == pytest.approx(each, rel=1e-6)  # of the sums; they are divided by 16 and by 5
    assert one == pytest.approx(0.6 * OWN.multiplier, rel=1e-5)
    for epsilon in (1.0, 4.0):
        saved = gaussian_mu(epsilon, 1e-6) ** 2 / (2.0 * zcdp_rho(epsilon, 1e-6))
        assert 0.11 < 1.0 - 1.0 / saved < 0.132
        exact = SharedGaussian(gaussian_multiplier(epsilon, 1e-6, 20))
        concentrated = DistributedGaussian(zcdp_rho(epsilon, 1e-6) / 20)
        powers = [planned(300, 0.5, 9, noise).charged ** 2 for noise in (concentrated, exact)]
        assert powers[0] / powers[1] == pytest.approx(saved, rel=1e-4)


# ---- personal --------------------------------------------------------------------------------------------------------


def region_records(apart):
    """Every region has a model of its own, so far from the others'."""
    topo, rng = topology((12, 12, 12)), np.random.default_rng(3)
    truth = rng.normal(size=FEATURES) * 0.5 + apart * rng.normal(size=(3, FEATURES))
    made = {}
    for name, home in zip(topo.silos, topo.home, strict=True):
        x = rng.normal(size=(20, FEATURES))
        made[name] = (x, x @ truth[home] + 0.1 * rng.normal(size=20))
    return topo, made, truth


def test_models_of_the_regions_own_come_closer_to_them_where_they_differ():
    topo, data, truth = region_records(0.15)
    settings = {"epochs": (1, 1), "batch": None, "clip": 1.0}
    common = run(private(epsilon=60.0, **settings), data, topo).outcome.arrays["model"]
    own = run(private(epsilon=60.0, personal=0.3, **settings), data, topo).outcome
    before, after = (np.linalg.norm(model - truth, axis=1).mean() for model in (common, own.arrays["model"]))
    assert after < 0.8 * before
    assert own.facts["rounds"] == ROUNDS + 1
    np.testing.assert_allclose(own.arrays["model"].mean(0), own.arrays["centroid"])


def test_what_is_noise_alone_is_shrunk_away():
    """Regions that do not differ, and a small budget: in 20 runs the models that are kept are few and close. By the
    chi-square law of the spread, which has 6 degrees of freedom, it passes its mean in 4 of 10 runs."""
    topo, data, _ = region_records(0.0)
    kept = [
        run(private(epsilon=0.5, personal=0.3, epochs=(1, 1), batch=None), data, topo, seed=seed).outcome
        for seed in range(20)
    ]
    apart = np.array([outcome.facts["disagreement"] for outcome in kept])
    assert 0.2 <= (apart == 0.0).mean() <= 0.95


def test_the_share_is_paid_in_the_last_row():
    topo, data, _ = region_records(0.1)
    ran = run(private(personal=0.3), data, topo)
    for server in topo.servers:
        rows = ran.door.ledger.of(server)
        assert len(rows) == ROUNDS + 1
        assert 0.9999 * EPSILON < cost(rows, DELTA).epsilon <= EPSILON
        last = (rows[-1].l2 / rows[-1].noise) ** 2
        assert last / gaussian_mu(EPSILON, DELTA) ** 2 == pytest.approx(0.3, rel=1e-4)
        assert "sum of 12 agents, each" in rows[-1].why


@pytest.mark.parametrize("changes", [{"perturbation": "none", "personal": 0.3}, {"personal": 1.0}])
def test_a_share_of_no_budget_or_of_all_of_it_is_refused(changes):
    with pytest.raises(InputError, match="a share below 1 of a budget"):
        replace(private().method, **changes)
