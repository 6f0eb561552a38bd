"""What a run leaves that learned graphs: the graphs, their numbers and the cost. The same run writes the same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from silograph.core import schema
from silograph.core.results import Claim
from silograph.core.types import Array, Json
from silograph.data.coordinates import Coordinates
from silograph.families.graphs.build import (
    Setup,
    effective_rows,
    effective_rows_of_sum,
    effective_rows_together,
)
from silograph.families.graphs.expected import sum_instead
from silograph.families.graphs.feasible import feasibility
from silograph.families.graphs.files import CONFIDENCE, COULD_SEE, PROBABILITY, SHARED, SIGN, Edge, edges, write_graph
from silograph.families.graphs.findings import Looked
from silograph.families.graphs.plan import GraphPlan, learner_of
from silograph.families.graphs.result import OWN_UNITS
from silograph.families.graphs.units import said_of_loudest, said_of_units, said_of_untold
from silograph.families.graphs.vote_results import write_votes
from silograph.kernels.edges import edge_count
from silograph.kernels.own_nodes import own_of, pairs_of
from silograph.methods.algorithm_one import PaperConsensus
from silograph.methods.base import Outcome
from silograph.methods.moments_once import MomentsOnce, MomentsSummed
from silograph.methods.person_votes import ReleasedVotes, SummedVotes
from silograph.methods.private_graph import LEAST_EFFECTIVE_ROWS, ReleasedConsensus
from silograph.methods.summed_graph import SummedConsensus
from silograph.privacy.accounting import NO_PROTECTION, planned_cost
from silograph.privacy.correlated import CorrelatedGaussian
from silograph.privacy.door import Door
from silograph.privacy.masking import Masks, counted_on
from silograph.privacy.mechanisms import Gaussian, Mechanism
from silograph.run.results import STAR_OBSERVERS, stated
from silograph.tasks.smooth_graph import SmoothGraph

LEAST_SITES = Masks().minimum  # whose sum may be known
# How a site fails, with noise that others count on.
_DROPS, _TELLS = "by dropping out during the sum, or ", "by telling others what noise is drawn there"


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def paper_claim(setup: Setup, delta: float) -> Claim | None:
    """What S0 would have said of this noise, beside what is true."""
    method, mechanism = setup.method, setup.mechanism
    if not isinstance(method, PaperConsensus) or method.release is None or mechanism is None:
        return None
    # The paper's sensitivity is 2C/N where ours is sqrt(2) C/N (z >= 0); for several steps both use 2 eta B C_s.
    theirs = math.sqrt(2.0) if method.local_steps == 1 else 1.0
    each = math.sqrt(2.0 * math.log(1.25 / delta)) * theirs / mechanism.multiplier
    one = method.local_steps == 1
    defect = "its sensitivity 2C/N is sqrt(2) too large" if one else "false without momentum reset"
    return Claim(
        setup.releases * each,
        setup.releases * delta,
        "S0 Corollary 1" if one else "S0 Theorem 2",
        f"adds up the rounds' epsilons and deltas instead of composing them; {defect}",
    )


def privacy_section(plan: GraphPlan, setup: Setup, door: Door, facts: Json) -> Json:
    """The cost, read from the ledger, per site and observer.

    In a star every message is for the server; what other sites and the public get is computed from it, and a wire
    without encryption shows the same messages. So all observers are bounded by the same reading.
    """
    delta = plan.privacy.total_delta if plan.privacy is not None else 0.0
    claim = paper_claim(setup, delta) if plan.privacy is not None else None
    private = plan.privacy is not None
    guarantees = stated(door, setup.topo.silos, STAR_OBSERVERS, delta, claim, private and plan.seed is not None)
    return {
        "mode": "dp" if private else "exact",
        "protected_unit": setup.task.protected_unit if private else "none",
        "relation": f"replace-one: the number of {_counted(plan)} of a site is public" if private else "none",
        "guarantees": schema.write(guarantees),
        "notes": _notes(plan, setup, facts),
    }


def _counted(plan: GraphPlan) -> str:
    """What a site has so many of that everybody may know."""
    return "signals" if plan.data.unit_column is None else "persons"


def _notes(plan: GraphPlan, setup: Setup, facts: Json | None = None) -> list[str]:
    """What the cost does not say by itself; `facts` are those of the outcome, once the run is over."""
    if plan.privacy is None:
        return [*_of_an_open_run(plan, setup), *setup.notes]
    notes = [
        f"Not protected: how many {_counted(plan)} a site has, its node names, that it took part, and how long it "
        "took.",
        "Runs add up: another run on the same data spends its own budget in addition.",
        *_of_units(plan, setup),
        *setup.notes,
    ]
    if isinstance(setup.learning, SummedConsensus | SummedVotes):
        what = "votes" if isinstance(setup.method, SummedVotes) else "second moments"
        notes[:0] = _of_a_sum(len(setup.counts), facts, what)
    if isinstance(setup.learning, SummedConsensus) and setup.learning.task.with_mean:
        notes.append(
            "A sum has one mean for all sites. Where their levels differ by a third of a column's spread or more "
            "(older patients here, younger there), edges show that, too: --privacy one-release takes each site's own "
            "mean off."
        )
    if isinstance(setup.method, SummedVotes | ReleasedVotes):
        notes[:0] = feasibility(setup.method)
    if isinstance(setup.mechanism, CorrelatedGaussian):
        notes.insert(0, _of_shared_noise(len(setup.counts)))
    if plan.data.unit_column is not None:
        notes.append(_of_several_sites(setup))
    if plan.seed is not None:
        notes.insert(
            0,
            "Rehearsal: the noise comes from the seed in this folder, so whoever has the seed can remove the noise. "
            "The guarantee is the one that the same plan gives without a seed. Run real data without --seed.",
        )
    return notes


def _of_units(plan: GraphPlan, setup: Setup) -> Iterator[str]:
    """What scales columns, or why nothing does."""
    if setup.scale_share is not None:
        yield (
            f"{100 * setup.scale_share:.0f} % of the budget pays for private means and spreads of columns, the same "
            "for all sites; they scale the rows first. If you know public ones, they save that share: --scale FILE, "
            "with column,centre,spread. --scale none takes columns as they are."
        )
    elif plan.data.scale is None and learner_of(plan, setup.task.nodes) != "votes":
        yield (
            f"{OWN_UNITS}: unless all have one unit and vary around 0, edges follow the size of units. --scale FILE "
            "scales columns by public constants (column,centre,spread); --scale none says that the units are fine."
        )


def _of_an_open_run(plan: GraphPlan, setup: Setup) -> Iterator[str]:
    """What sites reveal, each way, and what the other ways would."""
    if isinstance(setup.method, MomentsOnce):
        parts = " of its rows" if setup.method.folds == 1 else f" of {setup.method.folds} parts of its rows"
        yield (
            f"No privacy was asked for: every site reveals exactly, once, the second moments{parts}: how every two "
            "nodes vary together. --reveal sum reveals only the sum of all sites; --epsilon protects."
        )
    elif isinstance(setup.method, MomentsSummed):
        yield (
            "No privacy was asked for: everybody learns exactly the sum of all sites' correlations, weighted by their "
            "rows, and no site's own (secure sum). All sites but one, together, can compute the last one's. --epsilon "
            "protects."
        )
    else:
        yield "No privacy was asked for: a site's mean squared differences can be computed exactly from its messages."


def _of_several_sites(setup: Setup) -> str:
    """Noise that is made once for all, or shared, does not hide what somebody adds to several sites as others would."""
    summed = isinstance(setup.learning, SummedConsensus | SummedVotes)
    if summed or isinstance(setup.mechanism, CorrelatedGaussian):
        return (
            "The guarantee is for a person with signals at one site. A person with signals at several sites is less "
            "protected than the sum of these sites' budgets says, because the sites' noise is not independent."
        )
    return "A person with signals at several sites spends the budget of each of them."


def _of_a_sum(sites: int, facts: Json | None, what: str) -> list[str]:
    """Shares are dealt for those who are asked, so those who drop out count among those who may fail."""
    asked = sites if facts is None else facts["cohort"]
    held = (
        f"Every site adds a share of the noise, and {counted_on(asked)} of {asked} shares are enough; a site that "
        f"observes also knows its own share. The guarantee holds {_spared(asked, _DROPS + _TELLS)}."
    )
    if facts is None:
        held += (
            " That is if all take part. If the server names fewer sites for the sum, fewer than a third of those may "
            f"fail; of {LEAST_SITES}, none."
        )
    elif facts["dropped"]:
        held += f" In this run {facts['dropped']} dropped out."
    return [
        "There is a consensus, but no graph of any site: everybody, the server included, sees only the noisy sum of "
        f"all sites' {what} (secure sum).",
        held,
    ]


def _of_shared_noise(sites: int) -> str:
    return (
        "Every two sites share noise that cancels between them, so the consensus has less noise. The guarantee holds "
        f"{_spared(sites, _TELLS)}, not counting the observer. Every two sites need a secret key, which runs across "
        "organisations do not make yet."
    )


def _spared(sites: int, how: str) -> str:
    """How many sites may fail, besides one that looks."""
    spared = sites - counted_on(sites) - 1
    allowed = (
        f"if at most {spared} of {sites} sites fail{'s' if spared == 1 else ''}" if spared else "only if no site fails"
    )
    return f"{allowed}: {how}"


def write_graphs(
    folder: Path,
    plan: GraphPlan,
    nodes: Sequence[str],
    setup: Setup,
    outcome: Outcome,
    trace: list[Json],
    door: Door,
    coordinates: Coordinates | None = None,
    looked: Looked | None = None,
    findings: Sequence[str] = (),
) -> Json:
    """Write the graphs into the folder; returns what the result says of them."""
    threshold, least = plan.method.threshold, plan.method.confidence
    sites = []
    arrays = outcome.arrays
    alone = "graph" in arrays  # of a secure sum there is nothing but the consensus
    if alone:
        (folder / "sites").mkdir(exist_ok=True)
    effective, agreement = (arrays.get(name) for name in ("effective_rows", "agreement"))
    smoothness = arrays.get("smoothness", np.full(len(setup.topo.silos), np.nan))
    space = setup.task.space
    for k, name in enumerate(setup.topo.silos):
        told: Json = {"edges": None, "mean_weight": None}
        if alone:
            more = of_site(arrays, k)
            graph = list(edges(arrays["graph"][k], nodes, threshold, space, more, least))
            write_graph(folder / "sites" / name, graph, own_nodes(nodes, setup, k), list(more), coordinates)
            told = _summary(graph) | _behind_noise(effective, agreement, k)
        sites.append(
            {
                "name": name,
                "signals": setup.counts[k],
                **told,
                "weight": float(arrays["gamma"][k]),
                "smoothness": _finite(float(smoothness[k])),
                "bytes_sent": sum(8 * row.dim for row in door.ledger.of(name)),
                **{key: float(arrays[of][k]) for key, of in _OF_A_SITE.items() if of in arrays},
                **_of_gaps(nodes, setup, looked, k),
            }
        )
    more = of_consensus(arrays)
    if setup.lacks:
        more = {**more, COULD_SEE: could_see(setup, looked)}
    consensus = list(edges(arrays["consensus"], nodes, threshold, space, more, least))
    write_graph(folder / "consensus", consensus, nodes, list(more), coordinates)
    facts = outcome.facts
    learner = _learner(setup, facts)
    voted = write_votes(folder, consensus, nodes, arrays, facts, coordinates)
    privacy = privacy_section(plan, setup, door, facts)
    privacy["notes"] += facts.get("notes", [])
    if (loudest := facts.get("loudest")) is not None:
        privacy["notes"].insert(0, said_of_loudest(nodes[loudest]))
    if facts.get("untold"):
        privacy["notes"].insert(0, said_of_untold(nodes, facts["untold"]))
    privacy["notes"] += _not_drawn(setup.topo.silos if alone else (), effective)
    if not alone:
        privacy["notes"] += [f"{name} did not take part: it is not in the sum." for name in facts["silent"]]
    return {
        "method": plan.method.name,
        "solver": plan.method.solver,
        "learner": learner,
        **({} if setup.learner_why is None else {"learner_why": setup.learner_why}),
        "counted": _counted(plan),
        "parameters": facts["parameters"],
        "degree": plan.method.wanted_degree(len(nodes)),
        "consensus_density": plan.method.consensus_density,
        **_of_task(setup),
        "threshold": threshold,
        **({} if least is None else {"confidence": least}),
        **voted,
        "nodes": list(nodes),
        "site_graphs": alone,
        "sites": sites,
        "consensus": _summary(consensus) | _behind_noise(effective, agreement, -1),
        "objective": _finite(facts["objective"]),
        "certified_gap": _finite(facts["certified_gap"]),
        "rounds": facts["rounds"],
        "trace": facts.get("trace", trace),
        **{name: facts[name] for name in ("reason", "path") if facts.get(name) is not None},
        **_of_degree(plan, setup, len(nodes), learner),
        "scale": said_of_units(plan, len(nodes), setup.scale_share),
        **({"findings": list(findings)} if findings else {}),
        "privacy": privacy,
        "numbers_are": dict.fromkeys(_released(arrays, facts), "released"),
    }


def _of_degree(plan: GraphPlan, setup: Setup, nodes: int, learner: str) -> Json:
    """Of the papers' model, why it has as many edges where nobody asked for any number of them."""
    if learner != "papers" or setup.degree is None or plan.method.wanted_degree(nodes) is not None:
        return {}
    return {"reason": f"the papers' model takes a mean degree of {setup.degree:g} by default; --degree sets another"}


