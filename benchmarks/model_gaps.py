"""What a gap should count as in models of regions: python -m benchmarks.model_gaps [--json]

300 agents of 20 records, 8 features, of which 3 have a quarter of their values missing, by chance or mostly where they
are large. Beside the fills that a plan has, the mean of all sites' values, as if it cost nothing: no private mean does
better. Squared error of 4,000 complete draws with gaps of their own, relative to the variance; mean of six worlds.
"""

from __future__ import annotations

import argparse
import json
import warnings
from itertools import product
from typing import Any

import numpy as np

from silograph import RegionModels
from silograph.core.types import Array

FEATURES, WITH_GAPS, AGENTS, RECORDS, SEEDS = 8, 3, 300, 20, range(900, 906)
FILLS, EPSILONS = ("mean", "middle", "learned"), (1.0, 4.0, None)


def world(seed: int, large: bool) -> tuple[list[tuple[Array, Array]], tuple[Array, Array]]:
    """Agents' records, and records to test on; gaps are NaN, by chance, or where values are `large`."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=FEATURES)
    w *= 1.2 / np.linalg.norm(w)
    centre, spread = rng.uniform(-0.4, 0.4, FEATURES), rng.uniform(0.15, 0.35, FEATURES)
    alike = (np.eye(FEATURES) + 0.3) / 1.3

    def drawn(count: int) -> tuple[Array, Array]:
        z = rng.multivariate_normal(np.zeros(FEATURES), alike, count)
        x, y = np.clip(centre + spread * z, -1.0, 1.0), z @ w + 0.8 * rng.normal(size=count)
        chance = np.where(z[:, :WITH_GAPS] > 0.5, 0.6, 0.1) if large else 0.25
        x[:, :WITH_GAPS][rng.random((count, WITH_GAPS)) < chance] = np.nan
        return x, y

    return [drawn(RECORDS) for _ in range(AGENTS)], drawn(4000)


def error(seed: int, large: bool, fill: str, epsilon: float | None) -> float:
    agents, (x, y) = world(seed, large)
    mean = np.nanmean(np.concatenate([own for own, _ in agents]), axis=0)

    def filled(own: Array) -> Array:
        if fill == "mean":
            return np.where(np.isnan(own), mean, own)
        gaps = np.isnan(own[:, :WITH_GAPS]).astype(float)
        return np.column_stack([np.nan_to_num(own), gaps]) if fill == "learned" else np.nan_to_num(own)

    bounds = [(-1.0, 1.0)] * filled(x).shape[1]
    private: dict[str, Any] = {"epsilon": epsilon, "masks": "skipped", "bounds": bounds, "answers": (-6.0, 6.0)}
    chosen = {"step": 0.2, "rounds": 200} if epsilon is None else private
    model = RegionModels("ridge", **chosen, random_state=seed).fit([(filled(own), answers) for own, answers in agents])
    return float(((model.predict(filled(x)) - y) ** 2).mean() / y.var())


def rows() -> list[dict[str, Any]]:
    warnings.simplefilter("ignore")
    found = []
    for large, epsilon in product((False, True), EPSILONS):
        mean, *others = (float(np.mean([error(seed, large, fill, epsilon) for seed in SEEDS])) for fill in FILLS)
        world = "gaps where values are large" if large else "gaps by chance"
        for fill, ours in zip(FILLS[1:], others, strict=True):
            case = f"{world}, {'no privacy' if epsilon is None else f'epsilon {epsilon:g}'}: {fill}"
            told = {"case": case, "ours": ours, "unit": "of the variance", "peer": "mean of all sites", "theirs": mean}
            found.append(told | {"ratio": mean / ours})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    found = rows()
    print(json.dumps({"rows": found}) if parser.parse_args().json else json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
