"""The sum of a region's updates under masks, with or without noise that its agents add themselves.

The accounting counts the noise of only so many agents as the secure sum's threshold, less one: fewer than a third of
a cohort may drop out, or tell others what noise they drew, and the guarantee still holds, also against another agent.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from silograph.core.errors import InputError
from silograph.core.processes import in_processes
from silograph.core.types import Array, BoolArray
from silograph.privacy.bound import Within
from silograph.privacy.discrete import LEAST_FINE, MOST_SHARE, decode, grid_l2, grid_move, noisy
from silograph.privacy.flooding import Traffic
from silograph.privacy.mechanisms import OwnNoise
from silograph.privacy.samplers import Keystream
from silograph.privacy.secure_graph import run_over_graph
from silograph.privacy.secure_keys import Curve
from silograph.privacy.secure_messages import Session, Total, threshold
from silograph.privacy.secure_partners import loads
from silograph.privacy.secure_sum import Ask, secure_sum, unmasked_sum
from silograph.privacy.shamir import Source

_CLIP_BITS = 20  # a clip is at least 2^20 grid steps
_FINE_BITS = 24  # or 2^24, and so is what moves a vector from within: the grid must be fine for the exact curve
_EXACT_BITS = 44  # or 2^44 where no noise covers what the grid rounds off


@dataclass(frozen=True)
class Masks:
    """Masks of secure sums: a server sees a sum of vectors and no vector.

    Parameters
    ----------
    arithmetic : "protocol" runs the secure sum, every message of it; "skipped" adds the same integers without it.
    minimum : The fewest vectors that may be in a sum.

    >>> Masks("skipped").how
    'masks skipped in this simulation'
    """

    arithmetic: Literal["protocol", "skipped"] = "protocol"
    minimum: int = 3

    @property
    def how(self) -> str:
        return "secure sum" if self.arithmetic == "protocol" else "masks skipped in this simulation"


@dataclass(frozen=True)
class Cohort:
    """The protection of a sum of so many agents' vectors, no longer than `clip`; known before the sum is made.

    `l2` is how far replacing an agent, or a protected unit within an agent's vector, moves the sum; it
    is charged against `charged`: the deviation of Gaussian noise, so that rho = (l2 / charged)^2 / 2, or the scale of
    Laplace noise. `contributors` are the agents that the noise counts on; `share` is what `secure_messages.Session`
    calls noise.
    """

    l2: float
    charged: float
    contributors: int
    share: float
    bits: int
    laplace: bool = False

    def noise_of(self, survivors: int) -> float:
        """The standard deviation of the noise that is in a coordinate of the sum of so many."""
        shares = 2.0 * survivors / self.contributors if self.laplace else survivors
        return self.share * math.sqrt(shares) * 2.0**-self.bits

    @property
    def laplace_shares(self) -> int:
        return self.contributors if self.laplace else 0


def counted_on(agents: int) -> int:
    """Compute how many agents the noise counts on: floor(2 n / 3).

    That is the threshold of the secure sum, less an observer in the cohort that knows its own noise.

    Parameters
    ----------
    agents : How many agents n there are in the cohort.

    >>> counted_on(100)
    66
    """
    return threshold(agents) - 1


def planned(agents: int, clip: float, length: int, noise: OwnNoise | None, within: Within | None = None) -> Cohort:
    if within is None:
        fine = noise is not None and noise.least_share >= LEAST_FINE
        bits = (_FINE_BITS if fine else _CLIP_BITS) - math.floor(math.log2(clip))
        l2 = 2.0 * grid_l2(clip, bits, length)
    else:
        bits = (_EXACT_BITS if noise is None else _FINE_BITS) - math.floor(math.log2(within.l2))
        l2 = grid_move(within.l2, bits, length)
    step = 2.0**-bits
    contributors = counted_on(agents)
    if noise is None:
        return Cohort(l2 * step, 0.0, contributors, 0.0, bits)
    share = noise_for(noise, l2, contributors, length)
    charged = l2 * step / noise.ratio(l2, share, contributors, length)
    return Cohort(l2 * step, charged, contributors, share, bits, noise.laplace)


@dataclass(frozen=True)
class MaskedSum:
    """A server's request: the sum of the members' vectors at one place, none longer than `clip`. All is public."""

    members: tuple[str, ...]
    round: int
    region: str
    release_point: str
    clip: float
    length: int
    masks: Masks
    noise: OwnNoise | None
    within: Within | None = None

    def __post_init__(self) -> None:
        if len(set(self.members)) < len(self.members):
            raise InputError(f"sum at {self.release_point!r}", "every member once", "one is named twice")

    @cached_property
    def cohort(self) -> Cohort:
        return planned(len(self.members), self.clip, self.length, self.noise, self.within)

    def session(self, run: str, identities: Mapping[str, bytes]) -> Session:
        """What those who add it up agree on beforehand."""
        cohort, known = self.cohort, {name: identities[name] for name in self.members}
        place = (run, self.round, self.region)
        least, of = self.masks.minimum, cohort.laplace_shares
        return Session(*place, known, self.length, self.clip, cohort.bits, cohort.share, least, laplace_shares=of)

    @cached_property
    def _everybody(self) -> str:
        return hashlib.sha256(repr(sorted(self.members)).encode()).hexdigest()

    @property
    def noise_place(self) -> str:
        """The name of the agents' noise has the whole cohort in it: should a round be repeated with others, noise is
        drawn anew."""
        return f"{self.release_point}, noise in {self.region} with {self._everybody}"

    def noise_source(self, root: int, name: str) -> Source:
        return _noise_stream(root, self.round, self.noise_place, name)

    def noise_of(self, root: int, name: str) -> Array:
        """The noise that an agent adds to its vector. It may reveal it: the guarantee rests on the others' noise."""
        nothing, cohort = np.zeros(self.length), self.cohort
        noise = cohort.share, self.noise_source(root, name), cohort.laplace_shares
        return decode(noisy(nothing, self.clip, cohort.bits, *noise), cohort.bits)


