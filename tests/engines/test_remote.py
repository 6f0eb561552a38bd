"""The engine for silos in other organisations: the bits and the ledger of a run in one process, whatever happens."""

import contextlib
import errno
import os
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import federations
from local_organisations import DEPLOYMENT, Direct, Federation, stacked
from silograph.core.errors import BudgetError, DamageError, InputError, SilenceError, SilographError
from silograph.engines import remote as remote_module
from silograph.engines import saved
from silograph.engines import silo as silo_module
from silograph.engines.question import NEVER, Question, pack_reply, read_question, read_reply
from silograph.engines.remote import Remote
from silograph.engines.sums import one_question, read_step
from silograph.engines.wire import pack, unpack
from silograph.methods.base import begin
from silograph.methods.baselines import IGL
from silograph.privacy.accounting import Planned, cost, sampled_multiplier
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.privacy.relay import relay
from silograph.privacy.released import Sealed, sealed_rows
from silograph.privacy.secure_sum import ProtocolError
from silograph.privacy.sums import SummedError
from silograph.run.loop import ENGINES, rounds
from silograph.run.store import RunFolder
from silograph.topology import star
from support import NODES, cases, federation, run, same


def graphs(case, folder, **options):
    signals = federation()
    topo = star(list(signals))
    data = stacked([case.task.prepare(signals[name]) for name in topo.silos])
    return Federation(case.method, topo, data, folder, case.mechanism, case.budget, **options)


def models(kind, case, folder, **options):
    topo = kind.topology()
    data = kind.records(topo=topo) if kind is federations else kind.data_of(case)
    ready = stacked([case.method.task.prepare(data[name]) for name in topo.silos])
    return Federation(case.method, topo, ready, folder, case.mechanism, case.budget, case.masks, **options)


# ---- a silo that was killed ------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for kill -9: nothing after this moment happens."""


def killing(federation, organisation, moment, monkeypatch):
    """A link under which `organisation` dies once, at the given write to disk, and comes back from its folder when
    asked."""
    count = iter(range(10**6))
    real_state, real_append = silo_module.write_atomically, Ledger.append

    def dies():
        if next(count) == moment:
            raise Killed

    def save(path, content, mode=0o644):
        if organisation in str(path):
            dies()
        real_state(path, content, mode)
        if organisation in str(path):
            dies()

    def append(ledger, rows):
        rows = list(rows)
        if rows and ledger.path is not None and organisation in str(ledger.path):
            dies()
        real_append(ledger, rows)
        if rows and ledger.path is not None and organisation in str(ledger.path):
            dies()

    for module in (silo_module, saved):
        monkeypatch.setattr(module, "write_atomically", save)
    monkeypatch.setattr(Ledger, "append", append)

    class Mortal(Direct):
        deaths = 0

        def ask(self, questions, deadline, enough=None):
            try:
                return super().ask(questions, deadline, enough)
            except Killed:
                self.deaths += 1
                self.silos[organisation].close()
                self.silos[organisation] = federation.silo(organisation)
                return super().ask(questions, deadline, enough)

    return Mortal({name: federation.silo(name) for name in federation.organisations})


@pytest.mark.parametrize("moment", range(0, 24, 3))
@pytest.mark.parametrize("name", ["exact", "one release", "per round, Corollary 1"])
def test_a_silo_killed_at_any_write_answers_the_same_and_pays_once(name, moment, tmp_path, monkeypatch):
    case = next(case for case in cases() if case.name == name)
    _, expected, door = run(case, federation())
    there = graphs(case, tmp_path)
    link = killing(there, "organisation bob", moment, monkeypatch)
    _, outcome, ours = there.run(link)
    same(outcome.arrays, expected.arrays)
    assert ours.ledger.rows == door.ledger.rows
    own = Ledger(tmp_path / "organisation bob" / "ledger.jsonl").rows
    assert own == [row for row in door.ledger.rows if row.silo == "bob"]
    assert link.deaths == (moment < 2 * 2 * (len({row.round for row in own})))


