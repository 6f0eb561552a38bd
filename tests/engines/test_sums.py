"""A lying server gets one masked input for a silo, round and release point, and the silo has paid for it before."""

from collections import Counter

import numpy as np
import pytest

import federations
from local_organisations import DEPLOYMENT, Direct, Federation, stacked
from silograph.core.errors import BudgetError, SilographError
from silograph.engines import sums
from silograph.engines.question import NEVER, Question, read_question
from silograph.engines.remote import Answers
from silograph.engines.sums import read_answers, run_sum
from silograph.methods.base import begin
from silograph.methods.private_graph import LikelyGraphs
from silograph.methods.summed_graph import SummedConsensus
from silograph.privacy.accounting import cost, gaussian_multiplier
from silograph.privacy.door import Budget
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import SharedGaussian
from silograph.privacy.secure_messages import STEPS
from silograph.privacy.secure_sum import ProtocolError
from silograph.privacy.sums import SummedError, join, sum_of
from silograph.run.loop import rounds
from silograph.tasks.smooth_graph import SmoothGraph
from silograph.topology import star
from support import NODES, federation

CASE = next(case for case in federations.cases() if case.name == "private, masks")
TOPO = federations.topology((10, 4, 4))
CLINICS = tuple(name for name, home in zip(TOPO.silos, TOPO.home, strict=True) if home == 0)
VICTIM, OTHERS = CLINICS[0], CLINICS[1:]


def units(folder, **options) -> Federation:
    """Each unit one organisation with its agents, as in a deployment."""
    homes: dict[str, list[str]] = {}
    for name, home in zip(TOPO.silos, TOPO.home, strict=True):
        homes.setdefault(f"unit {home}", []).append(name)
    data = federations.records(topo=TOPO)
    ready = stacked([CASE.method.task.prepare(data[name]) for name in TOPO.silos])
    common = {"together": homes} | options
    return Federation(CASE.method, TOPO, ready, folder, CASE.mechanism, CASE.budget, CASE.masks, **common)


def always(step, name):
    return True


class Hostile:
    """A server that asks the agents of one organisation what it likes; what it was given is in `got`, by step."""

    def __init__(self, there: Federation, organisation: str = "unit 0") -> None:
        self.there, self.organisation, self.refused, self.got = there, organisation, [], []
        self.names = tuple(there.organisations[organisation])
        self.silo = there.silo(organisation)

    def restart(self):
        self.silo.close()
        self.silo = self.there.silo(self.organisation)

    def put(self, kind, round, silos, down=None, told=None, accepted=NEVER):
        question = Question(DEPLOYMENT, self.organisation, kind, round, accepted, silos, self.names, down or {}, told)
        return self.silo.answer(question.pack())

    def local(self, round, accepted):
        """The first question of a run, moved a little so that it is another one every time."""
        begun, index = begin(CASE.method, TOPO).down, TOPO.index(self.names)
        down = {name: value.value[index] for name, value in begun.items()}
        down["model"] = down["model"] + 0.01 * round
        down["round"] = np.full(len(self.names), float(min(round, CASE.method.rounds)))  # organisations take no more
        self.put("local", round, self.names, down, accepted=accepted)

    def sum(self, round, members, hears=always):
        """A secure sum as the protocol has it, except that some are never asked for some steps."""

        def ask(messages):
            said = {}
            for name, message in messages.items():
                if hears(message["step"], name):
                    try:
                        blob = self.put("sum", round, (name,), told={"to": {name: message}})
                    except SilographError as error:
                        self.refused.append((message["step"], name, type(error)))
                        continue
                    said |= read_answers(blob)
                    self.got.append((message["step"], name, round, message, blob))
            return said

        gate = self.there.door().gate(list(TOPO.servers), round)
        asked = sum_of(gate, self.silo._memory.pending.sealed["update"], members, TOPO.servers[0])
        return run_sum(DEPLOYMENT, asked, "update", self.there.keys(), ask)

    def inputs(self, name=VICTIM):
        """How many masked inputs of a silo were given, by round."""
        return Counter(round for step, who, round, *_ in self.got if (step, who) == ("mask", name))

    def rows(self, name=VICTIM):
        return Ledger(self.there.folder / self.organisation / "ledger.jsonl").of(name)


def unconfirmed(step, name):
    return name != VICTIM or step not in ("confirm", "unmask")


