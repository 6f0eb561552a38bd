"""The server's end of a deployment: one process that serves Flower's Fleet API and asks the silos.

Of Flower's SuperLink only `/v1/fleet/*` is served, over TLS, to organisations whose keys are known; its Control and
Runtime APIs, which let anybody run code, do not exist here. Messages lie in memory: nodes come from key files, a run's
state from its folder, and what is lost is asked again. See docs/flower-study.md.

Longer than other files: it is one protocol, and a transport that is to be replaced as a whole.
"""

from __future__ import annotations

import asyncio
import binascii
import json
import logging
import os
import secrets
import socket
import ssl
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self, cast

# Flower reads these while it is imported; with them it never tries to reach its makers.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from flwr.app import DEFAULT_TTL, Error, Message, Metadata, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import (
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    SUPERLINK_NODE_ID,
    SYSTEM_TIME_TOLERANCE,
    TIMESTAMP_HEADER,
    TIMESTAMP_TOLERANCE,
    Status,
    SubStatus,
)
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesRequest, PushMessagesResponse
from flwr.proto.node_pb2 import NodeInfo
from flwr.server.superlink.linkstate import InMemoryLinkState, LinkState, LinkStateFactory
from flwr.serverapp import Grid
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    FLWR_IN_MEMORY_DB_NAME,
    NOOP_FEDERATION_ID,
    TaskType,
)
from flwr.supercore.date import now
from flwr.supercore.error import http_error_translator
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, public_key_to_bytes, verify_signature
from flwr.supercore.protobuf.routing import ProtobufRoute
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_DEPENDENCY, ProtobufTranslationMiddleware
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.dependencies.linkstate import get_linkstate
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet_router
from flwr.superlink.servicer.fleet import fleet_handlers
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from silograph.core.errors import InputError
from silograph.engines.certificates import public_key, signed
from silograph.engines.fleet import ASK, REFUSALS, blob, content, is_loopback

logging.getLogger("flwr").setLevel(logging.CRITICAL)

_LIMIT = 256 << 20  # bytes of one request
_HOLD = 5.0  # seconds; so nobody polls, and a silo sees within them that it is to stop
_FIRST_ATTEMPT, _LONGEST_ATTEMPT = 3.0, 24.0
_AGAIN = 0.5  # seconds until a reply that cannot be used is asked for again
_LOOK = 1.0  # seconds between looks at what rings no bell: heartbeats that stop or resume, a clock that was set
_BEAT = 15.0
_LOST = 8  # Flower's number for an app that gave nothing
_REFUSAL = min(REFUSALS.values())
_LONGEST_NAME = 100

_FLEET = "/v1/fleet/"
_ALERTING = {_FLEET + name for name in ("activate-node", "push-messages", "push-object")}
_SERVED = _ALERTING | {
    _FLEET + name
    for name in ("deactivate-node", "send-node-heartbeat", "pull-messages", "pull-object", "confirm-message-received")
}


@dataclass(frozen=True)
class Refusal:
    """A silo will not answer: the number and the name of the class of its error, and nothing else of it."""

    code: int
    name: str


@dataclass(frozen=True)
class Answers:
    """By organisation. Who is in neither was silent until the deadline."""

    replies: dict[str, bytes]
    refusals: dict[str, Refusal]


