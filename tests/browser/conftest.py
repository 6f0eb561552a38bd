"""A browser, and one page of every kind that silograph makes, from real runs of small plans."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from silograph.core.toml import parse_toml
from silograph.core.types import Json
from silograph.data.class_clients import write_sample_devices
from silograph.data.clusters import write_sample_hospitals
from silograph.data.federation import write_sample_clinics
from silograph.data.synthetic import write_sample_sites
from silograph.deploy.deployment import Terms, make, open_job
from silograph.report.build import build
from silograph.report.compare import compare
from silograph.report.compare_page import page as compare_page
from silograph.report.deployment import own_page
from silograph.report.deployment import page as deployment_page
from silograph.report.gallery import page as gallery_page
from silograph.report.reproduced_page import page as reproduced_page
from silograph.run.plan import load
from silograph.run.run import execute

SHOTS = Path(__file__).parents[2] / "build" / "browser"

GRAPHS = """format = 1
seed = 3
[data]
files = [{files}]
[method]
name = "consensus_graph"
degree = 5.0
"""
#: A figure with verdicts of every colour, as `silograph reproduce` leaves it.
REPRODUCED: Json = {
    "name": "s3-table1",
    "title": "Mean deviation",
    "seeds": 3,
    "rows": [
        {"case": "N=20", "method": name, "metric": "FS", "ours": 0.5, "std": 0.01, "paper": 0.52}
        for name in ("IGL", "PPGL")
    ],
    "notes": ["The paper does not say how noise is drawn."],
    "curves": [
        {"panel": "p", "label": name, "x": [0, 1, 2], "y": [0.0, -3.0, end], "unit": "dB"}
        for name, end in (("none", -4.0), ("edge", -5.0))
    ],
    "verdicts": [
        {"statement": f"Statement {k}", "outcome": outcome, "found": "+0.1", "rule": "By hand."}
        for k, outcome in enumerate(
            ("reproduced", "not reproduced", "statement does not hold", "not enough repetitions", "not clear")
        )
    ],
}
BUDGET = "[privacy]\nepsilon = 2.0\ndelta = 1e-6\n"


@dataclass
class Opened:
    """A page in the browser, and what it said and asked for on the way."""

    page: Any
    name: str
    console: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def shoot(self, look: str) -> Path:
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = SHOTS / f"{self.name}-{look}.png"
        self.page.screenshot(path=path, full_page=True)
        return path


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens a file of this machine; every other request is recorded and refused."""
    contexts = []

    def go(path: Path, *, width: int = 1200, scheme: str = "light", scripts: bool = True) -> Opened:
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme, java_script_enabled=scripts)
        contexts.append(context)
        context.set_default_timeout(10_000)
        found = Opened(context.new_page(), path.stem)

        def refuse(route: Any) -> None:
            if route.request.url == path.as_uri():
                route.continue_()
            else:
                found.asked.append(route.request.url)
                route.abort()

        context.route("**/*", refuse)
        found.page.on("console", lambda message: found.console.append(f"{message.type}: {message.text}"))
        found.page.on("pageerror", lambda error: found.console.append(str(error)))
        found.page.goto(path.as_uri())
        return found

    yield go
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of finished runs: graphs in the open and private, a federation, clusters and a shared start."""
    base = tmp_path_factory.mktemp("runs")

    def run(name: str, folder: Path, text: str) -> Path:
        (folder / f"{name}.toml").write_text(text)
        return execute(load(folder / f"{name}.toml"), folder, base / name, lambda *_: None, build).folder

    def starter(name: str, *changes: tuple[str, str]) -> str:
        text = (files(f"silograph.families.{name}") / "starter.toml").read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        return text

    for name in ("sites", "clinics", "hospitals", "devices"):
        (base / "data" / name).mkdir(parents=True)
    tables = write_sample_sites(base / "data" / "sites", 1)
    write_sample_clinics(base / "data" / "clinics", 1)
    write_sample_hospitals(base / "data" / "hospitals", 1)
    write_sample_devices(base / "data" / "devices", 1)
    names = ", ".join(f'"{path.name}"' for path in tables)
    graphs, sites, wards = GRAPHS.format(files=names), base / "data" / "sites", base / "data" / "hospitals"
    few = ("rounds = 20", "rounds = 3"), ('masks = "protocol"', 'masks = "skipped"')
    papers = ('loss = "ridge"', 'learner = "papers"\nrounds = 20\nloss = "ridge"')
    return {
        "graph-open": run("graph-open", sites, graphs + "resamples = 5\n"),
        "graph-private": run("graph-private", sites, graphs + BUDGET),
        "federation": run("federation", base / "data" / "clinics", starter("federation", *few)),
        "clusters": run("clusters", wards, starter("clusters")),
        "clusters-short": run("clusters-short", wards, starter("clusters", papers)),
        "meta": run("meta", base / "data" / "devices", starter("meta", ("# rounds = 50", "rounds = 3"))),
    }


@pytest.fixture(scope="session")
def pages(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An HTML file of every kind."""
    folder = tmp_path_factory.mktemp("pages")
    made = {name: (run / "report.html").read_text() for name, run in runs.items()}
    plan = runs["graph-private"].parent / "data" / "sites" / "graph-private.toml"
    deployment = make(load(plan), plan.parent, Terms("127.0.0.1:8765"))
    told: Json = json.loads(deployment.to_bytes())
    forecast = open_job(deployment, plan.parent).forecast()
    organisation = told["facts"]["organisations"][0]["name"]
    made["deployment-server"] = deployment_page(told, deployment.digest, forecast, None)
    made["deployment-organisation"] = deployment_page(told, deployment.digest, forecast, organisation)
    made["compare-graphs"] = compare_page(compare([runs["graph-open"], runs["graph-private"]]))
    made["compare-models"] = compare_page(compare([runs["clusters"], runs["clusters-short"]]))
    after = {"organisation": organisation, "deployment": deployment.digest, "rounds": 1, "releases": 1}
    after |= {"silos": [organisation], "arrays": {"graph": [1, 190]}, "guarantees": forecast["guarantees"]}
    made["deployment-over"] = own_page(parse_toml(told["plan"], "plan"), told["facts"], after)
    made["reproduced"] = reproduced_page(REPRODUCED)
    entry = {"name": "s3-table1", "title": "S3 Table I", "state": "made", "command": "silograph reproduce s3-table1"}
    missing = {"name": "s4-fig2", "title": "S4 Figure 2", "state": "not run", "reason": "MNIST is not there"}
    entry |= {"seconds": {"wall": 2.0, "cpu": 1.5}, "table": REPRODUCED}
    about = {"full": False, "version": "0.2.0", "command": "silograph reproduce all -o papers"}
    made["gallery"] = gallery_page([entry, missing], about)
    for name, html in made.items():
        (folder / f"{name}.html").write_text(html)
    return {name: folder / f"{name}.html" for name in made}
