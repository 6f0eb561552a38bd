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
    """The border of the silos in one call, in one round."""

    def __init__(self, door: Door, silos: Sequence[str], round: int, observer: str) -> None:
        self.door, self.silos, self.round, self.observer = door, silos, round, observer

    def rows(self, index: Sequence[int] | NDArray[np.intp]) -> Gate:
        """The same border for some of the silos in this call."""
        return self.over([self.silos[k] for k in index])

    def over(self, names: Sequence[str]) -> Gate:
        """The same border for named parts of its silos, such as a server's clusters, each with rows of its own."""
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
        """Sample from the first `counts[i]` records of silo i's `part`, each with probability `rate`."""
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

        A value computed from the records of a `batch` is charged as a release from that sample. Several releases from
        one batch, or of one budget, take a `share` each of the precision that a single one would have: the noise of
        each is larger by 1 / sqrt(share).
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
        """Send without protection, on purpose: from here on epsilon is infinite."""
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
        """Hand a vector to the silo's own server, for a sum over its silos, or over those of all servers if these are
        `joined`. With a `clip`, longer vectors are scaled back to it first. The silos' noise is for that `share` of the
        run's precision.

        A vector with a NaN or infinity counts as zero under a clip, because the bound must hold for any data. If the
        value is bounded, the sum protects the protected unit that it names, else a whole vector. Scaling back moves no
        two vectors further apart.
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
        """Draw (silos, count) numbers in (0, 1) that only this place knows, for perturbations without a guarantee."""
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
        """Add up what the silos `rows` handed to their servers; `home[k]` is the server of silo k.

        Without masks a server sees every vector; with masks it sees only the sum: of its own silos, or of the silos of
        all servers if these are `joined`.
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
        """Mark a value that a server computed from released values alone."""
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