class Link:
    """Listens at `host`:`port` (0 is any free one) for the organisations `nodes`, whose public keys are given as in
    node.pub.

    Without a certificate nothing is encrypted, which is allowed on this machine only. Of somebody whose key is not
    known only the headers are read; `limit` is the largest request of the others, in bytes. `hold` is for how many
    seconds a silo's question for messages is held open.
    """

    def __init__(
        self,
        host: str,
        port: int,
        nodes: Mapping[str, bytes],
        certificate: Path | None,
        key: Path | None,
        limit: int = _LIMIT,
        hold: float = _HOLD,
    ) -> None:
        if certificate is None and not is_loopback(host):
            raise InputError(
                f"server at {host}",
                "a certificate, as others than this machine can reach it",
                "none was given",
                "Make one with its key, or listen at 127.0.0.1.",
            )
        self._keys = {name: public_key(text, f"key of {name}") for name, text in nodes.items()}
        memory = FLWR_IN_MEMORY_DB_NAME
        factory = LinkStateFactory(memory, NoOpFederationManager(), ObjectStoreFactory(memory))
        state = cast(InMemoryLinkState, factory.state())
        self._numbers = {}
        for name, known in self._keys.items():
            try:
                self._numbers[name] = state.create_node(
                    NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, public_key_to_bytes(known), 0, name=name
                )
            except ValueError:
                raise InputError(f"key of {name}", "a key of its own", "another organisation has the same") from None
        self._bell = _Bell()
        app = _Guard(_fleet_app(factory, self._bell, hold), state, limit, self._bell)
        self._server = _Server(app, host, port, certificate, key)
        self.port = self._server.port
        self.grid = LinkGrid(state, self._bell)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if not self._bell.closed:
            self._bell.close()
            self._server.close()
            self.grid.close()

    def present(self) -> set[str]:
        """The organisations that are connected now."""
        return set(self._connected())

    def _connected(self) -> dict[str, str]:
        """When the organisations that are connected came. One that came again has lost what it was sent."""
        since = {node.node_id: node.last_activated_at for node in self.grid.get_nodes()}
        return {name: since[number] for name, number in self._numbers.items() if number in since}

    def ask(
        self,
        questions: Mapping[str, bytes],
        deadline: float,
        enough: Callable[[set[str]], bool] | None = None,
        heard: Callable[[str], None] | None = None,
    ) -> Answers:
        """Ask the organisations until all have answered or refused, `enough` says so of those who did, or the deadline.

        `deadline` is in seconds. Flower delivers a message once at most, so an organisation is asked anew when it came
        back, when an attempt ran out, or when its reply got lost or is not its own. `heard` is called for every
        organisation that answered or refused.
        """
        for name in questions.keys() - self._keys.keys():
            raise InputError(f"organisation {name}", f"one of {', '.join(sorted(self._keys))}", "its key is not known")
        answers = Answers({}, {})
        waiting = {name: _Asked(question, _FIRST_ATTEMPT) for name, question in questions.items()}
        end = time.monotonic() + deadline
        try:
            while True:
                for name in self._collect(waiting, answers):
                    self.grid.forget(waiting.pop(name).open)
                    if heard is not None:
                        heard(name)
                left = end - time.monotonic()
                if (
                    not waiting
                    or left <= 0
                    or (enough is not None and enough(answers.replies.keys() | answers.refusals.keys()))
                ):
                    return answers
                self.grid.wait(min(left, self._push(waiting, left)))
        finally:
            self.grid.forget(name for asked in waiting.values() for name in asked.open)

    def _push(self, waiting: dict[str, _Asked], left: float) -> float:
        """Ask those who are present and due; the seconds until somebody is due again."""
        if not self.grid.alive():  # Another Flower run has begun: what was asked in the old one is void.
            for asked in waiting.values():
                self._void(asked)
        now = time.monotonic()
        soonest = now + _LOOK
        present = self._connected()
        for name, asked in waiting.items():
            if name not in present:
                continue
            if asked.since != present[name]:
                self._void(asked)
                asked.since = present[name]
            if asked.due <= now:
                if not self.grid.undelivered(asked.open):
                    # The salt makes every message its own: nobody else can guess its name, and no two share a part.
                    record = content(blob=asked.question, salt=secrets.token_bytes(16))
                    message = self.grid.create_message(record, ASK, self._numbers[name], "", left + _LOOK)
                    asked.open.update(number for number in self.grid.push_messages([message]) if number)
                asked.due = now + asked.attempt
                asked.attempt = min(2 * asked.attempt, _LONGEST_ATTEMPT)
            soonest = min(soonest, asked.due)
        return max(0.0, soonest - time.monotonic())

    def _void(self, asked: _Asked) -> None:
        self.grid.forget(asked.open)
        asked.open.clear()
        asked.due = 0.0

    def _collect(self, waiting: dict[str, _Asked], answers: Answers) -> list[str]:
        """Take in what has come; the organisations that are done with."""
        asker = {number: name for name, asked in waiting.items() for number in asked.open}
        done: list[str] = []
        for message in self.grid.pull_messages(asker):
            number = message.metadata.reply_to_message_id
            name = asker[number]
            asked = waiting[name]
            asked.open.discard(number)
            if name in done:
                continue
            reply = _read(message)
            if isinstance(reply, Refusal):
                answers.refusals[name] = reply
            elif reply is not None and signed(self._keys[name], asked.question, *reply):
                answers.replies[name] = reply[0]
            else:
                asked.due = min(asked.due, time.monotonic() + _AGAIN)
                continue
            done.append(name)
        return done


