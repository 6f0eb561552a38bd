"""The archives as a stranger installs them: each in an empty environment, away from the repository.

    python tests/release/installed.py dist
    python tests/release/installed.py dist --lowest

The first commands of the README are typed, then the quick tests of the source archive run against the installed
package. `--lowest` installs the oldest version of everything that pyproject.toml names, in place of those that
constraints.txt names. Not a test of `make test`: it downloads what it installs.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

TOOLS = ("pytest", "pytest-xdist", "hypothesis", "cvxpy", "markdown-it-py")  # of the quick tests
FIRST = (
    "sample sites",
    "check sites",
    "learn sites -o open",
    "learn sites -o private --degree 6 --epsilon 2",
    "compare open private",
)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--lowest", action="store_true")
    given = asked.parse_args()
    wheel, source = (next(given.folder.glob(pattern)).resolve() for pattern in ("*.whl", "*.tar.gz"))
    for archive in (wheel,) if given.lowest else (wheel, source):
        with tempfile.TemporaryDirectory() as made:
            try_out(archive, source, Path(made), given.lowest)
        needs = "the oldest versions it names, " if given.lowest else ""
        python = ".".join(map(str, sys.version_info[:2]))
        print(f"{archive.name} with {needs}Python {python}: installs, works and passes the quick tests")


def try_out(archive: Path, source: Path, home: Path, lowest: bool) -> None:
    def type_(*words: str | Path) -> None:
        subprocess.run([str(word) for word in words], check=True, cwd=home, env=bare)

    bare = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with tarfile.open(source) as packed:
        packed.extractall(home, filter="data")
    unpacked = next(home.glob("silograph-*"))
    constraints = home / "constraints.txt"
    if lowest:
        constraints.write_text("\n".join(oldest(unpacked / "pyproject.toml")))
    elif sys.version_info[:2] == (3, 11):  # for which constraints.txt is made
        shutil.copy(unpacked / "constraints.txt", constraints)
    else:
        constraints.touch()
    python = home / "venv/bin/python"
    type_(sys.executable, "-m", "venv", home / "venv")
    quiet = ("--quiet", "--disable-pip-version-check")
    type_(python, "-m", "pip", "install", *quiet, "-c", constraints, archive, *TOOLS)
    for line in FIRST:
        type_(python.with_name("silograph"), *line.split())
    shutil.rmtree(unpacked / "src")  # so that the tests can only mean what is installed
    type_(python, "-m", "pytest", "--rootdir", unpacked, "-m", "quick", "-q", "-n", "2", unpacked / "tests")


def oldest(pyproject: Path) -> list[str]:
    """Every need of a plain install, at its lower bound."""
    needs = tomllib.loads(pyproject.read_text())["project"]["dependencies"]
    return [re.sub(r"^([\w-]+)>=([\w.]+).*$", r"\1==\2", need) for need in needs]


if __name__ == "__main__":
    main()
