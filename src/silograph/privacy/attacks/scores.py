"""The best distinguisher: the likelihood ratio of everything that was released about a silo.

The attacker knows both worlds except the noise and the coins. At every release y it computes, given all releases before
it, what each world would have released without noise, f0 and f1, and scores y:

    Gaussian    (y - (f0 + f1)/2).(f1 - f0) / sigma^2
    Laplace     (|y - f0| - |y - f1|) / b, summed
    sampled     log(1 - q + q e^L) with L the sum over all releases from one sample, f0 being without the record

The scores of releases add up, because each is conditional on those before it. By Neyman and Pearson no test is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.privacy.accounting import GAUSSIANS


@dataclass(frozen=True, eq=False)
class Release:
    """One place of the pipeline in n trials, as an attacker knows it who knows all but the noise.

    Parameters
    ----------
    observed : What was released (n, ...).
    without : What the world without the canary would have released without noise (n, ...).
    with_it : What the world with it would have released without noise (n, ...).
    noise : The noise that the ledger states (n,): standard deviation, or b of a Laplace.
    mechanism : What the noise is: "gaussian", "distributed-gaussian" or "laplace".
    sampling : The chance of a record to be in the sample; 1 if nothing is sampled.
    batch : The sample that it is from; releases with the same one share their coin.

    >>> release = Release(np.array([[0.2], [0.9]]), np.zeros((2, 1)), np.ones((2, 1)), noise=np.ones(2))
    >>> release.log_ratio(), release.place()[1]  # y - 1/2; and how far the worlds are apart
    (array([-0.3,  0.4]), array([1., 1.]))
    """

    observed: Array
    without: Array
    with_it: Array
    noise: Array
    mechanism: str = "gaussian"
    sampling: float = 1.0
    batch: str = ""

    def log_ratio(self) -> Array:
        """Return the log likelihood ratio (n,), ignoring sampling."""
        y, f0, f1 = (value.reshape(len(value), -1) for value in (self.observed, self.without, self.with_it))
        if self.mechanism in GAUSSIANS:
            return np.asarray(((y - 0.5 * (f0 + f1)) * (f1 - f0)).sum(1) / self.noise**2)
        if self.mechanism == "laplace":
            return np.asarray((np.abs(y - f0) - np.abs(y - f1)).sum(1) / self.noise)
        raise InputError("likelihood ratio", "Gaussian or Laplace noise", f"found {self.mechanism}")

    def place(self) -> tuple[Array, Array]:
        """Return, (n,) each: where the release lies between one world and the other, and how far apart they are, in
        units of its noise."""
        y, f0, f1 = (value.reshape(len(value), -1) for value in (self.observed, self.without, self.with_it))
        apart = f1 - f0
        length = np.sqrt((apart**2).sum(1))
        where = ((y - f0) * apart).sum(1) / np.where(length > 0.0, length, 1.0)
        return np.asarray(where / self.noise), np.asarray(length / self.noise)


def log_ratios(releases: Sequence[Release]) -> Array:
    """Compute the best score of each trial: the log likelihood ratio (n,) of all releases of one round together.

    Parameters
    ----------
    releases : The releases, each in the same n trials.

    >>> release = Release(np.array([[0.2], [0.9]]), np.zeros((2, 1)), np.ones((2, 1)), noise=np.ones(2))
    >>> log_ratios([release, release]).round(6)  # scores add up
    array([-0.6,  0.8])
    """
    total = np.zeros(len(releases[0].observed))
    samples: dict[tuple[str, float], Array] = {}
    for release in releases:
        if release.sampling == 1.0:
            total += release.log_ratio()
        else:
            key = (release.batch, release.sampling)
            samples[key] = samples.get(key, 0.0) + release.log_ratio()
    for (_, rate), ratio in samples.items():
        total += np.logaddexp(np.log1p(-rate), np.log(rate) + ratio)
    return total


def sampled_places(releases: Sequence[Release]) -> dict[str, tuple[Array, Array]]:
    """`Release.place` of each sample: that of all its releases together, along their joint difference."""
    found: dict[str, tuple[Array, Array]] = {}
    for release in releases:
        where, apart = release.place()
        weighed, squared = found.get(release.batch, (0.0, 0.0))
        found[release.batch] = (weighed + apart * where, squared + apart**2)
    return {
        batch: (weighed / np.sqrt(np.where(squared > 0.0, squared, 1.0)), np.sqrt(squared))
        for batch, (weighed, squared) in found.items()
    }


def fitted(tuning: Array) -> Array:
    """Return Fisher's direction for features (2, n, k) without and with the canary.

    If the noise is as the ledger says, this is the likelihood ratio again. If it is not (noise used twice, or less in
    one place than in another), it is better, because it has seen the real noise.
    """
    centred = (tuning - tuning.mean(1, keepdims=True)).reshape(-1, tuning.shape[2])
    covariance = centred.T @ centred / len(centred)
    # A floor for directions without any noise: there the worlds differ for certain.
    covariance += 1e-12 * np.trace(covariance) * np.eye(len(covariance))
    return np.asarray(np.linalg.solve(covariance, tuning[1].mean(0) - tuning[0].mean(0)))
