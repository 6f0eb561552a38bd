"""Regions with a server each, as real processes on this machine: every region and every silo in a folder of its own."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from organisations import COMMAND, Organisations, free_port

from silograph.deploy.deployment import Terms, deploy
from silograph.deploy.organisation import enrol
from silograph.deploy.region import enrol_region
from silograph.privacy.ledger import Ledger
from silograph.report.deployment import page
from silograph.run.plan import load

NAMES = ("east", "north", "south", "west")


def tables(folder: Path, agents: int = 3, apart: bool = True, seed: int = 0) -> None:
    """NAME.csv of each region, to compare with, and below `there` what its organisations have: a table for each agent,
    or one for the region."""
    rng = np.random.default_rng(seed)
    for region in NAMES:
        head, lines = "agent,group,u,v,y", []
        for k in range(agents):
            own = [f"{region[0]}{k},{'ab'[k % 2]},{u:.5f},{v:.5f}" for u, v in rng.uniform(-1, 1, (8, 2))]
            own = [f"{line},{rng.normal():.5f}" for line in own]
            lines += own
            if apart:
                place = folder / "there" / region / f"clinic-{k}.csv"
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text("\n".join([head, *own]) + "\n")
        (folder / f"{region}.csv").write_text("\n".join([head, *lines]) + "\n")
        if not apart:
            (folder / "there").mkdir(exist_ok=True)
            shutil.copy(folder / f"{region}.csv", folder / "there")


@dataclass
class Regions(Organisations):
    """The same as a star's organisations, but for who is there; `addresses` are where regions are reached."""

    addresses: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        terms = Terms(f"127.0.0.1:{free_port()}", **{"minimum": 2, "deadline": 60.0, "patience": 120.0} | self.options)
        self.goal, self.out = self.folder / "deployment", self.folder / "out"
        there = self.plan.parent / "there"
        at = self.addresses or {name: f"127.0.0.1:{free_port()}" for name in NAMES}
        self.deployment = deploy(load(self.plan), there, self.goal, terms, page, at)
        facts = self.deployment.facts
        self.regions, self.organisations = list(self.deployment.regions), list(facts.organisations)
        cards, of_silos = {name: enrol_region(self.goal / "regions" / name) for name in self.regions}, []
        for name, made in cards.items():
            for other in made.neighbours:
                shutil.copy(made.card, self.goal / "regions" / other / "nodes")
            silos = [self.goal / "silos" / silo for silo in made.silos]
            enrolled = []
            for silo in silos:
                own = silo.name.removeprefix(f"{name}-")
                table = there / name / f"{own}.csv" if own != silo.name else there / f"{own}.csv"
                enrolled.append(enrol(silo, table).card)
                shutil.copy(made.card, silo)
            for card in enrolled:
                shutil.copy(card, self.goal / "regions" / name / "nodes")
            of_silos += [(card, name) for card in enrolled]
        far = self.deployment.plan.reach == "all"  # then agents are added up with those of all regions
        for card, name in of_silos:
            for silo in self.organisations:
                if far or self.deployment.home_of(silo) == name:
                    (self.goal / "silos" / silo / "nodes").mkdir(exist_ok=True)
                    shutil.copy(card, self.goal / "silos" / silo / "nodes")
        self.everybody = [*self.regions, *(f"silo {name}" for name in self.organisations)]

    def command(self, name: str) -> list[str]:
        if name in self.regions:
            more = self.more.get(name, [])
            return [*COMMAND, "serve", str(self.goal / "regions" / name), "-o", str(self.out / name), *more]
        return [*COMMAND, "join", str(self.goal / "silos" / name.removeprefix("silo "))]

    def kill_nats_of(self, region: str) -> None:
        self._kill_nats(self.goal / "regions" / region / "nats.conf")

    def run(self, disturb=lambda seconds: None) -> None:
        for name in self.everybody:
            self.start(name)
        self.run_on(disturb)

    def check_same_as_in_one_process(self) -> None:
        """Every region's model, its server's ledger and its silos' own ledgers, as all in one process have them."""
        expected = self.in_one_process()
        rows = Ledger(expected / "ledger.jsonl").rows
        found = []
        for region in self.regions:
            for path in (self.out / region / "models").glob("*.csv"):
                same = expected / "models" / path.name
                if same.name == "clients.csv":
                    assert set(path.read_text().splitlines()) <= set(same.read_text().splitlines())
                elif same.name != "clusters.csv":  # which are those of one server here, and a mean there
                    assert path.read_bytes() == same.read_bytes(), path
            found += Ledger(self.out / region / "ledger.jsonl").rows
        assert sorted(found, key=lambda row: row.place) == sorted(rows, key=lambda row: row.place)
        for organisation, silos in self.deployment.facts.organisations.items():
            own = Ledger(self.goal / "silos" / organisation / "ledger.jsonl").rows
            assert len({row.place for row in own}) == len(own)
            assert [row for row in own if row in rows] == [row for row in rows if row.silo in silos]
