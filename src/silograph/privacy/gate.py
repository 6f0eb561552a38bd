"""The gate: the only way out of a silo. `Released` values are made in this module alone."""

from __future__ import annotations

import hashlib
import inspect
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import BudgetError, DamageError, InputError, LeakError
from silograph.core.types import Array, BoolArray
from silograph.privacy.accounting import Cost, Planned, Tally, cost
from silograph.privacy.bound import ADD_OR_REMOVE_ONE, REPLACE_ONE, Bounded, Within, clip_rows
from silograph.privacy.correlated import CorrelatedGaussian
from silograph.privacy.ledger import Ledger, Row
from silograph.privacy.masking import MaskedSum, Masks, masked_sum
from silograph.privacy.mechanisms import Gaussian, Mechanism, OwnNoise, Scheduled, on_grid, perturb
from silograph.privacy.samplers import Keystream
from silograph.privacy.secure_messages import Total as SumTotal

_SEAL = object()  # known to this module only: nobody else can mint a Released

#: What crosses a silo's border: named values that passed the gate. Axis 0 is "which silo".
Message = dict[str, "Released"]

#: The same with contributions to a sum among them.
Sent = Mapping[str, "Released | Sealed"]

#: Who sees a message, or what is computed from it.
SERVER, OTHER_SERVERS, EVERYBODY = "server", "other servers", "own server and everybody else"
#: The own server alone: what it passes on goes through its gate again, with a row of its own.
OWN_SERVER = "own server"

CLIPPED_AGENT = "one agent (all its records)"

_WORTH_A_THREAD = 1 << 16  # numbers of noise


class SummedError(LeakError):
    """A silo was asked to be added up a second time at one place. The row of the first time is in its ledger."""

    code = "summed"


class Released:
    """A value that passed the gate. It can be read, cut and post-processed, not made."""

    __slots__ = ("value",)
    value: Array

    def __init__(self, value: Array, seal: object, owned: bool = False) -> None:
        """`owned`: nobody else can write to the value, so that it need not be copied."""
        if seal is not _SEAL:
            raise LeakError("Released", "to be made by a gate", "it was constructed directly", "Use gate.release.")
        if np.ndim(value) and not owned and value.strides[0] == 0 and len(value):
            # The same for every silo: one copy serves them all.
            frozen = np.broadcast_to(np.array(value[0], dtype=np.float64), np.shape(value))
        else:
            frozen = np.asarray(value, dtype=np.float64) if owned else np.array(value, dtype=np.float64, order="C")
        frozen.flags.writeable = False
        object.__setattr__(self, "value", frozen)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a released value does not change")

    def map(self, function: Callable[..., Array], *constants: Released | float | int | bool | str) -> Released:
        """Post-processing: `function(self.value, *constants)`.

        The function may use nothing private, so constants are released values or plain numbers, and a function that
        has captured an array from its surroundings is refused.
        """
        _refuse_captured(function)
        for constant in constants:
            if not isinstance(constant, Released | float | int | bool | str):
                raise LeakError(
                    "Released.map",
                    "constants that are released values or plain numbers",
                    f"a {type(constant).__name__} came",
                    "Release it, or keep the computation inside the silo.",
                )
        plain = [c.value if isinstance(c, Released) else c for c in constants]
        return Released(function(self.value, *plain), _SEAL)

    def rows(self, index: Sequence[int] | NDArray[np.intp] | slice) -> Released:
        return Released(self.value[index], _SEAL, owned=True)


def _refuse_captured(function: Callable[..., Any]) -> None:
    """An array held by a closure, a default, a bound object or a global would be a way around the gate.

    This catches mistakes. It cannot stop a method that wants to cheat: that is code you installed.
    """
    held: list[object] = []
    if isinstance(function, partial):
        held += [function.func, *function.args, *function.keywords.values()]
    elif inspect.ismethod(function):
        held += [function.__func__, *getattr(function.__self__, "__dict__", {}).values()]
    elif inspect.isfunction(function):
        seen = inspect.getclosurevars(function)
        held += [*seen.nonlocals.values(), *(v for v in seen.globals.values() if isinstance(v, np.ndarray))]
        held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for value in held:
        if isinstance(value, np.ndarray | Bounded | Mapping | list | tuple):
            raise LeakError(
                f"Released.map({getattr(function, '__name__', function)})",
                "a function of its arguments alone",
                f"it has captured a {type(value).__name__}",
                "Pass released values as constants.",
            )
        if value is not function and (inspect.isroutine(value) or isinstance(value, partial)):
            _refuse_captured(value)


