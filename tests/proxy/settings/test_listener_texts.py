"""The setting `moreListeners`, and which of its listeners a connection came by."""

from __future__ import annotations

import pytest

from thermocline.proxy.settings import ProxyConfig
from thermocline.proxy.settings.listener_texts import Listener, Listeners, parse_listeners
from thermocline.remoting.errors import SettingError

TEXT = "grpc 10.0.0.5:8081 access=proxy.internal:18081; ; remoting [::]:8080 tls=disabled access=[2001:db8::1]:80;"


def test_a_text_names_protocol_address_access_and_tls() -> None:
    assert parse_listeners(TEXT) == [
        Listener(protocol="grpc", place=("10.0.0.5", 8081), access=("proxy.internal", 18081)),
        Listener(protocol="remoting", place=("::", 8080), access=("2001:db8::1", 80), tls_mode="disabled"),
    ]
    assert parse_listeners("") == []


def test_a_connection_came_by_the_listener_of_its_own_end() -> None:
    one, other, every = found = parse_listeners("grpc 127.0.0.2:1; grpc 127.0.0.3:1; remoting 0.0.0.0:2")
    listeners = Listeners(found)
    assert [listeners.of(place) for place in (("127.0.0.2", 1), ("127.0.0.3", 1), ("127.0.0.9", 2))] == [
        one,
        other,
        every,
    ]
    assert [listeners.of(place) for place in (("127.0.0.1", 1), ("::1", 2), ("127.0.0.2", 3))] == [None] * 3


def test_one_port_of_both_families_is_no_address_twice() -> None:
    assert len(parse_listeners("grpc 0.0.0.0:1; grpc [::]:1", main=[("10.0.0.1", 2)])) == 2


WRONG = {
    "a protocol": ("http 127.0.0.2:1", "a listener is"),
    "no address": ("grpc", "a listener is"),
    "a name": ("grpc localhost:1", "an IP address"),
    "no port": ("grpc 127.0.0.2", "host:port is wanted"),
    "a free port": ("grpc 127.0.0.2:0", "needs a port"),
    "an option": ("grpc 127.0.0.2:1 public", "each once"),
    "an option twice": ("grpc 127.0.0.2:1 tls=disabled tls=enforcing", "each once"),
    "a mode": ("grpc 127.0.0.2:1 tls=maybe", "one of disabled, permissive, enforcing"),
    "access without a port": ("grpc 127.0.0.2:1 access=proxy", "host:port is wanted"),
    "access that clients cannot connect to": ("grpc 127.0.0.2:1 access=0.0.0.0:1", "cannot name this address"),
    "access at port 0": ("grpc 127.0.0.2:1 access=proxy:0", "cannot name this address"),
    "an address twice": ("grpc 127.0.0.2:1; remoting 127.0.0.2:1", "twice"),
    "an address of all": ("grpc 127.0.0.2:1; remoting 0.0.0.0:1", "twice"),
    "the main address": ("grpc 127.0.0.1:8081", "twice"),
    "the main remoting address": ("grpc 0.0.0.0:8080", "twice"),
    "too many": (";".join(f"grpc 127.0.0.2:{port}" for port in range(1, 18)), "too many"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_listened_on_is_refused(name: str) -> None:
    text, sentence = WRONG[name]
    with pytest.raises(SettingError, match=f"^moreListeners: .*{sentence}"):
        ProxyConfig(more_listeners=text)


def test_other_refusals() -> None:
    with pytest.raises(SettingError, match=r"^moreListeners: remotingListenPort=-1"):
        ProxyConfig(remoting_port=-1, more_listeners="remoting 127.0.0.2:1")
    for text in ("proxy", "proxy:0", "0.0.0.0:8081", "[::]:1"):
        with pytest.raises(SettingError, match=r"^grpcAccessAddr: "):
            ProxyConfig(grpc_access_address=text)