_RELEASED = ("edges", "mean_weight", "weight", "smoothness", "objective", "gap")
_RELEASED_TOO = ("drawn_to_mean", "confidence")
_RELEASED_BY_VOTES = ("confidence", "expected_true")
#: What only some learners know of a site: its name in result.json, and in the outcome.
_OF_A_SITE = {"proven_nodes": "proven", "drawn_to_mean": "drawn_to_mean"}


def own_nodes(nodes: Sequence[str], setup: Setup, k: int) -> Sequence[str]:
    """The nodes that a site has."""
    gone = set(setup.lacks[k]) if setup.lacks else set[int]()
    return [name for place, name in enumerate(nodes) if place not in gone]


def could_see(setup: Setup, looked: Looked | None = None) -> Array:
    """How many sites could have seen an edge: those that have both nodes, and where the run knows it in one row."""
    seen = pairs_of(own_of(setup.lacks, setup.task.nodes), setup.task.space)
    if looked is not None and looked.pair_rows.shape == seen.shape:
        seen &= looked.pair_rows > 0.0
    return np.asarray(seen.sum(0), dtype=float)


def _of_gaps(nodes: Sequence[str], setup: Setup, looked: Looked | None, k: int) -> Json:
    told: Json = {}
    if setup.lacks:
        told["nodes"] = len(own_nodes(nodes, setup, k))
    if looked is not None and (looked.missing > 0.0).any():
        told["missing"] = float(looked.missing[k])
    return told


