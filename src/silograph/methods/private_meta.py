"""Private meta-learning (S4): a shared start from which any client reaches a good model in one step.

Every source client divides its records into a query and a support set. In a local step, with a Poisson sample of each,

    R1     the clipped query gradients at w, summed, and noise     theta = w - eta R1                     (1), (6), (7)
    R2     the clipped support gradients at theta, and noise                                              (11)
    R3     the clipped query curvatures along R2, and noise        w <- w - beta (R2 - eta R3)            (2), (9), (10)

and after some local steps the server takes the mean of the clients' w, weighted by the sizes of their support sets (3).
Each sum is divided by the expected size of its sample, which is public. The first-order version leaves R3 out.

S4 clips the mean over the records, not each record: a record moves it by up to 2 C, however large the sample, rather
than C / (q N). It also charges the query sample once for two uses. Here R1 and R3, from one sample, share its
precision, with noise larger by sqrt(2) each: every query record and every support record is charged one sampled
Gaussian per local step, for its own set alone.

If persons are protected, a person takes a record's place: all their records are in one set and in the same samples, and
they add the mean of their clipped gradients, which is never longer than the clip.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError, SolverError
from silograph.core.threads import in_parts
from silograph.core.types import Array, BoolArray, Carry, Json
from silograph.data.persons import present
from silograph.kernels.draws import draw_key, silo_ids, uniforms
from silograph.methods.base import Limits, Outcome, Outlet, Plain, Private, ServerOutlet, Start, Up, everywhere
from silograph.methods.sampling import DIVERGED, check_growth
from silograph.privacy.bound import ADD_OR_REMOVE_ONE, Bounded
from silograph.privacy.released import Batch, Message, Released, Sent, bare
from silograph.topology import Topology

if TYPE_CHECKING:
    from silograph.tasks.neural import Neural

Order = Literal["first", "second"]

QUERY, SUPPORT = "query", "support"
PROTECTED_UNIT = "one record"
PERSON = "one person (all records of a person at one client)"
IN_THE_CLEAR = "no protection was asked for"

#: The model with which a client continues: released if records are protected.
Known = Released | Array


def part_sizes(count: int) -> dict[str, int]:
    """The numbers of a client's records in its query set and in its support set."""
    return {QUERY: count - count // 2, SUPPORT: count // 2}


def divided(
    records: Sequence[tuple[NDArray[Any], NDArray[Any]]], names: Sequence[str], seed: int, most: int | None = None
) -> Private:
    """Split every client's records, or persons, into a query and a support set of equal size, padded to the largest
    client's.

    `most` is the number of records of the largest client, if it is not among these. The seed and the client's name
    decide which place of a table is in which set, not the table's values.
    """
    parts: dict[str, list[Any]] = {QUERY: [], SUPPORT: []}
    widths = part_sizes(max(len(y) for _, y in records) if most is None else most)
    for (x, y), identity in zip(records, silo_ids(names), strict=True):
        order = np.argsort(uniforms(draw_key(seed, 0, "roles"), [identity], len(y))[0], kind="stable")
        half = part_sizes(len(y))[QUERY]
        parts[QUERY].append((x[order[:half]], y[order[:half]]))
        parts[SUPPORT].append((x[order[half:]], y[order[half:]]))
    data: Private = {}
    for part, pairs in parts.items():
        data |= padded(pairs, part, widths[part])
    return data


def padded(pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]], part: str, width: int | None = None) -> Private:
    """Records of several clients as arrays whose axis 0 is the client, padded to a width or the largest's."""
    counts = np.array([len(y) for _, y in pairs])
    out: Private = {part: counts}
    for name, place in (("x", 0), ("y", 1)):
        first = pairs[0][place]
        out[f"{part}_{name}"] = np.zeros((len(pairs), width or counts.max(), *first.shape[1:]), dtype=first.dtype)
        for row, pair in zip(out[f"{part}_{name}"], pairs, strict=True):
            row[: len(pair[place])] = pair[place]
        out[f"{part}_{name}"].flags.writeable = False  # so that it can stay on the device that takes sums
    return out


