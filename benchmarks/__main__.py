"""All benchmarks, one after the other, each in a process of its own: python -m benchmarks [NAME ...]

Writes what each one says into build/benchmarks/NAME.json and prints a line for every row.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "build" / "benchmarks"


def line(row: dict[str, Any]) -> str:
    said = f"  {row['case']}: {row['ours']:.4g} {row['unit']}"
    if row.get("ratio") is not None:
        said += f"; {row['peer']} {row['theirs']:.4g}, ratio {row['ratio']:.3g}"
    return said + (f"; growth {row['growth']:.2f}" if "growth" in row else "")


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("[a-z]*.py"))
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in names:
        print(name, flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", "--json"]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=HERE.parent).stdout
        (RESULTS / f"{name}.json").write_text(said)
        for row in json.loads(said.splitlines()[-1])["rows"]:
            print(line(row), flush=True)


if __name__ == "__main__":
    main()
