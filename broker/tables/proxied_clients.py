"""Proxied clients: the gRPC clients that are connected to proxies, as the proxies report them.

    connection -> what its proxy reported: clients by id, consumers by group, producers by topic

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
from itertools import islice

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

Members = dict[str, dict[str, ProxiedClient]]
"""Clients by group and id; the one that was reported last comes last."""


@dataclass(slots=True, kw_only=True)
class _Proxy:
    """What one connection has reported."""

    name: str
    instance: str
    seen_ms: int
    clients: dict[str, ProxiedClient] = field(default_factory=dict)
    consumers: Members = field(default_factory=dict)
    producers: Members = field(default_factory=dict)
    entry_count: int = 0

    def add(self, client: ProxiedClient) -> None:
        table = self._table(client)
        for group in client.groups:
            table.setdefault(group, {})[client.client_id] = client
        self.clients[client.client_id] = client
        self.entry_count += client.entry_count

    def remove(self, client_id: str) -> int:
        """Forget a client; the entries that it had."""
        client = self.clients.pop(client_id, None)
        if client is None:
            return 0
        table = self._table(client)
        for group in dict.fromkeys(client.groups):
            members = table[group]
            del members[client_id]
            if not members:
                del table[group]
        self.entry_count -= client.entry_count
        assert self.entry_count >= 0
        return client.entry_count

    def members(self, group: str) -> Iterator[ProxiedClient]:
        """Consumers of a group, and producers of a topic of that name."""
        yield from self.consumers.get(group, {}).values()
        yield from self.producers.get(group, {}).values()

    def _table(self, client: ProxiedClient) -> Members:
        return self.producers if client.kind == PRODUCER else self.consumers


class ProxiedClients:
    """See the module's header."""

    def __init__(self, *, clock: Callable[[], int], config: Callable[[], BrokerConfig], limits: LimitCounts) -> None:
        """`limits`: where refusals are counted."""
        self._clock = clock
        self._config = config
        self._limits = limits
        self._proxies: dict[Connection, _Proxy] = {}
        self._entry_count = 0

    # -- reports -------------------------------------------------------------------------------------------------------

    def apply_report(self, connection: Connection, report: ProxiedClientsReport) -> ProxiedClientsAnswer:
        """Note what a report says; the answer names the clients that a limit refused."""
        if report.is_first:
            self._begin(connection, report)
        proxy = self._proxies.get(connection)
        if proxy is None:
            return ProxiedClientsAnswer(is_known=False)
        proxy.seen_ms = self._clock()
        for client_id in report.gone:
            self._entry_count -= proxy.remove(client_id)
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
        self._entry_count -= proxy.remove(client.client_id)
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
        proxy.add(client)
        self._entry_count += count
        return True

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
        proxy = self._proxies.pop(connection)
        self._entry_count -= proxy.entry_count
        assert self._entry_count >= 0
        logger.info("proxy's clients forgotten proxy=%s address=%s", proxy.name, connection.remote_address)

    # -- who is there --------------------------------------------------------------------------------------------------

    def consumers(self, group: str) -> list[ProxiedClient]:
        """The members of a consumer group that are behind proxies."""
        return [client for proxy in self._proxies.values() for client in proxy.consumers.get(group, {}).values()]

    def producers(self, topic: str) -> list[ProxiedClient]:
        """The producers of a topic that are behind proxies."""
        return [client for proxy in self._proxies.values() for client in proxy.producers.get(topic, {}).values()]

    def producer_groups(self) -> Mapping[str, list[ProxiedClient]]:
        """All producers by topic."""
        found: dict[str, list[ProxiedClient]] = {}
        for proxy in self._proxies.values():
            for topic, members in proxy.producers.items():
                found.setdefault(topic, []).extend(members.values())
        return found

    def groups_of_topic(self, topic: str) -> set[str]:
        """The consumer groups that are subscribed to a topic, by the last report of a member at each proxy."""
        return {
            group
            for proxy in self._proxies.values()
            for group, members in proxy.consumers.items()
            if any(each.topic == topic for each in next(reversed(members.values())).subscriptions)
        }

    def connections_to(self, group: str, client_id: str) -> list[Connection]:
        """The connections of the proxies that have a member of a group, the latest one first.

        A client that goes from one proxy to another is at both for a while.
        """
        found = [
            (client.started_ms, connection)
            for connection, proxy in self._proxies.items()
            if (client := proxy.consumers.get(group, {}).get(client_id)) is not None
        ]
        return [connection for _, connection in sorted(found, key=lambda item: item[0], reverse=True)]

    def listed(self, group: str | None) -> ProxiedClientsList:
        """LISTED_MAX clients of all proxies at most, or of one group or topic, and how many there are."""
        found = [
            ListedClient(proxy=proxy.name, client=client) for proxy, client in islice(self._each(group), LISTED_MAX)
        ]
        found.sort(key=lambda item: (item.client.kind, item.client.groups, item.client.client_id))
        return ProxiedClientsList(total=sum(1 for _ in self._each(group)), clients=tuple(found))

    def _each(self, group: str | None) -> Iterator[tuple[_Proxy, ProxiedClient]]:
        for proxy in self._proxies.values():
            for client in proxy.clients.values() if group is None else proxy.members(group):
                yield proxy, client
