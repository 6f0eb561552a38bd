"""Releases about a sample of the records: what the gate chooses, what it writes down, what it refuses."""

import hashlib
import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy import stats

from silograph.core.errors import BudgetError, DamageError, LeakError
from silograph.privacy.accounting import Planned, cost, sampled_epsilon, sampled_multiplier
from silograph.privacy.bound import ADD_OR_REMOVE_ONE, REPLACE_ONE, Bounded
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger, Row
from silograph.privacy.mechanisms import DistributedGaussian, Gaussian, Laplace, on_grid, variance_decay
from silograph.privacy.relay import OpenGate

COUNTS = np.array([40, 25])
SIGMA, RATE = 1.7, 0.3


def bounded(l2=(1.0, 0.25), size=3, relation=ADD_OR_REMOVE_ONE, value=0.0):
    return Bounded(np.full((len(l2), size), value), np.array(l2), "one record", "a clip", relation)


def door(mechanism=None, budget=None, ledger=None, root=7):
    mechanism = Gaussian(SIGMA) if mechanism is None else mechanism
    return Door(root, Ledger() if ledger is None else ledger, mechanism, budget)


def gate(round=0, silos=("a", "b"), **kwargs):
    return door(**kwargs).gate(list(silos), round)


# ---- the sample ------------------------------------------------------------------------------------------------------


def test_a_sample_is_of_the_records_that_are_there():
    batch = gate().poisson(COUNTS, RATE, "query 0", "query")
    assert batch.chosen.shape == (2, 40)
    assert batch.chosen.dtype == np.bool_
    assert not batch.chosen[1, 25:].any()  # the second silo has no more
    assert (batch.rate, batch.name, batch.part) == (RATE, "query 0", "query")
    assert 0 < batch.chosen.sum() < COUNTS.sum()


def test_at_rate_one_everybody_is_chosen():
    batch = gate().poisson(COUNTS, 1.0, "query 0", "query")
    np.testing.assert_array_equal(batch.chosen, np.arange(40) < COUNTS[:, None])


def test_a_silo_without_records_has_no_sample():
    assert gate().poisson(np.array([0, 0]), RATE, "x", "p").chosen.shape == (2, 0)


def test_a_sample_depends_on_its_place_alone():
    """On root, silo, round and release point: not on who else is in the call, nor on how many records others have."""

    def chosen(silos=("a",), counts=(60,), round=0, root=7, release_point="x", rate=RATE):
        return gate(round, silos, root=root).poisson(np.array(counts), rate, release_point, "p").chosen

    first = chosen()
    np.testing.assert_array_equal(chosen(("b", "a"), (90, 60))[1, :60], first[0])
    others = [chosen(("b",)), chosen(round=1), chosen(root=8), chosen(release_point="y")]
    for other in others:
        assert not np.array_equal(other, first)
    more = chosen(rate=0.6)  # the same coins: who is in at a lower rate is in at a higher
    assert (more >= first).all()


@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.5, 0.999])
def test_the_chance_is_the_rate(rate):
    """Of 400000 records, binomial, two-sided at 1e-4."""
    count = 400_000
    found = gate(silos=("a",)).poisson(np.array([count]), rate, "x", "p").chosen.sum()
    low, high = stats.binom.ppf([5e-5, 1.0 - 5e-5], count, rate)
    assert low <= found <= high


def test_the_noise_of_a_place_does_not_tell_its_sample():
    """Whoever sees a release at a release point must learn nothing about a sample of that name: correlation of 3000
    coins and noises, and of noises' size, at 1e-4 together; or the gate refuses."""
    border, count = door(), 3000
    coins, noise = np.empty(count), np.empty(count)
    try:
        for t in range(count):
            at = border.gate(["a"], t)
            coins[t] = at.poisson(np.array([1]), 0.5, "x", "p").chosen[0, 0]
            noise[t] = at.release(bounded((1.0,), 1), "x").value[0, 0]
    except LeakError:
        return
    for score in (noise, np.abs(noise)):
        centred = (score - score.mean()) / score.std()
        assert abs(((2.0 * coins - 1.0) * centred).sum()) / math.sqrt(count) < stats.norm.isf(2.5e-5)


