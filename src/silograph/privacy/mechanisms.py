"""How noise is made.

A value is rounded to a grid whose step is a power of two (its sensitivity grows by at most one step per coordinate, and
that is charged), and integer noise is added there. The discrete Laplace is exactly epsilon-private on the grid. The
discrete Gaussian's deviation is at least 2^18 steps for any noise worth the name; there it agrees, to 1e-10 relative
and out to twelve deviations, with a Gaussian rounded to the grid, which is post-processing of the ideal mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numba import njit

from silograph.core.errors import InputError, LeakError
from silograph.core.types import Array
from silograph.privacy.discrete import LEAST_FINE, LEAST_SHARE, discrete_gaussian, distributed_mu, distributed_rho
from silograph.privacy.samplers import Integers, Keystream, discrete_laplace

_GRID_BITS = 22  # the grid makes a sensitivity at most 2^-22 larger
DISTRIBUTED = "distributed-gaussian"
_MOST = 2.0**61  # grid steps a value may have; beyond, it is held there


class Place(NamedTuple):
    """The place of a run where noise is drawn: no two places share any noise."""

    root: int
    silo: str
    round: int
    release_point: str


class Charge(NamedTuple):
    """What a release is charged: its sensitivity on the grid, the noise that hides it, and what else the promise
    depends on."""

    l2: float
    noise: float
    rests_on: str = ""


class Noise(Protocol):
    """A run's noise: a mechanism for every round."""

    def at(self, round: int) -> Mechanism: ...


class Mechanism(Noise, Protocol):
    """Noise proportional to a sensitivity. `multiplier` is the scale of the noise in units of that sensitivity."""

    @property
    def name(self) -> str:
        """The kind of noise that an accountant reads from its rows."""
        ...

    @property
    def multiplier(self) -> float: ...

    @property
    def own_noise(self) -> OwnNoise | None:
        """The mechanism itself, where those whose vectors are added up put it in."""
        ...

    def sampled(self, share: float) -> Mechanism | None:
        """For a share of the precision; None where it cannot be shared out, nor amplified by sampling."""
        ...

    def perturb(self, value: Array, l2: float, place: Place, out: Array) -> None:
        """Write `value` plus noise for sensitivity `l2` to `out`, which is contiguous."""
        ...

    def charge(self, l2: float, dim: int) -> Charge: ...

    def scale(self, l2: float, dim: int) -> float: ...

    def deviation(self, l2: float, dim: int) -> float:
        """The noise's standard deviation per coordinate."""
        ...

    def draw(self, stream: Keystream, steps: float, count: int) -> Integers:
        """Integer noise whose scale is so many grid steps."""
        ...


class _Additive:
    """Base of mechanisms that draw a release's noise from its own stream."""

    @property
    def own_noise(self) -> OwnNoise | None:
        return None

    def at(self, round: int) -> Self:
        return self

    def sampled(self, share: float) -> Mechanism | None:
        return None

    def perturb(self: Mechanism, value: Array, l2: float, place: Place, out: Array) -> None:
        perturb(value, l2, self, Keystream(*place), out)

    def charge(self: Mechanism, l2: float, dim: int) -> Charge:
        charged = on_grid(l2, dim)
        return Charge(charged, self.scale(charged, dim))


@dataclass(frozen=True)
class Gaussian(_Additive):
    """Gaussian noise with standard deviation multiplier * l2 in every coordinate.

    Parameters
    ----------
    multiplier : The standard deviation in units of the sensitivity; 0 is no noise.

    >>> from silograph.privacy.accounting import gaussian_multiplier
    >>> round(Gaussian(gaussian_multiplier(1.0, 1e-6, 1)).deviation(l2=0.5, dim=3), 3)
    2.112
    """

    multiplier: float
    name: ClassVar[str] = "gaussian"

    def scale(self, l2: float, dim: int) -> float:
        return self.multiplier * l2

    def deviation(self, l2: float, dim: int) -> float:
        return self.scale(l2, dim)

    def sampled(self, share: float) -> Mechanism | None:
        return Gaussian(self.multiplier / math.sqrt(share))

    def draw(self, stream: Keystream, steps: float, count: int) -> Integers:
        return discrete_gaussian(stream.lend, steps, count)


@dataclass(frozen=True)
class Scheduled:
    """Gaussian noise that changes from round to round (S2, IV): its variance is multiplied by `ratio` after each."""

    first: Gaussian
    ratio: float

    def at(self, round: int) -> Gaussian:
        return Gaussian(self.first.multiplier * self.ratio ** (0.5 * round))


