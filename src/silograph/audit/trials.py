"""Trials of an audit: the plan's own method through the real gate, beside what other worlds would have released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from silograph.audit.stages import Bits, Drawn, Noises, Stage, trial_names
from silograph.core.errors import InputError
from silograph.core.types import Array, BoolArray
from silograph.methods.base import Rows
from silograph.privacy.accounting import GAUSSIANS
from silograph.privacy.attacks.one_run import Aligned
from silograph.privacy.attacks.scores import Release, log_ratios, sampled_places
from silograph.privacy.bound import Bounded
from silograph.privacy.door import Door
from silograph.privacy.flooding import Joined
from silograph.privacy.gate import Gate
from silograph.privacy.ledger import Ledger, Row
from silograph.privacy.masking import MaskedSum
from silograph.privacy.released import Batch, Released, Sealed, Total, sealed_rows
from silograph.privacy.sums import sum_of


@dataclass(frozen=True, eq=False)
class There:
    """Which canaries are present, trial by trial, and after them so many others, which always are. If records are
    sampled, all further places are empty, in both worlds: the relation is then to leave a place empty, and a sample
    never takes an empty one. Tables hold these alone, and one record of a part that has none."""

    part: str
    bits: Bits
    others: int = 0

    def rows(self, index: Sequence[int] | Rows) -> There:
        return replace(self, bits=self.bits[index]) if self.part else self

    def among(self, batch: Batch) -> Batch:
        if batch.part != self.part:
            return replace(batch, chosen=np.zeros((len(batch.chosen), 1), dtype=np.bool_))
        there = np.concatenate([self.bits, np.ones((len(self.bits), self.others), dtype=np.bool_)], 1)
        return replace(batch, chosen=batch.chosen[:, : there.shape[1]] & there)


@dataclass(frozen=True, eq=False)
class Kept:
    """The releases, by release point, with the stated bound: how far one record can move it. Also the members of
    samples, the requested sums with noise of their members, and messages that leak."""

    observed: dict[str, Released | Total] = field(default_factory=dict)
    stated: dict[str, Array] = field(default_factory=dict)
    coins: dict[str, BoolArray] = field(default_factory=dict)
    sums: dict[str, list[MaskedSum]] = field(default_factory=dict)
    leaks: list[str] = field(default_factory=list)


class Tap:
    """A gate that records what it lets out. Everything passes unchanged."""

    def __init__(self, gate: Gate, kept: Kept, there: There) -> None:
        self._gate, self._kept, self._there = gate, kept, there

    def rows(self, index: Sequence[int] | Rows) -> Tap:
        return Tap(self._gate.rows(index), self._kept, self._there.rows(index))

    def over(self, names: Sequence[str]) -> Tap:
        return Tap(self._gate.over(names), self._kept, self._there)

    def poisson(self, counts: Array, rate: float, release_point: str, part: str) -> Batch:
        made = self._there.among(self._gate.poisson(counts, rate, release_point, part))
        self._kept.coins[made.name] = made.chosen
        return made

    def release(self, bounded: Bounded, release_point: str, batch: Batch | None = None, share: float = 1.0) -> Released:
        # Positional and only if needed: some gates of tests take two arguments.
        made = (
            self._gate.release(bounded, release_point)
            if batch is None and share == 1.0
            else self._gate.release(bounded, release_point, batch, share)
        )
        self._kept.observed[release_point], self._kept.stated[release_point] = made, np.array(bounded.l2)
        return made

    def reveal(self, value: Array, release_point: str, why: str) -> Released:
        return self._gate.reveal(value, release_point, why)

    def contribute(
        self,
        value: Array | Bounded,
        release_point: str,
        clip: float | None = None,
        share: float = 1.0,
        joined: bool = False,
    ) -> Sealed:
        # Gates of tests take fewer arguments: pass no more than needed.
        more = {"joined": True} if joined else {}
        return self._gate.contribute(value, release_point, clip, share, **more)

    def total(
        self,
        sealed: Sealed,
        rows: Rows,
        home: Rows,
        names: Sequence[str],
        joined: Joined | None = None,
    ) -> Total:
        assert joined is None, "a trial has one server"
        made = self._gate.total(sealed, rows, home, names)
        if made.released:
            self._kept.observed[sealed.release_point], self._kept.stated[sealed.release_point] = made, _stated(sealed)
            regions = [tuple(names[k] for k in rows[home[rows] == p]) for p in range(len(self._gate.silos))]
            asked = zip(regions, self._gate.silos, strict=True)
            self._kept.sums[sealed.release_point] = [
                sum_of(self._gate, sealed, members, region) for members, region in asked
            ]
        return made

    def relay(self, value: Array) -> Released:
        return self._gate.relay(value)

    def uniforms(self, count: int, release_point: str) -> Array:
        return self._gate.uniforms(count, release_point)

    def sync(self) -> None:
        """Do nothing: rows of trials are read from the door."""


class Replay(Tap):
    """Replaces a gate: keeps what a world would have released there, and returns the real release.

    The attacker does not know the canaries' coins of a sample: here all of them are in it, and the score weighs the
    chance. It knows the coins of the others.
    """

    def __init__(self, gate: Gate, kept: Kept, inside: dict[str, Array], there: There, servers: int) -> None:
        super().__init__(gate, kept, there)
        self._inside, self._servers = inside, servers

    def rows(self, index: Sequence[int] | Rows) -> Replay:
        return Replay(self._gate.rows(index), self._kept, self._inside, self._there.rows(index), self._servers)

    def over(self, names: Sequence[str]) -> Replay:
        return Replay(self._gate.over(names), self._kept, self._inside, self._there, len(names))

    def poisson(self, counts: Array, rate: float, release_point: str, part: str) -> Batch:
        made = replace(self._there.among(self._gate.poisson(counts, 1.0, release_point, part)), rate=rate)
        if part == self._there.part and self._there.others:
            made.chosen[:, -self._there.others :] = self._kept.coins[made.name][:, -self._there.others :]
        return made

    def release(self, bounded: Bounded, release_point: str, batch: Batch | None = None, share: float = 1.0) -> Released:
        made = self._kept.observed.get(release_point)
        if not isinstance(made, Released):
            raise InputError(
                f"audit, {release_point!r}", "the same releases whatever the records", "found one in one world only"
            )
        self._inside[release_point] = np.array(bounded.value)
        self._compare(release_point, bounded.l2)
        return made

    def _compare(self, release_point: str, stated: Array) -> None:
        """Compare sensitivities: the ledger shows them to all, and noise follows them, so they may not depend on
        records."""
        if not np.array_equal(stated, self._kept.stated[release_point]):
            self._kept.leaks.append(
                f"how far a record can move what is released at {release_point!r} changes with the records"
            )

    def reveal(self, value: Array, release_point: str, why: str) -> Released:
        raise InputError(f"audit, {release_point!r}", "nothing revealed to who is promised something", "it was")

    def total(
        self,
        sealed: Sealed,
        rows: Rows,
        home: Rows,
        names: Sequence[str],
        joined: Joined | None = None,
    ) -> Total:
        assert joined is None, "a trial has one server"
        value, place = sealed_rows(sealed), home[rows]
        sums = np.zeros((self._servers, value.shape[1]))
        np.add.at(sums, place, value)
        made = self._kept.observed.get(sealed.release_point)
        if isinstance(made, Total):
            self._inside[sealed.release_point] = sums
            self._compare(sealed.release_point, _stated(sealed))
            return made
        counts = np.bincount(place, minlength=self._servers).astype(np.float64)
        return Total(sums, counts, False, np.ones(len(rows), dtype=np.bool_))


def _stated(sealed: Sealed) -> Array:
    """The clip of a vector, and how far a protected unit within it can move it; 0 if there is none."""
    return np.array([sealed.clip or 0.0, 0.0 if sealed.within is None else sealed.within.l2])


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample of the records in n trials: where its releases lie between the worlds, how far these are apart, both
    in units of the stated noise, and whether the canary was in it."""

    place: Array
    apart: Array
    coin: BoolArray


