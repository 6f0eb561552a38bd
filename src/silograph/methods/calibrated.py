"""Private linear models that need no settings and fall back on a constant.

Every private value is a mean over protected units (agents, or records) of clipped vectors, from a secure sum; an
agent's vector is the mean over its records. All stages share one budget; `choose` divides it, from public numbers.

    look    the spread of answers: a histogram over their public range gives a centre and a scale; and the features'
            means and squares, if noise leaves anything of them. From here on all have mean 0 and size 1.
    length  r = 1 / sqrt(n), n being how many records an agent has (in the mean of logarithms): so much shorter than
            each is a mean of vectors that point anywhere
    level   the mean answer a: the constant
    step    w <- w + eta times the mean of e u, e = y - u.w or y - chance(u.w): gradient descent; its tail is averaged
            (an agent's mean is clipped to half of what chance alone makes it, r sqrt(features + 1) / 2: the noise
            beside what a shorter clip lets pass would be no less, and beside a longer one's more. Of agents with many
            records eta is up to three times as long: there is less noise, and further to go in steps so short)
    check   with f = u.w / |w|, the means of e, f, f^2 and e f, e = y - a: a second opinion on a, weighed with the
            first by their noise; and answers regressed on the model's own, so that

                prediction = a + s (f - mean f),    s = sure (mean e f) / variance of f

            sure being 0 to 1 as (mean e f)^2 is 1 to 6 times what noise, and the choice of w on the same records, make
            of it by themselves.

            A model of noise has s = 0: it is the constant.
    offset  the mean residual of each group, where groups share slopes
    spread  means of e^2 and of e e' over pairs of records of one agent, e being the finished model's residual: the
            second is the variance of agents' own constants, by which each can shrink its own (`own_constant`).

Clips cost nothing but bias; what they lose, `check` measures. A given step is refused where it may diverge
(`longest_step`). Groups (clusters) have levels, steps and checks of their own, shrunk to each other as far as their
spread may be noise; or one model together and levels of their own, where a group is too small for that; or all in
common. Features are within -1 and 1, and answers within public bounds: what lies beyond counts as the bound. A group
in which noise leaves no slopes, or that is too small for a sum, gets the mean of the others' slopes, weighted by
their units; so does one whose check finds nothing, as far as it could have missed them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.schema import check
from silograph.core.types import Array, BoolArray, Carry, Json
from silograph.methods.base import Limits, Outcome, Outlet, Plain, Private, Rows, ServerOutlet, Start, Up
from silograph.methods.calibration import (
    CHECK_CLIP,
    CLASS_SIZE,
    LONGEST,
    MOST_LONGER,
    MOST_RECORDS,
    SPREAD_CLIP,
    STAGES,
    STEP_CLIP,
    SURE,
    Choice,
    Stage,
    longest_step,
    offset_clip,
)
from silograph.privacy.bound import Bounded, clip_rows
from silograph.privacy.flooding import Joined
from silograph.privacy.released import Message, Sent
from silograph.tasks.linear import PROTECTED_UNIT, Linear
from silograph.topology import Topology

_BINS = 16
_LARGEST = 1e6


class _Seen(NamedTuple):
    """Means of a stage by group, their noise, the number of protected units in each, and which groups were heard."""

    mean: Array
    noise: Array
    units: Array
    heard: BoolArray


@dataclass(frozen=True)
class Calibrated(Plain):
    """The method. `groups` gives the group of every agent, in the topology's order. With `counts`, the public numbers
    of their records, a record is protected, else an agent. `answers` are the public bounds of answers; classes need
    none."""

    task: Linear
    groups: tuple[int, ...]
    choice: Choice
    answers: tuple[float, float] = (-1.0, 1.0)
    counts: tuple[int, ...] | None = None
    named: bool = False  # whether a ledger's rows name groups, or servers alone
    share: float = 1.0  # of the run's precision
    separate: bool = False  # whether every server is a group, which hears nothing from the others

    def __post_init__(self) -> None:
        check(self, "calibrated models")
        if self.task.loss == "huber":
            raise InputError("calibrated models, loss", "ridge or logistic", "found huber")
        longest = longest_step(self._slopes, self._classes, self.choice.moments)
        if self.choice.step > longest:
            largest = f"at most {_rounded_down(longest):g}, beyond which steps may grow without end"
            raise InputError(wording.setting("step"), largest, f"found {self.choice.step:g}", "Leave it out.")

    @cached_property
    def _count(self) -> int:
        return max(self.groups) + 1

    @property
    def _classes(self) -> bool:
        return self.task.loss == "logistic"

    @property
    def most_rounds(self) -> int:
        return len(self.choice.schedule)

    @property
    def _slopes(self) -> int:
        """Features without the constant, which comes last."""
        return self.task.features - 1

    def start(self, topo: Topology) -> Start:
        slopes, count = self._slopes, self._count
        servers: Carry = {
            "cell": topo.home * count + np.array(self.groups, dtype=np.intp)[topo.graph.index(topo.silos)],
            "round": np.int64(0),
            "came": np.int64(0),
            "movement": np.float64(0.0),
            "where": np.tile([0.0, 1.0], (count, 1)),  # centre and scale of the answers, within -1 and 1
            "scales": np.tile([[0.0], [0.5]], (count, 1, slopes)),
            "length": np.ones(count),
            "level": np.zeros(count),
            "level_noise": np.zeros(count),
            "model": np.zeros((count, slopes + 1)),
            "tail": np.zeros((count, slopes + 1)),
            "tail_noise": np.zeros(count),
            "scatter": np.zeros((count, 4)),  # of residuals: products of pairs, squares, how many have pairs; and noise
        }
        return Start({}, servers, self.answer(servers))

    def _stage(self, round: int) -> Stage:
        return self.choice.schedule[min(round, self.most_rounds - 1)][0]

    def answer(self, servers: Carry) -> dict[str, Array]:
        group = servers["cell"] % self._count
        stage = STAGES.index(self._stage(int(servers["round"])))
        told = {name: servers[name][group] for name in ("where", "scales", "length", "level", "model")}
        return {"stage": np.full(len(group), float(stage)), **told}

    def limits(self) -> dict[str, Limits]:
        wide = Limits(-_LARGEST, _LARGEST)
        return {
            "stage": Limits(0.0, len(STAGES) - 1.0, whole=True),
            "where": Limits(np.array([-1.0, 1e-3]), np.array([1.0, 1.0])),
            "scales": Limits(np.array([[-1e3], [1e-2]]), np.array([[1e3], [1e3]])),
            "length": Limits(1.0 / math.sqrt(MOST_RECORDS), 1.0),
            "level": wide,
            "model": wide,
        }

    # ---- in the agent ----

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        told = {name: field.value for name, field in down.items()}
        stage = STAGES[int(told["stage"][0])]
        vectors, clip = self._vectors(stage, told, data)
        share = dict(self.choice.schedule)[stage] * self.share  # every step has the same
        joined = not self.separate
        real = (np.arange(data["y"].shape[1]) < data["count"][:, None]).astype(np.float64)
        if self.counts is None:
            mean = np.einsum("nr,nrk->nk", real, vectors) / (data["count"] * _size(stage, told["length"]))[:, None]
            return {}, {"sum": gate.contribute(mean, stage, clip, share, joined)}
        # A record of a pair is in two vectors.
        reach, why = (2.0, ", and so is its pair's") if stage == "spread" else (1.0, "")
        total = np.einsum("nr,nrk->nk", real, clip_rows(vectors, clip))
        l2 = np.full(len(total), 2.0 * reach * clip)
        bounded = Bounded(total, l2, PROTECTED_UNIT, f"what a record adds is clipped to {clip:g}{why}")
        return {}, {"sum": gate.contribute(bounded, stage, clip * max(self.counts), share, joined)}

    def _vectors(self, stage: Stage, told: dict[str, Array], data: Private) -> tuple[Array, float]:
        """Return what every record adds (n, most, K), and the greatest length allowed for the vector of a protected
        unit."""
        y = within(data["y"], self.answers, self.task.loss)
        x = np.clip(data["x"][..., :-1], -1.0, 1.0)
        if stage == "look":
            parts = [] if self._classes else [_histogram(y)]
            parts += [x / math.sqrt(self._slopes), x**2 / math.sqrt(self._slopes)] if self.choice.moments else []
            return np.concatenate(parts, -1), math.sqrt((not self._classes) + 2.0 * self.choice.moments)
        if stage == "length":
            records = np.minimum(np.log2(data["count"]) / math.log2(MOST_RECORDS), 1.0)
            return np.broadcast_to(2.0 * records[:, None, None] - 1.0, (*y.shape, 1)), 1.0
        y = self._centred(y, told["where"])
        if stage == "level":
            return y[..., None], self.choice.level_clip
        u = (x - told["scales"][:, None, 0]) / told["scales"][:, None, 1]
        w, level = told["model"], told["level"][:, None]
        margin = np.einsum("nrm,nm->nr", u, w[:, :-1])
        if stage == "step":
            e = self._residual(y, margin + w[:, None, -1])
            u = np.concatenate([u, np.ones((*u.shape[:2], 1))], -1)
            return e[..., None] * u, STEP_CLIP * math.sqrt(self._slopes + 1.0)  # (step)
        if stage == "check":
            f = np.clip(margin / _length(w[:, :-1]), -2.0, 2.0)
            e = self._residual(y, level)
            return np.stack([np.broadcast_to(e, f.shape), f, e * f, 0.5 * f**2], -1), CHECK_CLIP
        if stage == "offset":
            return self._residual(y, margin + w[:, None, -1])[..., None], offset_clip(self._classes)
        e = np.clip(self._residual(y, margin + w[:, None, -1]), -3.0, 3.0)
        pair, paired = _in_pairs(e, data["count"])
        return np.stack([pair, 0.5 * e**2, paired], -1), SPREAD_CLIP

    def _centred(self, y: Array, where: Array) -> Array:
        return y if self._classes else np.clip((y - where[:, :1]) / where[:, 1:], -LONGEST, LONGEST)

    def _residual(self, y: Array, margin: Array) -> Array:
        """Of size about 1."""
        if self._classes:
            return np.asarray((0.5 * (y + 1.0) - _chance(margin)) / CLASS_SIZE)
        return np.asarray(y - margin)

    # ---- at the servers ----

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        stage = self._stage(int(servers["round"]))
        seen = self._means(stage, servers["cell"], up, topo, gate)
        size = _size(stage, servers["length"])[: len(seen.mean)]
        seen = seen._replace(mean=size[:, None] * seen.mean, noise=size * seen.noise)
        fresh = {
            "look": self._looked,
            "length": self._measured,
            "level": self._levelled,
            "step": self._stepped,
            "check": self._checked,
            "offset": self._own_levels,
            "spread": self._spread,
        }[stage](servers, seen)
        moved = float(np.abs(fresh.get("model", servers["model"]) - servers["model"]).max())
        servers = {**servers, **fresh, "came": np.int64(len(up.rows)), "movement": np.float64(moved)}
        return servers, {"sums": gate.relay(np.repeat(seen.mean[None], len(topo.servers), 0))}

    def _means(self, stage: Stage, cells: Rows, up: Up, topo: Topology, gate: ServerOutlet) -> _Seen:
        """Return the means of groups if they have their own models, else one over everybody."""
        apart, count = self._apart(stage), self._count if self.named else 1
        group = cells % self._count if apart else np.zeros_like(cells)
        cell, border, joined = topo.home, gate, None
        if not self.separate:
            server, of = np.divmod(np.arange(len(topo.servers) * count), count)
            names = [f"group {q}" for q in range(self._count)] if apart else ["everybody"]
            joined = Joined.over(topo.mixing, of if apart else np.zeros_like(of), server, *names)
            if self.named:
                cell = cells
                border = gate.over([f"{topo.servers[s]}/cluster-{q}" for s, q in zip(server, of, strict=True)])
        total = border.total(up.sealed["sum"], up.rows, cell, topo.silos, joined)
        assert total.noise is not None, "agents put the noise in"
        size = self._count if apart else 1
        units = np.maximum(self._units(total.counts[:size], up.rows[total.summed], group), 1.0)
        heard, noise = total.counts[:size] > 0.0, total.noise[:size] / units
        if apart and not self.separate and stage in ("step", "check"):  # of the others the large groups know more
            clip = STEP_CLIP * math.sqrt(self._slopes + 1.0) if stage == "step" else CHECK_CLIP
            heard &= noise * math.sqrt(dict(self.choice.schedule)[stage]) / clip <= self.choice.most_noise
        return _Seen(total.sums[:size] / units[:, None], noise, units, heard)

    def _apart(self, stage: Stage) -> bool:
        """Whether groups are added up one by one."""
        alone = stage == "offset" or (stage in ("level", "step", "check") and not self.choice.together)
        return self.separate or (self._count > 1 and alone)

    def _units(self, agents: Array, there: Rows, group: NDArray[np.intp]) -> Array:
        """The number of protected units in each sum."""
        if self.counts is None:
            return agents
        records = np.asarray(self.counts, dtype=np.float64)[there]
        return np.asarray(np.bincount(group[there], records, len(agents)), dtype=np.float64)

    def _looked(self, servers: Carry, seen: _Seen) -> Carry:
        """One for all groups."""
        mean, noise, fresh = seen.mean, seen.noise, {}
        if not self._classes:
            found = [_spread_of(row[:_BINS], float(off)) for row, off in zip(mean, noise, strict=True)]
            fresh["where"], mean = np.array(found), mean[:, _BINS:]
        if self.choice.moments:
            centre, square = (mean * math.sqrt(self._slopes)).reshape(-1, 2, self._slopes).swapaxes(0, 1)
            least = np.maximum(2.0 * noise * math.sqrt(self._slopes), 0.01)[:, None]
            fresh["scales"] = np.stack([centre, np.sqrt(np.maximum(square - centre**2, least))], 1)
        return {name: np.array(np.broadcast_to(value, servers[name].shape)) for name, value in fresh.items()}

    def _measured(self, servers: Carry, seen: _Seen) -> Carry:
        records = MOST_RECORDS ** np.clip(0.5 * (seen.mean[:, 0] + 1.0), 0.0, 1.0)
        length = 1.0 / np.sqrt(records)
        return {"length": np.array(np.broadcast_to(length, servers["length"].shape))}

    def _levelled(self, servers: Carry, seen: _Seen) -> Carry:
        if not self.separate:
            seen = _towards_each_other(seen)
        mean, noise = seen.mean[:, 0], seen.noise
        if not self._classes:  # no answer is beyond the public bounds, and so is no mean of them
            centre, scale = servers["where"][: len(mean)].T
            mean = np.clip(mean, (-1.0 - centre) / scale, (1.0 - centre) / scale)
        else:
            share = np.clip(0.5 * (mean + 1.0), 0.02, 0.98)
            mean, noise = np.log(share / (1.0 - share)), 0.5 * noise / (share * (1.0 - share))
        model = servers["model"].copy()
        model[:, -1] = mean
        return {"level": model[:, -1].copy(), "level_noise": noise + np.zeros(self._count), "model": model}

    def _stepped(self, servers: Carry, seen: _Seen) -> Carry:
        size = CLASS_SIZE if self._classes else 1.0
        eta = self.choice.step * np.minimum(servers["length"] ** -0.5, MOST_LONGER)[:, None]
        model = servers["model"] + eta * size * seen.mean
        model = np.column_stack([clip_rows(model[:, :-1], LONGEST), np.clip(model[:, -1], -LONGEST, LONGEST)])
        done = int(servers["round"]) - [stage for stage, _ in self.choice.schedule].index("step") + 1
        half = max(self.choice.rounds // 2, 1)
        if done <= self.choice.rounds - half:
            return {"model": model}
        tail = servers["tail"] + model / half
        if done < self.choice.rounds:
            return {"model": model, "tail": tail}
        # A mean of the last half of the steps has the noise of that half, divided by the loss's curvature.
        noise = seen.noise / math.sqrt(half) * size * (4.0 if self._classes else 1.0)
        found = seen._replace(mean=tail, noise=noise)
        if self._apart("step") and not self.separate:
            found = _towards_each_other(found)
        return {"model": found.mean, "tail": tail, "tail_noise": found.noise + np.zeros(self._count)}

    def _checked(self, servers: Carry, seen: _Seen) -> Carry:
        """Move along the line from the constant to the model, as far as it pays."""
        e, f, ef, ff = seen.mean.T
        ef = ef - e * f
        level = servers["level"]
        size, curve = self._scale_of_level(level)
        spread = np.maximum(np.maximum(2.0 * ff - f**2, 4.0 * seen.noise), 0.1)
        # A direction found on these very records fits d / n of them by chance; clips and few steps leave half of that.
        chance = seen.noise**2 + 0.5 * self._slopes * servers["length"][: len(e)] ** 2 / seen.units
        w, length = servers["model"][:, :-1], _length(servers["model"][:, :-1])[:, 0]
        per = size / (spread * curve)
        s = np.maximum(ef, 0.0) * per
        if not self._classes:  # of classes the line's slope at the constant is not that farther out
            s = _of_two(s, seen.noise / spread, length, servers["tail_noise"], self._slopes)
        sure = np.where(seen.heard, _sure(np.maximum(ef, 0.0) ** 2, chance), 0.0)
        line = np.column_stack([w / length[:, None], -f * np.ones_like(s)])
        model = np.minimum(sure * s, length)[:, None] * line
        if self._apart("check") and not self.separate:
            model += (1.0 - sure)[:, None] * _of_others(np.minimum(s, length)[:, None] * line, chance * per**2, seen)
        first, second = servers["level_noise"] ** 2, (seen.noise * size / curve) ** 2
        model[:, -1] += level + np.where(seen.heard, _part(first, second) * e * size / curve, 0.0)
        return {"model": model}

    def _own_levels(self, servers: Carry, seen: _Seen) -> Carry:
        """Levels of groups that share slopes: their mean residuals, shrunk to the mean of all."""
        size, curve = self._scale_of_level(servers["level"])
        off, noise = seen.mean[:, 0] * size / curve, seen.noise * size / curve
        model = servers["model"].copy()
        if self.separate:
            model[:, -1] += off
            return {"model": model}
        weight = np.where(seen.heard, seen.units, 0.0)
        off = np.where(seen.heard, off - weight @ off / max(float(weight.sum()), 1.0), 0.0)
        between = _between_groups(seen._replace(mean=off[:, None], noise=noise))
        model[:, -1] += off * _part(np.full(len(off), between), noise**2)
        return {"model": model}

    def _scale_of_level(self, level: Array) -> tuple[float, Array]:
        """The scale by which residuals were divided, and the slope of chances there."""
        if not self._classes:
            return 1.0, np.ones_like(level)
        return CLASS_SIZE, _chance(level) * (1.0 - _chance(level))

    def _spread(self, servers: Carry, seen: _Seen) -> Carry:
        found = np.column_stack([seen.mean, seen.noise])
        return {"scatter": np.array(np.broadcast_to(found, servers["scatter"].shape))}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        servers = {**servers, "round": servers["round"] + 1}
        if not self.choice.slopes and self._stage(int(servers["round"] - 1)) == "level":
            servers["model"] = np.column_stack([np.zeros((self._count, self._slopes)), servers["level"]])
        return servers, self.answer(servers)

    # ---- what comes of it ----

    def done(self, servers: Carry) -> bool:
        return bool(servers["round"] >= self.most_rounds)

    def trace(self, servers: Carry) -> Json | None:
        answered = int(servers["came"])
        movement = float(servers["movement"])
        return {"movement": movement, "disagreement": 0.0, "answered": answered, "skipped": 0}

    def instead(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        """Return nothing: nobody hands over anything."""
        return {}

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        """Return models for features within -1 and 1 and answers in their own units, and the variance of agents'
        constants."""
        centre, scale = servers["scales"].swapaxes(0, 1)
        slopes = servers["model"][:, :-1] / scale
        constant = servers["model"][:, -1:] - (slopes * centre).sum(1, keepdims=True)
        if not self._classes:
            low, high = self.answers
            where = 0.5 * (high + low) + 0.5 * (high - low) * servers["where"][:, :1]
            unit = 0.5 * (high - low) * servers["where"][:, 1:]
            slopes, constant = unit * slopes, unit * constant + where
        model = np.concatenate([slopes, constant], 1)
        own = model[servers["cell"] % self._count]
        each = np.repeat(model[None], len(topo.servers), 0)
        arrays = {"model": each[:, 0], "centroid": model[0], "cell_model": own, "cluster_model": each}
        arrays["variance"] = np.array([_between(servers["scatter"][0], self._classes)])
        return Outcome(arrays, {"rounds": int(servers["round"]), "disagreement": 0.0, "clusters": self._count})


def _rounded_down(x: float) -> float:
    """To four decimals, so that what an error names is allowed."""
    return math.floor(1e4 * x) / 1e4


def within(y: Array, answers: tuple[float, float], loss: str) -> Array:
    """Scale answers to -1 to 1 by their public bounds; classes are so already."""
    low, high = answers
    return np.asarray(np.sign(y) if loss == "logistic" else np.clip((2.0 * y - low - high) / (high - low), -1.0, 1.0))


def own_constant(model: Array, x: Array, y: Array, variance: float, classes: bool) -> Array:
    """Return a model with an agent's own constant, computed from its records alone.

    `variance` is the variance of agents' constants: relative to a record's noise, or of logits for classes.
    """
    margin = x @ model
    shift = 0.0
    if variance <= 0.0:
        return model
    for _ in range(20 if classes else 1):  # Newton's method
        if classes:
            chance = _chance(margin + shift)
            pull, curve = float((0.5 * (np.sign(y) + 1.0) - chance).sum()), float((chance * (1.0 - chance)).sum())
        else:
            pull, curve = float((y - margin - shift).sum()), float(len(y))
        shift += (pull - shift / variance) / (curve + 1.0 / variance)
    return np.asarray([*model[:-1], model[-1] + shift])


def _between(scatter: Array, classes: bool) -> float:
    """The variance of agents' own constants, from what `spread` released."""
    pairs, half_squares, paired, noise = scatter
    if min(paired, half_squares, pairs) <= noise:
        return 0.0
    pairs -= noise**2 / pairs  # what of it is noise
    between, whole = pairs / paired, 2.0 * half_squares
    if classes:  # products of y - chance are those of logits times the curvature twice
        curve = min(whole * CLASS_SIZE**2, 0.25)
        return float(between * CLASS_SIZE**2 / curve**2)
    return float(between / max(whole - between, 0.1 * whole))


