"""Whatever ledger a test leaves, two accountants must agree on it: no test can forget to ask.

Every worker computes in one thread, and so does what it starts: workers that each take all cores wait for each other at
every product, and on a busy machine that is most of the time. All runs finish at one time of day, so that
those which must write the same bytes do.
"""

import os
import sys
from functools import wraps

for _count in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_count, "1")  # read when the libraries are imported
os.environ["SOURCE_DATE_EPOCH"] = "1780000000"

import pytest

from accountants import compare
from chromium import browser as browser
from silograph.privacy.ledger import Ledger


@pytest.fixture(autouse=True)
def ledgers(monkeypatch):
    """All ledgers that were written to in a test, compared when it is over."""
    written: dict[int, Ledger] = {}
    append = Ledger.append

    @wraps(append)  # its docstring is looked at, too
    def noted(ledger, rows):
        written[id(ledger)] = ledger
        append(ledger, rows)

    with pytest.MonkeyPatch.context() as patch:  # its own: tests undo theirs
        patch.setattr(Ledger, "append", noted)
        yield written
    monkeypatch.undo()  # the accountants as they are
    for ledger in written.values():
        for silo in sorted({row.silo for row in ledger.rows})[:_SILOS]:
            compare(ledger.of(silo))


@pytest.fixture
def silograph(monkeypatch, capsys):
    """Run the command line in this process: exit code, standard output, standard error."""

    def call(*words):
        from silograph import cli

        monkeypatch.setattr(sys, "argv", ["silograph", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out = capsys.readouterr()
        assert "Traceback" not in out.err
        return stopped.value.code or 0, out.out, out.err

    return call


_SILOS = 50  # of one ledger; others have the same kinds of rows

#: What `make quick` runs after every save: the gate, the ledger, plans, wires, a solver, a page. About a minute.
_QUICK = (
    "privacy/test_gate.py",
    "privacy/test_accounting.py",
    "privacy/test_ledger.py",
    "privacy/test_mechanisms.py",
    "engines/test_sums.py",
    "engines/test_wire.py",
    "kernels/test_edges.py",
    "kernels/test_prox.py",
    "data/test_silos.py",
    "run/test_plan.py",
    "families/graphs/test_page.py",
    "test_topology.py",
)


def pytest_ignore_collect(collection_path, config):
    """`-m quick` does not import the other tests: they need more than the package itself installs."""
    if config.option.markexpr == "quick" and collection_path.name.startswith("test_"):
        return not collection_path.as_posix().endswith(_QUICK)
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.as_posix().endswith(_QUICK):
            item.add_marker(pytest.mark.quick)
