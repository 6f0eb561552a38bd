"""The gate: the only way out of a silo."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import LeakError
from silograph.core.threads import in_threads
from silograph.core.types import Array
from silograph.privacy.bound import ADD_OR_REMOVE_ONE, REPLACE_ONE, Bounded, Within, clip_rows
from silograph.privacy.flooding import Joined
from silograph.privacy.ledger import Row
from silograph.privacy.mechanisms import Mechanism, OwnNoise, Place
from silograph.privacy.relay import relay
from silograph.privacy.released import _SEAL, Batch, Released, Sealed, Total
from silograph.privacy.samplers import Keystream
from silograph.privacy.sums import masked_total, plain_total

if TYPE_CHECKING:
    from silograph.privacy.door import Door


class Gate:
    """The border of the silos in one call, in one round. `Door.gate` makes it; a method gets it as an argument.

    Parameters
    ----------
    door : The run's border, which has noise, budget and ledger.
    silos : The names of the silos; axis 0 of all values is in this order.
    round : The round, from 0.
    observer : Who sees what leaves.

    >>> from silograph.privacy.bound import Bounded
    >>> from silograph.privacy.door import Door
    >>> from silograph.privacy.ledger import Ledger
    >>> from silograph.privacy.mechanisms import Gaussian
    >>> door = Door(0, Ledger(), Gaussian(2.0))
    >>> gate = door.gate(["north", "south"], round=0)
    >>> gate.rows([1]).silos, gate.over(["north, cluster 1", "north, cluster 2"]).silos
    (['south'], ['north, cluster 1', 'north, cluster 2'])
    >>> gate.relay(np.zeros((2, 3))).value.shape, gate.uniforms(4, "swap").shape
    ((2, 3), (2, 4))
    >>> moved = Bounded(np.zeros((2, 3)), np.array([0.1, 0.2]), "a row", "rows clipped to 1: 2 C / N")
    >>> gate.release(moved, "mean").value.shape
    (2, 3)
    >>> gate.sync()  # now it may be sent
    >>> [(row.silo, round(row.noise, 5)) for row in door.ledger.rows]  # noise of 2 l2
    [('north', 0.2), ('south', 0.4)]
    """

    def __init__(self, door: Door, silos: Sequence[str], round: int, observer: str) -> None:
        self.door, self.silos, self.round, self.observer = door, silos, round, observer

    def rows(self, index: Sequence[int] | NDArray[np.intp]) -> Gate:
        """Return the same border for some of the silos in this call.

        Parameters
        ----------
        index : Their places.
        """
        return self.over([self.silos[k] for k in index])

    def over(self, names: Sequence[str]) -> Gate:
        """Return the same border for named parts of its silos, such as a server's clusters, each with rows of its own.

        Parameters
        ----------
        names : The names of the parts.
        """
        return Gate(self.door, names, self.round, self.observer)

    @property
    def mechanism(self) -> Mechanism | None:
        """This round's."""
        return None if self.door.mechanism is None else self.door.mechanism.at(self.round)

    @property
    def own_noise(self) -> OwnNoise | None:
        """The noise that the agents of a secure sum add themselves."""
        return None if self.mechanism is None else self.mechanism.own_noise

    # ---- in the silo ----

    def poisson(self, counts: Array, rate: float, release_point: str, part: str) -> Batch:
        """Sample from the first `counts[i]` records of silo i's `part`, each with probability `rate`.

        Parameters
        ----------
        counts : How many records each silo has, (silos,).
        rate : The chance of a record to be in the sample, above 0 and at most 1.
        release_point : Where in the round the sample is taken; it names the random numbers.
        part : The part of a silo's records that this is; a record is in one part for good.

        >>> from silograph.privacy.door import Door
        >>> from silograph.privacy.ledger import Ledger
        >>> gate = Door(0, Ledger()).gate(["north", "south"], round=0)
        >>> gate.poisson(np.array([1000, 2000]), 0.1, "batch", part="train").chosen.sum(1)
        array([102, 188])
        """
        chosen = np.zeros((len(self.silos), int(counts.max(initial=0))), dtype=np.bool_)
        for i, (silo, count) in enumerate(zip(self.silos, counts, strict=True)):
            if rate == 1.0:
                chosen[i, :count] = True
                continue
            # Rounded down: a record is chosen no more often than it is charged for.
            words = Keystream(self.door.root, silo, self.round, f"sample of {release_point}").words(int(count))
            chosen[i, :count] = words < np.uint64(math.floor(rate * 2.0**64))
        return Batch(chosen, rate, release_point, part, self.round)

    def release(self, bounded: Bounded, release_point: str, batch: Batch | None = None, share: float = 1.0) -> Released:
        """Add the door's noise to each silo's row; one ledger row each.

        A value computed from the records of a `batch` is charged as a release from that sample.

        Parameters
        ----------
        bounded : The value, with how far a protected unit can move it.
        release_point : Where in the round it leaves; each may be used once for a silo and round.
        batch : The sample that the value was computed from, if it was.
        share : The share of the precision that a single release would have, for several from one batch or of one
            budget: noise is larger by 1 / sqrt(share).

        >>> from silograph.privacy.bound import Bounded
        >>> from silograph.privacy.door import Door
        >>> from silograph.privacy.ledger import Ledger
        >>> from silograph.privacy.mechanisms import Gaussian
        >>> door = Door(0, Ledger(), Gaussian(3.0))
        >>> bounded = Bounded(np.zeros((1, 10_000)), np.array([0.5]), "a row", "rows clipped to 1/4")
        >>> round(float(door.gate(["north"], round=0).release(bounded, "sum").value.std()), 1)  # 3 l2
        1.5
        >>> row = door.waiting[0]  # written by door.sync()
        >>> row.mechanism, round(row.l2, 4), round(row.noise, 4), row.why
        ('gaussian', 0.5, 1.5, 'rows clipped to 1/4')
        """
        if len(bounded.value) != len(self.silos):
            raise LeakError(
                f"release at {release_point!r}", f"{len(self.silos)} rows, one per silo", f"found {len(bounded.value)}"
            )
        mechanism, sampling = self._sampled(bounded, release_point, batch, share)
        out = np.empty(bounded.value.shape)

        def released(i: int) -> Row:
            l2, silo = float(bounded.l2[i]), self.silos[i]
            mechanism.perturb(bounded.value[i], l2, Place(self.door.root, silo, self.round, release_point), out[i])
            charge = mechanism.charge(l2, out[i].size)
            return self.row(
                silo,
                release_point,
                out[i],
                self.observer,
                mechanism=mechanism.name,
                l2=charge.l2,
                noise=charge.noise,
                protected_unit=bounded.protected_unit,
                relation=bounded.relation,
                randomness=self.door.randomness,
                why="; ".join(filter(None, (bounded.why, charge.rests_on))),
                **sampling,
            )

        for row in in_threads(released, range(len(self.silos)), bounded.value[:1].size):
            self.door.admit(row)
        return Released(out, _SEAL, owned=True)

    def _sampled(
        self, bounded: Bounded, release_point: str, batch: Batch | None, share: float
    ) -> tuple[Mechanism, dict[str, Any]]:
        """The mechanism of a release, and what its rows say about the sample that it comes from."""
        mechanism, where = self.mechanism, f"release at {release_point!r}"
        if mechanism is None:
            raise LeakError(where, "a mechanism", "the run has none", "Reveal on purpose, or plan one.")
        if batch is None and share == 1.0:
            return mechanism, {}
        if batch is None:
            if (part := mechanism.sampled(share)) is None:
                raise LeakError(where, "noise that can be shared out", f"found {mechanism.name}")
            return part, {}
        sampled = mechanism.sampled(share)
        if sampled is None or bounded.relation != ADD_OR_REMOVE_ONE:
            expected = "Gaussian noise and a bound for a record that is left out"
            raise LeakError(where, expected, f"found {mechanism.name}, {bounded.relation}")
        if not batch.name or batch.round != self.round:
            expected, found = "a named sample of this round", f"found {batch.name!r} of round {batch.round}"
            raise LeakError(where, expected, found, "Draw one for every round.")
        return sampled, {"sampling": batch.rate, "batch": batch.name, "part": batch.part}

    def reveal(self, value: Array, release_point: str, why: str) -> Released:
        """Send without protection, on purpose: from here on epsilon is infinite.

        Parameters
        ----------
        value : What is sent, (silos, ...).
        release_point : Where in the round it leaves.
        why : Why that is right, in words for the ledger.

        >>> from silograph.privacy.door import Door
        >>> from silograph.privacy.ledger import Ledger
        >>> door = Door(0, Ledger())
        >>> door.gate(["north"], round=0).reveal(np.zeros((1, 3)), "sizes", "sizes are public").value.shape
        (1, 3)
        >>> door.sync()
        >>> door.spent("north", delta=1e-6).epsilon
        inf
        """
        for silo, part in zip(self.silos, value, strict=True):
            self.admit_open(silo, release_point, part, self.observer, why)
        return Released(value, _SEAL)

    def contribute(
        self,
        value: Array | Bounded,
        release_point: str,
        clip: float | None = None,
        share: float = 1.0,
        joined: bool = False,
    ) -> Sealed:
        """Hand a vector to the silo's own server, for a sum that `total` opens. No method can read it.

        A vector with a NaN or infinity counts as zero under a clip, because the bound must hold for any data. Scaling
        back moves no two vectors further apart.

        Parameters
        ----------
        value : A vector for each silo, (silos, d). If it is bounded, the sum protects the protected unit that it names,
            else a whole vector.
        release_point : Where in the round it leaves.
        clip : The longest that a vector may be; longer ones are scaled back to it. Masks and bounded values need one.
        share : The share of the run's precision that the silos' noise is for.
        joined : Whether the sum is over the silos of all servers, not of the own one alone.

        >>> from silograph.privacy.door import Door
        >>> from silograph.privacy.ledger import Ledger
        >>> sealed = Door(0, Ledger()).gate(["north", "south"], round=0).contribute(np.eye(2), "update", clip=1.0)
        >>> len(sealed), hasattr(sealed, "value")
        (2, False)
        """
        within = None
        if isinstance(value, Bounded):
            if clip is None or value.relation != REPLACE_ONE or np.unique(value.l2).size > 1:
                expected = "a clip, and one bound for all vectors, on replacing a protected unit of one"
                raise LeakError(f"contribution at {release_point!r}", expected, "found others")
            within, value = Within(float(value.l2.max(initial=0.0)), value.protected_unit, value.why), value.value
        if clip is not None:
            value = clip_rows(np.where(np.isfinite(value).all(-1, keepdims=True), value, 0.0), clip)
        return Sealed(value, release_point, clip, within, share, joined)

    def uniforms(self, count: int, release_point: str) -> Array:
        """Draw numbers in (0, 1) that only this place knows, for perturbations without a guarantee.

        Parameters
        ----------
        count : How many for each silo; they are (silos, count).
        release_point : What they are for; the same words give the same numbers.
        """
        words = [Keystream(self.door.root, silo, self.round, release_point).words(count) for silo in self.silos]
        return np.asarray(((np.stack(words) >> np.uint64(12)) + 0.5) * 2.0**-52)

    # ---- at servers ----

    def total(
        self,
        sealed: Sealed,
        rows: NDArray[np.intp],
        home: NDArray[np.intp],
        names: Sequence[str],
        joined: Joined | None = None,
    ) -> Total:
        """Add up what silos handed to their servers, at a server's gate.

        Without masks a server sees every vector; with masks it sees only the sum: of its own silos, or of the silos of
        all servers if these are `joined`.

        Parameters
        ----------
        sealed : What the silos handed over, a row for each of `rows`.
        rows : The places of these silos among all.
        home : The server of every silo, by its place in this gate.
        names : The names of all silos.
        joined : Which servers' sums are one sum, if the vectors were handed over for that.

        >>> from silograph.privacy.door import Door
        >>> from silograph.privacy.ledger import Ledger
        >>> from silograph.privacy.masking import Masks
        >>> door, names = Door(0, Ledger(), masks=Masks()), ["a", "b", "c", "d"]
        >>> sealed = door.gate(names, round=0).contribute(np.eye(4), "update", clip=1.0)
        >>> door.gate(["server"], round=0).total(sealed, np.arange(4), np.zeros(4, dtype=int), names).sums.round(6)
        array([[1., 1., 1., 1.]])
        """
        if (joined is not None) != sealed.joined:
            ways = ("for their own server", "for all servers")
            expected, found = ways[joined is not None], ways[sealed.joined]
            where = f"sum at {sealed.release_point!r}"
            raise LeakError(where, f"vectors that were handed over {expected}", f"they were {found}")
        if self.door.masks is not None:
            return masked_total(self, self.door.masks, sealed, home[rows], [names[k] for k in rows], joined)
        if joined is not None:
            raise LeakError(f"sum at {sealed.release_point!r}", "masks for a sum over several servers", "found none")
        return plain_total(self, sealed, home[rows])

    def relay(self, value: Array) -> Released:
        """Mark a value that a server computed from released values alone. It costs nothing.

        Parameters
        ----------
        value : The value; axis 0 is which server or silo.
        """
        return relay(value)

    # ---- the ledger ----

    def sync(self) -> None:
        """Write the rows of this round to disk; only then may their values be sent."""
        self.door.sync()

    def admit_open(self, silo: str, release_point: str, sent: Array, observer: str, why: str) -> None:
        """The ledger row of what leaves without protection."""
        self.door.admit(self.row(silo, release_point, sent, observer, mechanism="reveal", why=why))

    def row(self, silo: str, release_point: str, sent: Array, observer: str, **facts: Any) -> Row:
        """The ledger row of what one silo sends; unprotected where `facts` do not say how."""
        mark = hashlib.sha256(self.door.mark_key(silo, self.round, release_point))
        mark.update(np.ascontiguousarray(sent).data)
        nothing: dict[str, Any] = {
            "l2": None,
            "noise": None,
            "protected_unit": "",
            "relation": "",
            "randomness": "none",
        }
        place: dict[str, Any] = {
            "silo": silo,
            "round": self.round,
            "release_point": release_point,
            "observer": observer,
        }
        digest = mark.hexdigest()[:16]
        return Row(**place, dim=int(np.size(sent)), digest=digest, **(nothing | {"sampling": 1.0} | facts))