@dataclass(eq=False)
class Played:
    """Trials that ran: the ledger rows of the first, scores (trials, canaries), the features behind them, and the place
    of a message that revealed more than the releases. `losses` are of the canary, if a model is sent, and `aligned` is
    how far the releases lie along all canaries together."""

    rows: list[Row]
    scores: Array
    aligned: Aligned = field(default_factory=Aligned)
    features: list[Array] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    losses: Array | None = None
    leak: str | None = None


def play(stage: Stage, bits: Bits, root: int, hidden: frozenset[str] = frozenset()) -> Played:
    """Play all trials of `bits` at once, round by round, each beside the worlds to compare: the one without any canary,
    and the ones with each of the different canaries alone.

    Noise is named by the root, the trial's number and the place: two plays with one root have the same.
    """
    trials, canaries = bits.shape
    played = Played([], np.zeros(bits.shape))
    names, data, memory = trial_names(trials), stage.tables(bits), stage.begin(trials)
    different = min(canaries, stage.distinct or canaries)
    worlds = np.eye(different + 1, canaries, -1, dtype=np.bool_)
    others = [np.repeat(world[None], trials, 0) for world in worlds]
    tables = [stage.tables(other) for other in others]
    memories = [memory for _ in worlds]
    told: dict[str, Array] = {}
    for number in stage.rounds:
        door = Door(root, Ledger(), stage.mechanism(trials), masks=stage.masks)
        gate = door.gate(names, number, stage.observer)
        kept = Kept()
        memory, told = stage.step(number, memory, data, Tap(gate, kept, There(stage.part, bits, stage.company)))
        seen = [row for row in door.waiting if row.observer not in hidden and stage.about(row)]
        played.rows += [row for row in seen if row.silo.split("/")[0] == names[0]]
        if any(row.mechanism == "reveal" for row in seen):
            continue  # nothing is promised to this observer, and no likelihood is needed
        charged = {row.release_point for row in door.waiting}
        for release_point in kept.observed.keys() - charged:
            played.leak = (
                played.leak or f"what was released at {release_point!r} in round {number} has no row in the ledger"
            )
        insides: list[dict[str, Array]] = []
        for k, table in enumerate(tables):
            inside: dict[str, Array] = {}
            again_gate = Replay(gate, kept, inside, There(stage.part, others[k], stage.company), trials)
            memories[k], again = stage.step(number, memories[k], table, again_gate)
            insides.append(inside)
            played.leak = played.leak or _difference(told, again, number)
        played.leak = played.leak or next(iter(kept.leaks), None)
        told_of = {row.release_point for row in seen}
        views: dict[str, Array] = {}
        for release_point, made in kept.observed.items():
            if release_point in told_of:
                observed = made.value if isinstance(made, Released) else made.sums
                noises = stage.noises(Drawn(root, number, release_point, observed, kept.sums.get(release_point, ())))
                played.leak = played.leak or _alike(noises, release_point)
                views[release_point] = stage.view(observed if noises is None else observed - noises.revealed)
        places = [
            _Place.of(
                stage,
                [row for row in seen if row.release_point == release_point],
                view,
                [x[release_point] for x in insides],
                canaries,
            )
            for release_point, view in views.items()
        ]
        for k in range(canaries):
            releases = [place.beside(k) for place in places]
            played.scores[:, k] += log_ratios(releases)
            if canaries == 1:
                own = [place.rows[0].part in ("", stage.part) for place in places]
                _keep_places(played, list(compress(releases, own)), kept.coins)
        for place in places:
            first = place.rows[0]
            if canaries > 1 and first.mechanism in GAUSSIANS and first.part in ("", stage.part):
                place.align(played.aligned, _who(kept.coins.get(first.batch), bits))
    if stage.loss is not None:
        played.losses = stage.loss(told)
    return played


