"""An organisation's part of a deployment: look at its own table, enrol once, then answer until the run is over."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from silograph.core.errors import DamageError, InputError
from silograph.core.files import LONGEST_CARD, content_of, write_atomically
from silograph.core.keys import secret_root
from silograph.core.schema import Such, read, read_json, write
from silograph.core.toml import parse_toml
from silograph.core.types import Json
from silograph.deploy.after import refuse_moved, take_over_ledger
from silograph.deploy.deployment import NODES, Deployment
from silograph.deploy.public_facts import open_organisation
from silograph.deploy.region import CARD as REGION_CARD
from silograph.deploy.region import authority_of, read_region_card
from silograph.engines.certificates import (
    CA,
    NODE_KEY,
    NODE_PUBLIC,
    TLS,
    certify_node,
    check_certified,
    client_tls,
    fingerprint,
    make_node_key,
    node_name,
)
from silograph.engines.question import Question
from silograph.engines.silo import OWN, Silo
from silograph.engines.sums import SumAgents, home_of
from silograph.methods.base import Method, Private
from silograph.privacy.door import Budget
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Noise
from silograph.run.jobs import Job, door_of
from silograph.run.results import costs, stated
from silograph.topology import Topology

APPROVED, IDENTITY, ROOT, LEDGER, ROSTER = "approved.json", "identity.key", "root", "ledger.jsonl", "roster.json"
ENROLMENT, OWN_FACTS, OWN_PAGE = ".enrolment.json", "own.json", "own.html"
_Ascii = Annotated[str, Such("a public key in ASCII", str.isascii)]
_Hex = Annotated[str, Such("a public key in hexadecimal digits", lambda key: bool(re.fullmatch("([0-9a-f]{2})*", key)))]
_ANEW = "Or enrol again, in a new folder and a new deployment; what was spent here stays spent."


@dataclass(frozen=True)
class Card:
    """What an organisation sends the server's operator when it enrols: its public keys, and the `silograph` it has."""

    organisation: str
    deployment: str
    node: _Ascii
    identity: _Hex
    tls: _Ascii
    silograph: _Ascii = ""


@dataclass(frozen=True)
class _Agreed:
    """What an organisation approved: the digest of a deployment, and its own table."""

    deployment: str
    table: str
    content: str
    ledger: str = ""  # the tip of what was taken over from a deployment before


@dataclass(frozen=True)
class Enrolled:
    """`card` goes to the server's operator; nothing in it is secret. Compare `digest` with the other organisations'."""

    card: Path
    digest: str
    fingerprint: str
    rehearsal: bool


def organisation_of(folder: Path, deployment: Deployment) -> str:
    """Return the organisation of a folder, by the folder's name: so it cannot take another's part by mistake."""
    name = folder.resolve().name
    if name not in deployment.facts.organisations:
        known = ", ".join(deployment.facts.organisations)
        todo = "Keep the folder's name as `silograph deploy` made it."
        raise InputError(str(folder), f"a folder of one of the organisations: {known}", f"it is called {name}", todo)
    return name


def check(folder: Path, table: Path) -> Job:
    """Refuse a table that is not what the plan needs. Nothing leaves this machine, and nothing is written."""
    deployment = Deployment.read(folder)
    deployment.lay_out(folder)
    return open_organisation(deployment.plan, deployment.facts, organisation_of(folder, deployment), table, folder)


def enrol(folder: Path, table: Path, before: Path | None = None) -> Enrolled:
    """Check the table, approve the deployment as it is now, make this organisation's keys. `before` is its folder of
    the deployment where this one goes on."""
    deployment, job = Deployment.read(folder), check(folder, table)
    organisation = organisation_of(folder, deployment)
    approved = folder / APPROVED
    if approved.exists():
        raise InputError(
            str(folder), "an organisation that is not enrolled yet", "it is", "Go on with `silograph join`."
        )
    _rows(
        job, deployment.facts.organisations[organisation]
    )  # whatever a task finds wrong, now rather than in the first round
    if not (folder / NODE_KEY).exists():
        make_node_key(folder)
    if not (folder / IDENTITY).exists():
        write_atomically(folder / IDENTITY, Ed25519PrivateKey.generate().private_bytes_raw().hex().encode(), 0o600)
    ledger = _taken_over(folder, deployment, organisation, before)
    card = _write_card(folder, organisation, deployment.digest)
    agreed = _Agreed(deployment.digest, str(table.resolve()), _mark(folder, table), ledger)
    write_atomically(approved, json.dumps(write(agreed)).encode())
    rehearsal = deployment.plan.privacy is not None and deployment.plan.seed is not None
    return Enrolled(card, deployment.digest, fingerprint(folder / NODE_PUBLIC), rehearsal)


