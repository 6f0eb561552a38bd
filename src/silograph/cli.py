"""The command line: thin. Exit code 0, 2 for bad input, 1 for a failure, 3 for a refuted promise, 130 for Ctrl-C."""

from __future__ import annotations

import inspect
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import click
import typer

from silograph.audit_cli import register as register_audit
from silograph.compare_cli import register as register_compare
from silograph.console import AsJson, Out, bar, say, show
from silograph.core.errors import InputError, SilographError
from silograph.core.types import Json
from silograph.deploy_cli import party_check, register
from silograph.families.samples import samples

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Graphs learned across data silos, with privacy numbers that are true.",
)

register(app)
register_audit(app)
register_compare(app)
Track = Annotated[
    Literal["mlflow"] | None,
    typer.Option(help="Tell MLflow of the finished run: MLFLOW_TRACKING_URI, or mlflow.db in this folder."),
]


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"silograph {version('silograph')}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", help="Which version this is.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Graphs learned across data silos, with privacy numbers that are true."""


NodesIn = Annotated[Literal["columns", "rows"], typer.Option(help="Where the nodes are in the tables.")]


def main() -> None:
    """Entry point: every error on purpose becomes one line and an exit code, never a traceback."""
    try:
        code = app(standalone_mode=False)
        if code == 130:  # typer's word for Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        sys.exit(error.exit_code)  # the help has been shown
    except click.ClickException as error:
        _fail(f"{error.format_message()} (see silograph --help)", "bad-input", error.exit_code)
    except SilographError as error:
        _fail(str(error), error.code, error.exit_code)
    except KeyboardInterrupt:
        _fail("Interrupted. The same command goes on where it stopped.", "interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MemoryError:
        _fail("Not enough memory for a problem of this size.", "memory", 1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(
            f"{place}{error.strerror or error}. Nothing was published; mend it and run the same command.", "system", 1
        )


def _fail(text: str, code: str, exit_code: int) -> NoReturn:
    if "--json" in sys.argv:
        print(json.dumps({"error": {"code": code, "text": text}}))
    print(f"silograph: {text}", file=sys.stderr)
    sys.exit(exit_code)


def _execute(plan: Any, base: Path, out: Path, as_json: bool, track: str | None) -> None:
    from silograph.report.build import build as build_report
    from silograph.report.build import page_part
    from silograph.run.run import execute

    if track is not None:
        from silograph import tracking

        tracking.require()
    with bar("learning") as update:

        def progress(number: int, line: Json | None) -> None:
            gap = line.get("gap") if line else None
            update(None, f"round {number}" + (f", gap {gap:.1e}" if gap is not None else ""))

        finished = execute(plan, base, out, progress, build_report)
        if track is not None:
            update(None, "telling MLflow")
            tracking.send(finished.folder)

    def words() -> None:
        result = finished.result
        show(page_part(result["method"]).summary(result))
        show(f"note: {note}" for note in result["privacy"]["notes"])
        print(f"report: {os.path.relpath(finished.folder / 'report.html')}")

    say(as_json, finished.result, words)


@app.command()
def learn(
    files: Annotated[list[str], typer.Argument(help="One table per site: CSV, TSV, Parquet, NPY, NPZ or MAT.")],
    out: Out,
    degree: Annotated[
        float | None, typer.Option(help="Wanted mean degree of the sites' graphs; sets beta, or the edges of log-det.")
    ] = None,
    density: Annotated[float | None, typer.Option(help="The same as a share of all pairs of nodes.")] = None,
    edges: Annotated[int | None, typer.Option(help="The same as a number of edges.")] = None,
    consensus_density: Annotated[
        float | None, typer.Option(help="Wanted share of all pairs in the consensus graph; sets lambda.")
    ] = None,
    coupling_by: Annotated[
        Literal["rule", "held-out"],
        typer.Option(help="How strongly sites are held together: by a rule, or by the loss of signals held out."),
    ] = "rule",
    resamples: Annotated[
        int | None, typer.Option(help="How often signals are drawn again to say how sure an edge is (100; 0: never).")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Total privacy budget of every site.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta of the budget (1e-6 if left out).")] = None,
    privacy: Annotated[
        Literal["one-release", "correlated", "secure-sum", "per-round"],
        typer.Option(
            help="One release a site; the same with noise that cancels between sites; noise once on the secure sum of "
            "all sites (a consensus, no graphs of sites); or the papers' noise in every round."
        ),
    ] = "one-release",
    mechanism: Annotated[Literal["gaussian", "laplace"], typer.Option(help="Shape of the noise.")] = "gaussian",
    clip: Annotated[
        float | None,
        typer.Option(
            help="Public bound on a signal's length around its mean (left out: lengths are scaled to 1); "
            "with per-round noise, on its squared differences, or on gradients for several local steps."
        ),
    ] = None,
    unit_column: Annotated[
        str | None,
        typer.Option(help="The column that says whose a signal is: a person is protected, not one signal."),
    ] = None,
    learner: Annotated[
        Literal["log-det", "log-degree"] | None,
        typer.Option(
            help="With one release: the likelihood of Gaussian signals (up to 50 nodes, if left out), or the papers' "
            "model (8)."
        ),
    ] = None,
    solver: Annotated[Literal["exact", "paper"], typer.Option(help="Exact optimum, or the papers' Algorithm 1.")] = (
        "exact"
    ),
    form: Annotated[Literal["S3", "S0"] | None, typer.Option(help="Which paper's form of Algorithm 1.")] = None,
    alpha: Annotated[float, typer.Option(help="Weight of the log-degree term of (8).")] = 1.0,
    beta: Annotated[float | None, typer.Option(help="Weight of the squared term of (8); larger is denser.")] = None,
    nu: Annotated[float | None, typer.Option(help="Coupling to the consensus, in units of lambda.")] = None,
    lambda_: Annotated[float | None, typer.Option("--lambda", help="Sparsity of the consensus.")] = None,
    zeta: Annotated[float | None, typer.Option(help="Guard added to degrees inside the logarithm.")] = None,
    threshold: Annotated[float, typer.Option(help="Leave out edges with weights at or below this.")] = 0.0,
    rounds: Annotated[int | None, typer.Option(help="Most rounds (exact), or rounds (paper).")] = None,
    local_steps: Annotated[int | None, typer.Option(help="Local steps a round (paper).")] = None,
    step: Annotated[float | None, typer.Option(help="Step size (paper).")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum (paper).")] = None,
    coupling: Annotated[Literal["implicit", "explicit"], typer.Option(help="Coupling step (paper).")] = "implicit",
    nodes_in: NodesIn = "columns",
    standardise: Annotated[
        bool, typer.Option("--standardise", help="Each site's nodes to mean 0, deviation 1.")
    ] = False,
    candidates: Annotated[
        str | None, typer.Option(help="CSV with columns source,target: the only edges allowed; a public list.")
    ] = None,
    neighbours: Annotated[
        int | None,
        typer.Option(
            help="Only edges to so many nearest neighbours at some site (twice the degree beyond 3000 nodes)."
        ),
    ] = None,
    search: Annotated[
        Literal["exact", "approximate"] | None,
        typer.Option(help="How neighbours are searched for; beyond 30000 nodes it has to be said."),
    ] = None,
    coordinates: Annotated[
        str | None, typer.Option(help="CSV with columns node,x,y and perhaps z: where the nodes are; for drawing.")
    ] = None,
    engine: Annotated[Literal["vector", "silowise"], typer.Option(help="How silos are simulated.")] = "vector",
    seed: Annotated[int | None, typer.Option(help="Fixes every random number (a rehearsal, under privacy).")] = None,
    track: Track = None,
    as_json: AsJson = False,
) -> None:
    """Learn a graph per site and the consensus graph from their tables."""
    from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy

    if epsilon is None and (
        delta is not None or clip is not None or privacy != "one-release" or mechanism == "laplace"
    ):
        raise InputError("options", "--epsilon with the other privacy options", "it did not come", "Try --epsilon 1.")
    budget = None if epsilon is None else Privacy(epsilon, delta, privacy, mechanism, clip)
    method = ConsensusGraph(
        learner=learner,
        solver="paper" if privacy == "per-round" else solver,
        degree=degree,
        density=density,
        edges=edges,
        consensus_density=consensus_density,
        coupling_by=coupling_by,
        resamples=resamples,
        alpha=alpha,
        beta=beta,
        nu=nu,
        lam=lambda_,
        zeta=zeta,
        threshold=threshold,
        rounds=rounds,
        form=form,
        local_steps=local_steps,
        step=step,
        momentum=momentum,
        coupling=coupling,
    )
    data = Data(tuple(files), nodes_in, standardise, candidates, neighbours, search, unit_column, coordinates)
    plan = GraphPlan(data, method, budget, engine=engine, seed=seed)
    _execute(plan, Path(), out, as_json, track)


@app.command()
def run(
    plan: Annotated[Path, typer.Argument(help="A plan file.")], out: Out, track: Track = None, as_json: AsJson = False
) -> None:
    """Run a plan file."""
    from silograph.run.plan import load

    _execute(load(plan), plan.parent, out, as_json, track)


@app.command()
def check(
    files: Annotated[list[str], typer.Argument(help="Tables to check, one per site; or a party's folder.")],
    data: Annotated[Path | None, typer.Option(help="The party's own table, with a party's folder.")] = None,
    nodes_in: NodesIn = "columns",
    as_json: AsJson = False,
) -> None:
    """Read the sites' tables, match their nodes, and say what is there.

    With a party's folder and --data: whether its table is what the deployment needs. Nothing leaves this machine.
    """
    from silograph.data.silos import read_silos
    from silograph.report.text import table

    if data is not None:
        party_check(Path(files[0]), data, as_json)
        return
    silos = read_silos([Path(name) for name in files], nodes_in)
    sites = [{"name": name, "signals": len(x)} for name, x in zip(silos.names, silos.signals, strict=True)]
    payload = {"sites": sites, "nodes": list(silos.nodes)}

    def words() -> None:
        show(table(("site", "signals"), [(str(s["name"]), str(s["signals"])) for s in sites]))
        print(f"{len(silos.nodes)} nodes, the same in every site. Ready to learn.")

    say(as_json, payload, words)


@app.command()
def privacy(
    what: Annotated[Path, typer.Argument(help="A plan file, or the folder of a finished run.")], as_json: AsJson = False
) -> None:
    """What a plan will cost before it runs, or what a run did cost."""
    from silograph.report.build import page_part
    from silograph.report.read import read_audits, read_result
    from silograph.report.text import bill, claim_lines, table
    from silograph.run.bill import bill_of_plan, bill_of_run
    from silograph.run.plan import load

    payload = bill_of_run(what) if what.is_dir() else bill_of_plan(what)
    method = read_result(what)["method"] if what.is_dir() else load(what).method.name
    if what.is_dir():
        audits = read_audits(what, read_result(what))
        payload["refuted"] = any(audit["refuted"] for audit in audits) if audits else None
        payload["leak"] = next((audit["leak"] for audit in audits if audit["leak"] is not None), None)

    def words() -> None:
        if payload.get("refuted"):
            print("REFUTED by an audit (audit.json): do not rely on the numbers below. The report says more.")
        if payload.get("leak") is not None:
            print(f"  No epsilon holds, whatever the noise: {payload['leak']}.")
        show(table(("site", "privacy", "against", "how"), bill(payload["guarantees"])))
        print(f"{payload['releases']} protected releases per site")
        show(claim_lines(payload["claim"]))
        show(page_part(method).forecast(payload))
        show(f"note: {note}" for note in payload["notes"])

    say(as_json, payload, words)


@app.command()
def personalise(
    start: Annotated[Path, typer.Argument(help="The folder of a private_meta run, or its models/start.npz.")],
    table: Annotated[Path, typer.Argument(help="A client's own labelled records.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="File for the client's model (NPZ).")],
    steps: Annotated[int | None, typer.Option(help="How many steps; the plan's if left out.")] = None,
    step: Annotated[float | None, typer.Option(help="Their size; the plan's if left out.")] = None,
    test: Annotated[Path | None, typer.Option(help="Other labelled records, to test the model on.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Make a shared start a client's own, on the client's machine; nothing leaves it."""
    from silograph.families.meta.personal import personalise as run_steps

    personal = run_steps(start, table, out, steps, step, test, device)

    def words() -> None:
        records = f"the {personal.tested} record{'s' * (personal.tested != 1)}"
        what = f"{records} it learned from" if personal.seen else f"{records} of {test}"
        print(f"{personal.measure} on {what}: {personal.before:.4f} before, {personal.after:.4f} after")
        if personal.seen:
            print("note: other records will fare worse; --test says how")
        print(f"model: {out}")

    say(as_json, {"model": str(out), **personal.to_json()}, words)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")], as_json: AsJson = False
) -> None:
    """Write the report of a finished run again."""
    from silograph.core.files import write_atomically
    from silograph.report.build import build as build_report
    from silograph.run.bill import bill_of_run

    page = build_report(folder)
    bill_of_run(folder)  # refuses a page whose numbers are not the ledger's
    write_atomically(folder / "report.html", page.encode())
    say(as_json, {"report": str(folder / "report.html")}, lambda: print(f"report: {folder / 'report.html'}"))


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which table or figure, or all; left out: list them.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many random repetitions (20, or 3 where one takes minutes).")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the papers' data sets (or SILOGRAPH_DATA).")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Also write the JSON, and a figure's page.")] = None,
    short: Annotated[bool, typer.Option("--short", help="Fewer rounds, where an entry has that.")] = False,
    full: Annotated[bool, typer.Option("--full", help="With all: the papers' own sizes, which take hours.")] = False,
    as_json: AsJson = False,
) -> None:
    """Redo a paper's table or figure: ours, its spread, the paper's number. With all: a gallery of everything."""
    from silograph.core.files import write_atomically
    from silograph.report.curves import page
    from silograph.report.text import table
    from silograph.reproduce.entries import ENTRIES, find

    if name is None:
        listing = [{"name": entry.name, "title": entry.title} for entry in ENTRIES.values()]
        say(
            as_json,
            {"entries": listing},
            lambda: show(table(("name", "what"), [(e["name"], e["title"]) for e in listing])),
        )
        return
    if name == "all":
        from silograph.gallery_cli import reproduce_all

        reproduce_all(out, seeds, full, data, as_json)
        return
    entry = find(name)
    with bar(name) as update:
        made = (entry.short if short and entry.short else entry.run)(seeds or entry.seeds, data, update)
    payload = made.to_json()
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / f"{name}.json", (json.dumps(payload, indent=1, allow_nan=False) + "\n").encode())
        if made.curves:
            write_atomically(out / f"{name}.html", page(payload).encode())

    def words() -> None:
        beside = ("paper", "reference") if "reference" in payload["rows"][0] else ("paper",)
        rows = [
            (
                row["case"],
                row["method"],
                row["metric"],
                f"{row['ours']:.3f}" + (f" ± {row['std']:.3f}" if payload.get("seeds", 2) > 1 else ""),
                *("" if row[column] is None else f"{row[column]:.3f}" for column in beside),
            )
            for row in payload["rows"]
        ]
        show(table(("case", "method", "metric", "ours", *beside), rows))
        for verdict in made.judged():
            print(f"verdict: {verdict}")
        for note in payload["notes"]:
            print(f"note: {note}")
        if out is not None and made.curves:
            print(f"report: {out / f'{name}.html'}")

    say(as_json, payload, words)


SAMPLES = samples()


def sample(
    folder: Annotated[Path, typer.Argument(help="Folder for the tables.")],
    seed: Annotated[int, typer.Option(help="Which sample; the same seed writes the same bytes.")] = 1,
    as_json: AsJson = False,
    **asked: bool,
) -> None:
    """Write five sites' sample tables, or others with a plan to start from; from a seeded generator."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(str(folder), "a new or empty folder", "something is there", "Choose another.")
    chosen = [name for name in SAMPLES if asked[name]] or ["sites"]
    if len(chosen) > 1:
        raise InputError("options", "one sample", f"--{' and --'.join(chosen)} came")
    paths = SAMPLES[chosen[0]].write(folder, seed)
    say(as_json, {"files": [str(path) for path in paths]}, lambda: show(str(path) for path in paths))


def _with_options() -> inspect.Signature:
    """An option for every family's sample."""
    plain = inspect.signature(sample, eval_str=True)
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False,
            annotation=Annotated[bool, typer.Option(f"--{name}", help=part.HELP)],
        )
        for name, part in SAMPLES.items()
    ]
    return plain.replace(parameters=[*list(plain.parameters.values())[:-1], *options])


sample.__signature__ = _with_options()  # type: ignore[attr-defined]
app.command()(sample)
