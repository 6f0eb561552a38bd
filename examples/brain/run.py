"""Brain regions that work together, with and without autism: a graph for every person, groups compared, one private."""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
from worked import NOT_INDEPENDENT, draw, matrix, options, play, read_edges, silograph, tell, write_places, write_table

from silograph.core.errors import InputError
from silograph.data.brains import CEREBRUM, load_brains, load_whole_brains
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy
from silograph.run.jobs import open_job, run_in_memory

TIMES, SHUFFLES, REHEARSALS = 176, 999, 10
EPSILON, DELTA = 4.0, 1e-4
SITES, EPSILON_OF_VOTES, EDGES_PER_REGION = 5, 8.0, 3
# The parts of the cerebrum in the order of AAL, and how many regions each has, both sides together.
PARTS = {"frontal": 28, "insula": 2, "limbic": 12, "occipital": 14, "parietal": 14, "subcortical": 8, "temporal": 12}


def scaled(series):
    """A person's regions at mean 0 and deviation 1: nothing of other persons is needed for it."""
    first = series[:TIMES]
    return (first - first.mean(0)) / first.std(0)


def largest_difference(graphs, autism):
    """The largest difference of two groups' mean weights over all edges, in standard errors."""
    one, other = graphs[autism], graphs[~autism]
    error = np.sqrt(one.var(0, ddof=1) / len(one) + other.var(0, ddof=1) / len(other))
    return float((np.abs(one.mean(0) - other.mean(0))[error > 0] / error[error > 0]).max())


def compare(graphs, autism):
    """Groups against shuffled groups: the number of edges, and the edge that differs most."""
    edges = (graphs > 0).sum(1)
    rng = np.random.default_rng(1)
    shuffled = [rng.permutation(autism) for _ in range(SHUFFLES)]

    def chance(statistic):
        real = statistic(autism)
        return real, float((1 + sum(statistic(other) >= real for other in shuffled)) / (1 + SHUFFLES))

    gap, gap_chance = chance(lambda who: float(abs(edges[who].mean() - edges[~who].mean())))
    used = graphs[:, (graphs > 0).mean(0) > 0.2]  # edges that a fifth of all persons have
    most, most_chance = chance(lambda who: largest_difference(used, who))
    return {
        "edges with autism": float(edges[autism].mean()),
        "edges without": float(edges[~autism].mean()),
        "difference in edges": gap,
        "p of it": gap_chance,
        "largest difference of an edge, in standard errors": most,
        "p of it, over all edges": most_chance,
    }


def mirrored(weights):
    """How many regions are joined to their counterpart on the other side, which comes next in AAL."""
    left = np.arange(0, CEREBRUM, 2)
    joined = weights[left, left + 1] > 0
    return {"regions with a counterpart": len(left), "joined to it": int(joined.sum())}


def connectome(path, weights, xyz):
    """A view into the head, where nilearn is installed."""
    try:
        from nilearn import plotting
    except ImportError:
        print("no connectome picture: pip install nilearn")
        return
    plotting.plot_connectome(weights, xyz, node_size=12, edge_threshold="0%", output_file=str(path))
    print(f"picture: {path}")


def open_run(out, brains):
    """A silo for every person, as in the papers; nothing is private."""
    tables = [
        write_table(out / "persons" / f"{person}.csv", brains.regions, scaled(own))
        for person, own in zip(brains.person, brains.series, strict=True)
    ]
    words = []
    if brains.xyz is not None:
        words = ["--coordinates", write_places(out / "places.csv", brains.regions, brains.xyz)]
    silograph("learn", *tables, "-o", out / "open", *NOT_INDEPENDENT, *words)
    upper = np.triu_indices(len(brains.regions), 1)
    graphs = np.array(
        [matrix(read_edges(out / f"open/sites/{person}.csv"), brains.regions)[upper] for person in brains.person]
    )
    consensus = read_edges(out / "open/consensus.csv")
    if brains.xyz is not None:
        draw(out / "above.svg", brains.regions, brains.xyz, consensus, "The consensus graph from above")
        connectome(out / "connectome.png", matrix(consensus, brains.regions), brains.xyz)
    numbers = {"persons": len(graphs), "edges of the consensus": len(consensus)}
    if len(brains.regions) == CEREBRUM:
        numbers |= mirrored(matrix(consensus, brains.regions))
    return numbers | compare(graphs, brains.autism)


def parts_of(series):
    """The mean over the regions of each part of the brain."""
    ends = np.cumsum([0, *PARTS.values()])
    means = np.stack([series[:, a:b].mean(1) for a, b in pairwise(ends)], axis=1)
    return scaled(means)


