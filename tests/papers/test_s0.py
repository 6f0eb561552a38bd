"""S0, "Graph topology learning under privacy constraints": its algorithm, its convergence and its privacy claims.

Names say which equation, lemma, theorem. Where the printed statement does not hold, one test shows that and another
shows what does.
"""

import cmath
import itertools
import math
from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.spatial.distance import squareform
from scipy.stats import norm

from silograph.kernels.descent import gradient, objective
from silograph.kernels.dual_newton import solve
from silograph.kernels.edges import squared_distances
from silograph.methods import algorithm_one
from silograph.methods.algorithm_one import PaperConsensus, sensitivity_growth
from silograph.methods.base import State, advance, begin
from silograph.privacy.bound import Bounded
from silograph.privacy.mechanisms import Gaussian
from silograph.privacy.relay import relay
from silograph.run.loop import simulate
from silograph.tasks.smooth_graph import PROTECTED_UNIT, SmoothGraph
from silograph.topology import star


class Recorder:
    """A gate that keeps what came before the noise, and lets out what it is told to: `answer(bounded)`."""

    def __init__(self, answer):
        self.answer, self.seen = answer, []

    def rows(self, index):
        raise NotImplementedError

    def release(self, bounded, release_point):
        self.seen.append(bounded)
        return relay(self.answer(bounded))

    def reveal(self, value, release_point, why):
        return relay(value)

    def sync(self):
        """There is no ledger here."""


def drive(method, data, gate, state=None):
    """Run Algorithm 1 round by round through `gate`; yields every state. `data` has one row per silo."""
    count = len(next(iter(data.values())))
    topo = star([f"silo {i}" for i in range(count)])
    state = begin(method, topo) if state is None else state
    yield state
    while not method.done(state.servers):
        state = advance(
            method,
            state,
            topo,
            gate,
            lambda now: (*method.local(now.carry, now.down, data, gate), list(range(count))),
        )
        yield state


def prepared(task, tables):
    parts = [task.prepare(table) for table in tables]
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]}


# ---- III: the same algorithm as S3 -----------------------------------------------------------------------------------


def test_equation_7_is_a_mean_over_records():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((9, 6)), rng.random(15)
    a, b = np.triu_indices(6, 1)
    by_record = np.mean([((s[a] - s[b]) ** 2) @ w for s in x])
    rest = -1.3 * np.log(squareform(w).sum(0) + 0.1).sum() + 0.4 * (w @ w)
    np.testing.assert_allclose(objective(squared_distances(x)[None], w[None], 1.3, 0.2, 0.1)[0], by_record + rest)