@dataclass
class _Asked:
    """An organisation that has not answered yet: when it had come, when it is due to be asked, and how long it then
    has."""

    question: bytes
    attempt: float
    since: str = ""
    due: float = 0.0
    open: set[str] = field(default_factory=set)


def _read(message: Message) -> Refusal | tuple[bytes, bytes] | None:
    """A refusal, a reply with its signature, or nothing that can be used."""
    if message.has_error():
        code, name = message.error.code, message.error.reason or ""
        named = name.isascii() and name.isidentifier() and len(name) <= _LONGEST_NAME
        return Refusal(code, name if named else "Exception") if code >= _REFUSAL else None
    try:
        return blob(message, "blob"), blob(message, "signature")
    except InputError:
        return None


# ---- messages --------------------------------------------------------------------------------------------------------


class _Bell:
    """Two threads wait for each other here: silos' held requests for messages, and `ask` for silos."""

    def __init__(self) -> None:
        self.closed = False
        self._arrived = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pushed = asyncio.Event()

    def arrive(self) -> None:
        """A silo came or sent something."""
        self._arrived.set()

    def wait(self, seconds: float) -> None:
        """Until a silo came or sent something, or so long."""
        self._arrived.wait(seconds)
        self._arrived.clear()

    def push(self) -> None:
        """There are messages for silos."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._swing)

    def close(self) -> None:
        """Let all go home."""
        self.closed = True
        self.push()

    def _swing(self) -> None:
        pushed, self._pushed = self._pushed, asyncio.Event()
        pushed.set()

    def pushed(self) -> asyncio.Event:
        self._loop = asyncio.get_running_loop()
        return self._pushed


class LinkGrid(Grid):
    """A Flower Grid on a LinkState in this process: nothing is polled, and an upload that never ends blocks nobody."""

    def __init__(self, state: InMemoryLinkState, bell: _Bell) -> None:
        self._state, self._bell = state, bell
        self._half: dict[str, Message] = {}  # replies whose parts are still on their way, by what they reply to
        self._run = self._begin()
        self._stop = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._heart.start()

    def _begin(self) -> Run:
        """A Flower run is one stretch of one server process, and means nothing to the silos."""
        number = self._state.create_run(
            "silograph/silograph", "0", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )
        run = self._state.get_run_info(run_ids=[number])[0]
        task = run.primary_task_id
        if task is None or not (self._state.claim_task(task) and self._state.activate_task(task)):
            raise RuntimeError("Flower did not start its run")
        self._task = task
        # A ServerApp that makes its own messages looks here.
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = number, task, SUPERLINK_NODE_ID
        return run

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT):
            self._state.acknowledge_task_heartbeat(self._task)

    def alive(self) -> bool:
        """False once where the clock was set ahead and Flower took its run for dead: then another has begun."""
        number = self._run.run_id
        if self._state.get_run_status({number})[number].status == Status.RUNNING:
            return True
        self._run = self._begin()
        return False

    def close(self) -> None:
        self._stop.set()
        self._heart.join()
        self._state.finish_task(self._task, SubStatus.COMPLETED, "")

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        about = Metadata(
            run_id=self._run.run_id,
            message_id="",
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=dst_node_id,
            reply_to_message_id="",
            group_id=group_id,
            created_at=now().timestamp(),
            ttl=ttl or DEFAULT_TTL,
            message_type=message_type,
            src_task_id=self._task,
        )
        return make_message(about, content)

    def get_node_ids(self) -> Iterable[int]:
        return self._state.get_nodes(self._run.run_id)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return self._state.get_node_info(node_ids=list(self.get_node_ids()))

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Their numbers in their order; "" for a node that never came yet."""
        numbers = []
        with no_object_id_recompute():
            for message in messages:
                message.metadata.__dict__["_message_id"] = message.object_id
                session = self._state.start_session(self._run.run_id)  # ends with the last part that it misses
                stored, missing = self._state.store_message_and_object_tree(
                    remove_content_from_message(message), get_object_tree(message), session
                )
                parts = get_all_nested_objects(message)
                for name in missing:
                    self._state.store_object(self._run.run_id, session, name, parts[name].deflate())
                numbers.append(message.object_id if stored else "")
        self._bell.push()
        return numbers

    def undelivered(self, message_ids: Iterable[str]) -> bool:
        """Whether one of these still waits here for its silo to fetch it."""
        waiting = self._state.message_ins_store
        return any(name in waiting and not waiting[name].metadata.delivered_at for name in message_ids)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Replies that are complete, at once. Who sent them and to what is as the LinkState has checked it."""
        wanted = set(message_ids)
        with self._state.lock:
            # Flower would say of a silo that replied and left that it is gone: so replies first, then what it says.
            for asked in wanted & self._state.message_ins_id_to_message_res_id.keys():
                self._half[asked] = self._state.message_res_store[self._state.message_ins_id_to_message_res_id[asked]]
            for reply in self._state.get_message_res(wanted - self._half.keys(), self._run.run_id):
                self._half[reply.metadata.reply_to_message_id] = reply
        whole = []
        for asked in wanted & self._half.keys():
            reply = self._half[asked]
            try:
                message = self._whole(reply)
            except Exception:  # Whatever a silo sent that Flower cannot read, it is not a reply.
                message = make_message(reply.metadata, error=Error(_LOST, "unreadable"))
            if message is not None:
                whole.append(message)
        self.forget(message.metadata.reply_to_message_id for message in whole)
        return whole

    def _whole(self, reply: Message) -> Message | None:
        """The reply with its content, if all its parts are there."""
        number, store = reply.metadata.message_id, self._state.object_store
        tree = store.get_object_tree(number)
        parts = {branch.object_id: store.get(branch.object_id) for branch in iterate_object_tree(tree)}
        contents = {name: part for name, part in parts.items() if part}
        if len(contents) < len(parts):
            return None
        message = inflate_object_from_contents(number, contents)
        if reply.has_error() or not isinstance(message, Message):
            return reply
        return make_message(reply.metadata, message.content)

    def wait(self, seconds: float) -> None:
        """Until a silo came or sent something, or so long."""
        self._bell.wait(seconds)

    def forget(self, message_ids: Iterable[str]) -> None:
        """Nobody waits for these any more; a late reply is dropped by the LinkState."""
        names = set(message_ids)
        for name in names:
            self._state.object_store.delete(name)
            if (half := self._half.pop(name, None)) is not None:
                self._state.object_store.delete(half.metadata.message_id)
        self._state.delete_messages(names)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """For ServerApps of others: each message once, and the replies that come in time."""
        waiting, replies = set(self.push_messages(messages)) - {""}, list[Message]()
        end = time.monotonic() + (DEFAULT_TTL if timeout is None else timeout)
        while waiting and time.monotonic() < end:
            for message in self.pull_messages(waiting):
                waiting.discard(message.metadata.reply_to_message_id)
                replies.append(message)
            if waiting:
                self.wait(min(_LOOK, max(0.0, end - time.monotonic())))
        self.forget(waiting)
        return replies


# ---- the HTTP server -------------------------------------------------------------------------------------------------


class _Guard:
    """Before anything is read: who it is, by its headers. Before anything is parsed: how much it is."""

    def __init__(self, app: ASGIApp, state: LinkState, limit: int, bell: _Bell) -> None:
        self._app, self._state, self._limit, self._bell = app, state, limit, bell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if scope["path"] not in _SERVED or scope["method"] != "POST":
            return await _turn_away(send, 404)
        if not self._known(headers):
            return await _turn_away(send, 401)
        body = await self._body(headers, receive)
        if body is None:
            return await _turn_away(send, 413)

        async def again() -> Event:
            nonlocal body
            if body is None:
                return await receive()
            event, body = {"type": "http.request", "body": body, "more_body": False}, None
            return event

        await self._app(scope, again, send)
        if scope["path"] in _ALERTING:
            self._bell.arrive()

    def _known(self, headers: Headers) -> bool:
        """Flower's check of a node's headers; Flower itself makes it after it has parsed the body."""
        try:
            public = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
            signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
            stamp = headers[TIMESTAMP_HEADER]
            age = (now() - datetime.fromisoformat(stamp)).total_seconds()
            return (
                self._state.get_node_id_by_public_key(public) is not None
                and -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
                and verify_signature(bytes_to_public_key(public), stamp.encode("ascii"), signature)
            )
        except (KeyError, ValueError, TypeError, binascii.Error):
            return False

    async def _body(self, headers: Headers, receive: Receive) -> bytes | None:
        """The whole body, or None if it is too large or breaks off."""
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 15 or int(length) > self._limit:
            return None
        body = bytearray()
        while (event := await receive())["type"] == "http.request":
            body += event.get("body", b"")
            if len(body) > self._limit:
                return None
            if not event.get("more_body", False):
                return bytes(body)
        return None


async def _turn_away(send: Send, status: int) -> None:
    body = json.dumps({"detail": status}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _fleet_app(factory: LinkStateFactory, bell: _Bell, hold: float) -> FastAPI:
    """Flower's Fleet API, with two of its routes replaced by ours."""
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
            Middleware(ProtobufTranslationMiddleware),
            Middleware(NodeAuthMiddleware),
        ],
    )
    app.state.linkstate_factory = factory
    app.state.enable_supernode_auth = True
    app.include_router(_own_routes(bell, hold))  # The first that fits is taken.
    app.include_router(fleet_router)
    return app


