"""Clients of a proxy: from their settings to their goodbye, or to their silence."""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.proxy.clients import ClientKind, ClientRegistry, ProxyClient
from thermocline.remoting.errors import BrokerBusyError


class Channel:
    def send(self, command: Any) -> bool:
        return True


class Registered:
    def __init__(self) -> None:
        self.now_ms = 0.0
        self.removed: list[str] = []
        self.groups_gone: list[str] = []
        self.registry = ClientRegistry(
            clients_max=3,
            names_max=2,
            settings_bytes_max=1_000,
            expiry_ms=120_000,
            clock_ms=lambda: self.now_ms,
            on_removed=[lambda client: self.removed.append(client.client_id)],
            on_group_gone=self.groups_gone.append,
        )

    def add(
        self,
        client_id: str,
        *names: str,
        kind: str = ClientKind.PRODUCER,
        channel: bool = True,
        settings_bytes: int = 0,
    ) -> ProxyClient:
        client = ProxyClient(
            client_id=client_id,
            kind=kind,
            language="PYTHON",
            version="5",
            remote_address="",
            names=names,
            settings_bytes=settings_bytes,
            channel=Channel() if channel else None,
        )
        return self.registry.register(client)


def test_checks_go_to_the_producers_of_a_group_in_turn() -> None:
    registered = Registered()
    registered.add("a", "T")
    registered.add("b", "T", channel=False)
    registered.add("c", "T", "U")
    turns = [[client.client_id for client in registered.registry.producer_of("T", turn=turn)] for turn in range(3)]
    assert turns == [["a", "c"], ["c", "a"], ["a", "c"]]
    assert registered.registry.producer_of("none", turn=0) == []


def test_new_settings_of_a_client_replace_the_old_ones_and_keep_its_polls() -> None:
    registered = Registered()
    first = registered.add("a", "T", "U")
    first.polls = 2
    second = registered.add("a", "U")
    assert second is first
    assert (second.names, second.polls, len(registered.registry)) == (("U",), 2, 1)
    assert registered.groups_gone == ["T"]
    assert registered.registry.producer_of("T", turn=0) == []


def test_the_last_client_of_a_group_takes_it_along() -> None:
    registered = Registered()
    registered.add("a", "T")
    registered.add("b", "T")
    registered.add("c", "g", kind=ClientKind.PUSH_CONSUMER)
    registered.registry.remove("a")
    assert registered.groups_gone == []
    registered.registry.remove("b")
    registered.registry.remove("c")
    assert registered.groups_gone == ["T"]
    assert registered.removed == ["a", "b", "c"]
    assert registered.registry.remove("c") is None


def test_silent_clients_are_forgotten_unless_they_poll() -> None:
    registered = Registered()
    registered.add("silent", "T")
    registered.add("polling", "g", kind=ClientKind.SIMPLE_CONSUMER).polls = 1
    registered.add("heard", "T")
    registered.now_ms = 44_999
    assert registered.registry.is_listening("silent")
    registered.now_ms = 60_000
    assert not registered.registry.is_listening("silent")
    registered.registry.touch("heard")
    registered.now_ms = 120_000
    assert registered.registry.expire() == 1
    assert registered.removed == ["silent"]


def test_clients_and_their_names_are_bounded() -> None:
    registered = Registered()
    with pytest.raises(BrokerBusyError):
        registered.add("a", "T", "U", "V")
    for client_id in ("a", "b", "c"):
        registered.add(client_id, "T")
    registered.add("c", "U")
    with pytest.raises(BrokerBusyError):
        registered.add("d", "T")


def test_the_settings_of_all_clients_have_a_bound() -> None:
    registered = Registered()
    registered.add("a", "T", settings_bytes=600)
    registered.add("b", "T", settings_bytes=400)
    for client_id in ("a", "c"):
        with pytest.raises(BrokerBusyError, match="settings"):
            registered.add(client_id, "T", settings_bytes=601)
    registered.add("a", "T", settings_bytes=500)  # instead of its 600
    registered.add("c", "T", settings_bytes=100)
    registered.registry.remove("b")
    registered.registry.remove("b")
    registered.add("c", "T", settings_bytes=500)
    with pytest.raises(BrokerBusyError, match="settings"):
        registered.add("d", "T", settings_bytes=1)
