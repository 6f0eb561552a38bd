"""A connection to NATS that reconnects whenever it breaks, and messages in frames that NATS can carry.

NATS delivers a frame at most once. A receiver fetches a larger message frame by frame, so nobody gets more than it
asked for, and a message larger than the limit never starts.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from silograph.engines.certificates import node_name
from silograph.engines.route import Route

LIMIT = 256 << 20  # bytes of a question or a reply
_HEAD = struct.Struct(">c16sQQ")  # kind, message, start of the part, bytes of the whole message
LARGEST = 1 << 20  # bytes of a frame: NATS's default limit
FRAME = LARGEST - _HEAD.size
_IDLE_WARNING = "returning true from eof_received"  # of asyncio, whenever a server ends a TLS connection
_LOOK = 0.1  # seconds until a broken connection is noticed
_CONNECTING = 30.0  # seconds until a connection attempt is given up
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between attempts to connect


def subject(deployment: str, organisation: str | None, way: str) -> str:
    """The subject of an organisation: `way` is ask or say; None is every organisation."""
    return f"silograph.{deployment[:32]}.{'*' if organisation is None else node_name(organisation)}.{way}"


def host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


@dataclass
class Incoming:
    """A message that arrives in parts. Memory is allocated as parts arrive, never for announced ones."""

    number: bytes = b""
    held: bytearray = field(default_factory=bytearray)

    def take(self, number: bytes, start: int, total: int, part: bytes) -> tuple[bytes | None, int | None]:
        """Take a part; return the whole message if this completes it, else the start of the next part needed."""
        if total > LIMIT or len(part) > FRAME:
            return None, None
        if number != self.number:
            self.number, self.held = number, bytearray()
        if start != len(self.held) or len(self.held) + len(part) > total:
            return None, len(self.held) if start == 0 else None  # the other end starts again: report how far we are
        self.held += part
        if len(self.held) < total:
            return None, len(self.held) if part else None
        whole, self.number, self.held = bytes(self.held), b"", bytearray()
        return whole, None


def frame(kind: bytes, number: bytes, start: int = 0, message: bytes = b"") -> bytes:
    part = memoryview(message)[start : start + FRAME]
    return b"".join([_HEAD.pack(kind, number, start, len(message)), part])


def _root(error: BaseException) -> BaseException:
    """The first error: libraries wrap it in their own errors."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _tells_something(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_IDLE_WARNING)


class Line:
    """A connection to NATS in its own thread, which reconnects whenever it breaks."""

    def __init__(
        self, address: str, tls: ssl.SSLContext | None, host: str, listening: str, route: Route | None = None
    ) -> None:
        self.address, self._route = address, route or Route()
        self.online, self.trouble = threading.Event(), ""
        self._tls, self._host, self._listening = tls, host, listening
        self._client, self._stopped = Client(), False
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._live()), daemon=True)

    def __enter__(self) -> Self:
        logging.getLogger("asyncio").addFilter(_tells_something)
        self._loop = self._route.loop(self.address)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped = True
        self._soon(self.leave())
        self._thread.join()
        self._loop.close()

    def send(self, where: str, content: bytes) -> None:
        """Send if there is a connection; the receiver asks again for lost messages."""
        self._soon(self.publish(where, content))

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the connection is closed for good
            work.close()

    async def publish(self, where: str, content: bytes) -> None:
        with suppress(NatsError, OSError):
            await self._client.publish(where, content)

    async def leave(self) -> None:
        """Close, after all messages sent before have reached NATS."""
        with suppress(NatsError, OSError, asyncio.TimeoutError):
            await self._client.flush(timeout=2)
        with suppress(Exception):  # in any state of a connection being made
            await asyncio.wait_for(self._client.close(), 2.0)

    async def _live(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopped:
            client = self._client = Client()
            problems: list[BaseException] = []

            async def on_error(error: Exception, problems: list[BaseException] = problems) -> None:
                problems.append(_root(error))

            try:
                async with asyncio.timeout(_CONNECTING):
                    await client.connect(
                        self._route.url(self.address, self._tls is not None),
                        tls=self._tls,
                        tls_hostname=self._host,
                        tls_handshake_first=self._tls is not None,
                        allow_reconnect=False,
                        max_reconnect_attempts=1,
                        reconnect_time_wait=0,
                        connect_timeout=10,
                        ping_interval=5,
                        error_cb=on_error,
                    )
                await client.subscribe(self._listening, cb=self._take, pending_bytes_limit=LIMIT)
                await client.flush()
                self.online.set()
                pause = _FIRST_PAUSE
                self.connected()
                while client.is_connected and not self._stopped:  # there is no callback if closing itself fails
                    await asyncio.sleep(_LOOK)
            except (TimeoutError, NatsError, OSError, ValueError) as error:
                problems.append(_root(error))
            self.online.clear()
            self.trouble = (str(problems[0]) or type(problems[0]).__name__)[:200] if problems else "it was closed"
            self.disconnected(problems)
            with suppress(Exception):  # in any state of a failed connection
                await asyncio.wait_for(client.close(), 1.0)
            if not self._stopped:
                await asyncio.sleep(pause)
                pause = min(2.0 * pause, _LONGEST_PAUSE)
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1.0)

    async def _take(self, message: Msg) -> None:
        if len(message.data) >= _HEAD.size:
            kind, number, start, total = _HEAD.unpack_from(message.data)
            self.heard(message.subject, kind, number, start, total, message.data[_HEAD.size :])

    def connected(self) -> None: ...

    def disconnected(self, problems: list[BaseException]) -> None: ...

    def heard(self, where: str, kind: bytes, number: bytes, start: int, total: int, part: bytes) -> None:
        raise NotImplementedError
