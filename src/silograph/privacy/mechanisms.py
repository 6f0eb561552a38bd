"""How noise is made.

Noise is added on a grid whose step is a power of two: the value is rounded to the grid first (its sensitivity grows by
at most one step per coordinate, which is charged), then the noise is rounded to the grid. An integer plus a rounded
Gaussian is a rounded (integer plus Gaussian), so what leaves is post-processing of the ideal mechanism, and its low
bits carry nothing of the private value, which plain floating-point noise does not guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array

_GRID_BITS = 20  # the grid makes a sensitivity at most 2^-20 larger


class Mechanism(Protocol):
    """Noise proportional to a sensitivity. `multiplier` is the scale of the noise in units of that sensitivity."""

    @property
    def name(self) -> str: ...

    @property
    def multiplier(self) -> float: ...

    def scale(self, l2: float, dim: int) -> float: ...

    def deviation(self, l2: float, dim: int) -> float:
        """The noise's standard deviation per coordinate."""
        ...

    def draw(self, rng: np.random.Generator, scale: float, shape: tuple[int, ...]) -> Array: ...


@dataclass(frozen=True)
class Gaussian:
    """Standard deviation = multiplier * l2."""

    multiplier: float
    name: ClassVar[str] = "gaussian"

    def scale(self, l2: float, dim: int) -> float:
        return self.multiplier * l2

    def deviation(self, l2: float, dim: int) -> float:
        return self.scale(l2, dim)

    def draw(self, rng: np.random.Generator, scale: float, shape: tuple[int, ...]) -> Array:
        return rng.normal(0.0, scale, shape)


@dataclass(frozen=True)
class Laplace:
    """Scale b = multiplier * l1, with l1 = sqrt(dim) * l2 (Cauchy-Schwarz)."""

    multiplier: float
    name: ClassVar[str] = "laplace"

    def scale(self, l2: float, dim: int) -> float:
        return self.multiplier * math.sqrt(dim) * l2

    def deviation(self, l2: float, dim: int) -> float:
        return math.sqrt(2.0) * self.scale(l2, dim)

    def draw(self, rng: np.random.Generator, scale: float, shape: tuple[int, ...]) -> Array:
        return rng.laplace(0.0, scale, shape)


def grid_step(l2: float, dim: int) -> float:
    """The power of two at most 2^-20 l2 / sqrt(dim)."""
    return 2.0 ** math.floor(math.log2(l2 / math.sqrt(dim)) - _GRID_BITS)


def on_grid(l2: float, dim: int) -> float:
    """The sensitivity after rounding `dim` coordinates to the grid: each of two neighbours moves half a step."""
    return l2 + grid_step(l2, dim) * math.sqrt(dim)


def perturb(value: Array, l2: float, mechanism: Mechanism, rng: np.random.Generator) -> Array:
    """`value` plus noise for sensitivity `l2`, on the grid."""
    step = grid_step(l2, value.size)
    whole = np.rint(value / step)
    if not (np.abs(whole) < 2.0**52).all():
        raise InputError(
            "noise grid",
            "values below 2^52 grid steps",
            f"the largest is {np.abs(whole).max():.3g}",
            "Clip the data more tightly.",
        )
    noise = np.rint(mechanism.draw(rng, mechanism.scale(on_grid(l2, value.size), value.size), value.shape) / step)
    return np.asarray((whole + noise) * step)
