"""The sum of a unit's updates under masks, with or without noise that its agents put in themselves.

The agents' noise is counted as if only the secure sum's threshold of them, less one, had added any: fewer than a third
of a cohort may drop out, or tell what noise they drew, and the guarantee still holds, also against another agent.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.privacy.discrete import LEAST_SHARE, MOST_SHARE, distributed_rho, grid_l2
from silograph.privacy.mechanisms import DistributedGaussian
from silograph.privacy.samplers import Keystream
from silograph.privacy.secure_messages import threshold
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


def masked_sum(
    vectors: Mapping[str, Array], clip: float, masks: Masks, cohort: Cohort, root: int, round: int, unit: str, site: str
) -> Array:
    """The sum of the vectors, decoded.

    An agent's noise is named by the whole cohort: should a round be repeated with others present, it is drawn anew.
    Masks cancel, so they need not be repeatable, and are not.
    """
    members = hashlib.sha256(repr(sorted(vectors)).encode()).hexdigest()

    def noise_source(name: str) -> Source:
        return Keystream(root, name, round, f"{site}, noise in {unit} with {members}").take

    common: dict[str, Any] = {"noise": cohort.share, "minimum": masks.minimum, "noise_source": noise_source}
    if masks.arithmetic == "skipped":
        return unmasked_sum(vectors, clip, cohort.bits, **common).values
    return secure_sum(vectors, clip, cohort.bits, round=round, unit=unit, **common).values


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