def _released(arrays: Mapping[str, Array], facts: Json) -> tuple[str, ...]:
    if "share" in arrays:
        return _RELEASED + _RELEASED_BY_VOTES
    return _RELEASED + (_RELEASED_TOO if "reason" in facts else ())


def _of_task(setup: Setup) -> Json:
    """What only a task of smooth signals has."""
    task = setup.task
    if not isinstance(task, SmoothGraph):
        return {"candidates": None, "resamples": 0}
    return {"candidates": None if task.candidates is None else task.candidates.size, "resamples": task.resamples}


def _learner(setup: Setup, facts: Json) -> str:
    if isinstance(setup.method, SummedVotes | ReleasedVotes):
        return "votes"
    if isinstance(setup.method, MomentsOnce | MomentsSummed):
        return "likelihood"
    return str(facts.get("learner", "papers"))


def of_site(arrays: Mapping[str, Array], k: int) -> dict[str, Array]:
    """What is known of the edges of site k, besides their weights."""
    if "signs" in arrays:
        sure = {PROBABILITY: arrays["probability"][k], SHARED: arrays["shared"]} if "shared" in arrays else {}
        return {SIGN: arrays["signs"][k], **sure}
    return {CONFIDENCE: arrays["confidence"][k]} if "confidence" in arrays else {}