def variance_decay(multiplier: float, decay: float) -> Scheduled:
    """Make Gaussian noise that shrinks, sigma(n)^2 = sigma_0^2 decay^n: every round leaks more than the one before.

    Parameters
    ----------
    multiplier : The standard deviation in round 0, in units of the sensitivity, above 0.
    decay : The factor of the variance from round to round, above 0 and at most 1.

    >>> variance_decay(2.0, decay=0.25).at(1)
    Gaussian(multiplier=1.0)
    """
    _check_schedule(multiplier, decay)
    return Scheduled(Gaussian(multiplier), decay)


def leakage_decay(rho: float, decay: float) -> Scheduled:
    """Make Gaussian noise that grows, rho(n) = rho decay^n in zCDP: every round leaks less than the one before.

    Parameters
    ----------
    rho : The cost of round 0 in zCDP, above 0: the noise there is 1 / sqrt(2 rho) times the sensitivity.
    decay : The factor of the cost from round to round, above 0 and at most 1.

    >>> leakage_decay(0.5, decay=0.25).at(1)
    Gaussian(multiplier=2.0)
    """
    _check_schedule(rho, decay)
    return Scheduled(Gaussian(1.0 / math.sqrt(2.0 * rho)), 1.0 / decay)  # (47)


def _check_schedule(first: float, decay: float) -> None:
    if not (0.0 < first < math.inf and 0.0 < decay <= 1.0):
        expected = "a first number above 0, and a decay above 0 and at most 1"
        raise InputError("noise schedule", expected, f"found {first:g} and {decay:g}")


@dataclass(frozen=True)
class Laplace(_Additive):
    """Laplace noise of scale b = multiplier * l1 in every coordinate, with l1 = sqrt(dim) * l2 (Cauchy-Schwarz).

    Parameters
    ----------
    multiplier : The scale in units of the sensitivity in l1.

    >>> Laplace(2.0).scale(l2=0.5, dim=4)
    2.0
    """

    multiplier: float
    name: ClassVar[str] = "laplace"

    def scale(self, l2: float, dim: int) -> float:
        return self.multiplier * math.sqrt(dim) * l2

    def deviation(self, l2: float, dim: int) -> float:
        return math.sqrt(2.0) * self.scale(l2, dim)

    def draw(self, stream: Keystream, steps: float, count: int) -> Integers:
        return discrete_laplace(stream, steps, count)


class _Own:
    """Noise that the members of a sum add themselves. No single place has all of it."""

    laplace: ClassVar[bool] = False

    @property
    def own_noise(self) -> Any:
        return self

    def draw(self, stream: Keystream, steps: float, count: int) -> Integers:
        raise LeakError("noise of a secure sum", "to be made by its members", "a single place asked for it")


@dataclass(frozen=True)
class SharedGaussian(_Own, Gaussian):
    """Gaussian noise of the sites of a secure sum, on a grid so fine that the exact curve holds.

    Parameters
    ----------
    multiplier : The standard deviation of the noise of those who are counted on (`counted_on`), in units of the sum's
        sensitivity.

    >>> SharedGaussian(2.0).own_noise  # the gate adds none: sites put it in themselves
    SharedGaussian(multiplier=2.0)
    """

    least_share: ClassVar[float] = LEAST_FINE

    def sampled(self, share: float) -> Gaussian:
        """What a silo releases beside the sums has noise of its own."""
        return Gaussian(self.multiplier / math.sqrt(share))

    @property
    def goal(self) -> float:
        """The most that a sum's sensitivity over its noise may be."""
        return 1.0 / self.multiplier

    def with_share(self, share: float) -> SharedGaussian:
        """For a sum with that share of the precision."""
        return SharedGaussian(self.multiplier / math.sqrt(share))

    def first_share(self, l2: float, contributors: int) -> float:
        """About the share, in grid steps, with which so many reach the goal."""
        return _even_share(self, l2, contributors)

    def ratio(self, l2: float, share: float, contributors: int, length: int) -> float:
        """What it is charged as, where so many add a share of so many grid steps each."""
        return distributed_mu(l2, share, contributors, length)