# ---- the release -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
def test_a_row_says_sample_part_and_noise(share):
    border = door()
    at = border.gate(["a", "b"], 3)
    batch = at.poisson(COUNTS, RATE, "query 0", "query")
    at.release(bounded(), "inner 0", batch, share)
    border.sync()
    for row, silo, l2 in zip(border.ledger.rows, "ab", (1.0, 0.25), strict=True):
        assert (row.silo, row.round, row.release_point, row.mechanism) == (silo, 3, "inner 0", "gaussian")
        assert (row.sampling, row.batch, row.part) == (RATE, "query 0", "query")
        assert (row.protected_unit, row.relation, row.why) == ("one record", ADD_OR_REMOVE_ONE, "a clip")
        assert row.l2 == on_grid(l2, 3)
        assert l2 < row.l2 < l2 * (1.0 + 1e-6)
        assert row.noise == pytest.approx(SIGMA * row.l2 / math.sqrt(share), rel=1e-14)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_noise_added_is_the_noise_written_down(share):
    """Chi-square of 4000 noises, two-sided at 1e-4."""
    border = door()
    at = border.gate(["a"], 0)
    batch = at.poisson(np.array([9]), RATE, "q", "query")
    out = at.release(bounded((0.5,), 4000, value=3.0), "inner", batch, share).value
    border.sync()
    scores = (out - 3.0) / border.ledger.rows[0].noise
    low, high = stats.chi2.ppf([5e-5, 1.0 - 5e-5], 4000)
    assert low < np.square(scores).sum() < high


def test_without_a_sample_a_row_is_as_it_was():
    border = door()
    border.gate(["a", "b"], 0).release(bounded(relation=REPLACE_ONE), "stat")
    border.sync()
    assert {(row.sampling, row.batch, row.part, row.noise / row.l2) for row in border.ledger.rows} == {
        (1.0, "", "", SIGMA)
    }


def test_a_schedule_of_gaussians_may_release_about_a_sample():
    border = door(variance_decay(SIGMA, 0.25))
    for t in range(2):
        at = border.gate(["a"], t)
        at.release(bounded((1.0,)), "x", at.poisson(np.array([9]), RATE, "q", "query"), 0.5)
    border.sync()
    ratios = [row.noise / row.l2 for row in border.ledger.rows]
    assert ratios == pytest.approx([SIGMA * math.sqrt(2.0), SIGMA * math.sqrt(0.5)])


@pytest.mark.parametrize("mechanism", [Laplace(1.0), DistributedGaussian(0.1)], ids=lambda m: m.name)
def test_other_noise_about_a_sample_is_refused(mechanism):
    """Nothing here accounts for it."""
    border = door(mechanism)
    at = border.gate(["a", "b"], 0)
    with pytest.raises(LeakError, match=rf"expected Gaussian noise.*{mechanism.name}"):
        at.release(bounded(), "x", at.poisson(COUNTS, RATE, "q", "query"))
    border.sync()
    assert border.ledger.rows == []


def test_a_bound_for_replaced_records_is_refused_with_a_sample():
    """What sampling makes cheaper is a record that is there or not."""
    at = gate()
    with pytest.raises(LeakError, match=r"a record that is left out.*replace-one"):
        at.release(bounded(relation=REPLACE_ONE), "x", at.poisson(COUNTS, RATE, "q", "query"))


def test_no_site_releases_twice_with_or_without_a_sample():
    at = gate()
    batch = at.poisson(COUNTS, RATE, "q", "query")
    at.release(bounded(), "inner", batch, 0.5)
    for again in (batch, None, at.poisson(COUNTS, RATE, "other", "query")):
        with pytest.raises(LeakError, match="no noise is used twice"):
            at.release(bounded(), "inner", again, 0.5)


def test_behind_an_open_gate_there_are_no_records_to_sample():
    with pytest.raises(LeakError, match="open gate"):
        OpenGate().poisson(COUNTS, RATE, "x", "query")
    with pytest.raises(LeakError, match="open gate"):
        OpenGate().release(bounded(), "x", None, 0.5)


# ---- what it costs ---------------------------------------------------------------------------------------------------


def released(border, shares, steps=2, parts=("query",)):
    for t in range(steps):
        at = border.gate(["a"], t)
        for part in parts:
            batch = at.poisson(np.array([30]), RATE, f"{part} sample", part)
            for k, share in enumerate(shares):
                at.release(bounded((1.0,)), f"{part} {k}", batch, share)
        border.sync()
    return border.ledger.of("a")


def test_shares_of_one_sample_cost_what_the_whole_would():
    whole = cost(released(door(), [1.0]), 1e-4).epsilon
    assert whole == pytest.approx(sampled_epsilon(SIGMA, RATE, 2, 1e-4), rel=1e-6)
    assert cost(released(door(), [0.5, 0.5]), 1e-4).epsilon == pytest.approx(whole, rel=1e-6)
    assert cost(released(door(), [0.2, 0.3, 0.5]), 1e-4).epsilon == pytest.approx(whole, rel=1e-6)
    assert cost(released(door(), [1.0, 1.0]), 1e-4).epsilon > 1.3 * whole  # nobody gets the second one free


def test_parts_pay_for_themselves():
    alone = cost(released(door(), [1.0]), 1e-4).epsilon
    assert cost(released(door(), [1.0], parts=("query", "support")), 1e-4).epsilon == pytest.approx(alone, rel=1e-6)


