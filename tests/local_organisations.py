"""Organisations of a deployment in one process: engine and silos as in a real run, and a link that calls them
directly."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from silograph.core.errors import SilographError
from silograph.engines.remote import Answers, Refusal, Remote
from silograph.engines.silo import Silo
from silograph.engines.sums import SumAgents, home_of
from silograph.methods.base import take
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.run.loop import rounds

DEPLOYMENT = "d" * 64


@dataclass
class Direct:
    """Answers come at once, from whoever is not `away(organisation, question)`; `between` sees all that crosses."""

    silos: dict[str, Silo]
    away: Callable[[str, bytes], bool] = lambda organisation, blob: False
    between: Callable[[str, bytes, bytes], bytes] = lambda organisation, asked, said: said
    refusals: list = field(default_factory=list)

    def present(self):
        return set(self.silos)

    def ask(self, questions, deadline, enough=None):
        heard = Answers({}, {})
        for organisation, blob in questions.items():
            if self.away(organisation, blob):
                continue
            try:
                heard.replies[organisation] = self.between(organisation, blob, self.silos[organisation].answer(blob))
            except SilographError as error:
                heard.refusals[organisation] = Refusal(type(error).__name__)
                self.refusals.append((organisation, error))
        return heard


@dataclass
class Federation:
    """Everything that is needed to begin, stop and begin again, at every end."""

    method: object
    topo: object
    data: dict  # axis 0: silos
    folder: Path
    mechanism: object = None
    budget: object = None
    masks: object = None
    seed: int = 5
    most_rounds: int = 10_000
    minimum: int = 1
    together: dict | None = None  # organisation -> silos; each silo its own organisation otherwise
    parts: dict | None = None  # organisation -> its own method and records, where these are not rows of `data`

    def __post_init__(self):
        self.organisations = self.together or {f"organisation {name}": (name,) for name in self.topo.silos}
        self.identities = {organisation: Ed25519PrivateKey.generate() for organisation in self.organisations}

    def silo(self, organisation: str, **options) -> Silo:
        folder = self.folder / organisation.replace("/", "_")
        folder.mkdir(parents=True, exist_ok=True)
        names = tuple(self.organisations[organisation])
        door = Door(self.seed, Ledger(folder / "ledger.jsonl"), self.mechanism, self.budget, masks=self.masks)
        (folder / "roster.json").write_text(json.dumps({name: key.hex() for name, key in self.keys().items()}))
        sums = SumAgents(DEPLOYMENT, self.identities[organisation], names, folder / "roster.json", home_of(self.topo))
        rows = take(self.data, self.topo.index(names)) if self.parts is None else None
        method, held = (self.method, rows) if self.parts is None else self.parts[organisation]
        common = {"most_rounds": self.most_rounds, "minimum": self.minimum} | options
        return Silo(folder, DEPLOYMENT, organisation, names, method, self.topo, held, door, sums=sums, **common)

    def keys(self) -> dict[str, bytes]:
        public = {organisation: key.public_key().public_bytes_raw() for organisation, key in self.identities.items()}
        return {name: public[organisation] for organisation, names in self.organisations.items() for name in names}

    def door(self) -> Door:
        ledger = Ledger(self.folder / "server.jsonl")
        return Door(self.seed, ledger, self.mechanism, self.budget, masks=self.masks)

    def engine(self, link, door: Door, **options) -> Remote:
        timing = {"deadline": 1.0, "patience": 2.0, "minimum": self.minimum} | options
        return Remote(link, self.topo, door, self.organisations, DEPLOYMENT, identities=self.keys(), **timing)

    def run(self, link: Direct | None = None, **options):
        """States, outcome and the server's door of a whole run."""
        link = link or Direct({organisation: self.silo(organisation) for organisation in self.organisations})
        door = self.door()
        place = self.engine(link, door, **options)
        states = list(rounds(self.method, self.topo, place, door))
        outcome = self.method.outcome(states[-1].servers, place.deliver(self.method, states[-1]), self.topo)
        for silo in link.silos.values():
            silo.close()
        return states, outcome, door


def stacked(parts):
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]}
