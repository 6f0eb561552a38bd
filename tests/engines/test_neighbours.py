"""Servers that exchange with neighbours alone, over links that forget: musters, kills at either end, older copies."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier

import numpy as np
import pytest
from wires import RING, Wires

from silograph.core.errors import InputError, SilenceError
from silograph.engines.neighbours import node_of
from silograph.engines.notes import NOTES, Notes
from silograph.engines.remote import Answers
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


ROUNDS = 3
NOBODY = {name: {} for name in RING.servers}  # is waited for


def to_the_last_word(wires, folder, name, all_have):
    """All rounds: it has its neighbours' rows, they have its own. Nobody leaves before `all_have` them."""
    with wires.at(name, patience=60.0) as there:
        for number in range(ROUNDS):
            there.begin(number, Notes(folder / name), lambda: None)
            there.exchange(number, {"sent": row(name, number)[None]}, lambda: None)
        all_have.wait(60.0)


def farewell(wires, folder, name, patience=30.0):
    """Of a process that has just begun: what is noted in the folder is all it knows."""

    def sent():
        return {"sent": row(name, ROUNDS - 1)[None]}

    with wires.at(name, patience) as there:
        there.begin(ROUNDS, Notes(folder / name), sent)
        return there.farewell(ROUNDS, sent)


@pytest.fixture
def at_the_end(tmp_path, monkeypatch):
    """A ring after its last round, before any goodbye."""
    monkeypatch.setattr("silograph.engines.neighbours._PARTING", 0.2)
    wires = Wires()
    for name in RING.servers:
        (tmp_path / name).mkdir()
    all_have = Barrier(len(RING.servers))
    each(lambda name: to_the_last_word(wires, tmp_path, name, all_have))
    return wires, tmp_path


@pytest.mark.parametrize("victim", RING.servers)
def test_who_is_killed_after_the_last_goodbye_waits_for_nobody(at_the_end, victim):
    """All the others have ended well and are gone when it comes back."""
    wires, folder = at_the_end
    assert each(lambda name: farewell(wires, folder, name)) == NOBODY
    begun = time.monotonic()
    assert farewell(wires, folder, victim, patience=60.0) == {}
    assert time.monotonic() - begun < 10.0


def test_who_did_not_hear_a_goodbye_ends_after_its_patience(at_the_end):
    """SECOND answers, FIRST is killed before the answer is there, and SECOND does not come back: it has ended."""
    wires, folder = at_the_end

    def one(name):
        if name != FIRST:
            return farewell(wires, folder, name)
        with wires.at(name) as there:
            there.begin(ROUNDS, Notes(folder / name), lambda: {"sent": row(name, ROUNDS - 1)[None]})
            there._give(there._turn, {})
            for to in there._guests:
                wires.carry(name, node_of(to), there._question(to, there._turn), Answers({}, {}), time.monotonic() + 5)
        return {}

    assert each(one) == NOBODY
    assert farewell(wires, folder, FIRST, patience=0.5).keys() == {SECOND, FOURTH}


@pytest.mark.parametrize("late", RING.servers)
def test_who_comes_after_the_others_ended_gets_their_last_rows_from_what_they_kept(at_the_end, late):
    """It was killed before the last exchange was on its disk; the others are over, and say farewell again."""
    wires, folder = at_the_end
    near = [name for name in RING.at(late).heard if name != late]
    kept = each(lambda name: {} if name == late else farewell(wires, folder, name, 0.5))
    assert {name for name, left in kept.items() if left} == set(near)

    def one(name):
        if name not in near:
            return {}
        with wires.at(name) as there:
            return there.farewell_again(ROUNDS, kept[name])

    def again(name):
        if name != late:
            return one(name)
        with wires.at(late) as there:
            there.begin(ROUNDS - 1, Notes(folder / late), lambda: {"sent": row(late, ROUNDS - 2)[None]})
            found = there.exchange(ROUNDS - 1, {"sent": row(late, ROUNDS - 1)[None]}, lambda: None)
            np.testing.assert_array_equal(found["sent"], [row(other, ROUNDS - 1) for other in RING.at(late).heard])
            there.begin(ROUNDS, Notes(folder / late), lambda: None)
            return there.farewell(ROUNDS, lambda: None)

    assert each(again) == NOBODY


def test_a_goodbye_that_cannot_be_noted_is_not_answered_and_asked_for_again(at_the_end, monkeypatch):
    wires, folder = at_the_end
    times, once = [], Notes.once

    def full(notes, name, make):
        if name == f"goodbye {FIRST}" and notes._folder.name == SECOND and len(times) < 3:
            times.append(name)
            with open(notes._folder / NOTES[ROUNDS % 2], "ab") as file:
                file.write(b"cut off")
            raise OSError(28, "No space left on device")
        return once(notes, name, make)

    monkeypatch.setattr(Notes, "once", full)
    assert each(lambda name: farewell(wires, folder, name)) == NOBODY
    assert len(times) == 3
    assert farewell(wires, folder, SECOND, patience=0.5) == {}
