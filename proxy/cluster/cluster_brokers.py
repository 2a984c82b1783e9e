"""ClusterBrokers: where the brokers of a cluster are, as its NameServers tell it; both are kept for a while.

A broker's address is what was read last, in the route of any topic or in the cluster's list: a master that changes has
its new address in the routes in use, while routes of topics that are used no more name the old one for ever. An address
that no route has confirmed for `refresh_ms` is looked up in the list, beside its use; a broker that no answer has named
for GONE_MS is not there. After a broker failed (`doubt`), the list and the routes that name it are loaded anew, and
so are routes that name another master than the newest answer, or none for a broker: another one may be the master
since. A broker in whose process group the proxy runs is asked over its unix socket (own_broker.py).
Source: ClusterMetadataService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from random import Random
from typing import NamedTuple, TypeVar

from thermocline.client.name_servers import NameServers
from thermocline.proxy.cluster.cluster_options import ClusterOptions
from thermocline.proxy.cluster.loading_cache import LoadingCache
from thermocline.proxy.messaging import (
    BrokerNotFoundError,
    TopicQueues,
    info_of_cluster,
    read_topic_queues,
    route_in_cluster,
)
from thermocline.remoting.bodies import ClusterInfo
from thermocline.remoting.clients import NameServerSource, RemotingClient
from thermocline.remoting.clocks import monotonic_ms
from thermocline.remoting.errors import TopicNotFoundError, UnavailableError

__all__ = ["LOOK_UP_TIMEOUT_MS", "ClusterBrokers", "cache_of"]

T = TypeVar("T")

MASTER_ID = 0
LOOK_UP_TIMEOUT_MS = 3_000
WHOLE_CLUSTER = "cluster"
DOUBT_PAUSE_MS = 2_000
"""A broker that fails is doubted so often at most, and a route without a master loaded anew."""
GONE_MS = 60_000
"""A broker that no answer has named for so long is not there. A NameServer that has just started names a broker when
that has registered again, which takes half a minute."""


class _Master(NamedTuple):
    """Where a broker's master serves requests, by an answer to a request that was sent at this time."""

    address: str
    asked_ms: float


