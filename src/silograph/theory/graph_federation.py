"""S1's theory in numbers: noise constants, disagreement, error of the centroid, privacy; and what replaces the claims
that do not hold.

Names with a 2 are squares. Bounds leave out the paper's O(.) terms, whose constants are not given. For the quadratic
loss nothing needs a bound: `expected_errors` and `steady_errors` are exact, with sampling, minibatches and local steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError, SolverError
from silograph.core.types import Array
from silograph.kernels.mixing import centroid, msd_centroid
from silograph.tasks.linear import Linear
from silograph.topology import Topology, spectral_gap

Scheme = Literal["none", "homomorphic", "edge", "sender"]
Published = Literal["homomorphic", "sender"]

_STEEPEST = {"ridge": 2.0, "huber": 2.0, "logistic": 0.25}  # largest second derivative of a loss in x.w
_SETTLED = 1e-13  # relative change in a round that ends the search for the steady state
_ROUNDS = 10**6


@dataclass(frozen=True, eq=False)
class Setting:
    """A run of (6)-(8): rows of `data`, `epochs` E and `batches` B are the silos of `topology`, in its order.

    Every round a server draws `sampled` of its agents, and an agent for each step a new batch, both uniformly and
    without replacement. Regions may differ in size; they weigh equally, as in (1).
    """

    task: Linear
    data: dict[str, Array]
    topology: Topology
    epochs: NDArray[np.intp]
    batches: NDArray[np.intp]
    sampled: int
    mu: float

    def __post_init__(self) -> None:
        if not 1 <= self.sampled <= self.topology.sizes.min():
            raise InputError("sampled", f"1 to {self.topology.sizes.min()} agents", f"found {self.sampled}")

    @cached_property
    def optimum(self) -> Array:
        return self.task.optimum(self.data, 1.0 / self.topology.sizes[self.topology.home])  # (1)

    def region_means(self, values: Array) -> Array:
        return np.bincount(self.topology.home, values) / self.topology.sizes


def convexity(task: Linear, data: dict[str, Array]) -> tuple[float, float]:
    """nu of (12), over silos, and delta of (14), over records: the best there are.

    The curvature of logistic and Huber losses vanishes far out, so there only the ridge makes a silo strongly convex.
    """
    x, least = data["x"], 0.0
    if task.loss == "ridge":
        least = 2.0 * np.linalg.eigvalsh(np.einsum("nrm,nrk->nmk", x, x) / data["count"][:, None, None])[:, 0].min()
    steepest = _STEEPEST[task.loss] * (x**2).sum(-1).max()
    return float(least + 2.0 * task.rho), float(steepest + 2.0 * task.rho)  # (12), (14)


def gradient_squares(task: Linear, data: dict[str, Array], w: Array) -> Array:
    """(n,): each silo's mean over its records of |gradient|^2 at one model (M,) or at each silo's own (n, M)."""
    count = data["count"].astype(np.int64)
    w, total = np.broadcast_to(w, (len(count), task.features)), np.zeros(len(count))
    for r in range(task.most):
        gradient = task.gradient(w, data, np.minimum(r, count - 1)[:, None])
        total += (r < count) * (gradient**2).sum(-1)
    return total / count


@dataclass(frozen=True, eq=False)
class GradientNoise:
    """Constants of the regions, (P,). Under Assumption 2 and uniform sampling (24) and (28) hold, loosely: 2 (1 +
    1/E)/L would do for both of (25), (26), and since units draw independently (28) could be divided by P."""

    beta2: Array
    sigma2: Array

    def of_regions(self, w: Array, optimum: Array) -> Array:
        """Bound on E|s_p|^2, (P,), at models (P, M)."""
        return np.asarray(self.beta2 * ((w - optimum) ** 2).sum(-1) + self.sigma2)  # (24)

    def of_centroid(self, w: Array, optimum: Array) -> float:
        """Bound on E|s|^2."""
        beta2, sigma2 = self.centroid
        apart = (self.beta2 * ((w - centroid(w)) ** 2).sum(-1)).mean()
        return float(beta2 * msd_centroid(w, optimum) + sigma2 + 2.0 * apart)  # (28)

    @property
    def centroid(self) -> tuple[float, float]:
        return float(2.0 * self.beta2.mean()), float(self.sigma2.mean())  # (29)


def gradient_noise(s: Setting) -> GradientNoise:
    """The constants for single records; minibatches only have less noise."""
    _, delta = convexity(s.task, s.data)
    squares = gradient_squares(s.task, s.data, s.optimum)
    beta2 = 6.0 * delta**2 / s.sampled * (1.0 + s.region_means(1.0 / s.epochs))  # (25)
    return GradientNoise(beta2, s.region_means((12.0 / s.epochs + 3.0) * squares) / s.sampled)  # (26)


def printed_incremental_constants(mu: float, nu: float, delta: float, epochs: int) -> tuple[float, float, float]:
    """a, b and c of an agent, as sums that exist where lambda = 1, too. They do NOT make (31) true.

    All three lack at least a factor delta^2, so (31) fails for steep losses (one record, E = 2, small mu: delta >= 7).
    lambda is for steps of mu where they are mu/E. The last term of (33) must be 4 lambda^(E+1), as here: with the
    printed 2 it grows like mu^-3, and Lemma 2 does not follow. (36) sums over records where a mean is enough. (38) has
    the factors mu already that (37) puts before it: the true term is O(mu^2), not O(mu^4).
    """
    once, twice = _partial_sums(1.0 - 2.0 * nu * mu + 4.0 * delta**2 * mu**2, epochs)  # (35)
    a = 4.0 * delta**2 / epochs**2 * once[1:].sum()  # (32)
    b = 4.0 / epochs**2 * twice[1:].sum()  # (33)
    return float(a), float(b), (epochs - 1) / (3.0 * epochs)  # (34)


def incremental_noise(mu: float, nu: float, delta: float, epochs: int) -> tuple[float, float]:
    """In place of (31): E|q_p|^2 <= mean over agents of far |w_p - w_k|^2 + near (mean of |gradients at w_k|^2).

    Under Assumption 2, w_k being the agent's optimum; both are O(mu^2). For |q| is at most delta times the way walked,
    the square of a way of e steps is at most e times the sum of theirs, a gradient's is on average at most
    2 delta^2 |error|^2 + 2 |gradients at w_k|^2, and by that the error shrinks by 1 - 2 nu mu/E + 2 (delta mu/E)^2.
    """
    step2, walked = (delta * mu / epochs) ** 2, np.arange(epochs)
    once, twice = _partial_sums(1.0 - 2.0 * nu * mu / epochs + 2.0 * step2, epochs)
    far = 2.0 * delta**2 * step2 / epochs * (walked * once[:-1]).sum()
    return float(far), float(2.0 * step2 / epochs * (walked * (walked + 2.0 * step2 * twice[:-1])).sum())  # (31)


def _partial_sums(ratio: float, count: int) -> tuple[Array, Array]:
    """1 + ratio + ... of 0 to `count` terms, and the sums of the first 0 to `count` of these."""
    once = np.append(0.0, np.cumsum(ratio ** np.arange(count)))
    return once, np.append(0.0, np.cumsum(once[:-1]))


def noise_covariance(a: Array, scheme: Scheme) -> Array:
    """(P, P): of the noise in the servers' combinations, a feature, from draws of variance 1; no link to oneself draws.

    The diagonal times M sigma_g^2 is one meaning of sigma_{g,p}^2 in (40).
    """
    if scheme == "edge":
        return np.diag((a**2).sum(1) - a.diagonal() ** 2)
    factor = {"none": 0.0 * a, "homomorphic": a - np.eye(len(a)), "sender": a}[scheme]  # (8), (47)
    return np.asarray(factor @ factor.T)


def centroid_noise(a: Array, scheme: Scheme, variance: float, features: int) -> float:
    """E|g|^2: M sigma^2/P for `sender`, 0 for `homomorphic`."""
    return float(features * variance * noise_covariance(a, scheme).mean())  # (23), (46)


def disagreement_bound(a: Array, gradient: Array | float, privacy: Array | float) -> float:
    """Limit of (30) from the regions' mu^2 sigma_{s,p}^2 and sigma_{g,p}^2.

    The noise's part holds if sigma_{g,p}^2 is E|.|^2 of a whole vector, be it drawn or received (exact values are in
    `kernels.mixing`), not with the sigma_g^2 of one feature. 1/iota_2^2 cancels, so iota_2 may be 0. The gradients'
    part is NOT a bound: from (72) to (41) a term 2 mu^2 iota_2/(1 - iota_2)^2 |gradient of J_p at the optimum|^2 got
    lost, which is not O(mu^3).
    """
    gap = spectral_gap(a)
    return float(((1.0 - gap) ** 2 * np.mean(gradient) + np.mean(privacy)) / gap)  # (41)


def contraction(mu: float, nu: float, delta: float, beta2: float) -> float:
    """lambda_c without the O(mu^2) of local steps. Theorem 1 is for lambda_c < 1, which takes very small steps."""
    return math.sqrt(1.0 - 2.0 * nu * mu + (delta * mu) ** 2) + beta2 * mu**2  # (42)


def centroid_bound(s: Setting, scheme: Scheme, variance: float) -> float:
    """Theorem 1's limit, inf where lambda_c >= 1, without O(mu) and the O(1) sum of sigma_{g,p}^2."""
    beta2, sigma2 = gradient_noise(s).centroid
    slack = 1.0 - contraction(s.mu, *convexity(s.task, s.data), beta2)  # (44)
    noise = centroid_noise(s.topology.mixing, scheme, variance, s.task.features)
    return (s.mu**2 * sigma2 + noise) / slack if slack > 0.0 else math.inf  # (43), (50)


