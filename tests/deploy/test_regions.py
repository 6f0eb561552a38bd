"""Regions as processes of their own: a ring of four, killed; every mechanism in the long lane."""

import json
import os
import random
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nats", reason="deployments need the extra `deploy`")

from organisations import free_port
from regions import NAMES, Regions, tables

from silograph.core.errors import InputError
from silograph.deploy.deployment import Terms, deploy
from silograph.deploy.region import drop, part_of_job
from silograph.engines.certificates import node_name
from silograph.engines.line import subject
from silograph.engines.neighbours import node_of
from silograph.privacy.ledger import Ledger
from silograph.report.deployment import page
from silograph.run.plan import load

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
CALIBRATED = 'name = "graph_federation"\nloss = "ridge"\nrounds = 3\n'
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
        check_subjects(there, region)


def test_a_region_says_which_silos_and_neighbours_it_waits_for(regions):
    """South comes to north's nats-server, north goes to east's; west is no neighbour."""
    there = regions(plan(S1), apart=False)
    there.start("north")
    there.wait_for("north", r"0 of 3 are connected. Waiting for north \(\d+ s\), region east \(.* and region south \(")
    there.start("south")
    there.wait_for("north", r"1 of 3 are connected. Waiting for north \(\d+ s\) and region east \(\d+ s\) to connect")
    there.start("east")
    there.wait_for("north", r"2 of 3 are connected. Waiting for north \(\d+ s\) to connect")
    for name in ("west", *(f"silo {name}" for name in there.organisations)):
        there.start(name)
    there.run_on()


def test_one_sum_over_all_regions_is_flooded_by_processes_that_are_killed(regions):
    """Budget and masks: a region and a silo of another one are killed in the middle of sums."""
    text = plan(f'{S1}clip = 0.5\nreach = "all"\n{BUDGET}'.replace("rounds = 8", "rounds = 3"))
    there = regions(text, apart=False)
    rounds = there.out / ".north.unfinished" / "rounds.jsonl"
    left = ["north"]

    def disturb(now):
        if left and rounds.exists() and rounds.read_text():
            there.kill(left.pop())

    there.run(disturb)
    there.check_same_as_in_one_process()
    assert not left
    assert len({(there.out / name / "models" / f"{name}.csv").read_bytes() for name in NAMES}) == 1


def check_subjects(there, region):
    """Who may come to a region's nats-server, and what each may do there: its own silos and the neighbours whose name
    comes after; write one subject, read one."""
    told = json.loads((there.goal / "regions" / region / "nats.conf").read_text())["authorization"]["users"]
    neighbours = [NAMES[(NAMES.index(region) + k) % 4] for k in (1, 3)]
    names = [*there.deployment.facts.regions[region], *(node_of(name) for name in neighbours if name > region)]
    users = {each["user"]: each["permissions"] for each in told}
    assert users.keys() == {f"CN={node_name(name)}" for name in (node_of(region), *names)}
    for name in names:
        say, ask = (subject(there.deployment.digest, name, way) for way in ("say", "ask"))
        assert users[f"CN={node_name(name)}"] == {"publish": [say], "subscribe": [ask]}
        assert "*" not in say + ask


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (S2.replace("papers", "effects").replace("penalty = 2.0\ntau = 0.3\n", ""), "random effects"),
    ],
)
def test_what_needs_one_server_is_refused_before_anything_is_written(tmp_path, text, why):
    tables(tmp_path, 3, apart=False)
    (tmp_path / "plan.toml").write_text(plan(text, 'cluster = "group"' if "clustered" in text else 'drop = ["group"]'))
    with pytest.raises(InputError, match=why):
        deploy(load(tmp_path / "plan.toml"), tmp_path, tmp_path / "deployment", Terms("127.0.0.1:8765"), page, {})
    assert not (tmp_path / "deployment").exists()


