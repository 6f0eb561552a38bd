"""Records of a graph federation's agents (S1, section V), and sample clinics to try things on.

Agents come region by region: those of region p are `records[p * agents : (p + 1) * agents]`. Where records are
classified their features have a length of about 1, by scales that are written here and so do not depend on any data.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.keys import stream
from silograph.core.types import Array
from silograph.data.collections import read_arrays
from silograph.data.regions import Records
from silograph.data.tables import listed, shown, write_sample

SAMPLE_REGIONS = (
    "borders",
    "coast",
    "fells",
    "highlands",
    "islands",
    "lakes",
    "lowlands",
    "marches",
    "midlands",
    "valleys",
)

# Of the regression; with these the levels of Figures 2 to 4 come out.
_SPREAD = (0.1, 0.5)  # the features' variances along their axes
_NOISE = (0.01, 0.1)  # the answers' variance around the model
_MODEL = 0.7  # the length of the generating model

_MARGIN = 1.28  # from either class's centre to the border, in standard deviations: 10 % lie beyond it
_NOT_FEATURES = ("id", "click", "hour", "split")

# Of the sample clinics: log-odds of coming back for the average patient, and per standard deviation.
_AVERAGE = -2.25
_EFFECTS = {
    "age": 0.6,
    "days_in_hospital": 0.5,
    "earlier_admissions": 1.3,
    "emergency_visits": 0.9,
    "long_term_conditions": 0.8,
    "medicines": 0.3,
    "kidney_function": -0.4,
    "support_at_home": -1.0,
}
_SIZES = (20, 120)  # records of a clinic
_TESTED = 10  # more records of each clinic, in the test file


def regression(
    seed: int, regions: int = 10, agents: int = 100, records: int = 100, features: int = 2
) -> tuple[list[Records], Array]:
    """Every agent's records, and the model that made them all: y = x.w + v  (53)

    Each agent has its own covariance of x and its own variance of v; both are normal with mean 0.
    """
    model = stream(seed, "world", 0, "generating model").standard_normal(features)
    model *= _MODEL / np.linalg.norm(model)
    parts = []
    for name in _names(regions, agents):
        rng = stream(seed, name, 0, "regression")
        axes = np.linalg.qr(rng.standard_normal((features, features)))[0]
        root = (axes * np.sqrt(rng.uniform(*_SPREAD, features))) @ axes.T  # of R; the axes' signs do not matter
        x = rng.standard_normal((records, features)) @ root
        y = x @ model + np.sqrt(rng.uniform(*_NOISE)) * rng.standard_normal(records)
        parts.append((x, y))
    return parts, model


def clicks(
    seed: int, regions: int = 5, agents: int = 10, samples: int = 5101, test: int = 256, features: int = 16
) -> tuple[list[Records], Records]:
    """Two normal classes, -1 and 1, in unequal parts with every agent's own noise; and clean records to test on."""
    rng = stream(seed, "world", 0, "clicks")
    centre = rng.standard_normal(features)
    centre *= _MARGIN / np.linalg.norm(centre)
    y = rng.choice((-1.0, 1.0), samples + test)
    x = (y[:, None] * centre + rng.standard_normal((samples + test, features))) / np.sqrt(features)
    return _dealt(seed, x[test:], y[test:], regions, agents), (x[:test], y[:test])


def avazu(
    path: str | Path,
    seed: int,
    regions: int = 5,
    agents: int = 10,
    samples: int = 5101,
    test: int = 256,
    features: int = 64,
) -> tuple[list[Records], Records]:
    """The same of Avazu's clicks, an NPZ file with one array a column: random rows, every cell hashed to a feature."""
    where, columns = shown(Path(path)), read_arrays(path)
    if "click" not in columns or not set(columns) - set(_NOT_FEATURES):
        raise InputError(where, "Avazu's columns, click among them", f"it holds {listed(list(columns))}")
    total = len(columns["click"])
    if any(column.shape != (total,) for column in columns.values()):
        raise InputError(where, f"{total} values in every column", "some have another shape")
    if samples + test > total:
        raise InputError(where, f"{samples} records and {test} to test on", f"there are {total}")
    rows = stream(seed, "world", 0, "avazu rows").permutation(total)[: samples + test]
    y = np.where(columns["click"][rows] == 1, 1.0, -1.0)
    x = _hashed({name: column[rows] for name, column in columns.items() if name not in _NOT_FEATURES}, features)
    return _dealt(seed, x[test:], y[test:], regions, agents), (x[:test], y[:test])


