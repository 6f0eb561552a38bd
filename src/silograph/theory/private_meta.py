"""S4's theory in numbers: Lemmas 1 to 6, Theorems 1 to 3; and what replaces the statements that do not hold.

Client i minimises G_i(w) = F_i(w - eta grad F_i(w)), all of them G, the sum of p_i G_i. A function named `printed_` is
the paper's statement and says what is wrong with it; its neighbour without that word holds. Norms of matrices are
spectral unless said otherwise. These bounds are far from tight: they are what can be proved, not advice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import poch

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.privacy.accounting import Accountant, sampled_epsilon


@dataclass(frozen=True, eq=False)
class Assumptions:
    """Assumptions 1 to 5. Arrays are (U,): one number for each client.

    They must hold wherever models and their inner steps get to, on all of R^d if noise is Gaussian. Lemma 4 clips
    gradients of batches, so B, L and lam are those of every record's loss, not only of the mean F_i.
    """

    B: float  # longest gradient
    lam: float  # Lipschitz constants: (15) of the loss,
    L: float  # (16) of its gradient,
    rho: float  # (17) of its Hessian
    p: Array  # weights of clients, which sum to 1
    epsilon: Array  # (18): farthest gradient from the mean F's
    gamma: Array  # (19): farthest Hessian
    sigma_G: float  # (20): standard deviation of a record's gradient,
    sigma_H: float  # (21) of its Hessian, in the Frobenius norm: see `sampling_errors`
    l: float = 0.0  # (29): strong convexity

    @property
    def widest(self) -> float:
        """Assumptions 1 and 5 hold together only on regions up to this wide: 2B >= l |w - w'|. Never on R^d."""
        return 2.0 * self.B / self.l if self.l else math.inf


@dataclass(frozen=True, eq=False)
class Training:
    """Algorithm 1: (6) to (11). Batch sizes are (U,); every step draws its batches anew, each record for itself.

    The paper has the size of all data |D_i| in their place, although a step sees the sampled part q |D_i| only.
    """

    eta: float  # inner step size
    beta: float  # outer step size
    local_steps: int  # tau_0
    clip: float  # C
    sigma: float  # noise has standard deviation C sigma
    size: int  # S, number of parameters
    query: Array
    support: Array


# ---- the objective: Lemmas 1, 2 and 6 --------------------------------------------------------------------------------


def smoothness(a: Assumptions, eta: float) -> float:
    """Lemma 1: L', the Lipschitz constant of grad G_i. It holds and is attained, by -L |w|^2 / 2."""
    return a.L * (1.0 + eta * a.L) ** 2 + eta * a.rho * a.B  # (22)


def drifts(a: Assumptions, eta: float) -> Array:
    """(U,): in place of Lemma 2, how far grad G_i can be from grad G.

    `own` is the distance to the gradient of F(w - eta grad F(w)), which G is not: what other clients are away from it
    comes on top. A client's own share in G does not count: alone, it drifts by 0.
    """
    own = a.epsilon * (1.0 + eta * a.L) ** 2 + eta * a.B * a.gamma
    return np.asarray((1.0 - 2.0 * a.p) * own + a.p @ own)


def printed_drifts(a: Assumptions, eta: float) -> Array:
    """Lemma 2. It does NOT hold: (89) compares two gradients at one point, but inner steps lead to two, up to
    eta epsilon_i apart, which squares 1 + eta L; and (74) takes G for F(w - eta grad F(w)), F being the mean."""
    return np.asarray(a.epsilon * (1.0 + eta * a.L) + eta * a.B * a.gamma)  # (23)


def convexity(a: Assumptions, eta: float) -> float:
    """In place of Lemma 6: l', the strong convexity of G_i, if positive; for eta L <= 1 no less than the printed one.

    G_i has the Hessian (1 - eta H) M (1 - eta H) up to eta rho B, H and M being F_i's at w and after the inner step.
    """
    least = max(0.0, 1.0 - eta * a.L, eta * a.l - 1.0)  # of |1 - eta H|
    return a.l * least**2 - eta * a.rho * a.B