@pytest.mark.parametrize("name", ["exact", "one release", "per round, Theorem 2"])
def test_a_server_that_begins_again_from_any_round_gets_the_same(name, tmp_path):
    case = next(case for case in cases() if case.name == name)
    _, expected, door = run(case, federation())
    there = graphs(case, tmp_path)
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    state, saved, turn = None, RunFolder(tmp_path / "run", "plan", [], 5), 0
    while True:  # a server that dies in every round: once before it saves the state, once after
        ours = there.door()
        place = there.engine(link, ours)
        known = saved.load()
        state = begin(case.method, there.topo) if known is None else known[0]
        if case.method.done(state.servers):
            break
        state = next(iter(rounds(case.method, there.topo, place, ours, state)))
        if (turn := turn + 1) % 2:
            continue
        saved.ledger = ours.ledger
        saved.save(state, [])
    delivered = place.deliver(case.method, state)
    same(case.method.outcome(state.servers, delivered, there.topo).arrays, expected.arrays)
    assert ours.ledger.rows == door.ledger.rows


# ---- answers that do not come, or not in time ------------------------------------------------------------------------


@pytest.mark.parametrize("case", [case for case in cases() if case.private], ids=lambda case: case.name)
def test_an_answer_that_was_not_used_is_paid_all_the_same(case, tmp_path):
    """Bob's answer to round 1 is lost on the way, for good: what he released is in his ledger, and he goes on."""
    there = graphs(case, tmp_path)
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    real = Direct.ask

    class Losing(Direct):
        def ask(self, questions, deadline, enough=None):
            heard = real(self, questions, deadline, enough)
            lost = [p for p, blob in questions.items() if p == "organisation bob" and read_question(blob).round == 1]
            for organisation in lost:
                heard.replies.pop(organisation, None)
            return heard

    _, outcome, ours = there.run(Losing(link.silos), minimum=2)
    assert np.isfinite(outcome.arrays["graph"]).all()
    own = Ledger(tmp_path / "organisation bob" / "ledger.jsonl")
    assert cost(own.rows, case.budget.delta).epsilon <= case.budget.epsilon * (1 + 1e-9)
    known = {row.place for row in own.rows}
    assert {row.place for row in ours.ledger.rows if row.silo == "bob"} <= known


def test_an_answer_that_came_too_late_is_given_again_where_the_question_is_the_same(tmp_path):
    """Bob's only release is lost twice. Asked again, he sends the same and pays nothing more."""
    case = next(case for case in cases() if case.name == "one release")
    _, expected, door = run(case, federation())
    there = graphs(case, tmp_path)
    real = Direct.ask

    class Losing(Direct):
        def ask(self, questions, deadline, enough=None):
            heard = real(self, questions, deadline, enough)
            for organisation, blob in questions.items():
                if organisation == "organisation bob" and read_question(blob).round < 2:
                    heard.replies.pop(organisation, None)
            return heard

    states, outcome, ours = there.run(
        Losing({organisation: there.silo(organisation) for organisation in there.organisations}), minimum=2
    )
    assert len(states) == 3
    same(outcome.arrays, expected.arrays)
    assert sorted(ours.ledger.rows, key=lambda row: row.silo) == door.ledger.rows
    assert Ledger(tmp_path / "organisation bob" / "ledger.jsonl").rows == list(door.ledger.of("bob"))


def test_too_few_silos_end_the_run_with_their_names(tmp_path):
    there = graphs(cases()[0], tmp_path, minimum=3)
    link = Direct(
        {organisation: there.silo(organisation) for organisation in there.organisations},
        away=lambda organisation, blob: organisation == "organisation bob",
    )
    with pytest.raises(SilenceError, match=r"at least 3 silos .* missing are organisation bob"):
        there.run(link, patience=0.1, deadline=0.05)


def test_where_nobody_answers_the_run_ends_in_time_and_goes_on_later(tmp_path):
    there = graphs(cases()[0], tmp_path)
    link = Direct(
        {organisation: there.silo(organisation) for organisation in there.organisations},
        away=lambda organisation, blob: True,
    )
    with pytest.raises(SilenceError, match="missing are organisation ada, organisation bob, organisation cyd"):
        there.run(link, patience=0.1, deadline=0.05)


