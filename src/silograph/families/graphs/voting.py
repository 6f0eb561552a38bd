"""Persons who vote: from a plan to who adds up what, and whether the noise leaves a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.data.silos import People, Silos
from silograph.data.tables import shortened
from silograph.families.graphs.plan import MOST_NODES_WITHOUT_VOTES, GraphPlan, Privacy
from silograph.families.graphs.who_votes import adds_up
from silograph.methods.person_votes import ReleasedVotes, SummedVotes
from silograph.privacy import accounting
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Gaussian, Mechanism, SharedGaussian
from silograph.tasks.person_votes import PersonVotes
from silograph.topology import Topology

LEAST_ROWS = 3  # of a person: with two every correlation is 1 or -1


@dataclass(frozen=True)
class Voting:
    method: SummedVotes | ReleasedVotes
    mechanism: Mechanism
    masks: Masks | None


def voting(
    plan: GraphPlan,
    privacy: Privacy,
    nodes: int,
    degree: float,
    topo: Topology,
    counts: tuple[int, ...],
    coordinates: Array | None,
) -> Voting:
    """Refuses, from public numbers alone, where the noise would leave nothing but chance."""
    assert plan.data.unit_column is not None, "persons vote"
    edges = plan.method.edges or max(1, round(0.5 * degree * nodes))
    task = PersonVotes(nodes, edges, plan.data.unit_column, plan.data.groups)
    multiplier = accounting.gaussian_multiplier(privacy.epsilon, privacy.total_delta, 1)
    confidence, masks = plan.method.confidence, Masks()
    if adds_up(privacy, len(counts)):
        if len(counts) < masks.minimum:
            expected = f"at least {masks.minimum} sites, the fewest whose sum may be known"
            raise InputError(wording.setting("mode"), expected, f"found {len(counts)}", "Use the mode 'one-release'.")
        shared = SharedGaussian(multiplier)
        made = Voting(SummedVotes(task, shared, counts, confidence, coordinates), shared, masks)
    else:
        noise = Gaussian(multiplier)
        made = Voting(ReleasedVotes(task, noise, counts, confidence, coordinates), noise, None)
    made.method.check()
    made.method.check_groups()
    return made


def check_people(silos: Silos) -> None:
    """Every person that is here must have rows enough for a graph of its own. Nothing is said of all persons
    together."""
    for name, people in zip(silos.names, silos.signals, strict=True):
        if not isinstance(people, People):
            continue
        rows = np.bincount(people.person, minlength=len(people))
        if rows.min() < LEAST_ROWS:
            first = int(np.flatnonzero(people.person == int(rows.argmin()))[0])
            raise InputError(
                f"site {shortened(name)}, data row {first + 1}",
                f"at least {LEAST_ROWS} rows of every person, because each votes by a graph of its own rows",
                "the person of this row has fewer",
                "Nothing was spent. Leave the person out, or take a learner that needs no graph per person (log-det).",
            )


def check_no_votes(plan: GraphPlan) -> None:
    """What only votes can do is refused where another learner was asked for, or is usual at so few nodes."""
    if plan.data.group_column is not None:
        found = "a setting asks for another learner"
        raise InputError(
            wording.setting("group_column"), "persons who vote", found, "Nothing was spent. Take the learner votes."
        )
    if plan.method.confidence is not None:
        found = f"up to {MOST_NODES_WITHOUT_VOTES} nodes another learner is the default; it gives edges no probability"
        raise InputError(
            wording.setting("confidence"), "votes, with privacy", found, "Nothing was spent. Take the learner votes."
        )
