"""Labelled records of clients: one file a client, a table with a column of labels or an NPZ file with x and y."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from silograph.core.errors import InputError
from silograph.data.categories import cell_text
from silograph.data.collections import read_arrays
from silograph.data.features import FeatureOptions, FeatureTable, read_features, scaled
from silograph.data.persons import Persons, by_person, names_of
from silograph.data.silos import check_file_names
from silograph.data.sites import in_folders
from silograph.data.tables import (
    Grid,
    as_frame,
    check_same_names,
    checked_names,
    checked_values,
    frame_grid,
    listed,
    named,
    reads_as_number,
    shortened,
    shown,
)

if TYPE_CHECKING:
    import pandas as pd

Single = NDArray[np.float32]
#: x (N, *shape), and y (N,): numbers of classes, or of a regression the answers.
Labelled = tuple[Single, NDArray[np.int64] | Single]

#: The sum of a million squares of anything larger may overflow in single precision.
LARGEST_SINGLE = 1e15

_PLAIN = FeatureOptions()
_NPZ = ".npz"
_LABELS = (str, bool, int, float, Decimal, np.bool_, np.integer, np.floating)
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, eq=False)
class ClientTables:
    """Client `names[k]` has `records[k]`; label number c is `classes[c]`, and a regression has no classes.

    A record has the given shape: one number for each of `features`, or channels, height and width of a picture, whose
    pixels have no names. Not every client has records of every class. By person, records are as `by_person` makes them.
    """

    names: tuple[str, ...]
    features: tuple[str, ...]
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    records: tuple[Labelled, ...]
    notes: tuple[str, ...] = ()  # notes on what was left out of the tables, for people


@dataclass(frozen=True, eq=False)
class _Client:
    """One client's checked features and its labels as given; `where` and `place` name them in messages."""

    name: str
    path: Path
    where: str
    place: Callable[[int], str]
    features: tuple[str, ...]
    x: Single
    labels: NDArray[Any]
    whose: NDArray[Any] | None = None  # the person of each record


def read_clients(
    paths: Iterable[str | Path],
    target: str,
    private: bool = False,
    classes: Sequence[str] | None = None,
    regression: bool = False,
    features: Sequence[str] | None = None,
    least: int = 2,
    fewest_classes: int = 2,
    told: FeatureOptions = _PLAIN,
    persons: Persons | None = None,
) -> ClientTables:
    """Read one file per client, named after it and sorted by name: tables with the column `target`, or NPZ files with x
    and y.

    Features are matched by name, in the order of the first client or of those a model was learned from. Without a list,
    classes are all labels that occur, `fewest_classes` or more. With `private` only checks of single records are made,
    so the list must be given. A client has at least two records, to divide them, unless `least` is given.
    """
    files = in_folders(paths)
    packed = [path for path in files if path.name.lower().endswith(_NPZ)]
    if packed and len(packed) < len(files):
        table = next(path for path in files if path not in packed)
        found = f"{shown(packed[0])} is NPZ and {shown(table)} is not"
        raise InputError("clients", "NPZ files or tables", found, "Save all in one format.")
    notes: tuple[str, ...] = ()
    if packed:
        clients = [_read_npz(path, private, persons) for path in files]
    else:
        texts, roles, needed = [] if regression else [target], [target], {target: "target"}
        if persons is not None:
            texts, roles = [*texts, persons.column], [*roles, persons.column]
            needed |= {} if persons.most is None else {persons.column: "person"}
        tables = read_features(files, told, texts, roles, private, [_NPZ], needed=needed)
        clients = [_of_table(table, named(target), told, private, persons) for table in tables]
        notes = tuple(note for table in tables for note in table.notes)
    clients.sort(key=lambda client: client.name)
    most = None if persons is None else persons.most
    together = _together(clients, private, classes, regression, features, least, fewest_classes, most)
    return replace(together, notes=notes)


