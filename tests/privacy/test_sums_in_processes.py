"""Sums of several regions at the same time, in processes: the same bits, ledgers and errors as one after the other."""

import math
import os
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import federations
from silograph.core import processes
from silograph.core.errors import InputError
from silograph.privacy.discrete import encode
from silograph.privacy.masking import MaskedSum, Masks, Summands, masked_sums
from silograph.privacy.mechanisms import SharedGaussian
from silograph.privacy.secure_partners import loads, partners, sparse
from silograph.privacy.secure_sum import ProtocolError, secure_sum

BITS = 16


@pytest.fixture
def made_in(monkeypatch):
    """Where sums are made: at any size in so many processes; returns how many were begun."""
    begun, worker = [], processes._Worker

    def counted():
        begun.append(1)
        return worker()

    def these(count):
        begun.clear()
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(count)))
        return begun

    monkeypatch.setattr(processes, "_WORTH_WORKERS", 0.0)
    monkeypatch.setattr(processes, "_Worker", counted)
    return these


def vectors(count, seed=0, length=3):
    draws = np.random.default_rng(seed).normal(size=(count, length))
    unit = draws / np.linalg.norm(draws, axis=1, keepdims=True) * 0.999
    return {f"agent {seed}-{k:03d}": vector for k, vector in enumerate(unit)}


@pytest.mark.parametrize("name", ["masks", "private, masks"])
def test_a_run_has_the_same_models_and_ledger_with_one_core_and_with_two(name, made_in):
    case = next(case for case in federations.cases() if case.name == name)
    case = replace(case, method=replace(case.method, rounds=2))
    begun, ran = {}, {}
    for cores in (1, 2):
        count = made_in(cores)
        ran[cores] = federations.run(case)
        begun[cores] = len(count)
    assert begun == {1: 0, 2: 2 * 2}
    for one, other in zip(ran[1].states, ran[2].states, strict=True):
        np.testing.assert_array_equal(one.servers["model"], other.servers["model"])
    assert ran[1].door.ledger.rows == ran[2].door.ledger.rows != []


def test_noisy_sums_of_many_and_of_few_agents_are_the_same_in_processes(made_in):
    """Each has its own streams of noise; more than 128 agents have few partners; some are summed over a graph."""
    noise, wanted = SharedGaussian(5.0), []
    for seed, count in enumerate((5, 140, 9)):
        summed = vectors(count, seed)
        asked = MaskedSum(tuple(summed), 3, f"region {seed}", "update", 1.0, 3, Masks(), noise)
        wanted.append(Summands(summed, asked))
    linked = ~np.eye(2, dtype=np.bool_)
    wanted.append(replace(wanted[0], servers=({name: k % 2 for k, name in enumerate(wanted[0].vectors)}, linked)))
    begun = made_in(1)
    alone = list(masked_sums(wanted, 7))
    assert not begun
    begun = made_in(2)
    together = list(masked_sums(wanted, 7))
    assert len(begun) == 2
    for each, one, other in zip(wanted, alone, together, strict=True):
        assert one.whole.tolist() == other.whole.tolist()
        assert one.survivors == other.survivors == tuple(sorted(each.vectors))
        off = one.values - sum(each.vectors.values())
        assert 0.0 < np.abs(off).max() < 6.0 * each.asked.cohort.noise_of(len(each.vectors))


def test_drop_outs_are_the_same_in_processes_and_too_many_are_refused_in_their_turn(made_in):
    gone = {"agent 1-000": "mask", "agent 1-004": "unmask"}
    sums = [
        partial(secure_sum, vectors(9, 0), 1.0, BITS),
        partial(secure_sum, vectors(9, 1), 1.0, BITS, drop=gone),
        partial(secure_sum, vectors(9, 2), 1.0, BITS, drop=dict.fromkeys(list(vectors(9, 2))[:3], "mask"), region="c"),
        partial(secure_sum, vectors(9, 3), 1.0, BITS, drop=dict.fromkeys(list(vectors(9, 3))[:4], "mask"), region="d"),
    ]
    made_in(2)
    totals = processes.in_processes(sums, [1.0, 2.0, 3.0, 4.0], 1.0)
    for seed in (0, 1):
        total, here = next(totals), vectors(9, seed)
        assert set(total.survivors) == here.keys() - {"agent 1-000"}
        assert total.whole.tolist() == sum(encode(here[name], 1.0, BITS) for name in total.survivors).tolist()
    with pytest.raises(ProtocolError, match=r"region c.*at least 7 agents, but only 6 sent an input"):
        next(totals)


def test_an_error_in_a_process_is_the_one_that_it_would_be_here(made_in):
    made_in(2)
    long = dict.fromkeys(vectors(5, 0), np.full(3, 9.0))
    wanted = [
        Summands(given, MaskedSum(tuple(given), 0, "a", "update", 1.0, 3, Masks(), None))
        for given in (vectors(5, 1), long)
    ]
    totals = masked_sums(wanted, 7)
    next(totals)
    with pytest.raises(InputError, match="a vector of length at most the clip 1, but found length 15"):
        next(totals)


def test_sums_without_masks_begin_no_process(made_in, monkeypatch):
    monkeypatch.setattr(processes, "_WORTH_WORKERS", 1e-9)
    begun = made_in(2)
    skipped = [
        Summands(given, MaskedSum(tuple(given), 0, "a", "update", 1.0, 3, Masks("skipped"), None))
        for given in (vectors(200, 0), vectors(200, 1))
    ]
    assert len(list(masked_sums(skipped, 7))) == 2
    assert not begun
    assert loads([0, 0])[0] == [0.0, 0.0]


def test_the_time_of_a_sum_is_estimated_from_its_pairs():
    for agents in (5, 128, 300, 3000):
        cycles, _ = sparse(agents)
        near = partners(agents, cycles, bytes(32)) if cycles else [range(agents - 1)] * agents
        (seconds,), _ = loads([agents])
        assert seconds == pytest.approx((75e-6 if cycles else 110e-6) * sum(map(len, near)) / 2, rel=0.01)
    assert math.isclose(sum(loads([300, 3000])[0]), loads([300])[0][0] + loads([3000])[0][0])
    assert loads([300, 3000])[1] == loads([3000])[1] > loads([300])[1]
