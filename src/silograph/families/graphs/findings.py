"""What a run without privacy says beside its graphs: how much was missing where, whether there is anything but chance,
and which relations the learner cannot show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from silograph.core.types import Array
from silograph.data.categories import level_nodes
from silograph.data.silos import Elsewhere, People, Silos
from silograph.data.tables import listed, shortened
from silograph.kernels.chance import LEVEL, chance, rank_correlations
from silograph.kernels.edges import pairs
from silograph.kernels.gaps import moments_with_gaps, pair_rows
from silograph.kernels.masks import pooled
from silograph.report.words import counted
from silograph.tasks.smooth_graph import correlations

MOST_NODES = 2000  # beyond, all pairs are more than a note is worth
MOST_RANKED = 5_000_000  # values of all sites
STRONG = 0.5  # of a negative correlation that is pointed out
_SHOWN = 5
_CLEAR = 5.0  # deviations of a relation that others show
_ENOUGH_TO_SHOW, _NOTHING = 10.0, 3.0  # deviations: what a site like the others shows, and what a stranger may
_APART = 3.0  # times that a site's values spread more, or less, than those of the others


@dataclass(frozen=True)
class Looked:
    """Of sites in the topology's order: correlations and the rows that saw each pair, (K, p); rows of every node and of
    the site."""

    correlations: Array
    pair_rows: Array
    node_rows: Array  # (K, d)
    rows: Array  # (K,)

    @property
    def missing(self) -> Array:
        """The share of values that are missing of a site's own nodes."""
        own = self.node_rows > 0.0
        return np.asarray(1.0 - self.node_rows.sum(1) / (self.rows * np.maximum(own.sum(1), 1)))


def ranks_of(silos: Silos, order: Sequence[str]) -> Array | None:
    """Correlations of ranks, (K, p), where all tables are here and small; of long ones the tails matter little."""
    tables = _here(silos, order)
    if tables is None or sum(table.size for table in tables) > MOST_RANKED:
        return None
    return np.array([rank_correlations(table) for table in tables])


def _here(silos: Silos, order: Sequence[str]) -> list[Array] | None:
    """The tables, where all are here and no wider than a note is worth."""
    rows = [silos.signals[silos.names.index(name)] for name in order]
    if len(silos.nodes) > MOST_NODES or any(isinstance(own, Elsewhere | People) for own in rows):
        return None
    return [np.asarray(own) for own in rows]


def of_messages(arrays: Mapping[str, Array], rows: Sequence[int]) -> Looked | None:
    """From what sites sent; None where they sent no moments."""
    if "correlations" not in arrays:
        return None
    count = np.asarray(rows, dtype=float)
    node_rows = arrays.get("node_rows", np.repeat(count[:, None], arrays["precision"].shape[-1], 1))
    return Looked(arrays["correlations"], arrays["effective_pair_rows"], node_rows, count)


def of_tables(silos: Silos, order: Sequence[str]) -> Looked | None:
    """From the tables, where they are here."""
    tables = _here(silos, order)
    if tables is None:
        return None
    a, b = pairs(len(silos.nodes))
    every = np.array([pair_rows(table) for table in tables])
    return Looked(
        np.array([_correlations(table) for table in tables]),
        every[:, a, b],
        np.einsum("kaa->ka", every).copy(),
        np.array([float(len(table)) for table in tables]),
    )


def _correlations(table: Array) -> Array:
    if not np.isnan(table).any():
        return correlations(table)
    moment = moments_with_gaps(table)[0]
    own, (a, b) = np.sqrt(np.diagonal(moment)), pairs(len(moment))
    return np.asarray(moment[a, b] / (own[a] * own[b]))


def notes(
    looked: Looked, sites: Sequence[str], nodes: Sequence[str], signed: bool, edges: int, ranks: Array | None = None
) -> Iterator[str]:
    """`signed`: the learner shows negative relations; `edges`: those of the consensus; `ranks`: rank correlations."""
    likely = chance(looked.correlations if ranks is None else ranks, looked.pair_rows)
    if likely > LEVEL:
        drawn = "The consensus has no edge, and there may be none to find" if not edges else "Take its edges for noise"
        yield (
            "The graph is no better than one of shuffled columns: if columns are unrelated, relations as strong as "
            f"these appear by chance in {_percent(likely)} of tables. {drawn}. More rows would show which is true."
        )
    if not signed:
        yield from _negative(looked, nodes)


def of_gaps(looked: Looked, sites: Sequence[str], nodes: Sequence[str]) -> Iterator[str]:
    missing = looked.missing
    if (missing > 0.0).any():
        told = [f"{name} {_percent(share)}" for name, share in zip(sites, missing, strict=True) if share > 0.0]
        more = f" and {counted(len(told) - _SHOWN, 'more site')}" if len(told) > _SHOWN else ""
        least = np.where(looked.node_rows > 0.0, looked.node_rows / looked.rows[:, None], np.inf)
        k, worst = np.unravel_index(int(least.argmin()), least.shape)
        yield (
            f"Missing values: {', '.join(told[:_SHOWN])}{more}; most in column {shortened(nodes[int(worst)])} of "
            f"{sites[int(k)]}, {_percent(1.0 - float(least.min()))}. Evidence for an edge comes from the rows that "
            "have both nodes."
        )