@dataclass(frozen=True, eq=False)
class OneStart(Plain):
    """A server with one model, the start of all clients, which clients move in so many `rounds`.

    `weights` are the clients'.
    """

    task: Neural
    weights: tuple[int, ...]
    rounds: int

    def start(self, topo: Topology) -> Start:
        model = self.task.start
        servers: Carry = {
            "model": model,
            "round": np.int64(0),
            "movement": np.float64(0.0),
            "first": _first(model),
        }
        return Start({}, servers, {"model": everywhere(model, topo)})

    def limits(self) -> dict[str, Limits]:
        """How far models that start here may move before `moved` stops them."""
        farthest = DIVERGED * float(_first(self.task.start))
        return {"model": Limits(-farthest, farthest)}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        return moved(servers, across["model"][0], topo)

    def done(self, servers: Carry) -> bool:
        return int(servers["round"]) >= self.rounds

    def trace(self, servers: Carry) -> Json | None:
        return {"movement": float(servers["movement"])}

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        return Outcome({"model": servers["model"]}, {"rounds": int(servers["round"])})


@dataclass(frozen=True, eq=False)
class PrivateMeta(OneStart):
    """`inner_step` eta, `outer_step` beta, `local_steps` tau0, Poisson samples at `rate` q.

    `clip` bounds a record's gradient, `curvature_clip` (the same if left out) its curvature. Without a clip nothing is
    protected, and this is Per-FedAvg. Records may be given person by person; `protected_unit` is then a person.
    """

    inner_step: float = 0.1
    outer_step: float = 1.0
    local_steps: int = 1
    rate: float = 1.0
    order: Order = "second"
    clip: float | None = None
    curvature_clip: float | None = None
    protected_unit: str = PROTECTED_UNIT

    def __post_init__(self) -> None:
        positive = {name: getattr(self, name) for name in ("inner_step", "outer_step", "clip", "curvature_clip")}
        for name, good, expected in (
            *((name, value is None or 0.0 < value < math.inf, "a number above 0") for name, value in positive.items()),
            ("rounds", self.rounds >= 1, "a whole number from 1"),
            ("local_steps", self.local_steps >= 1, "a whole number from 1"),
            ("rate", 0.0 < self.rate <= 1.0, "a number above 0 and at most 1"),
            ("order", self.order in get_args(Order), ", ".join(get_args(Order))),
        ):
            if not good:
                raise InputError(f"private meta-learning, {name}", expected, f"found {getattr(self, name)}")

    def start(self, topo: Topology) -> Start:
        if len(self.weights) != len(topo.silos) or min(self.weights) < 1:
            raise InputError("private meta-learning", "a support record of every client", f"found {self.weights}")
        return super().start(topo)

    # ---- in the client ----

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        w: Known = down["model"]
        for step in range(self.local_steps):
            w = self._step(w, data, gate, step)
        if self.clip is None:
            return {}, {"model": gate.reveal(bare(w), "model", IN_THE_CLEAR)}
        assert isinstance(w, Released)  # nothing but released sums went into it
        return {}, {"model": w}

    def _step(self, w: Known, data: Private, gate: Outlet, step: int) -> Known:
        query = gate.poisson(data[QUERY], self.rate, f"query {step}", QUERY)
        support = gate.poisson(data[SUPPORT], self.rate, f"support {step}", SUPPORT)
        share = 0.5 if self.order == "second" else 1.0
        here = self._at(w, data, query)
        r1 = self._mean(here.gradient(self.clip), data, gate, query, f"inner {step}", self.clip, share)
        theta = descended(w, self.inner_step, r1)  # (7)
        there = self._at(theta, data, support)
        r2 = self._mean(there.gradient(self.clip), data, gate, support, f"outer {step}", self.clip)  # (11)
        if self.order == "first":
            return descended(w, self.outer_step, r2)
        bound = self.clip if self.curvature_clip is None else self.curvature_clip
        r3 = self._mean(here.curvature(bare(r2), bound), data, gate, query, f"curvature {step}", bound, share)  # (10)
        return descended(w, self.outer_step, descended(r2, self.inner_step, r3))  # (9)

    def _at(self, model: Known, data: Private, batch: Batch) -> Any:
        x, y = data[f"{batch.part}_x"], data[f"{batch.part}_y"]
        if y.ndim == 2:
            return self.task.at(bare(model), x, y, batch.chosen, self.rate)
        clients, persons, most = y.shape
        weights = shares(y, batch.chosen).reshape(clients, persons * most)
        x, y = (table.reshape(clients, persons * most, *table.shape[3:]) for table in (x, y))
        return self.task.at(bare(model), x, y, weights, self.rate)

    def _mean(
        self,
        total: Array,
        data: Private,
        gate: Outlet,
        batch: Batch,
        release_point: str,
        clip: float | None,
        share: float = 1.0,
    ) -> Known:
        """Take the sum over a sample, divided by its expected size, and release it if records are protected."""
        expected = self.rate * data[batch.part]

        def divide(part: slice) -> None:
            total[part] /= expected[part, None]

        in_parts(divide, len(total), total[:1].size)
        if clip is None:
            return total
        why = f"every record's part of the sum is clipped to {clip:g}; the sum is divided by the public q N"
        if self.protected_unit == PERSON:
            why = f"a person's records add their mean, each clipped to {clip:g}; the sum is divided by the public q N"
        unit = f"{self.protected_unit} of the {batch.part} set"
        bounded = Bounded(total, clip / expected, unit, why, ADD_OR_REMOVE_ONE)
        return gate.release(bounded, release_point, batch, share)

    # ---- at the server ----

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        return servers, {"model": gate.relay(mean_model(up.values["model"], np.array(self.weights)[up.rows])[None])}