@pytest.mark.parametrize("implicit", [False, True])
def test_equations_8_to_16_with_twice_rho_are_those_of_s3(implicit, silos, monkeypatch):
    """S0's weights are half of S3's, so rho_S0 = 2 rho_S3 couples alike, and 2d + eps is 2 (d + eps/2): with the
    constants of the start and of (16) said in the same terms, every round is the same."""
    data = prepared(SmoothGraph(6), [table for _, table in sorted(silos(1).items())])
    ran = {}
    for form in ("S3", "S0"):
        monkeypatch.setattr(algorithm_one, "GAMMA_FLOOR", 1e-3 if form == "S3" else 2e-3)
        method = PaperConsensus(6, beta=0.05, nu=4.0, lam=0.1, form=form, rounds=25, implicit=implicit)
        first = begin(method, star(["silo 0", "silo 1", "silo 2"]))
        share = 1.0 / 3.0 if form == "S3" else 1.0 / 6.0
        pull = (0.4 if form == "S3" else 0.8) * np.full(3, share)
        first = replace(
            first,
            servers={**first.servers, "gamma": np.full(3, share)},
            down={**first.down, "pull": relay(pull)},
        )
        ran[form] = list(drive(method, data, Recorder(None), first))
    for one, other in zip(ran["S3"][1:], ran["S0"][1:], strict=True):
        np.testing.assert_allclose(other.servers["vectors"], one.servers["vectors"], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(other.servers["consensus"], one.servers["consensus"], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(2.0 * other.servers["gamma"], one.servers["gamma"], rtol=1e-9)
    assert ran["S3"][-1].servers["consensus"].max() > 0.0


def test_equation_16_is_the_printed_one(silos, states):
    ran = states(PaperConsensus(6, beta=0.05, nu=4.0, lam=0.1, form="S0", rounds=3), SmoothGraph(6), silos(1))
    for state in ran[1:]:
        apart = np.linalg.norm(state.servers["vectors"] - state.servers["consensus"], axis=1)
        np.testing.assert_allclose(state.servers["gamma"], 1.0 / (2.0 * apart + 1e-3), rtol=1e-12)


def test_equations_57_to_59_alternating_weights_and_consensus_solves_the_unweighted_problem(monkeypatch):
    monkeypatch.setattr(algorithm_one, "GAMMA_FLOOR", 1e-10)
    rng = np.random.default_rng(2)
    w, lam, nu = rng.random((4, 10)), 0.5, 1.5
    method, topo = PaperConsensus(5, beta=0.1, nu=nu, lam=lam, form="S0"), star(["a", "b", "c", "d"])
    servers = {**begin(method, topo).servers, "vectors": w}
    for _ in range(400):
        servers, _ = method.settle(servers, {}, topo)  # (15), (16)
    v = cp.Variable(10)
    rho = 2.0 * lam * nu
    total = sum(rho / 2.0 * cp.norm(w[i] - v) for i in range(4)) + lam * cp.norm1(v)  # (57)
    cp.Problem(cp.Minimize(total)).solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    np.testing.assert_allclose(servers["consensus"], v.value, atol=1e-4)
    assert (servers["consensus"] > 0.01).any()


# ---- III.C: Proposition 1 --------------------------------------------------------------------------------------------


def gradient_bound(bz, bw, alpha, beta, pull, zeta, nodes, corrected):
    """B_f of Proposition 1; |1/(Sw + zeta)| has d entries of up to 1/zeta, which the printed one forgets."""
    last = alpha * math.sqrt(2.0 * (nodes - 1)) / zeta
    return bz + (4.0 * beta + pull) * bw + (math.sqrt(nodes) if corrected else 1.0) * last


def coupled_gradient(z, w, v, alpha, beta, pull, zeta):
    return gradient(z[None], w[None], alpha, beta, zeta)[0] + pull * (w - v)


@pytest.mark.parametrize("nodes", [3, 6, 20])
def test_proposition_1_gradient_bound_needs_sqrt_d(nodes):
    alpha, beta, pull, zeta = 1.0, 0.05, 0.3, 1e-2
    p, rng = nodes * (nodes - 1) // 2, np.random.default_rng(nodes)
    # the counterexample: the empty graph, no data
    empty = np.linalg.norm(coupled_gradient(np.zeros(p), np.zeros(p), np.zeros(p), alpha, beta, pull, zeta))
    assert empty > 1.5 * gradient_bound(0.0, 0.0, alpha, beta, pull, zeta, nodes, corrected=False)
    np.testing.assert_allclose(empty, gradient_bound(0.0, 0.0, alpha, beta, pull, zeta, nodes, corrected=True))
    for _ in range(100):
        z = rng.random(p) * 10.0 ** rng.uniform(-2, 2)
        w, v = (rng.random(p) * (rng.random(p) < rng.random()) * 10.0 ** rng.uniform(-3, 1) for _ in range(2))
        bw = max(np.linalg.norm(w), np.linalg.norm(w - v))
        bound = gradient_bound(np.linalg.norm(z), bw, alpha, beta, pull, zeta, nodes, corrected=True)
        assert np.linalg.norm(coupled_gradient(z, w, v, alpha, beta, pull, zeta)) <= bound * (1.0 + 1e-12)


# ---- III.C: Theorem 1 and its lemmas, where the step is below 1/L_max ------------------------------------------------

NODES, ALPHA, BETA, ZETA, LAM, NU, XI = 6, 1.0, 0.1, 0.5, 0.2, 1.5, 0.1
RHO = 2.0 * LAM * NU


def stiffness(gamma_max):
    return 4.0 * BETA + 2.0 * ALPHA * (NODES - 1) / ZETA**2 + RHO * gamma_max  # L_max of Assumption 3


def algorithm(rounds, adaptive, release=None, gamma_max=None):
    gamma_max = (1.0 / algorithm_one.GAMMA_FLOOR if adaptive else 1.0 / 3.0) if gamma_max is None else gamma_max
    return PaperConsensus(
        NODES,
        ALPHA,
        BETA,
        NU,
        LAM,
        ZETA,
        step=1.0 / stiffness(gamma_max),
        momentum=XI,
        local_steps=1,
        rounds=rounds,
        form="S0",
        implicit=False,
        adaptive=adaptive,
        release=release,
    )


def own(zbar, w):
    return objective(zbar, w, ALPHA, BETA, ZETA)


def coupled(zbar, w, v, gamma):
    """f_i of (9), for every silo."""
    return own(zbar, w) + RHO * gamma / 2.0 * ((w - v) ** 2).sum(-1)


def iterates(ran):
    """(w, w_con, gamma) before the first round and after every one."""
    return [(s.servers["vectors"], s.servers["consensus"], s.servers["gamma"]) for s in ran]


@pytest.mark.parametrize("adaptive", [False, True])
def test_lemmas_1_and_2_descent_in_every_round(adaptive, silos, states):
    """(38), of which (35) is a misprint, and (42)."""
    records = silos(3)
    zbar = np.stack([squared_distances(records[name]) for name in sorted(records)])
    method = algorithm(150, adaptive)
    path = iterates(states(method, SmoothGraph(NODES), records))
    before = path[0][0]
    for (w, v, gamma), (w1, v1, _) in itertools.pairwise(path):
        drop = coupled(zbar, w, v, gamma) - coupled(zbar, w1, v, gamma)
        kinetic = (((w1 - w) ** 2).sum(-1) - XI**2 * ((w - before) ** 2).sum(-1)) / (2.0 * method.step)
        assert (drop >= kinetic - 1e-12).all()  # (38)
        left = coupled(zbar, w1, v1, gamma).sum() + LAM * v1.sum()
        right = coupled(zbar, w1, v, gamma).sum() + LAM * v.sum()
        assert left <= right - RHO * gamma.sum() / 2.0 * ((v1 - v) ** 2).sum() + 1e-12  # (42)
        before = w


def total_change(path):
    local = np.array([((w1 - w) ** 2).sum() for (w, _, _), (w1, _, _) in itertools.pairwise(path)])
    consensus = np.array([((v1 - v) ** 2).sum() for (_, v, _), (_, v1, _) in itertools.pairwise(path)])
    return local, consensus


def delta_19(zbar, path):
    """Delta of (19): f* is min g_i, since the coupling vanishes where w_con = w_i; B_r is measured."""
    w, v, gamma = path[0]
    best = solve(zbar, ALPHA, BETA, ZETA).objective
    consensus = [x[1] for x in path]
    br = max(np.linalg.norm(x - y) for x in consensus[:1] for y in consensus)
    return float((coupled(zbar, w, v, gamma) - best).sum() + LAM * math.sqrt(zbar.shape[1]) * br)


@pytest.mark.parametrize("seed", range(3))
def test_theorem_1_sums_of_squared_steps_stay_bounded(seed, silos, states):
    """(17)-(19), with the weights held at 1/I as its proof has them: averages over T rounds are at most C/T."""
    records = silos(seed)
    zbar = np.stack([squared_distances(records[name]) for name in sorted(records)])
    method = algorithm(400, adaptive=False)
    path = iterates(states(method, SmoothGraph(NODES), records))
    local, consensus = total_change(path)
    delta = delta_19(zbar, path)
    c1, c2 = 2.0 * delta * method.step / (1.0 - XI**2), 2.0 * delta / (RHO * 3 * (1.0 / 3.0))
    for rounds in (1, 10, 100, 400):
        assert local[:rounds].mean() <= c1 / rounds  # (17)
        assert consensus[:rounds].mean() <= c2 / rounds  # (18)
    assert local.sum() > 0.05 * c1  # the bound is not idle: twenty times smaller, it would fail


def test_theorem_1_its_proof_does_not_cover_adaptive_weights(silos, states):
    """(49) telescopes f_i as if gamma stood still; each new gamma changes f_i at the same point."""
    records = silos(3)
    zbar = np.stack([squared_distances(records[name]) for name in sorted(records)])
    path = iterates(states(algorithm(100, adaptive=True), SmoothGraph(NODES), records))
    jumps = [
        (coupled(zbar, w1, v1, g1) - coupled(zbar, w1, v1, g)).sum()
        for (_, _, g), (w1, v1, g1) in itertools.pairwise(path)
    ]
    assert max(jumps) > 0.01


def smoothed(zbar, w, v):
    """What the adaptive weights really descend: |.|/2 replaced by the function whose weights are (16)."""
    eps, apart = algorithm_one.GAMMA_FLOOR, np.linalg.norm(w - v, axis=1)
    return float(
        own(zbar, w).sum() + RHO / 2.0 * (apart - eps / 2.0 * np.log1p(2.0 * apart / eps)).sum() + LAM * v.sum()
    )


@pytest.mark.parametrize("seed", range(3))
def test_theorem_1_corrected_holds_with_adaptive_weights(seed, silos, states):
    """From the first weights by (16) on, the same sums are bounded by the fall of the smoothed (8)."""
    records = silos(seed)
    zbar = np.stack([squared_distances(records[name]) for name in sorted(records)])
    method = algorithm(400, adaptive=True)
    path = iterates(states(method, SmoothGraph(NODES), records))
    local, consensus = total_change(path)
    fall = smoothed(zbar, *path[1][:2]) - smoothed(zbar, *path[-1][:2])
    kinetic = (1.0 - XI**2) / (2.0 * method.step) * local[1:].sum()
    weights = np.array([gamma.sum() for _, _, gamma in path[1:-1]])
    moved = RHO / 2.0 * (weights * consensus[1:]).sum()
    assert kinetic + moved <= fall + XI**2 / (2.0 * method.step) * local[0] + 1e-12
    assert kinetic + moved > 0.05 * fall


# ---- IV.C: Theorem 3, with noise -------------------------------------------------------------------------------------

WIDE = SmoothGraph(NODES, "clipped-distances", clip=1e6)  # nothing is clipped


def noisy_run(zbar, sigma, rounds, seed):
    """The private algorithm with gradient noise of deviation sigma; the noise of every round is kept."""
    rng, kept = np.random.default_rng(seed), []

    def answer(bounded):
        kept.append(sigma * rng.standard_normal(bounded.value.shape))
        return bounded.value + kept[-1]

    method = algorithm(rounds, adaptive=False, release=WIDE)
    data = {"zbar": zbar, "count": np.full(len(zbar), 50.0)}
    return method, iterates(list(drive(method, data, Recorder(answer)))), kept


def bounds_of(zbar, paths, pull):
    """B_r and B_f (with its sqrt(d)) from where the runs went."""
    reach = np.concatenate([np.concatenate([w, v[None]]) for path in paths for w, v, _ in path])
    br = 2.0 * np.linalg.norm(reach, axis=1).max()
    bz = np.linalg.norm(zbar, axis=1).max()
    return br, gradient_bound(bz, (1.0 + 2.0 * XI) * br, ALPHA, BETA, pull, ZETA, NODES, corrected=True)


def test_lemma_4_descent_up_to_the_noise(silos):
    records = silos(4)
    zbar = np.stack([squared_distances(records[name]) for name in sorted(records)])
    method, path, kept = noisy_run(zbar, 2.0, 150, 0)
    br, bf = bounds_of(zbar, [path], RHO / 3.0)
    before = path[0][0]
    for ((w, v, gamma), (w1, _, _)), noise in zip(itertools.pairwise(path), kept, strict=True):
        size = np.linalg.norm(noise, axis=1)
        kinetic = (((w1 - w) ** 2).sum(-1) - XI**2 * ((w - before) ** 2).sum(-1)) / (2.0 * method.step)
        allowed = size * (XI * br + method.step * (bf + size))
        assert (coupled(zbar, w1, v, gamma) <= coupled(zbar, w, v, gamma) - kinetic + allowed + 1e-12).all()  # (60)
        before = w


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_theorem_3_leaves_a_bias_and_bounds_it(sigma, silos):
    """(25)-(27), the expectation replaced by the mean of 8 runs: it is a tenth of the bound or less, so chance plays no
    part. Without its bias term the bound would fail, several times over."""
    records, rounds = silos(4), 400
    zbar = np.stack([squared_distances(records[name]) for name in sorted(records)])
    p, count = zbar.shape[1], len(zbar)
    runs = [noisy_run(zbar, sigma, rounds, seed) for seed in range(8)]
    paths, step = [path for _, path, _ in runs], runs[0][0].step
    br, bf = bounds_of(zbar, paths, RHO / 3.0)
    local = np.mean([total_change(path)[0].mean() for path in paths])
    consensus = np.mean([total_change(path)[1].mean() for path in paths])
    w, v, gamma = paths[0][0]
    best = solve(zbar, ALPHA, BETA, ZETA).objective
    delta = float((coupled(zbar, w, v, gamma) - best).sum() + LAM * math.sqrt(p) * br)
    c1, c2 = 2.0 * delta * step / (1.0 - XI**2), 2.0 * delta / (RHO * count / 3.0)
    edge = math.sqrt(p) * sigma * (XI * br + step * bf)
    delta1 = (2.0 * step * count * edge + 2.0 * p * count * step**2 * sigma**2) / (1.0 - XI**2)
    delta2 = (2.0 * edge + 2.0 * p * step * sigma**2) / (RHO / 3.0)
    assert local <= c1 / rounds + delta1  # (25)
    assert local > 2.0 * c1 / rounds
    assert consensus <= c2 / rounds + delta2  # (26)
    late = np.mean([total_change(path)[0][rounds // 2 :].mean() for path in paths])
    assert late > 0.2 * step**2 * sigma**2 * p * count  # the steps do not die out: they follow the noise


def test_theorem_3_bias_grows_with_the_noise_and_is_absent_without_it(silos):
    records = silos(4)
    zbar = np.stack([squared_distances(records[name]) for name in sorted(records)])
    late = [total_change(noisy_run(zbar, sigma, 400, 0)[1])[0][200:].mean() for sigma in (0.0, 0.5, 2.0)]
    assert late[0] < 1e-3 * late[1]
    assert late[1] < late[2]


# ---- IV.B: sensitivity of K local steps (Theorem 2) ------------------------------------------------------------------


def closed_form_24(steps, a, b):
    """C_s of (24), with (71)-(72)."""
    root = cmath.sqrt(a * a + 4.0 * b)
    s, r = (-a - root) / 2.0, (a - root) / 2.0
    first = (r * a - a * a - b) / ((s + r) * (1.0 + s)) * (1.0 - (-s) ** (steps - 1))
    second = (s * a + a * a + b) / ((s + r) * (1.0 - r)) * (1.0 - r ** (steps - 1))
    return first + second + 1.0


@pytest.mark.parametrize("momentum", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shrink", [1.0, 0.9, 0.3, 0.01])
def test_lemma_5_closed_form_is_the_recursion(momentum, shrink):
    a, b = (1.0 + momentum) * shrink, momentum * shrink
    for steps in range(1, 12):
        value = closed_form_24(steps, a, b)
        assert abs(value.imag) <= 1e-9 * abs(value)
        np.testing.assert_allclose(sensitivity_growth(steps, momentum, shrink), value.real, rtol=1e-9)


def test_lemma_5_closed_form_is_singular_where_a_plus_b_is_one_and_the_recursion_is_not():
    momentum = 0.5
    shrink = 1.0 / (1.0 + 2.0 * momentum)  # a + b = 1
    with pytest.raises(ZeroDivisionError):
        closed_form_24(4, 0.75, 0.25)
    by_hand = 1.0 + 0.75 + (0.75**2 + 0.25) + (0.75 * (0.75**2 + 0.25) + 0.25 * 0.75)
    np.testing.assert_allclose(sensitivity_growth(4, momentum, shrink), by_hand, rtol=1e-14)


def worst_growth(steps, momentum, shrink):
    """How far unit differences, their signs chosen by an adversary, really add up in (10)-(11) from equal starts."""
    responses, before, now = [], 0.0, 1.0
    for _ in range(steps):
        responses.append(abs(now))
        before, now = now, shrink * ((1.0 + momentum) * now - momentum * before)
    return sum(responses)


@pytest.mark.parametrize("momentum", [0.0, 0.1, 0.9])
def test_lemma_3_growth_is_never_less_than_what_an_adversary_reaches(momentum):
    for shrink in (1.0, 0.5, 1e-3, -0.2, -0.9, -3.0):
        for steps in range(1, 9):
            reached = worst_growth(steps, momentum, shrink)
            assert sensitivity_growth(steps, momentum, shrink) >= reached * (1.0 - 1e-12)


def test_theorem_2_printed_c_s_is_no_bound_once_eta_rho_gamma_exceeds_one():
    """Then a, b < 0: (24) is complex, or real and smaller than what an adversary reaches."""
    momentum, shrink = 0.9, -0.5
    a, b = (1.0 + momentum) * shrink, momentum * shrink
    assert a * a + 4.0 * b < 0.0
    momentum, shrink = 0.1, -0.9
    a, b = (1.0 + momentum) * shrink, momentum * shrink
    assert a * a + 4.0 * b > 0.0
    assert closed_form_24(3, a, b).real < 0.7 * worst_growth(3, momentum, shrink)


@dataclass(frozen=True)
class CarriedMomentum(PaperConsensus):
    """S0 as printed, a broken twin of ours: the next round's momentum starts from the last private iterate."""

    def local(self, carry, down, data, gate):
        pull, anchor, beta = down["pull"].value, down["consensus"].value, self.beta
        w, previous = carry["w"].value, carry["previous"]
        previous = previous if isinstance(previous, np.ndarray) else previous.value
        for _ in range(self.local_steps):
            w, previous = self._step(data["zbar"], w, previous, anchor, pull, beta), w
        shrink = 1.0 / (1.0 + self.step * pull) if self.implicit else 1.0 - self.step * pull
        size = self.step * (shrink if self.implicit else np.ones_like(shrink))
        growth = np.array([sensitivity_growth(self.local_steps, self.momentum, float(s)) for s in shrink])
        bounded = Bounded(w, 2.0 * size * self.gradient_clip * growth, PROTECTED_UNIT, "twin")
        noisy = gate.release(bounded, "steps").map(np.abs)
        return {**carry, "w": noisy, "previous": previous}, {"vector": noisy}


#: Replace-one neighbours that pull the gradient in opposite directions: all nodes agree, or none do.
AGREE = np.zeros((1, 4))
DISAGREE = 1e3 * np.array([[0.0, 1.0, 2.0, 3.0]])
LONER = 1e3 * np.eye(4)[:1]


STEADY = [np.full((2, 6), 0.3) + 0.01 * np.random.default_rng(k).standard_normal((2, 6)) for k in range(8)]


def swinging(momentum, rounds=8):
    """Released graphs after which data show in every second round only.

    With alpha = beta = 1000 the gradient without data vanishes at w = sqrt(1/6) and is steep around it: just below, it
    is the data that turn it; .01 away they are lost in it. Carried momentum evaluates it at x + xi (x - before).
    """
    balance, scripts = math.sqrt(1.0 / 6.0), []
    before = 1.0 / 3.0
    for t in range(rounds):
        there = balance - 1e-4 if t % 2 == 0 else balance + 1e-2
        scripts.append(np.full((2, 6), (there + momentum * before) / (1.0 + momentum)))
        before = there
    return scripts


def ratios(method_class, first, second, script, **options):
    """Per round, how far neighbouring data move what would be released, over the bound that goes with it.

    Both runs are shown the same released values: a round's guarantee is for given answers of the rounds before.
    """
    task = SmoothGraph(4, "clipped-distances", clip=5.0)
    bystander = np.random.default_rng(0).standard_normal((1, 4))
    options = {"beta": 1.0, "nu": 1.0, "lam": 0.02, "gradient_clip": 0.5, **options}
    method = method_class(4, form="S0", release=task, rounds=len(script), **options)
    bounds = []
    for table in (first, second):
        told = iter(script)
        gate = Recorder(lambda bounded, told=told: next(told))
        list(drive(method, prepared(task, [table, bystander]), gate))
        bounds.append(gate.seen)
    return np.array(
        [np.linalg.norm(a.value[0] - b.value[0]) / min(a.l2[0], b.l2[0]) for a, b in zip(*bounds, strict=True)]
    )


PAIRS = list(itertools.combinations([AGREE, DISAGREE, LONER], 2))
STEPS = [
    {"local_steps": k, "momentum": xi, "step": eta, "implicit": implicit}
    for k, xi, eta in ((2, 0.1, 0.01), (2, 0.9, 0.001), (5, 0.9, 0.002), (3, 0.5, 0.2))
    for implicit in (True, False)
]
STEEP = {"alpha": 1e3, "beta": 1e3, "local_steps": 2, "momentum": 0.9, "step": 1e-5, "implicit": False}


@pytest.mark.parametrize("options", STEPS, ids=lambda o: "-".join(f"{v}" for v in o.values()))
def test_theorem_2_bound_holds_when_momentum_starts_anew(options):
    assert np.max([ratios(PaperConsensus, *pair, STEADY, **options) for pair in PAIRS]) <= 1.0


def test_theorem_2_bound_is_nearly_reached_with_little_momentum():
    """From equal starts, two steps, data that pull in opposite directions."""
    options = {"local_steps": 2, "momentum": 0.1, "step": 0.01, "implicit": False}
    assert np.max([ratios(PaperConsensus, *pair, STEADY, **options) for pair in PAIRS]) > 0.8


def test_theorem_2_bound_fails_when_momentum_is_carried_over():
    """Its premise of equal starting points holds in the first round only: what a round leaves in the momentum adds to
    what later ones move, and the bound does not know. Where momentum starts anew the same releases do no harm."""
    carried = np.max([ratios(CarriedMomentum, *pair, swinging(0.9), **STEEP) for pair in PAIRS], axis=0)
    anew = np.max([ratios(PaperConsensus, *pair, swinging(0.0), **STEEP) for pair in PAIRS], axis=0)
    assert carried[:3].max() <= 1.0
    assert carried[3:].max() > 1.5
    assert 0.5 < anew.max() <= 1.0


def test_theorem_2_bound_of_unclipped_gradients_is_caught():
    """The other half of the premise: without the clip a gradient is anything but bounded by B."""

    class Unclipped(PaperConsensus):
        def _step(self, zbar, w, previous, anchor, pull, beta):
            ahead = w + self.momentum * (w - previous)
            slope = gradient(zbar, ahead, self.alpha, beta, self.zeta)
            return np.maximum(
                (ahead - self.step * (slope - pull[:, None] * anchor)) / (1 + self.step * pull[:, None]), 0
            )

    options = {"local_steps": 2, "momentum": 0.1, "step": 0.01, "implicit": True}
    assert np.max([ratios(Unclipped, *pair, STEADY, **options) for pair in PAIRS]) > 2.0


# ---- IV.B: Corollary 1, one local step -------------------------------------------------------------------------------

CLIP, COUNT = 3.0, 5


def one_step_gates(table, task):
    method = PaperConsensus(
        NODES,
        beta=0.05,
        nu=2.0,
        lam=0.1,
        form="S0",
        step=0.01,
        momentum=0.1,
        local_steps=1,
        rounds=4,
        release=task,
        implicit=False,
    )
    rng = np.random.default_rng(5)
    script = iter([10.0 * rng.random((1, 15)) for _ in range(4)])
    gate = Recorder(lambda bounded: next(script))
    ran = list(drive(method, prepared(task, [table]), gate))
    return gate.seen, ran


def test_corollary_1_sensitivity_is_sqrt_2_c_over_n_and_not_2_c_over_n():
    """Distances are not negative, so two of length C are at most sqrt(2) C apart; the paper's 2 C (and its remark that
    clipping gives B_z <= 2 C, for 4 C) charges for what cannot happen."""
    task = SmoothGraph(NODES, "clipped-distances", clip=CLIP)
    rng = np.random.default_rng(6)
    others = rng.standard_normal((COUNT - 1, NODES))
    records = [np.zeros(NODES), *(100.0 * np.eye(NODES)), *(rng.standard_normal((10, NODES)) * 10.0)]
    worst = 0.0
    for x, y in itertools.combinations(records, 2):
        seen = [one_step_gates(np.vstack([others, r]), task)[0] for r in (x, y)]
        for a, b in zip(*seen, strict=True):
            assert a.l2[0] == b.l2[0]
            np.testing.assert_allclose(a.l2[0], math.sqrt(2.0) * CLIP / COUNT, rtol=1e-12)
            worst = max(worst, np.linalg.norm(a.value - b.value))
    assert worst <= math.sqrt(2.0) * CLIP / COUNT
    assert worst > 0.85 * math.sqrt(2.0) * CLIP / COUNT  # sqrt(1 - 1/(d-1)) = .894 of it, for six nodes
    assert worst < 0.75 * 2.0 * CLIP / COUNT


def test_corollary_1_the_step_is_post_processing():
    """Shown the same noisy distances, a silo sends the same graph whatever its data are."""
    task = SmoothGraph(NODES, "clipped-distances", clip=CLIP)
    rng = np.random.default_rng(7)
    one, other = (rng.standard_normal((COUNT, NODES)) * scale for scale in (1.0, 30.0))
    (seen_one, ran_one), (seen_other, ran_other) = one_step_gates(one, task), one_step_gates(other, task)
    assert np.abs(seen_one[0].value - seen_other[0].value).max() > 0.1
    for a, b in zip(ran_one, ran_other, strict=True):
        np.testing.assert_array_equal(a.servers["vectors"], b.servers["vectors"])


def test_equations_21_to_23_and_56_noise_on_distances_is_noise_on_the_gradient():
    """The update with noisy zbar is (22) with s = noise, and neighbours move it by eta times what they move zbar."""
    rng = np.random.default_rng(8)
    method = PaperConsensus(NODES, beta=0.05, nu=2.0, lam=0.1, step=0.01, momentum=0.3, local_steps=1, implicit=False)
    w, before, v = rng.random((3, 1, 15)) + 0.5
    zbar, other, noise, pull = rng.random((1, 15)), rng.random((1, 15)), rng.standard_normal((1, 15)), np.array([0.7])
    ahead = w + 0.3 * (w - before)
    slope = gradient(zbar, ahead, 1.0, 0.05, 1e-4) + noise + 0.7 * (ahead - v)
    np.testing.assert_allclose(
        method._step(zbar + noise, w, before, v, pull, 0.05), np.maximum(ahead - 0.01 * slope, 0.0), rtol=1e-12
    )
    moved = method._step(zbar, w, before, v, pull, 0.05) - method._step(other, w, before, v, pull, 0.05)
    np.testing.assert_allclose(np.linalg.norm(moved), 0.01 * np.linalg.norm(zbar - other), rtol=1e-9)


DELTA = 1e-5


def exact_delta(mu, epsilon):
    """The Gaussian mechanism's curve, from scipy's normal distribution."""
    return norm.cdf(-epsilon / mu + mu / 2.0) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2.0)


def classical_multiplier(epsilon):
    return math.sqrt(2.0 * math.log(1.25 / DELTA)) / epsilon  # (55)


@pytest.mark.parametrize(("per_round", "total"), [(0.5, 3.05), (0.8, 5.24), (1.0, 6.82)])
def test_corollary_1_total_over_50_rounds(per_round, total, silos):
    """Claimed: 50 times the per-round epsilon, 25 to 50. Exact: 50 Gaussians are one with sqrt(50) times the ratio."""
    task = SmoothGraph(NODES, "clipped-distances", clip=20.0)
    method = PaperConsensus(
        NODES, beta=0.05, nu=2.0, lam=0.1, form="S0", step=0.01, momentum=0.1, local_steps=1, rounds=50, release=task
    )
    _, door = simulate(method, task, silos(0), Gaussian(classical_multiplier(per_round)), seed=1)
    mu = math.sqrt(50.0) / classical_multiplier(per_round)
    expected = brentq(lambda epsilon: exact_delta(mu, epsilon) - DELTA, 0.01, 50.0, xtol=1e-12)
    for silo in ("silo 0", "silo 2"):
        assert len(door.ledger.of(silo)) == 50
        spent = door.spent(silo, DELTA).epsilon
        np.testing.assert_allclose(spent, expected, rtol=1e-6)
        assert abs(spent - total) < 0.005
        assert spent < 0.2 * 50 * per_round


def test_equation_55_holds_up_to_epsilon_one_and_not_for_every_epsilon():
    for epsilon in (0.1, 0.5, 0.8, 1.0):
        assert exact_delta(1.0 / classical_multiplier(epsilon), epsilon) <= DELTA
    assert exact_delta(1.0 / classical_multiplier(20.0), 20.0) > 100.0 * DELTA


# ---- III.D: why there is a gate --------------------------------------------------------------------------------------


@pytest.mark.parametrize("implicit", [False, True])
def test_two_uploads_without_privacy_give_the_distances_away(implicit, silos):
    """With one local step everything in the update but zbar is known to the server: it solves for it."""
    records = silos(9, nodes=8, records=30)
    data = prepared(SmoothGraph(8), [table for _, table in sorted(records.items())])
    method = PaperConsensus(
        8, beta=0.05, nu=2.0, lam=0.1, form="S0", step=0.01, momentum=0.1, local_steps=1, rounds=6, implicit=implicit
    )
    ran: list[State] = list(drive(method, data, Recorder(None)))
    for t in (0, 3):  # the very first upload (the start is public), and two later ones
        before = ran[max(t - 1, 0)].servers["vectors"]
        w, after = ran[t].servers["vectors"], ran[t + 1].servers["vectors"]
        pull, v = ran[t].down["pull"].value[:, None], ran[t].down["consensus"].value
        ahead = w + 0.1 * (w - before)
        forward = after * (1.0 + 0.01 * pull) - 0.01 * pull * v if implicit else after + 0.01 * pull * (ahead - v)
        zbar = (ahead - forward) / 0.01 - gradient(np.zeros_like(w), ahead, 1.0, 0.05, 1e-4)
        seen = after > 0.0  # the projection hides the others
        assert seen.mean() > 0.9
        assert np.abs(zbar / data["zbar"] - 1.0)[seen].max() <= 1e-11
