"""A silo's end of a deployment: Flower's Fleet API, without Flower's way of running what a server sends.

One process holds one ClientApp that is installed here; no code is ever fetched. Flower 1.41 is spoken to through its
own client. What is known of its behaviour, and why its SuperNode is not used, is in docs/flower-study.md.

Longer than other files: it is one protocol, and a transport that is to be replaced as a whole.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

# Flower reads these while it is imported; with them it never tries to reach its makers.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.clientapp import ClientApp
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    inflate_object_from_contents,
    pull_objects,
    push_objects,
)
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.interceptors.http.utils import add_headers
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supernode.fleet_http_client import FleetHttpClient

from silograph.core.errors import (
    BudgetError,
    DamageError,
    InputError,
    LeakError,
    SilenceError,
    SilographError,
    SolverError,
)
from silograph.core.files import write_atomically
from silograph.engines.certificates import read_private, sign_reply

# Flower's lines name keys and nodes, and nobody here can act on them.
logging.getLogger("flwr").setLevel(logging.CRITICAL)

#: Flower's kind of message for a question, and the name of the record that holds it or its reply.
ASK, RECORD = "query.ask", "silograph"

#: What a silo says when it will not answer: the number of the nearest class that is listed, and the class's own name.
REFUSALS: dict[type[BaseException], int] = {
    Exception: 1000,
    SilographError: 1001,
    InputError: 1002,
    DamageError: 1003,
    BudgetError: 1004,
    LeakError: 1005,
    SilenceError: 1006,
    SolverError: 1007,
}

_HEARTBEAT = 10  # seconds, the least that Flower takes; a silo counts as gone after twice that
_BEAT = 4.0
_ADMISSION = 25.0  # seconds; longer than Flower takes to notice that a killed process is gone
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0
_IDLE = 0.05
_PARTING = 10.0  # seconds in which a last reply is offered to a server that cannot be reached


# ---- the app ---------------------------------------------------------------------------------------------------------


def client_app(answer: Callable[[bytes], bytes]) -> ClientApp:
    """Flower's ClientApp around a function from question to reply. Of its errors only class and number go out."""
    app = ClientApp()

    @app.query("ask")
    def ask(message: Message, context: Context) -> Message:
        try:
            reply = answer(blob(message, "blob"))
        except Exception as error:
            return Message(refusal(error), reply_to=message)
        return Message(content(blob=reply), reply_to=message)

    return app


def refusal(error: Exception) -> Error:
    nearest = next(kind for kind in type(error).__mro__ if kind in REFUSALS)
    return Error(code=REFUSALS[nearest], reason=type(error).__name__)


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


# ---- the connection --------------------------------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class _Signed:
    """Flower's authentication of nodes, by the server's clock: ours may be wrong, and Flower allows 5 s ahead."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._public = b64encode(public_key_to_bytes(key.public_key())).decode("ascii")
        self._offset = timedelta()

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        stamp = (datetime.now(UTC) + self._offset).isoformat()
        headers = {
            FLEET_HTTP_PUBLIC_KEY_HEADER: self._public,
            TIMESTAMP_HEADER: stamp,
            FLEET_HTTP_SIGNATURE_HEADER: b64encode(sign_message(self._key, stamp.encode("ascii"))).decode("ascii"),
        }
        add_headers(context.request, headers)
        response = call_next(context)
        if response.status_code == httpx.codes.UNAUTHORIZED and "date" in response.headers:
            self._offset = parsedate_to_datetime(response.headers["date"]) - datetime.now(UTC)
        return response


class _Client(FleetHttpClient):
    """Flower's client over an HTTP client of ours: its own would obey proxy variables and redirects."""

    def __init__(self, address: str, tls: ssl.SSLContext | None, key: ec.EllipticCurvePrivateKey) -> None:
        self._base_url = f"{'http' if tls is None else 'https'}://{address}"
        self._interceptors = (RuntimeVersionHttpInterceptor(component_name="SuperNode"), _Signed(key))
        self._retry_invoker = None
        self._client = httpx.Client(
            verify=False if tls is None else tls,
            timeout=httpx.Timeout(30.0, connect=10.0),
            limits=httpx.Limits(keepalive_expiry=30.0),
            trust_env=False,
            follow_redirects=False,
        )