def shares(y: NDArray[Any], chosen: BoolArray) -> NDArray[np.float32]:
    """The weight of every place for the chosen persons (K, N), with records (K, N, most): a person counts once, with
    equal weights of all records, less a margin for rounding in single precision."""
    there = present(y)
    each = (1.0 - 1e-6) / np.maximum(there.sum(-1, keepdims=True), 1)
    return np.asarray(chosen[..., None] * there * each, dtype=np.float32)


def _first(start: Array) -> np.float64:
    return np.float64(max(np.abs(start).max(), 1.0))


def near(start: Array) -> dict[str, Limits]:
    """How far models that start here may move before `moved` stops them."""
    farthest = DIVERGED * float(_first(start))
    return {"model": Limits(-farthest, farthest)}


def descended(model: Known, step: float, slope: Known) -> Known:
    """model - step * slope: released if both were."""
    if isinstance(model, Released) and isinstance(slope, Released):
        return model.map(_descended, step, slope)
    return _descended(bare(model), step, bare(slope))


def _descended(model: Array, step: float, slope: Array) -> Array:
    """Descend client by client: large models stay in the cache that way."""
    out = np.empty(model.shape)

    def descend(part: slice) -> None:
        for row, here, down in zip(out[part], model[part], slope[part], strict=True):
            np.multiply(down, -step, out=row)
            row += here

    in_parts(descend, len(out), out[:1].size)
    return out


def mean_model(models: Array, weights: NDArray[np.int64]) -> Array:
    """(3), over the clients that answered."""
    out, shares = np.zeros(models.shape[1]), weights / weights.sum()

    def add(part: slice) -> None:
        for model, share in zip(models, shares, strict=True):
            out[part] += share * model[part]

    in_parts(add, len(out), len(models))
    return out


def moved(servers: Carry, model: Array, topo: Topology) -> tuple[Carry, dict[str, Array]]:
    """Return the server's next state, and what it sends down; stop if the model has diverged."""
    if not np.isfinite(model).all():
        raise SolverError(
            "private meta-learning, server",
            "a model of finite numbers",
            f"some are infinite or no numbers after round {int(servers['round']) + 1}: the loss is no number",
            "Use smaller steps, or scale the features to about -1 to 1.",
        )
    todo = "Use smaller steps, or scale the features to about -1 to 1."
    check_growth(model[None], float(servers["first"]), "private meta-learning", topo, "steps are too large", todo)
    movement = np.float64(np.linalg.norm(model - servers["model"]))
    after = {**servers, "model": model, "round": servers["round"] + 1, "movement": movement}
    return after, {"model": everywhere(model, topo)}
