"""Deployments under all that can go wrong, several things at once, at moments drawn from a seed.

Every run ends with the bits of one process and every ledger row once, and whoever stops on the way says why in words.

One of a hundred in `make test`, all by `make test-deploy`; SILOGRAPH_DISTURBED=17,18 for some.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("nats", reason="deployments need the extra `deploy`")

from forks import Forks
from organisations import QUIET, TERMINATED, Organisations, free_port
from regions import NAMES, Regions, tables
from test_processes import GRAPHS, graph_tables
from test_regions import S1, plan

from proxies import HERE, BadLine

FULL = os.environ.get("SILOGRAPH_DEPLOY") == "full"
RUNS = range(100) if FULL else (0,)
if "SILOGRAPH_DISTURBED" in os.environ:
    RUNS = [int(each) for each in os.environ["SILOGRAPH_DISTURBED"].split(",")]

HANGS = 240.0  # seconds until a run counts as hung
COMPILER = shutil.which("cc")
HOUR, DAY = 3600, 86400
CLOCKS = ((-12 * HOUR, 1), (40 * DAY, 1), (-9 * DAY, 1), (3300 * DAY, 1), (0, 30), (0, 0.1))  # seconds ahead, and rate

#: Goes before the C library of a process: the time of day is wrong for all of it, OpenSSL too; intervals are right.
WRONG_CLOCK = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t which, struct timespec *told) {
    static double begun = 0;
    int failed = syscall(SYS_clock_gettime, which, told);
    if (failed || which != CLOCK_REALTIME) return failed;
    double now = told->tv_sec + told->tv_nsec * 1e-9;
    if (!begun) begun = now;
    now = begun + atof(getenv("CLOCK_AHEAD")) + (now - begun) * atof(getenv("CLOCK_RATE"));
    told->tv_sec = now, told->tv_nsec = (now - (time_t) now) * 1e9;
    return 0;
}
time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *restrict told, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    told->tv_sec = now.tv_sec, told->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""
REFUSALS = ("expected ", "No space", "File too large")  # of four parts, or what the system says of a disk
TERMS = {"deadline": 30.0, "patience": 120.0}  # with all as a minimum, the bits do not depend on luck


@dataclass
class World:
    """One deployment, made once; every run has a copy of its folders, and reaches servers over bad lines."""

    made: Organisations
    servers: dict[str, int]  # the port at which each really listens; the deployment has that of its line
    forks: Forks
    clock: Path  # WRONG_CLOCK, compiled

    def begin(self, folder: Path) -> Run:
        there = copy.copy(self.made)
        there.folder, there.goal, there.out, there.running = folder, folder / "deployment", folder / "out", {}
        there.more = {name: ["--port", str(port)] for name, port in self.servers.items()}
        shutil.copytree(self.made.goal, there.goal)
        terms = there.deployment
        lines = {
            name: BadLine((HERE, port), int((terms.regions.get(name) or terms.terms.address).rpartition(":")[2]))
            for name, port in self.servers.items()
        }
        return Run(there, lines, self.forks, self.clock)


@dataclass
class Run:
    there: Organisations
    lines: dict[str, BadLine]
    forks: Forks
    clock: Path
    clocks: dict[str, tuple[int, float]] = field(default_factory=dict)  # whose clock is wrong, and how
    refused: list[str] = field(default_factory=list)  # last words of those that stopped
    full: set[str] = field(default_factory=set)  # whose disk is full
    read: dict[str, int] = field(default_factory=dict)  # how much of a log was read
    later: list = field(default_factory=list)  # (moment, what to do then)

    @property
    def names(self) -> list[str]:
        return getattr(self.there, "everybody", ["server", *self.there.organisations])

    def start(self, name: str) -> None:
        if name in self.clocks:
            ahead, rate = self.clocks[name]
            clock = {"LD_PRELOAD": str(self.clock), "CLOCK_AHEAD": str(ahead), "CLOCK_RATE": str(rate)}
            with pytest.MonkeyPatch.context() as patch:
                for key, value in {**clock, **QUIET}.items():
                    patch.setenv(key, value)
                self.there.start(name)
        else:
            words = self.there.command(name)[3:]
            self.there.running[name] = self.forks.start(words, self.there.folder / f"{name}.log")
        if name in self.full:
            self.fill(name)

    def alive(self, name: str) -> bool:
        return self.there.running[name].poll() is None

    def fill(self, name: str, size: int = 0) -> None:
        """From now on no file of this process can grow beyond so many bytes, until `empty`."""
        self.full.add(name)
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self.there.running[name].pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def empty(self, name: str) -> None:
        self.full.discard(name)
        with contextlib.suppress(ProcessLookupError):
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(self.there.running[name].pid, resource.RLIMIT_FSIZE, unlimited)

    def said(self, name: str) -> str:
        """The refusal among its last words, or else the very last."""
        lines = [line for line in self.there.log(name)[self.read.get(name, 0) :].splitlines() if line.strip()]
        self.read[name] = len(self.there.log(name))
        refusals = [line for line in lines if any(each in line for each in REFUSALS)]
        return (refusals or lines or ["nothing"])[-1]

    def to_the_end(self, disturb) -> None:
        """Whoever ends is started again, as a supervisor does; who stops on its own must say why."""
        begun = time.monotonic()
        for name in self.names:
            self.start(name)
        while any(process.poll() != 0 for process in self.there.running.values()):
            now = time.monotonic() - begun
            if now > HANGS:
                told = [f"--- {name}: {self.there.log(name)[-2000:]}" for name in self.names]
                raise TimeoutError("\n".join(told))
            for name, process in list(self.there.running.items()):
                code = process.poll()
                if code in (None, 0):
                    continue
                if code not in (-signal.SIGKILL, TERMINATED):
                    words = self.said(name)
                    assert "Traceback" not in self.there.log(name), self.there.log(name)[-3000:]
                    assert code in (1, 2), (name, code, words)
                    assert any(each in words for each in REFUSALS), (name, code, self.there.log(name)[-3000:])
                    self.refused.append(f"{name}: {words}")
                    self.clocks.pop(name, None)  # its people read that, and set the clock
                    self.empty(name)
                    time.sleep(0.5)
                self.start(name)
            for moment, act in [each for each in self.later if each[0] <= now]:
                self.later.remove((moment, act))
                act()
            disturb(now)
            time.sleep(0.02)

    def close(self) -> None:
        for line in self.lines.values():
            line.close()
        for process in self.there.running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()


# ---- what goes wrong -------------------------------------------------------------------------------------------------


class Disturbances:
    """Some of everything; when and to whom is drawn from the seed."""

    def __init__(self, run: Run, seed: int, span: float) -> None:
        self.run, self.chance, self.told = run, random.Random(seed), []
        kinds = ["kill", "kill", "nats", "sleep", "cut", "partition", "slow", "corrupt", "disk"]
        chosen = self.chance.sample(kinds, 4)
        self.due = sorted((self.chance.uniform(0.3, span), kind) for kind in chosen)
        if seed % 5 == 0 and COMPILER is not None:
            name = self.chance.choice(run.names)
            run.clocks[name] = self.chance.choice(CLOCKS)
            self.told.append(f"clock of {name} {run.clocks[name]}")
        self.longest = 60.0 if seed % 10 == 3 else 6.0

    def __call__(self, now: float) -> None:
        while self.due and now > self.due[0][0]:
            kind = self.due.pop(0)[1]
            getattr(self, kind)(now)

    def after(self, now: float, seconds: float, act) -> None:
        self.run.later.append((now + seconds, act))

    def someone(self) -> str:
        return self.chance.choice(self.run.names)

    def line(self) -> BadLine:
        return self.run.lines[self.chance.choice(sorted(self.run.lines))]

    def kill(self, now: float) -> None:
        name = self.someone()
        self.told.append(f"{now:.1f} kill {name}")
        self.run.there.running[name].send_signal(signal.SIGKILL)

    def nats(self, now: float) -> None:
        there = self.run.there
        if isinstance(there, Regions):
            there.kill_nats_of(self.chance.choice(there.regions))
        else:
            there.kill_nats()
        self.told.append(f"{now:.1f} kill nats-server")

    def sleep(self, now: float) -> None:
        name, seconds = self.someone(), self.chance.uniform(1.0, 6.0)
        self.told.append(f"{now:.1f} {name} stopped for {seconds:.1f}")
        process = self.run.there.running[name]
        process.send_signal(signal.SIGSTOP)
        self.after(now, seconds, lambda: process.send_signal(signal.SIGCONT))

    def cut(self, now: float) -> None:
        line = self.line()
        for k in range(5):
            self.after(now, 0.4 * k, line.cut)
        self.told.append(f"{now:.1f} cut")

    def partition(self, now: float) -> None:
        line, seconds = self.line(), self.chance.uniform(0.7, 1.0) * self.longest
        self.told.append(f"{now:.1f} partition for {seconds:.1f}")
        line.closed = True
        line.cut()
        self.after(now, seconds, lambda: setattr(line, "closed", False))

    def slow(self, now: float) -> None:
        line = self.line()
        self.told.append(f"{now:.1f} slow")
        line.delay = 0.3
        self.after(now, 4.0, lambda: setattr(line, "delay", 0.0))

    def corrupt(self, now: float) -> None:
        line = self.line()
        self.told.append(f"{now:.1f} corrupt")
        line.corrupt = 0.1
        self.after(now, 4.0, lambda: setattr(line, "corrupt", 0.0))

    def disk(self, now: float) -> None:
        # Whose clock is wrong keeps its log itself, on the same disk, and could not say why it stopped.
        name = self.chance.choice([name for name in self.run.names if name not in self.run.clocks])
        seconds = self.chance.uniform(1.0, 4.0)
        self.told.append(f"{now:.1f} disk of {name} full for {seconds:.1f}")
        self.run.fill(name, self.chance.choice([0, 300, 2000]))
        self.after(now, seconds, lambda: self.run.empty(name))


# ---- the runs --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    forks = Forks()
    made = {}
    source = tmp_path_factory.mktemp("clock") / "clock.c"
    source.write_text(WRONG_CLOCK)
    if COMPILER is not None:
        subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", source.with_suffix(".so"), source], check=True)

    def world(kind: str) -> World:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            (folder / "data").mkdir()
            names = NAMES if kind == "ring" else ("server",)
            ports = {name: free_port() for name in names}
            if kind == "ring":
                tables(folder / "data", apart=False)
                text = plan(f'{S1}perturbation = "homomorphic"\n'.replace("rounds = 8", "rounds = 40"))
            else:
                graph_tables(folder / "data")
                text = GRAPHS.replace("rounds = 15", "rounds = 60")
            (folder / "data" / "plan.toml").write_text(text)
            if kind == "ring":
                there = Regions(folder, folder / "data" / "plan.toml", TERMS | {"minimum": 1})
            else:
                there = Organisations(folder, folder / "data" / "plan.toml", TERMS | {"minimum": 3})
            forks.warm(there.deployment.plan_text, there.plan.parent, there.plan.parent / "expected")
            made[kind] = World(there, ports, forks, source.with_suffix(".so"))
        return made[kind]

    yield world
    forks.close()


@pytest.mark.parametrize("seed", RUNS)
def test_a_disturbed_run_ends_with_the_bits_of_one_process(worlds, tmp_path, seed):
    run = worlds("ring" if seed % 2 else "star").begin(tmp_path)
    disturb = Disturbances(run, seed, 6.0)
    begun = time.monotonic()
    try:
        run.to_the_end(disturb)
        run.there.check_same_as_in_one_process()
    finally:
        told = {"seed": seed, "disturbed": disturb.told, "stopped": run.refused, "left": disturb.due}
        told |= {"spoiled": sum(line.spoiled for line in run.lines.values()), "seconds": time.monotonic() - begun}
        print(json.dumps(told))
        run.close()