def test_sites_of_a_graph_have_one_server(tmp_path):
    for name in ("ada", "bob"):
        rows = np.random.default_rng(0).normal(size=(30, 3))
        (tmp_path / f"{name}.csv").write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")
    text = 'format = 1\n[data]\nfiles = ["ada.csv", "bob.csv"]\n[method]\nname = "consensus_graph"\n'
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(InputError, match="comes together at one server"):
        deploy(load(tmp_path / "plan.toml"), tmp_path, tmp_path / "d", Terms("127.0.0.1:8765"), page, {})


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
        f'{S1}clip = 0.5\nmasks = "protocol"\nreach = "all"\n',
        f'{S1}clip = 0.5\nreach = "all"\npersonal = 0.3\n{BUDGET}',
        f"{CALIBRATED}{BUDGET}",
        S2.replace("tau = 0.3", 'tau = "learned"'),
        f'{S2}clip = 0.5\nmasks = "protocol"\nreach = "all"\n{BUDGET}protect = "clients"\n',
    ],
    ids=[
        *("none", "sender", "homomorphic", "private", "masks", "private, masks", "clusters", "clusters, clients"),
        *("all", "all, private, personal", "calibrated", "learned exchange", "clusters over all"),
    ],
)
def test_four_regions_of_three_clinics_are_the_run_in_one_process(regions, method):
    data = 'cluster = "group"' if method.startswith(S2) else 'drop = ["group"]'
    there = regions(plan(method, data))
    there.run()
    there.check_same_as_in_one_process()


def test_a_link_is_given_up_by_name_and_never_the_last(tmp_path):
    tables(tmp_path, 3, apart=False)
    (tmp_path / "plan.toml").write_text(plan(S1))
    made = deploy(load(tmp_path / "plan.toml"), tmp_path, tmp_path / "d", Terms("127.0.0.1:8765"), page, {})
    folder = tmp_path / "d" / "regions" / "east"
    with pytest.raises(InputError, match="a neighbour of east: north, west"):
        drop(folder, "south")
    assert drop(folder, "west") == ("north",)
    part = part_of_job(made, "east", folder).topo
    assert part.heard == ("east", "north")
    assert part.mixing.sum() == pytest.approx(1.0, abs=1e-15)
    with pytest.raises(InputError, match="north is the only one that is left"):
        drop(folder, "north")


@full
def test_regions_go_on_without_one_that_is_gone_for_good(regions):
    """west never comes back: its neighbours stop and name it, give their links up, and all others end."""
    there = regions(plan(S1.replace("rounds = 8", "rounds = 200")), apart=False, options={"patience": 40.0})
    for name in there.everybody:
        there.start(name)
    rounds = there.out / ".east.unfinished" / "rounds.jsonl"
    while not rounds.exists() or len(rounds.read_text().splitlines()) < 5:
        assert there.running["east"].poll() is None, there.log("east")
        time.sleep(0.1)
    for name in ("west", "silo west"):
        there.kill(name)
        del there.running[name]
    for name in ("south", "east", "north"):
        assert there.running[name].wait(120) == 1, there.log(name)
    assert "missing: west" in there.log("east")
    assert "missing: west" in there.log("south")
    for name in ("south", "east"):
        drop(there.goal / "regions" / name, "west")
    for name, process in list(there.running.items()):
        if name in there.regions or process.poll() is not None:
            there.start(name)
    there.run_on()
    for name in ("south", "east", "north"):
        result = json.loads((there.out / name / "result.json").read_text())
        assert result["rounds"] == 200
        assert any("given up" in note for note in result["privacy"]["notes"]) == (name != "north")


@full
@pytest.mark.parametrize("seed", range(10))
def test_kills_of_anybody_change_nothing(regions, seed):
    there = regions(plan(f'{S1}perturbation = "homomorphic"\n'.replace("rounds = 8", "rounds = 40")))
    there.run(Killer(there, seed, 6, 30.0))
    there.check_same_as_in_one_process()


@full
def test_the_example_of_four_regions_runs_as_it_stands(tmp_path):
    """Sixteen processes, three kills: every clinic has a row for each round, and every region its model."""
    script = Path(__file__).parents[2] / "examples" / "regions" / "run.sh"
    world = tmp_path / "world"
    done = subprocess.run(
        [script, world], env={**os.environ, "PORT": str(free_port())}, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    clinics = [path for path in world.glob("*-clinic-*") if path.is_dir()]
    assert len(clinics) == 12
    for clinic in clinics:
        assert len(Ledger(clinic / clinic.name / "ledger.jsonl", mend=False).rows) <= 30
        assert (clinic / clinic.name / "own.html").is_file()
    for region in ("borders", "coast", "fells", "highlands"):
        result = json.loads((world / region / "out" / "result.json").read_text())
        assert result["rounds"] == 30
        assert all(np.isfinite(result["regions"][0]["model"]))
    again = subprocess.run([script, world], capture_output=True, text=True, check=False)
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
