"""A deployment that goes on where another paused, with other silos: one budget, one ledger, one continuation."""

from __future__ import annotations

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))

from wires import Wires

from local_organisations import Direct
from silograph.core.errors import DamageError, InputError, SilenceError, SilographError
from silograph.deploy.deployment import Deployment, Terms, deploy
from silograph.deploy.organisation import Approved, enrol
from silograph.deploy.region import Linked, enrol_region, part_of_job
from silograph.deploy.serve import serve
from silograph.privacy.ledger import Ledger
from silograph.report.deployment import page
from silograph.run.plan import load
from silograph.run.run import PausedError

REGIONS, ROUNDS, PAUSE = ("east", "north", "west"), 6, 2
PLAN = f"""format = 1
seed = 4
[data]
files = ["east.csv", "north.csv", "west.csv"]
agent = "agent"
target = "y"
[topology]
graph = "ring"
[method]
name = "graph_federation"
loss = "ridge"
step = 0.3
rounds = {ROUNDS}
clip = 0.5
{{more}}
[privacy]
epsilon = 4.0
delta = 1e-2
"""
EVERYBODY = {region: tuple(f"clinic-{k}" for k in range(3)) for region in REGIONS}


def table(region: str, clinic: str) -> str:
    rng = np.random.default_rng(sum(map(ord, region + clinic)))
    rows = rng.uniform(-1, 1, (6, 3)).round(4)
    return "agent,u,v,y\n" + "".join(f"{region[0]}{clinic[-1]},{u},{v},{y}\n" for u, v, y in rows)


class World:
    """Organisations in this process: a star, or a server for each region."""

    def __init__(self, folder: Path, apart: bool, more: str = ""):
        self.folder, self.apart, self.more = folder, apart, more
        self.wires, self.patience = None, 10.0
        self.page = lambda *_: ""

    def deploy(self, name: str, there, before=None, more=None) -> Path:
        base, goal = self.folder / f"tables of {name}", self.folder / name
        for region, clinics in there.items():
            (base / region).mkdir(parents=True)
            for clinic in clinics:
                (base / region / f"{clinic}.csv").write_text(table(region, clinic))
        (base / "plan.toml").write_text(PLAN.format(more=self.more if more is None else more))
        terms = Terms("127.0.0.1:9001", tls=False, minimum=1, deadline=5.0, patience=10.0)
        at = {region: f"127.0.0.1:{9100 + k}" for k, region in enumerate(REGIONS)} if self.apart else None
        deploy(load(base / "plan.toml"), base, goal, terms, self.page, at, before)
        return goal

    def silo(self, goal: Path, name: str) -> Path:
        return goal / "silos" / name if self.apart else goal / name

    def enrol(self, goal: Path, old: Path | None = None, new=()) -> None:
        facts = Deployment.read(self.servers(goal)[0]).facts
        for name in facts.organisations:
            region, clinic = name.split("-", 1)
            before = None if old is None or name in new else self.silo(old, name)
            enrol(self.silo(goal, name), self.folder / f"tables of {goal.name}" / region / f"{clinic}.csv", before)
        cards = [self.silo(goal, name) / f"{name}.enrolment.json" for name in facts.organisations]
        for server in self.servers(goal):
            if self.apart:
                enrol_region(server)
            for card in cards:
                shutil.copy(card, server / "nodes")
        for name in facts.organisations:
            (self.silo(goal, name) / "nodes").mkdir(exist_ok=True)
            for card in cards:
                shutil.copy(card, self.silo(goal, name) / "nodes")

    def servers(self, goal: Path) -> list[Path]:
        return [goal / "regions" / region for region in REGIONS] if self.apart else [goal / "server"]

    def serve(self, goal: Path, out: str, **options) -> list[dict | str]:
        """What each server ends with: a result, or the error that it stops with."""
        deployment = Deployment.read(self.servers(goal)[0])
        silos = {name: Approved.open(self.silo(goal, name)).silo() for name in deployment.facts.organisations}
        if self.apart:
            topo = part_of_job(deployment, REGIONS[0], self.servers(goal)[0]).topo.graph
            self.wires = Wires(topo)

        def one(server):
            def meet(deployment, region, link):
                return life.enter_context(self.wires.at(region, self.patience, deployment.digest))

            def connect(deployment, cards):
                return Direct({name: silos[name] for name in cards})

            where = self.folder / out / server.name
            before = options.get("before")
            told = {**options, **({} if before is None else {"before": self.folder / before / server.name})}
            with ExitStack() as life:
                try:
                    return serve(server, where, connect, lambda *_: None, lambda folder: "", meet, **told).result
                except PausedError as paused:
                    return {"paused": paused.round}
                except SilographError as error:
                    return str(error)

        try:
            with ThreadPoolExecutor(3) as pool:
                return list(pool.map(one, self.servers(goal)))
        finally:
            for silo in silos.values():
                silo.close()

    def rows(self, goal: Path, name: str):
        return Ledger(self.silo(goal, name) / "ledger.jsonl").rows


