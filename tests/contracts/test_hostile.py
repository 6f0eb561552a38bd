"""Whatever a server asks: no refusal, size or row tells neighbouring tables apart, and no budget is passed.

Noise is not looked at here, the auditor does that: both worlds have the same, and what is compared is everything else.
SILOGRAPH_STRATEGIES is how many strategies are played against each promise in all; 1,000 are the full lane.
"""

import math
import os
from dataclasses import fields, replace

import numpy as np
import pytest

import clusters
import federations
from cases import every_case, private
from local_organisations import DEPLOYMENT
from silograph.core.errors import LeakError, SolverError
from silograph.engines import saved
from silograph.engines import silo as silo_module
from silograph.engines.question import NEVER, Question, read_reply
from silograph.engines.silo import RefusedError, Silo
from silograph.methods.base import Limits, begin
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.privacy.accounting import cost
from silograph.privacy.ledger import Ledger, Row
from silograph.privacy.released import sealed_rows
from strategies import WORLDS, Holding, Player, by_hand, rows_of

#: Where numbers are as long as numbers can be.
NAMED = ("records, huber", "records, logistic, schedule", "records, linearised")
HOLDINGS = {f"clusters, {name}": by_hand(clusters, clusters.named(name)) for name in NAMED} | {
    holding.name: holding for holding in (by_hand(federations, case) for case in federations.cases() if case.private)
}
STRATEGIES = int(os.environ.get("SILOGRAPH_STRATEGIES", "120"))
EACH = math.ceil(STRATEGIES / sum(case.private for case in every_case()))


@pytest.fixture
def holding(case):
    if hasattr(case.job.mechanism, "rests_on") or getattr(case.job.plan, "reach", None) == "all":
        pytest.skip("no deployment has it")
    return Holding.of(case)


def played(holding, folder, world, seed, questions=12):
    return Player(holding, holding.federation(folder, world), seed).play(questions)


def written(calls):
    """Keeps what is written to disk, in its order: an answer and a refusal take different times because of it."""
    patch = pytest.MonkeyPatch()
    save, append = silo_module.write_atomically, Ledger.append

    def saving(path, content, mode=0o644):
        calls.append(path.name)
        save(path, content, mode)

    def appending(ledger, rows):
        rows = list(rows)
        calls.append(len(rows))
        append(ledger, rows)

    for module in (silo_module, saved):
        patch.setattr(module, "write_atomically", saving)
    patch.setattr(Ledger, "append", appending)
    return patch


def told_apart(holding, folder, seed):
    """What differs between the worlds in all that a server sees but the numbers: answers, refusals, sizes, the steps
    that take time, rows. And what the organisations themselves were warned of."""
    views, warned = [], []
    for world in WORLDS:
        here, calls = folder / f"{seed} {world}", []
        patch = written(calls)
        player = played(holding, here, world, seed)
        patch.undo()
        rows = rows_of(here)
        scales = [[row.pop("l2") or 0.0, row.pop("noise") or 0.0] for row in rows]
        views.append((player.seen, calls, rows, scales))
        warned += player.warned
    differ = [(a, b) for view in views[1:] for a, b in zip(views[0][:3], view, strict=False) if a != b]
    for *_, scales in views[1:]:  # but for the last digits: see `digits`
        if not differ and not np.allclose(scales, views[0][-1], rtol=1e-6, atol=0.0):
            differ.append((views[0][-1], scales))
    return differ, warned


