"""How much audits find of what sample plans promise, and how long they take: python -m benchmarks.audits [--json]

`silograph audit` on plans for the tables of `silograph sample`, each audit in a process of its own and with its own
noise: with all trials that it plays by default, and five times as a single run (`--one-run`; networks once). What it
finds is its lower bound on epsilon, as a share of the promise; CPU time of one core, with the start of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

REFUTED = 3  # an exit code of `silograph audit`
SITES = """format = 1
[data]
files = ["site_harbour.csv", "site_hill.csv", "site_mill.csv", "site_park.csv", "site_station.csv"]
scale = "none"
[method]
name = "consensus_graph"
degree = 6
[privacy]
epsilon = 2.0
"""
#: By name: the option of the sample (sites have none, and no plan), what its plan says in place of other words, and how
#: many single runs.
PLANS: dict[str, tuple[str, dict[str, str], int]] = {
    "sites": ("", {}, 5),
    "sites, secure sum": ("", {"epsilon": 'mode = "secure-sum"\nepsilon'}, 5),
    "sites, shared noise": ("", {"epsilon": 'mode = "correlated"\nepsilon'}, 5),
    "wards": (
        "--hospitals",
        {
            'loss = "ridge"': 'loss = "ridge"\nrounds = 150\nstep = "linearised"\nclip = 1.0  #',
            "# [privacy]": "[privacy]\nepsilon = 4.0  #",
        },
        5,
    ),
    "clinics": ("--clinics", {"rounds = 20": 'rounds = 20\nreach = "region"\nclip = 0.5\nstep = 8.0'}, 5),
    "sensors": ("--devices", {"# rounds = 50": "rounds = 100", "# rate = 1.0": "rate = 0.2"}, 1),
}


def audited(plan: Path, *options: str) -> tuple[dict[str, Any], float]:
    """The finding, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = _silograph("audit", str(plan), "--json", *options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, REFUTED):
        raise RuntimeError(done.stderr)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), seconds


def _silograph(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from silograph.cli import main; main()", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def rows(only: str | None) -> Iterator[dict[str, Any]]:
    for name, (option, changes, single) in PLANS.items():
        if only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            _silograph("sample", folder, *([option] if option else []))
            plan = Path(folder, "plan.toml")
            text = plan.read_text() if option else SITES
            for words, others in changes.items():
                text = text.replace(words, others)
            plan.write_text(text)
            found, seconds = audited(plan)
            share = found["epsilon_lower"] / found["epsilon_accounted"]
            case = f"{name}, epsilon {found['epsilon_accounted']:.3g}: {found['trials']} trials"
            yield {"case": f"{case} find {found['epsilon_lower']:.2f}", "ours": share, "unit": "of the promise"}
            yield {"case": f"{case} take", "ours": seconds, "unit": "CPU s"}
            each = [audited(plan, "--one-run")[0] for _ in range(single)]
        shares = [one["epsilon_lower"] / one["epsilon_accounted"] for one in each]
        guesses = [bound["epsilon"] for one in each for bound in one["bounds"] if "guesses" in bound["how"]]
        alone = np.mean(guesses) / each[0]["epsilon_accounted"]
        case = f"{name}: {each[0]['trials']} canaries, {single} single runs"
        told = {"mean": np.mean(shares), "least": min(shares), "most": max(shares), "guesses alone": alone}
        for what, value in told.items():
            yield {"case": f"{case}, {what}", "ours": float(value), "unit": "of the promise"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--only", choices=PLANS)
    given = parser.parse_args()
    found = []
    for row in rows(given.only):
        found.append(row)
        if not given.json:
            print(f"{row['case']:>70}  {row['ours']:.3f} {row['unit']}", flush=True)
    if given.json:
        print(json.dumps({"rows": found}))


if __name__ == "__main__":
    main()