def _size(stage: Stage, length: Array) -> Array:
    """The length of an agent's mean vector relative to that of an agent with one record; of a check, half f^2 stays."""
    if stage == "step":
        return length
    return 0.5 * (1.0 + length) if stage == "check" else np.ones_like(length)


def _in_pairs(e: Array, count: Array) -> tuple[Array, Array]:
    """Half the products of records 0 and 1, 2 and 3, ..., each at its first record's place, and 1/2 at every such
    place."""
    most = e.shape[1]
    partner = np.concatenate([e[:, 1:], np.zeros((len(e), 1))], 1)
    place = np.arange(most)
    there = ((place % 2 == 0) & (place + 1 < count[:, None])).astype(np.float64)
    return 0.5 * e * partner * there, 0.5 * there


def _histogram(y: Array) -> Array:
    return np.asarray(np.eye(_BINS)[np.minimum(((y + 1.0) * 0.5 * _BINS).astype(np.intp), _BINS - 1)])


def _spread_of(shares: Array, noise: float) -> Array:
    """Centre and scale of what a noisy histogram shows; what it does not show lies beside that, so far as it shows
    most, or anywhere. An amount that noise alone could show, or hide in a bin, is not known to be there."""
    middle = (np.arange(_BINS) + 0.5) * 2.0 / _BINS - 1.0
    unsure = min(SURE * noise, 1.0)
    seen = shares > unsure
    beside = ~seen & (np.convolve(seen, np.ones(3), "same") > 0.0)
    shown = float(shares[seen].sum())
    rest = max(1.0 - shown, unsure)
    anywhere = max(rest**2, min(rest, unsure)) if beside.any() else rest
    chance = np.where(seen, shares * (1.0 - rest) / max(shown, 1e-9), anywhere / max(int((~seen).sum()), 1))
    chance += (rest - anywhere) * beside / max(int(beside.sum()), 1)
    chance = chance / chance.sum()
    centre = float((chance * middle).sum())
    scale = math.sqrt(float((chance * (middle - centre) ** 2).sum()) + (2.0 / _BINS) ** 2 / 12.0)
    return np.array([centre, min(scale, 1.0)])