@dataclass(frozen=True, eq=False)
class Sealed:
    """What silos hand to their own server to be added up: no method can read it, a server's gate opens only sums.

    Under masks between organisations the rows stay where they are: they are zeros here, and `elsewhere` runs the secure
    sum with those who hold them. It also says who may count it as spent, which they may where no sum came of it.
    What is protected is a whole vector, or what moves one from `within`.
    """

    _rows: Array
    site: str
    clip: float | None
    within: Within | None = None
    elsewhere: Callable[[MaskedSum], tuple[SumTotal, Collection[str]]] | None = None

    def __len__(self) -> int:
        return len(self._rows)


@dataclass(frozen=True, eq=False)
class Total:
    """Sums by server, and of how many silos: 0 where too few answered.

    `released`: noise is in the sums already. Otherwise they are the servers' own knowledge, and may leave them only
    through the gate again. `summed` are the vectors that are in a sum, among those that were to be.
    """

    sums: Array
    counts: Array
    released: bool
    summed: BoolArray


@dataclass(frozen=True, eq=False)
class Batch:
    """A Poisson sample of the records of one part of each silo: row i has `chosen[i, k]` where record k takes part.

    Every record had its own coin, with chance `rate`. Who was chosen stays in the silo: the smaller cost of what is
    released from a sample rests on that.
    """

    chosen: BoolArray
    rate: float
    name: str
    part: str
    round: int


def sealed_rows(sealed: Sealed) -> Array:
    """For the engine that carries them to their server, and for nobody else."""
    return sealed._rows


def stack(parts: Sequence[Released | Sealed]) -> Released | Sealed:
    """Rows of several silos as one value."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Sealed):
        rows = [part._rows for part in parts if isinstance(part, Sealed)]
        return Sealed(np.concatenate(rows), parts[0].site, parts[0].clip, parts[0].within)
    return Released(np.concatenate([part.value for part in parts if isinstance(part, Released)]), _SEAL)


def relay(value: Array, owned: bool = False) -> Released:
    """What is computed from released values alone, such as all that a server sends on: post-processing.

    `owned`: the caller gives the value away and writes to it no more, so that it need not be copied.
    """
    return Released(value, _SEAL, owned)


def digest(value: Array, key: bytes) -> str:
    hashed = hashlib.sha256(key)
    hashed.update(np.ascontiguousarray(value).data)
    return hashed.hexdigest()[:16]


@dataclass(frozen=True)
class Budget:
    """The most a silo may spend in total, against all observers but those it trusts.

    `planned` samples of records are known to fit, so that they need not be priced one by one.
    """

    epsilon: float
    delta: float
    trusted: frozenset[str] = frozenset()
    planned: Planned | None = None


@dataclass
class Door:
    """One run's border: randomness, mechanism, budget and ledger. Gates are cut from it, one per call."""

    root: int
    ledger: Ledger
    mechanism: Mechanism | Scheduled | None = None
    budget: Budget | None = None
    randomness: str = "seeded stream (simulation)"
    masks: Masks | None = None
    _waiting: dict[tuple[str, int, str], Row] = field(default_factory=dict)
    _tallies: dict[str, Tally] = field(default_factory=dict)

    def gate(self, silos: Sequence[str], round: int, observer: str = SERVER) -> Gate:
        return Gate(self, silos, round, observer)

    def admit(self, row: Row) -> None:
        """Take a row for the next `sync`, unless it would break the budget or repeat a place with another value."""
        known = self.ledger.find(row.place)
        if known is not None:
            if known != row:
                raise DamageError(
                    f"silo {row.silo}, round {row.round}, {row.site}",
                    "the value that was released there before",
                    "another one came: the data, the plan or the software changed since the run was interrupted",
                    "Put them back, or start a new run in a new folder; what was spent stays spent.",
                )
            return
        if row.place in self._waiting:
            raise LeakError(
                f"silo {row.silo}, round {row.round}",
                "one release per site name and round, so that no noise is used twice",
                f"site {row.site!r} was used again",
                "Give each release its own site name.",
            )
        tally = self.afford(row)
        if tally is not None:
            tally.add(row)
        self._waiting[row.place] = row

    def afford(self, row: Row) -> Tally | None:
        """Refuse a row that its silo's budget does not cover; returns what the budget is counted with."""
        budget = self.budget
        if budget is None or row.observer in budget.trusted or self.ledger.find(row.place) is not None:
            return None
        tally = self._tallies.get(row.silo)
        if tally is None:
            tally = self._tallies[row.silo] = Tally(budget.epsilon, budget.delta, budget.planned)
            for known in self.ledger.of(row.silo):
                if known.observer not in budget.trusted:
                    tally.add(known)
        if not tally.fits(row):
            raise BudgetError(
                f"silo {row.silo}, round {row.round}, {row.site}",
                f"a total of at most epsilon {budget.epsilon:g} at delta {budget.delta:g}",
                f"{tally.cost().epsilon:.4g} is spent and this release would make it {tally.cost(row).epsilon:.4g}",
                "It was not made. Plan fewer rounds, more noise, or a larger budget in a new run.",
            )
        return tally

    def mark_key(self, *place: str | int) -> bytes:
        """The key of a row's digest. Under a budget nobody without the run's root can tell anything from the digest: a
        ledger has many readers, and a row may be about a sum that is for one trusted server."""
        return b"" if self.budget is None else hashlib.sha256(repr((self.root, place)).encode()).digest()

    @property
    def waiting(self) -> list[Row]:
        """Rows that the next `sync` writes."""
        return list(self._waiting.values())

    def sync(self) -> None:
        """Write the waiting rows in the order of their silos, whatever order the engine took; then messages may go."""
        if self._waiting:
            self.ledger.append(sorted(self._waiting.values(), key=lambda row: row.silo))
            self._waiting.clear()

    def forget(self) -> None:
        """Drop the waiting rows: nothing of them was sent, and what is not in the ledger yet never happened."""
        self._waiting.clear()
        self._tallies.clear()

    def spent(self, silo: str, delta: float, observer: str = SERVER) -> Cost:
        """What a silo's rows cost at `delta` against an observer."""
        hidden = hidden_from(observer)
        return cost([row for row in self.ledger.of(silo) if row.observer not in hidden], delta)


