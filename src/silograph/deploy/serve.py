"""The server of a deployment: the same round loop, with organisations that are asked over a link."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from silograph.core.errors import InputError, SilographError
from silograph.core.files import LONGEST_CARD, write_atomically
from silograph.core.schema import read, read_json
from silograph.core.types import Json
from silograph.deploy.deployment import FILE, NODES, Deployment, open_job
from silograph.deploy.organisation import ENROLMENT, Card
from silograph.engines.certificates import check_certified, node_name
from silograph.engines.remote import Asking, Remote
from silograph.run.jobs import door_of
from silograph.run.results import write_result
from silograph.run.run import Finished, Progress, finish
from silograph.run.store import RunFolder

RESULT, REPORT, ROUNDS = "result.json", "report.html", "rounds.jsonl"

ACROSS = (
    "Every organisation ran its own part. The cost is read from ledger rows as the organisations reported them, "
    "signed with keys that "
    "they enrolled; an organisation's own ledger is its own evidence."
)


def read_cards(folder: Path, deployment: Deployment) -> dict[str, Card]:
    """What the organisations sent when they enrolled, by organisation; all of them, and all for this deployment."""
    cards = {}
    for organisation in deployment.facts.organisations:
        path = folder / NODES / f"{organisation}{ENROLMENT}"
        try:
            card = read(Card, read_json(path, LONGEST_CARD, str(path)), str(path), todo="`silograph enrol` makes it.")
        except FileNotFoundError:
            continue
        if (card.organisation, card.deployment) != (organisation, deployment.digest):
            todo = "Everybody must have the same deployment.json; compare the digests."
            raise InputError(str(path), f"the enrolment of {organisation} in this deployment", "it is of another", todo)
        if deployment.terms.tls:
            check_certified(card.tls.encode(), card.node.encode(), node_name(organisation), str(path))
        cards[organisation] = card
    if missing := sorted(deployment.facts.organisations.keys() - cards.keys()):
        todo = f"Each sends the file NAME{ENROLMENT} that `silograph enrol` made; put them into {folder / NODES}."
        raise InputError(
            str(folder / NODES), "the enrolments of all organisations", f"missing: {', '.join(missing)}", todo
        )
    if len({card.node for card in cards.values()}) < len(cards):
        raise InputError(str(folder / NODES), "a key of its own for every organisation", "two have the same")
    return cards


def serve(
    folder: Path,
    goal: Path,
    connect: Callable[[Deployment, dict[str, Card]], Asking],
    progress: Progress,
    report: Callable[[Path], str],
) -> Finished:
    """Run the deployment in `folder` to a finished run folder at `goal`, or go on with one that was interrupted.

    `connect` opens the link to the organisations; it is closed by whoever passed it in.
    """
    deployment = Deployment.read(folder)
    deployment.lay_out(folder)
    cards = read_cards(folder, deployment)
    plan, terms, organisations = deployment.plan, deployment.terms, deployment.facts.organisations
    job = open_job(deployment, folder)
    goal = Path(os.path.abspath(goal))
    run = RunFolder(goal, deployment.plan_text, [folder / FILE], plan.seed)
    try:
        door = door_of(job, run.root, run.ledger, plan.seed)
        identities = {
            name: bytes.fromhex(cards[organisation].identity)
            for organisation, names in organisations.items()
            for name in names
        }
        place = Remote(
            connect(deployment, cards),
            job.topo,
            door,
            organisations,
            deployment.digest,
            terms.minimum,
            terms.deadline,
            terms.patience,
            identities,
            lambda line: _note(run.path, line),
        )
        if not (run.path / RESULT).exists():

            def after(number: int, line: Json | None) -> None:
                place.tell()
                progress(number, line)

            _, told = finish(job, place, door, run, after, ACROSS, every_round=True)
            write_result(run.path, deployment.plan_text, plan.seed, door, told)
        write_atomically(run.path / REPORT, report(run.path).encode())
        last = run.load()
        if last is not None:
            place.end(last[0])
    except SilographError:
        run.release()  # the organisations remember what they sent: so must this folder, whatever went wrong
        raise
    result: Json = json.loads((run.path / RESULT).read_text(encoding="utf-8"))
    return Finished(run.finish(), result)


def _note(folder: Path, line: Json) -> None:
    """For those who watch; nothing depends on it."""
    with open(folder / ROUNDS, "a", encoding="utf-8") as file:
        file.write(json.dumps({"at": time.time(), **line}) + "\n")
