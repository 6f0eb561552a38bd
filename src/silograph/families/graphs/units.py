"""In what units graphs are learned: the likelihood's correlations have none; else each site's own spread, private means
and spreads, or public constants, so that no graph follows the size of units."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from silograph.core.errors import InputError
from silograph.core.files import write_atomically
from silograph.core.spreadsheet import csv_of
from silograph.core.types import Array
from silograph.data.delimited import csv_rows
from silograph.data.silos import Elsewhere, People, Silos, standardise
from silograph.data.tables import listed, shortened, shown
from silograph.families.graphs.plan import GraphPlan, learner_of, private_scale_fits
from silograph.families.graphs.result import AS_IN_TABLES, LOUDEST

_COLUMNS = ("column", "centre", "spread")


def units_of(plan: GraphPlan, nodes: int) -> str:
    """ "own", "private", "none" or the name of a file: what was asked for, or what fits the learner."""
    if plan.data.standardise:
        return "own"
    if plan.data.scale is not None:
        return plan.data.scale
    if plan.privacy is None:
        return "own" if learner_of(plan, nodes) == "papers" else "none"
    return "private" if private_scale_fits(plan) and learner_of(plan, nodes) != "votes" else "none"


def in_units(plan: GraphPlan, silos: Silos, base: Path) -> Silos:
    """The silos' signals as they are learned from; a file is read relative to `base`."""
    units = units_of(plan, len(silos.nodes))
    if units == "own":
        return standardise(silos)
    if units in ("none", "private"):  # private ones are told while the run goes on
        return silos
    centre, spread = read_scale(base / units, silos.nodes)
    return replace(silos, signals=tuple(_by(signals, centre, spread) for signals in silos.signals))


def said_of_units(plan: GraphPlan, nodes: int, share: float | None) -> str:
    """What the report and the command say; `share` of the budget pays for private means and spreads."""
    if share is not None:
        return f"by private means and spreads of all sites together, for {100 * share:.0f} % of the budget (scale.csv)"
    units = units_of(plan, nodes)
    if units == "own":
        return "each site's nodes have mean 0 and deviation 1 at that site (--scale own)"
    if units not in ("none", "private"):
        return f"by public constants for every column ({Path(units).name})"
    if learner_of(plan, nodes) == "votes" or (plan.privacy is None and learner_of(plan, nodes) == "likelihood"):
        return "correlations, so units do not matter"
    return AS_IN_TABLES


def said_of_loudest(node: str) -> str:
    """Of a node whose values, as released, are so large that no graph can be told from them."""
    return (
        f"{LOUDEST} {shortened(node)}, which varies far more than the other columns: edges follow its units. Do not "
        "believe this graph. Scale columns by public constants (--scale FILE), or with a share of the budget (--scale "
        "private)."
    )


def said_of_untold(nodes: Sequence[str], untold: Collection[int]) -> str:
    """Of columns whose mean and spread could not be told after the noise."""
    return (
        f"No edges were drawn for {listed([nodes[k] for k in sorted(untold)])}: after the noise, mean and spread could "
        "not be told. Does the column hardly change, or is its mean more than 500 spreads from 0? Give public values "
        "(--scale FILE), or leave the column out (--drop)."
    )


def write_scale(path: Path, nodes: Sequence[str], centre: Array, spread: Array, untold: Collection[int]) -> None:
    """Released means and spreads: anybody may know them, and name the file as the scale of another run."""
    rows = enumerate(zip(nodes, centre.tolist(), spread.tolist(), strict=True))
    write_atomically(path, csv_of(_COLUMNS, [row for k, row in rows if k not in untold]))


def read_scale(path: Path, nodes: tuple[str, ...]) -> tuple[Array, Array]:
    """Centre and spread of every node, from a CSV file that everybody may know."""
    names, rows = csv_rows(path, "a CSV file with the columns column,centre,spread")
    where = shown(path)
    if missing := [name for name in _COLUMNS if name not in names]:
        raise InputError(where, "the columns column,centre,spread", f"it lacks {listed(missing)}")
    known: dict[str, tuple[float, float]] = {}
    for row in rows:
        name, *texts = (row[column].strip() for column in _COLUMNS)
        if name in known:
            raise InputError(where, "every column once", f"{shortened(name)} is there twice")
        try:
            centre, spread = map(float, texts)
        except ValueError:
            centre = spread = math.nan
        if not (abs(centre) <= 1e70 and 1e-70 <= spread <= 1e70):
            found = f"found {', '.join(map(shortened, texts))}"
            raise InputError(f"{where}, column {shortened(name)}", "a centre, and a spread above 0", found)
        known[name] = centre, spread
    if missing := [name for name in nodes if name not in known]:
        todo = "Give each a centre and a spread that are public knowledge, not computed from these tables."
        raise InputError(where, "a row for every node", f"it lacks {listed(missing)}", todo)
    centre, spread = np.array([known[name] for name in nodes]).T
    return centre, spread


def _by(signals: Array | People, centre: Array, spread: Array) -> Array | People:
    if isinstance(signals, Elsewhere):
        return signals
    if isinstance(signals, People):
        return replace(signals, rows=(signals.rows - centre) / spread)
    return np.asarray((signals - centre) / spread)
