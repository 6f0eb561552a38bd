"""The archives as a stranger installs them: each in an empty environment, away from the repository.

    python tests/release/installed.py dist

The first commands of the README are typed, then the quick tests run against the installed package. Not a test of `make
test`: it downloads what it installs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("pytest", "pytest-xdist", "hypothesis")  # of the quick tests
FIRST = (
    "sample sites",
    "check sites",
    "learn sites -o open",
    "learn sites -o private --degree 6 --epsilon 2",
    "compare open private",
)


def main(folder: Path) -> None:
    archives = [next(folder.glob(pattern)).resolve() for pattern in ("*.whl", "*.tar.gz")]
    for archive in archives:
        with tempfile.TemporaryDirectory() as made:
            try_out(archive, Path(made))
        print(f"{archive.name}: installs, works and passes the quick tests")


def try_out(archive: Path, home: Path) -> None:
    def type_(*words: str | Path, env: dict[str, str] | None = None) -> None:
        subprocess.run([str(word) for word in words], check=True, cwd=home, env=env)

    bare = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    python = home / "venv/bin/python"
    type_(sys.executable, "-m", "venv", home / "venv")
    wanted = ("-c", ROOT / "constraints.txt") if sys.version_info[:2] == (3, 11) else ()
    type_(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted, archive, *TOOLS, env=bare)
    for line in FIRST:
        type_(python.with_name("silograph"), *line.split(), env=bare)
    shutil.copytree(ROOT / "tests", home / "tests")
    shutil.copy(ROOT / "pyproject.toml", home)  # of which pytest reads its markers
    type_(python, "-m", "pytest", "-m", "quick", "-q", "-n", "2", "tests", env=bare)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