def test_a_release_about_all_records_counts_for_every_part():
    border = door()
    rows = list(released(border, [1.0], parts=("query", "support")))
    at = border.gate(["a"], 2)
    at.release(bounded((1.0,), relation=REPLACE_ONE), "all")
    border.sync()
    both = [row for row in border.ledger.of("a") if row.part != "support"]
    assert cost(border.ledger.of("a"), 1e-4).epsilon == pytest.approx(cost(both, 1e-4).epsilon)
    assert cost(both, 1e-4).epsilon > cost(rows, 1e-4).epsilon


def test_a_plan_is_kept_and_what_goes_beyond_is_refused():
    epsilon, delta, count = 1.0, 1e-3, 3
    sigma = sampled_multiplier(epsilon, delta, RATE, count)
    budget = Budget(epsilon, delta, planned=Planned(sigma, RATE, count))
    border = door(Gaussian(sigma), budget)
    released(border, [0.5, 0.5], steps=count, parts=("query", "support"))
    assert border.spent("a", delta).epsilon == pytest.approx(epsilon, rel=1e-4)
    at = border.gate(["a"], count)
    with pytest.raises(BudgetError, match="is spent and this release would make it"):
        at.release(bounded((1.0,)), "query 0", at.poisson(np.array([30]), RATE, "query sample", "query"), 0.5)
    border.sync()
    assert {row.round for row in border.ledger.rows} == set(range(count))


def test_a_sample_may_not_be_larger_than_planned():
    sigma = sampled_multiplier(1.0, 1e-3, RATE, 3)
    border = door(Gaussian(sigma), Budget(1.0, 1e-3, planned=Planned(sigma, RATE, 3)))
    at = border.gate(["a"], 0)
    everybody = at.poisson(np.array([30]), 1.0, "query sample", "query")
    with pytest.raises(BudgetError):
        at.release(bounded((1.0,)), "query 0", everybody)


# ---- on disk ---------------------------------------------------------------------------------------------------------


def test_rows_with_sample_and_part_come_back_from_disk(tmp_path):
    path = tmp_path / "ledger.jsonl"
    border = door(ledger=Ledger(path))
    released(border, [0.5, 0.5], parts=("query", "support"))
    border.gate(["a"], 9).release(bounded((1.0,)), "plain")
    border.sync()
    again = Ledger(path)
    assert again.rows == border.ledger.rows
    assert again.tip == border.ledger.tip
    assert {row.batch for row in again.rows} == {"query sample", "support sample", ""}
    assert {row.part for row in again.rows} == {"query", "support", ""}
    assert cost(again.of("a"), 1e-4) == cost(border.ledger.of("a"), 1e-4)


def test_a_changed_sample_shows(tmp_path):
    path = tmp_path / "ledger.jsonl"
    released(door(ledger=Ledger(path)), [0.5, 0.5])
    text = path.read_text()
    for old, new in (('"batch": "query sample"', '"batch": "other"'), ('"part": "query"', '"part": "support"')):
        assert old in text
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(DamageError, match="line 1"):
            Ledger(path)


def test_a_resumed_release_about_a_sample_is_the_same_and_not_paid_twice(tmp_path):
    path = tmp_path / "ledger.jsonl"
    border = door(ledger=Ledger(path))
    released(border, [0.5, 0.5])
    again = door(ledger=Ledger(path))
    released(again, [0.5, 0.5])
    assert again.ledger.rows == border.ledger.rows
    assert len(Ledger(path).rows) == 4


def test_rows_from_before_samples_had_names_still_read(tmp_path):
    """Line by line as such a ledger was written: without the two fields, and with the same chain."""
    rows = [
        Row("a", k, "x", "server", "gaussian", 1.0, 2.0, 3, 1.0, "u", "replace-one", "seed", "why", f"{k:016x}")
        for k in range(3)
    ]
    lines, chain = [], "0" * 16
    for row in rows:
        fields = {name: value for name, value in asdict(row).items() if name not in ("batch", "part")}
        body = json.dumps(fields, sort_keys=True)
        chain = hashlib.sha256((chain + body).encode()).hexdigest()[:16]
        lines.append(f'{{"chain": "{chain}", {body[1:]}\n')
    path = tmp_path / "ledger.jsonl"
    path.write_text("".join(lines))
    ledger = Ledger(path)
    assert ledger.rows == rows
    assert {(row.batch, row.part) for row in ledger.rows} == {("", "")}
    ledger.append([replace(rows[0], round=3, sampling=RATE, batch="q", part="query")])
    assert path.read_text().startswith("".join(lines))  # what is there stays, and new rows go on from it
    assert Ledger(path).rows == ledger.rows