def _most_by_noise(free: int) -> float:
    """How large the mean of so many squares of standard normal numbers is at most, but for one case in twenty (Wilson
    and Hilferty 1931): groups that are apart by less may be alike. With Laplace noise, alike ones pass for different
    more often; then they are still drawn to each other."""
    part = 2.0 / (9.0 * free)
    return (1.0 - part + 1.645 * math.sqrt(part)) ** 3


def _precision(seen: _Seen) -> Array:
    return np.divide(1.0, seen.noise**2, out=np.zeros(len(seen.noise)), where=seen.heard)


def _between_groups(seen: _Seen) -> float:
    """The variance of groups' values that is not noise (DerSimonian and Laird 1986): with weights p_q = 1 / noise_q^2

    sum p_q |value_q - mean|^2 / K  =  groups - 1  +  variance (sum p_q - sum p_q^2 / sum p_q)  in expectation,

    so that a group that is little but noise has little say."""
    p, free = _precision(seen), int(seen.heard.sum()) - 1
    if free < 1:
        return 0.0
    off = np.where(seen.heard[:, None], seen.mean - p @ seen.mean / p.sum(), 0.0)
    most = _most_by_noise(free * off.shape[1]) * free
    return max(float(p @ (off**2).mean(1)) - most, 0.0) / float(p.sum() - (p**2).sum() / p.sum())