@pytest.mark.parametrize("case", cases()[:1], ids=lambda case: case.name)
def test_a_site_that_is_gone_when_graphs_are_handed_over_gets_the_consensus(case, tmp_path):
    """After `patience`, and not before; others keep theirs, bit for bit."""
    _, expected, _ = run(case, federation())
    there = graphs(case, tmp_path, minimum=2)
    silos = {organisation: there.silo(organisation) for organisation in there.organisations}
    link = Direct(silos, lambda who, blob: who == "organisation bob" and read_question(blob).kind == "deliver")
    link.present = lambda: {"organisation ada", "organisation cyd"}
    door = there.door()
    place = there.engine(link, door, patience=0.5, deadline=0.1)
    *_, last = rounds(there.method, there.topo, place, door)
    begun = time.monotonic()
    handed = place.deliver(there.method, last)
    assert time.monotonic() - begun >= 0.5
    assert place.gone == ("organisation bob",)
    outcome = there.method.outcome(last.servers, handed, there.topo)
    assert (outcome.arrays["graph"][[0, 2]] == expected.arrays["graph"][[0, 2]]).all()
    assert (outcome.arrays["graph"][1] == outcome.arrays["consensus"]).all()


def test_without_a_stand_in_the_hand_over_names_who_is_gone(tmp_path):
    there = graphs(replace(cases()[0], method=IGL(NODES, beta=0.05)), tmp_path)
    silos = {organisation: there.silo(organisation) for organisation in there.organisations}
    link = Direct(silos, lambda who, blob: who == "organisation bob" and read_question(blob).kind == "deliver")
    with pytest.raises(SilenceError, match=r"hand over their results .* missing are organisation bob"):
        there.run(link, patience=0.2, deadline=0.1)


def test_a_server_from_an_older_backup_is_told_that_it_is_one(tmp_path):
    there = graphs(cases()[0], tmp_path)
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    door = there.door()
    place = there.engine(link, door)
    states = rounds(there.method, there.topo, place, door)
    older = next(states)
    for _ in range(2):
        next(states)
    with pytest.raises(DamageError, match=r"older copy: organisation ada, organisation bob, organisation cyd"):
        next(rounds(there.method, there.topo, there.engine(link, there.door(), patience=0.2), there.door(), older))
    assert {type(error).__name__ for _, error in link.refusals} == {"OlderServerError"}
    assert all("newest state" in str(error) for _, error in link.refusals)


class Waiting(Direct):
    """A link that waits for whoever is away until `enough`, or the deadline."""

    def ask(self, questions, deadline, enough=None):
        heard, end = super().ask(questions, deadline, enough), time.monotonic() + deadline
        answered = heard.replies.keys() | heard.refusals.keys()
        while answered != questions.keys() and time.monotonic() < end and not (enough and enough(answered)):
            time.sleep(0.005)
        return heard


def test_others_do_not_race_ahead_of_who_is_away_and_do_not_wait_for_ever(tmp_path, monkeypatch):
    """A first round without bob waits for the deadline, later ones for the pace, and after `patience` none."""
    monkeypatch.setattr(remote_module, "_PACE", 0.15)
    there = graphs(cases()[0], tmp_path, minimum=2)
    lines = []
    link = Waiting({organisation: there.silo(organisation) for organisation in there.organisations})
    link.away = lambda who, blob: who == "organisation bob" and read_question(blob).round > 0
    link.present = lambda: {"organisation ada", "organisation cyd"}
    door = there.door()
    place = there.engine(link, door, deadline=0.4, patience=0.6, said=lines.append)
    for _ in zip(range(9), rounds(there.method, there.topo, place, door), strict=False):
        pass
    place.tell()
    took = [line["seconds"] for line in lines]
    assert [line["absent"] for line in lines] == [[]] + [["organisation bob"]] * (len(lines) - 1)
    assert took[1] >= 0.4
    assert all(0.15 <= seconds < 0.4 for seconds in took[2:4])
    assert took[-1] < 0.15


def test_an_answer_of_another_shape_counts_as_none(tmp_path):
    there = graphs(cases()[0], tmp_path)
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})

    def forged(organisation, asked, said):
        if organisation != "organisation bob":
            return said
        reply = read_reply(said, "")
        return pack_reply(
            replace(reply, sent={name: relay(value.value[:, :1]) for name, value in reply.sent.items()}), False
        )

    link.between = forged
    with pytest.raises(SilenceError, match="missing are organisation bob"):
        there.run(link, minimum=3, patience=0.1, deadline=0.05)