@dataclass(frozen=True)
class Errors:
    """Expected squared distances: of the centroid (58) and the servers (59) to the optimum, of these to that (30)."""

    centroid: float
    regions: float
    disagreement: float


def expected_errors(s: Setting, scheme: Scheme, variance: float, start: Array, rounds: int) -> list[Errors]:
    """After rounds 1, 2, ..., from models `start` (P, M). Exact for the ridge loss and noise of any law with mean 0
    that is independent over rounds and features, since second moments then obey a linear recursion."""
    return list(islice(_rounds(s, scheme, variance, start), rounds))


def steady_errors(s: Setting, scheme: Scheme, variance: float) -> Errors:
    """The limit of `expected_errors`, from any start."""
    before = Errors(math.inf, math.inf, math.inf)
    for now in islice(_rounds(s, scheme, variance, np.tile(s.optimum, (len(s.topology.servers), 1))), _ROUNDS):
        if max(abs(now.centroid - before.centroid), abs(now.regions - before.regions)) <= _SETTLED * now.regions:
            return now
        if not now.regions < 1e100:
            break
        before = now
    raise SolverError("steady state", "errors that settle", "they do not", "Take a smaller step size mu.")


def _rounds(s: Setting, scheme: Scheme, variance: float, start: Array) -> Iterator[Errors]:
    a, m, own = s.topology.mixing, s.task.features, np.arange(len(s.topology.servers))
    first, second = map(np.array, zip(*(_region_map(s, p) for p in range(len(a))), strict=True))
    noise = np.zeros((len(a), len(a), m + 1, m + 1))
    noise[:, :, np.arange(m), np.arange(m)] = variance * noise_covariance(a, scheme)[:, :, None]
    errors = np.append(start - s.optimum, np.ones((len(a), 1)), 1)
    moments = np.einsum("pi,mj->pmij", errors, errors)
    while True:
        within = second @ moments[own, own].reshape(len(a), -1, 1)
        moments = first[:, None] @ moments @ first.transpose(0, 2, 1)  # different units draw independently
        moments[own, own] = within.reshape(len(a), m + 1, m + 1)
        moments = np.tensordot(a, np.tensordot(a, moments, (1, 1)), (1, 1)) + noise  # (8)
        products = np.trace(moments[..., :m, :m], axis1=2, axis2=3)
        middle, regions = float(products.mean()), float(products.diagonal().mean())
        yield Errors(middle, regions, regions - middle)