@dataclass(frozen=True)
class DistributedGaussian(_Own, _Additive):
    """Discrete Gaussian noise of the agents of a secure sum, charged as zCDP.

    Parameters
    ----------
    rho : The cost of a sum in zCDP, above 0.

    >>> DistributedGaussian(rho=0.5).multiplier  # 1 / sqrt(2 rho)
    1.0
    """

    rho: float
    name: ClassVar[str] = DISTRIBUTED
    least_share: ClassVar[float] = LEAST_SHARE

    @property
    def multiplier(self) -> float:
        return 1.0 / self.goal

    @property
    def goal(self) -> float:
        return math.sqrt(2.0 * self.rho)

    def with_share(self, share: float) -> DistributedGaussian:
        return DistributedGaussian(self.rho * share)

    def first_share(self, l2: float, contributors: int) -> float:
        return _even_share(self, l2, contributors)

    def ratio(self, l2: float, share: float, contributors: int, length: int) -> float:
        return math.sqrt(2.0 * distributed_rho(l2, share, contributors, length))

    def scale(self, l2: float, dim: int) -> float:
        return self.multiplier * l2

    def deviation(self, l2: float, dim: int) -> float:
        return self.scale(l2, dim)


@dataclass(frozen=True)
class SharedLaplace(_Own, _Additive):
    """Laplace noise of the members of a sum of one number (`laplace_shares`): scale = multiplier * sensitivity.

    One number at a small epsilon needs far less of it than of Gaussian noise, and no delta.
    """

    multiplier: float
    name: ClassVar[str] = Laplace.name
    laplace: ClassVar[bool] = True
    least_share: ClassVar[float] = LEAST_FINE

    @property
    def goal(self) -> float:
        return 1.0 / self.multiplier

    def with_share(self, share: float) -> SharedLaplace:
        """For a sum with that share of epsilon."""
        return SharedLaplace(self.multiplier / share)

    def first_share(self, l2: float, contributors: int) -> float:
        """The scale of all shares together: how many they are changes nothing."""
        return l2 / self.goal

    def ratio(self, l2: float, share: float, contributors: int, length: int) -> float:
        if length != 1:
            raise InputError("distributed Laplace noise", "a sum of one number", f"found {length}")
        return l2 / share

    def scale(self, l2: float, dim: int) -> float:
        return self.multiplier * math.sqrt(dim) * l2

    def deviation(self, l2: float, dim: int) -> float:
        return math.sqrt(2.0) * self.scale(l2, dim)


#: Noise that those whose vectors are added up put in themselves.
OwnNoise = DistributedGaussian | SharedGaussian | SharedLaplace


def _even_share(noise: DistributedGaussian | SharedGaussian, l2: float, contributors: int) -> float:
    return l2 / (noise.goal * math.sqrt(contributors))


#: What a ledger's rows can be by, if they are protected.
NAMES = (Gaussian.name, Laplace.name, DISTRIBUTED)


def grid_step(l2: float, dim: int) -> float:
    """Compute the step of the grid that a release is rounded to: the power of two at most 2^-22 l2 / sqrt(dim).

    Parameters
    ----------
    l2 : The sensitivity, above 0.
    dim : How many numbers are released.

    >>> grid_step(1.0, dim=100) == 2.0**-26
    True
    """
    return 2.0 ** math.floor(math.log2(l2 / math.sqrt(dim)) - _GRID_BITS)


def on_grid(l2: float, dim: int) -> float:
    """Compute the sensitivity after rounding to the grid, which is charged: l2 + step sqrt(dim).

    Parameters
    ----------
    l2 : The sensitivity before, above 0.
    dim : How many numbers are released.

    >>> print(f"{on_grid(1.0, dim=100) - 1.0:.1e}")
    1.5e-07
    """
    return l2 + grid_step(l2, dim) * math.sqrt(dim)


def perturb(value: Array, l2: float, mechanism: Mechanism, stream: Keystream, out: Array | None = None) -> Array:
    """`value` plus noise for sensitivity `l2`, on the grid; written to `out` if there is one, which is contiguous."""
    step = grid_step(l2, value.size)
    steps = mechanism.scale(on_grid(l2, value.size), value.size) / step
    # A mechanism without noise is for comparing with the plain algorithm.
    noise = mechanism.draw(stream, steps, value.size) if steps else np.zeros(value.size, dtype=np.int64)
    out = np.empty(value.shape) if out is None else out
    _add(np.ascontiguousarray(value).ravel(), noise, step, out.reshape(-1))
    return out


@njit(cache=True, nogil=True)
def _add(value: Array, noise: Integers, step: float, out: Array) -> None:
    """Round to the grid and add noise there. Holding a value within bounds brings no two values further apart, so it
    costs nothing."""
    for i in range(len(out)):
        whole = min(max(np.rint(value[i] / step), -_MOST), _MOST)
        out[i] = (np.int64(whole) + noise[i]) * step