@pytest.mark.parametrize(
    "change",
    [
        {"noise": 0.0},
        {"noise": -1.0},
        {"noise": "1"},
        {"l2": 10**400},
        {"mechanism": "magic"},
        {"site": ["a"]},
        {"round": "0"},
        {"sampling": 0.0},
        {"observer": "nobody"},
        {"silo": "ada"},
        {"why": None},
    ],
    ids=str,
)
def test_an_organisation_that_tells_of_impossible_rows_has_not_answered(change, tmp_path):
    there = graphs(next(case for case in cases() if case.name == "one release"), tmp_path)
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})

    def forged(organisation, asked, said):
        facts, arrays = unpack(said)
        if organisation == "organisation bob":
            facts["rows"] = [{**row, **change} for row in facts["rows"]]
        return pack(facts, arrays)

    link.between = forged
    with pytest.raises(SilenceError, match=r"missing are organisation bob \(refused: InputError\)"):
        there.run(link, minimum=3, patience=0.1, deadline=0.05)
    assert not (tmp_path / "server.jsonl").exists()


def test_the_same_question_twice_is_one_release(tmp_path):
    case = next(case for case in cases() if case.name == "per round, Corollary 1")
    _, expected, door = run(case, federation())
    there = graphs(case, tmp_path)

    class Twice(Direct):
        def ask(self, questions, deadline, enough=None):
            first = super().ask(questions, deadline, enough)
            again = super().ask(questions, deadline, enough)
            assert first.replies == again.replies
            return again

    _, outcome, _ = there.run(Twice({organisation: there.silo(organisation) for organisation in there.organisations}))
    same(outcome.arrays, expected.arrays)
    assert len(Ledger(tmp_path / "organisation bob" / "ledger.jsonl").rows) == len(door.ledger.of("bob"))


# ---- a server that wants more than was agreed ------------------------------------------------------------------------


def elsewhere(down, by):
    """The question for another consensus: one that the method could have sent."""
    return {**down, "consensus": down["consensus"] + by}


@pytest.fixture
def asked(tmp_path):
    """A silo, and the questions it was asked in an honest run up to its third round."""
    case = next(case for case in cases() if case.name == "per round, Corollary 1")
    there = graphs(case, tmp_path, most_rounds=12, minimum=2)
    questions = []
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    link.between = lambda organisation, blob, said: (questions.append((organisation, blob)), said)[1]
    steps = iter(rounds(case.method, there.topo, there.engine(link, there.door()), there.door()))
    for _ in range(3):
        next(steps)
    bob = [read_question(blob) for organisation, blob in questions if organisation == "organisation bob"]
    return link.silos["organisation bob"], bob, tmp_path / "organisation bob" / "ledger.jsonl"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"deployment": "e" * 64}, "the deployment that was approved here"),
        ({"organisation": "organisation ada"}, "a question for organisation bob"),
        ({"silos": ("ada",)}, "a question for organisation bob"),
        ({"members": ("ada", "cyd")}, "a cohort of the deployment"),
        ({"members": ("bob",)}, "a cohort of at least 2"),
        ({"members": ("bob", "eve", "mallory")}, "a cohort of the deployment"),
        ({"round": 0}, "no round twice"),
        ({"round": 1, "accepted": 0}, "1 as the last round used"),
        ({"accepted": 7}, "1 as the last round used"),
        ({"round": -1}, "a round from 0"),
        ({"down": {}}, "the fields and shapes"),
        ({"kind": "deliver", "round": 3}, "the fields and shapes"),
    ],
)
def test_a_hostile_question_is_refused_and_costs_nothing(asked, change, expected):
    silo, questions, ledger = asked
    before = ledger.read_bytes()
    with pytest.raises(InputError, match=expected):
        silo.answer(replace(questions[-1], **change).pack())
    assert ledger.read_bytes() == before


