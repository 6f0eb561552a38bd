"""A deployment as a Flower project, for those who run Flower's own SuperLink and SuperNodes.

`silograph deploy` writes the project: it holds no code, only the names of the two apps here, which every organisation
has installed. The server's loop and the organisations' checks are those of `silograph serve` and `silograph join`. What
differs is Flower's: a new process for every message (secure sums need one that lasts, so they are not for this way),
many seconds a round, and a SuperNode that runs whatever its SuperLink sends. docs/deploying.md has the whole list.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from silograph.core.errors import InputError
from silograph.engines.certificates import public_key, read_private, sign_reply, signed
from silograph.engines.remote import Answers, Refusal

#: Flower's kinds of message for a question and for who a node is, and the name of the record that holds either.
ASK, WHO, RECORD = "query.ask", "query.who", "silograph"
_LOOK, _AGAIN = 0.2, 120.0  # seconds between looks, and until a question is put again: Flower starts a process
_REFUSAL = 1000

logging.getLogger("flwr").setLevel(logging.INFO)  # here Flower's own log is the only one

client_app = ClientApp()
server_app = ServerApp()


def content(**fields: bytes) -> RecordDict:
    """One record of bytes: the least that Flower can carry."""
    return RecordDict({RECORD: ConfigRecord(dict(fields))})


def blob(message: Message, name: str) -> bytes:
    """A field of what `content` made, at the other end."""
    record = message.content.get(RECORD) if message.has_content() else None
    value = record.get(name) if isinstance(record, ConfigRecord) else None
    if not isinstance(value, bytes):
        raise InputError("message", f"bytes called {name}", "found something else")
    return value


def refusal(error: Exception) -> Error:
    """Of an error only the class goes out."""
    return Error(code=_REFUSAL, reason=type(error).__name__)


def _setting(name: str, configuration: Mapping[str, object]) -> Path:
    value = configuration.get(name)
    if not isinstance(value, str) or not value:
        raise InputError(f"Flower's configuration, {name}", "the path of a folder", "found none")
    return Path(value)


# ---- an organisation
# ---------------------------------------------------------------------------------------------------------


@client_app.query("ask")
def ask(message: Message, context: Context) -> Message:
    """Answer from the organisation's folder, `folder` in the node's configuration: all it must remember is there."""
    from silograph.deploy.organisation import Approved
    from silograph.report.deployment import own_page

    try:
        organisation = Approved.open(_setting("folder", context.node_config))
        question = blob(message, "blob")
        silo = organisation.silo()
        try:
            reply = silo.answer(question)
        finally:
            silo.close()
            if silo.finished:
                organisation.forget()
                organisation.conclude(own_page)
        return Message(_signed(organisation.node_key, question, reply), reply_to=message)
    except Exception as error:  # its text may quote data, and Flower would send it
        return Message(refusal(error), reply_to=message)


@client_app.query("who")
def who(message: Message, context: Context) -> Message:
    """Which organisation this node is: the server knows its key."""
    from silograph.deploy.organisation import Approved

    try:
        organisation = Approved.open(_setting("folder", context.node_config))
        return Message(
            _signed(organisation.node_key, blob(message, "blob"), organisation.organisation.encode()), reply_to=message
        )
    except Exception as error:
        return Message(refusal(error), reply_to=message)


def _signed(key: Path, question: bytes, reply: bytes) -> RecordDict:
    return content(blob=reply, signature=sign_reply(read_private(key), question, reply))


# ---- the server ------------------------------------------------------------------------------------------------------


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """The run of the deployment in `folder`, to `out`; both in the run's configuration."""
    from silograph.deploy.deployment import Deployment
    from silograph.deploy.organisation import Card
    from silograph.deploy.serve import serve
    from silograph.report.build import build

    def connect(deployment: Deployment, cards: dict[str, Card]) -> GridLink:
        return GridLink(grid, {organisation: card.node.encode() for organisation, card in cards.items()})

    folder, out = (_setting(name, context.run_config) for name in ("folder", "out"))
    serve(folder, out, connect, lambda number, line: None, build)


@dataclass(eq=False)
class GridLink:
    """Organisations behind Flower's Grid; `keys` are theirs, as in node.pub."""

    grid: Grid
    keys: Mapping[str, bytes]
    _nodes: dict[str, int] = field(default_factory=dict)
    _strangers: dict[str, int] = field(default_factory=dict)  # by the message that asks who they are
    _nonce: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def present(self) -> set[str]:
        there = set(self.grid.get_node_ids())
        return {organisation for organisation, node in self._nodes.items() if node in there}

    def ask(
        self,
        questions: Mapping[str, bytes],
        deadline: float,
        enough: Callable[[set[str]], bool] | None = None,
    ) -> Answers:
        answers, end = Answers({}, {}), time.monotonic() + deadline
        asked: dict[str, tuple[str, float]] = {}  # by organisation: the message, and when to put the question again
        while True:
            self._meet()
            now = time.monotonic()
            waiting = questions.keys() - answers.replies.keys() - answers.refusals.keys()
            for organisation in waiting & self._nodes.keys():
                if organisation not in asked or now > asked[organisation][1]:
                    record = content(blob=questions[organisation], salt=secrets.token_bytes(16))
                    (number,) = self.grid.push_messages([Message(record, self._nodes[organisation], ASK, ttl=deadline)])
                    asked[organisation] = (number, now + _AGAIN)
            self._hear(
                {number: organisation for organisation, (number, _) in asked.items() if organisation in waiting},
                questions,
                answers,
            )
            heard = answers.replies.keys() | answers.refusals.keys()
            if questions.keys() <= heard or now > end or (enough is not None and enough(heard)):
                return answers
            time.sleep(_LOOK)

    def _hear(self, asked: Mapping[str, str], questions: Mapping[str, bytes], answers: Answers) -> None:
        for message in self.grid.pull_messages([number for number in asked if number]):
            organisation = asked.get(message.metadata.reply_to_message_id)
            if organisation is None:
                continue
            if message.has_error():
                if message.error.code >= _REFUSAL:
                    answers.refusals[organisation] = Refusal(message.error.reason or "Exception")
            elif self._is_from(organisation, questions[organisation], message):
                answers.replies[organisation] = blob(message, "blob")

    def _is_from(self, organisation: str, question: bytes, message: Message) -> bool:
        key = public_key(self.keys[organisation], f"key of {organisation}")
        try:
            return signed(key, question, blob(message, "blob"), blob(message, "signature"))
        except InputError:
            return False

    def _meet(self) -> None:
        """Ask nodes that came who they are; each proves it with its key. Nobody is waited for."""
        for node in self.grid.get_node_ids():
            if node not in self._nodes.values() and node not in self._strangers.values():
                (number,) = self.grid.push_messages([Message(content(blob=self._nonce), node, WHO, ttl=_AGAIN)])
                if number:
                    self._strangers[number] = node
        for message in self.grid.pull_messages(list(self._strangers)):
            node = self._strangers.pop(message.metadata.reply_to_message_id)
            organisation = next((name for name in self.keys if self._is_from(name, self._nonce, message)), None)
            if organisation is not None and blob(message, "blob") == organisation.encode():
                self._nodes[organisation] = node