def _taken_over(folder: Path, deployment: Deployment, organisation: str, before: Path | None) -> str:
    """Continue the ledger of the organisation's old folder here: what was spent stays spent. The old folder is over."""
    after = deployment.after
    if (was := after is not None and organisation in after.organisations) != (before is not None):
        todo = "Add --after with that folder: its ledger continues here." if was else "Leave --after out."
        expected = "its folder of the deployment before" if was else "no folder of a deployment before: it is new here"
        raise InputError(f"organisation {organisation}", expected, "found none" if was else "found one", todo)
    if before is None or after is None:
        return ""
    if Deployment.read(before).digest != after.deployment or organisation_of(before, deployment) != organisation:
        expected = f"the folder of {organisation} in deployment {after.deployment[:16]}"
        raise InputError(str(before), expected, "it is another one")
    return take_over_ledger(folder, deployment.digest, after, before)


def _write_card(folder: Path, organisation: str, digest: str) -> Path:
    certify_node(folder, node_name(organisation))
    node, tls = ((folder / name).read_text(encoding="ascii") for name in (NODE_PUBLIC, TLS))
    identity = _identity(folder).public_key().public_bytes_raw().hex()
    told = Card(organisation, digest, node.strip(), identity, tls, version("silograph"))
    card = folder / f"{organisation}{ENROLMENT}"
    write_atomically(card, (json.dumps(write(told), indent=1) + "\n").encode())
    return card


def renew(folder: Path, new_key: bool = False) -> Path:
    """A new TLS certificate, for the key that was enrolled or a `new_key`, and the enrolment with it: the deployment
    stays as it is."""
    deployment = Deployment.read(folder)
    if not (folder / NODE_KEY).exists():
        raise InputError(str(folder), "an enrolled organisation", "it has no key", "`silograph enrol` makes it.")
    if new_key:
        make_node_key(folder, anew=True)
    return _write_card(folder, organisation_of(folder, deployment), deployment.digest)


def _identity(folder: Path) -> Ed25519PrivateKey:
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex((folder / IDENTITY).read_text(encoding="ascii")))
    except (OSError, ValueError):
        raise DamageError(str(folder / IDENTITY), "the key that was made here", "it is damaged or gone") from None


@dataclass(frozen=True, eq=False)
class Prepared:
    """What an organisation answers with: its part of the job, and `rows`, its records as the task prepared them."""

    method: Method
    topo: Topology
    mechanism: Noise | None
    budget: Budget | None
    masks: Masks | None
    most_rounds: int
    rows: Private


