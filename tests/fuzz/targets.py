"""Everything that reads bytes of strangers, each as a function of bytes: it returns, or refuses as silograph refuses.

Whoever runs a target catches nothing else, so any other exception is a finding. `FRAMED` targets get JSON that is put
into the frame of `engines.wire` first: a fuzzer that had to guess canonical JSON and its length would get no further.
"""

from __future__ import annotations

import contextlib
import json
import math
import operator
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import federations
from local_organisations import Federation, stacked
from silograph.core.errors import SilographError
from silograph.core.results import read_result
from silograph.deploy.deployment import Deployment
from silograph.deploy.organisation import Approved
from silograph.deploy.public_facts import read_facts
from silograph.deploy.serve import read_cards
from silograph.engines import certificates
from silograph.engines.question import read_question, read_reply
from silograph.engines.silo import Silo
from silograph.engines.sums import read_answers
from silograph.privacy import secure_messages
from silograph.privacy.ledger import Ledger
from silograph.privacy.secure_sum import Server
from silograph.privacy.secure_wire import from_json, to_json
from silograph.report import build
from silograph.report.read import read_ledger
from silograph.run.plan import dumps, load

LONGEST = 1 << 16  # bytes of one input
_MESSAGES = ("Advertisement", "Shares", "MaskedInput", "Confirmation", "Answer")
_FROM_SERVER = ("Roster", "Delivery", "Request", "Proof")
ORGANISATION = "north"


@cache
def folder() -> Path:
    """Where files of strangers are put; gone when the process ends."""
    kept = folder.kept = tempfile.TemporaryDirectory(prefix="silograph-fuzz-")  # type: ignore[attr-defined]
    return Path(kept.name)


def lay(data: bytes, *path: str) -> Path:
    place = folder().joinpath(*path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return place


def question(data: bytes) -> None:
    read = read_question(data)
    assert read_question(read.pack()).pack() == read.pack()
    assert read.content


def reply(data: bytes) -> None:
    read = read_reply(data, "organisation")
    assert all(value.value.ndim for value in read.sent.values() if hasattr(value, "value"))


def said(data: bytes) -> None:
    """Messages of agents to the server, each given to a server that waits for it."""
    for name, told in read_answers(data).items():
        for kind in _MESSAGES:
            try:
                message = from_json(getattr(secure_messages, kind), told)
            except SilographError:
                continue
            assert isinstance(name, str)
            assert from_json(type(message), to_json(message)) == message
            with contextlib.suppress(SilographError):
                Server(_session()).receive(message)


def from_server(data: bytes) -> None:
    """Messages of a secure sum to an agent, in a question."""
    to = (read_question(data).sum or {}).get("to")
    for told in filter(lambda told: isinstance(told, dict), to.values() if isinstance(to, dict) else ()):
        for kind in _FROM_SERVER:
            try:
                message = from_json(getattr(secure_messages, kind), told.get("message"))
            except SilographError:
                continue
            assert from_json(type(message), to_json(message)) == message


def answer(data: bytes) -> None:
    """Questions to an organisation that takes part in secure sums, all the way through its own code; it remembers
    them."""
    _organisation().answer(data)


@cache
def _organisation() -> Silo:
    case = next(case for case in federations.cases() if case.masks is not None and case.mechanism is not None)
    topo = federations.topology()
    records = federations.records(topo=topo)
    data = stacked([case.method.task.prepare(records[name]) for name in topo.silos])
    place = folder() / "organisations"
    ends = Federation(case.method, topo, data, place, case.mechanism, case.budget, case.masks)
    return ends.silo(list(ends.organisations)[1])


@cache
def _session() -> secure_messages.Session:
    keys = {f"agent {k}": bytes([k]) * 32 for k in range(3)}
    return secure_messages.Session("run", 0, "unit", keys, 4, 1.0, 10)


def facts(data: bytes) -> None:
    read = read_facts(lay(data, "any.facts.json"))
    assert read.to_json()["method"] == read.method
    assert read.organisations


def deployment(data: bytes) -> None:
    lay(data, "deployment", "deployment.json")
    read = Deployment.read(folder() / "deployment")
    assert len(read.digest) == 64


def card(data: bytes) -> None:
    lay(data, "card", "nodes", f"{ORGANISATION}.enrolment.json")
    held = {ORGANISATION: (ORGANISATION,)}
    agreed = SimpleNamespace(held_at=lambda region: held, digest="d" * 64, terms=SimpleNamespace(tls=True))
    read = read_cards(folder() / "card", agreed)[ORGANISATION]
    certificates.public_key(read.node.encode(), "card")


def approved(data: bytes) -> None:
    lay(_sound_deployment(), ORGANISATION, "deployment.json")
    lay(data, ORGANISATION, "approved.json")
    Approved.open(folder() / ORGANISATION)


@cache
def _sound_deployment() -> bytes:
    return next(iter(sorted((Path(__file__).parent / "corpus" / "deployment").glob("sound*")))).read_bytes()


def ledger(data: bytes) -> None:
    path = lay(data, "ledger.jsonl")
    read = Ledger(path, mend=False)
    read.check_tip(read.tip)
    read_ledger(path)


def plan(data: bytes) -> None:
    read = load(lay(data, "plan.toml"))
    lay(dumps(read).encode(), "again.toml")
    assert load(folder() / "again.toml") == read


def result(data: bytes) -> None:
    """result.json by the reader of the bill and that of the page; the other files of its folder are not there."""
    lay(data, "run", "result.json")
    for read in (read_result, build.read):
        try:
            read(folder() / "run")
        except SilographError:
            continue


def certificate(data: bytes) -> None:
    path = lay(data, "certificate.pem")
    for read in (certificates.fingerprint, certificates.read_public, certificates.read_private):
        try:
            read(path)
        except SilographError:
            continue
    certificates.public_key(data, "certificate")


def framed(target: Callable[[bytes], None], data: bytes) -> None:
    """The target on the bytes as they are; and on the frame that their JSON describes, with zeros for numbers."""
    with contextlib.suppress(SilographError):
        target(data)
    try:
        content = json.loads(data)
        index, told = content["arrays"], content["facts"]
        head = json.dumps({"arrays": index, "facts": told}, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        size = sum(math.prod(map(operator.index, shape)) * np.dtype(kind).itemsize for _, kind, shape in index)
        raw = head.encode()
    except Exception:  # a frame that nobody could have sent
        return
    numbers = b"\0" * (size if 0 <= size <= LONGEST else 0)
    target(b"SLG1" + len(raw).to_bytes(4, "little") + raw + numbers)


FRAMED = {"question": question, "reply": reply, "said": said, "from_server": from_server, "answer": answer}
TARGETS: dict[str, Callable[[bytes], None]] = {
    **{name: partial(framed, target) for name, target in FRAMED.items()},
    "facts": facts,
    "deployment": deployment,
    "card": card,
    "approved": approved,
    "ledger": ledger,
    "plan": plan,
    "result": result,
    "certificate": certificate,
}


def try_one(name: str, data: bytes) -> None:
    """Anything but a return or silograph's own refusal goes to the caller."""
    with contextlib.suppress(SilographError):
        TARGETS[name](data)
