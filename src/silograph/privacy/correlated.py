"""Noise with a part that every two sites of a cohort share, with opposite signs: it cancels in sums, not in releases.

Of I sites, site i adds to its release n_i = own_i + the sum over the others j of +-shared_ij, independent discrete
Gaussians on one grid, of parameters o and t. With L = I 1 - J the Laplacian of the complete graph, J being all ones,

    covariance   o^2 1 + t^2 L          precision   (1 + (t/o)^2 J) / (o^2 + I t^2).

So the sum of all releases has only the own noise, and is more precise than any other direction. Releases are in units
of each site's own sensitivity: the sum is then one in which every record weighs the same, and sites of any size can
take part.

**What it guarantees.** Let h sites be honest, and let the observer know all that the others know: their records, their
own noise and what they share with the honest. Subtracting that leaves the same noise among the h. A record of site i
moves its release alone. It does not change the law of the other releases; given these, that of site i is a Gaussian
shift of precision 1/(h o^2) + (1 - 1/h) / (o^2 + h t^2). Both terms are made equal: half of a record's cost goes to the
mean of the honest, half to all else, o^2 = 2 s^2 / h and t^2 = 2 s^2 (h - 2) / h^2 for a precision of 1 / s^2. With two
honest sites nothing would be shared.

For discrete Gaussians the same holds, with one correction. The joint law of the honest releases is a sum over all
integers that the h (h - 1) / 2 pairs may share. Completing the square, it is a discrete Gaussian of that precision,
around a centre that need not be an integer, times a theta sum of a shifted grid, with covariance at least o^2 t^2 /
(o^2 + h t^2), for L has no eigenvalue above h. By Poisson summation that sum is constant but for a part of the order of
h^2 exp(-2 pi^2 times that): with 2^18 steps or more in o and t it is nothing, for a million sites too. What is left is
the samplers' own error, of which a range of 2^-39 is charged for each of the h (h + 1) / 2 draws. From there on it is
the argument of `discrete`: mu + 7 eta d. A site that stays away leaves its shared noise in the others' releases: they
have more noise, never less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from silograph.core.errors import InputError, LeakError
from silograph.core.types import Array
from silograph.privacy.discrete import LEAST_FINE, MOST_SHARE, SAMPLER_RANGE, discrete_gaussian, grid_move
from silograph.privacy.mechanisms import Charge, Gaussian, Place
from silograph.privacy.samplers import Integers, Keystream

_BITS = 26  # a sensitivity is 2^26 grid steps
LEAST_HONEST, _MOST_HONEST = 3, 1_000_000


@dataclass(frozen=True)
class CorrelatedGaussian(Gaussian):
    """Noise of which every two sites share a part that cancels in their sum.

    It protects an honest site's release, with `honest` such sites in its cohort, as Gaussian noise of deviation
    multiplier * l2 would, though the release has more noise.

    Parameters
    ----------
    multiplier : That deviation in units of the site's sensitivity.
    cohorts : The names of the sites that share noise. Usually there is one cohort; trials have many.
    honest : How many sites of a cohort are counted on to keep their noise secret, 3 or more.

    >>> noise = CorrelatedGaussian(1.0, (("a", "b", "c", "d"),), honest=3)
    >>> covariance = noise.covariance(np.ones(4), dim=1)  # of a coordinate of the four releases
    >>> covariance[0].round(2), round(float(covariance.sum()), 2)  # half the variance of four independent releases
    (array([ 1.33, -0.22, -0.22, -0.22]), 2.67)
    """

    cohorts: tuple[tuple[str, ...], ...]
    honest: int

    def __post_init__(self) -> None:
        if not LEAST_HONEST <= self.honest <= _MOST_HONEST or any(len(set(c)) != len(c) for c in self.cohorts):
            raise InputError("shared noise", "cohorts of different sites, three to a million honest", "found others")

    @property
    def own(self) -> float:
        """o / s"""
        return math.sqrt(2.0 / self.honest)

    @property
    def shared(self) -> float:
        """t / s"""
        return math.sqrt(2.0 * (self.honest - 2)) / self.honest

    @property
    def rests_on(self) -> str:
        """What a reader of the ledger must know of the rows of several sites."""
        sites = max(map(len, self.cohorts))
        return f"noise of which every two of {sites} sites share a part; {self.honest} of them are counted on"

    def scale_in_steps(self, dim: int) -> float:
        """s, in grid steps."""
        goal = 1.0 / self.multiplier
        scale = max(grid_move(1.0, _BITS, dim) / goal, LEAST_FINE / min(self.own, self.shared))
        while scale <= MOST_SHARE and (over := self.ratio(scale, dim) - goal) > 0.0:
            scale *= 1.0 + 2.0 * over / goal
        if scale > MOST_SHARE:
            todo = "Raise epsilon, or take fewer sites or nodes: the samplers' own error counts for each."
            raise InputError("shared noise", "a budget that noise can meet", "it is too small", todo)
        return scale

    def ratio(self, scale: float, dim: int) -> float:
        """The ratio charged for a release: its sensitivity over the deviation of its noise, given all others."""
        eta = 0.5 * self.honest * (self.honest + 1) * SAMPLER_RANGE
        return grid_move(1.0, _BITS, dim) / scale + 7.0 * dim * eta

    def covariance(self, l2: Array, dim: int) -> Array:
        """Compute the covariance of one coordinate of the releases of some sites of a cohort.

        Parameters
        ----------
        l2 : The sensitivities of these sites (sites,).
        dim : How many numbers each releases.
        """
        if not self.multiplier:
            return np.zeros((len(l2), len(l2)))
        (cohort,) = self.cohorts
        unit, scale = np.eye(len(l2)), self.scale_in_steps(dim) * 2.0**-_BITS
        noise = self.own**2 * unit + self.shared**2 * (len(cohort) * unit - 1.0)
        return np.asarray(scale**2 * np.outer(l2, l2) * noise)

    def deviation(self, l2: float, dim: int) -> float:
        """Standard deviation of all the noise in one release."""
        return math.sqrt(self.covariance(np.array([l2]), dim)[0, 0])

    def sampled(self, share: float) -> None:
        return None

    def perturb(self, value: Array, l2: float, place: Place, out: Array) -> None:
        """Add noise; the part that two sites share is named by both and drawn by both."""
        step = l2 * 2.0**-_BITS
        noise = np.zeros(value.size, dtype=np.int64)
        if self.multiplier:
            scale = self.scale_in_steps(value.size)
            for sign, part, stream in self._streams(place):
                noise += sign * discrete_gaussian(stream.lend, part * scale, value.size)
        whole = np.rint(np.clip(value.ravel() / step, -(2.0**61), 2.0**61)).astype(np.int64)
        out.reshape(-1)[:] = (whole + noise) * step

    def _streams(self, place: Place) -> Iterator[tuple[int, float, Keystream]]:
        root, silo, round, release_point = place
        if silo not in self._cohort:
            raise LeakError(f"release at {release_point!r}", "a site of the cohort that shares noise", f"found {silo}")
        yield 1, self.own, Keystream(*place)
        for other in self._cohort[silo]:
            if other != silo:
                first, second = sorted((silo, other))
                stream = Keystream(root, first, round, f"{release_point}, shared with {second}")
                yield (1 if silo == first else -1), self.shared, stream

    @cached_property
    def _cohort(self) -> dict[str, tuple[str, ...]]:
        return {silo: cohort for cohort in self.cohorts for silo in cohort}

    def charge(self, l2: float, dim: int) -> Charge:
        moved = grid_move(1.0, _BITS, dim) * 2.0**-_BITS * l2
        noise = moved / self.ratio(self.scale_in_steps(dim), dim) if self.multiplier else 0.0
        return Charge(moved, noise, self.rests_on)

    def draw(self, stream: Keystream, steps: float, count: int) -> Integers:
        raise LeakError("shared noise", "to be made by a site among others", "a single place asked for it")
