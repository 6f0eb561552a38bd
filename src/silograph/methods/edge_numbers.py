"""The number of edges of a graph: as requested, or the one with the largest expected F-score.

If sites could not see all pairs of nodes (`pair_rows`, (K, p), with 0 for a pair that a site never saw), the number is
that of a site that saw all; others get the same share of the pairs they saw.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.types import Array, Json
from silograph.kernels.edges import edge_count
from silograph.methods.edge_evidence import Evidence

TRIED = 16  # numbers of edges on the path
_FAR_BELOW = 1.0 / 3.0  # of the number of edges by Schwarz' criterion: then the mixture took them for noise


def wanted(
    edges: int | None, degree: float | None, density: float | None, nodes: int, sites: int
) -> tuple[int | None, str]:
    """The requested number of edges, or None; and the reason."""
    asked = {"edges": edges, "degree": degree, "density": density}
    given = {name: value for name, value in asked.items() if value is not None}
    if len(given) > 1:
        raise InputError("number of edges", "one of edges, degree and density", f"found {', '.join(given)} together")
    if not given:
        return None, ""
    name, value = next(iter(given.items()))
    pairs_of_nodes = edge_count(nodes)
    most = {"edges": pairs_of_nodes, "degree": nodes - 1, "density": 1.0}[name]
    if not 0 <= value <= most:
        raise InputError(name, f"a number from 0 to {most}", f"found {value}")
    number = round({"edges": value, "degree": value * nodes / 2.0, "density": value * pairs_of_nodes}[name])
    return number, f"{name} {value:g} was asked for: {so_many(number, sites)}"


def so_many(number: int, sites: int) -> str:
    edges = f"{number} edge" if number == 1 else f"{number} edges"
    return f"{edges} a site" if sites > 1 else edges


def of_each(number: int, pair_rows: Array | None) -> int | NDArray[np.intp]:
    """The number of edges of every site: the same share of the pairs that it sees."""
    return number if pair_rows is None else np.rint(number * (pair_rows > 0.0).mean(1)).astype(np.intp)


def best_number(probability: Array) -> int:
    """The number of edges with the largest expected F-score, 2 E[true ones taken] / (taken + E[true ones]), as a mean
    over rows."""
    found, all_there_are = _expected(probability)
    score = found / (np.arange(1, found.shape[-1] + 1) + all_there_are)
    return round(float((1 + score.argmax(-1)).mean()))


def _expected(probability: Array) -> tuple[Array, Array]:
    """How many true edges the most probable ones include in expectation, for every number of them; and how many
    exist."""
    return np.cumsum(-np.sort(-probability, axis=-1), -1), probability.sum(-1, keepdims=True)


def not_noise(expected: int, found: Evidence) -> int:
    """The number with the largest expected F-score, unless it is far below that of Schwarz' criterion."""
    return found.schwarz if expected < _FAR_BELOW * found.schwarz else expected


def expected_number(found: Evidence, pair_rows: Array | None) -> int:
    """The number with the largest expected F-score for a site that sees all pairs."""
    best = best_number(found.probability)
    return best if pair_rows is None else round(best / float((pair_rows > 0.0).mean()))


def path_of_expected(found: Evidence, number: int | None, pair_rows: Array | None) -> list[Json]:
    """The expected F-scores of some numbers of edges, and of this one."""
    sure, everything = _expected(found.probability)
    sites = np.arange(len(sure))
    path = []
    for k in np.unique([*np.geomspace(1, sure.shape[-1], TRIED).round().astype(int), max(number or 1, 1)]):
        each = np.broadcast_to(of_each(int(k), pair_rows), len(sure))
        score = 2.0 * np.where(each > 0, sure[sites, each - 1], 0.0) / np.maximum(each + everything[:, 0], 1e-300)
        path.append({"edges": int(k), "expected_F": float(score.mean())})
    return path


def largest_expected(found: Evidence, pair_rows: Array | None) -> tuple[int, list[Json], str]:
    best = expected_number(found, pair_rows)
    number = not_noise(best, found)
    have = "has" if number == 1 else "have"
    words = f"{have} the largest expected F-score" if number == best else "by Schwarz' criterion, as rows are few"
    return number, path_of_expected(found, number, pair_rows), f"{so_many(number, len(found.site))} {words}"
