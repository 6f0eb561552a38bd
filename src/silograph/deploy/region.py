"""A region's server as an organisation of its own: it approves the deployment, makes its authority and keys, and is
certified to its silos and to the regions that it talks to by what it sends them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from silograph.core.errors import InputError
from silograph.core.files import LONGEST_CARD, write_atomically
from silograph.core.schema import Such, read, read_json, write
from silograph.deploy.deployment import NODES, Deployment, divided, open_job
from silograph.engines.certificates import (
    CA,
    DAYS,
    NODE_KEY,
    NODE_PUBLIC,
    TLS,
    certify_node,
    check_certified,
    fingerprint,
    make_authority,
    make_node_key,
    node_name,
)
from silograph.engines.neighbours import Neighbours, node_of
from silograph.engines.notes import Notes
from silograph.engines.turns import Rows
from silograph.methods.base import Half
from silograph.privacy.door import Door
from silograph.run.jobs import Divisible, Job
from silograph.run.store import Kept, RunFolder

APPROVED, DROPPED, CARD = "approved.json", "dropped.json", ".region.json"
_Ascii = Annotated[str, Such("a certificate or public key in ASCII", str.isascii)]


@dataclass(frozen=True)
class RegionCard:
    """What a region's server sends its silos and its neighbours: its public key, and the authority of its server."""

    region: str
    deployment: str
    node: _Ascii
    tls: _Ascii
    authority: _Ascii


@dataclass(frozen=True)
class EnrolledRegion:
    """`card` goes to `silos` and to `neighbours`, or to all other regions where a sum is over all of them; nothing in
    it is secret."""

    card: Path
    digest: str
    fingerprint: str
    silos: tuple[str, ...]
    neighbours: tuple[str, ...]


def region_of(folder: Path, deployment: Deployment) -> str | None:
    """The region whose server's folder this is, which has its name; None where it is a silo's, or a star's."""
    where = folder.resolve()
    return where.name if where.name in deployment.regions and (where / NODES).is_dir() else None


def enrol_region(folder: Path) -> EnrolledRegion:
    """Approve the deployment as it is now, and make this region's authority and keys."""
    deployment = Deployment.read(folder)
    if (region := region_of(folder, deployment)) is None:
        todo = "A silo enrols with its table: `silograph enrol FOLDER --data TABLE`."
        raise InputError(str(folder), "the folder of a region's server", "it is another", todo)
    if (folder / APPROVED).exists():
        raise InputError(str(folder), "a region that is not enrolled yet", "it is", "Go on with `silograph serve`.")
    deployment.lay_out(folder)
    job = part_of_job(deployment, region, folder)
    if deployment.terms.tls and not (folder / CA).exists():
        make_authority(folder, [deployment.at(region).host], DAYS)
    if not (folder / NODE_KEY).exists():
        make_node_key(folder)
    card = write_region_card(folder, region, deployment)
    write_atomically(folder / APPROVED, json.dumps({"deployment": deployment.digest}).encode())
    others = tuple(name for name in known_to(job) if name != region)
    silos = deployment.facts.regions[region]
    return EnrolledRegion(card, deployment.digest, fingerprint(folder / NODE_PUBLIC), silos, others)


def write_region_card(folder: Path, region: str, deployment: Deployment) -> Path:
    certify_node(folder, node_name(node_of(region)))
    node, tls = ((folder / name).read_text(encoding="ascii") for name in (NODE_PUBLIC, TLS))
    authority = (folder / CA).read_text(encoding="ascii") if deployment.terms.tls else ""
    card = folder / f"{region}{CARD}"
    told = RegionCard(region, deployment.digest, node.strip(), tls, authority)
    write_atomically(card, (json.dumps(write(told), indent=1) + "\n").encode())
    return card


