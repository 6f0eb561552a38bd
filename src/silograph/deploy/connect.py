"""The two ends of a deployment on NATS: what `serve` and `join` open, from their folders.

NATS is asked for here alone, when it is needed: without the extra `deploy` all the rest works.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from silograph.core.errors import InputError
from silograph.deploy.deployment import Deployment
from silograph.deploy.organisation import Approved, Card
from silograph.engines.certificates import CA, SERVER, SERVER_KEY, TLS, client_tls

if TYPE_CHECKING:
    from silograph.engines.transport import Answerer, Asker


_CONNECTING = 20.0  # seconds


def _need_nats() -> None:
    try:
        import nats  # noqa: F401
    except ImportError:
        todo = 'pip install "silograph[deploy]"'
        raise InputError("deployment", "the package nats-py", "it is not installed", todo) from None


def answering(organisation: Approved) -> Answerer:
    """An organisation's connection to its server."""
    _need_nats()
    from silograph.engines.transport import Answerer

    deployment, folder = organisation.deployment, organisation.folder
    address, ca = deployment.terms.address, folder / CA
    return Answerer(address, organisation.tls, deployment.digest, organisation.organisation, organisation.node_key, ca)


@contextlib.contextmanager
def asking(
    folder: Path,
    deployment: Deployment,
    cards: Mapping[str, Card],
    host: str | None = None,
    port: int | None = None,
    nats: str | None = None,
) -> Iterator[Asker]:
    """The server's connection to the organisations: over a nats-server of its own, at `host` and `port` if these are
    not the deployment's, or over the organisation's NATS at `nats`, which is configured as nats.conf says."""
    _need_nats()
    from silograph.engines.broker import Broker, Secured, reached_at, write_configuration
    from silograph.engines.transport import Asker

    terms, digest = deployment.terms, deployment.digest
    host, port = host or terms.host, port or terms.port
    keys = {organisation: card.node.encode() for organisation, card in cards.items()}
    secured, tls = None, None
    if terms.tls:
        clients = (folder / TLS).read_bytes() + b"".join(card.tls.encode() for card in cards.values())
        secured = Secured(folder / SERVER, folder / SERVER_KEY, clients)
        tls = client_tls(folder / CA, folder)
    configuration = write_configuration(folder, host, port, digest, keys, secured)
    with contextlib.ExitStack() as open_ends:
        if nats is None:
            open_ends.enter_context(Broker(configuration, host, port))
            nats = f"{reached_at(host)}:{port}"
        line = open_ends.enter_context(Asker(nats, tls, digest, keys, terms.host))
        if not line.online.wait(_CONNECTING):
            todo = f"Is it there, with the certificates and users of {configuration}?"
            raise InputError(f"NATS at {nats}", "a connection", line.trouble or "it does not answer", todo)
        yield line
