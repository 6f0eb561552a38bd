"""The commands one starts with: `sample`, `check`, `learn`, `run`, `personalise`."""

from __future__ import annotations

import os
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import typer

from silograph.cli.console import OUT, START, AsJson, Out, bar, register_in, say, show
from silograph.cli.deploy import organisation_check
from silograph.cli.options import called, chosen, option, options_of, with_options
from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.types import Json
from silograph.data.categories import parse_categories
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy
from silograph.families.samples import samples

Track = Annotated[
    Literal["mlflow"] | None,
    typer.Option(help="Record the finished run in MLflow: MLFLOW_TRACKING_URI, or mlflow.db in this folder."),
]
NodesIn = Annotated[Literal["columns", "rows"], typer.Option(help="Where the nodes are in the tables.")]
SAMPLES = samples()


def register(app: typer.Typer) -> None:
    kinds = [option(name, bool, False, part.HELP) for name, part in SAMPLES.items()]
    everyday = {ConsensusGraph: "Graph", Privacy: "Privacy", Data: "Tables", GraphPlan: None}
    sections = [parameter for section, panel in everyday.items() for parameter in options_of(section, panel)]
    # The papers' own settings have a panel, too: the last one.
    sections.sort(key=lambda each: each.annotation.__metadata__[0].rich_help_panel not in everyday.values())
    commands = (with_options(sample, kinds), check, with_options(learn, sections), run, personalise)
    register_in(app, START, *commands)


