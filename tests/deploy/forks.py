"""Commands of silograph as processes that begin at once: forks of one that has imported everything.

They are killed, stopped and limited as any other process. What a process of its own does for `join` (reading the table,
the account at the end) is done within it here.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from crashes import end_at


class Forks:
    """The parent of them all, a process without threads; it ends, and so do they, when this one does."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        self._parent = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._lock = threading.Lock()

    def ask(self, **told):
        with self._lock:
            self._parent.stdin.write(json.dumps(told).encode() + b"\n")
            self._parent.stdin.flush()
            return json.loads(self._parent.stdout.readline())

    def warm(self, plan: str, base: Path, out: Path) -> None:
        """Run a plan in one process: what it compiles and imports, forks have."""
        self.ask(do="warm", plan=plan, base=str(base), out=str(out))

    def start(self, words: list[str], log: Path, ends: dict | None = None) -> Fork:
        """`ends` are the arguments of `crashes.end_at`: a process that is gone at one of its writes."""
        return Fork(self, self.ask(do="start", words=words, log=str(log), ends=ends))

    def close(self) -> None:
        self._parent.stdin.close()
        self._parent.wait(20)
        self._parent.stdout.close()


class Fork:
    """As much of a Popen as is needed."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self._forks, self.pid, self._code = forks, pid, None

    def poll(self) -> int | None:
        if self._code is None:
            self._code = self._forks.ask(do="poll", pid=self.pid)
        return self._code

    def wait(self) -> int:
        if self._code is None:
            self._code = self._forks.ask(do="wait", pid=self.pid)
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# ---- the parent ------------------------------------------------------------------------------------------------------


def _warm(plan: str, base: str, out: str) -> None:
    from silograph.core.toml import parse_toml
    from silograph.report.deployment import own_page  # noqa: F401
    from silograph.run.plan import parse
    from silograph.run.run import execute

    for module in ("deploy.connect", "engines.transport", "engines.broker", "report.build", "deploy.serve"):
        __import__(f"silograph.{module}")
    execute(parse(parse_toml(plan, "plan"), "plan"), Path(base), Path(out), lambda *_: None, lambda _: "")


def _become(words: list[str], log: str, ends: dict | None) -> None:
    from silograph.cli import main
    from silograph.report.deployment import own_page

    if ends is not None:
        end_at(**ends)

    with open(log, "ab") as file:  # what keeps the log has a disk of its own, as a supervisor's journal
        journal = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file, start_new_session=True)
    for source, goal in (
        (os.open(os.devnull, os.O_RDONLY), 0),
        (journal.stdin.fileno(), 1),
        (journal.stdin.fileno(), 2),
    ):
        os.dup2(source, goal)
    journal.stdin.close()
    import silograph.cli.aside as aside

    aside.prepare_aside = lambda organisation: organisation.prepare()
    aside.conclude_aside = lambda organisation: organisation.conclude(own_page)
    sys.argv = ["silograph", *words]
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1)
    code: object = 1
    try:
        main()
        code = 0
    except SystemExit as ending:
        code = ending.code or 0
    except BaseException:
        import traceback

        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code if isinstance(code, int) else 1)


def _serve() -> None:
    pids, codes = set(), {}
    for line in sys.stdin:
        told = json.loads(line)
        answer = None
        if told["do"] == "warm":
            _warm(told["plan"], told["base"], told["out"])
            assert threading.active_count() == 1
        elif told["do"] == "start":
            if not (answer := os.fork()):
                _become(told["words"], told["log"], told["ends"])
            pids.add(answer)
        elif (pid := told["pid"]) in pids:
            found, status = os.waitpid(pid, os.WNOHANG if told["do"] == "poll" else 0)
            if found:
                pids.remove(pid)
                codes[pid] = os.waitstatus_to_exitcode(status)
            answer = codes.get(pid)
        else:
            answer = codes[pid]
        os.write(1, json.dumps(answer).encode() + b"\n")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    import silograph.cli  # noqa: F401  (so that forks have it)

    _serve()
