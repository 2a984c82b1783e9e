"""ClientRegistry: the clients that are connected to this proxy, by their ids.

A client registers by its settings, or as a push consumer by its first receive, and is forgotten when it says goodbye,
or was silent for `expiry_ms`. With each client go: its producer groups or consumer group, its settings as the
protocol's own value, and its channel, by which the proxy can send it commands; a client without settings or a channel
is still served.

    is_listening   heard of within LISTENING_MS: what it holds is renewed
    registered     until it expires

Bounds: `clients_max` clients, `names_max` topics or subscriptions a client, `settings_bytes_max` of all their settings.
Owner: the proxy's event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from thermocline.remoting.bodies.proxied_client import PRODUCER, PUSH_CONSUMER, SIMPLE_CONSUMER
from thermocline.remoting.errors import BrokerBusyError

__all__ = ["ClientChannel", "ClientKind", "ClientRegistry", "ProxyClient"]

logger = logging.getLogger(__name__)

LISTENING_MS = 45_000
"""Three heartbeats of most clients, and one and a half of the Rust client."""
CHECKS_PER_EXPIRY = 8


class ClientChannel(Protocol):
    """Commands to a client."""

    def send(self, command: Any) -> bool:
        """Send a command of the client's protocol; False when it cannot take any more."""


class ClientKind:
    """What a client is."""

    PRODUCER = PRODUCER
    PUSH_CONSUMER = PUSH_CONSUMER
    SIMPLE_CONSUMER = SIMPLE_CONSUMER


@dataclass(slots=True, kw_only=True, eq=False)
class ProxyClient:
    """One client."""

    client_id: str
    kind: str
    language: str
    version: str
    remote_address: str
    names: tuple[str, ...]
    """The topics of a producer, which are its producer groups too; the group of a consumer."""
    username: str = ""
    """The user whose client it is; "" without access control."""
    permit: Any = None
    """What access control allowed when it registered."""
    settings: Any = None
    settings_bytes: int = 0
    """Their size as the client sent them."""
    channel: ClientChannel | None = None
    registered_ms: float = 0.0
    last_seen_ms: float = 0.0
    polls: int = 0
    """Long polls under way."""


