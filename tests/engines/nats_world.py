"""A real nats-server on this machine, with certificates as a deployment has them, and organisations in threads."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from silograph.engines.broker import Broker, Secured, write_configuration
from silograph.engines.certificates import (
    SERVER_NAME,
    certify_node,
    client_tls,
    make_authority,
    make_node_key,
    node_name,
    read_public,
)
from silograph.engines.route import Route
from silograph.engines.transport import Answerer, Asker

HERE = "127.0.0.1"
DEPLOYMENT = "d" * 64


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HERE, 0))
        return one.getsockname()[1]


class World:
    """Keys of a server and of organisations in folders of `folder`."""

    def __init__(self, folder: Path, names=("north", "south"), days: int = 5) -> None:
        self.folder, self.names, self.port = folder, tuple(names), free_port()
        self.web = free_port()  # of WebSocket
        self.server = folder / "server"
        make_authority(self.server, [HERE], days)
        make_node_key(self.server)
        certify_node(self.server, SERVER_NAME)
        for name in self.names:
            self.add(name)

    @property
    def address(self) -> str:
        return f"{HERE}:{self.port}"

    def add(self, name: str, called: str | None = None, days: int = 5) -> Path:
        """An organisation's key; its certificate may be in another's name."""
        make_node_key(self.folder / name)
        certify_node(self.folder / name, node_name(called or name), days)
        return self.folder / name

    def broker(self) -> Broker:
        clients = b"".join((self.folder / name / "tls.crt").read_bytes() for name in ("server", *self.names))
        secured = Secured(self.server / "server.crt", self.server / "server.key", clients)
        where = write_configuration(
            self.server, HERE, self.port, DEPLOYMENT, dict.fromkeys(self.names), secured, websocket=self.web
        )
        return Broker(where, HERE, self.port)

    def tls(self, name: str):
        return client_tls(self.server / "ca.crt", self.folder / name)

    def asker(self) -> Asker:
        keys = {name: read_public(self.folder / name / "node.pub") for name in self.names}
        return Asker(self.address, self.tls("server"), DEPLOYMENT, keys, HERE)

    def answerer(self, name: str, ca: Path | None = None, route: Route | None = None) -> Answerer:
        ca = ca or self.server / "ca.crt"
        folder = self.folder / name
        address = f"{HERE}:{self.web}" if route is not None and route.websocket else self.address
        return Answerer(address, client_tls(ca, folder), DEPLOYMENT, name, folder / "node.key", ca, route)


class Organisation:
    """An organisation in a thread: what it was asked, what it said on its screen, how it ended."""

    def __init__(self, line: Answerer, answer, patience: float = 20.0) -> None:
        self.asked, self.said, self.error = [], [], None
        self.leaving = threading.Event()
        self._line, self._answer, self._patience = line, answer, patience
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        def answer(question):
            self.asked.append(question)
            return self._answer(question)

        try:
            with self._line:
                self._line.serve(answer, self.leaving.is_set, self._patience, self.said.append)
        except Exception as error:
            self.error = error

    def stop(self) -> None:
        self.leaving.set()
        self.thread.join(20.0)
        assert not self.thread.is_alive()
