"""NameServerSource: addresses from a setting, from an address server, and from a host name."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.address_server import address_server, name_zone
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.clients.name_server_source import NameServerSource, address_server_url, split_addresses
from thermocline.remoting.errors import ConnectionLostError, InvalidParameterError, UnavailableError


def source(text: str) -> NameServerSource:
    return NameServerSource.parse(split_addresses(text))


async def test_addresses_stand_as_they_are() -> None:
    found = source("10.0.0.5:9876; namesrv.example.com:9876,[::1]:9877")
    assert found.is_fixed
    assert await found.fetch() == ("10.0.0.5:9876", "namesrv.example.com:9876", "[::1]:9877")


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.5", ":9876", "10.0.0.5:0", "10.0.0.5:70000", "dns://a:1;b:2", "http://a/x;b:2", "dns://a", "ftp://a"],
)
def test_invalid_sources_are_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError):
        source(text)


@pytest.mark.parametrize(
    ("domain", "subgroup", "unit_name", "url"),
    [
        ("jmenv.tbsite.net", "nsaddr", "", "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"),
        ("10.0.0.1:80", "blue", "", "http://10.0.0.1:80/rocketmq/blue"),
        ("names", "nsaddr", "unit1", "http://names:8080/rocketmq/nsaddr-unit1?nofix=1"),
    ],
)
def test_the_url_of_rocketmqs_properties(domain: str, subgroup: str, unit_name: str, url: str) -> None:
    assert address_server_url(domain, subgroup, unit_name) == url


async def test_an_address_server_is_asked_each_time() -> None:
    with address_server("10.0.0.5:9876", "10.0.0.6:9876") as server:
        found = source(server.url)
        assert not found.is_fixed
        assert await found.fetch() == ("10.0.0.5:9876", "10.0.0.6:9876")
        server.text = "  10.0.0.7:9876;10.0.0.7:9876;\r\nsomething else\n"
        assert await found.fetch() == ("10.0.0.7:9876",)
        assert server.paths == ["/rocketmq/nsaddr"] * 2


@pytest.mark.parametrize(
    ("status", "text"), [(500, "10.0.0.5:9876"), (404, ""), (200, ""), (200, "<html>"), (200, ";")]
)
async def test_an_answer_that_is_none(status: int, text: str) -> None:
    with address_server() as server:
        server.status, server.text = status, text
        with pytest.raises(UnavailableError):
            await source(server.url).fetch()
    with pytest.raises(UnavailableError, match="gives no answer"):
        await source(server.url).fetch()


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n10.0.0.5:987",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n10.0.0.5:987",
        b"",
    ],
)
async def test_an_address_server_that_is_none_or_stops_in_its_answer(data: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UnavailableError, match="gives no answer"):
            await source(f"http://127.0.0.1:{port}/").fetch()


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".test"])
async def test_a_host_that_can_be_no_name_has_no_address(host: str) -> None:
    with pytest.raises(UnavailableError, match="has no address now"):
        await source(f"dns://{host}:9876").fetch()
    with pytest.raises(ConnectionLostError):
        await ClientConnection.open(f"{host}:9876")


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 " + b"x" * 70_000, b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\nz"],
    ids=["ssh", "long line", "half a chunk"],
)
async def test_an_address_server_that_speaks_another_protocol(answer: bytes) -> None:
    """Python's HTTP client has errors of its own, which ended the tasks of brokers and clients that follow a list."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UnavailableError, match="gives no answer"):
            await source(f"http://127.0.0.1:{port}/rocketmq/nsaddr").fetch()
    with pytest.raises(UnavailableError, match="gives no answer"):
        await source("http://127.0.0.1:80/a b").fetch()


async def test_a_name_without_an_address_hides_no_other_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The name of a stopped container does not exist. With it, no NameServer was found at all."""
    zone: dict[str, list[str]] = {"gone.test": [], "there.test": ["127.0.0.2"]}
    name_zone(monkeypatch, zone)
    found = source("dns://gone.test:9876;dns://there.test:9877")
    for has_list in (False, True):
        assert await found.fetch(has_list=has_list) == ("127.0.0.2:9877",)
    assert "name=gone.test:9876" in caplog.text
    zone["there.test"] = []
    with pytest.raises(UnavailableError):
        await found.fetch()


@pytest.mark.parametrize("name", ["later.test", "x" * 64 + ".test"])
async def test_a_lookup_that_fails_for_now_takes_no_address_off_a_list(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A broker would leave a NameServer that is well, and its clients would find no route there."""
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if host == "later.test":
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    found = source(f"dns://{name}:9876;dns://127.0.0.2:9877")
    assert await found.fetch() == ("127.0.0.2:9877",)
    with pytest.raises(UnavailableError, match="has no address now"):
        await found.fetch(has_list=True)


async def test_every_address_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    zone = {"namesrv.test": ["127.0.0.1", "127.0.0.2"]}
    name_zone(monkeypatch, zone)
    found = source("dns://namesrv.test:9876")
    assert not found.is_fixed
    assert await found.fetch() == ("127.0.0.1:9876", "127.0.0.2:9876")
    zone["namesrv.test"] = ["::1", "127.0.0.2"]
    assert await found.fetch() == ("[::1]:9876", "127.0.0.2:9876")
    assert await source("namesrv.test:9876").by_dns().fetch() == ("[::1]:9876", "127.0.0.2:9876")
    zone["namesrv.test"] = []
    with pytest.raises(UnavailableError, match="has no address now"):
        await found.fetch()


async def test_the_real_resolver() -> None:
    assert "127.0.0.1:9876" in await source("dns://localhost:9876").fetch()
