"""How a connection reaches NATS: by TCP or WebSocket, directly or through an HTTP proxy.

TLS is between the two ends in every case: a proxy opens a tunnel and reads nothing.
"""

from __future__ import annotations

import asyncio
import base64
import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from silograph.core.errors import InputError

_LONGEST_ANSWER = 8192  # most bytes from a proxy before the tunnel begins


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy at `host`:`port` that opens tunnels for CONNECT; `user`:`password` if it asks for them."""

    host: str
    port: int
    login: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> Proxy:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if host is None or port is None or parts.scheme != "http" or parts.path not in ("", "/"):
            raise InputError("proxy", "http://HOST:PORT or http://USER:PASSWORD@HOST:PORT", "found something else")
        login = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return cls(host, port, login)

    def request(self, target: str) -> bytes:
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if self.login is not None:
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(self.login.encode()).decode()}")
        return "\r\n".join([*lines, "", ""]).encode()


@dataclass(frozen=True)
class Route:
    """`websocket`: looks like a web page, for networks that let nothing else pass."""

    websocket: bool = False
    proxy: Proxy | None = None

    def url(self, address: str, tls: bool) -> str:
        plain, secure = ("ws", "wss") if self.websocket else ("nats", "tls")
        return f"{secure if tls else plain}://{address}"

    def loop(self, address: str) -> asyncio.AbstractEventLoop:
        """An event loop that makes its connections this way, all of them to `address`."""
        return asyncio.new_event_loop() if self.proxy is None else _Tunnels(self.proxy, address)


class _Tunnels(asyncio.SelectorEventLoop):
    """Every connection is a tunnel through `proxy` to `target`; the proxy looks its name up."""

    def __init__(self, proxy: Proxy, target: str) -> None:
        super().__init__()
        self._proxy, self._target = proxy, target

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return await super().getaddrinfo(self._proxy.host, self._proxy.port, **options)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        found = await self.getaddrinfo(None, None, family=sock.family, type=socket.SOCK_STREAM)
        await super().sock_connect(sock, found[0][4])
        await self.sock_sendall(sock, self._proxy.request(self._target))
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            one = await self.sock_recv(sock, 1)  # no byte of the tunnel
            answer += one
            if not one or len(answer) > _LONGEST_ANSWER:
                raise ConnectionError(
                    f"the proxy {self._proxy.host}:{self._proxy.port} gives no answer that can be read"
                )
        words = answer.partition(b"\r\n")[0].decode("ascii", "replace").split(" ", 2)
        if words[0] not in ("HTTP/1.0", "HTTP/1.1") or words[1:2] != ["200"]:
            said = " ".join(words[1:])[:80]
            raise ConnectionError(f"the proxy {self._proxy.host}:{self._proxy.port} opens no tunnel: {said!r}")
