"""Tasks in worker processes: the same results and errors in the same order, and no worker outlives its parent."""

import math
import operator
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from silograph.core import processes
from silograph.core.errors import SilographError
from silograph.core.processes import in_processes, time_of, workers_for

LONG = 100.0  # seconds, as if


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})


def after(seconds, value):
    return partial(eval, f"__import__('time').sleep({seconds}) or {value!r}")


def test_results_are_in_the_order_of_the_tasks():
    """Whatever is done first: of two workers one does the first task, the other the rest."""
    tasks = [after(0.5, "first"), *(partial(operator.add, k, 1) for k in range(4))]
    for estimated in ([9, 1, 1, 1, 1], [1, 2, 3, 4, 5]):
        assert list(in_processes(tasks, estimated, 1.0)) == ["first", 1, 2, 3, 4]


def test_workers_are_other_processes_and_as_many_as_there_are_cores_and_memory(monkeypatch):
    who = [after(0.3, 0), partial(os.getpid), partial(os.getpid), partial(os.getpid)]
    pids = set(list(in_processes(who, [LONG] * 4, 1.0))[1:])
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids
    assert list(in_processes([os.getpid] * 2, [0.1] * 2, 1.0)) == [os.getpid()] * 2  # not worth a worker
    assert workers_for([LONG] * 5, 1.0) == 2
    assert workers_for([LONG], 1.0) == 1
    monkeypatch.setattr(processes, "available", lambda: 3.0)
    assert [workers_for([LONG] * 5, need) for need in (1.5, 2.0, 10.0)] == [2, 1, 1]
    monkeypatch.setattr(processes, "available", lambda: math.inf)
    assert workers_for([LONG] * 5, 1e18) == 2


def test_the_time_is_that_of_the_core_with_most_to_do(monkeypatch):
    assert time_of([30.0, 20.0, 10.0], 1.0) == 30.0
    assert time_of([1.0, 2.0], 1.0) == 3.0  # one after the other, in this process
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert time_of([30.0, 20.0, 10.0], 1.0) == 60.0


def test_the_first_task_that_fails_raises_its_error_in_its_turn():
    later = partial(operator.truediv, 1, 0)
    told = SilographError("here", "one thing", "another", "Do it.")
    fails = partial(exec, "import time; time.sleep(0.5)\nraise error", {"error": told})
    tasks = [partial(operator.add, 1, 1), fails, later]
    results = in_processes(tasks, [LONG] * 3, 1.0)
    assert next(results) == 2
    with pytest.raises(SilographError, match="expected one thing, but another"):
        next(results)
    with pytest.raises(ZeroDivisionError):
        list(in_processes([later, after(60.0, 0)], [LONG] * 2, 1.0))


def test_what_a_task_prints_is_no_result(capfd):
    assert list(in_processes([partial(print, "hello")] * 2, [LONG] * 2, 1.0)) == [None, None]
    assert capfd.readouterr().err.count("hello") == 2


def test_a_worker_that_dies_is_an_error_that_says_so():
    with pytest.raises(SilographError, match=r"worker process: expected it to live .* ended with 3"):
        list(in_processes([after(60.0, 0), partial(os._exit, 3)], [LONG] * 2, 1.0))


PARENT = """
import os, sys
from functools import partial
os.sched_getaffinity = lambda pid: {0, 1}
from silograph.core.processes import in_processes
print("parent", flush=True)
work = "import os; open(os.path.join(place, str(os.getpid())), 'w').close()\\nwhile True: pass"
list(in_processes([partial(exec, work, {"place": sys.argv[1]})] * 2, [100.0] * 2, 1.0))
"""


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _until(true, seconds):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
def test_workers_end_with_their_parent(how, tmp_path):
    """In the middle of a task. Ctrl-C is for the whole group, as at a terminal; the script has no guard against being
    imported by its workers, and needs none."""
    script, pids = tmp_path / "script.py", tmp_path / "pids"
    script.write_text(PARENT)
    pids.mkdir()
    command = [sys.executable, script, pids]

    def as_at_a_terminal() -> None:  # a job in the background ignores Ctrl-C, and so do its children
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    parent = subprocess.Popen(
        command, stdout=-1, stderr=-1, text=True, start_new_session=True, preexec_fn=as_at_a_terminal
    )
    try:
        assert _until(lambda: len(list(pids.iterdir())) == 2, 60.0)
        workers = [int(path.name) for path in pids.iterdir()]
        assert all(_alive(pid) for pid in workers)
        os.killpg(parent.pid, how)
        said, complained = parent.communicate(timeout=20.0)
    finally:
        parent.kill()
    assert _until(lambda: not any(_alive(pid) for pid in workers), 20.0)
    assert said == "parent\n"
    assert complained.count("Traceback") == (how == signal.SIGINT)
