"""A deployment: all that the organisations of a run agree on, in one file whose digest each of them approves.

The plan is data: no organisation runs code it did not install. What is in the file is what happens; whatever a server
asks for beyond it is refused by the organisations themselves.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

from silograph.core.errors import InputError
from silograph.core.files import LONGEST_FACTS, sync_folder, write_atomically
from silograph.core.schema import Count, Positive, Such, check, of_format, read, read_json, write
from silograph.core.toml import parse_toml
from silograph.core.types import Json
from silograph.deploy.after import After, follow
from silograph.deploy.public_facts import Facts, gather_facts, open_server, part_of
from silograph.deploy.supervised import COMPOSE, UNIT, compose, unit
from silograph.engines.certificates import CA, DAYS, SERVER_NAME, certify_node, make_authority, make_node_key
from silograph.run.jobs import Divisible, Job
from silograph.run.plan import Plan, dumps, parse
from silograph.run.sections import named_files, renamed

FORMAT = 2
FILE, SERVER, NODES, SIDE, PROJECT = "deployment.json", "server", "nodes", "files", "flower"
REGIONS, SILOS = "regions", "silos"  # folders, where every region has a server of its own
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PLACE = re.compile(r".+:[0-9]{1,5}", re.DOTALL)
_Address = Annotated[str, Such("HOST:PORT", lambda told: bool(_PLACE.fullmatch(told)) and _port(told) < 65536)]
_Files = Annotated[Mapping[str, str], Such("plain names and texts", lambda files: all(map(_is_plain, files)))]
_ANEW = "Make it again with `silograph deploy`; silograph 0.1 must finish what it deployed."

#: Makes the page of the server (None) or of an organisation, and of which region, if regions have servers of their own;
#: from the deployment as JSON, its digest, and what it will cost.
Page = Callable[[Json, str, Json, str | None, str | None], str]


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _is_plain(name: str) -> bool:
    return Path(name).name == name and not name.startswith(".")


@dataclass(frozen=True)
class Terms:
    """`address` is host:port. A round waits `deadline` seconds, and up to `patience` for at least `minimum` silos."""

    address: _Address
    tls: bool = True
    minimum: Count = 2
    deadline: Positive = 120.0
    patience: Positive = 600.0

    def __post_init__(self) -> None:
        check(self, "deployment")
        if not self.tls and self.host not in _LOOPBACK:
            todo = "Without encryption everybody on the network can read the traffic: leave --plain out."
            raise InputError("deployment, plain", "an address of this machine", f"found {self.host}", todo)

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return _port(self.address)


@dataclass(frozen=True)
class Deployment:
    """`files` are the public files that the plan names, beside the tables: candidate edges, the graph of servers.
    `regions` are the addresses of servers where every region has its own; the terms then are those of each. `after` is
    the deployment where it goes on, with other silos."""

    plan_text: str = field(metadata={"key": "plan"})
    facts: Facts
    terms: Terms
    run: str
    files: _Files = field(default_factory=dict)
    regions: Mapping[str, _Address] = field(default_factory=dict)
    after: After | None = field(default=None, metadata={"left_out": True})

    def at(self, region: str | None) -> Terms:
        """The terms as they are at a region's server."""
        return self.terms if region is None else replace(self.terms, address=self.regions[region])

    def held_at(self, region: str | None) -> dict[str, tuple[str, ...]]:
        """The organisations of that server, and their silos."""
        everybody = self.facts.organisations
        return everybody if region is None else {name: everybody[name] for name in self.facts.regions[region]}

    def home_of(self, organisation: str) -> str | None:
        """The region whose server this organisation comes to; None in a star."""
        return next((home for home in self.regions if organisation in self.facts.regions[home]), None)

    @cached_property
    def plan(self) -> Plan:
        return parse(parse_toml(self.plan_text, "deployment, plan"), "deployment, plan")

    def to_bytes(self) -> bytes:
        told = {"format": FORMAT, **write(self), "facts": self.facts.to_json()}
        return (json.dumps(told, indent=1, sort_keys=True) + "\n").encode()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def read(cls, folder: Path) -> Deployment:
        path = folder / FILE
        try:
            told = of_format(read_json(path, LONGEST_FACTS, str(path)), FORMAT, str(path), todo=_ANEW)
        except FileNotFoundError:
            todo = "`silograph deploy` makes one for the server and one for each organisation."
            raise InputError(str(folder), f"a folder with a {FILE}", "there is none", todo) from None
        facts = Facts.from_json(told.pop("facts", None), f"{path}, facts")
        deployment = read(cls, {**told, "facts": facts}, str(path))
        deployment._check(str(path))
        return deployment

    def _check(self, where: str) -> None:
        if taken := {SERVER, PROJECT} & self.facts.organisations.keys():
            todo = "Call its table otherwise."
            raise InputError(
                f"{where}, organisations", "other names: this is a folder of ours", f"found {min(taken)}", todo
            )
        if self.regions and not part_of(self.facts.method).SEVERAL:
            raise _one_server(self.facts.method)
        if self.regions and self.regions.keys() != self.facts.regions.keys():
            odd = ", ".join(sorted(self.regions.keys() ^ self.facts.regions.keys()))
            raise InputError(f"{where}, regions", "an address for each region of the plan", f"{odd} differ")
        if len(set(self.regions.values())) < len(self.regions):
            raise InputError(f"{where}, regions", "an address of its own for each", "two have the same")
        for region in self.regions:
            self.at(region)  # whatever is wrong with its address
        homes = self.regions or [None]
        silos = min(sum(len(names) for names in self.held_at(home).values()) for home in homes)
        if self.terms.minimum > silos:
            whose = "all silos of the smallest region" if self.regions else "all silos"
            raise InputError(f"{where}, minimum", f"at most {silos}, {whose}", f"found {self.terms.minimum}")
        if getattr(self.plan.method, "masks", None) == "skipped":
            raise InputError(f"{where}, masks", "protocol or none", "skipped is for simulations")
        if getattr(self.plan.privacy, "mode", None) == "correlated":
            found = "found noise shared by two sites: it takes a key for every two, which no deployment makes yet"
            raise InputError(f"{where}, privacy", "one-release, secure-sum or per-round", found)

    def lay_out(self, folder: Path) -> None:
        """The plan's public files, where the plan looks for them."""
        for name, text in self.files.items():
            (folder / SIDE).mkdir(exist_ok=True)
            path = folder / SIDE / name
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                write_atomically(path, text.encode())