#: Who may look at a run, and the rows that are hidden from each. An agent's link to its own server is encrypted.
OBSERVERS: dict[str, frozenset[str]] = {
    SERVER: frozenset(),
    OWN_SERVER: frozenset(),
    **dict.fromkeys(("neighbour", "another agent", "other sites", "wire", "public"), frozenset({OWN_SERVER})),
}


def hidden_from(observer: str) -> frozenset[str]:
    if observer not in OBSERVERS:
        raise InputError("observer", ", ".join(OBSERVERS), f"{observer!r} came")
    return OBSERVERS[observer]


class Gate:
    """The border of the silos in one call, in one round."""

    def __init__(self, door: Door, silos: Sequence[str], round: int, observer: str) -> None:
        self._door, self.silos, self.round, self._observer = door, silos, round, observer

    def rows(self, index: Sequence[int] | NDArray[np.intp]) -> Gate:
        """The same border for some of the silos in this call."""
        return Gate(self._door, [self.silos[k] for k in index], self.round, self._observer)

    def over(self, names: Sequence[str]) -> Gate:
        """The same border for named parts of its silos, such as a server's clusters, each with rows of its own."""
        return Gate(self._door, names, self.round, self._observer)

    @property
    def _mechanism(self) -> Mechanism | None:
        """This round's."""
        mechanism = self._door.mechanism
        return mechanism.at(self.round) if isinstance(mechanism, Scheduled) else mechanism

    def poisson(self, counts: Array, rate: float, site: str, part: str) -> Batch:
        """Choose among the first `counts[i]` records of silo i's `part`, each with chance `rate`."""
        chosen = np.zeros((len(self.silos), int(counts.max(initial=0))), dtype=np.bool_)
        for i, (silo, count) in enumerate(zip(self.silos, counts, strict=True)):
            if rate == 1.0:
                chosen[i, :count] = True
                continue
            # Rounded down: a record is chosen no more often than it is charged for.
            words = Keystream(self._door.root, silo, self.round, f"sample of {site}").words(int(count))
            chosen[i, :count] = words < np.uint64(math.floor(rate * 2.0**64))
        return Batch(chosen, rate, site, part, self.round)

    def release(self, bounded: Bounded, site: str, batch: Batch | None = None, share: float = 1.0) -> Released:
        """Add the door's noise to each silo's row; one ledger row each.

        What is computed from the records of a `batch` is charged as that. Several releases from one batch take a
        `share` each, of the precision that a single one would have: its noise is larger by 1 / sqrt(share).
        """
        mechanism = self._mechanism
        if mechanism is None:
            raise LeakError(
                f"release at {site!r}", "a mechanism", "the run has none", "Reveal on purpose, or plan one."
            )
        if len(bounded.value) != len(self.silos):
            raise LeakError(
                f"release at {site!r}", f"{len(self.silos)} rows, one per silo", f"{len(bounded.value)} came"
            )
        sampling: dict[str, Any] = {}
        if batch is not None:
            if not isinstance(mechanism, Gaussian) or bounded.relation != ADD_OR_REMOVE_ONE:
                expected = "Gaussian noise and a bound for a record that is left out"
                raise LeakError(f"release at {site!r}", expected, f"{mechanism.name}, {bounded.relation} came")
            if not batch.name or batch.round != self.round:
                expected, came = "a named sample of this round", f"{batch.name!r} of round {batch.round} came"
                raise LeakError(f"release at {site!r}", expected, came, "Draw one for every round.")
            mechanism = Gaussian(mechanism.multiplier / math.sqrt(share))
            sampling = {"sampling": batch.rate, "batch": batch.name, "part": batch.part}

        out = np.empty(bounded.value.shape)
        shared = mechanism if isinstance(mechanism, CorrelatedGaussian) else None

        def released(i: int) -> Row:
            l2, silo, size, root = float(bounded.l2[i]), self.silos[i], out[i].size, self._door.root
            if shared is not None:
                shared.perturb(bounded.value[i], l2, root, silo, self.round, site, out[i])
                charged, noise = shared.charged(l2, size)
            else:
                perturb(bounded.value[i], l2, mechanism, Keystream(root, silo, self.round, site), out[i])
                charged = on_grid(l2, size)
                noise = mechanism.scale(charged, size)
            return self._row(
                silo,
                site,
                out[i],
                self._observer,
                mechanism=mechanism.name,
                l2=charged,
                noise=noise,
                unit=bounded.unit,
                relation=bounded.relation,
                randomness=self._door.randomness,
                why=bounded.why if shared is None else f"{bounded.why}; {shared.rests_on}",
                **sampling,
            )

        for row in _in_threads(released, range(len(self.silos)), bounded.value[:1].size):
            self._door.admit(row)
        return Released(out, _SEAL, owned=True)

    def hand_over(self, sealed: Sealed) -> None:
        """In the silo, where no masks hide what it hands to its own server: the row of its own ledger."""
        for silo, part in zip(self.silos, sealed._rows, strict=True):
            self._plainly(silo, sealed.site, part, OWN_SERVER, "the own server is trusted with this silo's updates")

    def reveal(self, value: Array, site: str, why: str) -> Released:
        """Send on purpose without protection: epsilon is infinite from here on."""
        for silo, part in zip(self.silos, value, strict=True):
            self._plainly(silo, site, part, self._observer, why)
        return Released(value, _SEAL)

    def contribute(self, value: Array | Bounded, site: str, clip: float | None = None) -> Sealed:
        """Hand a vector to the own server, for a sum. With a `clip` longer ones are scaled back to it first.

        What is no number counts as zero under a clip: the bound must hold for any data. Of a bounded value the unit
        that it names is protected, else a whole vector. Scaling back brings no two vectors further apart.
        """
        within = None
        if isinstance(value, Bounded):
            if clip is None or value.relation != REPLACE_ONE or np.unique(value.l2).size > 1:
                expected = "a clip, and one bound for all vectors, on replacing a unit of one"
                raise LeakError(f"contribution at {site!r}", expected, "others came")
            within, value = Within(float(value.l2.max(initial=0.0)), value.unit, value.why), value.value
        if clip is not None:
            value = clip_rows(np.where(np.isfinite(value).all(-1, keepdims=True), value, 0.0), clip)
        return Sealed(value, site, clip, within)

    def total(self, sealed: Sealed, rows: NDArray[np.intp], home: NDArray[np.intp], names: Sequence[str]) -> Total:
        """Add up what the silos `rows` handed to their servers, `home[k]` being the server of silo k.

        Without masks a server sees every vector, and its ledger says so. With masks it sees the sum, and with a
        distributed mechanism the sum with noise that the silos put in. Where the unit is within a silo's vector, every
        silo of the sum gets a row, else its server.
        """
        door, value, summed = self._door, sealed._rows, np.ones(len(rows), dtype=np.bool_)
        place = home[rows]
        counts = np.bincount(place, minlength=len(self.silos)).astype(np.float64)
        sums = np.zeros((len(self.silos), value.shape[1]))
        if door.masks is None:
            for column in range(value.shape[1]):
                sums[:, column] = np.bincount(place, value[:, column], len(self.silos))
            for p, unit in enumerate(self.silos):
                if counts[p]:
                    why = f"{counts[p]:.0f} agents trust their own server with their updates"
                    self._plainly(unit, sealed.site, sums[p], OWN_SERVER, why)
            return Total(sums, counts, False, summed)
        for p, unit in enumerate(self.silos):
            members = np.flatnonzero(place == p)
            if len(members) < door.masks.minimum:
                counts[p], summed[members] = 0.0, False
                continue
            there = tuple(names[rows[k]] for k in members)
            asked = self.sum_of(sealed, there, unit)
            facts = self._summing(asked)
            for payer in (unit,) if sealed.within is None else there:
                door.afford(self._row(payer, sealed.site, sums[p], **facts))  # before the server can know the sum
            if sealed.elsewhere is None:
                total = masked_sum(dict(zip(there, value[members], strict=True)), asked, door.root)
                paid: Collection[str] = there
            else:
                total, paid = sealed.elsewhere(asked)
            sums[p], counts[p] = total.values, len(total.survivors)
            summed[members] = [name in total.survivors for name in there]
            payers = (unit,) if sealed.within is None and paid else [name for name in there if name in paid]
            for payer in payers:
                row = self._row(payer, sealed.site, sums[p], **facts)
                # Elsewhere a sum is made once: after a kill at this end nothing comes of it a second time.
                if sealed.elsewhere is None or door.ledger.find(row.place) is None:
                    door.admit(row)
        return Total(sums, counts, self._shared_noise is not None, summed)

    @property
    def _shared_noise(self) -> OwnNoise | None:
        """What the agents of a secure sum put in themselves."""
        return self._mechanism if isinstance(self._mechanism, OwnNoise) else None

    def sum_of(self, sealed: Sealed, members: tuple[str, ...], unit: str) -> MaskedSum:
        """What a sum under masks will be: the server asks for it, and an agent checks what it is asked."""
        masks, length = self._door.masks, sealed._rows.shape[1]
        if masks is None or sealed.clip is None:
            raise LeakError(f"masks at {sealed.site!r}", "clipped vectors, whose sum cannot overflow", "others came")
        noise = self._shared_noise
        return MaskedSum(members, self.round, unit, sealed.site, sealed.clip, length, masks, noise, sealed.within)

    def refuse_second(self, site: str) -> None:
        """One place is summed once: a second sum, with others in it, would show the difference."""
        (silo,) = self.silos
        if self._door.ledger.find((silo, self.round, site)) is not None:
            raise SummedError(f"silo {silo}, round {self.round}", f"to be added up once at {site!r}", "it was before")

    def join(self, asked: MaskedSum, vector: Array) -> None:
        """In the silo, before anything leaves with which its vector could be added up: the row of its own ledger."""
        (silo,) = self.silos
        self.refuse_second(asked.site)
        self._door.admit(self._row(silo, asked.site, vector, **self._summing(asked)))
        self._door.sync()

    def _summing(self, asked: MaskedSum) -> dict[str, Any]:
        """What the ledger says of a sum under masks."""
        how, noise, cohort = asked.masks.how, asked.noise, asked.cohort
        if noise is None:
            if asked.within is not None:  # the sum of a star's sites is for everybody
                why = f"masks hide each of {len(asked.members)} sites, not their sum ({how})"
                return {"observer": EVERYBODY, "mechanism": "reveal", "why": why}
            why = f"masks hide {len(asked.members)} agents from their server, not their sum ({how})"
            return {"observer": OWN_SERVER, "mechanism": "reveal", "why": why}
        within = asked.within or Within(cohort.l2, CLIPPED_AGENT, f"each update clipped to {asked.clip:g}")
        who = "agents" if asked.within is None else "sites"
        return {
            "observer": EVERYBODY,
            "mechanism": noise.name,
            "l2": cohort.l2,
            "noise": cohort.deviation,
            "unit": within.unit,
            "relation": REPLACE_ONE,
            "randomness": self._door.randomness,
            "why": f"{within.why}; sum of {len(asked.members)} {who}, each of whom adds a share of the noise; "
            f"{cohort.contributors} of them are counted on ({how})",
        }

    def sync(self) -> None:
        """Put the rows of this round on disk; only then may what they tell of be sent."""
        self._door.sync()

    def uniforms(self, count: int, site: str) -> Array:
        """(silos, count) numbers in (0, 1) that only this place knows, for perturbations that are not privacy."""
        words = [Keystream(self._door.root, silo, self.round, site).words(count) for silo in self.silos]
        return np.asarray(((np.stack(words) >> np.uint64(12)) + 0.5) * 2.0**-52)

    def _plainly(self, silo: str, site: str, sent: Array, observer: str, why: str) -> None:
        """The ledger row of what leaves without protection."""
        self._door.admit(self._row(silo, site, sent, observer, mechanism="reveal", why=why))

    def _row(self, silo: str, site: str, sent: Array, observer: str, **facts: Any) -> Row:
        """The ledger row of what one silo sends; unprotected where `facts` do not say how."""
        mark = digest(sent, self._door.mark_key(silo, self.round, site))
        nothing: dict[str, Any] = {"l2": None, "noise": None, "unit": "", "relation": "", "randomness": "none"}
        place: dict[str, Any] = {"silo": silo, "round": self.round, "site": site, "observer": observer}
        return Row(**place, dim=int(np.size(sent)), digest=mark, **(nothing | {"sampling": 1.0} | facts))