def test_sums_that_the_victim_never_confirmed_are_paid_for_or_refused(tmp_path):
    """The victim with disjoint triples, and not asked to confirm: three signatures of four open each sum."""
    hostile, totals = Hostile(units(tmp_path)), 0
    for round in range(federations.ROUNDS):
        hostile.local(round, round - 1)
        for k in range(0, len(OTHERS), 3):
            total, _ = hostile.sum(round, (VICTIM, *OTHERS[k : k + 3]), unconfirmed)
            totals += VICTIM in total.survivors
    assert totals == len(hostile.rows()) == federations.ROUNDS  # one a round, not three
    assert set(hostile.inputs().values()) == {1}
    assert {refused for refused in hostile.refused if refused[1] == VICTIM} == {("advertise", VICTIM, SummedError)}
    assert cost(hostile.rows(), federations.DELTA).epsilon <= federations.EPSILON * (1 + 1e-9)


def test_the_same_attack_finds_an_agent_that_pays_when_it_confirms(tmp_path, monkeypatch):
    """The broken twin: what was here before. Three sums a round, and not a row."""
    real = sums._spoken

    def late(agent, step, message, vector):
        if step == "mask":
            agent.late, agent._pay = agent._pay, lambda: None
        if step == "confirm":
            agent.late()
        return real(agent, step, message, vector)

    monkeypatch.setattr(sums, "_spoken", late)
    hostile, totals = Hostile(units(tmp_path)), 0
    hostile.local(0, NEVER)
    for k in range(0, len(OTHERS), 3):
        totals += VICTIM in hostile.sum(0, (VICTIM, *OTHERS[k : k + 3]), unconfirmed)[0].survivors
    assert totals == 3
    assert hostile.rows() == []


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("last", STEPS)
def test_a_sum_may_begin_again_until_a_masked_input_has_left(last, restarted, tmp_path):
    hostile = Hostile(units(tmp_path))
    hostile.local(0, NEVER)
    hostile.sum(0, CLINICS[:4], lambda step, name: STEPS.index(step) <= STEPS.index(last))
    if restarted:
        hostile.restart()
    total, paid = hostile.sum(0, (VICTIM, *CLINICS[4:8]))
    left = last in ("mask", "confirm", "unmask")
    assert (VICTIM in total.survivors) is not left
    assert (VICTIM in paid) is not left  # here a plain refusal; between organisations its class says that it has paid
    assert hostile.inputs() == {0: 1}
    assert len(hostile.rows()) == 1


def test_a_question_that_is_put_again_gets_the_same_bytes_at_any_time(tmp_path):
    hostile = Hostile(units(tmp_path))
    hostile.local(0, NEVER)
    hostile.sum(0, CLINICS[:5])
    ledger = (tmp_path / "unit 0" / "ledger.jsonl").read_bytes()
    assert {step for step, *_ in hostile.got} == set(STEPS)
    for _, name, round, message, blob in list(hostile.got):
        assert hostile.put("sum", round, (name,), told={"to": {name: message}}) == blob
        other = {**message, "message": {**message["message"], "session": "AAAA"}}
        with pytest.raises(ProtocolError, match="before"):
            hostile.put("sum", round, (name,), told={"to": {name: other}})
    assert (tmp_path / "unit 0" / "ledger.jsonl").read_bytes() == ledger


class Killed(BaseException):
    """Stands for kill -9: nothing after this moment happens."""


@pytest.mark.parametrize("moment", ["before the row", "after the row", "after the masked input"])
def test_a_kill_costs_at_most_the_row_and_gives_no_second_masked_input(moment, tmp_path, monkeypatch):
    hostile = Hostile(units(tmp_path))
    hostile.local(0, NEVER)
    append, pack, died = Ledger.append, sums.pack, []

    def dies(now):
        if now == moment and not died:
            died.append(now)
            raise Killed

    def appending(ledger, rows):
        dies("before the row")
        append(ledger, rows)
        dies("after the row")

    def packing(facts, arrays):
        if any("words" in said for said in facts["said"].values()):
            dies("after the masked input")  # made, and not sent
        return pack(facts, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "append", appending)
        patch.setattr(sums, "pack", packing)
        with pytest.raises(Killed):
            hostile.sum(0, CLINICS[:4])
    hostile.restart()
    total, _ = hostile.sum(0, (VICTIM, *CLINICS[4:8]))
    free = moment == "before the row"
    assert (VICTIM in total.survivors) == free
    assert hostile.inputs()[0] == free
    assert len(hostile.rows()) == 1