class ClientRegistry:
    """See the module."""

    def __init__(
        self,
        *,
        clients_max: int,
        names_max: int,
        settings_bytes_max: int,
        expiry_ms: int,
        clock_ms: Callable[[], float],
        on_removed: Sequence[Callable[[ProxyClient], None]] = (),
        on_group_gone: Callable[[str], None] = lambda group: None,
    ) -> None:
        """`on_removed` is called with each client that goes; `on_group_gone` with a producer group without clients.

        `on_registered`, empty at first, is called with each client that comes, or registers again.
        """
        self._clients_max, self._names_max, self._expiry_ms = clients_max, names_max, expiry_ms
        self._settings_bytes_max = settings_bytes_max
        self._settings_bytes = 0
        self._clock_ms = clock_ms
        self.on_removed = list(on_removed)
        self.on_registered: list[Callable[[ProxyClient], None]] = []
        self.on_group_gone = on_group_gone
        self._clients: dict[str, ProxyClient] = {}
        self._producers: dict[str, dict[str, ProxyClient]] = {}
        self._consumers: dict[str, dict[str, ProxyClient]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._clients)

    def clients(self) -> list[ProxyClient]:
        """All of them."""
        return list(self._clients.values())

    def find(self, client_id: str) -> ProxyClient | None:
        """Return the client of this id."""
        return self._clients.get(client_id)

    def check_names(self, count: int) -> None:
        """Pass so many topics or subscriptions of one client.

        Raises:
            BrokerBusyError: There are too many.
        """
        if count > self._names_max:
            raise BrokerBusyError("a client has too many topics or subscriptions", count_max=self._names_max)

    def register(self, client: ProxyClient) -> ProxyClient:
        """Register a client, or what has changed of it; returns the one that is kept: the first of its id.

        Raises:
            BrokerBusyError: There are too many clients, the client has too many names, or the settings of all clients
                are too large.
        """
        self.check_names(len(client.names))
        before = self._clients.get(client.client_id)
        if before is None and len(self._clients) >= self._clients_max:
            raise BrokerBusyError("too many clients are connected to this proxy", count_max=self._clients_max)
        settings_bytes = self._settings_bytes + client.settings_bytes - (0 if before is None else before.settings_bytes)
        if settings_bytes > self._settings_bytes_max:
            text = "the settings of the clients of this proxy take too much"
            raise BrokerBusyError(text, size_bytes_max=self._settings_bytes_max)
        self._settings_bytes = settings_bytes
        if before is not None:
            self._unlink(before, kept=client)
            before.settings_bytes = client.settings_bytes
            before.kind, before.names, before.settings = client.kind, client.names, client.settings
            before.language, before.version = client.language, client.version
            before.remote_address, before.channel = client.remote_address, client.channel
            before.username, before.permit = client.username, client.permit
            client = before
        else:
            client.registered_ms = self._clock_ms()
        client.last_seen_ms = self._clock_ms()
        self._clients[client.client_id] = client
        table = self._table(client)
        for name in client.names:
            table.setdefault(name, {})[client.client_id] = client
        for callback in self.on_registered:
            callback(client)
        return client

    def touch(self, client_id: str) -> ProxyClient | None:
        """Note that a client was heard of; returns it."""
        client = self._clients.get(client_id)
        if client is not None:
            client.last_seen_ms = self._clock_ms()
        return client

    def remove(self, client_id: str) -> ProxyClient | None:
        """Forget a client; returns it."""
        client = self._clients.pop(client_id, None)
        if client is not None:
            self._settings_bytes -= client.settings_bytes
            self._unlink(client)
            for callback in self.on_removed:
                callback(client)
        return client

    def is_listening(self, client_id: str) -> bool:
        """Whether a client was heard of lately."""
        client = self._clients.get(client_id)
        return client is not None and self._clock_ms() - client.last_seen_ms < LISTENING_MS

    def age_ms(self, client: ProxyClient) -> int:
        """How long ago a client came."""
        return int(self._clock_ms() - client.registered_ms)

    def producer_of(self, group: str, *, turn: int) -> list[ProxyClient]:
        """Return the producers of a group that can be sent commands; another one comes first in each turn."""
        reachable = [client for client in self._producers.get(group, {}).values() if client.channel is not None]
        start = turn % len(reachable) if reachable else 0
        return reachable[start:] + reachable[:start]

    def consumers_of(self, group: str) -> list[ProxyClient]:
        """Return the members of a consumer group that are connected here."""
        return list(self._consumers.get(group, {}).values())

    def expire(self) -> int:
        """Forget clients that were silent for too long; how many. Runs by itself."""
        now_ms = self._clock_ms()
        silent = [
            client.client_id
            for client in self._clients.values()
            if now_ms - client.last_seen_ms >= self._expiry_ms and not client.polls
        ]
        for client_id in silent:
            logger.info("client forgotten, it was silent client_id=%s", client_id)
            self.remove(client_id)
        return len(silent)

    def start(self) -> None:
        """Look for silent clients from now on."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._expiry_ms / 1000 / CHECKS_PER_EXPIRY, self._tick)

    def close(self) -> None:
        """Stop looking. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self.expire()
        self.start()

    def _table(self, client: ProxyClient) -> dict[str, dict[str, ProxyClient]]:
        return self._producers if client.kind == ClientKind.PRODUCER else self._consumers

    def _unlink(self, client: ProxyClient, *, kept: ProxyClient | None = None) -> None:
        table = self._table(client)
        for name in client.names:
            members = table.get(name)
            if members is None or members.get(client.client_id) is not client:
                continue
            del members[client.client_id]
            if not members:
                del table[name]
                stays = kept is not None and kept.kind == client.kind and name in kept.names
                if client.kind == ClientKind.PRODUCER and not stays:
                    self.on_group_gone(name)