@dataclass(frozen=True, eq=False)
class Summands:
    """Vectors that are all here, and the sum of them that is asked for. `servers` are the agents' servers, by number,
    and which of them are linked, where there are several."""

    vectors: Mapping[str, Array]
    asked: MaskedSum
    servers: tuple[Mapping[str, int], BoolArray] | None = None

    def task(self, root: int) -> Callable[[], Total]:
        """What makes the sum, in plain data: a worker need not know the mechanism. Masks cancel, so they need not be
        repeatable, and are not."""
        asked, bits = self.asked, self.asked.cohort.bits
        common: dict[str, Any] = {
            "noise": asked.cohort.share,
            "laplace_shares": asked.cohort.laplace_shares,
            "minimum": asked.masks.minimum,
            "noise_source": partial(_noise_stream, root, asked.round, asked.noise_place),
        }
        if asked.masks.arithmetic == "skipped":
            return partial(unmasked_sum, self.vectors, asked.clip, bits, **common)
        if self.servers is not None:
            common["steps"] = partial(_over_graph, *self.servers)
        return partial(secure_sum, self.vectors, asked.clip, bits, round=asked.round, region=asked.region, **common)


def masked_sums(wanted: Sequence[Summands], root: int) -> Generator[Total]:
    """Make the sums, in their order: long ones at the same time, on the cores that there are. Threads would wait for
    each other: an agreement on a key keeps the interpreter's lock."""
    protocol = [len(each.vectors) * (each.asked.masks.arithmetic == "protocol") for each in wanted]
    return in_processes([each.task(root) for each in wanted], *loads(protocol))


def _noise_stream(root: int, round: int, place: str, name: str) -> Source:
    return Keystream(root, name, round, place).take


def _over_graph(home: Mapping[str, int], linked: BoolArray, session: Session, curve: Curve, ask: Ask) -> Total:
    return run_over_graph(session, home, linked, ask, Traffic(), curve)


def noise_for(noise: OwnNoise, l2: float, contributors: int, length: int) -> float:
    """Each agent's share, in grid steps, for which `contributors` of them give as much as was planned."""
    goal = noise.goal
    share = max(noise.first_share(l2, contributors), noise.least_share)
    if not share <= MOST_SHARE:
        found = f"it takes noise beyond the grid: {goal:g} of a release's sensitivity is all that may show"
        raise InputError("noise of the agents", "a budget that noise can meet", found, "Raise epsilon or cut rounds.")
    while (over := noise.ratio(l2, share, contributors, length) - goal) > 0.0:
        share *= 1.0 + 2.0 * over / goal
    return share
