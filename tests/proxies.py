"""Proxies of our own on this machine: one that opens tunnels as a web proxy does, one that spoils what passes."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable

HERE = "127.0.0.1"


class _Listener:
    """Accepts connections at `port`; each goes its way in threads of its own."""

    def __init__(self, port: int = 0) -> None:
        self._listening = socket.create_server((HERE, port))
        self.port = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listening.accept()
                self._open.append(here)
                threading.Thread(target=self._guarded, args=(here,), daemon=True).start()

    def _guarded(self, here: socket.socket) -> None:
        with contextlib.suppress(OSError), here:
            self.take(here)

    def take(self, here: socket.socket) -> None:
        raise NotImplementedError

    def connected(self, place: tuple[str, int]) -> socket.socket:
        there = socket.create_connection(place, 5.0)
        there.settimeout(None)
        self._open.append(there)
        return there

    def cut(self) -> None:
        """End all that is open now."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def __enter__(self):
        return self

    def __exit__(self, *ending) -> None:
        self.close()


def _pour(source: socket.socket, goal: socket.socket, change: Callable[[bytes], bytes]) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(1 << 16):
            goal.sendall(change(part))
    for each in (source, goal):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _join(one: socket.socket, other: socket.socket, change: Callable[[bytes], bytes] = lambda part: part) -> None:
    back = threading.Thread(target=_pour, args=(other, one, change), daemon=True)
    back.start()
    with other:
        _pour(one, other, change)
        back.join()


class WebProxy(_Listener):
    """Opens tunnels for CONNECT to names that it alone knows; `login` is what it expects, `asked` what it was asked."""

    def __init__(self, places: dict[str, tuple[str, int]], login: str | None = None) -> None:
        self.places, self.login, self.asked = places, login, []
        super().__init__()

    def take(self, here: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += here.recv(1)
        first, *lines = head.decode().splitlines()
        method, target, _ = first.split(" ")
        self.asked.append(target)
        login = next((line.split(": ")[1] for line in lines if line.startswith("Proxy-Authorization: ")), None)
        if login != self.login:
            here.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n")
        elif method != "CONNECT" or target not in self.places:
            here.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        else:
            there = self.connected(self.places[target])
            here.sendall(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
            _join(here, there)


class BadLine(_Listener):
    """Passes on to `place`: `delay` seconds late, `corrupt` of the pieces with a bit that flipped, nothing while
    `closed`."""

    def __init__(self, place: tuple[str, int], port: int = 0, seed: int = 0) -> None:
        self._place, self._chance = place, random.Random(seed)
        self.delay, self.corrupt, self.closed, self.spoiled = 0.0, 0.0, False, 0
        super().__init__(port)

    def take(self, here: socket.socket) -> None:
        if not self.closed:
            _join(here, self.connected(self._place), self._change)

    def _change(self, part: bytes) -> bytes:
        if self.delay:
            time.sleep(self.delay * self._chance.random())
        if self._chance.random() < self.corrupt:
            self.spoiled += 1
            at = self._chance.randrange(len(part))
            return part[:at] + bytes([part[at] ^ 1 << self._chance.randrange(8)]) + part[at + 1 :]
        return part
