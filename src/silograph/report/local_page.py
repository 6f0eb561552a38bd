"""Pages for this machine alone: they listen at 127.0.0.1, answer GET, and know no other host's name.

A browser on this machine can be made to ask for a page here under another name; such a request is turned away.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from silograph.core.errors import InputError

#: By path: what it answers now, as status, kind of content, content.
Pages = Mapping[str, Callable[[], tuple[int, str, str]]]

HTML, JSON, METRICS = "text/html; charset=utf-8", "application/json", "text/plain; version=0.0.4; charset=utf-8"
_HOST = "127.0.0.1"
_SILENT = 5.0  # seconds until a connection that asks nothing is closed


class LocalPages:
    """Answers at `port` of this machine, 0 for any, until `__exit__`; `port` then is the one it has."""

    def __init__(self, port: int, pages: Pages) -> None:
        handler = type("Handler", (_Handler,), {"pages": pages})
        try:
            self._server = ThreadingHTTPServer((_HOST, port), handler)
        except (OSError, OverflowError) as error:
            found = f"it cannot be had ({getattr(error, 'strerror', None) or error})"
            raise InputError(f"port {port}", "a free port of this machine", found, "Choose another.") from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    pages: Pages
    timeout = _SILENT
    server_version, sys_version = "silograph", ""

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rpartition(":")[0]
        page = self.pages.get(self.path)
        if host not in (_HOST, "localhost"):
            self._answer(421, JSON, '{"error": "this page is for this machine alone"}')
        elif page is None:
            self._answer(404, JSON, '{"error": "there is no such page"}')
        else:
            self._answer(*page())

    def _answer(self, status: int, kind: str, content: str) -> None:
        body = content.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: visits are not logged."""
