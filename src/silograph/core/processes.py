"""Do several tasks at the same time, each in a process of its own: for work of seconds that lets no other thread run.

A worker is a fresh interpreter. It imports what its tasks need and nothing else: no forked threads, no main module of
whoever called. Tasks arrive at its standard input, and their results leave at its standard output. When the input ends,
the worker ends at once, whatever it is doing: no worker outlives a parent that was killed. Ctrl-C is for the parent
alone, which ends its workers on every way out.
"""

from __future__ import annotations

import os
import pickle
import queue
import selectors
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple, TypeVar

from silograph.core.errors import SilographError
from silograph.core.memory import available

T = TypeVar("T")

_WORTH_WORKERS = 5.0  # seconds of work; a worker takes one to begin
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
_BEGIN = "import sys; sys.path[:] = {path}; from silograph.core.processes import _serve; _serve()"


class _Result(NamedTuple):
    task: int
    value: Any
    error: Exception | None


# ---- at the parent ---------------------------------------------------------------------------------------------------


def workers_for(seconds: Sequence[float], need: float) -> int:
    """How many workers do tasks that take so many seconds and at most `need` bytes each; with 1 this process does
    them."""
    if sum(seconds) < _WORTH_WORKERS:
        return 1
    most = min(len(seconds), len(os.sched_getaffinity(0)))
    return max(1, int(min(most, available() / need)))


def time_of(seconds: Sequence[float], need: float) -> float:
    """About how many seconds pass until all tasks are done."""
    load = [0.0] * workers_for(seconds, need)
    for each in sorted(seconds, reverse=True):
        load[load.index(min(load))] += each
    return max(load)


def in_processes(tasks: Sequence[Callable[[], T]], seconds: Sequence[float], need: float) -> Generator[T]:
    """Return what the tasks return, in their order; a task that fails raises its error here, in its turn.

    Tasks, results and errors must pickle.
    """
    count = workers_for(seconds, need)
    if count == 1:
        for task in tasks:
            yield task()
        return
    waiting = sorted(range(len(tasks)), key=lambda k: seconds[k])  # taken from the end: the longest first
    results: dict[int, _Result] = {}
    workers: list[_Worker] = []
    try:
        with selectors.DefaultSelector() as selector:
            for _ in range(count):
                workers.append(_Worker())
                selector.register(workers[-1].said, selectors.EVENT_READ, workers[-1])
            for worker in workers:
                worker.give(k := waiting.pop(), tasks[k])
            for turn in range(len(tasks)):
                while turn not in results:
                    for key, _ in selector.select():
                        result = key.data.result()
                        results[result.task] = result
                        if waiting:
                            key.data.give(k := waiting.pop(), tasks[k])
                _, value, error = results.pop(turn)
                if error is not None:
                    raise error
                yield value
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A worker, as its parent sees it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN.format(path=[str(place) for place in sys.path])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | _ONE_THREAD,
            start_new_session=True,  # a Ctrl-C at the terminal is for the parent
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._told, self.said = self._process.stdin, self._process.stdout

    def give(self, number: int, task: Callable[[], Any]) -> None:
        try:
            pickle.dump((number, task), self._told)
            self._told.flush()
        except BrokenPipeError:
            raise self._died() from None

    def result(self) -> _Result:
        try:
            found: _Result = pickle.load(self.said)
        except (EOFError, pickle.UnpicklingError):
            raise self._died() from None
        return found

    def _died(self) -> SilographError:
        code, todo = self._process.wait(), "Check the memory: taskset gives silograph fewer cores, and fewer workers."
        return SilographError("worker process", "it to live until its work is done", f"it ended with {code}", todo)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.said.close()
        with suppress(BrokenPipeError):  # of a task that it did not read
            self._told.close()


# ---- at the worker ---------------------------------------------------------------------------------------------------


def _serve() -> None:
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a task prints is no result
    tasks: queue.SimpleQueue[tuple[int, Callable[[], Any]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()
    while True:
        number, task = tasks.get()
        try:
            result = _Result(number, task(), None)
        except Exception as error:
            result = _Result(number, None, error)
        pickle.dump(result, results)
        results.flush()


def _listen(told: BinaryIO, tasks: queue.SimpleQueue[tuple[int, Callable[[], Any]]]) -> None:
    """Take tasks in, and end the worker with its parent, also in the middle of a task."""
    try:
        while True:
            tasks.put(pickle.load(told))
    except EOFError:
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
