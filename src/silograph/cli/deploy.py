"""The commands of a deployment: `facts`, `deploy`, `enrol`, `drop`, `renew`, `join`, `serve`, `watch`."""

from __future__ import annotations

import contextlib
import json
import math
import signal
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silograph.cli.console import DEPLOY, AsJson, Out, register_in, say, show
from silograph.cli.journal import AsLog, Journal, terminable, terminated
from silograph.cli.monitor import OrganisationMonitor, Port, ServerMonitor, monitored
from silograph.core.errors import InputError
from silograph.core.types import Json
from silograph.report.printed import cost_rows, table

if TYPE_CHECKING:
    from silograph.engines.question import Question

Folder = Annotated[Path, typer.Argument(help="The folder that `silograph deploy` made for you.")]
Table = Annotated[
    Path | None,
    typer.Option("--data", help="Your own table; it stays where it is. Leave it out for a region's server."),
]
Web = Annotated[int | None, typer.Option(min=1, max=65535, help="A port for WebSocket, which passes web proxies.")]
Through = Annotated[
    str | None,
    typer.Option(envvar="SILOGRAPH_PROXY", help="A web proxy to go through, http://HOST:PORT.", show_envvar=True),
]


def register(app: typer.Typer) -> None:
    register_in(app, DEPLOY, facts, deploy, enrol, drop, renew, join, serve, watch)


def facts(
    plan: Annotated[Path, typer.Argument(help="The plan file.")],
    data: Annotated[Path, typer.Argument(help="Your own table.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write (default: standard output).")] = None,
) -> None:
    """Write the facts about your table that others need before a deployment: names, columns, numbers of records."""
    from silograph.core.files import write_atomically
    from silograph.deploy.public_facts import organisation_facts
    from silograph.run.plan import load

    text = json.dumps(organisation_facts(load(plan), data), indent=1) + "\n"
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text.encode())
        print(f"{out}: send it to whoever makes the deployment; it goes beside the plan as NAME.facts.json")