def make(
    plan: Plan,
    base: Path,
    terms: Terms,
    regions: Mapping[str, str] | None = None,
    before: tuple[Path, int] | None = None,
) -> Deployment:
    """The deployment of a plan; its tables, or the facts that their owners reported, lie relative to `base`. It goes on
    after so many rounds of the deployment whose folder is `before`."""
    facts = gather_facts(plan, base)
    plan = plan.deployable().spelled_out(len(facts.columns), len(facts.organisations))
    files = {}
    names = {*named_files(plan, private=True), *named_files(plan, private=False)} - set(plan.data.files)
    for name in sorted(names):
        try:
            files[Path(name).name] = (base / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise InputError(str(base / name), "a readable text file", "it cannot be read") from None
    if len(files) < len(names):
        raise InputError("plan", "public files of different names", "two have the same")
    # Tables are called by their file's name alone: where they lie is each organisation's own affair.
    whole = renamed(plan, lambda name: f"{SIDE}/{Path(name).name}" if name in names else Path(name).name)
    at = {} if regions is None else _addresses(regions, facts, terms)
    deployment = Deployment(dumps(whole), facts, terms, secrets.token_hex(16), files, at)
    deployment._check("deployment")
    return deployment if before is None else _going_on(deployment, *before)


def _going_on(deployment: Deployment, folder: Path, round: int) -> Deployment:
    old = Deployment.read(folder)
    if bool(old.regions) != bool(deployment.regions):
        raise InputError("deployment, after", "regions with servers of their own in both, or in none", "they differ")
    with tempfile.TemporaryDirectory() as place:
        jobs = []
        for each in (old, deployment):
            (Path(place) / each.digest).mkdir()
            each.lay_out(Path(place) / each.digest)
            jobs.append(open_job(each, Path(place) / each.digest))
    after = follow(jobs[0], old.digest, old.facts.organisations, jobs[1], round)
    return replace(deployment, after=after)


def _addresses(told: Mapping[str, str], facts: Facts, terms: Terms) -> dict[str, str]:
    """Where each region listens: as was told, or at the port of the terms and those that follow."""
    at = {region: f"{terms.address.rpartition(':')[0]}:{terms.port + k}" for k, region in enumerate(facts.regions)}
    return at | dict(told)


def deploy(
    plan: Plan,
    base: Path,
    goal: Path,
    terms: Terms,
    page: Page,
    regions: Mapping[str, str] | None = None,
    before: tuple[Path, int] | None = None,
) -> Deployment:
    """Write a folder for the server and one for each organisation, with all that they need but their own keys and
    tables. With `regions`, every region has a server: at these addresses, or at the port of the terms and those that
    follow it. With the folder of a deployment `before` and a round, it goes on after that round."""
    if goal.exists() and (not goal.is_dir() or any(goal.iterdir())):
        raise InputError(str(goal), "a new or empty folder", "it is neither", "Choose another with -o.")
    deployment = make(plan, base, terms, regions, before)
    goal.parent.mkdir(parents=True, exist_ok=True)
    making = goal.parent / f".{goal.name}.making"
    shutil.rmtree(making, ignore_errors=True)
    try:
        if deployment.regions:
            _write_regions(deployment, making, page)
        else:
            _write_star(deployment, making, page)
        if goal.exists():
            goal.rmdir()
        os.replace(making, goal)
        sync_folder(goal.parent)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return deployment


def _write_star(deployment: Deployment, making: Path, page: Page) -> None:
    server, terms = making / SERVER, deployment.terms
    (server / NODES).mkdir(parents=True)
    deployment.lay_out(server)
    forecast = open_job(deployment, server).forecast()
    if terms.tls:
        make_authority(server, [terms.host], DAYS)
        make_node_key(server)
        certify_node(server, SERVER_NAME)
    for organisation in (None, *deployment.facts.organisations):
        folder = server if organisation is None else making / organisation
        _write_folder(deployment, folder, page, forecast, organisation, None)
        if terms.tls and organisation is not None:
            write_atomically(folder / CA, (server / CA).read_bytes())
    (making / PROJECT).mkdir()
    write_atomically(making / PROJECT / "pyproject.toml", _project(deployment).encode())


def _write_regions(deployment: Deployment, making: Path, page: Page) -> None:
    """No key is made here: every region makes its own authority when it enrols."""
    for region in deployment.regions:
        (making / REGIONS / region / NODES).mkdir(parents=True)
        deployment.lay_out(making / REGIONS / region)
    first = making / REGIONS / next(iter(deployment.regions))
    job = open_job(deployment, first)
    forecast = job.forecast()
    for region in deployment.regions:
        divided(job, region)  # refuses what needs one server
        _write_folder(deployment, making / REGIONS / region, page, forecast, None, region)
    for organisation in deployment.facts.organisations:
        folder, home = making / SILOS / organisation, deployment.home_of(organisation)
        _write_folder(deployment, folder, page, forecast, organisation, home)


def _write_folder(
    deployment: Deployment, folder: Path, page: Page, forecast: Json, organisation: str | None, region: str | None
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, deployment.to_bytes())
    told = page(json.loads(deployment.to_bytes()), deployment.digest, forecast, organisation, region)
    write_atomically(folder / "README.html", told.encode())
    write_atomically(folder / UNIT, unit(folder.name, organisation, deployment.digest).encode())
    write_atomically(folder / COMPOSE, compose(folder.name, organisation, deployment.at(region).port).encode())


def _project(deployment: Deployment) -> str:
    """A project for Flower's own tools. It has no code: both apps are installed with silograph."""
    return f"""# For Flower's own SuperLink and SuperNodes; `silograph serve` and `silograph join` need none of this.
[project]
name = "silograph-deployment"
version = "1.0.0"
description = "deployment {deployment.digest}"
license = "Apache-2.0"
dependencies = ["flwr>=1.41,<1.43"]

[tool.flwr.app]
publisher = "silograph"

[tool.flwr.app.components]
serverapp = "silograph.flower_apps:server_app"
clientapp = "silograph.flower_apps:client_app"

[tool.flwr.app.config]
folder = ""
out = ""
"""


def divided(job: Job, region: str, without: Collection[str] = ()) -> Job:
    """One region's part of a job, if it can be done without a server for all; `without` neighbours that are gone."""
    if not isinstance(job, Divisible):
        raise _one_server(job.plan.method.name)
    return job.at(region, without)


def _one_server(method: str) -> InputError:
    found = f"found {method}: all that is sent comes together at one server"
    todo = "Leave --regions out: it runs as a star."
    return InputError("deployment, regions", "a method over a graph of servers", found, todo)


def open_job(deployment: Deployment, folder: Path) -> Job:
    """The job as the server knows it: without any record."""
    return open_server(deployment.plan, deployment.facts, folder)
