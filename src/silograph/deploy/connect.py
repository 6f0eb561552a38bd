"""The two ends of a deployment on NATS: what `serve` and `join` open, from their folders.

NATS is asked for here alone, when it is needed: without the extra `deploy` all the rest works.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from silograph.core.errors import InputError
from silograph.deploy.deployment import NODES, Deployment
from silograph.deploy.organisation import Approved, Card
from silograph.deploy.region import CARD, RegionCard, authority_of, known_to, part_of_job, read_region_card
from silograph.engines.certificates import (
    CA,
    NODE_KEY,
    SERVER,
    SERVER_KEY,
    SERVER_NAME,
    TLS,
    client_tls,
    node_name,
    read_private,
)
from silograph.engines.neighbours import Neighbours, node_of
from silograph.engines.remote import Asking

if TYPE_CHECKING:
    from silograph.engines.transport import Answerer, Asker


_CONNECTING = 20.0  # seconds


def _need(module: str, package: str, extra: str) -> None:
    if find_spec(module) is None:
        todo = f'pip install "silograph[{extra}]"'
        raise InputError("deployment", f"the package {package}", "it is not installed", todo)


def _need_nats() -> None:
    _need("nats", "nats-py", "deploy")


def answering(organisation: Approved, websocket: int | None = None, proxy: str | None = None) -> Answerer:
    """An organisation's connection to its server: to its WebSocket at that port, through that proxy."""
    _need_nats()
    if websocket is not None:
        _need("aiohttp", "aiohttp", "websocket")
    from silograph.engines.route import Proxy, Route
    from silograph.engines.transport import Answerer

    deployment, folder, address = organisation.deployment, organisation.folder, organisation.address
    tls, ca = organisation.tls, organisation.ca if deployment.terms.tls else folder / CA
    if websocket is not None:
        address = f"{address.rpartition(':')[0]}:{websocket}"
    route = Route(websocket is not None, None if proxy is None else Proxy.parse(proxy))
    return Answerer(address, tls, deployment.digest, organisation.organisation, organisation.node_key, ca, route)


@contextlib.contextmanager
def asking(
    folder: Path,
    deployment: Deployment,
    cards: Mapping[str, Card],
    host: str | None = None,
    port: int | None = None,
    nats: str | None = None,
    region: str | None = None,
    websocket: int | None = None,
) -> Iterator[Asker]:
    """The server's connection to the organisations: over a nats-server of its own, at `host` and `port` if these are
    not the deployment's, and for WebSocket at that port; or over the organisation's NATS at `nats`, which is
    configured as nats.conf says.

    The server of a `region` has its neighbours among them, as far as their links are kept here."""
    _need_nats()
    from silograph.engines.broker import Broker, Secured, reached_at, write_configuration
    from silograph.engines.transport import Asker

    terms, digest = deployment.at(region), deployment.digest
    host, port = host or terms.host, port or terms.port
    guests = {} if region is None else guests_of(folder, deployment, region)
    everybody: dict[str, Card | RegionCard] = {**cards, **guests}
    keys = {organisation: card.node.encode() for organisation, card in everybody.items()}
    secured, tls = None, None
    if terms.tls:
        clients = (folder / TLS).read_bytes() + b"".join(card.tls.encode() for card in everybody.values())
        secured = Secured(folder / SERVER, folder / SERVER_KEY, clients)
        tls = client_tls(folder / CA, folder)
    server = SERVER_NAME if region is None else node_name(node_of(region))
    configuration = write_configuration(folder, host, port, digest, keys, secured, server, websocket)
    with contextlib.ExitStack() as open_ends:
        if nats is None:
            open_ends.enter_context(Broker(configuration, host, port))
            nats = f"{reached_at(host)}:{port}"
        line = open_ends.enter_context(Asker(nats, tls, digest, keys, terms.host))
        if not line.online.wait(_CONNECTING):
            todo = f"Is it there, with the certificates and users of {configuration}?"
            raise InputError(f"NATS at {nats}", "a connection", line.trouble or "it does not answer", todo)
        yield line


# ---- regions ---------------------------------------------------------------------------------------------------------


def _known(folder: Path, deployment: Deployment, region: str) -> dict[str, RegionCard]:
    """Read the cards of all regions that this one talks to, or gets messages from through others."""
    known = [name for name in known_to(part_of_job(deployment, region, folder)) if name != region]
    return {name: read_region_card(folder / NODES / f"{name}{CARD}", name, deployment) for name in known}


def guests_of(folder: Path, deployment: Deployment, region: str) -> dict[str, RegionCard]:
    """Neighbours that come here: a link is kept by the region whose name comes first."""
    found, heard = _known(folder, deployment, region), part_of_job(deployment, region, folder).topo.heard
    return {node_of(name): card for name, card in found.items() if region < name and name in heard}


@contextlib.contextmanager
def among_neighbours(
    folder: Path,
    deployment: Deployment,
    region: str,
    asking: Asking,
    say: Callable[[str], None],
    proxy: str | None = None,
) -> Iterator[Neighbours]:
    """A region's server among its neighbours: `asking` reaches those that come here; to the others it goes itself,
    through that proxy."""
    _need_nats()
    from silograph.engines.route import Proxy, Route
    from silograph.engines.transport import Answerer

    cards, digest, key = _known(folder, deployment, region), deployment.digest, folder / NODE_KEY
    topo = part_of_job(deployment, region, folder).topo
    route = Route(proxy=None if proxy is None else Proxy.parse(proxy))
    with contextlib.ExitStack() as open_ends:
        lines = {}
        for name in cards:
            if name < region and name in topo.heard:
                address, ca = deployment.regions[name], authority_of(folder / NODES / f"{name}{CARD}")
                tls = client_tls(ca, folder) if deployment.terms.tls else None
                lines[name] = open_ends.enter_context(Answerer(address, tls, digest, node_of(region), key, ca, route))
        keys = {name: card.node.encode() for name, card in cards.items()}
        patience = deployment.terms.patience
        there = Neighbours(topo, digest, read_private(key), keys, asking, lines, patience, say)
        yield open_ends.enter_context(there)
