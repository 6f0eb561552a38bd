"""The secret root of all noise: whoever guesses it removes the noise. So it has 128 bits, and the operating system's.

A root is hashed with the plan before anybody sees it, so its length says nothing: sixteen bits look as long. What is
looked at is how many bits of the system's randomness a root depends on (turn each, and it must be another root), and
that it depends on nothing else; then that many drawn ones are all different, as they are with 128 bits (20,000 of them
meet with the chance 1e-30, of 16 bits all but surely).
"""

import random
import secrets
import time
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from silograph.core import keys
from silograph.deploy.organisation import Approved
from silograph.run import jobs
from silograph.run.store import RunFolder

BITS = 128
NUMBER = count()


def of_a_run(tmp_path):
    data = tmp_path / "table.csv"
    data.write_text("1,2\n")
    folder = RunFolder(tmp_path / f"run{next(NUMBER)}", "plan", [data], None)
    try:
        return folder.root
    finally:
        folder.release()


def of_an_organisation(tmp_path):
    folder, table = tmp_path / f"organisation{next(NUMBER)}", tmp_path / "own.csv"
    folder.mkdir()
    table.write_text("1,2\n")
    return Approved._root(
        SimpleNamespace(folder=folder, deployment=SimpleNamespace(digest="agreed"), table=table, ledger=None)
    )


def of_memory(tmp_path):
    seen = []

    def door(root, *_):
        seen.append(root)
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "Door", door)
        with pytest.raises(InterruptedError):
            jobs.run_in_memory(SimpleNamespace(mechanism=None, budget=None, masks=None), None)
    return seen[0]


ROOTS = {
    "drawn": lambda tmp_path: keys.secret_root(),
    "run": of_a_run,
    "organisation": of_an_organisation,
    "memory": of_memory,
}


def bits_that_count(make, monkeypatch):
    """How many bits of the operating system's randomness change the root, each by itself; and the roots they make."""
    plain = bytes(range(64))

    def root(turned):
        def system(size):
            whole = int.from_bytes(plain[:size], "big")
            return (whole ^ (1 << turned if 0 <= turned < 8 * size else 0)).to_bytes(size, "big")

        with monkeypatch.context() as patch:
            patch.setattr(random, "_urandom", system)
            patch.setattr("os.urandom", system)
            return make()

    before = root(-1)
    found = {turned: root(turned) for turned in range(BITS)}
    return len({value for value in found.values() if value != before}), root(-1) == before


@pytest.mark.parametrize("kind", ROOTS)
def test_every_root_depends_on_128_bits_of_the_system_and_on_nothing_else(kind, tmp_path, monkeypatch):
    """The same bits give the same root at another time, with other seeds: no clock, process or seed is in it."""
    counted, only = bits_that_count(lambda: ROOTS[kind](tmp_path), monkeypatch)
    assert (counted, only) == (BITS, True)


def test_roots_do_not_repeat_with_the_seeds_of_anybody():
    found = set()
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002 (what others may have seeded)
        found |= {keys.secret_root() for _ in range(10_000)}
    assert len(found) == 20_000
    ones = np.array([[root >> bit & 1 for bit in range(BITS)] for root in list(found)[:2000]]).mean(0)
    assert np.abs(ones - 0.5).max() < 6.0 * 0.5 / np.sqrt(2000)  # 6 deviations in 128 places: 3e-7
    assert len({root >> BITS for root in found}) == 1


def test_runs_organisations_and_sites_have_roots_of_their_own(tmp_path):
    found = [ROOTS[kind](tmp_path) for kind in ROOTS for _ in range(50)]
    assert len(set(found)) == len(found)


SHORT = {
    "16 bits": lambda: secrets.randbits(16),
    "64 bits": lambda: secrets.randbits(64),
    "16 bits made long": lambda: random.Random(secrets.randbits(16)).getrandbits(128),
}
FOREIGN = {
    "the clock": lambda: random.Random(time.time_ns()).getrandbits(128),
    "a seed": lambda: random.getrandbits(128),
}


@pytest.mark.parametrize("kind", ["run", "organisation", "memory"])
@pytest.mark.parametrize("twin", {**SHORT, **FOREIGN})
def test_a_root_that_can_be_guessed_is_caught(kind, twin, tmp_path, monkeypatch):
    """In every place that makes one; also where a hash hides how few there are."""
    draw = {**SHORT, **FOREIGN}[twin]
    for place in ("run.store", "deploy.organisation", "run.jobs"):
        monkeypatch.setattr(f"silograph.{place}.secret_root", draw)
    counted, only = bits_that_count(lambda: ROOTS[kind](tmp_path), monkeypatch)
    assert (counted, only) != (BITS, True)


def test_few_roots_meet():
    assert len({secrets.randbits(16) for _ in range(20_000)}) < 20_000