def printed_convexity(a: Assumptions, eta: float) -> float:
    """Lemma 6. It does NOT hold for eta L > 1, where it even grows with eta. For eta L <= 1 it is true, but not by its
    proof: (200) takes a factor out of a product of matrices that do not commute."""
    return (1.0 - eta * a.L) * (a.l - eta * a.L**2) - eta * a.rho * a.B  # (30)


# ---- one step: Lemmas 3 and 4 ----------------------------------------------------------------------------------------


def sampling_errors(a: Assumptions, eta: float, query: Array, support: Array) -> Array:
    """(U,): in place of Lemma 3, the mean distance of a batch's meta gradient from grad G_i.

    The inner step and the Hessian see the query batch, the outer gradient sees both. (108) adds up variances, which is
    true for the Frobenius norm; in the spectral norm a batch's mean need not be better than one record.
    """
    outer = a.sigma_G * np.sqrt(1.0 / support + (eta * a.L) ** 2 / query)
    return _meta_error(a, eta, outer, eta * a.sigma_H / np.sqrt(query))


def printed_sampling_errors(a: Assumptions, eta: float, support: Array) -> Array:
    """Lemma 3. It does NOT hold: (112) forgets that the outer gradient is sampled too, so eta = 0 has no error at all.
    (94), (99), (100) have support data in place of query data, (105) to (108) eta in place of its square."""
    root = np.sqrt(support)
    return _meta_error(a, eta, eta * a.L * a.sigma_G / root, eta * a.sigma_H / root)  # (25)


def _meta_error(a: Assumptions, eta: float, outer: Array, hessian: Array) -> Array:
    """Root mean squares of both errors suffice, dependent as they are: Cauchy and Schwarz for their product."""
    return np.asarray((1.0 + eta * a.L) * outer + a.B * hessian + outer * hessian)  # (113)


def mean_norm(sd: float, size: int) -> float:
    """Mean length of a Gaussian vector: sd 2^(1/2) Gamma((S + 1)/2) / Gamma(S/2)."""
    return float(sd * math.sqrt(2.0) * poch(size / 2.0, 0.5))


def printed_theta(sigma: float, clip: float, size: int) -> float:
    """Theta. It is NOT the mean it is said to be in (161): (160) doubles it, (155) doubles it again for even S."""
    factor = 2.0 * (math.sqrt(2.0 / math.pi) if size % 2 else math.sqrt(2.0 * math.pi))
    return factor * sigma * clip * math.prod((s - 1) / (s - 2) for s in range(size, 2, -2))  # (27)


def distortion(a: Assumptions, eta: float, clip: float, sigma: float, size: int) -> float:
    """In place of Lemma 4: the mean distance of (9)'s clipped product, before n^S, from the batch's meta gradient.

    g1 is clipped in the spectral norm. Without noise, and with C beyond B, B^2 and (1 + eta L)^2, nothing is distorted.
    """
    jacobian, root = 1.0 + eta * a.L, math.sqrt(clip)
    product = jacobian * a.B - min(jacobian, root) * min(a.B, root)  # what clips of g1 and g2 can take away
    inner = max(a.B - clip, 0.0) + mean_norm(clip * sigma, size)  # (6), (7)
    return jacobian * eta * a.L * inner + product


def printed_distortion(a: Assumptions, eta: float, clip: float, sigma: float, size: int) -> float:
    """Xi of Lemma 4. It does NOT bound what (9) does, where n^S is added. Without n^S it holds, though only
    on average, which (26) does not say; but 2 eta L B stays where nothing is clipped, so Remark 1 is wrong, too."""
    jacobian, root = 1.0 + eta * a.L, math.sqrt(clip)
    inner = 2.0 * a.B + printed_theta(sigma, clip, size)
    return jacobian * (eta * a.L * inner + root / min(root / a.B, 1.0) - root * min(root / jacobian, 1.0))  # (26)


