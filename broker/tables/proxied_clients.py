"""Proxied clients: the gRPC clients that are connected to proxies, as the proxies report them.

    proxies   connection -> what that proxy reported {client id: client}
    members   consumer group -> {(connection, client id): client}; the same of producers by topic

They are shown where tools ask who is connected, and are asked through their proxy. In the client registry they are no
members of a group: they consume by POP, from all queues, so the queues of a group must not be shared out among them.

Rules
  - The first report of a connection replaces what the same proxy reported over an older one.
  - A connection that closes, or brings no report for `proxiedClientExpiryMillis`, takes its clients with it.
  - Bounds: entries (a client, a group of it, a subscription of it: one each) of a connection, and of all.
Owner: the hot process's event loop.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from thermocline.broker.settings import BrokerConfig
from thermocline.remoting.bodies.proxied_client import (
    PRODUCER,
    ListedClient,
    ProxiedClient,
    ProxiedClientsAnswer,
    ProxiedClientsList,
    ProxiedClientsReport,
)
from thermocline.remoting.connections import Connection, LimitCounts

logger = logging.getLogger(__name__)

LISTED_MAX = 2_000
"""Clients of one answer to a tool."""

Members = dict[tuple[Connection, str], ProxiedClient]


@dataclass(slots=True, kw_only=True)
class _Proxy:
    """What one connection has reported."""

    name: str
    instance: str
    seen_ms: int
    clients: dict[str, ProxiedClient] = field(default_factory=dict)
    entry_count: int = 0


class ProxiedClients:
    """See the module's header."""

    def __init__(self, *, clock: Callable[[], int], config: Callable[[], BrokerConfig], limits: LimitCounts) -> None:
        """`limits`: where refusals are counted."""
        self._clock = clock
        self._config = config
        self._limits = limits
        self._proxies: dict[Connection, _Proxy] = {}
        self._consumers: dict[str, Members] = {}
        self._producers: dict[str, Members] = {}
        self._entry_count = 0

    # -- reports -------------------------------------------------------------------------------------------------------

    def take(self, connection: Connection, report: ProxiedClientsReport) -> ProxiedClientsAnswer:
        """Take a report; the answer says what of it was not taken."""
        if report.is_first:
            self._begin(connection, report)
        proxy = self._proxies.get(connection)
        if proxy is None:
            return ProxiedClientsAnswer(is_known=False)
        proxy.seen_ms = self._clock()
        for client_id in report.gone:
            self._remove(connection, proxy, client_id)
        refused = tuple(client.client_id for client in report.clients if not self._put(connection, proxy, client))
        return ProxiedClientsAnswer(is_known=True, refused=refused)

    def _begin(self, connection: Connection, report: ProxiedClientsReport) -> None:
        for older, proxy in list(self._proxies.items()):
            if older is connection or proxy.instance == report.instance:
                self._drop(older)
        self._proxies[connection] = _Proxy(name=report.proxy, instance=report.instance, seen_ms=self._clock())
        logger.info("proxy reports its clients proxy=%s address=%s", report.proxy, connection.remote_address)

    def _put(self, connection: Connection, proxy: _Proxy, client: ProxiedClient) -> bool:
        """Note a client, or what has changed of it; False when there is no room for it."""
        self._remove(connection, proxy, client.client_id)
        config, count = self._config(), client.entry_count
        limit = None
        if proxy.entry_count + count > config.connection_proxied_entries_max:
            limit = "proxiedClientEntriesPerConnectionMax"
        elif self._entry_count + count > config.proxied_entries_max:
            limit = "proxiedClientEntriesMax"
        if limit is not None:
            detail = f"a proxy's client is not noted, client_id={client.client_id[:64]}"
            self._limits.refused(limit, address=connection.remote_address, detail=detail)
            return False
        table = self._table(client)
        for group in client.groups:
            table.setdefault(group, {})[connection, client.client_id] = client
        proxy.clients[client.client_id] = client
        proxy.entry_count += count
        self._entry_count += count
        return True

    def _remove(self, connection: Connection, proxy: _Proxy, client_id: str) -> None:
        client = proxy.clients.pop(client_id, None)
        if client is None:
            return
        table = self._table(client)
        for group in client.groups:
            members = table.get(group)
            if members is not None:
                members.pop((connection, client_id), None)
                if not members:
                    del table[group]
        proxy.entry_count -= client.entry_count
        self._entry_count -= client.entry_count
        assert proxy.entry_count >= 0
        assert self._entry_count >= 0

    def _table(self, client: ProxiedClient) -> dict[str, Members]:
        return self._producers if client.kind == PRODUCER else self._consumers

    # -- connections that end ------------------------------------------------------------------------------------------

    def connection_closed(self, connection: Connection) -> None:
        """Forget what it reported."""
        if connection in self._proxies:
            self._drop(connection)

    def expire(self) -> None:
        """Forget what connections have reported that bring no reports any more."""
        oldest_ms = self._clock() - self._config().proxied_client_expiry_ms
        for connection, proxy in list(self._proxies.items()):
            if proxy.seen_ms < oldest_ms:
                self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        proxy = self._proxies[connection]
        for client_id in list(proxy.clients):
            self._remove(connection, proxy, client_id)
        del self._proxies[connection]
        logger.info("proxy's clients forgotten proxy=%s address=%s", proxy.name, connection.remote_address)

    # -- who is there --------------------------------------------------------------------------------------------------

    def consumers(self, group: str) -> list[ProxiedClient]:
        """The members of a consumer group that are behind proxies."""
        return list(self._consumers.get(group, {}).values())

    def producers(self, topic: str) -> list[ProxiedClient]:
        """The producers of a topic that are behind proxies."""
        return list(self._producers.get(topic, {}).values())

    def producer_groups(self) -> Mapping[str, list[ProxiedClient]]:
        """All producers by topic."""
        return {topic: list(members.values()) for topic, members in self._producers.items()}

    def groups_of_topic(self, topic: str) -> set[str]:
        """The consumer groups with a member that is subscribed to a topic."""
        return {
            group
            for group, members in self._consumers.items()
            if any(each.topic == topic for client in members.values() for each in client.subscriptions)
        }

    def connections_to(self, group: str, client_id: str) -> list[Connection]:
        """The connections of the proxies that have a member of a group, the latest one first.

        A client that goes from one proxy to another is at both for a while.
        """
        found = [
            (client.started_ms, connection)
            for (connection, each_id), client in self._consumers.get(group, {}).items()
            if each_id == client_id
        ]
        return [connection for _, connection in sorted(found, key=lambda item: item[0], reverse=True)]

    def listed(self, group: str | None) -> ProxiedClientsList:
        """The clients of all proxies, or of one group or topic, in order; the first LISTED_MAX."""
        found = sorted(
            self._listed(group), key=lambda item: (item.client.kind, item.client.groups, item.client.client_id)
        )
        return ProxiedClientsList(total=len(found), clients=tuple(found[:LISTED_MAX]))

    def _listed(self, group: str | None) -> Iterator[ListedClient]:
        if group is None:
            for proxy in self._proxies.values():
                for client in proxy.clients.values():
                    yield ListedClient(proxy=proxy.name, client=client)
            return
        for table in (self._consumers, self._producers):
            for (connection, _), client in table.get(group, {}).items():
                yield ListedClient(proxy=self._proxies[connection].name, client=client)