LATER = {
    "east": ("clinic-0", "clinic-1", "clinic-2"),
    "north": ("clinic-0", "clinic-2"),
    "west": (*EVERYBODY["west"], "clinic-3"),
}


@pytest.fixture(params=[False, True], ids=["a star", "regions"])
def world(request, tmp_path):
    return World(tmp_path, request.param, 'masks = "none"')


def went_on(world, more="") -> tuple[Path, Path]:
    first = world.deploy("first", EVERYBODY)
    world.enrol(first)
    assert world.serve(first, "out", pause=PAUSE) == [{"paused": PAUSE}] * len(world.servers(first))
    second = world.deploy("second", LATER, (world.servers(first)[0], PAUSE))
    return first, second


def test_one_silo_leaves_and_one_joins_and_the_ledgers_add_up(world):
    first, second = went_on(world)
    world.enrol(second, first, new=("west-clinic-3",))
    found = world.serve(second, "later", before="out")
    assert [each["rounds"] for each in found] == [ROUNDS] * len(found)
    stayed, joined, left = "east-clinic-0", "west-clinic-3", "north-clinic-1"
    for name, at, rounds in (
        (stayed, second, range(ROUNDS)),
        (joined, second, range(PAUSE, ROUNDS)),
        (left, first, range(PAUSE)),
    ):
        assert [row.round for row in world.rows(at, name)] == list(rounds), name
    assert world.rows(second, stayed)[:PAUSE] == world.rows(first, stayed)
    # Of the budget of 4, whoever was there all the time has spent what one run of all rounds costs, and nobody more.
    for each in found:
        spent = [row["epsilon"] for row in each["privacy"]["guarantees"] if row["observer"] == "public"]
        assert all(3.9 < epsilon <= 4.0 for epsilon in spent)
    for server in world.servers(second):
        rows = Ledger(world.folder / "later" / server.name / "ledger.jsonl").rows
        assert {row.round for row in rows} == set(range(ROUNDS))


def test_models_go_on_from_where_they_were(world):
    """With the silos of before it is the run that never paused, to the bit."""
    first = world.deploy("first", EVERYBODY)
    world.enrol(first)
    world.serve(first, "out", pause=PAUSE)
    second = world.deploy("second", EVERYBODY, (world.servers(first)[0], PAUSE))
    world.enrol(second, first)
    world.serve(second, "later", before="out")
    whole = World(world.folder / "whole", world.apart, world.more)
    straight = whole.deploy("first", EVERYBODY)
    whole.enrol(straight)
    whole.serve(straight, "out")
    for server in world.servers(second):
        for path in (whole.folder / "out" / server.name / "models").glob("*.csv"):
            assert (world.folder / "later" / server.name / "models" / path.name).read_bytes() == path.read_bytes()
        ledgers = [
            Ledger(folder / server.name / "ledger.jsonl").rows
            for folder in (whole.folder / "out", world.folder / "later")
        ]
        assert ledgers[0] == ledgers[1]


def test_pages_say_who_takes_what_over(world):
    world.page = page
    _, second = went_on(world)
    for name, there in (("east-clinic-0", True), ("west-clinic-3", False)):
        assert ("--after OLD" in (world.silo(second, name) / "README.html").read_text()) == there
    for server in world.servers(second):
        assert "-o out --after RUN" in (server / "README.html").read_text()


def test_a_pause_alone_changes_nothing(world):
    first = world.deploy("first", EVERYBODY)
    world.enrol(first)
    world.serve(first, "out", pause=PAUSE)
    found = world.serve(first, "out")
    assert [each["rounds"] for each in found] == [ROUNDS] * len(found)


def test_an_old_deployment_that_is_played_again_is_found_out(world):
    first, second = went_on(world)
    backup = world.folder / "backup"
    shutil.copytree(first, backup / "first")
    shutil.copytree(world.folder / "out", backup / "out")
    world.enrol(second, first, new=("west-clinic-3",))
    # Silos that went on do not answer in the old one.
    with pytest.raises(InputError, match="it goes on in deployment"):
        Approved.open(world.silo(first, "east-clinic-0"))
    # A second continuation of one folder would not know what was spent in the first.
    again = world.folder / "again" / "second"
    shutil.copytree(second, again)
    for name in ("approved.json", "ledger.jsonl", "before.json"):
        (world.silo(again, "east-clinic-0") / name).unlink()
    for name in ("node.key", "node.pub"):
        (world.silo(again, "east-clinic-0") / name).unlink(missing_ok=True)
    tables = world.folder / "tables of second" / "east" / "clinic-0.csv"
    with pytest.raises(DamageError, match="it has, in another folder"):
        enrol(world.silo(again, "east-clinic-0"), tables, world.silo(first, "east-clinic-0"))
    # Nor does the server's run go on in two places, or in the old one.
    found = world.serve(second, "later", before="out")
    assert not any(isinstance(each, str) for each in found)
    assert all(
        "it goes on in another" in text or "it has, in another folder" in text
        for text in map(str, world.serve(second, "twice", before="out"))
    )