# ---- one round: Lemma 5 and (246) ------------------------------------------------------------------------------------


def _growth(smooth: float, beta: float, steps: int) -> float:
    """What an error of 1 in every step comes to after the last, if steps stretch distances by up to 1 + beta L'."""
    return math.fsum((1.0 + beta * smooth) ** j for j in range(steps))


def local_gap(drift: float, smooth: float, beta: float, local_steps: int) -> float:
    """Lemma 5: h(tau_0), how far the mean of clients that go alone ends from steps down grad G. `drift` is the mean of
    |grad G_i - grad G| over clients.

    The lemma holds, in (28)'s closed form, for p @ drifts(a, eta). It does NOT hold for p @ printed_drifts(a, eta), the
    paper's. (175) and (188) have noise that neither path has.
    """
    return beta * drift * (_growth(smooth, beta, local_steps) - local_steps)  # (28), (197)


def round_error(a: Assumptions, t: Training) -> float:
    """In place of (246): how far G(w^(t+1)) is on average from where tau_0 exact steps down grad G from w^t lead.

    The outer noise n^S of every step is in it. Clients' last noises are averaged; earlier ones have moved their models.
    """
    smooth = smoothness(a, t.eta)
    growth = _growth(smooth, t.beta, t.local_steps)
    step = a.p @ sampling_errors(a, t.eta, t.query, t.support) + distortion(a, t.eta, t.clip, t.sigma, t.size)
    noise = mean_norm(t.clip * t.sigma, t.size) * (float(np.linalg.norm(a.p)) + growth - 1.0)
    apart = local_gap(float(a.p @ drifts(a, t.eta)), smooth, t.beta, t.local_steps)
    return float(a.lam * (1.0 + t.eta * a.L) * (apart + t.beta * (step * growth + noise)))


def printed_round_error(a: Assumptions, t: Training) -> float:
    """(246). It does NOT hold: (227) leaves n^S out, h and the sampling error are too small. What is there it counts
    too often: (227) adds up models where steps add up, and (241) does not follow from (238)."""
    smooth, tau0 = smoothness(a, t.eta), t.local_steps
    growth = tau0 * math.fsum((tau0 - j) * (1.0 + t.beta * smooth) ** j for j in range(tau0))
    step = a.p @ printed_sampling_errors(a, t.eta, t.support)
    step += printed_distortion(a, t.eta, t.clip, t.sigma, t.size)
    apart = local_gap(float(a.p @ printed_drifts(a, t.eta)), smooth, t.beta, tau0)
    return float(a.lam * (1.0 + t.eta * a.L) * (apart + t.beta * step * growth))  # (246)


# ---- all rounds: Theorems 2 and 3 ------------------------------------------------------------------------------------


def theorem_two(a: Assumptions, t: Training, rounds: int, gap: float) -> float:
    """In place of Theorem 2: bounds the mean of G(w^T) - min G for strongly convex losses; `gap` is G(w^0) - min G.

    No loss on R^d is strongly convex with bounded gradients, so this is about a convex region, at most `a.widest` wide,
    that no model leaves. At a given epsilon sigma grows with T without end, so some T is best in the bound: T = 0 where
    a round's noise outweighs what it gains. In S the bound only grows: it knows no best size of a model (Remark 3).
    """
    smooth, convex = smoothness(a, t.eta), convexity(a, t.eta)
    _check_beta(t.beta, smooth)
    if convex <= 0.0:
        raise InputError("eta", "an eta at which G is strongly convex", f"l' is {convex:g}", "Try a smaller eta.")
    return _all_rounds(_shrink(convex, smooth, t.beta) ** t.local_steps, round_error(a, t), rounds, gap)


def printed_theorem_two(a: Assumptions, t: Training, rounds: int, gap: float) -> float:
    """Theorem 2. It does NOT hold, for the reasons of `printed_round_error` and `printed_convexity`; (216) has a sign
    wrong that (218) has right. It needs beta <= 2/L', which is not said. Remarks put the noise in terms (a) and (c);
    it is in (b), where eta multiplies it: as eta goes to 0, no number of rounds is too many."""
    shrink = _shrink(printed_convexity(a, t.eta), smoothness(a, t.eta), t.beta) ** t.local_steps
    return _all_rounds(shrink, printed_round_error(a, t), rounds, gap)  # (31)


