"""Notes on unusual tables that can still be learned from, for tables that no budget protects."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from silograph.core.types import Array
from silograph.data.columns import correlations
from silograph.data.silos import Elsewhere, People, Silos
from silograph.data.tables import listed, shortened

_ROWS = 20  # from which a spread says something
_APART = 1e3  # of the widest column to the narrowest
_APART_RAW = 10.0  # the same where edges go by squared differences of values as they are
_OTHER_UNITS = 5.0  # times the spread of other sites, which agree
_AGREE = 2.0
_NEARLY = 0.98  # correlation of two columns that hardly differ
_MOST_PARTS = 5  # columns that a column is made of; more are a property of the whole table, such as signals of mean 0
_EXACT = 1e-9  # of a column's length
_SHOWN = 5
_AGAIN = 0.05  # of a site's rows
_SKEWED, _TELLING_ROWS = 2.0, 100  # an exponential law's skewness, and rows from which that can be told from chance
_COMPARED = 10_000  # rows of a site that are looked for at others


def notes_on(silos: Silos, named: Collection[str] = (), raw: bool = False) -> list[str]:
    """Long tails, spreads that differ much, a site in other units, columns that follow from others; each with a remedy.
    Notes on units of sites that are `named` are made elsewhere. `raw`: edges follow the values as they are."""
    signals = [own.rows if isinstance(own, People) else own for own in silos.signals]
    if any(isinstance(own, Elsewhere) for own in signals):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a column without values has no spread
        spread = np.array([np.nanstd(own, axis=0) for own in signals])
        usual = np.nanmedian(spread, axis=0)
    many = np.array([len(own) >= _ROWS for own in signals])
    told = [*_long_tails(silos, signals), *_twice(silos, signals), *_apart(silos, usual, raw)]
    told += _other_units(silos, spread, many, named)
    told += _nearly_same(silos, [own for own, enough in zip(signals, many, strict=True) if enough])
    made = next(filter(None, map(_made_of_others, signals)), None)
    if made is not None:
        column, parts = made
        name = silos.nodes[column]
        told.append(
            f"Column {shortened(name)} follows exactly from {listed([silos.nodes[part] for part in parts])}, like a "
            "total: edges between them show only that. Leave one of them out, for example with --drop "
            f"{shlex.quote(name)}."
        )
    return told


def _long_tails(silos: Silos, signals: Sequence[Array]) -> Iterator[str]:
    """Columns above 0 that are much less skewed after a logarithm: few rows make most of their correlations."""
    names = []
    for a, name in enumerate(silos.nodes):
        columns = [own[np.isfinite(own[:, a]), a] for own in signals]
        columns = [column for column in columns if len(column) >= _TELLING_ROWS]
        if columns and all(column.min() > 0.0 for column in columns):
            skew = float(np.median([_skewness(column) for column in columns]))
            if skew > _SKEWED and abs(np.median([_skewness(np.log(column)) for column in columns])) < 0.5 * skew:
                names.append(name)
    if names:
        yield (
            f"Long tails in {listed(names)}: a few rows make most of their relations, and edges look surer than they "
            "are. Take the logarithm of these columns before you learn."
        )


def _skewness(column: Array) -> float:
    own = column - column.mean()
    return float((own**3).mean() / max(float((own**2).mean()) ** 1.5, np.finfo(np.float64).tiny))


def _twice(silos: Silos, signals: Sequence[Array]) -> Iterator[str]:
    """Sites with the same rows, where rows differ so much that they do not meet by chance."""
    rows = [[row.tobytes() for row in own[:_COMPARED]] for own in signals]
    known = [set(own) for own in rows]
    for k, a in enumerate(known):
        again = len(rows[k]) - len(a)
        if again >= max(_ROWS // 2, _AGAIN * len(rows[k])) and _fine(signals[k][:_COMPARED]):
            yield (
                f"{again} rows of site {shortened(silos.names[k])} are there before, value by value: was a file put "
                "together twice? Then they count twice, and edges look surer than they are."
            )
        for other, b in enumerate(known[:k]):
            fewer = min(len(rows[k]), len(rows[other]))
            differ = len(a) > 0.9 * len(rows[k]) and len(b) > 0.9 * len(rows[other])
            if differ and len(a & b) > 0.5 * fewer and len(a & b) >= _ROWS // 2:
                yield (
                    f"Sites {shortened(silos.names[other])} and {shortened(silos.names[k])} have {len(a & b)} rows in "
                    "common. If they are one table under two names, its rows count twice and edges look surer than "
                    "they are."
                )


def _fine(rows: Array) -> bool:
    """Whether values are so fine that whole rows do not meet by chance: in three columns a quarter of them differ."""
    return sum(len(np.unique(column)) > 0.25 * len(rows) for column in rows.T) >= 3


def _apart(silos: Silos, usual: Array, raw: bool) -> Iterator[str]:
    most = _APART_RAW if raw else _APART
    if not np.isfinite(usual).all() or usual.min() <= 0.0 or usual.max() < most * usual.min():
        return
    wide, narrow = int(usual.argmax()), int(usual.argmin())
    so = (
        "Values are taken as they are (--scale none), so edges follow the size of units: do not believe this graph. "
        "--scale own removes units."
        if raw
        else "The default learner uses correlations, so units do not matter; the papers' model scales columns unless "
        "you give --scale none."
    )
    yield (
        f"Columns have very different units: {shortened(silos.nodes[wide])} spreads over {usual[wide]:.2g}, "
        f"{shortened(silos.nodes[narrow])} over {usual[narrow]:.2g}. {so}"
    )


def _other_units(silos: Silos, spread: Array, many: Array, named: Collection[str]) -> Iterator[str]:
    """Sites whose column is several times as wide or narrow as that of all others, which agree among themselves; of two
    sites, the wider."""
    if many.sum() < 2:
        return
    for k in np.flatnonzero(many):
        others = spread[many & (np.arange(len(spread)) != k)]
        low, high = others.min(0), others.max(0)
        fits = (low > 0.0) & (high <= _AGREE * low)
        factor = np.where(fits, spread[k] / np.where(low > 0.0, np.sqrt(low * high), 1.0), 1.0)
        narrow = (factor > 0.0) & (factor <= 1.0 / _OTHER_UNITS) & (len(others) > 1)
        odd = np.flatnonzero((factor >= _OTHER_UNITS) | narrow)
        if len(odd) and silos.names[k] not in named:
            names = listed([silos.nodes[a] for a in odd])
            yield (
                f"Site {shortened(silos.names[k])} spreads {np.median(factor[odd]):.2g} times as far as all others in "
                f"{names}. If the units differ there, convert them at that site."
            )


def _nearly_same(silos: Silos, signals: Sequence[Array]) -> Iterator[str]:
    """Columns that hardly differ, where few do: many that do are a property of the whole table, such as stations that
    lie close together."""
    found: dict[tuple[int, int], float] = {}
    for own in signals:
        r = np.triu(correlations(own[:: max(1, len(own) // _COMPARED)].T), 1)
        found |= {(int(a), int(b)): float(r[a, b]) for a, b in np.argwhere((np.abs(r) >= _NEARLY) & (np.abs(r) < 1.0))}
    if 0 < len(found) <= _SHOWN and len({a for pair in found for a in pair}) < len(silos.nodes):
        for (a, b), correlation in sorted(found.items()):
            yield (
                f"Columns {shortened(silos.nodes[a])} and {shortened(silos.nodes[b])} are nearly the same "
                f"(correlation {correlation:.3f}): the data cannot tell to which of the two other columns relate. Do "
                "not believe single edges of either, however probable. Leave one of them out, for example with "
                f"--drop {shlex.quote(silos.nodes[b])}."
            )


def _made_of_others(signals: Array) -> tuple[int, list[int]] | None:
    """A column that is an exact linear combination of two to five others, and these; the first that is found."""
    from scipy.linalg import qr, solve_triangular

    rows, columns = signals.shape
    if rows < 2 * columns + _ROWS or columns < 4 or not np.isfinite(signals).all():
        return None
    step = max(1, rows // max(2000, 4 * columns))  # some rows say which may be; all of them decide
    some = signals[::step] - signals[::step].mean(0)
    length = np.linalg.norm(some, axis=0)
    some = some / np.where(length > 0.0, length, 1.0)
    triangle, order = qr(some, mode="r", pivoting=True)[:2]
    size = np.abs(np.diagonal(triangle))
    rank = int((size > _EXACT * size[0]).sum())
    if rank == columns or rank < 2:
        return None
    weights = solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])
    for k in range(columns - rank):
        parts = np.flatnonzero(np.abs(weights[:, k]) > 1e-6)
        column, others = int(order[rank + k]), [int(order[part]) for part in parts]
        if 2 <= len(others) <= _MOST_PARTS and len(others) + 1 < columns and _follows(signals, column, others):
            return column, sorted(others)
    return None


def _follows(signals: Array, column: int, others: list[int]) -> bool:
    own, known = signals[:, column] - signals[:, column].mean(), signals[:, others] - signals[:, others].mean(0)
    rest = own - known @ np.linalg.lstsq(known, own, rcond=None)[0]
    return bool(np.linalg.norm(rest) <= 1e-7 * np.linalg.norm(own))