def _who(sampled: BoolArray | None, bits: Bits) -> BoolArray:
    """Which canaries are in a release: those in its sample, if canaries can be in that sample."""
    return bits if sampled is None or sampled.shape != bits.shape else sampled


def _keep_places(played: Played, releases: Sequence[Release], coins: Mapping[str, BoolArray]) -> None:
    played.features += [release.place()[0] for release in releases if release.sampling == 1.0]
    sampled = [release for release in releases if release.sampling < 1.0]
    for batch, (place, apart) in sampled_places(sampled).items():
        if batch in coins:  # the coins of a batch charged under another name are unknown here
            played.samples.append(Sample(place, apart, coins[batch][:, 0]))


def _difference(told: Mapping[str, Array], again: Mapping[str, Array], number: int) -> str | None:
    """The first message that depends on more than the releases."""
    for name in sorted(told.keys() | again.keys()):
        if name not in told or name not in again or not np.array_equal(told[name], again[name], equal_nan=True):
            return (
                f"message {name!r} of round {number} changes with the records, though all that was released is the same"
            )
    return None


def _alike(noises: Noises | None, release_point: str) -> str | None:
    each = [] if noises is None else [noise.tobytes() for noise in noises.each]
    return (
        f"two sites add the same noise at {release_point!r}, or none: who tells its own tells both"
        if len(set(each)) < len(each)
        else None
    )


