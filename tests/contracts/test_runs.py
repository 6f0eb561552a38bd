"""What holds for every run, whatever it learns: engines, order, resuming, absence, kills, and no way past the gate.

Cases come from the registry: whoever is in it is held to all of this.
"""

import json
import os
import signal
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import count, islice, pairwise

import numpy as np
import pytest

from cases import ROOT, Altered, Case, Twin, door_of, every, private, run, same, titled
from silograph.core.errors import BudgetError, DamageError, LeakError, SilenceError
from silograph.methods.base import begin, take
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.released import Released
from silograph.report.build import build
from silograph.run import run as running
from silograph.run.jobs import run_in_memory
from silograph.run.loop import ENGINES, SECRET, rounds
from silograph.run.plan import load
from silograph.run.run import execute
from silograph.run.store import RunFolder

AWAY = (0, 1)  # rounds in which somebody is absent


@every
def test_engines_agree_noise_and_ledger_included(case):
    same(case.straight, run(case.job, "silowise"), case.rounding)


@every
def test_the_order_in_which_tables_are_named_does_not_matter(case):
    files = case.content["data"]["files"]
    for order in (files[::-1], files[1:] + files[:1]):
        same(case.straight, run(case.opened(data={**case.content["data"], "files": order})))


@every
def test_a_rehearsal_repeats(case):
    same(case.straight, run(case.opened()))


@private
def test_another_seed_gives_other_noise_and_the_same_bill(case):
    other = run(case.job, door=door_of(case.job, ROOT + 1))
    assert any(not np.array_equal(value, other.outcome.arrays[name]) for name, value in learned(case.straight))
    # A sensitivity may follow what was released before; what it costs does not.
    one, two = spent(case.straight), spent(other)
    assert [(row.silo, row.round, row.release_point) for row in one] == [
        (row.silo, row.round, row.release_point) for row in two
    ]
    assert [row.noise / row.l2 for row in one] == pytest.approx([row.noise / row.l2 for row in two])


@private
def test_without_a_seed_noise_is_secret_and_runs_differ(case):
    (one, door), (other, _) = (run_in_memory(case.job, None) for _ in range(2))
    assert any(not np.array_equal(value, other.arrays[name]) for name, value in one.arrays.items())
    assert {row.randomness for row in door.ledger.rows if row.mechanism != "reveal"} == {SECRET}


def learned(ran):
    return ran.outcome.arrays.items()


def spent(ran):
    return [row for row in ran.rows if row.mechanism != "reveal"]


# ---- resuming ----


def resumed(case, cut, rows, folder):
    """The run that goes on from the disk after a round, with these rows in its ledger."""
    kept = RunFolder(folder, "plan", [], ROOT)
    kept.save(case.straight.states[cut], [])
    state, _ = kept.load()
    kept.discard()
    door = door_of(case.job)
    door.ledger.append(rows)
    return run(case.job, door=door, state=state)


