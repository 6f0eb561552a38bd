"""By WebSocket and through a web proxy: the same questions, the same certificates, and nobody else."""

import asyncio
import os
import ssl

import pytest

pytest.importorskip("nats", reason="deployments need the extra `deploy`")
pytest.importorskip("aiohttp", reason="WebSocket needs the extra `websocket`")

import aiohttp
from nats_world import HERE, Organisation, World

from proxies import WebProxy
from silograph.core.errors import InputError
from silograph.engines import transport
from silograph.engines.route import Proxy, Route


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("world"))
    with made.broker():
        yield made


@pytest.fixture
def joined(world):
    there = []

    def start(route, name="north", patience=20.0):
        there.append(Organisation(world.answerer(name, route=route), lambda question: question[::-1], patience))
        return there[-1]

    yield start
    for one in there:
        one.stop()


def proxy_to(world, login=None):
    return WebProxy({f"{HERE}:{port}": (HERE, port) for port in (world.port, world.web)}, login)


@pytest.mark.parametrize("websocket", [False, True], ids=["TLS", "WebSocket"])
@pytest.mark.parametrize("login", [None, "Basic YTpiIGM="], ids=["open", "login"])
def test_questions_come_through_a_web_proxy(world, joined, websocket, login):
    large = os.urandom(3_000_000)
    with proxy_to(world, login) as proxy, world.asker() as asker:
        url = f"http://{'' if login is None else 'a:b%20c@'}{HERE}:{proxy.port}"
        north = joined(Route(websocket, Proxy.parse(url)))
        for question in (b"abc", large):
            assert asker.ask({"north": question}, 20.0).replies == {"north": question[::-1]}
        proxy.cut()
        assert asker.ask({"north": b"def"}, 20.0).replies == {"north": b"fed"}
        assert north.asked == [b"abc", large, b"def"]
        assert proxy.asked == [f"{HERE}:{world.web if websocket else world.port}"] * 2
        assert "b c" not in repr(Proxy.parse(url))


def test_questions_come_by_websocket(world, joined):
    joined(Route(websocket=True))
    with world.asker() as asker:
        assert asker.ask({"north": b"abc"}, 20.0).replies == {"north": b"cba"}


def test_a_proxy_that_says_no_is_named(world, joined):
    with WebProxy({}) as proxy:
        north = joined(Route(proxy=Proxy(HERE, proxy.port)), patience=1.0)
        north.thread.join(20.0)
        assert f"the proxy {HERE}:{proxy.port} opens no tunnel: '403 Forbidden'" in str(north.error)


def test_names_are_looked_up_by_the_proxy_alone(world):
    """Whoever sits behind a proxy often cannot look up names of the outside."""
    with WebProxy({"silo.invalid:443": (HERE, world.port)}) as proxy:
        loop = Route(proxy=Proxy(HERE, proxy.port)).loop("silo.invalid:443")
        try:
            told = loop.run_until_complete(asyncio.wait_for(_version(world), 10.0))
        finally:
            loop.close()
    assert told == "TLSv1.3"


async def _version(world):
    tls = world.tls("north")
    _, writer = await asyncio.open_connection("silo.invalid", 443, ssl=tls, server_hostname=HERE)
    version = writer.get_extra_info("ssl_object").version()
    writer.close()
    return version


@pytest.mark.parametrize(
    "text", ["127.0.0.1:3128", "https://h:1", "http://h", "http://h:70000", "http://h:1/x", "socks5://h:1"]
)
def test_what_is_no_proxy_is_refused_before_anything(text):
    with pytest.raises(InputError, match="proxy: expected http://HOST:PORT"):
        Proxy.parse(text)


# ---- strangers -------------------------------------------------------------------------------------------------------


def _reached(world, tls):
    """What a web client with this certificate hears of NATS."""

    async def go():
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"wss://{HERE}:{world.web}", ssl=tls) as socket,
        ):
            return (await socket.receive()).data

    return asyncio.run(asyncio.wait_for(go(), 10.0))


def test_who_is_not_known_does_not_come_in_by_websocket_either(world):
    assert _reached(world, world.tls("north")).startswith(b"INFO ")
    world.add("stranger")
    world.add("thief", called="north")
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(world.server / "ca.crt")
    for tls in (bare, world.tls("stranger"), world.tls("thief")):
        with pytest.raises((aiohttp.ClientError, OSError)):
            _reached(world, tls)


@pytest.mark.parametrize("websocket", [False, True], ids=["TLS", "WebSocket"])
def test_who_meets_another_server_or_is_not_known_is_told_so(world, tmp_path, monkeypatch, websocket):
    monkeypatch.setattr(transport, "_ADMISSION", 0.5)
    route = Route(websocket)
    other = World(tmp_path)
    north = Organisation(world.answerer("north", ca=other.server / "ca.crt", route=route), bytes)
    name = f"stranger by {websocket}"
    world.add(name)
    stranger = Organisation(world.answerer(name, route=route), bytes, patience=180.0)
    for each, said in ((north, "from the authority in"), (stranger, "did not let us in for")):
        each.thread.join(180.0)  # by WebSocket on a busy machine a reset mostly overtakes the server's no
        assert said in str(each.error)