def _region_map(s: Setting, p: int) -> tuple[Array, Array]:
    """A round takes a region's (error, 1) to Z (error, 1) with a random matrix Z: E Z and E kron(Z, Z)."""
    members = s.topology.members(p)
    once, twice = map(np.array, zip(*(_agent_map(s, k) for k in members), strict=True))
    mean, size = once.mean(0), len(members)
    others = size * np.kron(mean, mean) - np.mean([np.kron(z, z) for z in once], 0)  # two different agents
    return mean, (twice.mean(0) + (s.sampled - 1) / max(size - 1, 1) * others) / s.sampled  # (7)


def _agent_map(s: Setting, k: int) -> tuple[Array, Array]:
    """The same for one agent, whose steps are independent and alike."""
    if s.task.loss != "ridge":
        raise InputError("loss", "ridge, whose gradients are linear", f"found {s.task.loss}")
    count, epochs, m = int(s.data["count"][k]), int(s.epochs[k]), s.task.features
    x, y = s.data["x"][k, :count], s.data["y"][k, :count]
    descent = np.zeros((count, m + 1, m + 1))  # of a record: minus Hessian, minus gradient at the optimum
    descent[:, :m, :m] = -2.0 * (x[:, :, None] * x[:, None, :] + s.task.rho * np.eye(m))
    descent[:, :m, m] = 2.0 * ((y - x @ s.optimum)[:, None] * x - s.task.rho * s.optimum)
    mean, size = descent.mean(0), s.mu / epochs
    squares = np.einsum("nij,nkl->ikjl", descent, descent).reshape((m + 1) ** 2, -1) / count  # mean of kron
    left = (count - s.batches[k]) / (s.batches[k] * max(count - 1, 1))  # of the variance of one record
    step = np.eye(m + 1) + size * mean  # (3)
    both = np.kron(step, step) + size**2 * left * (squares - np.kron(mean, mean))
    return np.linalg.matrix_power(step, epochs), np.linalg.matrix_power(both, epochs)  # (9)