@dataclass
class Approved:
    """An organisation that may answer: its deployment is the one it approved."""

    folder: Path
    deployment: Deployment
    organisation: str
    table: Path
    ledger: str = ""

    @classmethod
    def open(cls, folder: Path, table: Path | None = None) -> Approved:
        deployment = Deployment.read(folder)
        organisation = organisation_of(folder, deployment)
        refuse_moved(folder)
        where = str(folder / APPROVED)
        try:
            told = read_json(folder / APPROVED, LONGEST_CARD, where, DamageError, _ANEW)
            agreed = read(_Agreed, told, where, DamageError, _ANEW)
        except FileNotFoundError:
            todo = f"`silograph enrol {folder} --data TABLE` does that once."
            raise InputError(str(folder), "an enrolled organisation", "it is not", todo) from None
        if agreed.deployment != deployment.digest:
            todo = "Ask why. To take part in the new one, enrol in a new folder; what was spent here stays spent."
            raise InputError(str(folder), "the deployment that was approved here", "it changed since", todo)
        table = Path(agreed.table) if table is None else table
        if not hmac.compare_digest(_mark(folder, table), agreed.content):
            raise InputError(str(table), "the table that was enrolled", "it changed since", f"Put it back. {_ANEW}")
        return cls(folder, deployment, organisation, table, agreed.ledger)

    @property
    def tls(self) -> ssl.SSLContext | None:
        if not self.deployment.terms.tls:
            return None
        context = client_tls(self.ca, self.folder)
        own, node = ((self.folder / name).read_bytes() for name in (TLS, NODE_PUBLIC))
        check_certified(own, node, node_name(self.organisation), str(self.folder / TLS))
        return context

    @property
    def ca(self) -> Path:
        """The authority of the server: of a region's, as its card says."""
        if (home := self.deployment.home_of(self.organisation)) is None:
            return self.folder / CA
        card = self.folder / f"{home}{REGION_CARD}"
        read_region_card(card, home, self.deployment)
        return authority_of(card)

    @property
    def address(self) -> str:
        return self.deployment.at(self.deployment.home_of(self.organisation)).address

    @property
    def node_key(self) -> Path:
        return self.folder / NODE_KEY

    def job(self) -> Job:
        """The deployment's job, with this organisation's records."""
        self.deployment.lay_out(self.folder)
        return open_organisation(
            self.deployment.plan, self.deployment.facts, self.organisation, self.table, self.folder
        )

    def prepare(self) -> Prepared:
        job = self.job()
        rows = _rows(job, self.deployment.facts.organisations[self.organisation])
        return Prepared(job.method, job.topo, job.mechanism, job.budget, job.masks, job.most_rounds, rows)

    def silo(
        self,
        tell: Callable[[Question], None] = lambda question: None,
        warn: Callable[[str], None] = lambda text: None,
        prepared: Prepared | None = None,
    ) -> Silo:
        """`prepared` is what `prepare` returned, in this process or another; None: it is called now."""
        deployment, folder, job = self.deployment, self.folder, prepared or self.prepare()
        names = deployment.facts.organisations[self.organisation]
        seed = deployment.plan.seed
        door = door_of(job, self._root() if seed is None else seed, Ledger(folder / LEDGER), seed)
        # A sum over all regions has cohorts of all of them; a region may have few agents, whatever the sum's minimum.
        far = getattr(deployment.plan, "reach", "region") == "all"
        minimum = max(deployment.terms.minimum, 1 if job.masks is None or far else job.masks.minimum)
        self._write_roster()
        return Silo(
            folder,
            deployment.digest,
            self.organisation,
            names,
            job.method,
            job.topo,
            job.rows,
            door,
            job.most_rounds,
            minimum,
            SumAgents(deployment.digest, _identity(folder), names, folder / ROSTER, home_of(job.topo)),
            seed is None,
            tell,
            warn,
            self.ledger,
        )

    def _write_roster(self) -> None:
        """Write who the others in a secure sum are, from the enrolments that they put into `nodes`."""
        found: dict[str, str] = {}
        for path in sorted((self.folder / NODES).glob(f"*{ENROLMENT}")):
            card = read(Card, read_json(path, LONGEST_CARD, str(path)), str(path))
            if card.deployment == self.deployment.digest and card.organisation in self.deployment.facts.organisations:
                found |= dict.fromkeys(self.deployment.facts.organisations[card.organisation], card.identity)
        if found:
            write_atomically(self.folder / ROSTER, (json.dumps(found, indent=1) + "\n").encode())

    def forget(self) -> None:
        """Delete the root after the run: without it nobody can ever remove the noise."""
        (self.folder / ROOT).unlink(missing_ok=True)

    def conclude(self, page: Callable[[Json, Json, Json], str]) -> None:
        """Write this organisation's own account after the run, from its own ledger and own.npz."""
        deployment, job, ledger = self.deployment, self.job(), Ledger(self.folder / LEDGER)
        seed, silos = deployment.plan.seed, deployment.facts.organisations[self.organisation]
        door = door_of(job, seed or 0, ledger, seed)
        agreed = {(row["observer"], row["delta"] or 0.0) for row in job.forecast()["guarantees"]}
        found = [
            each
            for observer, delta in sorted(agreed)
            for each in stated(door, silos, [observer], delta, None, deployment.plan.rehearsal)
        ]
        with np.load(self.folder / OWN) as own:
            arrays = {name: list(own[name].shape) for name in own.files if own[name].ndim}
            rounds = int(own["rounds_answered"])
        told: Json = {
            "organisation": self.organisation,
            "deployment": deployment.digest,
            "rounds": rounds,
            "silos": list(silos),
            "arrays": arrays,
            **costs(len(ledger.rows), found, None, []),
        }
        write_atomically(self.folder / OWN_FACTS, (json.dumps(told, indent=1) + "\n").encode())
        plan = parse_toml(deployment.plan_text, "deployment, plan")
        write_atomically(self.folder / OWN_PAGE, page(plan, deployment.facts.to_json(), told).encode())

    def _root(self) -> int:
        """Secret entropy of this machine, bound to the deployment and the table: others never meet the same noise."""
        path = self.folder / ROOT
        if not path.exists():
            began = Ledger(self.folder / LEDGER, mend=False).tip == (self.ledger or Ledger().tip)
            if not began and not (self.folder / OWN).exists():
                raise DamageError(str(path), "the secret root of this organisation's noise", "it is gone")
            write_atomically(path, str(secret_root()).encode(), 0o600)
        try:
            secret = int(path.read_text(encoding="ascii"))
        except ValueError:
            raise DamageError(str(path), "the secret root of this organisation's noise", "it is damaged") from None
        table = hashlib.sha256(_read(self.table)).hexdigest()
        bound = hashlib.sha256(json.dumps([secret, self.deployment.digest, table]).encode())
        return int.from_bytes(bound.digest(), "big")


def _mark(folder: Path, table: Path) -> str:
    """Only its owner can check that a table is the one that was enrolled: whoever could compute it as well
    would try tables until one fits."""
    return hmac.digest(_identity(folder).private_bytes_raw(), _read(table), "sha256").hex()


def _read(table: Path) -> bytes:
    try:
        return content_of(table)
    except OSError as error:
        raise InputError(str(table), "the organisation's table", error.strerror or "it cannot be read") from None


def _rows(job: Job, silos: tuple[str, ...]) -> Private:
    """Prepare the organisation's records; axis 0 is its silos."""
    data = job.data(silos)
    return data if isinstance(data, dict) else {name: np.stack([part[name] for part in data]) for name in data[0]}