def from_arrays(
    data: Sequence[tuple[ArrayLike | pd.DataFrame, ArrayLike | pd.Series[Any]]],
    names: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    regression: bool = False,
    private: bool = False,
    features: Sequence[str] | None = None,
    least: int = 2,
    whose: Sequence[Any] | None = None,
    most: int | None = None,
) -> ClientTables:
    """Make the same from an (X, y) for each client, in the given order; they are client_0, client_1, ... unless named.

    `whose` gives for each client the person of each record; `most` records of a person take part.
    """
    pairs = data if isinstance(data, list | tuple) else [data]
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        todo = "For a single client write [(X, y)]."
        raise InputError("clients", "a list of (records, labels), one for each", "found something else", todo)
    names = [f"client_{k}" for k in range(len(data))] if names is None else [str(name) for name in names]
    if len(names) != len(data):
        raise InputError("names", f"one for each of the {len(data)} clients", f"there are {len(names)}")
    clients = [_given(name, *pair, private) for name, pair in zip(names, data, strict=True)]
    if whose is not None:
        if len(whose) != len(data):
            found = f"there are {len(whose)}"
            raise InputError("persons", f"a list of names for each of the {len(data)} clients", found)
        pairs_of = zip(clients, whose, strict=True)
        clients = [replace(c, whose=names_of(own, len(c.x), f"{c.where}, persons")) for c, own in pairs_of]
    return _together(clients, private, classes, regression, features, least, most=most)


def as_pictures(array: NDArray[Any], where: str) -> Single:
    """Pictures (N, channels, height, width) from (N, H, W), (N, C, H, W), or (N, H, W, C) with 1 or 3 channels.

    Bytes are scaled to [0, 1].
    """
    if array.ndim not in (3, 4) or 0 in array.shape[1:]:
        raise InputError(where, "records (N, M), or pictures (N, H, W) or (N, C, H, W)", f"the shape is {array.shape}")
    if array.dtype.kind not in "iuf":
        raise InputError(where, "numbers", f"found an array of {array.dtype}", "Save the pixels as numbers.")
    with np.errstate(over="ignore"):  # overflowing numbers become infinite and are refused as such
        x = array.astype(np.float32)
    if array.dtype == np.uint8:
        x /= np.float32(255.0)
    sound = (np.abs(x) <= LARGEST_SINGLE).all(axis=tuple(range(1, x.ndim)))
    if not sound.all():
        expected = f"finite numbers of at most {LARGEST_SINGLE:g}"
        raise InputError(f"{where}, record {sound.argmin() + 1}", expected, "it has others", "Fill or rescale them.")
    if x.ndim == 3:
        x = x[:, None]
    elif x.shape[-1] in (1, 3):
        x = np.moveaxis(x, -1, 1)
    return np.ascontiguousarray(x)


def _of_table(
    table: FeatureTable, target: str, told: FeatureOptions, private: bool, persons: Persons | None
) -> _Client:
    columns = dict(table.columns)
    labels = columns.pop(target)
    whose = None if persons is None else columns.pop(named(persons.column), None)

    def place(row: int) -> str:
        return f"{table.where}, column {shortened(target)}, {table.at(row)}"

    x = scaled(_numbers(columns, table.where, private, table.at), tuple(columns), told.bounds)
    return replace(_client(table.name, table.path, table.where, place, tuple(columns), x, labels), whose=whose)


def _read_npz(path: Path, private: bool, persons: Persons | None) -> _Client:
    where, arrays = shown(path), read_arrays(path)
    wanted = ["x", "y"] if persons is None or persons.most is None else ["x", "y", persons.column]
    if not set(wanted) <= set(arrays):
        raise InputError(where, f"the arrays {' and '.join(wanted)}", f"it holds {listed(list(arrays)) or 'none'}")
    client = _of_arrays(path.name[: -len(_NPZ)], path, where, arrays["x"], arrays["y"], private)
    if len(wanted) == 2:
        return client
    return replace(client, whose=names_of(arrays[wanted[2]], len(client.x), f"{where}, {shortened(wanted[2])}"))


def _given(name: str, x: Any, y: Any, private: bool) -> _Client:
    where = f"client {shortened(name)}"
    if hasattr(y, "to_frame"):  # a Series, recognised without importing pandas or polars
        frame = as_frame(y.to_frame())
        y = y if frame is None else frame_grid(frame, None, "columns").columns[0]
    if (frame := as_frame(x)) is not None:
        x = frame_grid(frame, [str(column) for column in frame.columns], "columns")
    else:
        x = _array(x, f"{where}, records")
    return _of_arrays(name, Path(name), where, x, _array(y, f"{where}, labels"), private)


def _array(given: Any, where: str) -> NDArray[Any]:
    if np.ma.is_masked(given):
        raise InputError(where, "an array without gaps", "some entries are masked", "Leave out those records.")
    try:
        return np.asarray(given)
    except (TypeError, ValueError) as problem:
        raise InputError(where, "an array", f"none can be made of it ({problem})") from None