def of_consensus(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Of the consensus; its probability is that sites share an edge."""
    if "consensus_signs" in arrays:
        return {SIGN: arrays["consensus_signs"], **({PROBABILITY: arrays["shared"]} if "shared" in arrays else {})}
    if "share" in arrays:  # of persons, by their votes
        return {PROBABILITY: arrays["probability"]}
    return {CONFIDENCE: arrays["confidence"].mean(0)} if "confidence" in arrays else {}


def _behind_noise(effective: Array | None, agreement: Array | None, k: int) -> Json:
    """Effective rows of a private graph: the noise costs as much as having only so many rows."""
    if effective is None or agreement is None:
        return {}
    return {"effective_rows": _finite(float(effective[k])), "agreement": _finite(float(agreement[k]))}


def _not_drawn(sites: Sequence[str], effective: Array | None) -> list[str]:
    named = [] if effective is None else [*sites, "the consensus"]
    return [
        f"No edges were drawn for {name}: after the noise its data are {records:.2g} effective rows, and below "
        f"{LEAST_EFFECTIVE_ROWS:.0f} any graph is chance. Get more records, or choose a larger epsilon."
        for name, records in zip(named, () if effective is None else effective, strict=True)
        if records < LEAST_EFFECTIVE_ROWS
    ]


def _summary(graph: Sequence[Edge]) -> Json:
    weights = [edge.weight for edge in graph]
    return {"edges": len(weights), "mean_weight": math.fsum(weights) / len(weights) if weights else 0.0}


def _whole(setup: Setup, mechanism: Mechanism) -> tuple[Mechanism, int, int]:
    """What all releases together are like: a mechanism, the size of a release, and how many there are."""
    task = setup.task
    size = task.moment_size if isinstance(task, SmoothGraph) else edge_count(task.nodes)
    if setup.scale_share is None:
        return mechanism, size, setup.releases
    return Gaussian(mechanism.multiplier * math.sqrt(1.0 - setup.scale_share)), size, 1  # Gaussians compose to one


def forecast(plan: GraphPlan, setup: Setup) -> Json:
    """What a plan will cost, before it runs and from public numbers alone."""
    delta = plan.privacy.total_delta if plan.privacy is not None else 0.0
    mechanism = setup.mechanism
    sites: list[Json] = []
    for name, count in zip(setup.topo.silos, setup.counts, strict=True):
        site: Json = {"site": name, "signals": count, "epsilon": "infinity", "delta": None, "accountant": NO_PROTECTION}
        if mechanism is not None:
            planned = planned_cost(*_whole(setup, mechanism), delta)
            site["rehearsal"] = plan.seed is not None
            site |= {"epsilon": planned.epsilon, "delta": planned.delta, "accountant": planned.accountant}
            if isinstance(setup.learning, ReleasedConsensus) and not isinstance(mechanism, CorrelatedGaussian):
                site["effective_rows"] = effective_rows(setup.learning.task, count, mechanism)
        sites.append(site)
    notes = _notes(plan, setup)
    effective = None
    if isinstance(setup.learning, SummedConsensus):
        effective = effective_rows_of_sum(setup.learning)
    if isinstance(mechanism, CorrelatedGaussian):
        assert isinstance(setup.task, SmoothGraph), "nothing else has noise that cancels"
        effective = effective_rows_together(setup.task, setup.counts, mechanism)
    if effective is not None:
        notes.insert(
            0,
            f"All {sum(setup.counts)} {_counted(plan)} together are at most {effective:.0f} effective rows after the "
            "noise.",
        )
    if (better := sum_instead(plan, setup)) is not None:
        notes.insert(0, better)
    return {
        "releases": setup.releases,
        "noise_multiplier": None if mechanism is None else mechanism.multiplier,
        "observers": list(STAR_OBSERVERS),
        "sites": sites,
        "guarantees": [{**site, "observer": observer} for site in sites for observer in STAR_OBSERVERS],
        "claim": schema.write(paper_claim(setup, delta)) if plan.privacy is not None else None,
        "notes": notes,
    }