@dataclass(frozen=True, eq=False)
class _Place:
    """One place of a round: its rows, the releases (n, ...), those without any canary, how far each of the different
    canaries moves them (different, n, ...), and which of these every canary is."""

    rows: Sequence[Row]
    observed: Array
    base: Array
    moved: Array
    kind: NDArray[np.intp]

    @classmethod
    def of(cls, stage: Stage, rows: Sequence[Row], observed: Array, insides: Sequence[Array], canaries: int) -> _Place:
        base, *others = (stage.view(inside) for inside in insides)
        kind = np.arange(canaries) % len(others)
        return cls(rows, observed, base, np.stack([other - base for other in others]), kind)

    @cached_property
    def _by_halves(self) -> Array:
        """How far all canaries would move it on average."""
        return 0.5 * self.rows[0].sampling * np.tensordot(np.bincount(self.kind), self.moved, 1)

    def beside(self, canary: int) -> Release:
        """The worlds without and with one canary; the others count half."""
        moved = self.moved[self.kind[canary]]
        without = self.base + self._by_halves - 0.5 * self.rows[0].sampling * moved
        return self._release(self.observed, without, without + moved)

    def align(self, aligned: Aligned, there: BoolArray) -> None:
        """Add this place, in units of the stated noise, to the sums over all canaries together."""
        noise = np.array([row.noise for row in self.rows], dtype=np.float64)[:, None]
        stated = np.array([row.l2 for row in self.rows], dtype=np.float64) / noise[:, 0]
        lengths = (self.moved.reshape(*self.moved.shape[:2], -1) ** 2).sum(2) / noise[:, 0] ** 2
        more = there - 0.5 * self.rows[0].sampling
        by_kind = np.stack([more[:, self.kind == kind].sum(1) for kind in range(len(self.moved))])
        way = np.einsum("kn,kn...->n...", by_kind, self.moved).reshape(len(noise), -1) / noise
        observed = (self.observed - self.base - self._by_halves).reshape(way.shape) / noise
        aligned.add(observed, way, lengths, stated**2)

    def _release(self, observed: Array, without: Array, with_it: Array) -> Release:
        first = self.rows[0]
        noise = np.array([row.noise for row in self.rows], dtype=np.float64)
        return Release(observed, without, with_it, noise, first.mechanism, first.sampling, first.batch)
