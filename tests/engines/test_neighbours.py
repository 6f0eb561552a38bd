"""Servers that exchange with neighbours alone, over links that forget: musters, kills at either end, older copies."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
from wires import RING, Wires

from silograph.core.errors import InputError, SilenceError
from silograph.engines.neighbours import node_of
from silograph.methods.base import EACH

FIRST, SECOND, THIRD, FOURTH = RING.servers


def each(work, names=RING.servers):
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(work, names), strict=True))


def row(name, round):
    return np.full(3, 10.0 * RING.servers.index(name) + round)


def test_everybody_gets_what_is_for_it_and_nothing_else():
    wires = Wires()

    def one(name):
        with wires.at(name) as there:
            there.muster()
            place = RING.servers.index(name)
            to_each = np.arange(12.0).reshape(1, 4, 3) + 100.0 * place
            found = there.exchange(0, {"sent": row(name, 0)[None], EACH: to_each}, lambda: None)
            there.farewell(1, lambda: None)
            return found

    for name, found in each(one).items():
        heard, me = RING.at(name).heard, RING.servers.index(name)
        np.testing.assert_array_equal(found["sent"], [row(other, 0) for other in heard])
        expected = [np.arange(12.0).reshape(4, 3)[me] + 100.0 * RING.servers.index(other) for other in heard]
        np.testing.assert_array_equal(found[EACH], [expected])
    not_linked = {(FIRST, node_of(THIRD)), (SECOND, node_of(FOURTH))}
    assert not not_linked & {(sender, to) for sender, to, _ in wires.carried}
    for sender, to, question in wires.carried:  # of what is for each, one part goes to one
        parts = [np.arange(3.0) + 3 * k + 100.0 * RING.servers.index(sender) for k in range(4)]
        there = [k for k, part in enumerate(parts) if part.tobytes() in question]
        assert set(there) <= {next(k for k, name in enumerate(RING.servers) if node_of(name) == to)}


def test_nobody_begins_before_the_farthest_is_there_and_who_is_missing_is_named():
    wires = Wires()

    def one(name):
        with wires.at(name, patience=0.5) as there, pytest.raises(SilenceError) as silence:
            there.muster()
        return str(silence.value)

    said = each(one, (FIRST, SECOND, FOURTH))
    assert f"missing: {THIRD}" in said[SECOND] + said[FOURTH]
    assert all("all regions to be there within 0.5 s" in text for text in said.values())


@pytest.mark.parametrize("victim", [FIRST, THIRD], ids=["keeps its links", "comes to others"])
@pytest.mark.parametrize("forgets", [False, True], ids=["held", "not held"])
def test_a_kill_between_two_rounds_loses_nothing(victim, forgets):
    """The others are one round further, or wait for it: the victim comes back with what its folder has."""
    wires = Wires()

    def rounds(there, name, begin, end, before=lambda: None):
        got = []
        for number in range(begin, end):
            found = there.exchange(
                number, {"sent": row(name, number)[None]}, before if number == begin else lambda: None
            )
            got.append(found["sent"])
        return got

    def one(name):
        if name != victim:
            with wires.at(name) as there:
                there.muster()
                got = rounds(there, name, 0, 6)
                there.farewell(6, lambda: None)
                return got
        with ExitStack() as life:
            there = life.enter_context(wires.at(name))
            there.muster()
            got = rounds(there, name, 0, 3)
        if forgets:  # round 2 was exchanged, and the state after it not yet on disk
            got.pop()
        first = len(got)
        time.sleep(0.1)
        with wires.at(name) as there:
            got += rounds(there, name, first, 6, lambda: {"sent": row(name, first - 1)[None]})
            there.farewell(6, lambda: None)
        return got

    for name, got in each(one).items():
        expected = [[row(other, number) for other in RING.at(name).heard] for number in range(6)]
        np.testing.assert_array_equal(got, expected)


def test_another_deployment_a_forged_question_and_an_older_copy_are_refused():
    wires = Wires()
    with wires.at(SECOND, patience=0.5) as there, wires.at(FIRST, 0.5, "another") as other:
        while not wires.answers:
            time.sleep(0.01)
        with pytest.raises(InputError, match=f"region {SECOND}.*refused"):
            other.exchange(0, {"sent": row(FIRST, 0)[None]}, lambda: None)
        with pytest.raises(InputError, match="a question that it signed"):
            there._answer(FIRST, other._question(SECOND, 0).replace(b"another", b"dnother"))
    wires = Wires()
    with wires.at(SECOND, patience=0.2) as there, wires.at(FIRST, patience=0.2) as old:
        for number in (4, 5):
            with pytest.raises(SilenceError):
                there.exchange(number, {"sent": row(SECOND, number)[None]}, lambda: None)
        with pytest.raises(InputError, match=f"region {SECOND}.*refused"):
            old.exchange(2, {"sent": row(FIRST, 2)[None]}, lambda: None)


def test_what_is_no_number_or_of_another_shape_stops_the_round_and_names_its_region():
    for strange in (np.full((1, 3), np.nan), np.zeros((1, 4))):
        wires = Wires()
        with ExitStack() as all_there:
            there = {name: all_there.enter_context(wires.at(name, patience=2.0)) for name in RING.servers}

            def one(name, there=there, strange=strange):
                try:
                    there[name].exchange(0, {"sent": strange if name == SECOND else row(name, 0)[None]}, lambda: None)
                except InputError as error:
                    return str(error)
                return ""

            assert f"region {SECOND}" in each(one)[FIRST]
