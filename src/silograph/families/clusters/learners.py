"""From the plan of clustered models to the method that learns them."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from silograph.core.results import filled
from silograph.data.regions import RegionTables
from silograph.families.clusters.plan import ClusteredMethod, ClusteredPlan, learner_of
from silograph.methods.calibrated import Calibrated
from silograph.methods.calibration import STEP_CLIP, choose, noise_in_groups, noise_in_mean, pure_noise_in_mean
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.methods.find_clusters import FindClusters, FoundClusters
from silograph.methods.random_effects import RandomEffects
from silograph.privacy import accounting
from silograph.tasks.clustered import Linearised, Proximal
from silograph.tasks.linear import Linear
from silograph.topology import Topology

Task = Proximal | Linearised | Linear
Learner = ClusteredADMM | RandomEffects | Calibrated

_FINDING = 0.2  # share of the budget for finding clusters
_FOUND = 0.1  # how long a client's mean gradient is, of the clip: noise that is longer finds nothing


def learner(
    plan: ClusteredPlan,
    task: Task,
    tables: RegionTables,
    topo: Topology,
    clusters: tuple[int, ...],
    sought: int | None,
) -> Learner | FoundClusters:
    """Learns models of the clusters, `sought` of which are found first, if any are."""
    chosen, clip = plan.method, plan.method.clip if plan.privacy is not None else None
    answers, share = None, 1.0
    inner: Learner
    if learner_of(plan) == "effects":
        inner = RandomEffects(task, clusters, chosen.intercept, chosen.rounds)
    elif learner_of(plan) == "calibrated":
        inner = _calibrated(plan, task, tables, topo, clusters, 1.0 if sought is None else 1.0 - _FINDING)
        clip, answers, share = STEP_CLIP * math.sqrt(task.features), inner.answers, _FINDING
    else:
        assert isinstance(task, Proximal | Linearised)
        inner = filled(
            ClusteredADMM,
            chosen,
            task=task,
            clusters=clusters,
            rho=chosen.penalty,
            lam=chosen.ridge,
            protect=plan.protect,
            clip=None if plan.protect == "records" else chosen.clip,
            seed=plan.seed or 0,
            reach=plan.reach,
        )
    if sought is None:
        return inner
    seen = Linear(task.features, task.most, chosen.loss, 0.0, chosen.huber)
    return FoundClusters(FindClusters(seen, sought, clip, answers=answers, share=share), inner)


def clusters_sought(plan: ClusteredPlan, tables: RegionTables) -> int | None:
    """How many clusters are looked for: none with a budget that could not tell them."""
    privacy = plan.privacy
    if plan.sought is None or privacy is None or learner_of(plan) != "calibrated":
        return plan.sought
    features, records = len(tables.features) + 1, float(np.median([len(y) for _, y in tables.records]))
    multiplier = accounting.gaussian_multiplier(privacy.epsilon, privacy.delta, 1) / math.sqrt(_FINDING)
    return plan.sought if 2.0 * multiplier / records * math.sqrt(features) <= _FOUND else None


def _calibrated(
    plan: ClusteredPlan, task: Task, tables: RegionTables, topo: Topology, clusters: tuple[int, ...], share: float
) -> Calibrated:
    """Settings follow from public numbers, for a share of the budget.

    Clusters that are to be found are taken to be of one size.
    """
    assert plan.privacy is not None
    assert isinstance(task, Linear)
    records = plan.privacy.protect == "records"
    of = dict(zip(tables.agents, (len(y) for _, y in tables.records), strict=True))
    counts = tuple(of[name] for name in topo.silos)
    held = counts if records else None
    noises, units = _noises(plan, clusters, held, share)
    noise = noise_in_groups(noises, units)
    together = noise_in_mean(_multiplier(plan, share), len(topo.silos), sum(units))
    rounds = None if plan.method.rounds == ClusteredMethod.rounds else plan.method.rounds
    pure = apart = math.inf  # finding clusters takes Gaussian noise
    if share == 1.0:
        pure = pure_noise_in_mean(plan.privacy.epsilon, len(topo.silos), sum(units))
        apart = noise_in_groups(_noises(plan, clusters, held, share, pure=True)[0], units)
    personal = max(counts) > 1 or not records  # of one record nobody can say what is the client's
    classes, slopes = task.loss == "logistic", task.features - 1
    mean = {"pure": pure, "pure_apart": apart}
    choice = choose(noise, together, slopes, classes, personal, rounds, agents=not records, **mean)
    answers = plan.data.answers or (-1.0, 1.0)
    return Calibrated(task, clusters, choice, answers, held, named=True, share=share)


def _multiplier(plan: ClusteredPlan, share: float) -> float:
    assert plan.privacy is not None
    return accounting.gaussian_multiplier(plan.privacy.epsilon, plan.privacy.delta, 1) / math.sqrt(share)


def _noises(
    plan: ClusteredPlan, clusters: tuple[int, ...], counts: tuple[int, ...] | None, share: float, pure: bool = False
) -> tuple[list[float], list[int]]:
    """The noise in the mean of each cluster, and how many protected units it has; those with too few clients for a sum
    of their own have no mean."""
    assert plan.privacy is not None
    members, units = np.bincount(clusters), np.bincount(clusters, counts).astype(int)
    of = partial(pure_noise_in_mean, plan.privacy.epsilon) if pure else partial(noise_in_mean, _multiplier(plan, share))
    each = zip(members.tolist(), units.tolist(), strict=True)
    return [of(*sizes) if sizes[0] >= plan.method.minimum else math.inf for sizes in each], units.tolist()


def too_small(plan: ClusteredPlan, method: Calibrated) -> list[int]:
    """The clusters that are too small for what the others have of their own, by their public sizes."""
    noises, _ = _noises(plan, method.groups, method.counts, method.share)
    return [q for q, noise in enumerate(noises) if method.choice.grouped and noise >= method.choice.most_noise]


def task_of(plan: ClusteredPlan, tables: RegionTables) -> Task:
    chosen, most = plan.method, max(len(y) for _, y in tables.records)
    features = len(tables.features) + chosen.intercept
    if learner_of(plan) != "papers":
        return Linear(features, most, chosen.loss, 0.0, chosen.huber)
    if chosen.step == "linearised":
        return Linearised(
            features, most, chosen.loss, chosen.huber, clip=chosen.clip if plan.protect == "records" else None
        )
    return Proximal(features, most, chosen.loss, chosen.huber, radius=chosen.radius)