def test_a_silo_that_is_named_twice_is_refused_before_records_are_touched(asked, monkeypatch):
    silo, questions, ledger = asked
    before, last = ledger.read_bytes(), questions[-1]
    monkeypatch.setattr(silo, "_data", None)
    twice = {name: np.concatenate([value, value]) for name, value in last.down.items()}
    with pytest.raises(InputError, match="every silo once"):
        silo.answer(replace(last, silos=("bob", "bob"), down=twice, round=last.round + 1, accepted=last.round).pack())
    assert ledger.read_bytes() == before


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("wide", [0, 1, 1000])
def test_numbers_that_the_method_does_not_send_are_refused(asked, value, wide):
    """Of another shape they would be read past their end; where they are no numbers the answer would be none."""
    silo, questions, ledger = asked
    before = ledger.read_bytes()
    down = {name: np.array(array) for name, array in questions[-1].down.items()}
    name, array = next((name, array) for name, array in down.items() if array.ndim == 2)
    if wide:
        down[name] = np.concatenate([array, np.zeros((len(array), wide))], 1)
    else:
        array[0, 0] = value
    with pytest.raises(InputError, match=r"fields and shapes|numbers that the method can send down"):
        silo.answer(replace(questions[-1], round=3, accepted=2, down=down).pack())
    assert ledger.read_bytes() == before


def test_a_copy_of_a_folder_that_is_asked_something_else_draws_other_noise(tmp_path):
    """Else the difference of the two answers would be bare. (In a rehearsal noise is the plan's, as in one process.)"""
    case = next(case for case in cases() if case.name == "per round, Corollary 1")
    there = graphs(case, tmp_path)
    begun = begin(case.method, there.topo).down
    names = tuple(there.topo.silos)
    noise = {}
    for secret in (True, False):
        for shift in (0.0, 0.5):
            there.folder = tmp_path / f"{secret} {shift}"
            silo = there.silo("organisation bob", secret=secret)
            down = elsewhere({name: value.rows([1]).value for name, value in begun.items()}, shift)
            question = Question(DEPLOYMENT, "organisation bob", "local", 0, -1, ("bob",), names, down)
            sent = read_reply(silo.answer(question.pack()), "").sent
            noise[secret, shift] = np.concatenate([value.value.ravel() for value in sent.values()])
            silo.close()
    # What the question itself moves is the same in both; the rest is noise, which must differ where it is secret.
    moved = {secret: noise[secret, 0.5] - noise[secret, 0.0] for secret in (True, False)}
    assert np.median(np.abs(moved[True] - moved[False])) > 1e-5


def test_another_question_in_the_same_round_is_refused(asked):
    """Its noise would be that of the first: the difference of the answers would be bare."""
    silo, questions, ledger = asked
    before = ledger.read_bytes()
    other = elsewhere(questions[-1].down, 1.0)
    with pytest.raises(InputError, match="the question that was asked in this round before"):
        silo.answer(replace(questions[-1], down=other).pack())
    assert ledger.read_bytes() == before


def test_more_rounds_than_planned_are_refused_by_count_and_by_budget(asked):
    silo, questions, ledger = asked
    last = questions[-1]
    for number in range(3, 12):
        other = elsewhere(last.down, number)
        silo.answer(replace(last, round=number, accepted=number - 1, down=other).pack())
    with pytest.raises(InputError, match="at most 12 rounds, as planned"):
        silo.answer(replace(last, round=12, accepted=11, down=elsewhere(last.down, 99)).pack())
    silo._most_rounds = 100
    before = ledger.read_bytes()
    with pytest.raises(BudgetError, match="would make it"):
        silo.answer(replace(last, round=12, accepted=11, down=elsewhere(last.down, 99)).pack())
    assert ledger.read_bytes() == before


def test_garbage_is_refused_in_one_way(asked):
    silo, questions, _ = asked
    good = questions[-1].pack()
    rng = np.random.default_rng(1)
    for _ in range(300):
        broken = bytearray(good)
        for place in rng.integers(0, len(broken), 3):
            broken[place] = rng.integers(256)
        with contextlib.suppress(SilographError):
            silo.answer(bytes(broken))
    for blob in (b"", b"\0" * 8, good[:-1], good + b"\0", b"\xff" * 100):
        with pytest.raises(InputError):
            silo.answer(blob)


# ---- what goes wrong at home -----------------------------------------------------------------------------------------


