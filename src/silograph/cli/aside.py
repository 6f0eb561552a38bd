"""What takes memory once is done in a process of its own: reading the table, pricing a plan, the account at the end.

`silograph join` lives for hours and answers in between. pandas and the accountants are 150 MB that it needs at its
beginning and its end, and so a child loads them, hands over what it found, and takes them with it.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

from silograph.core import wording
from silograph.core.errors import SilographError
from silograph.deploy.organisation import Approved, Prepared

_PREPARE, _CONCLUDE = "prepare", "conclude"


def prepare_aside(organisation: Approved) -> Prepared:
    prepared: Prepared = _aside(_PREPARE, organisation)
    return prepared


def conclude_aside(organisation: Approved) -> None:
    _aside(_CONCLUDE, organisation)


def _aside(what: str, organisation: Approved) -> Any:
    words = [sys.executable, "-m", "silograph.cli.aside", what, str(organisation.folder), str(organisation.table)]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SilographError(
            f"{what} {organisation.folder}", "a process that ends well", f"it ended with {done.returncode}"
        )
    found = pickle.loads(done.stdout)
    if isinstance(found, BaseException):
        raise found
    return found


def _main(what: str, folder: Path, table: Path) -> object:
    try:
        organisation = Approved.open(folder, table)
        if what == _PREPARE:
            return organisation.prepare()
        from silograph.report.deployment import own_page  # late: the first child does without

        organisation.conclude(own_page)
        return None
    except (SilographError, OSError, MemoryError) as error:
        return error


if __name__ == "__main__":
    with wording.speaking("plan"):
        told = _main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    sys.stdout.buffer.write(pickle.dumps(told))