def _of_arrays(name: str, path: Path, where: str, x: NDArray[Any] | Grid, y: NDArray[Any], private: bool) -> _Client:
    def place(row: int) -> str:
        return f"{where}, label of record {row + 1}"

    if isinstance(x, np.ndarray) and x.ndim == 2:
        x = Grid(list(x.T), [f"feature_{k}" for k in range(x.shape[1])])
    if isinstance(x, np.ndarray):
        return _client(name, path, where, place, (), as_pictures(x, where), y)
    names = checked_names(where, x.column_names or (), len(x.columns), "column")
    numbers = _numbers(dict(zip(names, x.columns, strict=True)), where, private)
    return _client(name, path, where, place, names, numbers, y)


def _client(
    name: str,
    path: Path,
    where: str,
    place: Callable[[int], str],
    features: tuple[str, ...],
    x: Single,
    labels: NDArray[Any],
) -> _Client:
    if labels.shape != (len(x),):
        found = f"found labels of the shape {labels.shape}"
        raise InputError(where, f"one label for each of the {len(x)} records", found)
    return _Client(name, path, where, place, features, x, labels)


def _numbers(
    columns: dict[str, NDArray[Any]], where: str, private: bool, at: Callable[[int], str] | None = None
) -> Single:
    """The columns, checked and side by side."""
    names = list(columns)
    if not names:
        raise InputError(where, "at least one feature", "there is none")

    def place(column: int, row: int) -> str:
        return f"{where}, column {shortened(names[column])}, {f'data row {row + 1}' if at is None else at(row)}"

    return _single(list(columns.values()), place, private)


def _single(columns: Sequence[NDArray[Any]], place: Callable[[int, int], str], private: bool) -> Single:
    values = checked_values(columns, place, private)
    large = np.abs(values) > LARGEST_SINGLE
    if large.any():
        row, column = np.argwhere(large)[0]
        expected = f"numbers of at most {LARGEST_SINGLE:g}"
        raise InputError(place(int(column), int(row)), expected, "it is larger", "Its square overflows: rescale it.")
    return values.astype(np.float32)


def _together(
    clients: Sequence[_Client],
    private: bool,
    classes: Sequence[str] | None,
    regression: bool,
    features: Sequence[str] | None,
    least: int,
    fewest_classes: int = 2,
    most: int | None = None,
) -> ClientTables:
    if not clients:
        raise InputError("clients", "at least one", "found none")
    for client in clients:
        if len(client.x) < least:
            expected = "at least one record" if least == 1 else f"at least {least} records"
            found = "there is only one" if len(client.x) else "there is none"
            todo = "A client divides its records in two: leave it out." if least == 2 else ""
            raise InputError(client.where, expected, found, todo)
    check_file_names([(client.name, client.path) for client in clients], "client")
    first = clients[0]
    wanted = first.features if features is None else tuple(features)
    owner = f"client {shortened(first.name)}" if features is None else "the model"
    inputs = [_matched(client, wanted, owner) for client in clients]
    for client, x in zip(clients, inputs, strict=True):
        if x.shape[1:] != inputs[0].shape[1:]:
            expected = f"records of the shape {inputs[0].shape[1:]}, as of client {shortened(first.name)}"
            raise InputError(client.where, expected, f"they have the shape {x.shape[1:]}", "All must have one shape.")
    names, shape = tuple(client.name for client in clients), inputs[0].shape[1:]
    if regression:
        if classes is not None:
            raise InputError("classes", "none for a regression", f"found {listed([str(c) for c in classes])}")
        answers = [_answers(client, private) for client in clients]
        return ClientTables(names, wanted, (), shape, _records(clients, inputs, answers, most))
    public = None if classes is None else listed_classes(classes)
    if private and public is None:
        todo = "Which labels occur is itself private: list all that may."
        raise InputError("classes", "the list of all classes under privacy", "found none", todo)
    labels = [_labels(client) for client in clients]
    known = _occurring(clients, labels, fewest_classes) if public is None else public
    numbers = [_numbered(client, own, known, private) for client, own in zip(clients, labels, strict=True)]
    return ClientTables(names, wanted, known, shape, _records(clients, inputs, numbers, most))


