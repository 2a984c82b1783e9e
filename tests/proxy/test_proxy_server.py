"""One port for TLS and plain text, health, and a stop under load."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.proxy.http2_peer import GrpcPeer
from tests.proxy.proxy_under_test import consumer_settings, make_topics, message, proxy_before, seconds, send_request
from tests.waiting import until
from thermocline.client.testing import FakeBroker
from thermocline.proxy import proxy_health
from thermocline.proxy.grpc.messages import SERVICE, Code
from thermocline.remoting.errors import SettingError
from thermocline.remoting.settings import TlsConfig

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
HEALTH = "/grpc.health.v1.Health/Check"


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The authority's certificate, and certificate and key of a server."""
    authority = Authority(tmp_path)
    return (authority.path, *authority.issue("s.pem", "s.key", subject="proxy", addresses=["127.0.0.1"]))


def client_context(authority: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority))
    context.set_alpn_protocols(["h2"])
    return context


def tls_of(files: tuple[Path, Path, Path], mode: str) -> TlsConfig:
    return TlsConfig(server_mode=mode, server_certificate_path=str(files[1]), server_key_path=str(files[2]))


async def test_one_port_takes_tls_and_plain_text(broker: FakeBroker, files: tuple[Path, Path, Path]) -> None:
    async with proxy_before(broker, tls=tls_of(files, "permissive")) as proxy:
        assert (await proxy.call("SendMessage", send_request(message()))).status.code == Code.OK
        async with GrpcPeer(proxy.address, tls=client_context(files[0])) as peer:
            assert peer.agreed_protocol == "h2"
            large = send_request(message(body=b"x" * (4 << 20)))
            assert (await peer.call("SendMessage", large)).status.code == Code.OK


async def test_modes_of_the_port(broker: FakeBroker, files: tuple[Path, Path, Path]) -> None:
    async with proxy_before(broker, tls=tls_of(files, "enforcing")) as proxy:
        _, answer = proxy.peer.open(HEALTH, b"")
        assert (await proxy.peer.done(answer)).status == -1  # closed without an answer
        async with GrpcPeer(proxy.address, tls=client_context(files[0])) as peer:
            _, answer = peer.open(HEALTH, b"")
            assert (await peer.done(answer)).payloads() == [SERVING]
    async with proxy_before(broker, tls=TlsConfig(server_mode="disabled")) as proxy:
        _, answer = proxy.peer.open(HEALTH, b"")
        assert (await proxy.peer.done(answer)).payloads() == [SERVING]
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with GrpcPeer(proxy.address, tls=client_context(files[0])):
                pass


async def test_certificates_that_cannot_be_used_end_the_start(broker: FakeBroker, tmp_path: Path) -> None:
    missing = TlsConfig(server_certificate_path=str(tmp_path / "c"), server_key_path=str(tmp_path / "k"))
    with pytest.raises(SettingError):
        async with proxy_before(broker, tls=missing):
            pass


async def test_readiness_is_that_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_health, "PROBE_AGE_S", 0.0)
    named = b"\x0a" + bytes((len(SERVICE),)) + SERVICE.encode()
    with FakeBroker() as alone:
        async with proxy_before(alone) as proxy:
            for request, payload, is_closed in (
                (named, SERVING, False),
                (b"", SERVING, True),
                (named, NOT_SERVING, True),
            ):
                if is_closed:
                    await asyncio.to_thread(alone.close)
                _, answer = proxy.peer.open(HEALTH, request)
                assert (await proxy.peer.done(answer)).payloads() == [payload]


async def test_a_stop_ends_polls_and_streams_and_answers_what_is_in_flight(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy:
        _, telemetry = await proxy.connect(consumer_settings())
        await proxy.peer.answers(telemetry, 1)
        poll = asyncio.create_task(proxy.receive(long_polling_timeout=seconds(2), topic="Fifo"))
        await until(lambda: proxy.server.app.polls == 1)
        await proxy.server.close()
        assert telemetry.status == 14  # UNAVAILABLE: elsewhere
        with pytest.raises(AssertionError):  # so did the poll
            await poll
        await proxy.server.close()