class ClusterBrokers:
    """See the module. Belongs to one event loop."""

    def __init__(self, options: ClusterOptions, *, connections: RemotingClient) -> None:
        self._options = options
        self._name_servers = NameServers(
            NameServerSource.parse(list(options.namesrv)),
            connections=connections,
            timeout_ms=LOOK_UP_TIMEOUT_MS,
            random=Random(),
        )
        self._queues = cache_of(self._load_queues, options, entries_max=options.topics_max)
        self._cluster = cache_of(self._load_cluster, options, entries_max=1)
        self._masters: dict[str, _Master] = {}
        """By broker name."""
        self._doubts: dict[str, float] = {}
        """Addresses of masters that failed, and when."""

    async def start(self) -> None:
        """Find the NameServers.

        Raises:
            UnavailableError: Where they are to be looked up, none was found.
        """
        if not self._name_servers.is_fixed:
            await self._name_servers.refresh()

    async def close(self) -> None:
        """End; idempotent."""
        await self._queues.close()
        await self._cluster.close()

    async def queues(self, topic: str) -> TopicQueues:
        """The queues of a topic, and the brokers that they are on.

        Raises:
            TopicNotFoundError: The cluster has no such topic.
            UnavailableError: No NameServer answers.
        """
        queues = await self._queues.get(topic)
        for broker in queues.brokers:
            address, master = broker.master_address, self._masters.get(broker.broker_name)
            if address is None:
                self._queues.refresh(topic, asked_before_ms=monotonic_ms() - DOUBT_PAUSE_MS)
            elif master is not None and master.address != address:
                self._queues.refresh(topic, asked_before_ms=master.asked_ms)
            elif address in self._doubts:
                self._queues.refresh(topic, asked_before_ms=self._doubts[address])
        return queues

    def doubt(self, address: str) -> None:
        """Note that what serves at an address failed, or says that it is no master. Other addresses have no effect."""
        now_ms = monotonic_ms()
        is_master = any(master.address == address for master in self._masters.values())
        if is_master and now_ms - self._doubts.get(address, float("-inf")) >= DOUBT_PAUSE_MS:
            self._doubts[address] = now_ms
            self._cluster.refresh(WHOLE_CLUSTER, asked_before_ms=now_ms)

    async def is_reachable(self) -> bool:
        """Whether a NameServer answers now, with at least one broker."""
        try:
            return bool((await self._load_cluster(WHOLE_CLUSTER)).broker_addr_table)
        except UnavailableError:
            return False

    async def masters(self) -> list[str]:
        """Addresses of the cluster's masters, in the order of their names; at least one.

        Raises:
            UnavailableError: There is none.
        """
        if self._options.own_broker is not None:
            return [self._options.own_broker.socket_path]
        cluster = await self._cluster.get(WHOLE_CLUSTER)
        names = cluster.cluster_addr_table.get(self._options.cluster_name, [])
        masters = [
            cluster.broker_addr_table[name].broker_addrs[MASTER_ID]
            for name in sorted(names)
            if name in cluster.broker_addr_table and MASTER_ID in cluster.broker_addr_table[name].broker_addrs
        ]
        if not masters:
            self._cluster.drop(WHOLE_CLUSTER)
            raise UnavailableError("no broker of the cluster is there", cluster=self._options.cluster_name)
        return masters

    async def master_addresses(self) -> list[str]:
        """Where the cluster's masters serve requests, in the order of their names; the own broker's is its socket.

        Raises:
            UnavailableError: No NameServer answers.
        """
        own, cluster = self._options.own_broker, await self._cluster.get(WHOLE_CLUSTER)
        names = {*cluster.cluster_addr_table.get(self._options.cluster_name, []), *([] if own is None else [own.name])}
        found: list[str] = []
        for name in sorted(names):
            with contextlib.suppress(BrokerNotFoundError):  # it has no master
                found.append(await self.address_of(name))
        return found

    async def address_of(self, broker_name: str) -> str:
        """Where a broker's master serves requests: the own one's socket; others by a route, or by the cluster's list.

        Raises:
            BrokerNotFoundError: Neither names a master of it.
            UnavailableError: No NameServer answers.
        """
        own = self._options.own_broker
        if own is not None and broker_name == own.name:
            return own.socket_path
        master = self._masters.get(broker_name)
        if master is None:
            await self._cluster.get(WHOLE_CLUSTER)
            master = self._masters.get(broker_name)
        else:
            old_ms = monotonic_ms() - self._options.refresh_ms
            if master.asked_ms <= old_ms:
                self._cluster.refresh(WHOLE_CLUSTER, asked_before_ms=old_ms)
        if master is None:
            self._cluster.refresh(WHOLE_CLUSTER, asked_before_ms=monotonic_ms() - DOUBT_PAUSE_MS)
            raise BrokerNotFoundError("the broker is not there", broker_name=broker_name[:128])
        return master.address

    def name_at(self, address: str) -> str | None:
        """The name of the broker whose master has this address, as far as answers of NameServers tell."""
        return next((name for name, master in self._masters.items() if master.address == address), None)

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _load_queues(self, topic: str) -> TopicQueues:
        asked_ms = monotonic_ms()
        route = await self._name_servers.topic_route(topic)
        if self._options.is_one_of_several:
            route = route_in_cluster(route, self._options.cluster_name)
            if not route.broker_datas:
                raise TopicNotFoundError(topic=topic, cluster=self._options.cluster_name)
        queues = read_topic_queues(topic, route)
        own = self._options.own_broker
        if own is not None:
            queues = own.in_queues(queues)
        for broker in queues.brokers:
            self._note(broker.broker_name, broker.master_address, asked_ms)
        return queues

    async def _load_cluster(self, _name: str) -> ClusterInfo:
        asked_ms, name = monotonic_ms(), self._options.cluster_name
        found = await self._name_servers.cluster_info()
        if self._options.is_one_of_several:
            found = info_of_cluster(found, name)
        own = self._options.own_broker
        for broker_name, broker in found.broker_addr_table.items():
            if own is None or broker_name != own.name:  # which is asked over its socket
                self._note(broker_name, broker.broker_addrs.get(MASTER_ID), asked_ms)
        for gone in self._masters.keys() - found.broker_addr_table.keys():
            if asked_ms - self._masters[gone].asked_ms > GONE_MS:
                del self._masters[gone]
        addresses = {master.address for master in self._masters.values()}
        self._doubts = {address: at_ms for address, at_ms in self._doubts.items() if address in addresses}
        return found

    def _note(self, broker_name: str, address: str | None, asked_ms: float) -> None:
        """Keep a broker's address unless a later answer has said one. A broker without a master keeps what it had."""
        before = self._masters.get(broker_name)
        if address is not None and (before is None or before.asked_ms <= asked_ms):
            self._masters[broker_name] = _Master(address, asked_ms)


def cache_of(load: Callable[[str], Awaitable[T]], options: ClusterOptions, *, entries_max: int) -> LoadingCache[T]:
    """A cache whose times are those of the options."""
    return LoadingCache(
        load,
        refresh_ms=options.refresh_ms,
        expiry_ms=options.expiry_ms,
        entries_max=entries_max,
        clock_ms=monotonic_ms,
    )