def _own_routes(bell: _Bell, hold: float) -> APIRouter:
    router = APIRouter(prefix=_FLEET.rstrip("/"), route_class=ProtobufRoute)

    @router.post("/pull-messages")
    async def pull_messages(
        request: Annotated[PullMessagesRequest, PROTOBUF_REQUEST_DEPENDENCY],
        state: Annotated[LinkState, Depends(get_linkstate)],
    ) -> PullMessagesResponse:
        """Waits for a message instead of saying at once that there is none."""
        end = time.monotonic() + hold
        while True:
            pushed = bell.pushed()
            answer = await run_in_threadpool(fleet_handlers.pull_messages, request, state, state.object_store)
            left = end - time.monotonic()
            if answer.messages_list or left <= 0 or bell.closed:
                return answer
            try:
                await asyncio.wait_for(pushed.wait(), left)
            except TimeoutError:
                return answer

    @router.post("/push-messages")
    def push_messages(
        request: Annotated[PushMessagesRequest, PROTOBUF_REQUEST_DEPENDENCY],
        state: Annotated[LinkState, Depends(get_linkstate)],
    ) -> PushMessagesResponse:
        """A node may speak for itself only; Flower does not look."""
        if any(message.metadata.src_node_id != request.node.node_id for message in request.messages_list):
            raise HTTPException(403, "in another's name")
        return fleet_handlers.push_messages(request, state)

    return router


class _Server:
    """uvicorn in a thread."""

    def __init__(self, app: ASGIApp, host: str, port: int, certificate: Path | None, key: Path | None) -> None:
        config = uvicorn.Config(
            app,
            http="h11",  # which bounds what it reads of somebody it does not know yet
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.CRITICAL,
            access_log=False,
            server_header=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=2,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError):
            raise InputError(
                str(certificate), "a certificate and its key", "they do not fit or cannot be read"
            ) from None
        if config.ssl is not None:
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            listening = socket.create_server((host, port), family=family)
        except OSError as error:
            raise InputError(f"server at {host}:{port}", "an address to listen at", str(error)) from None
        self.port: int = listening.getsockname()[1]
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listening],), daemon=True)
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the HTTP server did not start")
            time.sleep(0.005)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
