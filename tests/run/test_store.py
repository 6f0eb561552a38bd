"""A kill at any moment only delays: the same command goes on, to the same bytes."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import federations
from silograph.core.errors import DamageError, InputError
from silograph.data.synthetic import write_sample_sites
from silograph.privacy.accounting import cost
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.run.loop import rounds
from silograph.run.store import Kept, RunFolder
from support import cases, federation, run

LEARN = [sys.executable, "-c", "from silograph.cli import main; main()", "learn"]
MODES = {
    "exact": [],
    "papers": ["--learner", "papers", "--degree", "6"],
    "one-release": ["--degree", "6", "--epsilon", "2", "--delta", "1e-6", "--seed", "4"],
    "per-round": "--privacy per-round --epsilon 2 --clip 5 --beta .05 --nu 3 --lambda .1 --rounds 400 --seed 4".split(),
}


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    return [str(p) for p in write_sample_sites(tmp_path_factory.mktemp("sites"))]


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


#: The command line in a process that dies at its so many-th write to disk.
DYING = """
import os, signal, sys
from silograph.cli import main
left, real = int(sys.argv.pop(1)), os.fsync
def fsync(handle):
    global left
    real(handle)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync = fsync
main()
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_command_that_is_killed_goes_on_to_the_same_bytes(mode, sites, tmp_path):
    """Real processes, killed for certain; tests/contracts kills every kind of run at many more moments."""
    out = tmp_path / "out"
    words = ["learn", *sites, "-o", str(out), *MODES[mode]]
    subprocess.run([*LEARN[:-1], *words], check=True, capture_output=True)
    straight = contents(out)
    assert {"result.json", "ledger.jsonl", "plan.toml", "report.html", "consensus.csv"} <= set(straight)
    os.rename(out, tmp_path / "straight")
    for moment in (1, 5):
        killed = subprocess.run([sys.executable, "-c", DYING, str(moment), *words], capture_output=True)
        assert killed.returncode == -signal.SIGKILL
        assert not out.exists()
    subprocess.run([*LEARN[:-1], *words], check=True, capture_output=True)
    assert contents(out) == straight
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_without_a_seed_a_resumed_run_goes_on_with_the_same_secret_noise(sites, tmp_path):
    """The root is secret, kept while the run is unfinished, and gone afterwards."""
    goal = tmp_path / "out"
    first = RunFolder(goal, "plan", [Path(p) for p in sites], None)
    root = first.root
    assert root.bit_length() > 64
    assert (first.path / "root").stat().st_mode & 0o077 == 0
    first._lock.close()  # as if killed
    assert RunFolder(goal, "plan", [Path(p) for p in sites], None).root == root


def test_secrets_do_not_stay_in_the_finished_folder(sites, tmp_path):
    out = tmp_path / "out"
    subprocess.run([*LEARN, *sites, "-o", str(out), "--epsilon", "2"], check=True, capture_output=True)
    names = {p.name for p in out.rglob("*")}
    assert not names & {"root", "state.npz", "identity.json", "lock"}
    assert json.loads((out / "result.json").read_text())["seed"] is None
    rows = Ledger(out / "ledger.jsonl").rows
    assert all("secret" in row.randomness for row in rows)
    assert cost(rows[:1], 1e-6).epsilon <= 2.0


def test_an_unfinished_run_goes_on_only_with_its_own_plan_and_data(sites, tmp_path):
    inputs = [Path(p) for p in sites]
    copy = tmp_path / "a.csv"
    copy.write_bytes(inputs[0].read_bytes())
    RunFolder(tmp_path / "out", "plan", [copy], 1)._lock.close()
    with pytest.raises(InputError, match="the plan changed"):
        RunFolder(tmp_path / "out", "another plan", [copy], 1)
    copy.write_text(copy.read_text() + "\n")
    with pytest.raises(InputError, match="the data changed"):
        RunFolder(tmp_path / "out", "plan", [copy], 1)


def test_two_processes_do_not_write_one_folder(tmp_path):
    first = RunFolder(tmp_path / "out", "plan", [], 1)
    with pytest.raises(InputError, match="another process"):
        RunFolder(tmp_path / "out", "plan", [], 1)
    first.discard()
    assert not first.path.exists()


@pytest.mark.parametrize("name", ["state.npz", "identity.json", "root", "ledger.jsonl"])
def test_damage_in_an_unfinished_run_is_named(name, tmp_path):
    folder = RunFolder(tmp_path / "out", "plan", [], None)
    (folder.path / name).write_bytes(b"\x00 damage \n")
    folder._lock.close()
    with pytest.raises(DamageError, match=name):
        RunFolder(tmp_path / "out", "plan", [], None).load()