def _towards_each_other(seen: _Seen) -> _Seen:
    """Means of groups shrunk to their common mean by the part of their spread that noise may make (empirical Bayes),
    and what noise is left; groups that were not heard get the mean of all units that were."""
    if len(seen.mean) == 1 or not seen.heard.any():
        return seen
    p, noise = _precision(seen), seen.noise**2
    common = p @ seen.mean / p.sum()
    kept = np.where(seen.heard, _part(np.full(len(p), _between_groups(seen)), noise), 0.0)
    mean = np.where(seen.heard[:, None], common + kept[:, None] * (seen.mean - common), 0.0)
    units = np.where(seen.heard, seen.units, 0.0)
    mean[~seen.heard] = units @ mean / units.sum()
    left = kept * np.where(seen.heard, noise, 0.0) + (1.0 - kept) ** 2 / p.sum()
    return seen._replace(mean=mean, noise=np.sqrt(left))


def _of_others(line: Array, off: Array, seen: _Seen) -> Array:
    """What a group gets for want of slopes of its own: the mean of the others' lines, weighted by their units, as far
    as its slopes are sure, and as far as the group's own check (noise variance `off`) could have missed them."""
    units = np.where(seen.heard, seen.units, 0.0)
    others = np.maximum(units.sum() - units, 1.0)
    mean = (units @ line - units[:, None] * line) / others[:, None]
    noise = (units**2 @ off - units**2 * off) / others**2
    mean *= _sure((mean[:, :-1] ** 2).sum(1), np.maximum(noise, 1e-300))[:, None]
    missed = np.where(seen.heard, 1.0 - _sure((mean[:, :-1] ** 2).sum(1), off), 1.0)
    return np.asarray(missed[:, None] * mean)


def _sure(square: Array, chance: Array) -> Array:
    """From 0 to 1 as a square is 1 to 6 times what chance makes of it."""
    return np.clip((square / chance - 1.0) / 5.0, 0.0, 1.0)


def _of_two(s: Array, off: Array, length: Array, noise: Array, slopes: int) -> Array:
    """How far to go along a model's line, by two opinions weighed by their noise: the check's `s`, and the model's own
    length, less what noise in so many slopes adds to it."""
    own = np.maximum(length - slopes * noise**2 / length, 0.0)
    return np.asarray(s + (own - s) * _part(off**2, noise**2))


def _part(one: Array, other: Array) -> Array:
    """The share of `one` in both; none where both are 0, as in groups that were not heard."""
    return np.divide(one, one + other, out=np.zeros(np.broadcast(one, other).shape), where=one + other > 0.0)


def _length(w: Array) -> Array:
    return np.asarray(np.maximum(np.sqrt((w**2).sum(-1, keepdims=True)), 1e-9))


def _chance(margin: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * margin)))
