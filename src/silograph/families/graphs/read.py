"""Reads the folder of a run that learned graphs."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from silograph.core.errors import DamageError
from silograph.core.results import ADVICE, FILE, read_text
from silograph.core.schema import shortened
from silograph.families.graphs.result import GraphResult
from silograph.report.read import Edge, RunFolder, as_number, check_edge, check_unique, read_table, site_file

Pair = frozenset[str]
#: How sure the run is of an edge, from 0 to 1.
Confidence = dict[Pair, float]
Signs = dict[Pair, int]

_EDGE = ("source", "target", "weight")
_SIGNED = (*_EDGE, "sign")
_LIKELY = (*_SIGNED, "probability")
_VOTED = (*_EDGE, "probability")
_COLUMNS = (_EDGE, (*_EDGE, "confidence"), _VOTED, _SIGNED, _LIKELY, (*_LIKELY, "shared"))
_COULD_SEE = "could_see"  # the last column, where sites lack nodes
_WHOLE = ("sign", _COULD_SEE)


@dataclass(frozen=True)
class GraphRun(RunFolder[GraphResult]):
    consensus: list[Edge]
    sites: dict[str, list[Edge]]
    #: By site, and under None of the consensus; empty where the run states none.
    confidence: dict[str | None, Confidence]
    #: 1 or -1, in the same way; empty where relations have no signs.
    sign_of: dict[str | None, Signs]
    #: How many sites could have seen an edge of the consensus; empty where all sites have all nodes.
    could_see: dict[Pair, int]
    #: What files say of edges besides their weights, by column, in the order of the edges; under None the consensus.
    more: dict[str | None, dict[str, list[float]]]
    #: Where nodes are: x and y, or x, y and z; empty where nobody said.
    coordinates: dict[str, tuple[float, ...]]

    @property
    def graphs(self) -> dict[str, list[Edge]]:
        return {"consensus": self.consensus} | self.sites

    @property
    def signs(self) -> dict[str, Signs]:
        return {name or "consensus": signs for name, signs in self.sign_of.items()}

    @property
    def known(self) -> dict[str, dict[str, list[float]]]:
        return {name or "consensus": columns for name, columns in self.more.items()}

    @property
    def likely(self) -> bool:
        """Whether all sites were learned together by their likelihood: edges then have probabilities."""
        return self.result.learner == "likelihood"

    @property
    def voted(self) -> bool:
        """Whether weights are shares of persons."""
        return self.result.learner == "votes"

    @property
    def signed(self) -> bool:
        return self.likely or self.result.learner == "signed"


def read(run: RunFolder[GraphResult]) -> GraphRun:
    result, folder, where = run.result, run.folder, str(run.folder / FILE)
    check_unique(result.nodes, f"{where}: nodes")
    check_unique([site.name for site in result.sites], f"{where}: sites")
    names, tried = [site.name for site in result.sites if site.edges is not None], result.path
    if tried is not None and not len(tried.values) == len(tried.scores) == len(tried.spread):
        raise DamageError(f"{where}: path", "as many scores and spreads as values", "found others", ADVICE)
    nodes = set(result.nodes)
    files: dict[str | None, Path] = {None: folder / "consensus.csv"}
    files |= {name: folder / "sites" / site_file(name) for name in names}
    found = {name: _read_edges(file, nodes) for name, file in files.items()}
    counts = {None: result.consensus.edges} | {site.name: site.edges for site in result.sites}
    for name, (edges, *_) in found.items():
        if len(edges) != counts[name]:
            expected = f"{counts[name]} edges, as result.json counts them"
            raise DamageError(str(files[name]), expected, f"found {len(edges)}", ADVICE)
    return GraphRun(
        **vars(run),
        consensus=found[None][0],
        sites={name: found[name][0] for name in names},
        confidence={name: confidence for name, (_, confidence, *_) in found.items()},
        sign_of={name: signs for name, (_, _, signs, *_) in found.items()},
        could_see=found[None][3],
        more={name: columns for name, (*_, columns) in found.items()},
        coordinates=_read_coordinates(folder / "nodes.csv", nodes),
    )


def _read_edges(
    path: Path, nodes: Collection[str]
) -> tuple[list[Edge], Confidence, Signs, dict[Pair, int], dict[str, list[float]]]:
    edges: list[Edge] = []
    confidence: Confidence = {}
    signs: Signs = {}
    seen: dict[Pair, int] = {}
    header = tuple(read_text(path).split("\n", 1)[0].rstrip("\r").split(","))
    counted = header[-1] == _COULD_SEE
    columns = header[:-1] if counted else header
    signed = "sign" in columns
    known: dict[str, list[float]] = {name: [] for name in header[len(_EDGE) :]}
    for where, (source, target, text, *more) in read_table(path, header if columns in _COLUMNS else _EDGE):
        check_edge(source, target, nodes, where)
        pair, weight = frozenset((source, target)), as_number(text)
        if not 0 < weight < math.inf:
            raise DamageError(where, "a finite weight above 0", f"found {shortened(text)}", ADVICE)
        edges.append((source, target, weight))
        cells = dict(zip(known, more, strict=True))
        if counted:
            *more, sites = more
            if not sites.isascii() or not sites.isdigit():
                raise DamageError(where, "how many sites could have seen it", f"found {shortened(sites)}", ADVICE)
            seen[pair] = int(sites)
        if signed:
            sign, *more = more
            if sign not in ("1", "-1"):
                raise DamageError(where, "a sign, 1 or -1", f"found {shortened(sign)}", ADVICE)
            signs[pair] = int(sign)
        if more and more[0]:
            share = confidence[pair] = as_number(more[0])
            if not 0 <= share <= 1:
                raise DamageError(where, "a confidence from 0 to 1", f"found {shortened(more[0])}", ADVICE)
        for name, told in cells.items():
            known[name].append(int(told) if name in _WHOLE else as_number(told))
    return edges, confidence, signs, seen, known


def _read_coordinates(path: Path, nodes: Collection[str]) -> dict[str, tuple[float, ...]]:
    if not path.exists():
        return {}
    found: dict[str, tuple[float, ...]] = {}
    for where, (node, *texts) in read_table(path, ("node", "x", "y"), "z"):
        if node not in nodes or node in found:
            raise DamageError(where, "a node named in result.json, once", f"found {shortened(node)}", ADVICE)
        found[node] = tuple(map(as_number, texts))
        if not all(map(math.isfinite, found[node])):
            raise DamageError(where, "finite coordinates", f"found {shortened(texts)}", ADVICE)
    return found
