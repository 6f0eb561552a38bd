"""The sum of a unit's updates under masks, with or without noise that its agents put in themselves.

The agents' noise is counted as if only the secure sum's threshold of them had added any: fewer than a third of a cohort
may drop out, or tell the server what noise they drew, and the guarantee still holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from silograph.core.types import Array
from silograph.privacy.discrete import LEAST_SHARE, distributed_rho, grid_l2
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
class MaskedSum:
    """`deviation` is what the sensitivity `l2` is charged against: rho = (l2 / deviation)^2 / 2."""

    sums: Array
    l2: float
    deviation: float
    contributors: int


def masked_sum(
    vectors: Mapping[str, Array],
    clip: float,
    masks: Masks,
    noise: DistributedGaussian | None,
    root: int,
    round: int,
    unit: str,
    site: str,
) -> MaskedSum:
    """The sum of vectors no longer than `clip`, decoded."""
    bits = _CLIP_BITS - math.floor(math.log2(clip))
    length = len(next(iter(vectors.values())))
    contributors = threshold(len(vectors))
    # Replacing one agent moves the sum by twice what one can add.
    l2 = 2.0 * grid_l2(clip, bits, length)
    share = 0.0 if noise is None else noise_for(noise.rho, l2, contributors, length)
    rho = math.inf if noise is None else distributed_rho(l2, share, contributors, length)

    def stream(name: str, purpose: str) -> Source:
        return Keystream(root, name, round, f"{site}, {purpose}").take

    def noise_source(name: str) -> Source:
        return stream(name, "noise")

    if masks.arithmetic == "protocol":
        total = secure_sum(
            vectors,
            clip,
            bits,
            noise=share,
            minimum=masks.minimum,
            round=round,
            unit=unit,
            source=lambda name: stream(name, "masks"),
            noise_source=noise_source,
        )
    else:
        total = unmasked_sum(vectors, clip, bits, noise=share, minimum=masks.minimum, noise_source=noise_source)
    step = 2.0**-bits
    return MaskedSum(total.values, l2 * step, l2 * step / math.sqrt(2.0 * rho), contributors)


def noise_for(rho: float, l2: float, contributors: int, length: int) -> float:
    """Each agent's share, in grid steps, for which `contributors` of them give at most `rho`."""
    goal = math.sqrt(2.0 * rho)
    share = max(l2 / (goal * math.sqrt(contributors)), LEAST_SHARE)
    while (over := math.sqrt(2.0 * distributed_rho(l2, share, contributors, length)) - goal) > 0.0:
        share *= 1.0 + 2.0 * over / goal
    return share
