"""Every process of a deployment is gone at every one of its writes, and with it what was not synced by then.

Begun again, it ends with the bits of one process, and every ledger row is there once.
"""

from __future__ import annotations

import copy
import os
import shutil
from collections import Counter

import pytest

pytest.importorskip("nats", reason="deployments need the extra `deploy`")

from forks import Forks
from organisations import Organisations
from regions import Regions, tables
from test_disturbed import Run
from test_processes import GRAPHS, graph_tables
from test_regions import BUDGET, S1, plan

FULL = os.environ.get("SILOGRAPH_DEPLOY") == "full"
SHORT = S1.replace("rounds = 8", "rounds = 3")
APART = 7  # writes between the ends of two processes of one run
SOON = {"deadline": 30.0, "patience": 30.0}  # who did not note a goodbye waits so long for one that has ended
SOME = 2  # runs of each case in `make test`, which has two of six cases


class Ending(Run):
    """Each process ends once, at its write of `at`."""

    def __init__(self, there, forks, at, before):
        super().__init__(there, {}, forks, there.folder)
        self.at, self.before, self.count, self.ended = at, before, Counter(), set()

    def start(self, name):
        count = self.there.folder / f"{name}.writes"
        ends = {"write": self.at.get(name, 0), "before": self.before, "folder": str(self.there.folder)}
        ends["count"] = str(count)
        if name in self.there.running:  # it ended
            self.ended.add(name)
            ends = None
        words, log = self.there.command(name)[3:], self.there.folder / f"{name}.log"
        self.there.running[name] = self.forks.start(words, log, ends)

    def play(self):
        try:
            self.to_the_end(lambda now: None)
            self.there.check_same_as_in_one_process()
        finally:
            self.close()
        return {name: int((self.there.folder / f"{name}.writes").read_text()) for name in self.names}


@pytest.fixture(scope="module")
def forks():
    forks = Forks()
    yield forks
    forks.close()


def star(folder):
    graph_tables(folder / "data")
    (folder / "data" / "plan.toml").write_text(GRAPHS.replace("rounds = 15", "rounds = 3"))
    return Organisations(folder, folder / "data" / "plan.toml", SOON | {"minimum": 3})


def ring(folder):
    tables(folder / "data", apart=False)
    (folder / "data" / "plan.toml").write_text(plan(f'{SHORT}perturbation = "edge"\n'))
    return Regions(folder, folder / "data" / "plan.toml", SOON | {"minimum": 1})


def together(folder):
    tables(folder / "data", apart=False)
    (folder / "data" / "plan.toml").write_text(plan(f'{SHORT}clip = 0.5\nreach = "all"\n{BUDGET}'))
    return Regions(folder, folder / "data" / "plan.toml", SOON | {"minimum": 1})


CASES = [(world, before) for world in (star, ring, together) for before in (True, False)]


@pytest.mark.parametrize(
    ("world", "before"),
    CASES if FULL else [(star, True), (together, False)],
    ids=lambda each: {True: "before", False: "after"}.get(each, getattr(each, "__name__", None)),
)
def test_no_write_is_the_wrong_one_to_end_at(world, before, forks, tmp_path):
    """In a sum over all regions, only regions: keys of agents are in memory, and one that ends sits its round out."""
    (tmp_path / "made" / "data").mkdir(parents=True)
    made = world(tmp_path / "made")
    forks.warm(made.deployment.plan_text, made.plan.parent, made.plan.parent / "expected")

    def run(number, at):
        there = copy.copy(made)
        there.folder = tmp_path / str(number)
        there.goal, there.out, there.running = there.folder / "deployment", there.folder / "out", {}
        shutil.copytree(made.goal, there.goal)
        ending = Ending(there, forks, at, before)
        writes = ending.play()
        shutil.rmtree(there.folder)
        return ending, writes

    _, writes = run(0, {})
    who = [name for name in writes if world is not together or name in made.regions]
    missed, most = Counter(), max(writes[name] for name in who)
    for number in range(1, most + 1, 1 if FULL else most // SOME + 1):
        at = {name: (number + APART * k) % writes[name] + 1 for k, name in enumerate(who)}
        ended = run(number, at)[0].ended
        missed.update(set(who) - ended)
    assert sum(missed.values()) <= len(who), (writes, missed)  # how many writes there are hangs on time a little