def claimed_epsilon(i: int, mu: float, bound: float, sigma: float) -> float:
    """Theorem 2's epsilon after round i. It is NOT one: the quadratic loss has no `bound` on gradients unless they are
    clipped, and an L2 sensitivity is put into Laplace noise, which needs up to sqrt(M) more."""
    return math.sqrt(2.0) * mu * bound * (1 + i) * i / sigma  # (86)


def zcdp(sigma: float, rounds: int, clip: float, sampled: int, scheme: Published) -> float:
    """rho = shifts (2C/L)^2 / (2 sigma^2) of Gaussian noise, if each of L agents' updates is clipped to C, one agent is
    replaced, and somebody hears all that servers send.

    sender         sound: models depend on what was sent alone, so a round's mean moves by 2C/L. T shifts.
    homomorphic    un-mixed, round i sends the sum of i updates and one draw. 1 + 4 + ... + T^2 shifts, if the other
                   agents do not react to the hidden model; if they do, a mean moves by up to 2C, as with `sampled` = 1.
    """
    shifts = rounds if scheme == "sender" else rounds * (rounds + 1) * (2 * rounds + 1) / 6
    return shifts * (2.0 * clip / sampled) ** 2 / (2.0 * sigma**2)


def zcdp_noise(rho: float, rounds: int, clip: float, sampled: int, scheme: Published) -> float:
    """The sigma at which `zcdp` is rho."""
    return math.sqrt(zcdp(1.0, rounds, clip, sampled, scheme) / rho)
