"""All benchmarks, one after the other, each in a process of its own: python -m benchmarks [NAME ...]

Writes what each one says, and on what machine, into build/benchmarks/NAME.json, prints a line for every row, and makes
build/benchmarks/index.html and benchmarks.md of all results that are there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import page

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "build" / "benchmarks"
#: Parts of others, a simulation, and a table that the package holds.
NO_BENCHMARKS = ("page", "person_graphs", "private_models_cells", "row_graphs", "scale", "expected_votes")


def line(row: dict[str, Any]) -> str:
    said = f"  {row['case']}: " + ("refused" if row["ours"] is None else f"{row['ours']:.4g} {row['unit']}")
    if row.get("ratio") is not None:
        said += f"; {row['peer']} {row['theirs']:.4g}, ratio {row['ratio']:.3g}"
    return said + (f"; growth {row['growth']:.2f}" if "growth" in row else "")


def all_names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("[a-z]*.py") if path.stem not in NO_BENCHMARKS)


def write_pages(folder: Path) -> None:
    """Of all results in the folder."""
    stored = {name: folder / f"{name}.json" for name in all_names()}
    results = {name: json.loads(path.read_text()) for name, path in stored.items() if path.exists()}
    (folder / "index.html").write_text(page.html(results), encoding="utf-8")
    (folder / "benchmarks.md").write_text(page.markdown(results), encoding="utf-8")
    for name, result in results.items():
        if picture := page.growth_svg(result["rows"]):
            (folder / f"growth-{name}.svg").write_text(page.standing_alone(picture), encoding="utf-8")


def main() -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or all_names():
        print(name, flush=True)
        about = {"date": page.now(), "machine": page.machine()}
        command = [sys.executable, "-m", f"benchmarks.{name}", "--json"]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=HERE.parent).stdout
        result = json.loads(said.splitlines()[-1]) | about
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        for row in result["rows"]:
            print(line(row), flush=True)
    write_pages(RESULTS)
    print(f"page: {RESULTS / 'index.html'}")


if __name__ == "__main__":
    main()
