"""A proxy that listens on several addresses: what the routes of each listener name, and which of them take TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.proxy.http2_peer import GrpcPeer
from tests.proxy.proxy_under_test import GROUP, ProxyUnderTest, make_topics, proxy_before, resource
from tests.proxy.remoting.remoting_peer import client_of
from thermocline.client.testing import FakeBroker
from thermocline.localstack.loopback_port import free_port
from thermocline.proxy.grpc.messages import enums, messages
from thermocline.remoting.errors import MQError
from thermocline.remoting.tls import ClientTls, TlsOptions

PRIVATE, PUBLIC, PLAIN = "127.0.0.2", "127.0.0.3", "127.0.0.4"


class Ports:
    """Free ones, the same at each address."""

    def __init__(self) -> None:
        self.grpc, self.remoting = free_port(), free_port()
        self.text = (
            f"grpc {PRIVATE}:{self.grpc} access=proxy.internal:18081;"
            f"grpc {PUBLIC}:{self.grpc} access=203.0.113.7:443 tls=enforcing;"
            f"grpc {PLAIN}:{self.grpc} tls=disabled;"
            f"remoting {PRIVATE}:{self.remoting} access=proxy.internal:18080;"
            f"remoting {PUBLIC}:{self.remoting} access=[2001:db8::7]:443 tls=enforcing;"
            f"remoting {PLAIN}:{self.remoting} tls=disabled"
        )


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


@pytest.fixture
def ports() -> Ports:
    return Ports()


@pytest.fixture
async def proxy(broker: FakeBroker, ports: Ports) -> AsyncIterator[ProxyUnderTest]:
    async with proxy_before(broker, more_listeners=ports.text) as running:
        yield running


def any_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def dialled(host: str, port: int) -> Any:
    """Endpoints as a client was configured with them."""
    scheme = enums.AddressScheme.DOMAIN_NAME
    return messages.Endpoints(scheme=scheme, addresses=[messages.Address(host=host, port=port)])


async def named(peer: Any, endpoints: Any) -> set[tuple[int, str, int]]:
    """Scheme, host and port that QueryRoute and QueryAssignment name."""
    route = messages.QueryRouteRequest(topic=resource("Normal"), endpoints=endpoints)
    assignment = messages.QueryAssignmentRequest(topic=resource("Normal"), group=resource(GROUP), endpoints=endpoints)
    brokers = [queue.broker for queue in (await peer.call("QueryRoute", route)).message_queues]
    brokers += [each.message_queue.broker for each in (await peer.call("QueryAssignment", assignment)).assignments]
    assert brokers
    return {
        (broker.endpoints.scheme, address.host, address.port)
        for broker in brokers
        for address in broker.endpoints.addresses
    }


async def test_routes_of_grpc_clients_name_the_address_of_their_listener(proxy: ProxyUnderTest, ports: Ports) -> None:
    scheme, endpoints = enums.AddressScheme, dialled("balancer", 1)
    for host, tls, wanted in (
        (PRIVATE, None, (scheme.DOMAIN_NAME, "proxy.internal", 18081)),
        (PRIVATE, any_certificate(), (scheme.DOMAIN_NAME, "proxy.internal", 18081)),
        (PUBLIC, any_certificate(), (scheme.IPv4, "203.0.113.7", 443)),
        (PLAIN, None, (scheme.DOMAIN_NAME, "balancer", ports.grpc)),
    ):
        async with GrpcPeer(f"{host}:{ports.grpc}", tls=tls) as peer:
            assert await named(peer, endpoints) == {wanted}
    main_port = proxy.server.app.grpc_port
    assert await named(proxy, endpoints) == {(scheme.DOMAIN_NAME, "balancer", main_port)}
    assert await named(proxy, None) == {(scheme.IPv4, "127.0.0.1", main_port)}


async def test_grpc_clients_of_a_remoting_listener_get_its_address(proxy: ProxyUnderTest, ports: Ports) -> None:
    async with GrpcPeer(f"{PUBLIC}:{ports.remoting}", tls=any_certificate()) as peer:
        assert await named(peer, dialled("x", 1)) == {(enums.AddressScheme.IPv6, "2001:db8::7", 443)}


async def test_the_main_listener_may_have_an_address_too(broker: FakeBroker) -> None:
    async with proxy_before(broker, grpc_access_address="front:7", use_endpoint_port=True) as proxy:
        assert await named(proxy, dialled("x", 1)) == {(enums.AddressScheme.DOMAIN_NAME, "front", 7)}


async def test_routes_of_remoting_clients_name_the_address_of_their_listener(
    proxy: ProxyUnderTest, ports: Ports
) -> None:
    tls = ClientTls(TlsOptions(verify=False))
    for host, options, wanted in (
        (PRIVATE, {}, "proxy.internal:18080"),
        (PUBLIC, {"tls": tls}, "[2001:db8::7]:443"),
        (PLAIN, {}, f"{PLAIN}:{ports.remoting}"),
    ):
        async with client_of(proxy, **options) as client:
            client.address = f"{host}:{ports.remoting}"
            (data,) = (await client.route()).broker_datas
            assert data.broker_addrs == {0: wanted}
    async with client_of(proxy) as client:
        (data,) = (await client.route()).broker_datas
        assert data.broker_addrs == {0: client.address}


@pytest.mark.parametrize(("host", "is_tls"), [(PUBLIC, False), (PLAIN, True)])
async def test_a_listener_takes_what_its_mode_says(
    proxy: ProxyUnderTest, ports: Ports, host: str, is_tls: bool
) -> None:
    """The proxy's own mode is permissive."""
    tls = any_certificate() if is_tls else None
    with pytest.raises((OSError, AssertionError)):
        async with GrpcPeer(f"{host}:{ports.grpc}", tls=tls) as peer:
            await named(peer, dialled("x", 1))
    async with client_of(proxy, tls=ClientTls(TlsOptions(verify=False)) if is_tls else None) as client:
        client.address = f"{host}:{ports.remoting}"
        with pytest.raises(MQError):
            await client.route()


async def test_an_address_that_is_taken_ends_the_start(broker: FakeBroker, ports: Ports) -> None:
    async with proxy_before(broker, more_listeners=ports.text):
        with pytest.raises(OSError, match="in use"):
            async with proxy_before(broker, more_listeners=ports.text):
                pass


async def test_a_stop_closes_every_listener(broker: FakeBroker, ports: Ports) -> None:
    async with proxy_before(broker, more_listeners=ports.text):
        pass
    for host in (PRIVATE, PUBLIC, PLAIN):
        for port in (ports.grpc, ports.remoting):
            with pytest.raises(ConnectionRefusedError):
                async with GrpcPeer(f"{host}:{port}"):
                    pass