def _records(
    clients: Sequence[_Client], inputs: Sequence[Single], answers: Sequence[NDArray[Any]], most: int | None
) -> tuple[Labelled, ...]:
    """The records of every client: one by one or, with a number of places, by person."""
    found = []
    for client, x, y in zip(clients, inputs, answers, strict=True):
        found.append(
            (x, y) if most is None or client.whose is None else by_person(x, y, client.whose, most, client.where)
        )
    return tuple(found)


def _matched(client: _Client, wanted: tuple[str, ...], owner: str) -> Single:
    """The client's features in the wanted order."""
    todo = "Every client must have the same features, by the same names; the order does not matter."
    check_same_names(client.features, wanted, client.where, f"the features of {owner}", todo)
    if client.features == wanted:
        return client.x
    position = {name: k for k, name in enumerate(client.features)}
    return np.ascontiguousarray(client.x[:, [position[name] for name in wanted]])


def _answers(client: _Client, private: bool) -> Single:
    return _single([client.labels], lambda column, row: client.place(row), private)[:, 0]


def _labels(client: _Client) -> list[str]:
    """The labels as text, whole numbers without a fraction; a missing one is refused."""
    kind = client.labels.dtype
    if kind.kind not in "biufUTO":
        todo = "Save them as text or whole numbers."
        raise InputError(f"{client.where}, labels", "text or whole numbers", f"found an array of {kind}", todo)
    found = []
    for row, cell in enumerate(client.labels.tolist()):
        if isinstance(cell, _LABELS):
            label = cell_text(cell) if cell == cell else ""
        elif cell is None:
            label = ""
        else:
            raise InputError(client.place(row), "text or a whole number", f"found a {type(cell).__name__}")
        if not label:
            raise InputError(client.place(row), "a label", "it is missing", "Leave out records without one.")
        found.append(label)
    return found


def listed_classes(classes: Sequence[str]) -> tuple[str, ...]:
    """The listed classes, in order."""
    texts = [cell_text(label) for label in classes]
    if len(set(texts)) < max(2, len(texts)) or "" in texts:
        raise InputError("classes", "at least 2 different ones", f"found {listed(texts) or 'none'}")
    return _ordered(texts)


def _occurring(clients: Sequence[_Client], labels: Sequence[Sequence[str]], fewest: int) -> tuple[str, ...]:
    """All labels that occur."""
    places: dict[str, str] = {}
    for client, own in zip(clients, labels, strict=True):
        for row, label in enumerate(own):
            if label not in places:
                places[label] = client.place(row)
    return classes_at(places, fewest)


def classes_at(places: dict[str, str], fewest: int = 2) -> tuple[str, ...]:
    """The classes of labels that occur at these places: either whole numbers or text, in order."""
    for label, place in places.items():
        if not _WHOLE.fullmatch(label) and reads_as_number(label):
            todo = "Are these numbers to be predicted? Then say that it is a regression."
            raise InputError(place, "a class: text or a whole number", f"found {shortened(label)}", todo)
    first = {bool(_WHOLE.fullmatch(label)): label for label in reversed(places)}
    if len(first) == 2:
        expected = "labels that are all whole numbers or all text"
        found = f"{shortened(first[True])} is a number and {shortened(first[False])} is text"
        raise InputError(
            f"{places[first[True]]} and {places[first[False]]}", expected, found, "Use the same names for the classes."
        )
    if len(places) < fewest:
        raise InputError("clients' labels", f"at least {fewest} classes", f"all are {listed(list(places))}")
    return _ordered(list(places))


def _ordered(labels: Sequence[str]) -> tuple[str, ...]:
    """Whole numbers as numbers, then text."""

    def rank(label: str) -> tuple[bool, int, str]:
        whole = bool(_WHOLE.fullmatch(label))
        return not whole, int(label) if whole else 0, label

    return tuple(sorted(labels, key=rank))


def _numbered(client: _Client, labels: Sequence[str], classes: Sequence[str], private: bool) -> NDArray[np.int64]:
    number = {label: k for k, label in enumerate(classes)}
    for row, label in enumerate(labels):
        if label not in number:
            found = "found another label" if private else f"found {shortened(label)}"
            todo = "Correct the label, or add it to the classes."
            raise InputError(client.place(row), f"one of the classes {listed(classes)}", found, todo)
    return np.array([number[label] for label in labels], dtype=np.int64)
