"""The worst person for an audit of votes: two persons who share no vote, so that all 2k places move.

Either has more relations than it may vote for, all of them positive and no two alike in strength: votes beyond k show,
and so does a k that follows the data. Persons whose rows are zero vote for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from silograph.audit.scenes import DIVIDED, LOUD, by_pattern, joined, nearest, with_tellers
from silograph.audit.stages import Bits, RegionStage, Scene, SiloStage, Stage, Tables
from silograph.audit.worlds import Worlds, as_csv, fewest
from silograph.core.types import Array
from silograph.data.silos import People
from silograph.deploy.public_facts import Facts
from silograph.families.graphs.job import GraphJob
from silograph.kernels.edges import adjacency
from silograph.methods.base import Private, begin
from silograph.methods.person_votes import SummedVotes
from silograph.privacy.masking import Masks, counted_on
from silograph.tasks.person_votes import PersonVotes
from silograph.tasks.smooth_graph import centred_basis

_MOST_CANARIES = 4000  # of one site in a single run
_STRONGEST = 0.2  # of all partial correlations of a node together: so a correlation matrix exists that has them
_WORDS = "two persons who share no vote"

Person = tuple[Array, int]  # rows, and the group where groups are compared


def rows_with(strength: Array, nodes: int) -> Array:
    """(d + 1, d) rows whose partial correlations, as `kernels.votes` takes them, are proportional to `strength` (p,).

    With P = I - b A, A the strengths, M = D P^-1 D of unit diagonal has partial correlations b A. The kernel inverts
    (C + I) / 2, so C = 2 M - I, which rows have exactly that are C^1/2 in a centred orthonormal basis.
    """
    weights = adjacency(strength)
    inverse = np.linalg.inv(np.eye(nodes) - _STRONGEST * weights / weights.sum(0).max())
    scale = 1.0 / np.sqrt(np.diag(inverse))
    root = np.linalg.cholesky(2.0 * inverse * np.outer(scale, scale) - np.eye(nodes))
    return np.asarray(np.sqrt(nodes + 1.0) * centred_basis(nodes + 1) @ root.T)


def opposites(task: PersonVotes) -> list[tuple[Person, Person]]:
    """Pairs of persons who share no vote, as many as have none in common with another pair either; of different
    groups, where groups are compared."""
    count = max(1, task.pairs // (2 * (task.edges + 1)))
    order = np.random.default_rng(0).permutation(task.pairs)
    found = []
    for block in np.array_split(order, count):
        halves = np.array_split(block, 2)
        strengths = np.zeros((2, task.pairs))
        for strength, half in zip(strengths, halves, strict=True):
            strength[half] = np.linspace(1.0, 0.5, len(half))
        found.append(((rows_with(strengths[0], task.nodes), 0), (rows_with(strengths[1], task.nodes), 1)))
    return found


def stage(job: GraphJob, task: PersonVotes, many: bool) -> Stage:
    counts, method = job.setup.counts, job.method
    victim, pairs = nearest(counts, many)[0], opposites(task)
    summed = isinstance(method, SummedVotes)
    distinct, silent = len(pairs), (np.zeros_like(pairs[0][0][0]), 0)
    most = min(sum(counts) if summed else counts[victim], _MOST_CANARIES)

    def of_site(others: Sequence[Person], canaries: Sequence[tuple[Person, Person]]) -> Tables:
        """A site with these persons; canaries are the first of them."""

        def prepared(bits: Bits) -> Private:
            made = []
            for pattern in bits:
                persons = [*others]
                for k, with_it in enumerate(pattern):
                    persons[k] = canaries[k][int(with_it)]
                made.append(task.prepare(_people(persons)))
            return {name: np.stack([part[name] for part in made]) for name in made[0]}

        return partial(by_pattern, prepare=prepared)

    def among(others: Sequence[Person], canaries: Sequence[tuple[Person, Person]]) -> Tables:
        """The victim with these persons, among sites with silent ones where all are in one sum."""
        own = of_site(others, canaries)
        if not summed:
            return own
        sites, first = {victim: own}, counts[victim]
        for site, n in enumerate(counts):
            if site != victim:
                sites[site] = of_site([silent] * n, [pairs[(first + k) % distinct] for k in range(n)])
                first += n
        return joined(sites, counts)

    n, (one, other) = counts[victim], pairs[0]
    half = [one if k <= (n - 1) // 2 else silent for k in range(n)]
    scenes = (
        Scene(f"a person who votes, or does not; {LOUD}, for other edges", among([other] * n, [(silent, one)])),
        Scene(f"a person who votes, or does not; {DIVIDED}", among(half, [(silent, one)])),
    )
    words = f"{_WORDS}; all other persons vote for nothing"
    tables = among([silent] * n, [pairs[k % distinct] for k in range(n)])
    if not isinstance(method, SummedVotes):
        state = begin(method, job.topo)
        return SiloStage(job, victim, words, (0,), most, tables, state, distinct=distinct, scenes=scenes)
    told = partial(with_tellers, size=len(counts), honest=counted_on(len(counts)))
    made = RegionStage(
        job,
        method,
        job.topo.silos[victim],
        len(counts),
        told(words),
        (0,),
        most,
        tables,
        Masks("skipped"),
        victim=victim,
        distinct=distinct,
    )
    return replace(made, scenes=tuple(replace(scene, canary=told(scene.canary)) for scene in scenes))


def worlds(job: GraphJob, task: PersonVotes, facts: Facts) -> Worlds:
    (holding, _), ((one, _), (other, _)) = fewest(facts), opposites(task)[0]
    silent, group = np.zeros_like(one), job.plan.data.group_column
    more = [] if group is None else [group]

    def table(organisation: str, first: Array) -> bytes:
        count = next(h.records[0] for h in facts.holdings if h.organisation == organisation and h.records)
        persons = [first] + [silent] * (count - 1)
        rows = [[f"p{k:06d}", *task.groups[:1], *row] for k, own in enumerate(persons) for row in own.tolist()]
        return as_csv([task.person, *more, *facts.columns], rows)

    tables = (
        table(holding.organisation, one),
        table(holding.organisation, other),
        table(holding.organisation, silent),
    )
    words = f"{_WORDS}; all other persons vote for nothing"
    return Worlds(holding.organisation, holding.silos[0], words, tables, lambda name: table(name, silent))


def _people(persons: Sequence[Person]) -> People:
    rows, group = zip(*persons, strict=True)
    return People(np.concatenate(rows), np.repeat(np.arange(len(rows)), len(rows[0])), np.array(group))