def test_a_full_disk_sends_nothing_and_spoils_nothing(tmp_path, monkeypatch):
    case = next(case for case in cases() if case.name == "per round, Corollary 1")
    _, expected, door = run(case, federation())
    there = graphs(case, tmp_path)
    silos = {organisation: there.silo(organisation) for organisation in there.organisations}
    full = iter([False, False, True, True, False, True] + [False] * 1000)
    real = os.fsync

    def fsync(handle):
        if "organisation bob" in os.readlink(f"/proc/self/fd/{handle}") and next(full):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)

    class Patient(Direct):
        def ask(self, questions, deadline, enough=None):
            heard = SimpleNamespace(replies={}, refusals={})
            for organisation, blob in questions.items():
                while organisation not in heard.replies:
                    with contextlib.suppress(OSError):
                        heard.replies[organisation] = self.silos[organisation].answer(blob)
            return heard

    _, outcome, ours = there.run(Patient(silos))
    same(outcome.arrays, expected.arrays)
    assert ours.ledger.rows == door.ledger.rows
    assert Ledger(tmp_path / "organisation bob" / "ledger.jsonl").rows == list(door.ledger.of("bob"))


def test_a_folder_that_lost_its_state_or_its_ledger_is_refused(tmp_path):
    there = graphs(next(case for case in cases() if case.name == "one release"), tmp_path)
    there.run()
    state, ledger = (tmp_path / "organisation bob" / name for name in ("state.npz", "ledger.jsonl"))
    kept = state.read_bytes()
    state.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(DamageError, match=r"state\.npz"):
        there.silo("organisation bob")
    state.unlink()
    with pytest.raises(DamageError, match=r"state\.npz"):
        there.silo("organisation bob")
    state.write_bytes(kept)
    ledger.unlink()
    with pytest.raises(DamageError, match=r"ledger\.jsonl"):
        there.silo("organisation bob")


def test_two_processes_for_one_organisation_are_one_too_many(tmp_path):
    there = graphs(cases()[0], tmp_path)
    first = there.silo("organisation bob")
    with pytest.raises(InputError, match="another one is running"):
        there.silo("organisation bob")
    first.close()
    there.silo("organisation bob").close()


# ---- secure sums between organisations -------------------------------------------------------------------------------


def masked(tmp_path, name="private, masks"):
    return models(federations, next(case for case in federations.cases() if case.name == name), tmp_path)


def is_step(blob, step):
    return {message["step"] for message in read_step(read_question(blob)).values()} == {step}


def test_the_line_of_a_round_counts_its_secure_sums(tmp_path):
    there, lines, crossed = masked(tmp_path), [], []
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    link.between = lambda organisation, asked, said: (crossed.append((len(asked), len(said))), said)[1]
    door = there.door()
    place = there.engine(link, door, said=lines.append)
    begun = time.monotonic()
    for _ in rounds(there.method, there.topo, place, door):
        pass
    place.tell()
    took = time.monotonic() - begun
    assert 0.5 * took < sum(line["seconds"] for line in lines) <= took  # the rest is the server's own work
    assert sum(line["bytes"]["down"] for line in lines) == sum(down for down, _ in crossed)
    assert sum(line["bytes"]["up"] for line in lines) == sum(up for _, up in crossed)
    assert [line["round"] for line in lines] == list(range(len(lines)))


def test_what_all_agents_of_an_organisation_hear_is_told_once():
    """Twice as many agents: twice the bytes, where each being told of all others would make it four times."""
    sizes = []
    for agents in (20, 40):
        identities = {f"agent-{k:03}": "0" * 64 for k in range(agents)}
        place = {"nonce": "0", "field": "update", "region": "r", "members": list(identities), "identities": identities}
        roster = {"advertisements": [{"sender": name, "key": "k" * 80} for name in identities]}
        messages = {name: {**place, "step": "share", "message": roster} for name in identities}
        question = Question("d", "o", "sum", 0, NEVER, tuple(identities), tuple(identities), {}, one_question(messages))
        assert read_step(read_question(question.pack())) == messages
        sizes.append(len(question.pack()))
    assert sizes[1] < 2.1 * sizes[0]