def test_a_silo_that_answered_after_the_pause_is_found_out(world):
    first, second = went_on(world)
    world.serve(first, "out", pause=PAUSE + 1)  # somebody let the old one go on
    with pytest.raises(InputError, match=f"rows of the first {PAUSE} rounds, but found later ones"):
        world.enrol(second, first, new=("west-clinic-3",))
    name = "east-clinic-0"
    assert not (world.silo(first, name) / "moved.json").exists()


def test_budgets_are_not_left_behind(world):
    first, second = went_on(world)
    tables = world.folder / "tables of second"
    with pytest.raises(InputError, match="its folder of the deployment before"):
        enrol(world.silo(second, "east-clinic-0"), tables / "east" / "clinic-0.csv")
    with pytest.raises(InputError, match="it is new here"):
        enrol(world.silo(second, "west-clinic-3"), tables / "west" / "clinic-3.csv", world.silo(first, "west-clinic-0"))
    with pytest.raises(InputError, match="it is another one"):
        enrol(world.silo(second, "east-clinic-0"), tables / "east" / "clinic-0.csv", world.silo(first, "east-clinic-1"))


@pytest.mark.parametrize(
    ("more", "round", "why"),
    [
        ('masks = "none"\nsample = 2', PAUSE, "the plan of the deployment before"),
        ('masks = "none"', ROUNDS, f"from 1 to {ROUNDS - 1}"),
    ],
)
def test_what_is_not_the_same_plan_does_not_go_on(world, more, round, why):
    first = world.deploy("first", EVERYBODY)
    with pytest.raises(InputError, match=why):
        world.deploy("second", LATER, (world.servers(first)[0], round), more)


def test_methods_that_cannot_go_on_say_so(tmp_path):
    for name in ("ada", "bob"):
        rows = np.random.default_rng(0).normal(size=(30, 3))
        (tmp_path / f"{name}.csv").write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")
    (tmp_path / "plan.toml").write_text(
        'format = 1\n[data]\nfiles = ["ada.csv", "bob.csv"]\n[method]\nname = "consensus_graph"\n'
    )
    terms, plan = Terms("127.0.0.1:9001", tls=False, minimum=1), load(tmp_path / "plan.toml")
    deploy(plan, tmp_path, tmp_path / "first", terms, lambda *_: "")
    with pytest.raises(InputError, match="a method that can go on with other silos"):
        deploy(plan, tmp_path, tmp_path / "second", terms, lambda *_: "", None, (tmp_path / "first" / "server", 1))


def test_one_sum_over_all_regions_goes_on_with_other_agents(tmp_path):
    world = World(tmp_path, True, 'reach = "all"')
    first, second = went_on(world)
    world.enrol(second, first, new=("west-clinic-3",))
    found = world.serve(second, "later", before="out")
    assert [each if isinstance(each, str) else each["rounds"] for each in found] == [ROUNDS] * 3
    rows = [json.loads(line) for line in (tmp_path / "later" / "east" / "ledger.jsonl").read_text().splitlines()]
    assert [row["why"].split("sum of ")[1].split(",")[0] for row in rows] == [
        *["9 agents of 3 servers"] * PAUSE,
        *["9 agents of 3 servers"] * (ROUNDS - PAUSE),
    ]


def test_a_region_that_is_late_at_the_end_is_answered_by_serve_typed_again(tmp_path, monkeypatch):
    """It stops after its last round; the others do not hear its goodbye, end without it, and say who it was."""
    monkeypatch.setattr("silograph.engines.neighbours._PARTING", 0.2)
    world = World(tmp_path, True, 'masks = "none"')
    goal = world.deploy("first", EVERYBODY)
    world.enrol(goal)
    world.patience, late, part = 3.0, REGIONS[1], Linked.part

    def stopped(across, round):
        if across.folder.goal.name == late:
            raise SilenceError("region", "its neighbours", "it was stopped")
        return part(across, round)

    monkeypatch.setattr(Linked, "part", stopped)
    world.serve(goal, "out")
    over = [tmp_path / "out" / name / "ending.json" for name in REGIONS if name != late]
    assert [list(json.loads(path.read_text())["neighbours"]) for path in over] == [[late], [late]]
    assert not (tmp_path / "out" / late).exists()

    monkeypatch.setattr(Linked, "part", part)
    found = world.serve(goal, "out")
    assert all(isinstance(result, dict) for result in found), found
    over.append(tmp_path / "out" / late / "ending.json")
    assert [json.loads(path.read_text())["neighbours"] for path in over] == [{}, {}, {}]