def sample(
    folder: Annotated[Path, typer.Argument(help="Folder for the tables.")],
    seed: Annotated[int, typer.Option(help="Which sample: the same seed always writes the same tables.")] = 1,
    as_json: AsJson = False,
    **asked: bool,
) -> None:
    """Write sample tables of five sites, or another sample with a plan to start from."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(str(folder), "a new or empty folder", "it is neither", "Choose another.")
    chosen = [name for name in SAMPLES if asked[name]] or ["sites"]
    if len(chosen) > 1:
        raise InputError("options", "one sample", f"found --{' and --'.join(chosen)}")
    paths = SAMPLES[chosen[0]].write(folder, seed)
    say(as_json, {"files": [str(path) for path in paths]}, lambda: show(str(path) for path in paths))


def check(
    files: Annotated[
        list[str],
        typer.Argument(help="Tables to check, one per site, or folders of tables; or an organisation's folder."),
    ],
    data: Annotated[
        Path | None, typer.Option(help="The organisation's own table, with an organisation's folder.")
    ] = None,
    nodes_in: NodesIn = "columns",
    drop: Annotated[list[str], typer.Option(help="Leave this column out; may be repeated.")] = [],  # noqa: B006
    keep: Annotated[list[str], typer.Option(help="This column is a measurement; may be repeated.")] = [],  # noqa: B006
    unit_column: Annotated[str | None, typer.Option(help="The column that names a signal's person.")] = None,
    categories: Annotated[list[str], typer.Option(help="Columns of words: 'sex=f,m;ward=a,b,c'.")] = [],  # noqa: B006
    site_column: Annotated[str | None, typer.Option(help="The column that names a row's site.")] = None,
    as_json: AsJson = False,
) -> None:
    """Read the sites' tables, match their nodes, and list every problem.

    With an organisation's folder and --data: check whether its table fits the deployment. Nothing leaves this machine.
    """
    from silograph.data.gaps import at_every_site
    from silograph.data.notes import notes_on
    from silograph.data.silos import problems, read_silos
    from silograph.families.graphs.build import build
    from silograph.families.graphs.findings import strangers_among
    from silograph.report.printed import table

    if data is not None:
        organisation_check(Path(files[0]), data, as_json)
        return
    click.get_current_context().with_resource(wording.speaking("options"))
    paths = [Path(name) for name in files]
    levels = parse_categories(categories)
    asked: dict[str, Any] = {
        "drop": drop,
        "keep": keep,
        "unit_column": unit_column,
        "categories": levels,
        "site_column": site_column,
    }
    try:
        silos = read_silos(paths, nodes_in, all_here=True, rule="all", **asked)
        if unit_column is None:
            build(GraphPlan(Data(tuple(files)), ConsensusGraph(), None), silos)  # what `learn` refuses, too
    except InputError:
        found = problems(paths, nodes_in, **asked)
        if len(found) < 2:
            raise
        several = "\n  ".join([f"there are {len(found)} problems:", *found]).rstrip(".")
        raise InputError("tables", "tables that can be learned from", several) from None
    notes = [*silos.notes, *notes_on(silos), *strangers_among(silos)]
    sites = [{"name": name, "signals": len(x)} for name, x in zip(silos.names, silos.signals, strict=True)]
    payload = {"sites": sites, "nodes": list(silos.nodes), "notes": notes}

    def words() -> None:
        show(table(("site", "signals"), [(str(s["name"]), str(s["signals"])) for s in sites]))
        show(f"note: {note}" for note in notes)
        print(f"{len(silos.nodes)} nodes, {at_every_site(silos)}. Ready to learn.")

    say(as_json, payload, words)


def learn(
    files: Annotated[
        list[str],
        typer.Argument(
            help="One table per site (CSV or TSV, also compressed, Excel, Parquet, Feather, NPY, NPZ, MAT), or folders."
        ),
    ],
    out: Out = OUT,
    track: Track = None,
    as_json: AsJson = False,
    **asked: Any,
) -> None:
    """Learn a graph per site and the consensus graph from their tables."""
    click.get_current_context().with_resource(wording.speaking("options"))
    privacy = chosen(Privacy, asked)
    spent = privacy.pop("epsilon")
    budget = None if spent is None else Privacy(spent, **privacy)
    unused = [called(part) for part in fields(Privacy) if privacy.get(part.name, part.default) != part.default]
    if budget is None and unused:
        todo = f"Add --epsilon 1, or drop {' and '.join(unused)}."
        raise InputError("options", f"--epsilon with {' and '.join(unused)}", "it is missing", todo)
    method = ConsensusGraph(**chosen(ConsensusGraph, asked))
    if budget is not None and budget.mode == "per-round":
        method = replace(method, solver="paper")
    asked["categories"] = parse_categories(asked["categories"])
    data = Data(tuple(files), **chosen(Data, asked))
    _execute(GraphPlan(data, method, budget, **chosen(GraphPlan, asked)), Path(), out, as_json, track)


def run(
    plan: Annotated[Path, typer.Argument(help="A plan file.")],
    out: Out = OUT,
    track: Track = None,
    as_json: AsJson = False,
) -> None:
    """Run a plan file."""
    from silograph.run.plan import load

    _execute(load(plan), plan.parent, out, as_json, track)


def _execute(plan: Any, base: Path, out: Path, as_json: bool, track: str | None) -> None:
    from silograph.report.build import build as build_report
    from silograph.report.build import page_part, result_of
    from silograph.report.servers import sums_lines
    from silograph.run.run import execute, finished_before

    before = None
    if track is not None:
        from silograph import tracking

        tracking.require()
        before = finished_before(plan, base, out)  # a finished run is recorded in MLflow without running again
    with bar("learning") as update:

        def progress(number: int, line: Json | None) -> None:
            if number == 0:
                for warning in sums_lines((line or {}).get("takes")):
                    print(warning, file=sys.stderr)
                return
            gap, most = line.get("gap") if line else None, plan.method.rounds
            known = most is not None and number <= most
            place = f"round {number} of {most}" if known else f"round {number}"
            update(number / most if known else None, place + (f", gap {gap:.1e}" if gap is not None else ""))

        finished = before or execute(plan, base, out, progress, build_report)
        if track is not None:
            update(None, "recording in MLflow")
            tracking.send(finished.folder)

    def words() -> None:
        result = result_of(finished.result, str(finished.folder))
        show(page_part(result.method).summary(result))
        show(f"note: {note}" for note in result.privacy.notes)
        if before is not None:
            print("note: This run was already finished. Nothing ran again; MLflow has it now.")
        print(f"report: {os.path.relpath(finished.folder / 'report.html')}")

    say(as_json, finished.result, words)


def personalise(
    start: Annotated[Path, typer.Argument(help="A private_meta run folder, or its models/start.npz.", metavar="RUN")],
    table: Annotated[Path, typer.Argument(help="A client's own labelled records.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="File for the client's model (NPZ).")],
    steps: Annotated[int | None, typer.Option(help="How many steps (default: the plan's, or chosen).")] = None,
    step: Annotated[float | None, typer.Option(help="The size of a step (default: the plan's, or chosen).")] = None,
    choose: Annotated[
        bool,
        typer.Option("--choose", help="Choose both, and whether to use the start at all, on the client's own records."),
    ] = False,
    test: Annotated[Path | None, typer.Option(help="Other labelled records, to test the model on.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Turn a shared start into a client's own model, on the client's machine; nothing leaves it."""
    from silograph.families.meta.personalise import personalise as run_steps

    personal = run_steps(start, table, out, steps, step, test, device, choose)

    def words() -> None:
        records = f"the {personal.tested} record{'s' * (personal.tested != 1)}"
        what = f"{records} it learned from" if personal.seen else f"{records} of {test}"
        print(f"{personal.measure} on {what}: {personal.before:.4f} before, {personal.after:.4f} after")
        if personal.chosen:
            own = f"this client's {personal.records} record{'s' * (personal.records != 1)}"
            alone = f"an untrained start, from which {own} are predicted better than from the shared one"
            begin = alone if personal.alone else "the start"
            print(f"chosen: {personal.steps} step{'s' * (personal.steps != 1)} of size {personal.step:g} from {begin}")
        if personal.seen:
            print("note: the model will do worse on other records; --test measures how much")
        print(f"model: {out}")

    say(as_json, {"model": str(out), **personal.to_json()}, words)
