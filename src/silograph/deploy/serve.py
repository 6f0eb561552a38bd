"""The server of a deployment: the same round loop, with organisations that are asked over a link."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from silograph.core.errors import InputError, SilographError
from silograph.core.files import LONGEST_CARD, LONGEST_FACTS, write_atomically
from silograph.core.schema import read, read_json
from silograph.core.types import Json
from silograph.deploy.after import refuse_moved, take_over_run
from silograph.deploy.deployment import FILE, NODES, Deployment, open_job
from silograph.deploy.organisation import ENROLMENT, Card
from silograph.deploy.region import Linked, check_approved, dropped, part_of_job, region_of
from silograph.engines.certificates import check_certified, node_name
from silograph.engines.neighbours import Neighbours
from silograph.engines.remote import Asking, Remote
from silograph.run.jobs import Job, door_of
from silograph.run.results import write_result
from silograph.run.run import Finished, PausedError, Progress, finish
from silograph.run.store import Kept, RunFolder

RESULT, REPORT, ROUNDS, ENDING = "result.json", "report.html", "rounds.jsonl", "ending.json"

ACROSS = (
    "Every organisation ran its own part. The cost is read from the ledger rows that the organisations reported, "
    "signed with the keys that they enrolled; an organisation's own ledger is its own evidence."
)


APART = (
    "Every region ran its own server. This is what one of them knows: its own model, and the cost of its own silos as "
    "they reported it, signed. Whoever has the folders of all regions can compute how far apart they are."
)

DROPPED_LINKS = (
    "Links were given up during the run: to {}. From then on their weight stayed with this region's own model."
)

GONE = "{} did not hand over a result in time; the consensus graph, or the cluster's model, replaces it."


@dataclass(frozen=True)
class Ended(Finished):
    """`unaware` organisations and regions have not heard that the run is over; `before`: it was when this was
    called."""

    unaware: tuple[str, ...] = ()
    before: bool = False


def read_cards(folder: Path, deployment: Deployment, region: str | None = None) -> dict[str, Card]:
    """Read what the organisations of this server sent when they enrolled. A missing one, or one of another deployment,
    is refused."""
    cards, expected = {}, deployment.held_at(region)
    for organisation in expected:
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
    if missing := sorted(expected.keys() - cards.keys()):
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
    meet: Callable[[Deployment, str, Asking], Neighbours] | None = None,
    pause: int | None = None,
    before: Path | None = None,
) -> Ended:
    """Run the deployment in `folder` to a finished run folder at `goal`, or go on with one that was interrupted.

    `connect` opens the link to the organisations, `meet` those of a region to its neighbours; whoever passed them in
    closes them. After `pause` rounds it is a PausedError. `before` is where the run of the deployment before paused.
    """
    deployment = Deployment.read(folder)
    deployment.lay_out(folder)
    region = region_of(folder, deployment)
    if deployment.regions and region is None:
        todo = "Keep the folder's name as `silograph deploy` made it; a silo types `silograph join`."
        raise InputError(str(folder), "the folder of a region's server", "it is another", todo)
    cards = read_cards(folder, deployment, region)
    plan, terms, organisations = deployment.plan, deployment.at(region), deployment.held_at(region)
    if region is None:
        job = open_job(deployment, folder)
    else:
        check_approved(folder, deployment)
        job = part_of_job(deployment, region, folder)
    goal = Path(os.path.abspath(goal))
    if (waiting := _waiting_for_the_end(goal, deployment.digest)) is not None:
        if not waiting.everybody:
            return _ended(goal, waiting, before=True)
        link = connect(deployment, cards)
        heard = link.ask(waiting.organisations, terms.deadline).replies if waiting.organisations else {}
        still = waiting.but(heard)
        if waiting.neighbours:
            assert region is not None, "only a region has neighbours"
            assert meet is not None, "whoever serves a region can meet its neighbours"
            left = meet(deployment, region, link).farewell_again(waiting.round, waiting.neighbours)
            still = replace(still, neighbours=left)
        still.keep(goal, deployment.digest)
        return _ended(goal, still, before=True)
    run = RunFolder(goal, deployment.plan_text, [folder / FILE], plan.seed)
    try:
        refuse_moved(run.path)
        _begin(run, job, deployment, before)
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
        across, first = Kept(run, door), 0 if deployment.after is None else deployment.after.round
        if region is not None:
            assert meet is not None, "whoever serves a region can meet its neighbours"
            place.around = neighbours = meet(deployment, region, place.link)
            across = Linked(run, door, neighbours)
        if not (run.path / RESULT).exists():
            known = run.load()
            if region is not None and (known is None or known[0].round == first):
                place.wait_for_everybody()
                neighbours.muster()

            def after(number: int, line: Json | None) -> None:
                place.tell()
                progress(number, line)

            try:
                _, told = finish(job, place, door, run, after, ACROSS if region is None else APART, across, pause)
            except PausedError as paused:
                if isinstance(across, Linked):
                    across.part(paused.round)
                raise
            if region is not None and (links := dropped(folder, deployment)):
                told.privacy.notes.append(DROPPED_LINKS.format(", ".join(links)))
            if place.gone:
                told.privacy.notes.append(GONE.format(", ".join(place.gone)))
            write_result(run.path, deployment.plan_text, plan.seed, door, told)
        write_atomically(run.path / REPORT, report(run.path).encode())
        if (last := run.load()) is not None:
            endings = place.endings(job.method, last[0])
            waiting = _Waiting(endings, {}, last[0].round).but(place.end(endings))
            waiting.keep(run.path, deployment.digest)
            if isinstance(across, Linked) and (left := across.part(last[0].round)):
                replace(waiting, neighbours=left).keep(run.path, deployment.digest)
    except SilographError:
        run.release()  # the organisations remember what they sent: so must this folder, whatever went wrong
        raise
    run.finish()
    return _ended(goal, _waiting_for_the_end(goal, deployment.digest))


def _begin(run: RunFolder, job: Job, deployment: Deployment, before: Path | None) -> None:
    """If this deployment continues another one, take over what that run left here."""
    if (run.path / RESULT).exists() or run.load() is not None:
        return
    if (deployment.after is None) != (before is None):
        todo = "Add --after with the run folder that paused." if before is None else "Leave --after out."
        expected, found = ("a run to go on from", "none") if before is None else ("a run from its beginning", "another")
        raise InputError("serve, after", f"{expected}, as deployment.json has it", f"found {found}", todo)
    if deployment.after is not None and before is not None:
        take_over_run(run, job, deployment.digest, deployment.after, before)


# ---- after the end ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Waiting:
    """Who has not heard that the run is over: organisations, and what they are to hear; neighbours, and what they may
    still need of that many rounds."""

    organisations: Mapping[str, bytes]
    neighbours: Mapping[str, bytes]
    round: int

    @property
    def everybody(self) -> tuple[str, ...]:
        return (*sorted(self.organisations), *(f"region {name}" for name in sorted(self.neighbours)))

    def but(self, heard: Collection[str]) -> _Waiting:
        """Without organisations that have heard."""
        return replace(self, organisations={k: blob for k, blob in self.organisations.items() if k not in heard})

    def keep(self, folder: Path, digest: str) -> None:
        told = {"deployment": digest, "round": self.round}
        told |= {"waiting": _as_text(self.organisations), "neighbours": _as_text(self.neighbours)}
        write_atomically(folder / ENDING, (json.dumps(told) + "\n").encode(), 0o600)


def _as_text(blobs: Mapping[str, bytes]) -> Json:
    return {name: base64.b64encode(blob).decode() for name, blob in blobs.items()}


def _as_bytes(told: Json) -> dict[str, bytes]:
    return {name: base64.b64decode(blob) for name, blob in told.items()}


def _waiting_for_the_end(goal: Path, digest: str) -> _Waiting | None:
    """Return who has not yet heard that the run at `goal` is over; None if there is no such run."""
    if not (goal / RESULT).is_file() or not (goal / ENDING).is_file():
        return None
    told = read_json(goal / ENDING, LONGEST_FACTS, str(goal / ENDING))
    if told.get("deployment") != digest:
        return None
    return _Waiting(_as_bytes(told["waiting"]), _as_bytes(told.get("neighbours", {})), told.get("round", 0))


def _ended(goal: Path, waiting: _Waiting | None, before: bool = False) -> Ended:
    result: Json = json.loads((goal / RESULT).read_text(encoding="utf-8"))
    return Ended(goal, result, () if waiting is None else waiting.everybody, before)


def _note(folder: Path, line: Json) -> None:
    """Write a line for `silograph watch`; nothing else depends on it."""
    with open(folder / ROUNDS, "a", encoding="utf-8") as file:
        file.write(json.dumps({"at": time.time(), **line}) + "\n")
