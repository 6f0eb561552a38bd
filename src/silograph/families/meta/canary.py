"""Canaries of networks: records whose gradients are as long as the clip, in places that may be left empty."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from silograph.audit.exposure import Listener, found
from silograph.audit.scenes import DIVIDED, LOUD, divided
from silograph.audit.stages import Bits, Scene, SiloStage, Stage
from silograph.audit.worlds import Worlds, as_csv, fewest
from silograph.core.types import Array, Json
from silograph.data.persons import present
from silograph.deploy.public_facts import Facts
from silograph.families.meta.job import MetaJob
from silograph.families.meta.plan import MetaPlan
from silograph.methods.base import Private, begin
from silograph.methods.private_meta import QUERY, SUPPORT
from silograph.privacy.attacks.members import by_gradient, by_loss, told

_CANDIDATES = 16  # made-up records that are tried as canaries
_SCALES = (1.0, 3.0, 10.0, 30.0, 100.0, 1e3, 1e4)  # and how large
_MODELS = 8  # at which they are tried
_COMPANY = 7  # records beside a canary, an odd number: in or out it is then the middle one
_LOUDER = 1e-2, 100.0  # of the clip are worth as much as this many clips, so that a clip that is missing shows


def stages(job: MetaJob, many: bool) -> tuple[Stage, ...]:
    """A canary in the query set, and one in the support set, of a client whose other places are empty.

    The server sends the start again every round.
    """
    victim = int(np.argmin(job.data()[QUERY]))
    own = job.data([job.topo.silos[victim]])
    x, y = _loudest(job, own)
    unit, times = "a record", 1
    if job.plan.data.unit_column is not None:
        unit, times = "a person", job.plan.data.unit_rows  # with the same record over and over

    def tables(bits: Bits, part: str, company: Sequence[float] = ()) -> Private:
        """Canaries, and after them their company: the loudest record at these sizes."""
        trials, canaries = bits.shape
        made: Private = {}
        for each in (QUERY, SUPPORT):
            width = canaries if each == part else 1
            beside = [size * x[:1] for size in company] if each == part else []
            one_x = np.concatenate([x[:width], *beside])
            one_y = np.concatenate([y[:width], *(y[:1] for _ in beside)])
            if job.plan.data.unit_column is not None:
                one_x, one_y = one_x[:, None].repeat(times, 1), one_y[:, None].repeat(times, 1)
            made |= {f"{each}_x": one_x[None].repeat(trials, 0), f"{each}_y": one_y[None].repeat(trials, 0)}
            made[each] = own[each].repeat(trials)  # how many places there are is public
        return made

    def loss(told: Mapping[str, Array]) -> Array:
        return np.array([-job.task.measure(sent, x[:1], y[:1])[0] for sent in told["model"]])

    start, rounds = begin(job.method, job.topo), tuple(range(job.method.rounds))

    def stage(part: str) -> SiloStage:
        alone = f"{unit} of the {part} set whose gradient is as long as the clip, or its place left empty"
        places = int(own[part][0])
        size = min(_COMPANY, places - 1 - places % 2)
        scenes = tuple(
            Scene(f"{alone}; {words}", partial(tables, part=part, company=tuple(sizes)), size)
            for words, sizes in ((LOUD, np.ones(size)), (DIVIDED, divided(size + 1)[1:]))
            if size > 0
        )
        most = min(len(x), places)
        made = SiloStage(job, victim, f"{alone}; no others", rounds, most, partial(tables, part=part), start)
        return replace(made, part=part, loss=loss, scenes=scenes)

    return stage(QUERY), stage(SUPPORT)


def _loudest(job: MetaJob, data: Private) -> tuple[Any, Any]:
    """Made-up records, each at the size and with the answer that bring its gradient to the clip at the start and at
    models as far from it as noise takes a client within a round; those that are longest in the mean first.

    A client's own records would be told by what the audit finds, which is kept and shown without a row for them.
    """
    method, clip = job.method, job.method.clip or 1.0
    places = (min(_CANDIDATES, int(data[QUERY][0])), *job.tables.shape)
    own = np.random.default_rng(1).normal(size=places).astype(data[f"{QUERY}_x"].dtype)
    answers = np.array([-1e3, 1e3]) if job.plan.data.answers == "numbers" else np.arange(len(job.tables.classes))
    forms = [(scale, answer) for scale in _SCALES for answer in answers]
    x = np.concatenate([scale * own for scale, _ in forms])
    y = np.repeat([answer for _, answer in forms], len(own))
    alone = np.ones((len(x), 1), dtype=np.bool_)
    noise = 0.0 if job.mechanism is None else job.mechanism.multiplier * clip / (method.rate * float(data[QUERY][0]))
    reach = noise * (method.inner_step + (method.local_steps - 1) * method.outer_step)
    rng, total = np.random.default_rng(0), np.zeros(len(x))
    for _ in range(_MODELS):
        model = np.asarray(job.task.start) + reach * rng.normal(size=job.task.size)
        gradients = job.task.at(np.repeat(model[None], len(x), 0), x[:, None], y[:, None], alone).gradient(None)
        lengths = np.sqrt((np.asarray(gradients, dtype=np.float64) ** 2).sum(1))
        worth = np.minimum(lengths, clip) + _LOUDER[0] * clip * np.minimum(lengths / clip, _LOUDER[1]) / _LOUDER[1]
        total += np.where(lengths < 1e6 * clip, worth, 0.0)
    heard = total.reshape(len(forms), len(own))
    which = heard.argmax(0) * len(own) + np.arange(len(own))
    order = np.argsort(-heard.max(0), kind="stable")
    return x[which[order]], y[which[order]]


def worlds(job: MetaJob, facts: Facts) -> Worlds:
    holding, _ = fewest(facts)
    regression = job.plan.data.answers == "numbers"

    def table(organisation: str, sign: float) -> bytes:
        count = next(h.records[0] for h in facts.holdings if h.organisation == organisation and h.records)
        times = 1 if job.plan.data.unit_column is None else job.plan.data.unit_rows
        whose = np.arange(count).repeat(times)  # all have as many records
        x = np.zeros((len(whose), *facts.shape), dtype=np.float32)
        x[whose == 0] = 30.0 * sign
        which = ((whose == 0) & (sign > 0.0)).astype(np.int64)
        answers = 1e3 * sign * (whose == 0) if regression else np.array(facts.classes)[which]
        return _labelled(job.plan, facts, x, answers, whose)

    one = "a record" if job.plan.data.unit_column is None else "a person"
    words = f"{one} whose gradient is longer than the clip, against the opposite one; all others are alike"
    tables = (table(holding.organisation, -1.0), table(holding.organisation, 1.0), table(holding.organisation, 0.0))
    suffix = ".csv" if facts.columns else ".npz"
    return Worlds(
        holding.organisation,
        holding.organisation,
        words,
        tables,
        lambda organisation: table(organisation, 0.0),
        suffix,
        2,
    )


def _labelled(plan: MetaPlan, facts: Facts, x: Any, answers: Any, whose: Any) -> bytes:
    column = plan.data.unit_column
    if facts.columns:
        named = [] if column is None else [column]
        rows = zip(x.tolist(), answers.tolist(), whose.tolist(), strict=True)
        lines = [[*row, answer, *(f"p{person}" for _ in named)] for row, answer, person in rows]
        return as_csv([*facts.columns, plan.data.target, *named], lines)
    packed = io.BytesIO()
    np.savez(packed, x=x, y=answers, **({} if column is None else {column: whose}))
    return packed.getvalue()


def exposed(job: MetaJob, own: bool, root: int) -> list[Json]:
    """The step a client sends leans to the gradients of its own records, those of the support set most; and the model
    it sends fits them better than others."""
    listener = Listener(job, root)
    listener.listen()
    data, models = listener.data, listener.value("model")
    assert isinstance(data, dict)
    by = {"direction of the client's step": _leaning, "loss under the client's model": _fitting}
    attacks = []
    for name, score in by.items():
        areas = []
        for k in range(min(len(models), 8)):
            mine, other = (score(job, models[k], *_support(data, client)) for client in (k, (k + 1) % len(models)))
            areas.append(told(other, mine).area)
        area = float(np.mean(areas))
        words = f"told a client's own records from another's with an area under the curve of {area:.2f} (chance 0.50)"
        attacks.append(found("whose records", f"membership by the {name}", 1.0 - area, words))
    return attacks


def _support(data: Mapping[str, Array], client: int) -> tuple[Array, Array]:
    count = int(data[SUPPORT][client])
    x, y = data[f"{SUPPORT}_x"][client, :count], data[f"{SUPPORT}_y"][client, :count]
    return (x, y) if y.ndim == 1 else (x[present(y)], y[present(y)])


def _leaning(job: MetaJob, model: Array, x: Array, y: Array) -> Array:
    start = np.asarray(job.task.start)
    alone = np.ones((len(x), 1), dtype=np.bool_)
    gradients = job.task.at(np.repeat(start[None], len(x), 0), x[:, None], y[:, None], alone).gradient(None)
    return by_gradient(model - start, np.asarray(gradients, dtype=np.float64))


def _fitting(job: MetaJob, model: Array, x: Array, y: Array) -> Array:
    return by_loss(np.array([job.task.measure(model, x[k : k + 1], y[k : k + 1])[0] for k in range(len(x))]))