@every
def test_resuming_from_disk_after_any_round_equals_the_straight_run(case, tmp_path):
    """With the rows of its rounds; and with those of the next one, which was cut off after they were written."""
    last = len(case.straight.states) - 1
    for cut in sorted({0, last // 2, max(last - 1, 0)}):
        for more in (0, 1):
            known = [row for row in case.straight.rows if row.round <= cut + more]
            same(case.straight, resumed(case, cut, known, tmp_path / f"{cut} {more}"))


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def play(case, goal):
    return execute(case.plan(), case.base, goal, lambda *_: None, build).folder


@every
def test_a_run_leaves_the_same_files_in_both_engines_and_from_its_own_plan(case, tmp_path):
    one = play(case, tmp_path / "one")
    again = execute(load(one / "plan.toml"), one, tmp_path / "again", lambda *_: None, build).folder
    assert contents(again) == contents(one)
    if not case.rounding:
        other = contents(play(replace(case, content={**case.content, "engine": "silowise"}), tmp_path / "other"))
        said = {"plan.toml", "result.json", "report.html"}  # they say which engine it was
        assert {name: value for name, value in other.items() if name not in said} == {
            name: value for name, value in contents(one).items() if name not in said
        }


@private
def test_no_secret_stays_in_a_finished_folder(case, tmp_path):
    secret = replace(case, content={key: value for key, value in case.content.items() if key != "seed"})
    one, two = (play(secret, tmp_path / name) for name in ("one", "two"))
    assert not contents(one).keys() & {"root", "state.npz", "identity.json", "lock"}
    assert json.loads((one / "result.json").read_text())["seed"] is None
    rows = [[row for row in Ledger(folder / "ledger.jsonl").rows if row.mechanism != "reveal"] for folder in (one, two)]
    assert {row.digest for row in rows[0]}.isdisjoint(row.digest for row in rows[1])
    assert all("secret" in row.randomness for row in rows[0])


def killed_at(moment, case, goal):
    """Play a case in a process of its own that dies at its so many-th write to disk. Whether it did."""
    child = os.fork()
    if not child:
        left = [moment]

        def fsync(handle):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            os.fsync = fsync
            play(case, goal)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@every
def test_killed_again_and_again_a_run_ends_with_the_same_bytes(case, tmp_path, monkeypatch):
    """At its first write, at the fourth one of the next try, and so on: no bit differs, and nothing is paid twice."""
    monkeypatch.setattr(running, "_SAVE_EVERY", 0.0)
    monkeypatch.setattr(running, "_SAVE_SHARE", 0.0)
    straight = contents(play(case, tmp_path / "straight"))
    kills = 0
    while killed_at(3 * kills + 1, case, tmp_path / "out"):
        kills += 1
        assert not (tmp_path / "out" / "result.json").exists() or contents(tmp_path / "out") == straight
    assert kills >= 3
    assert contents(tmp_path / "out") == straight
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


# ---- who is not there ----


def is_whole(case, ran):
    """Whether everything is known that is known where nobody is absent."""
    known = case.straight.outcome.arrays
    return all(np.isfinite(value[np.isfinite(known[name])]).all() for name, value in learned(ran))


@every
def test_who_is_absent_keeps_its_state_and_pays_nothing(case):
    silos = list(case.job.topo.silos)
    *others, away = silos
    ran = run(case.job, present=lambda t: others if t in AWAY else silos)
    assert is_whole(case, ran)
    assert not [row for row in ran.rows if row.silo == away and row.round in AWAY]
    place = case.job.topo.index([away])
    for before, after in pairwise([begin(case.job.method, case.job.topo), *ran.states]):
        if before.round in AWAY:
            now = take(after.carry, place)
            for name, value in take(before.carry, place).items():
                old, new = (v.value if isinstance(v, Released) else v for v in (value, now[name]))
                np.testing.assert_array_equal(old, new)


@every
def test_who_never_comes_holds_nobody_up_and_pays_nothing(case):
    """Or the run ends with an error, where too few are left to hide each other."""
    *others, away = case.job.topo.silos
    door = door_of(case.job)
    place = ENGINES["vector"](case.job.data(), case.job.topo, door)
    steps = rounds(case.job.method, case.job.topo, place, door, present=lambda t: others)
    hidden_by_others = case.job.masks is not None or hasattr(case.job.mechanism, "rests_on")
    with suppress(SilenceError) if hidden_by_others else nullcontext():
        *_, last = islice(steps, 60)
        assert all(np.isfinite(value.value).all() for value in last.down.values())
    assert away not in {row.silo for row in door.ledger.rows if row.mechanism != "reveal"}


#: Its noise shrinks with the number of the round, and an empty round is counted: the last one costs more than is left.
LATE = "clusters, records, linearised, schedule"


@every
def test_a_round_without_anybody_is_no_error_and_ten_are(case):
    silos = case.job.topo.silos
    with pytest.raises(BudgetError) if case.title == LATE else nullcontext():
        assert is_whole(case, run(case.job, present=lambda t: silos if t else []))
    with pytest.raises(SilenceError, match="none did for 10 rounds"):
        run(case.job, present=lambda t: [])


# ---- nothing gets past the gate ----


class LeakyLocal(Twin):
    def __init__(self, honest, leak):
        super().__init__(honest)
        self.leak = leak

    def local(self, carry, down, data, gate):
        carry, message = self.honest.local(carry, down, data, gate)
        return carry, {**message, "extra": self.leak(next(iter(data.values())), {**down, **message})}


def mapped(private, message):
    """A released value through a function that has private numbers."""
    value = next((value for value in message.values() if isinstance(value, Released)), None)
    if value is None:  # nothing was released that could be mapped
        return np.array(private)
    return value.map(lambda x: x * 0.0 + private.ravel()[0] + private.sum())


LEAKS = {
    "array": lambda private, message: np.array(private),
    "number": lambda private, message: float(len(private)),
    "text": lambda private, message: "a site failed at row 7",
    "mapped": mapped,
}


@every
def test_a_leaky_silo_is_refused_by_name(case):
    for leak in LEAKS.values():
        for engine in ("vector", "silowise"):
            with pytest.raises(LeakError, match=r"LeakyLocal\.local, message field 'extra'|lambda"):
                run(replace(case, twin=lambda honest, leak=leak: LeakyLocal(honest, leak)).job, engine)


class LeakyServer(Twin):
    def gather(self, servers, up, topo, gate):
        servers, message = self.honest.gather(servers, up, topo, gate)
        return servers, {**message, "extra": np.zeros((len(topo.servers), 1))}


class LeakyEnd(Twin):
    def deliver(self, carry, data, gate):
        return {**self.honest.deliver(carry, data, gate), "extra": np.zeros((len(next(iter(data.values()))), 1))}


@every
@pytest.mark.parametrize(("twin", "place"), [(LeakyServer, "gather"), (LeakyEnd, "deliver")])
def test_a_leaky_server_and_a_leaky_end_are_refused_by_name(twin, place, case):
    with pytest.raises(LeakError, match=rf"{twin.__name__}\.{place}, message field 'extra'"):
        run(replace(case, twin=twin).job)


class Careless(Twin):
    def local(self, carry, down, data, gate):
        fresh, sent = self.honest.local(carry, down, data, gate)
        return {name: np.array(getattr(value, "value", value)) for name, value in fresh.items()}, sent


@every
def test_private_rows_among_released_ones_are_refused(case):
    """What a silo remembers as released may go down to others later."""
    released = [name for name, value in case.straight.states[0].carry.items() if isinstance(value, Released)]
    if released:
        with pytest.raises(LeakError, match="carry field"):
            run(replace(case, twin=Careless).job)


# ---- teeth: each law is broken by a twin, and says so ----


class Crowded(Twin):
    """What a silo sends depends on how many are in the same call."""

    def local(self, carry, down, data, gate):
        carry, message = self.honest.local(carry, down, data, gate)
        many = len(next(iter(data.values())))
        return carry, {name: value.map(lambda x, n: x + 1e-9 * n, many) for name, value in message.items()}


class Forgetful(Twin):
    """A method that remembers a round in itself, where no disk sees it."""

    rounds_seen = 0

    def settle(self, servers, across, topo):
        self.rounds_seen += 1
        servers, down = self.honest.settle(servers, across, topo)
        return servers, {name: value + 1e-6 * self.rounds_seen for name, value in down.items()}


@dataclass(frozen=True, eq=False)
class FirstCome(Case):
    """A family that starts from the table that was named first."""

    def opened(self, base=None, **changes):
        first = changes.get("data", self.content["data"])["files"][0]
        return Altered(super().opened(base, **changes), Favouring(super().opened().method, sum(first.encode())))


class Favouring(Twin):
    def __init__(self, honest, number):
        super().__init__(honest)
        self.number = number

    def outcome(self, servers, delivered, topo):
        found = self.honest.outcome(servers, delivered, topo)
        return replace(found, arrays={name: value + 1e-9 * self.number for name, value in found.arrays.items()})


OPEN, BUDGETED = "clusters, linearised", "graphs, one release"


def broken(title, twin):
    return replace(titled(title), twin=twin)


def test_a_method_that_counts_who_is_in_its_call_is_caught():
    with pytest.raises(AssertionError):
        test_engines_agree_noise_and_ledger_included(broken("graphs, paper, S0", Crowded))


def test_a_family_for_which_the_order_of_tables_matters_is_caught():
    case = titled(OPEN)
    with pytest.raises(AssertionError):
        test_the_order_in_which_tables_are_named_does_not_matter(FirstCome(case.family, case.title, case.content))


def test_a_method_whose_resume_differs_is_caught(tmp_path):
    with pytest.raises((AssertionError, DamageError)):
        test_resuming_from_disk_after_any_round_equals_the_straight_run(broken(OPEN, Forgetful), tmp_path)


def test_noise_that_is_drawn_anew_at_every_start_is_caught(tmp_path, monkeypatch):
    """A run that was killed would pay twice; the ledger, which knows what was sent, refuses."""
    monkeypatch.setattr(Door, "gate", unseeded(Door.gate))
    case = broken(BUDGETED, Twin)
    with pytest.raises((AssertionError, DamageError)):
        test_a_rehearsal_repeats(case)


def unseeded(gate):
    starts = count()

    def made(door, *rest):
        door.root = next(starts)
        return gate(door, *rest)

    return made


def test_noise_that_follows_the_plan_alone_is_caught(monkeypatch):
    monkeypatch.setattr("silograph.run.jobs.secret_root", lambda: 7)
    with pytest.raises(AssertionError):
        test_without_a_seed_noise_is_secret_and_runs_differ(broken(BUDGETED, Twin))


def test_an_open_door_is_caught(monkeypatch):
    """A check that lets everything through: leaky twins are not refused any more."""
    monkeypatch.setattr("silograph.engines.base.check_message", lambda message, rows, sender: message)
    with pytest.raises((AssertionError, pytest.fail.Exception, AttributeError, TypeError)):
        test_a_leaky_silo_is_refused_by_name(titled(BUDGETED))