def _in_threads(work: Callable[[int], Row], items: Sequence[int], size: int) -> Iterator[Row]:
    """The work on each item in their order; large ones at the same time, where there are processors."""
    workers = min(len(items), len(os.sched_getaffinity(0)))
    if size < _WORTH_A_THREAD or workers < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(work, items)


class OpenGate:
    """The border of what is released already: whatever is computed from it is post-processing and passes free."""

    def rows(self, index: Sequence[int] | NDArray[np.intp]) -> OpenGate:
        return self

    def over(self, names: Sequence[str]) -> OpenGate:
        return self

    def poisson(self, counts: Array, rate: float, site: str, part: str) -> Batch:
        raise LeakError(f"sample at {site!r}", "no records behind an open gate", "a sample of them was asked for")

    def release(self, bounded: Bounded, site: str, batch: Batch | None = None, share: float = 1.0) -> Released:
        raise LeakError(f"release at {site!r}", "nothing private behind an open gate", "a private value came")

    def reveal(self, value: Array, site: str, why: str) -> Released:
        return Released(value, _SEAL)

    def sync(self) -> None:
        """There is no ledger."""

    def contribute(self, value: Array | Bounded, site: str, clip: float | None = None) -> Sealed:
        raise LeakError(f"contribution at {site!r}", "nothing to add up behind an open gate", "a vector came")

    def total(self, sealed: Sealed, rows: NDArray[np.intp], home: NDArray[np.intp], names: Sequence[str]) -> Total:
        raise LeakError(f"total at {sealed.site!r}", "nothing to add up behind an open gate", "a sum was asked for")

    def uniforms(self, count: int, site: str) -> Array:
        raise LeakError(f"draw at {site!r}", "nothing to perturb behind an open gate", "noise was asked for")


def check_message(message: Mapping[str, object], rows: int, sender: str) -> Sent:
    """Nothing but released values may leave; a method that tries otherwise is refused by name."""
    checked: dict[str, Released | Sealed] = {}
    for name, value in message.items():
        if not isinstance(value, Released | Sealed):
            raise LeakError(
                f"{sender}, message field {name!r}",
                "a value that passed the gate",
                f"a bare {type(value).__name__} came",
                "Send gate.release(...) or, on purpose, gate.reveal(...).",
            )
        came = value.value.shape[:1] if isinstance(value, Released) else (len(value),)
        if came != (rows,):
            raise LeakError(f"{sender}, message field {name!r}", f"{rows} rows, one per silo", f"shape {came} came")
        checked[name] = value
    return checked