def test_under_masks_no_vector_crosses(tmp_path):
    """The bytes of each update, and of its grid points, are looked for in all that crosses."""
    there = masked(tmp_path, "masks")
    crossed, updates = [], []
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    link.between = lambda organisation, asked, said: (crossed.append(said), said)[1]
    real = silo_module.pack_reply
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            silo_module,
            "pack_reply",
            lambda reply, hidden: (updates.extend(reply.sent.values()), real(reply, hidden))[1],
        )
        there.run(link)
    vectors = [row for value in updates if isinstance(value, Sealed) for row in sealed_rows(value) if row.any()]
    assert len(vectors) > 20
    everything = b"".join(crossed)
    for row in vectors:
        grid = np.rint(row * 2.0**22).astype(np.int64)
        for known in (row, grid, grid.astype(np.int32)):
            assert known.tobytes()[:12] not in everything
    # The twin: without masks they are all there.
    bare = masked(tmp_path / "bare", "none")
    link = Direct({organisation: bare.silo(organisation) for organisation in bare.organisations})
    seen = []
    link.between = lambda organisation, asked, said: (seen.append(read_reply(said, "")), said)[1]
    bare.run(link)
    assert any(sealed_rows(value).any() for reply in seen for value in reply.sent.values())


@pytest.mark.parametrize("step", ["share", "mask", "confirm", "unmask"])
def test_an_agent_that_falls_silent_in_a_sum_is_left_behind(step, tmp_path):
    """In round 2: the sum is that of the others where its vector never came, and the run goes on."""
    there = masked(tmp_path)
    organisation = min(there.organisations)
    link = Direct({name: there.silo(name) for name in there.organisations})
    link.away = lambda name, blob: name == organisation and read_question(blob).round == 2 and is_step(blob, step)
    states, outcome, _ = there.run(link, deadline=0.05)
    assert np.isfinite(outcome.arrays["model"]).all()
    assert len(states) == federations.ROUNDS


def test_a_second_sum_in_a_round_is_refused_by_every_agent_that_was_in_the_first(tmp_path):
    """It could leave one agent out, and the difference of the two sums would be that agent's vector."""
    there = masked(tmp_path)
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    door = there.door()
    place, real = there.engine(link, door), Remote.sum
    again = []

    def twice(self, *asked):
        first = real(self, *asked)
        again.append(real(self, *asked)[0])
        return first

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Remote, "sum", twice)
        place = there.engine(link, door)
        list(rounds(there.method, there.topo, place, door))
    assert len(again) > 10
    assert all(total.survivors == () for total in again)
    assert {type(error) for _, error in link.refusals} == {SummedError}


def test_a_cohort_that_names_somebody_twice_is_refused(tmp_path):
    """Noise would be dealt for many, and few would take part."""
    there = masked(tmp_path)
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    door = there.door()
    place, real = there.engine(link, door), Remote._ask

    def doubled(self, questions, limit, enough):
        changed = {}
        for organisation, blob in questions.items():
            question = read_question(blob)
            if question.sum is not None:
                members = question.sum["same"]["members"]
                question.sum["same"]["members"] = [*members, *members[:1] * 50]
            changed[organisation] = question.pack()
        return real(self, changed, limit, enough)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Remote, "_ask", doubled)
        next(iter(rounds(there.method, there.topo, place, door)))
    assert not door.ledger.rows
    assert {type(error) for _, error in link.refusals} == {InputError}


@pytest.mark.parametrize("step", ["mask", "confirm", "unmask"])
def test_masked_inputs_are_in_the_servers_cost_where_there_was_no_sum(step, tmp_path):
    there = masked(tmp_path)
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    link.away = lambda organisation, blob: is_step(blob, step)
    door = there.door()
    next(iter(rounds(there.method, there.topo, there.engine(link, door, deadline=0.05), door)))
    assert {row.silo for row in door.ledger.rows if row.mechanism == "distributed-gaussian"} == set(there.topo.servers)