def _shrink(convex: float, smooth: float, beta: float) -> float:
    return 1.0 - 2.0 * convex * beta + smooth * convex * beta**2  # zeta, (218)


def _all_rounds(shrink: float, error: float, rounds: int, gap: float) -> float:
    return shrink**rounds * gap + error * math.fsum(shrink**k for k in range(rounds))  # (259)


def theorem_three(a: Assumptions, t: Training, rounds: int, gap: float) -> float:
    """In place of Theorem 3: bounds the mean over rounds of |grad G|^2, added up over the tau_0 exact steps from w^t.

    The first of them is at w^t itself; the others are at models that nobody has.
    """
    smooth = smoothness(a, t.eta)
    _check_beta(t.beta, smooth)
    return _descent(t.beta, smooth, round_error(a, t), rounds, gap)


def printed_theorem_three(a: Assumptions, t: Training, rounds: int, gap: float) -> float:
    """Theorem 3. It does NOT hold, for the reasons of `printed_round_error`. (276) has lambda twice, (32) once."""
    return _descent(t.beta, smoothness(a, t.eta), printed_round_error(a, t), rounds, gap)  # (32)


def _descent(beta: float, smooth: float, error: float, rounds: int, gap: float) -> float:
    return (gap / rounds + error) / (beta * (1.0 - beta * smooth / 2.0))  # (270)


def _check_beta(beta: float, smooth: float) -> None:
    if beta <= 0.0 or beta * smooth >= 2.0:
        raise InputError("beta", "a step size between 0 and 2/L'", f"beta is {beta:g} and L' {smooth:g}")


# ---- privacy: Theorem 1 ----------------------------------------------------------------------------------------------


def theorem_one(
    sigma: float, rate: float, rounds: int, local_steps: int, delta: float, accountant: Accountant = "rdp"
) -> float:
    """Theorem 1 as it is meant: epsilon of 2 T tau_0 sampled Gaussians, query and support added, at equal rates.

    It would hold if each of a step's two releases had a batch of its own and moved by C at most. Algorithm 1's do not:
    see below. A record is in one of the two sets, so a sound version pays T tau_0 of them, not twice as many.
    """
    return sampled_epsilon(sigma, rate, 2 * rounds * local_steps, delta, accountant)  # (12), (37), (40)


def printed_theorem_one(
    sigma: float, rate: float, rounds: int, local_steps: int, delta: float, accountant: Accountant = "rdp"
) -> float:
    """Theorem 1 by the letter. It is NOT the cost: mu_1 is already the mixture that (13) and (14) mix once more, so a
    record seems to be drawn at rate q^2. (41) has the query's term twice."""
    return theorem_one(sigma, rate**2, rounds, local_steps, delta, accountant)  # (13), (14)


@dataclass(frozen=True)
class RecordCosts:
    """Epsilon of a query record and of a support record."""

    query: float
    support: float

    @property
    def epsilon(self) -> float:
        return max(self.query, self.support)


def true_cost_of_the_literal_version(
    sigma: float, rate: float, rounds: int, local_steps: int, delta: float, accountant: Accountant = "pld"
) -> RecordCosts:
    """What Algorithm 1 costs, if somebody sees what (7) and (9) make, as Theorem 1 takes it.

    (6) and (9) clip the averaged gradient, which one record can turn around: it moves by 2C. A support record moves
    (9); a query record moves (7) and, through g1, (9), both or none: one Gaussian of twice the squared ratio.
    """
    releases = rounds * local_steps
    return RecordCosts(
        query=sampled_epsilon(sigma / math.sqrt(8.0), rate, releases, delta, accountant),
        support=sampled_epsilon(sigma / 2.0, rate, releases, delta, accountant),
    )