def deploy(
    plan: Annotated[Path, typer.Argument(help="The plan file, with tables or NAME.facts.json beside it.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder to write; new or empty.")],
    address: Annotated[str, typer.Option(help="Where organisations reach the server, HOST:PORT.")] = "127.0.0.1:8765",
    minimum: Annotated[int, typer.Option(help="The fewest silos that a round needs.")] = 2,
    deadline: Annotated[float, typer.Option(help="Seconds a round waits for its organisations.")] = 120.0,
    patience: Annotated[
        float, typer.Option(help="Seconds to wait before a run with too few organisations ends.")
    ] = 600.0,
    plain: Annotated[bool, typer.Option("--plain", help="No encryption: only to try things on this machine.")] = False,
    regions: Annotated[
        bool, typer.Option("--regions", help="Make a server for every region, at the ports from --address on.")
    ] = False,
    region: Annotated[
        list[str] | None, typer.Option(help="Address of a region's server, NAME=HOST:PORT; implies --regions.")
    ] = None,
    after: Annotated[
        Path | None,
        typer.Option(help="A folder of the previous deployment, which this one continues with other silos."),
    ] = None,
    paused: Annotated[
        int | None, typer.Option("--round", min=1, help="With --after: the round after which it paused.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a folder for the server and one for each organisation, with all they need and a page of instructions."""
    from silograph.deploy.deployment import REGIONS, SERVER, SILOS, Terms
    from silograph.deploy.deployment import deploy as write
    from silograph.report.deployment import page
    from silograph.run.plan import load

    chosen = load(plan)
    told = dict(each.partition("=")[::2] for each in region or [])
    terms = Terms(address, not plain, minimum, deadline, patience)
    if (after is None) != (paused is None):
        raise InputError("deploy", "--after and --round together", "found one of them")
    before = None if after is None or paused is None else (after, paused)
    made = write(chosen, plan.parent, out, terms, page, told if regions or region else None, before)
    organisations = list(made.facts.organisations)

    def words() -> None:
        for text in chosen.left_out():
            print(f"note: {text}")
        for name, place in made.regions.items():
            print(f"region: {out / REGIONS / name} at {place}")
        if not made.regions:
            print(f"server: {out / SERVER}")
        for organisation in organisations:
            print(f"organisation:  {out / SILOS / organisation if made.regions else out / organisation}")
        print(f"digest: {made.digest}")
        print("Send every organisation its folder, through a channel you trust; README.html in each says what to do.")

    say(as_json, {"folder": str(out), "organisations": organisations, "digest": made.digest}, words)


def organisation_check(folder: Path, data: Path, as_json: bool) -> None:
    from silograph.deploy.deployment import Deployment
    from silograph.deploy.organisation import check, organisation_of

    job, deployment = check(folder, data), Deployment.read(folder)
    forecast = job.forecast()
    organisation = organisation_of(folder, deployment)
    payload = {"organisation": organisation, "digest": deployment.digest, "most_rounds": job.most_rounds}

    def words() -> None:
        print(f"{data} fits what the deployment needs from {organisation}. Nothing left this machine.")
        show(table(("site", "privacy", "against", "how"), cost_rows(forecast["guarantees"])))
        print(f"digest: {deployment.digest}")

    say(as_json, {**payload, "forecast": forecast}, words)


def enrol(
    folder: Folder,
    data: Table = None,
    after: Annotated[
        Path | None, typer.Option(help="Your folder of the previous deployment, if this one continues it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check your table, approve the deployment and make your keys. Do this once."""
    from silograph.deploy.organisation import enrol as register_organisation

    if data is None:
        enrol_region(folder, as_json)
        return
    made = register_organisation(folder, data, after)

    def words() -> None:
        if made.rehearsal:
            print("REHEARSAL: the plan has a seed, so whoever has it can remove the noise. Do not use real data.")
        print(f"approved deployment {made.digest}")
        print(f"your key: {made.fingerprint}")
        print(f"send {made.card} to the server's operator, then: silograph join {folder}")

    say(as_json, {"card": str(made.card), "digest": made.digest, "fingerprint": made.fingerprint}, words)


def enrol_region(folder: Path, as_json: bool) -> None:
    from silograph.deploy.region import enrol_region as register

    made = register(folder)

    def words() -> None:
        print(f"approved deployment {made.digest}")
        print(f"your key: {made.fingerprint}")
        print(f"send {made.card} to your silos: {', '.join(made.silos)}")
        print(f"and to your neighbours: {', '.join(made.neighbours) or 'none'}; then: silograph serve {folder} -o OUT")

    payload = {"card": str(made.card), "digest": made.digest, "fingerprint": made.fingerprint}
    say(as_json, {**payload, "silos": list(made.silos), "neighbours": list(made.neighbours)}, words)


def drop(
    folder: Annotated[Path, typer.Argument(help="The folder of your region's server.")],
    neighbour: Annotated[str, typer.Argument(help="The region that will not answer again.")],
) -> None:
    """Give up the link to a neighbour for good. The neighbour does the same, unless it no longer exists."""
    from silograph.deploy.region import drop as give_up

    left = give_up(folder, neighbour)
    print(f"you gave up the link to {neighbour}; links remain to {', '.join(left)}. Type `silograph serve` again.")
    print(f"{neighbour} can continue only if its operator gives up the link to you, too.")


def renew(
    folder: Folder, new_key: Annotated[bool, typer.Option("--new-key", help="Make a new key, too.")] = False
) -> None:
    """Make a new TLS certificate before the old one expires, for an organisation or the server. The deployment does
    not change."""
    from silograph.deploy.deployment import Deployment
    from silograph.deploy.organisation import renew as write_anew
    from silograph.deploy.region import region_of, write_region_card
    from silograph.engines.certificates import (
        SERVER,
        SERVER_NAME,
        certify_node,
        fingerprint,
        make_node_key,
        renew_server,
    )

    if (folder / SERVER).exists():
        deployment = Deployment.read(folder)
        region = region_of(folder, deployment)
        renew_server(folder, [deployment.at(region).host], new_key=new_key)
        if new_key:
            make_node_key(folder, anew=True)
        if region is not None:
            print(f"send {write_region_card(folder, region, deployment)} to your silos and neighbours")
        else:
            certify_node(folder, SERVER_NAME)
        print("type `silograph serve` again" + ("; the organisations need not do anything" if region is None else ""))
        return
    card = write_anew(folder, new_key)
    if new_key:
        print(f"your key: {fingerprint(folder / 'node.pub')}")
    print(f"send {card} to the server's operator, who puts it into nodes and types `silograph serve` again")


def join(
    folder: Folder,
    data: Annotated[Path | None, typer.Option(help="Your table, if it moved since you enrolled.")] = None,
    patience: Annotated[float | None, typer.Option(help="Seconds to wait for a server that does not answer.")] = None,
    websocket: Web = None,
    proxy: Through = None,
    monitor: Port = None,
    json_log: AsLog = False,
) -> None:
    """Take part: answer the server until the run is over. After a crash, type the same command to resume."""
    from silograph.cli.aside import conclude_aside, prepare_aside
    from silograph.deploy.connect import answering
    from silograph.deploy.organisation import Approved
    from silograph.engines.certificates import ending_soon, ends_in
    from silograph.engines.question import OlderFolderError

    if patience is not None and not 0.0 < patience < math.inf:
        raise InputError("join, patience", "seconds above 0", f"found {patience}")
    journal = Journal(json_log, folder)
    with journal.errors(), terminable("join"):
        organisation = Approved.open(folder, data)
        for text in ending_soon(ends_in(folder)):
            journal.tell(text)
        prepared = prepare_aside(organisation)

        def said(question: Question) -> None:
            watched.rounds = question.round + (question.kind == "local")
            if json_log:
                journal.note("question", "", round=question.round, kind=question.kind)
            else:
                print(f"round {question.round}: {question.kind}", flush=True)

        silo = organisation.silo(said, journal.tell, prepared)
        older: list[OlderFolderError] = []

        def answer(question: bytes) -> bytes:
            try:
                return silo.answer(question)
            except OlderFolderError as error:  # it would refuse all that comes
                older.append(error)
                raise

        watched = OrganisationMonitor(organisation, answer)
        try:
            if not silo.finished:
                with _stoppable() as heard, answering(organisation, websocket, proxy) as line:
                    watched.line = line
                    wait = organisation.deployment.terms.patience if patience is None else patience
                    with monitored(monitor, watched.pulse, journal.tell):
                        line.serve(watched, lambda: silo.finished or bool(heard or older), wait, journal.tell)
                if older:
                    raise older[0]
                if signal.SIGTERM in heard:
                    raise terminated("join")
                if heard:
                    raise KeyboardInterrupt
        finally:
            silo.close()
        organisation.forget()
        conclude_aside(organisation)
    if json_log:
        journal.note("over", "", result="own.npz", account="own.json")
    print(f"The run is over. Your result: {folder / 'own.npz'}; your cost: {folder / 'own.html'}")


@contextlib.contextmanager
def _stoppable() -> Iterator[list[int]]:
    """A request to end, from a terminal or a supervisor, is heard between two questions."""
    heard: list[int] = []
    before = {number: signal.signal(number, lambda n, _: heard.append(n)) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve(
    folder: Annotated[Path, typer.Argument(help="The server's folder that `silograph deploy` made.")],
    out: Out,
    host: Annotated[str | None, typer.Option(help="Address to listen on (default: the deployment's).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (default: the deployment's).")] = None,
    nats: Annotated[str | None, typer.Option(help="HOST:PORT of your own nats-server (default: start one).")] = None,
    websocket: Web = None,
    proxy: Through = None,
    pause: Annotated[
        int | None, typer.Option(min=1, help="Pause after this round, to continue later or elsewhere.")
    ] = None,
    after: Annotated[
        Path | None,
        typer.Option(help="With a deployment that continues another: the paused run folder.", metavar="RUN"),
    ] = None,
    monitor: Port = None,
    json_log: AsLog = False,
    as_json: AsJson = False,
) -> None:
    """Run a deployment: wait for the organisations, ask them, write the result. After a crash, type the same command
    to resume."""
    from silograph.cli.attendance import attended
    from silograph.deploy.connect import among_neighbours, asking
    from silograph.deploy.deployment import Deployment
    from silograph.deploy.organisation import Card
    from silograph.deploy.region import region_of
    from silograph.deploy.serve import serve as run_server
    from silograph.engines.certificates import ending_soon, ends_in, expires, key_fingerprint
    from silograph.engines.neighbours import Neighbours
    from silograph.engines.remote import Asking
    from silograph.report.build import build as build_report
    from silograph.run.run import PausedError

    journal, watched = Journal(json_log), ServerMonitor(folder, out)
    with journal.errors(), terminable("serve"), contextlib.ExitStack() as open_links:
        open_links.enter_context(monitored(monitor, watched.pulse, journal.tell))

        def connect(deployment: Deployment, cards: dict[str, Card]) -> Asking:
            region = region_of(folder, deployment)
            line = open_links.enter_context(asking(folder, deployment, cards, host, port, nats, region, websocket))
            ends, here = ends_in(folder), version("silograph")
            for organisation, card in cards.items():
                journal.tell(f"{organisation}: {key_fingerprint(card.node.encode())}")
                ends[f"of {organisation}"] = expires(card.tls.encode(), f"certificate of {organisation}")
                if card.silograph != here:
                    journal.tell(
                        f"{organisation} enrolled with silograph {card.silograph or 'below 0.2'}; this server runs "
                        f"{here}"
                    )
            for text in ending_soon(ends):
                journal.tell(text)
            terms = deployment.at(region)
            web = "" if websocket is None or nats is not None else f" and {websocket} (WebSocket)"
            journal.tell(f"at {nats or f'{host or terms.host}:{port or terms.port}'}{web} for {', '.join(cards)}")
            watched.line, watched.deployment, watched.organisations = line, deployment.digest, tuple(cards)
            open_links.enter_context(attended(watched.seen, journal))
            return line

        def progress(number: int, line: Json | None) -> None:
            gap = line.get("gap") if line else None
            text = f"round {number}" + (f", gap {gap:.1e}" if gap is not None else "")
            journal.note("round", text, round=number, **({} if gap is None else {"gap": gap}))

        def meet(deployment: Deployment, region: str, line: Asking) -> Neighbours:
            there = among_neighbours(folder, deployment, region, line, journal.tell, proxy)
            watched.neighbours = open_links.enter_context(there)
            return watched.neighbours

        try:
            finished = run_server(folder, out, connect, progress, build_report, meet, pause, after)
        except PausedError as paused:
            text = f"Paused after round {paused.round}. Type the same command without --pause to continue."
            say(as_json, {"paused": paused.round}, partial(print, text))
            return
    guarantees = finished.result["privacy"]["guarantees"]

    def words() -> None:
        if finished.before:
            print("This run was already over.")
        show(table(("site", "privacy", "against", "how"), cost_rows(guarantees)))
        if finished.unaware:
            print(f"not yet informed that the run is over: {', '.join(finished.unaware)}. Type the same command again.")
        print(f"report: {finished.folder / 'report.html'}")

    say(as_json, finished.result, words)


def watch(
    out: Annotated[Path, typer.Argument(help="The run folder that a server or a run writes.", metavar="RUN")],
    once: Annotated[bool, typer.Option("--once", help="Print the state once and exit.")] = False,
    page: Annotated[
        int | None, typer.Option(help="Show a live page at this port of this machine, until Ctrl-C.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Watch a run under way: rounds, who answered, the gap, the budget each silo has spent."""
    from silograph.report.local_page import HTML, LocalPages
    from silograph.report.watch import follow, live_page, state_of

    if once or as_json:
        seen = state_of(out)
        say(as_json, seen.to_json(), lambda: print(seen.text()))
    elif not out.exists() and not (out.parent / f".{out.name}.unfinished").exists():
        raise InputError(str(out), "a run under way, or finished", "there is none")
    elif page is not None:
        with LocalPages(page, {"/": lambda: (200, HTML, live_page(out))}) as pages:
            print(f"http://127.0.0.1:{pages.port}/ until Ctrl-C", flush=True)
            signal.pause()
    else:
        follow(out)
