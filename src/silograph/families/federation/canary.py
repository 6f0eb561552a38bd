"""What an audit of a graph federation plays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from silograph.audit.exposure import Listener, found, off_by
from silograph.audit.stages import RegionStage, Stage
from silograph.audit.worlds import Worlds
from silograph.core.types import Json
from silograph.deploy.public_facts import Facts
from silograph.families.canary_servers import OWN_UPDATES, stage_of_agents, worlds_of_agents
from silograph.families.federation.coalitions import coalitions
from silograph.families.federation.job import FederationJob
from silograph.methods.calibrated import Calibrated
from silograph.methods.graph_federation import GraphFederation
from silograph.methods.region_effects import RegionEffects
from silograph.privacy.unmixing import followed_sum, unmixed_sum
from silograph.run.jobs import Job

_MOST_ROUNDS = 200  # of a run that is listened to


def stages(job: FederationJob, many: bool) -> tuple[Stage, ...]:
    return (_stage(job),)


def _stage(job: FederationJob) -> RegionStage:
    """All agents who are added up together are one server's, as far as their sum can tell."""
    assert not isinstance(job.method, RegionEffects)  # they promise nothing to attack
    sizes = job.topo.sizes if job.plan.reach == "region" else job.topo.sizes.sum(keepdims=True)
    return stage_of_agents(job, job.method, sizes)


def coalition_stages(job: FederationJob) -> list[tuple[str, float, RegionStage]]:
    """Who may join up against an agent, the epsilon that is stated against them, and what to play: the rounds that all
    share, not the regions' own sums in the end."""
    told = next((each for each in job.reaches() if each["chosen"]), None)
    if told is None:
        return []
    stage = _stage(job)
    if isinstance(job.method, GraphFederation):
        stage = replace(stage, method=replace(job.method, personal=0.0), rounds=stage.rounds[: job.method.rounds])
    reach = job.plan.reach
    found = []
    for one, stated in zip(coalitions([int(size) for size in job.asked_sizes]), told["coalitions"], strict=True):
        honest = one.own if reach == "region" else one.everybody
        found.append((one.words, float(stated["epsilon"]), replace(stage, honest=honest, scenes=())))
    return found


def worlds(job: FederationJob, facts: Facts) -> Worlds:
    return worlds_of_agents(job, facts, None)


def exposed(job: FederationJob, own: bool, root: int) -> list[Json]:
    if isinstance(job.method, Calibrated):
        return []
    if isinstance(job.method, RegionEffects):
        return [OWN_UPDATES] if own else []
    return [OWN_UPDATES] if own and job.masks is None else [_unmixed(job, job.method, root)]


def _unmixed(job: Job, method: GraphFederation, root: int) -> Json:
    """An observer who hears a server and its neighbours estimates its region's updates through all rounds."""
    listener, sent, truth, topo = Listener(job, root), [], [], job.topo
    start = np.array(listener.state.servers["model"])
    for _ in range(min(method.rounds, _MOST_ROUNDS)):
        listener.listen()
        sent.append(np.array(listener.across["sent"]))
        value, home = listener.value("update"), topo.home[listener.rows]
        truth.append(value[home == 0].mean(0))
    heard = np.array(sent)
    if heard.ndim == 4:  # noise on every link: who hears them all averages it
        heard = heard.mean(2)
    follow = unmixed_sum if method.perturbation in ("homomorphic", "edge", "none") else followed_sum
    guess = follow(heard, np.asarray(topo.mixing), 0, start[0])[-1] / len(sent)
    error = off_by(guess, np.mean(truth, axis=0))
    how = "read as it is" if method.perturbation == "none" else "un-mixing of the noise through the running sum"
    words = f"the mean update of region {topo.servers[0]} over {len(sent)} rounds is found with an error of {error:.1%}"
    return found("a region's mean update", how, error, words)
