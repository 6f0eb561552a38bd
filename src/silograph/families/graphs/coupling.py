"""How strongly sites are held together, chosen by how well graphs fit signals that were held out.

Every site leaves out a third of its signals in turn, in blocks, because neighbouring signals are often alike. At each
strength on a path all sites learn from the rest; the loss is g of S3 (7) without its ridge, per node, on what was left
out. It looks at signals in the clear, so it is for runs without privacy, in one place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.types import Array, Json
from silograph.data.silos import Elsewhere, Silos
from silograph.families.graphs.build import Setup, build
from silograph.families.graphs.plan import GraphPlan
from silograph.kernels.spaces import EdgeList
from silograph.methods.choosing import choose, learn_alone
from silograph.run.loop import simulate

FOLDS = 3
STEPS = range(-5, 3)  # powers of two around the rule
CLOSE = 1e-4  # certified gap at which graphs are compared


@dataclass(frozen=True)
class Chosen:
    plan: GraphPlan
    path: Json


def choose_coupling(plan: GraphPlan, silos: Silos, candidates: EdgeList | None) -> Chosen:
    """The plan with nu and lambda filled in, and the path that says why."""
    if any(isinstance(signals, Elsewhere) for signals in silos.signals):
        raise InputError(
            wording.setting("coupling_by"), "all tables in one place", "they are at several organisations", "Set nu."
        )
    if len(silos.names) < 2:
        raise InputError(
            wording.setting("coupling_by"), "two sites or more, to be held together", "found one", "Leave it out."
        )
    short = next((n for n, x in zip(silos.names, silos.signals, strict=True) if len(x) < 2 * FOLDS), None)
    if short is not None:
        raise InputError(f"site {short}", f"at least {2 * FOLDS} signals to hold some out", "there are fewer")
    lam, nu = _rule(plan, silos, candidates)
    values = [nu * 2.0**step for step in STEPS]
    losses = np.array([_losses(_at(plan, value, lam), silos, candidates) for value in values])  # (path, folds, sites)
    scores = losses.mean((1, 2))
    # How sure the differences are: the sites and folds are the same at every strength, so their levels do not count.
    apart = losses - losses.mean(0)
    spread = apart.std((1, 2), ddof=1) / math.sqrt(apart[0].size) if apart[0].size > 1 else np.zeros(len(values))
    best = values[int(scores.argmin())]
    path: Json = {"parameter": "nu", "score": "held-out loss per node", "chosen": best}
    path |= {"values": values, "scores": scores.tolist(), "spread": spread.tolist()}
    return Chosen(_at(plan, best, lam), path)


def _at(plan: GraphPlan, nu: float, lam: float) -> GraphPlan:
    return replace(plan, method=replace(plan.method, learner="papers", nu=nu, lam=lam, coupling_by="rule"))


def _rule(plan: GraphPlan, silos: Silos, candidates: EdgeList | None) -> tuple[float, float]:
    """lam and nu as they would be chosen without looking further."""
    setup = _setup(plan, silos, candidates)
    zbar = np.array([setup.task.space.distances(np.asarray(signals)) for signals in silos.signals])
    method = plan.method
    degree = None if method.beta is not None else setup.degree
    _, facts = learn_alone(setup.task.space, zbar, method.alpha, method.beta, method.zeta or 0.0, degree)
    _, lam, nu = choose(facts, len(zbar), method.lam, None)
    return lam, nu


def _setup(plan: GraphPlan, silos: Silos, candidates: EdgeList | None) -> Setup:
    rough = replace(plan.method, learner="papers", coupling_by="rule", tolerance=CLOSE, resamples=0)
    return build(replace(plan, method=rough), silos, candidates)


def _losses(plan: GraphPlan, silos: Silos, candidates: EdgeList | None) -> Array:
    """(folds, sites): the loss of what each fold leaves out, on graphs learned from the rest."""
    losses = np.empty((FOLDS, len(silos.names)))
    for fold in range(FOLDS):
        out = [_block(len(signals), fold) for signals in silos.signals]
        parts = [np.asarray(signals) for signals in silos.signals]
        rest = [np.delete(part, block, axis=0) for part, block in zip(parts, out, strict=True)]
        setup = _setup(plan, replace(silos, signals=tuple(rest)), candidates)
        found, _ = simulate(setup.method, setup.task, dict(zip(silos.names, rest, strict=True)))
        graphs = found.arrays["graph"][setup.topo.index(silos.names)]
        space, alpha, zeta = setup.task.space, plan.method.alpha, plan.method.zeta or 0.0
        zbar = np.array([space.distances(part[block]) for part, block in zip(parts, out, strict=True)])
        losses[fold] = space.objective(zbar, graphs, alpha, 0.0, zeta) / space.nodes
    return losses


def _block(signals: int, fold: int) -> slice:
    return slice(fold * signals // FOLDS, (fold + 1) * signals // FOLDS)