@private
def test_no_question_tells_neighbouring_tables_apart(case, holding, tmp_path):
    """And within its limits a method does not fail on any records: nobody is warned."""
    for seed in range(max(EACH // 2, 2)):
        assert told_apart(holding, tmp_path, seed) == ([], [])


@private
def test_no_strategy_passes_the_budget(case, holding, tmp_path):
    if holding.budget is None:
        pytest.skip("its ledger says what it costs; nothing was promised before")
    for seed in range(EACH):
        folder = tmp_path / str(seed)
        player = played(holding, folder, "as it is", 1000 + seed, 18)
        rows = [Row(**row) for row in rows_of(folder)]
        for silo in holding.topo.silos:
            own = [row for row in rows if row.silo == silo and row.observer not in holding.budget.trusted]
            assert cost(own, holding.budget.delta).epsilon <= holding.budget.epsilon * (1 + 1e-9), seed
            # Nothing left that is not paid for: as many different numbers as there are rounds in the ledger, at most.
            assert len(player.given.get(silo, ())) <= len({row.round for row in rows if row.silo == silo}), seed


# ---- the attack of which there is a rule -----------------------------------------------------------------------------

#: A dual near the end of what a number can be: whether the solver overflows depends on the records' directions.
EXTREME = 1.0845e308 * np.array([[1.0, 1.0, 1.0, 1.0, -1.0]])
HUBER = HOLDINGS["clusters, records, huber"]


class Lax(ClusteredADMM):
    """Takes whatever is a number, and has a sensitivity that does not look at the dual: what was here before."""

    def _record_bounded(self, w, count, what, answer, sent):
        return super()._record_bounded(w, count, what, np.zeros_like(answer), np.zeros_like(sent))

    def limits(self):
        return dict.fromkeys(("model", "answer"), Limits(-1.0845e308, 1.0845e308))


def as_a(kind, holding):
    """The same method, of another class."""
    return replace(holding, method=kind(**{part.name: getattr(holding.method, part.name) for part in fields(kind)}))


def without_limits(holding):
    return as_a(Lax, holding)


def candid(patch):
    """The organisation as it was: what went wrong goes out."""

    def raising(self, question, carry, door, name):
        self._door.forget()
        self._computed(question, carry, self._data, door, name)

    patch.setattr(Silo, "_stood_in", raising)


def asked(holding, folder, world):
    """What becomes of the extreme question, the ledger, and what the organisation's own screen shows."""
    there, warned = holding.federation(folder / world, world), []
    organisation, silos = next(iter(there.organisations.items()))
    silo = there.silo(organisation, warn=warned.append)
    down = {"model": np.zeros((1, 5)), "answer": EXTREME}
    question = Question(DEPLOYMENT, organisation, "local", 0, NEVER, (silos[0],), tuple(holding.topo.silos), down)
    try:
        said = len(silo.answer(question.pack()))
    except Exception as error:
        said = type(error)
    silo.close()
    return said, rows_of(folder / world), warned


@pytest.mark.parametrize("name", ["clusters, records, huber", "clusters, records, logistic, schedule"])
def test_a_dual_at_the_end_of_all_numbers_is_refused_in_every_world(name, tmp_path):
    assert [asked(HOLDINGS[name], tmp_path, world) for world in WORLDS] == [(RefusedError, [], [])] * 3


def test_where_it_was_not_refused_the_organisation_pays_and_answers_in_every_world(tmp_path):
    answers = [asked(without_limits(HUBER), tmp_path, world) for world in WORLDS]
    assert len({said for said, _, _ in answers}) == 1
    assert isinstance(answers[0][0], int)
    assert all(len(rows) == 1 and rows == answers[0][1] for _, rows, _ in answers)
    assert [bool(warned) for _, _, warned in answers] == [False, False, True]


def test_without_the_rule_the_same_question_tells_the_worlds_apart_for_nothing(tmp_path, monkeypatch):
    """The broken twin: what was here before."""
    candid(monkeypatch)
    assert [asked(without_limits(HUBER), tmp_path, world)[0] is LeakError for world in WORLDS] == [False, False, True]
    assert not rows_of(tmp_path / "loud")


# ---- teeth -----------------------------------------------------------------------------------------------------------


def found(holding, folder, seeds=12):
    return any(told_apart(holding, folder, seed)[0] for seed in range(seeds))


def test_fuzzing_finds_a_method_without_limits_at_an_organisation_without_the_rule(tmp_path, monkeypatch):
    assert not found(without_limits(HUBER), tmp_path / "rule")
    candid(monkeypatch)
    assert found(without_limits(HUBER), tmp_path / "none")


def picky(holding, does):
    """The same method that does something else where a record is loud."""
    kind = type(holding.method)

    class Picky(kind):
        def local(self, carry, down, data, gate):
            loud = np.array([(np.abs(y) > 1e50).any() for y in data["y"]])
            if loud.any():
                return does(super(), carry, down, data, gate)
            return super().local(carry, down, data, gate)

    return as_a(Picky, holding)


def chatty(method, carry, down, data, gate):
    carry, sent = method.local(carry, down, data, gate)
    return carry, {**sent, "more": next(iter(sent.values()))}


def telling(method, carry, down, data, gate):
    """A sensitivity that depends on the records."""
    real = gate.release
    gate.release = lambda bounded, *rest: real(replace(bounded, l2=1.5 * bounded.l2), *rest)
    return method.local(carry, down, data, gate)


@pytest.mark.parametrize("does", [chatty, telling])
def test_sizes_and_rows_that_depend_on_records_are_found(does, tmp_path):
    assert found(picky(HUBER, does), tmp_path)


def raising(error):
    def does(*_):
        raise error

    return does


ERRORS = [
    ArithmeticError("x"),
    AssertionError("x"),
    FloatingPointError("x"),
    LeakError("a", "b", "c"),
    MemoryError("x"),
    OSError("x"),
    RecursionError("x"),
    RuntimeWarning("x"),
    SolverError("a", "b", "c"),
    ValueError("x"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", ["clusters, records, huber", "federations, private, masks"])
def test_whatever_goes_wrong_with_the_records_is_answered_and_paid_for(name, error, tmp_path):
    views, warned = told_apart(picky(HOLDINGS[name], raising(error)), tmp_path, 3)
    assert views == []
    assert warned
    assert all(type(error).__name__ in text for text in warned)


def test_fuzzing_finds_an_error_that_goes_out(tmp_path, monkeypatch):
    candid(monkeypatch)
    for name in ("clusters, records, huber", "federations, private, masks"):
        assert found(picky(HOLDINGS[name], raising(ValueError("x"))), tmp_path / name, 2)


def test_warnings_that_were_made_errors_change_nothing(tmp_path, monkeypatch):
    real, strict = Silo.answer, np.errstate(all="raise")
    monkeypatch.setattr(Silo, "answer", lambda silo, blob: strict(real)(silo, blob))
    for seed in range(3):
        assert told_apart(HOLDINGS["federations, private, trusted server"], tmp_path, seed) == ([], [])


def test_a_silo_on_whose_records_it_fails_does_not_change_the_others(tmp_path):
    """Where a whole silo is protected, one in its place may change nothing but its own vector."""
    holding = HOLDINGS["federations, private, trusted server"]
    vectors = {}
    for world in ("as it is", "loud"):
        there = picky(holding, raising(ValueError("x"))).federation(tmp_path / world, world)
        organisation, silos = next(iter(there.organisations.items()))
        silo, index = there.silo(organisation), holding.topo.index(silos)
        down = {name: value.value[index] for name, value in begin(holding.method, holding.topo).down.items()}
        question = Question(DEPLOYMENT, organisation, "local", 0, NEVER, silos, tuple(holding.topo.silos), down)
        vectors[world] = sealed_rows(read_reply(silo.answer(question.pack()), "").sent["update"])
        silo.close()
    np.testing.assert_array_equal(vectors["loud"][1:], vectors["as it is"][1:])
    assert not vectors["loud"][0].any()
    assert vectors["as it is"].any(1).all()


# ---- noise -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in HOLDINGS if name.startswith("clusters, records")])
def test_a_folder_that_is_put_back_draws_other_noise_where_it_remembers_something_else(name, tmp_path):
    """Asked the same as before, but after a round that this time was not used, a client computes another step. With the
    same noise the difference of the two answers would be bare."""
    holding, noises = HOLDINGS[name], []
    downs = [{field: value.value for field, value in begin(holding.method, holding.topo).down.items()}]
    downs.append({field: value + 0.25 for field, value in downs[0].items()})
    for used in (0, NEVER):
        federation = holding.federation(tmp_path / f"used {used}")
        organisation, silos = next(iter(federation.organisations.items()))
        rows, silo = holding.topo.index(silos), federation.silo(organisation, secret=True)
        for number, (down, accepted) in enumerate(zip(downs, (NEVER, used), strict=True)):
            own = {field: value[rows] for field, value in down.items()}
            question = Question(
                DEPLOYMENT, organisation, "local", number, accepted, tuple(silos), tuple(holding.topo.silos), own
            )
            before = silo._memory.pending if used == 0 else None
            reply = read_reply(silo.answer(question.pack()), "answer")
        carry = silo._begun() if before is None else before.carry
        pull = own["answer"] - np.asarray(getattr(carry["sent"], "value", carry["sent"]))
        method = holding.method
        exact = method.task.step(own["model"], method.rho * pull, method.rho, carry["ridge"], silo._data)
        noises.append(silo._memory.pending.carry["model"].value - exact)
        silo.close()
    deviation = min(row.noise for row in reply.rows)
    assert np.abs(noises[0]).max() > deviation / 10  # it is the noise that is looked at
    assert np.abs(noises[0] - noises[1]).max() > deviation / 10