def _connect(address: str, ca: Path | None, key: ec.EllipticCurvePrivateKey) -> _Client:
    host, _, port = address.rpartition(":")
    try:
        url = httpx.URL(f"https://{address}/")
        sound = bool(host) and 0 < int(port) < 1 << 16 and url.host == host.strip("[]").lower()
    except (ValueError, httpx.InvalidURL):
        sound = False
    if not sound:
        raise InputError("address of the server", "HOST:PORT", f"found {address!r}")
    if ca is None and not is_loopback(host):
        raise InputError(
            f"server {address}",
            "the certificate of its authority, as it is not on this machine",
            "none was given",
            "Get ca.crt from whoever runs the server.",
        )
    return _Client(address, None if ca is None else _tls(ca), key)


def _tls(ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca)
    except OSError:
        raise InputError(str(ca), "the certificate of the server's authority (ca.crt)", "it cannot be read") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


class Fleet:
    """A registered silo's connection to its server.

    `ca` None is for a server on this machine, without encryption. `folder` keeps the number that Flower gave this node.
    """

    def __init__(self, address: str, ca: Path | None, key: Path, folder: Path) -> None:
        self.address = address
        self._ca, self._key = ca, read_private(key)
        self._public = public_key_to_bytes(self._key.public_key())
        self._memory = folder / "node_id"
        self._node: Node | None = None
        self._client = _connect(address, ca, self._key)

    def join(self) -> None:
        """Become active under our key.

        After a kill the server still counts us as present and would refuse: leave under the number we had, then come
        again. That also tells the server that whatever it had sent us is lost.
        """
        if self._memory.exists():
            # The server may know that we were gone, or have forgotten the number.
            with contextlib.suppress(httpx.HTTPStatusError, ValueError, OSError):
                self._client.DeactivateNode(DeactivateNodeRequest(node_id=int(self._memory.read_text("ascii"))))
        asked = ActivateNodeRequest(public_key=self._public, heartbeat_interval=_HEARTBEAT)
        number = self._client.ActivateNode(asked).node_id
        with contextlib.suppress(OSError):  # Without it, coming back after a kill takes some seconds longer.
            write_atomically(self._memory, str(number).encode("ascii"))
        self._node = Node(node_id=number)

    def leave(self) -> None:
        """Tell the server, if it can be reached, and close the connection."""
        node, self._node = self._node, None
        if node is not None:
            with contextlib.suppress(httpx.HTTPError, ValueError):
                self._client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))
        self._client.close()

    def serve(
        self,
        answer: Callable[[bytes], bytes],
        until: Callable[[], bool],
        patience: float,
        say: Callable[[str], None],
    ) -> None:
        """Answer questions until `until()`, then leave.

        The server may ask the same again: `answer` must give the same bytes. Without a server for `patience` seconds
        it is a SilenceError; a server that is not ours, or does not know us, is an InputError.
        """
        stop = threading.Event()
        beat = threading.Thread(target=self._beat, args=(stop,), daemon=True)
        beat.start()
        try:
            self._serve(answer, until, patience, say)
        finally:
            stop.set()
            beat.join()
            self.leave()

    def _serve(
        self,
        answer: Callable[[bytes], bytes],
        until: Callable[[], bool],
        patience: float,
        say: Callable[[str], None],
    ) -> None:
        def aloud(question: bytes) -> bytes:
            try:
                return answer(question)
            except Exception as error:
                say(f"A question was refused. {type(error).__name__}: {error}")
                raise

        app = client_app(aloud)
        reply: Message | None = None
        heard, refused, pause = time.monotonic(), 0.0, _FIRST_PAUSE
        while reply is not None or not until():
            try:
                reply = self._step(app, reply, say)
                heard, refused, pause = time.monotonic(), 0.0, _FIRST_PAUSE
                continue
            except (ObjectPullError, ObjectPushError):
                reply = None  # The server has given it up, and asks again if it needs to.
                continue
            except httpx.HTTPStatusError as error:
                reply, code = None, error.response.status_code
                trouble = f"HTTP {code}"
                if self._node is None and error.response.is_client_error:
                    heard = time.monotonic()
                    refused = refused or heard
                    if heard - refused > _ADMISSION:
                        raise self._not_admitted(trouble) from None
                elif code == httpx.codes.UNAUTHORIZED:
                    self._node = None  # The server began anew and has forgotten our number, or a clock was set.
                elif code == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
                    say("The reply is larger than the server takes.")
            except (httpx.TransportError, ValueError, LookupError) as error:
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    raise self._not_ours(error) from None
                refused, trouble = 0.0, type(error).__name__
            silence = time.monotonic() - heard
            if silence > _PARTING and until():
                return
            if silence > patience:
                raise self._silent(trouble, patience)
            if pause == _FIRST_PAUSE:
                say(f"No connection to {self.address} ({trouble}); trying again.")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _step(self, app: ClientApp, reply: Message | None, say: Callable[[str], None]) -> Message | None:
        """Join, send the reply, or answer the next question; the reply that is still to be sent."""
        if (node := self._node) is None:
            self.join()
            say(f"Connected to {self.address}.")
            return reply
        if reply is not None:
            self._send(node, reply)
            return None
        asked = time.monotonic()
        message = self._receive(node)
        if message is not None:
            return self._answered(app, node, message)
        if time.monotonic() - asked < _IDLE:  # a server that does not hold the question open
            time.sleep(_IDLE)
        return None

    def _beat(self, stop: threading.Event) -> None:
        while not stop.wait(_BEAT):
            if (node := self._node) is not None:
                # The other thread meets the same trouble, and deals with it.
                with contextlib.suppress(httpx.HTTPError, ValueError):
                    self._client.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=node, heartbeat_interval=_HEARTBEAT))

    def _receive(self, node: Node) -> Message | None:
        """The next message for us. It is delivered once; what is lost on the way is the server's to send again."""
        answer = self._client.PullMessages(PullMessagesRequest(node=node))
        if not answer.messages_list:
            return None
        run, tree = answer.messages_list[0].metadata.run_id, answer.message_object_trees[0]
        contents = pull_objects(
            [branch.object_id for branch in iterate_object_tree(tree)],
            make_pull_object_fn_protobuf(self._client.PullObject, node, run),
            initial_backoff=0.01,
            backoff_cap=0.2,
            max_time=10.0,
        )
        make_confirm_message_received_fn_protobuf(self._client.ConfirmMessageReceived, node, run)(tree.object_id)
        try:
            message = inflate_object_from_contents(tree.object_id, contents)
        except Exception:  # Flower's readers raise whatever they meet.
            message = None
        if not isinstance(message, Message):
            raise ObjectPullError(tree.object_id, "it is not a message")
        message.metadata.__dict__["_message_id"] = tree.object_id
        return message

    def _answered(self, app: ClientApp, node: Node, message: Message) -> Message:
        """The app's reply, signed; whatever goes wrong is a refusal."""
        try:
            # Flower's own state of an app starts empty each time: what must last is in the silo's folder.
            context = Context(message.metadata.run_id, node.node_id, {}, RecordDict(), {})
            reply = app(message=message, context=context)
            if reply.has_content():
                value = blob(reply, "blob")
                signature = sign_reply(self._key, blob(message, "blob"), value)
                reply = Message(content(blob=value, signature=signature), reply_to=message)
        except Exception as error:
            reply = Message(refusal(error), reply_to=message)
        # Our clock may be wrong, and Flower drops what seems to be too old or too young.
        reply.metadata.created_at, reply.metadata.ttl = message.metadata.created_at, message.metadata.ttl
        reply.metadata.__dict__["_message_id"] = reply.object_id
        return reply

    def _send(self, node: Node, reply: Message) -> None:
        with no_object_id_recompute():
            asked = PushMessagesRequest(
                node=node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
            )
            answer = self._client.PushMessages(asked)
            push_objects(
                get_all_nested_objects(reply),
                make_push_object_fn_protobuf(self._client.PushObject, node, reply.metadata.run_id, answer.session_id),
                object_ids_to_push=set(answer.objects_to_push),
            )

    def _not_admitted(self, trouble: str) -> InputError:
        return InputError(
            f"server {self.address}",
            "a server that knows this organisation's key, and nobody else who uses it",
            f"it did not let us in for {_ADMISSION:g} s ({trouble})",
            "Send node.pub to whoever runs the server, and see that no other process uses node.key.",
        )

    def _silent(self, trouble: str, patience: float) -> SilenceError:
        return SilenceError(
            f"server {self.address}",
            f"an answer within {patience:g} s",
            f"found none ({trouble})",
            "Ask whoever runs the server, and start again: nothing is lost.",
        )

    def _not_ours(self, error: Exception) -> InputError:
        return InputError(
            f"server {self.address}",
            f"a certificate for this name from the authority in {self._ca}",
            f"found another ({error})",
            "Nothing was sent. Compare the fingerprints of ca.crt with whoever runs the server.",
        )