def write_sample_clinics(
    folder: str | Path, seed: int = 1, regions: int = 10, clinics: int = 30
) -> tuple[list[Path], Path]:
    """CSV files of regions whose clinics ask which patients come back, and one to test on; one seed, the same bytes."""
    if not 1 <= regions <= len(SAMPLE_REGIONS) or clinics < 1:
        expected = f"1 to {len(SAMPLE_REGIONS)} regions of 1 clinic or more"
        raise InputError("sample clinics", expected, f"found {regions} of {clinics}")
    folder = Path(folder)
    (folder / "regions").mkdir(parents=True, exist_ok=True)
    header, common = ["readmitted", *_EFFECTS], np.array(list(_EFFECTS.values()))
    paths, tested = [], []
    for place, region in enumerate(SAMPLE_REGIONS[:regions]):
        rng = stream(seed, region, 0, "effects")
        average, effects = _AVERAGE + 0.15 * rng.standard_normal(), common + 0.15 * rng.standard_normal(len(common))
        kept = []
        for number in range(clinics):
            name = f"clinic-{place * clinics + number + 1:03d}"  # every clinic has a name of its own
            rng = stream(seed, f"{region}/{name}", 0, "patients")
            lines = _patients(rng, int(rng.integers(*_SIZES, endpoint=True)) + _TESTED, average, effects)
            tested += lines[:_TESTED]
            kept += [f"{name},{line}" for line in lines[_TESTED:]]
        paths.append(write_sample(folder / "regions" / f"{region}.csv", ["clinic", *header], kept))
    return paths, write_sample(folder / "test.csv", header, tested)


def _names(regions: int, agents: int) -> list[str]:
    # Names name draws: with others, every published figure would have other records.
    return [f"unit {p}/agent {k}" for p in range(regions) for k in range(agents)]


def _dealt(seed: int, x: Array, y: Array, regions: int, agents: int) -> list[Records]:
    """The records in unequal parts, half of them shared out evenly; each agent's features have its own noise added."""
    names = _names(regions, agents)
    if not 2 <= 2 * len(names) <= len(y):
        raise InputError("samples", f"at least two for each of {len(names)} agents", f"found {len(y)}")
    rng, even = stream(seed, "world", 0, "parts"), len(y) // (2 * len(names))
    sizes = even + rng.multinomial(len(y) - even * len(names), rng.dirichlet(np.ones(len(names))))
    cuts, features = np.cumsum(sizes)[:-1], x.shape[1]
    parts = []
    for name, here, answers in zip(names, np.split(x, cuts), np.split(y, cuts), strict=True):
        rng = stream(seed, name, 0, "noise on features")
        shift, spread = 0.2 * rng.standard_normal(features), rng.random()
        noise = shift + spread * rng.standard_normal(here.shape)
        parts.append((here + noise / np.sqrt(features), answers.copy()))
    return parts


def _hashed(columns: dict[str, NDArray[np.generic]], features: int) -> Array:
    """Each cell adds 1 or -1 to the feature that a hash of its column and value names; then all is scaled."""
    x = np.zeros((len(next(iter(columns.values()))), features))
    rows = np.arange(len(x))
    for name, column in columns.items():
        values, which = np.unique(column, return_inverse=True)
        digests = [hashlib.blake2b(f"{name}={value}".encode(), digest_size=8).digest() for value in values]
        numbers = np.array([int.from_bytes(digest, "big") for digest in digests], dtype=np.uint64)[which]
        x[rows, (numbers >> 1) % features] += np.where(numbers & 1, 1.0, -1.0)
    return np.asarray(x / np.sqrt(len(columns)))


def _patients(rng: np.random.Generator, count: int, average: float, effects: Array) -> list[str]:
    """Lines of a table: whether the patient came back, and the features. One clinic's patients are a little alike."""
    frailty = rng.standard_normal((count, 1))
    usual = 0.3 * rng.standard_normal(len(effects))
    own = rng.standard_normal((count, len(effects)))
    z = np.clip(usual + 0.4 * frailty + np.sqrt(0.75) * own, -3.0, 3.0)
    chance = 1.0 / (1.0 + np.exp(-average - z @ effects))
    readmitted = rng.random(count) < chance
    x = z / np.sqrt(len(effects))
    return [f"{back:d}," + ",".join(f"{value:.4f}" for value in row) for back, row in zip(readmitted, x, strict=True)]
