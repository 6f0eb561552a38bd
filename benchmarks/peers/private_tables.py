"""Real tables of people, and what diffprivlib and scikit-learn make of half of their records; prints JSON.

Runs in an environment of its own. Every column is scaled from its least and most, which count as public, to -1 and 1.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import numpy as np
import statsmodels.api as sm
from diffprivlib.models import LinearRegression as PrivateLinear
from diffprivlib.models import LogisticRegression as PrivateLogistic
from sklearn import datasets
from sklearn.linear_model import LinearRegression, LogisticRegression

MOST = 1500  # people of a table: the first of a shuffled order


def tables() -> dict[str, tuple[Any, Any, bool]]:
    """Features, answers, and whether these are classes."""
    diabetes, cancer = datasets.load_diabetes(), datasets.load_breast_cancer()
    found = {"diabetes": (diabetes.data, diabetes.target, False), "tumours": (cancer.data, cancer.target, True)}
    frame = sm.datasets.fair.load_pandas().data
    found["affairs"] = (frame.drop(columns="affairs"), frame.affairs > 0, True)
    frame = sm.datasets.anes96.load_pandas().data
    found["votes"] = (frame.drop(columns="vote"), frame.vote, True)
    frame = sm.datasets.randhie.load_pandas().data
    found["doctors"] = (frame.drop(columns="mdvis"), np.log1p(frame.mdvis), False)
    frame = sm.datasets.star98.load_pandas().data
    found["districts"] = (frame.iloc[:, 2:10], frame.NABOVE / (frame.NABOVE + frame.NBELOW), False)
    return found


def scaled(values: Any) -> Any:
    low, high = values.min(0), values.max(0)
    return 2.0 * (values - low) / (high - low) - 1.0


def error(classes: bool, y: Any, guess: Any) -> float:
    return float(np.mean(guess != y) if classes else np.mean((guess - y) ** 2))


def told(name: str, seed: int) -> dict[str, Any]:
    features, answers, classes = tables()[name]
    order = np.random.default_rng(seed).permutation(len(answers))[:MOST]
    x, y = scaled(np.asarray(features, dtype=float)[order]), np.asarray(answers, dtype=float)[order]
    if not classes:
        y = scaled(y)
    half = len(y) // 2
    x, y, a, b = x[:half], y[:half], x[half:], y[half:]
    errors = {"constant": error(classes, b, np.full(len(b), np.round(y.mean()) if classes else y.mean()))}
    plain = LogisticRegression(C=10.0, max_iter=2000) if classes else LinearRegression()
    errors["scikit-learn without privacy"] = error(classes, b, plain.fit(x, y).predict(a))
    for epsilon in (1.0, 4.0):
        norm = float(np.linalg.norm(x, axis=1).max())
        model = (
            PrivateLogistic(epsilon=epsilon, data_norm=norm, random_state=seed)
            if classes
            else PrivateLinear(epsilon=epsilon, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0), random_state=seed)
        )
        errors[f"diffprivlib pooled, epsilon {epsilon:g}"] = error(classes, b, model.fit(x, y).predict(a))
    records = {"x": x.tolist(), "y": y.tolist(), "test_x": a.tolist(), "test_y": b.tolist()}
    return {**records, "classes": classes, "errors": errors}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("name")
    parser.add_argument("seed", type=int)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    print(json.dumps(told(asked.name, asked.seed)))


if __name__ == "__main__":
    main()
