"""The sum of a unit's updates under masks, with or without noise that its agents put in themselves.

The agents' noise is counted as if only the secure sum's threshold of them, less one, had added any: fewer than a third
of a cohort may drop out, or tell what noise they drew, and the guarantee still holds, also against another agent.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.privacy.discrete import LEAST_SHARE, MOST_SHARE, distributed_rho, grid_l2
from silograph.privacy.mechanisms import DistributedGaussian
from silograph.privacy.samplers import Keystream
from silograph.privacy.secure_messages import Total, threshold
from silograph.privacy.secure_sum import secure_sum, unmasked_sum
from silograph.privacy.shamir import Source

_CLIP_BITS = 20  # a clip is at least 2^20 grid steps


@dataclass(frozen=True)
class Masks:
    """`protocol` runs the secure sum, every message of it; `skipped` adds the same integers without it."""

    arithmetic: Literal["protocol", "skipped"] = "protocol"
    minimum: int = 3

    @property
    def how(self) -> str:
        return "secure sum" if self.arithmetic == "protocol" else "masks skipped in this simulation"


@dataclass(frozen=True)
class Cohort:
    """What the sum of so many agents' vectors, no longer than `clip`, will be protected by: known before it is made.

    `l2` is how far another agent in one's place moves the sum; it is charged against `deviation`, so that
    rho = (l2 / deviation)^2 / 2. `contributors` are those whose noise is counted on.
    """

    l2: float
    deviation: float
    contributors: int
    share: float
    bits: int


def planned(agents: int, clip: float, length: int, noise: DistributedGaussian | None) -> Cohort:
    bits = _CLIP_BITS - math.floor(math.log2(clip))
    step = 2.0**-bits
    contributors = threshold(agents) - 1  # less one: whoever looks may be of the cohort, and knows its own noise
    l2 = 2.0 * grid_l2(clip, bits, length)
    if noise is None:
        return Cohort(l2 * step, 0.0, contributors, 0.0, bits)
    share = noise_for(noise.rho, l2, contributors, length)
    rho = distributed_rho(l2, share, contributors, length)
    return Cohort(l2 * step, l2 * step / math.sqrt(2.0 * rho), contributors, share, bits)


@dataclass(frozen=True)
class MaskedSum:
    """What a server asks for: the sum of the members' vectors at one place, none longer than `clip`. All public."""

    members: tuple[str, ...]
    round: int
    unit: str
    site: str
    clip: float
    length: int
    masks: Masks
    noise: DistributedGaussian | None

    def __post_init__(self) -> None:
        if len(set(self.members)) < len(self.members):
            raise InputError(f"sum at {self.site!r}", "every member once", "one is named twice")

    @cached_property
    def cohort(self) -> Cohort:
        return planned(len(self.members), self.clip, self.length, self.noise)

    def noise_source(self, root: int, name: str) -> Source:
        """An agent's noise is named by the whole cohort: should a round be repeated with others, it is drawn anew."""
        members = hashlib.sha256(repr(sorted(self.members)).encode()).hexdigest()
        return Keystream(root, name, self.round, f"{self.site}, noise in {self.unit} with {members}").take


def masked_sum(vectors: Mapping[str, Array], asked: MaskedSum, root: int) -> Total:
    """The sum of vectors that are all here. Masks cancel, so they need not be repeatable, and are not."""
    common: dict[str, Any] = {
        "noise": asked.cohort.share,
        "minimum": asked.masks.minimum,
        "noise_source": partial(asked.noise_source, root),
    }
    if asked.masks.arithmetic == "skipped":
        return unmasked_sum(vectors, asked.clip, asked.cohort.bits, **common)
    return secure_sum(vectors, asked.clip, asked.cohort.bits, round=asked.round, unit=asked.unit, **common)


def noise_for(rho: float, l2: float, contributors: int, length: int) -> float:
    """Each agent's share, in grid steps, for which `contributors` of them give at most `rho`."""
    goal = math.sqrt(2.0 * rho)
    share = max(l2 / (goal * math.sqrt(contributors)), LEAST_SHARE)
    if not share <= MOST_SHARE:
        came = f"each round may cost only rho = {rho:g}"
        raise InputError("noise of the agents", "a budget that noise can meet", came, "Raise epsilon or cut rounds.")
    while (over := math.sqrt(2.0 * distributed_rho(l2, share, contributors, length)) - goal) > 0.0:
        share *= 1.0 + 2.0 * over / goal
    return share
