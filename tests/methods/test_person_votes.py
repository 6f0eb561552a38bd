"""Persons vote: the bound of the sum, what is charged, and how true the graph is beside a sum of moments."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from silograph.core.errors import InputError
from silograph.data.silos import People
from silograph.methods.person_votes import SummedVotes, distance_bins
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.masking import Masks, counted_on
from silograph.privacy.mechanisms import SharedGaussian
from silograph.run.loop import simulate
from silograph.tasks.person_votes import PersonVotes

NODES, EDGES, ROWS = 12, 11, 60
A, B = np.triu_indices(NODES, 1)
CHAIN = B == A + 1  # everybody's graph


def _rows(rng: np.random.Generator) -> np.ndarray:
    matrix = np.eye(NODES) * 2.2 - np.eye(NODES, k=1) - np.eye(NODES, k=-1)
    return rng.standard_normal((ROWS, NODES)) @ np.linalg.cholesky(np.linalg.inv(matrix)).T


def _people(seed: int, persons: int) -> People:
    rng = np.random.default_rng(seed)
    order = rng.permutation(persons * ROWS)  # a person's rows need not stand together
    rows = np.concatenate([_rows(rng) for _ in range(persons)])
    return People(rows[order], np.repeat(np.arange(persons), ROWS)[order])


def _run(
    epsilon: float, persons: int = 60, seed: int = 0, **options: float | None
) -> tuple[np.ndarray, np.ndarray, dict]:
    task, noise = PersonVotes(NODES, EDGES, "person"), SharedGaussian(gaussian_multiplier(epsilon, 1e-5, 1))
    people = {f"site {k}": _people(10 * seed + k, persons) for k in range(5)}
    method = SummedVotes(task, noise, (persons,) * 5, **options)
    outcome, door = simulate(method, task, people, noise, seed=seed, masks=Masks())
    return outcome.arrays["consensus"], outcome.arrays["probability"], {**outcome.facts, "rows": door.ledger.rows}


def test_no_person_moves_the_votes_further_than_the_bound() -> None:
    """Random persons, persons with nothing to say, and a pair that shares no edge, which reaches it."""
    task, rng = PersonVotes(NODES, 6, "person"), np.random.default_rng(0)
    others, longest = rng.standard_normal((ROWS, NODES)), 0.0
    bound = math.sqrt(12.0)
    half = np.zeros((ROWS, NODES))
    signal = rng.standard_normal(ROWS)
    half[:, :4] = signal[:, None] + 0.1 * rng.standard_normal((ROWS, 4))  # 6 edges among the first four
    other = np.roll(half, 6, axis=1)
    wild = [np.full((ROWS, NODES), np.inf), np.zeros((ROWS, NODES)), 1e300 * rng.standard_normal((ROWS, NODES))]
    people = [
        half,
        other,
        *wild,
        *(rng.standard_normal((ROWS, NODES)) @ rng.standard_normal((NODES, NODES)) for _ in range(40)),
    ]

    def votes(person: np.ndarray) -> np.ndarray:
        return task.prepare(People(np.concatenate([others, person]), np.repeat([0, 1], ROWS)))["votes"]

    every = [votes(person) for person in people]
    for first in every:
        for second in every:
            longest = max(longest, float(np.linalg.norm(first - second)))
    assert longest == pytest.approx(bound)
    assert task.summand_bound.l2 == pytest.approx(bound)


def test_the_ledger_says_the_square_root_of_2k_and_why() -> None:
    _, _, known = _run(2.0)
    assert {row.silo for row in known["rows"]} == {f"site {k}" for k in range(5)}
    for row in known["rows"]:
        assert row.l2 == pytest.approx(math.sqrt(2 * EDGES), rel=1e-5)
        assert row.l2 >= math.sqrt(2 * EDGES)
        assert "sqrt(2k)" in row.why
        # The noise of those who are counted on is what epsilon asks for.
        assert row.noise == pytest.approx(row.l2 * gaussian_multiplier(2.0, 1e-5, 1), rel=1e-4)


def test_the_noise_of_a_share_is_known() -> None:
    """The sum's noise against the formula of the mechanism: all five sites add, three fewer are counted on."""
    _, _, known = _run(1.0)
    counted = math.sqrt(5 / counted_on(5))
    expected = counted * math.sqrt(2 * EDGES) * gaussian_multiplier(1.0, 1e-5, 1) / 300
    assert known["parameters"]["noise"] == pytest.approx(expected, rel=1e-3)


def test_the_graph_that_everybody_has_is_found() -> None:
    drawn, probability, _ = _run(4.0)
    assert (drawn > 0.0).sum() == EDGES
    assert ((drawn > 0.0) & CHAIN).sum() >= EDGES - 1
    assert (drawn[CHAIN & (drawn > 0.0)] <= 1.0).all()
    assert probability[CHAIN].mean() > 0.9


def test_a_confidence_draws_only_the_edges_above_it() -> None:
    drawn, probability, _ = _run(1.0, persons=30, confidence=0.9)
    assert ((drawn > 0.0) == (probability > 0.9)).all()


def test_too_much_noise_is_refused_before_anything_is_spent_and_sure_edges_are_offered() -> None:
    few = SummedVotes(PersonVotes(NODES, EDGES, "person"), SharedGaussian(gaussian_multiplier(0.2, 1e-5, 1)), (20,) * 5)
    with pytest.raises(InputError, match=r"Nothing was spent\. Draw only the edges that are sure"):
        few.check()
    replace(few, confidence=0.9).check()
    replace(few, counts=(2000,) * 5).check()
    drawn, probability, _ = _run(0.2, persons=20, confidence=0.9)
    assert ((drawn > 0.0) == (probability > 0.9)).all()


def test_votes_do_not_depend_on_the_order_of_rows_of_different_persons() -> None:
    task = PersonVotes(NODES, EDGES, "person")
    people = _people(3, 20)
    order = np.argsort(people.person, kind="stable")
    apart = People(people.rows[order], people.person[order])
    assert (task.prepare(people)["votes"] == task.prepare(apart)["votes"]).all()


def test_mirrored_nodes_are_near() -> None:
    places = np.array([[-40.0, 0.0, 0.0], [40.0, 1.0, 0.0], [-40.0, 5.0, 0.0], [10.0, 90.0, 50.0]])
    bins = dict(zip(zip(*np.triu_indices(4, 1), strict=True), distance_bins(places), strict=True))
    assert bins[0, 1] < bins[0, 2] < bins[0, 3]