def test_occupied_goals_are_refused(tmp_path):
    (tmp_path / "out").mkdir()
    RunFolder(tmp_path / "out", "plan", [], 1).discard()  # empty is fine
    (tmp_path / "out" / "x").touch()
    with pytest.raises(InputError, match="not empty"):
        RunFolder(tmp_path / "out", "plan", [], 1)
    with pytest.raises(InputError, match="a file is there"):
        RunFolder(tmp_path / "out" / "x", "plan", [], 1)


def test_a_full_disk_publishes_nothing_and_the_same_command_goes_on(sites, tmp_path):
    """A file size limit stands in for the full disk: writes fail half-way."""
    out = tmp_path / "out"
    command = [*LEARN, *sites, "-o", str(out), *MODES["one-release"]]
    limited = ["bash", "-c", 'ulimit -f 8; trap "" XFSZ; exec "$@"', "limited", *command]
    # Compiled kernels are cached already by the other tests or stay in memory; only our own files hit the limit.
    failed = subprocess.run(limited, capture_output=True, text=True, env={**os.environ, "NUMBA_DISABLE_JIT": "0"})
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr
    assert not out.exists()
    subprocess.run(command, check=True, capture_output=True)
    assert (out / "result.json").exists()


def test_a_resumed_run_refuses_a_ledger_that_lost_rows(tmp_path):
    case = next(c for c in cases() if c.name == "per round, Corollary 1")
    states, _, door = run(case, federation())
    folder = RunFolder(tmp_path / "out", "plan", [], 5)
    folder.ledger.append(door.ledger.rows[:18])
    folder.save(states[5], [])
    folder._lock.close()
    path = folder.path / "ledger.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:6]))
    with pytest.raises(DamageError, match="18 rows"):
        RunFolder(tmp_path / "out", "plan", [], 5).load()


def test_other_data_never_meets_the_same_secret_noise(tmp_path):
    """Even if everything but the secret was taken away by hand."""
    data = tmp_path / "a.csv"
    data.write_text("1")
    first = RunFolder(tmp_path / "out", "plan", [data], None)
    first._lock.close()
    (first.path / "identity.json").unlink()
    data.write_text("2")
    assert RunFolder(tmp_path / "out", "plan", [data], None).root != first.root


@pytest.mark.parametrize("seed", [None, 5])
def test_a_run_that_failed_leaves_its_ledger_and_no_secret(seed, tmp_path):
    case = next(c for c in cases() if c.name == "per round, Corollary 1")
    states, _, door = run(case, federation())
    folder = RunFolder(tmp_path / "out", "plan", [], seed)
    folder.ledger.append(door.ledger.rows[:18])
    folder.save(states[5], [])
    folder.discard()
    left = folder.path / "ledger.jsonl"
    assert list(folder.path.iterdir()) == [left]
    evidence = left.read_bytes()
    (folder.path / "root").write_text("7")  # as if killed before the last secret was removed
    for _ in range(2):
        with pytest.raises(InputError, match=r"ledger\.jsonl tells what one has released and spent before it failed"):
            RunFolder(tmp_path / "out", "plan", [], seed)
        assert not (folder.path / "root").exists()
        assert left.read_bytes() == evidence
    left.rename(tmp_path / "spent.jsonl")
    RunFolder(tmp_path / "out", "plan", [], seed).discard()
    assert not folder.path.exists()


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for goal in (tmp_path, tmp_path.parent):
        with pytest.raises(InputError, match="current"):
            RunFolder(goal, "plan", [], 1)


class _Killed(Exception):
    pass


def test_a_round_that_was_held_is_the_same_after_a_kill_whoever_would_answer_now(tmp_path):
    """A kill between the ledger and the state: the same rows again with other agents would be another value."""
    case = next(each for each in federations.cases() if each.name == "private, trusted server")
    topo, data = federations.topology(), federations.records()

    def opened():
        folder = RunFolder(tmp_path / "out", "plan", [], 5)
        door = Door(5, folder.ledger, case.mechanism, case.budget)
        return folder, door, federations.engine_of(case, data, topo, door)

    class Cut(Kept):
        def exchange(self, round, half):
            raise _Killed

    folder, door, place = opened()
    with pytest.raises(_Killed):
        next(rounds(case.method, topo, place, door, across=Cut(folder, door)))
    rows = list(folder.ledger.rows)
    folder.release()
    folder, door, place = opened()
    fewer = rounds(case.method, topo, place, door, present=lambda t: list(topo.silos)[3:], across=Kept(folder, door))
    state = next(fewer)
    assert folder.ledger.rows == rows
    expected = federations.run(case).states[0].servers["model"]
    np.testing.assert_array_equal(state.servers["model"], expected)
    next(fewer)  # and the next round is one like any other
    folder.release()