def read_region_card(path: Path, region: str, deployment: Deployment) -> RegionCard:
    """The card of that region, for this deployment; its authority is then written beside it."""
    todo = f"Whoever runs region {region} sends it: `silograph enrol` made it."
    try:
        card = read(RegionCard, read_json(path, LONGEST_CARD, str(path)), str(path), todo=todo)
    except FileNotFoundError:
        raise InputError(str(path), f"the card of region {region}", "there is none", todo) from None
    if (card.region, card.deployment) != (region, deployment.digest):
        todo = "Everybody must have the same deployment.json; compare the digests."
        raise InputError(str(path), f"the card of region {region} in this deployment", "it is of another", todo)
    if deployment.terms.tls:
        check_certified(card.tls.encode(), card.node.encode(), node_name(node_of(region)), str(path))
        write_atomically(authority_of(path), card.authority.encode())
    return card


def authority_of(card: Path) -> Path:
    return card.with_name(card.name.removesuffix(CARD) + ".crt")


def check_approved(folder: Path, deployment: Deployment) -> None:
    try:
        agreed = read_json(folder / APPROVED, LONGEST_CARD, str(folder / APPROVED))
    except FileNotFoundError:
        todo = f"`silograph enrol {folder}` does that once."
        raise InputError(str(folder), "an enrolled region", "it is not", todo) from None
    if agreed.get("deployment") != deployment.digest:
        todo = "Ask why. To take part in the new one, enrol in a new folder."
        raise InputError(str(folder), "the deployment that was approved here", "it changed since", todo)


def part_of_job(deployment: Deployment, region: str, folder: Path) -> Job:
    """The job as one region's server knows it."""
    return divided(open_job(deployment, folder), region, dropped(folder, deployment))


def known_to(job: Job) -> tuple[str, ...]:
    """The regions whose cards a region's server needs: those it hears, or all."""
    assert isinstance(job, Divisible), "it was divided"
    return job.topo.graph.servers if job.hears_all else job.topo.heard


def dropped(folder: Path, deployment: Deployment) -> tuple[str, ...]:
    """Neighbours to which this region has no link any more."""
    if not (folder / DROPPED).exists():
        return ()
    told = read_json(folder / DROPPED, LONGEST_CARD, str(folder / DROPPED))
    if told.get("deployment") != deployment.digest:
        raise InputError(str(folder / DROPPED), "links of this deployment", "it is of another", "Take it away.")
    return tuple(map(str, told["links"]))


def drop(folder: Path, neighbour: str) -> tuple[str, ...]:
    """Give up a link for good, from the current round on. Return the neighbours that are left."""
    deployment = Deployment.read(folder)
    if (region := region_of(folder, deployment)) is None:
        raise InputError(str(folder), "the folder of a region's server", "it is another")
    left = [name for name in part_of_job(deployment, region, folder).topo.heard if name != region]
    if neighbour not in left:
        raise InputError(f"region {neighbour}", f"a neighbour of {region}: {', '.join(left)}", "it is none of them")
    if len(left) < 2:
        found = f"{neighbour} is the only one that is left"
        raise InputError(f"region {region}", "another neighbour to go on with", found, "Wait for it, or end the run.")
    links = [*dropped(folder, deployment), neighbour]
    divided(open_job(deployment, folder), region, links)  # refuses what takes all regions
    content = json.dumps({"deployment": deployment.digest, "links": links})
    write_atomically(folder / DROPPED, content.encode())
    return tuple(name for name in left if name != neighbour)


class Linked(Kept):
    """Sends rows to the neighbours after they were written to disk."""

    def __init__(self, folder: RunFolder, door: Door, neighbours: Neighbours) -> None:
        super().__init__(folder, door)
        self._neighbours, self._notes = neighbours, Notes(folder.path)

    def held(self, round: int) -> Half | None:
        self._neighbours.begin(round, self._notes, lambda: self.sent(round - 1))
        return super().held(round)

    def exchange(self, round: int, half: Half) -> Rows:
        return self._neighbours.exchange(round, half.sent, lambda: self.sent(round - 1))

    def part(self, round: int) -> dict[str, bytes]:
        """Say goodbye after the last round. Return what neighbours that said no goodbye may still need."""

        def before() -> Rows | None:
            return self.sent(round - 1)

        self._neighbours.begin(round, self._notes, before)
        return self._neighbours.farewell(round, before)

    def sent(self, round: int) -> Rows | None:
        """Return what was sent in a round before this process started."""
        found = self.folder.held(round) if round >= 0 else None
        return None if found is None else found[0].sent
