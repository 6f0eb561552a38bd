"""From a CSV file to a graph: 200,000 rows of 50 columns, one core: python -m benchmarks.tables [--json]

CPU seconds of `silograph check` and `silograph learn` on the file, each in a process of its own with its start, and the
most memory that it held. The peer of reading is pandas alone, which checks nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROWS, COLUMNS = 200_000, 50
_MEASURED = """
import json, resource, sys
{statement}
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024.0]))
"""
_COMMAND = "import contextlib, io\nsys.argv = {argv!r}\nfrom silograph.cli import main\n" + (
    "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n    main()"
)


def measured(statement: str) -> tuple[float, float]:
    """CPU seconds and MiB of a process of its own."""
    alone = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-c", _MEASURED.format(statement=statement)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=alone).stdout
    seconds, memory = json.loads(said.splitlines()[-1])
    return seconds, memory


def write_table(path: Path) -> None:
    import pyarrow as pa
    from pyarrow import csv

    rng = np.random.default_rng(0)
    mixing = np.eye(COLUMNS) + 0.4 * (rng.random((COLUMNS, COLUMNS)) < 0.04)
    values = (rng.standard_normal((ROWS, COLUMNS)) @ mixing).round(5)
    csv.write_csv(pa.table({f"v{k}": values[:, k] for k in range(COLUMNS)}), path)


def rows() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "site.csv"
        write_table(path)
        learn = ["silograph", "learn", str(path), "-o", f"{folder}/warm"]
        measured(_COMMAND.format(argv=learn))  # the first run may have to compile
        check = measured(_COMMAND.format(argv=["silograph", "check", str(path)]))
        learned = measured(_COMMAND.format(argv=[*learn[:-1], f"{folder}/out"]))
        pandas = measured(f"import pandas\npandas.read_csv({str(path)!r})")
    table, signals = f"{ROWS} x {COLUMNS} CSV", 8.0 * ROWS * COLUMNS / 2**20
    return [
        {"case": f"{table}: check", "ours": check[0], "unit": "CPU s", "peer": "pandas.read_csv", "theirs": pandas[0]},
        {"case": f"{table}: learn", "ours": learned[0], "unit": "CPU s"},
        {
            "case": f"{table}: memory of check",
            "ours": check[1],
            "unit": "MiB",
            "peer": "pandas.read_csv",
            "theirs": pandas[1],
        },
        {
            "case": f"{table}: memory of learn, of which the numbers are {signals:.0f}",
            "ours": learned[1],
            "unit": "MiB",
        },
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    found = [row | ({"ratio": row["theirs"] / row["ours"]} if "theirs" in row else {}) for row in rows()]
    print(json.dumps({"rows": found}) if parser.parse_args().json else json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
