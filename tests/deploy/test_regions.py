"""Regions as processes of their own: a ring of four, killed; every mechanism in the long lane."""

import json
import os
import random

import pytest

pytest.importorskip("nats", reason="deployments need the extra `deploy`")

from organisations import COMMAND  # noqa: F401
from regions import NAMES, Regions, tables

FULL = os.environ.get("SILOGRAPH_DEPLOY") == "full"
full = pytest.mark.skipif(not FULL, reason="the long lane: make test-deploy")

PLAN = """
format = 1
seed = 4
[data]
files = ["east.csv", "north.csv", "south.csv", "west.csv"]
agent = "agent"
target = "y"
{data}
[topology]
graph = "ring"
[method]
{method}
"""
S1 = 'name = "graph_federation"\nloss = "ridge"\nstep = 0.3\nrounds = 8\n'
S2 = 'name = "clustered_admm"\nloss = "ridge"\nrounds = 6\npenalty = 2.0\ntau = 0.3\nlearner = "papers"\n'
BUDGET = "[privacy]\nepsilon = 8.0\ndelta = 1e-2\n"


def plan(method, data='drop = ["group"]'):
    return PLAN.format(data=data, method=method)


@pytest.fixture
def regions(tmp_path):
    made = []

    def make(text, agents=3, apart=True, **options):
        data = tmp_path / "data"
        data.mkdir()
        tables(data, agents, apart)
        (data / "plan.toml").write_text(text)
        made.append(Regions(tmp_path, data / "plan.toml", **options))
        return made[0]

    yield make
    for each in made:
        each.close()


class Killer:
    """Kills regions, silos and nats-servers at moments of its own choosing."""

    def __init__(self, there, seed, times, span):
        chance = random.Random(seed)
        names = [*there.everybody, *(f"nats {region}" for region in there.regions)]
        self.there, self.due = there, sorted((chance.uniform(0.5, span), chance.choice(names)) for _ in range(times))

    def __call__(self, now):
        while self.due and now > self.due[0][0]:
            _, name = self.due.pop(0)
            if name.startswith("nats "):
                self.there.kill_nats_of(name.removeprefix("nats "))
            elif self.there.running[name].poll() is None:
                self.there.kill(name)


def test_a_ring_of_regions_without_a_centre_is_the_run_in_one_process(regions):
    """Noise on every link: each neighbour gets its own. A region and a nats-server are killed."""
    there = regions(plan(f'{S1}perturbation = "edge"\n'), apart=False)
    due = {6.0: lambda: there.kill("north"), 8.0: lambda: there.kill_nats_of("east")}

    def disturb(now):
        for moment in [moment for moment in due if now > moment]:
            due.pop(moment)()

    there.run(disturb)
    there.check_same_as_in_one_process()
    for region in NAMES:
        result = json.loads((there.out / region / "result.json").read_text())
        assert [each["name"] for each in result["regions"]] == [region]
        assert result["centroid"] is None
        assert region in (there.out / region / "report.html").read_text()


@full
@pytest.mark.parametrize(
    "method",
    [
        S1,
        f'{S1}perturbation = "sender"\n',
        f'{S1}perturbation = "homomorphic"\n',
        f'{S1}clip = 0.5\nmasks = "none"\n{BUDGET}',
        f'{S1}clip = 0.5\nmasks = "protocol"\n',
        f"{S1}clip = 0.5\n{BUDGET}",
        S2,
        f'{S2}clip = 0.5\nmasks = "none"\n{BUDGET}protect = "clients"\n',
    ],
    ids=["none", "sender", "homomorphic", "private", "masks", "private, masks", "clusters", "clusters, clients"],
)
def test_four_regions_of_three_clinics_are_the_run_in_one_process(regions, method):
    data = 'cluster = "group"' if method.startswith(S2) else 'drop = ["group"]'
    there = regions(plan(method, data))
    there.run()
    there.check_same_as_in_one_process()


@full
@pytest.mark.parametrize("seed", range(10))
def test_kills_of_anybody_change_nothing(regions, seed):
    there = regions(plan(f'{S1}perturbation = "homomorphic"\n'.replace("rounds = 8", "rounds = 40")))
    there.run(Killer(there, seed, 6, 30.0))
    there.check_same_as_in_one_process()