@pytest.mark.parametrize("step", ["share", "mask"])
def test_a_sum_that_broke_off_before_a_masked_input_left_can_be_made_again(step, tmp_path):
    there = masked(tmp_path)
    expected = federations.run(next(case for case in federations.cases() if case.name == "private, masks"))
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    real, broken = Remote.sum, []

    def breaking(self, *asked):
        link.away = lambda organisation, blob: is_step(blob, step)
        broken.append(real(self, *asked)[0])
        link.away = lambda organisation, blob: False
        return real(self, *asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Remote, "sum", breaking)
        _, outcome, door = there.run(link, deadline=0.05)
    assert all(total.survivors == () for total in broken)
    same(outcome.arrays, expected.outcome.arrays)
    assert door.ledger.rows == expected.door.ledger.rows


def test_an_agents_own_ledger_has_every_sum_it_was_in_and_keeps_to_its_budget(tmp_path):
    there = masked(tmp_path)
    there.run()
    for organisation in there.organisations:
        rows = Ledger(tmp_path / organisation.replace("/", "_") / "ledger.jsonl").rows
        assert rows
        assert {row.mechanism for row in rows} == {"distributed-gaussian"}
        assert cost(rows, there.budget.delta).epsilon <= there.budget.epsilon * (1 + 1e-9)


@pytest.mark.parametrize("roster", [True, False])
def test_a_server_cannot_play_the_other_agents(roster, tmp_path):
    there = masked(tmp_path)
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    door = there.door()
    place = there.engine(link, door)
    run_on = iter(rounds(there.method, there.topo, place, door))
    smallest = int(np.argmin(there.topo.sizes))  # whose agents are all sampled, in every round
    mine, *others = (there.topo.silos[int(k)] for k in np.flatnonzero(there.topo.home == smallest))
    victim = f"organisation {mine}"
    forged = {name: Ed25519PrivateKey.generate().public_key().public_bytes_raw() for name in others}
    place.identities = {**there.keys(), **forged}
    for name in () if roster else (mine, *others):
        (tmp_path / f"organisation {name}".replace("/", "_") / "roster.json").unlink()
    with pytest.raises(InputError, match="agents that take part, but refused by"):
        next(run_on)
    assert {type(error) for organisation, error in link.refusals if organisation == victim} <= {ProtocolError}
    assert any(organisation == victim for organisation, _ in link.refusals)


def test_an_organisation_may_hold_many_agents(tmp_path):
    case = next(case for case in federations.cases() if case.name == "private, masks")
    topo = federations.topology()
    homes = {}
    for name, home in zip(topo.silos, topo.home, strict=True):
        homes.setdefault(f"unit {topo.servers[home]}", []).append(name)
    expected = federations.run(case)
    _, outcome, door = models(federations, case, tmp_path, together=homes).run()
    same(outcome.arrays, expected.outcome.arrays)
    assert door.ledger.rows == expected.door.ledger.rows


# ---- neural networks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["first", "second"])
def test_a_shared_start_is_that_of_one_process_bit_for_bit(order, tmp_path):
    """Silo by silo: torch's matrix products round differently where several silos go through them at once."""
    pytest.importorskip("torch", reason="neural networks need the extra `neural`")
    from silograph.methods.private_meta import SUPPORT, PrivateMeta, divided
    from silograph.tasks.networks import initialise, mlp
    from silograph.tasks.neural import Neural

    rng, topo = np.random.default_rng(2), star(["ada", "bob", "cyd", "dan"])
    records = [(rng.normal(size=(n, 5)), rng.integers(0, 3, n)) for n in (24, 13, 31, 40)]
    data = divided(records, topo.silos, 5)
    task = Neural(initialise(mlp(5, 3, (4,)), 2), (5,), 3)
    weights = tuple(int(count) for count in data[SUPPORT])
    method = PrivateMeta(task, weights, 4, rate=0.5, clip=0.5, order=order)
    noise = sampled_multiplier(1.0, 1e-4, 0.5, 4)
    budget = Budget(1.0, 1e-4, planned=Planned(noise, 0.5, 4))
    door = Door(5, Ledger(), Gaussian(noise), budget)
    *_, expected = rounds(method, topo, ENGINES["silowise"](data, topo, door), door)
    states, _, ours = Federation(method, topo, data, tmp_path, Gaussian(noise), budget).run()
    np.testing.assert_array_equal(states[-1].servers["model"], expected.servers["model"])
    assert ours.ledger.rows == door.ledger.rows