def of_lacking(silos: Silos) -> Iterator[str]:
    """By the names of columns, which are public with privacy too."""
    if silos.lacks:
        gone = frozenset[str]().union(*silos.lacks)
        some = [name for name in silos.nodes if name in gone]
        yield (
            f"{len(some)} of {len(silos.nodes)} nodes {'is' if len(some) == 1 else 'are'} not at every site: "
            f"{listed(some)}. A site's graph has only its own nodes; the column could_see of the consensus says how "
            "many sites could have seen an edge. Check that all sites use the same names. --nodes common leaves "
            "these out."
        )


def of_levels(
    categories: Mapping[str, Sequence[str]], nodes: Sequence[str], a: Sequence[int], b: Sequence[int]
) -> Iterator[str]:
    """Edges (a, b) that are there by the way words become nodes. By names, which are public with privacy too."""
    made = level_nodes(categories)
    ends = [(made.get(nodes[i]), made.get(nodes[j])) for i, j in zip(a, b, strict=True)]
    if joined := sorted({one for one, other in ends if one is not None and one == other}):
        yield (
            f"Edges between levels of {listed(joined)} say no more than that a row has one level: where one is 1 the "
            "others are 0."
        )


def of_strangers(looked: Looked, sites: Sequence[str], ranks: Array | None = None) -> Iterator[str]:
    """Sites that show nothing of what all others together show, though they have rows enough to show it.

    With the others' strong correlations as weights w, the sum of w r is |w|^2 in the mean at a site that is like them,
    and 0 at one whose columns have nothing to do with each other, with the variance sum of w^2 / rows.
    """
    found, rows = looked.correlations if ranks is None else ranks, looked.pair_rows
    for k, name in enumerate(sites if len(sites) > 1 else ()):
        rest = np.arange(len(sites)) != k
        mean, count = pooled(found[rest], rows[rest]), rows[rest].sum(0)
        w = np.where((np.abs(mean) * np.sqrt(count) > _CLEAR) & (rows[k] > 3.0), mean, 0.0)
        deviation = float(np.sqrt((w**2 / np.maximum(rows[k], 1.0)).sum()))
        if float(w @ w) > _ENOUGH_TO_SHOW * deviation > 0.0 and float(w @ found[k]) < _NOTHING * deviation:
            yield (
                f"Site {shortened(name)} shows none of the {int((w != 0.0).sum())} relations that all other sites "
                "together show. Check whether its columns were sorted or shuffled separately, or have wrong names."
            )


def strangers_among(silos: Silos) -> list[str]:
    """The same of tables, before anything is learned from them."""
    looked = of_tables(silos, silos.names) if len(silos.names) > 1 else None
    return [] if looked is None else list(of_strangers(looked, silos.names, ranks_of(silos, silos.names)))


def _negative(looked: Looked, nodes: Sequence[str]) -> Iterator[str]:
    mean = pooled(looked.correlations, looked.pair_rows)
    beyond = mean * np.sqrt(looked.pair_rows.sum(0)) < -4.0
    against = np.flatnonzero((mean <= -STRONG) & beyond)
    if not against.size:
        return
    a, b = pairs(len(nodes))
    strongest = against[np.argsort(mean[against], kind="stable")]
    shown = [f"{shortened(nodes[a[e]])} and {shortened(nodes[b[e]])} ({mean[e]:.2f})" for e in strongest[:_SHOWN]]
    more = f" and {counted(len(strongest) - _SHOWN, 'more pair')}" if len(strongest) > _SHOWN else ""
    yield (
        "This learner cannot show relations in which one falls as the other rises: "
        f"{', '.join(shown)}{more}. --learner likelihood without --nonnegative shows them."
    )


def of_spreads(silos: Silos, sites: Sequence[str]) -> Iterator[str]:
    """Where tables are taken as they are: a word on every site that is `spread_apart`."""
    for name, ratio in spread_apart(silos, sites).items():
        yield (
            f"The values of {name} spread {ratio:.2g} times as far as those of other sites: check its units. Different "
            "units alone change the weights and the degree of its graph. --scale own removes the effect of units."
        )


def spread_apart(silos: Silos, sites: Sequence[str]) -> dict[str, float]:
    """Sites whose values spread far more, or less, than those of the others, and how many times as far."""
    tables = _here(silos, sites)
    if tables is None or len(tables) < 2:
        return {}
    own = [table[:, ~np.isnan(table).all(0)] for table in tables]
    spread = np.array([np.median(np.nanstd(table, axis=0)) for table in own])
    others = np.array([np.median(np.delete(spread, k)) for k in range(len(spread))])
    ratios = {name: float(own / usual) for name, own, usual in zip(sites, spread, others, strict=True) if usual > 0.0}
    return {name: ratio for name, ratio in ratios.items() if ratio > _APART or ratio < 1.0 / _APART}


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %" if share >= 0.1 else f"{100.0 * share:.2g} %"