def test_an_agent_whose_budget_is_spent_gives_no_masked_input(tmp_path):
    hostile = Hostile(units(tmp_path, most_rounds=10**6))
    for round in range(federations.ROUNDS + 3):
        hostile.local(round, round - 1)
        total, _ = hostile.sum(round, CLINICS[:5])
        assert bool(total.survivors) == (round < federations.ROUNDS)
    assert hostile.inputs() == dict.fromkeys(range(federations.ROUNDS), 1)
    assert {refused for refused in hostile.refused if refused[1] == VICTIM} == {("mask", VICTIM, BudgetError)}
    assert cost(hostile.rows(), federations.DELTA).epsilon <= federations.EPSILON * (1 + 1e-9)


# ---- both ledgers ----------------------------------------------------------------------------------------------------

SITES = {"ada": 30, "bob": 40, "cyd": 50, "dan": 6, "eve": 20}


def sites(folder) -> Federation:
    """Sites with records of their own: every one of them has rows in the server's ledger."""
    task = SmoothGraph(NODES, "moment")
    noise = SharedGaussian(gaussian_multiplier(2.0, 1e-5, 1))
    method, tables = SummedConsensus(task, LikelyGraphs(3.0), noise, tuple(SITES.values())), federation(counts=SITES)
    topo = star(list(tables))
    data = stacked([task.prepare(tables[name]) for name in topo.silos])
    return Federation(method, topo, data, folder, noise, Budget(2.0, 1e-5), Masks())


def own_places(there):
    paths = [there.folder / organisation / "ledger.jsonl" for organisation in there.organisations]
    return {row.place for path in paths if path.exists() for row in Ledger(path).rows}


class Lossy(Direct):
    """Questions of one step of round 0, or the answers to them, get lost for some."""

    def lose(self, step, organisations, answers):
        self.step, self.organisations, self.answers = step, organisations, answers
        return self

    def ask(self, questions, deadline, enough=None):
        def lost(organisation, blob):
            question = read_question(blob)
            steps = {message["step"] for message in sums.read_step(question).values()}
            return organisation in self.organisations and question.round == 0 and self.step in steps

        self.away = (lambda organisation, blob: False) if self.answers else lost
        heard = super().ask(questions, deadline, enough)
        kept = {
            organisation: said
            for organisation, said in heard.replies.items()
            if not lost(organisation, questions[organisation])
        }
        return Answers(kept, heard.refusals)


@pytest.mark.parametrize("answers", [True, False], ids=["answers lost", "questions lost"])
@pytest.mark.parametrize("silent", [1, 4])
@pytest.mark.parametrize("step", STEPS)
def test_the_servers_ledger_has_every_row_of_the_sites(step, silent, answers, tmp_path):
    """One drop-out leaves a sum, four do not. Whom the server asked for a masked input may have paid, and is in it."""
    there = sites(tmp_path)
    gone = list(there.organisations)[:silent]
    link = Lossy({organisation: there.silo(organisation) for organisation in there.organisations}).lose(
        step, gone, answers
    )
    door = there.door()
    state = next(iter(rounds(there.method, there.topo, there.engine(link, door, deadline=0.05), door)))
    assert state.servers["summed"].any() == (silent == 1)
    ours, theirs = {row.place for row in door.ledger.rows}, own_places(there)
    asked = set(there.topo.silos) - {name.removeprefix("organisation ") for name in gone}
    assert theirs <= ours
    if answers or step in ("advertise", "share", "confirm", "unmask"):
        assert ours == theirs
    else:  # nobody can know that a question was lost
        assert {silo for silo, *_ in theirs} == asked
        assert {silo for silo, *_ in ours} == set(there.topo.silos)


def test_a_server_that_was_killed_in_a_sum_finds_out_who_has_paid(tmp_path, monkeypatch):
    there = sites(tmp_path)
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})

    def killed(gate, asked, vector):
        join(gate, asked, vector)
        raise Killed

    door = there.door()
    with monkeypatch.context() as patch:
        patch.setattr("silograph.engines.sums.join", killed)
        with pytest.raises(Killed):
            next(iter(rounds(there.method, there.topo, there.engine(link, door), door)))
    assert len(own_places(there)) == 1
    assert not door.ledger.rows
    again = there.door()
    state = next(iter(rounds(there.method, there.topo, there.engine(link, again), again)))
    assert {row.place for row in again.ledger.rows} == own_places(there)
    assert state.servers["summed"].sum() == len(SITES) - 1  # who has paid sits the round out