def private_run(out, brains):
    """A silo for every group; a person, all that was measured of it, is what is protected."""
    tables = []
    for group, members in (("autism", brains.autism), ("control", ~brains.autism)):
        rows = [parts_of(brains.series[k]) for k in np.flatnonzero(members)]
        person = np.repeat([brains.person[k] for k in np.flatnonzero(members)], [len(own) for own in rows])
        tables.append(write_table(out / "groups" / f"{group}.csv", PARTS, np.vstack(rows), person))
    budget = ("--epsilon", EPSILON, "--delta", DELTA, "--unit-column", "person", "--scale", "none")  # all have one unit
    silograph("learn", *tables, "-o", out / "private", *budget)
    return tables


def found_again(tables):
    """How well the private consensus graph agrees with one of hardly any noise; only a rehearsal can know."""

    def consensus(epsilon, seed):
        data = Data(tuple(map(str, tables)), unit_column="person", scale="none")
        plan = GraphPlan(data, privacy=Privacy(epsilon, DELTA), seed=seed)
        return run_in_memory(open_job(plan, Path()), seed)[0].arrays["consensus"] > 0

    quiet = consensus(1e4, 0)
    private = [consensus(EPSILON, seed) for seed in range(REHEARSALS)]
    scores = [2 * float((quiet & noisy).sum()) / float(quiet.sum() + noisy.sum()) for noisy in private]
    # As many edges anywhere would share this many with the quiet graph on average.
    guessed = [2 * float(quiet.mean() * noisy.sum()) / float(quiet.sum() + noisy.sum()) for noisy in private]
    return {
        "F1 of private edges, mean of 10 rehearsals": float(np.mean(scores)),
        "least": min(scores),
        "most": max(scores),
        "F1 of as many edges anywhere": float(np.mean(guessed)),
    }


def votes_run(out, brains):
    """Everybody votes, at all regions: five sites with a fifth of the persons each, one file a person."""
    labels = out / "votes/labels.txt"
    for k, (person, own) in enumerate(zip(brains.person, brains.series, strict=True)):
        path = out / f"votes/site_{k % SITES}/{person}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, own)
    labels.write_text("\n".join(brains.regions))
    tables = [out / f"votes/site_{k}.parquet" for k in range(SITES)]
    for table in tables:
        silograph("people", table.with_suffix(""), "-o", table, "--nodes", labels)
    asked = ("--unit-column", "person", "--learner", "votes", "--edges", EDGES_PER_REGION * len(brains.regions))
    silograph("learn", *tables, "-o", out / "votes/run", *asked, "--epsilon", EPSILON_OF_VOTES, "--delta", DELTA)
    sure = ("--epsilon", EPSILON, "--delta", DELTA, "--confidence", 0.9)
    silograph("learn", *tables, "-o", out / "votes/sure", *asked, *sure)
    return tables


def votes_again(tables, edges):
    """How many of the private votes' edges are those of votes of hardly any noise; only a rehearsal can know."""

    def drawn(epsilon, seed, confidence=None):
        data, method = (
            Data(tuple(map(str, tables)), unit_column="person"),
            ConsensusGraph(learner="votes", edges=edges, confidence=confidence),
        )
        plan = GraphPlan(data, method, Privacy(epsilon, DELTA), seed=seed)
        return run_in_memory(open_job(plan, Path()), seed)[0].arrays["consensus"] > 0

    quiet = drawn(1e4, 0)
    loud = [drawn(EPSILON_OF_VOTES, seed) for seed in range(REHEARSALS)]
    sure = [drawn(EPSILON, seed, 0.9) for seed in range(REHEARSALS)]
    known = [float(quiet[each].mean()) for each in sure if each.any()]
    return {
        f"votes at epsilon {EPSILON_OF_VOTES:g}: F1 of their edges, mean of 10 rehearsals": float(
            np.mean([quiet[each].mean() for each in loud])
        ),
        "F1 of as many pairs anywhere": float(quiet.mean()),
        f"votes at epsilon {EPSILON:g}: edges with a probability above .9, mean": float(
            np.mean([e.sum() for e in sure])
        ),
        "true among them, mean": float(np.mean(known)) if known else None,
    }


def main():
    data, out = options(__doc__)
    brains = load_brains(data)
    numbers = open_run(out, brains)
    if len(brains.regions) == CEREBRUM:
        numbers |= found_again(private_run(out, brains))
    else:
        print(f"no private run: its parts are those of the {CEREBRUM} regions of AAL")
    whole = load_whole_brains(data)
    edges = EDGES_PER_REGION * len(whole.regions)
    numbers |= {"regions of the votes": len(whole.regions), "persons who vote": len(whole.person)}
    try:
        numbers |= votes_again(votes_run(out, whole), edges)
    except InputError as refused:
        print(f"no graph of votes: {refused}")
    tell(out, numbers)


if __name__ == "__main__":
    play(main)
