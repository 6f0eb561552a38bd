"""Records of clients whose clusters have related models (S2, section V.A), and how far models are from these.

Clients come server by server: those of server s are `records[s * clients : (s + 1) * clients]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from silograph.core.keys import stream
from silograph.core.types import Array
from silograph.data.regions import Records
from silograph.data.tables import write_sample


@dataclass(frozen=True, eq=False)
class ClusteredRecords:
    """Each client's records and cluster, and the model (Q, d) that made each cluster's answers."""

    records: list[Records]
    clusters: tuple[int, ...]
    models: Array


def clustered_regression(
    seed: int,
    servers: int = 10,
    clients: int = 15,
    clusters: int = 3,
    features: int = 60,
    counts: tuple[int, int] = (2, 9),
    spread: float = 0.15,
    variance: float = 0.75,
) -> ClusteredRecords:
    """y = x.w_q + v for the client's cluster q, with w_q = w_0 + delta_q w_0, delta_q uniform within +-`spread`.

    x, w_0 and v / sqrt(variance) are standard normal, which the paper leaves open; a client has `counts` records.
    """
    rng = stream(seed, "world", 0, "cluster models")
    base = rng.standard_normal(features)
    models = base * (1.0 + rng.uniform(-spread, spread, (clusters, 1)))
    chosen = stream(seed, "world", 0, "clusters").integers(clusters, size=servers * clients)
    parts = []
    for number, q in enumerate(chosen):
        rng = stream(seed, f"server {number // clients}/client {number % clients}", 0, "clustered regression")
        x = rng.standard_normal((int(rng.integers(*counts, endpoint=True)), features))
        parts.append((x, x @ models[q] + np.sqrt(variance) * rng.standard_normal(len(x))))
    return ClusteredRecords(parts, tuple(int(q) for q in chosen), models)


DIAGNOSES = ("asthma", "diabetes", "heart failure", "stroke")
HOSPITALS = ("castle", "harbour", "hill", "park", "priory", "royal")
SIGNS = ("age", "weight", "blood_pressure", "pulse", "oxygen", "glucose", "creatinine", "mobility")
_COLUMNS = ("ward", "diagnosis", "score", *SIGNS)


def write_sample_hospitals(folder: str | Path, seed: int = 1, wards: int = 12) -> tuple[list[Path], Path]:
    """CSV files of hospitals whose wards each treat one diagnosis and have few patients, and one to test on.

    The score depends on the signs by diagnosis: asthma and heart failure are alike, diabetes and stroke are alike, the
    two pairs are not. One seed, the same bytes.
    """
    folder = Path(folder)
    (folder / "hospitals").mkdir(parents=True, exist_ok=True)
    rng = stream(seed, "world", 0, "diagnoses")
    pairs = rng.standard_normal((2, len(SIGNS) + 1))
    effects = {name: pairs[k % 2] + 0.25 * rng.standard_normal(len(SIGNS) + 1) for k, name in enumerate(DIAGNOSES)}
    paths, tested = [], []
    for place, hospital in enumerate(HOSPITALS):
        lines = []
        for number in range(wards):
            ward = f"ward-{place * wards + number + 1:03d}"
            rng = stream(seed, ward, 0, "patients")
            diagnosis = DIAGNOSES[int(rng.integers(len(DIAGNOSES)))]
            count = int(rng.integers(4, 12, endpoint=True))
            x = rng.standard_normal((count + 8, len(SIGNS)))
            score = x @ effects[diagnosis][1:] + effects[diagnosis][0] + 1.5 * rng.standard_normal(count + 8)
            rows = [
                f"{ward},{diagnosis},{answer:.4f}," + ",".join(f"{value:.4f}" for value in row)
                for row, answer in zip(x, score, strict=True)
            ]
            lines += rows[:count]
            tested += rows[count:]
        paths.append(write_sample(folder / "hospitals" / f"{hospital}.csv", _COLUMNS, lines))
    return paths, write_sample(folder / "test.csv", _COLUMNS, tested)


def nmsd(model: Array, made: ClusteredRecords) -> float:
    """The mean over clients of |w_k - w_q|^2 / |w_q|^2, for models (K, d)."""
    truth = made.models[list(made.clusters)]
    return float((((model - truth) ** 2).sum(-1) / (truth**2).sum(-1)).mean())  # (50)
