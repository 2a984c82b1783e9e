"""Cluster: the links to NameServers, which register this broker, and to the other brokers, which it queries.

made    after the system topics exist: later topic changes are sent to NameServers
start   registering begins
close   first the links to NameServers, much later those to other brokers: requests in flight still use them
"""

import asyncio
import logging
from contextlib import AsyncExitStack

from thermocline.broker.assembly.base import Base
from thermocline.broker.assembly.reads import Reads
from thermocline.broker.assembly.tables import Tables
from thermocline.broker.cluster import SETTINGS as LIVE_NAME_SERVERS
from thermocline.broker.cluster import MemberWatch, PeerBrokers, Registration, StandIn
from thermocline.broker.static_topics import MappedQueues
from thermocline.remoting.clocks import monotonic_ms
from thermocline.remoting.tls import ClientTls, outgoing_options

logger = logging.getLogger(__name__)

REGISTERED_TIMEOUT_S = 5.0


class Cluster:
    """See the module's header. On the loop."""

    def __init__(self, base: Base, tables: Tables, reads: Reads, *, master_epoch: int = 0) -> None:
        """`master_epoch`: under a controller; of two masters NameServers keep the one with the greater."""
        settings = base.settings
        host, port = base.store_host
        self._is_slave = base.is_slave
        self._offsets = tables.offsets
        self._lookup = reads.lookup
        outgoing = outgoing_options(settings.tls)
        self.registration = registration = Registration(
            topics=tables.topics,
            static_topics=tables.static_topics,
            config=lambda: settings.broker,
            advertised_address=base.advertised_address,
            tls=None if outgoing is None else ClientTls(outgoing),
            ha_address=f"{host}:{settings.broker.ha_port or port + 1}",
            credentials=settings.auth.credentials(),
            state_version=master_epoch,
        )
        settings.add_listener(lambda change: registration.look_soon() if LIVE_NAME_SERVERS & set(change.live) else None)
        self.members: MemberWatch | None = None
        """With enableSlaveActingMaster."""
        if settings.broker.slave_acting_master:
            self.members = MemberWatch(registration, config=lambda: settings.broker, clock=lambda: int(monotonic_ms()))
        self.peers = PeerBrokers(
            registration, timeout_ms=lambda: settings.broker.forward_timeout_ms, clock=base.steady_clock
        )

    @property
    def mapped_queues(self) -> MappedQueues:
        """The physical queues of static topics, here and at the peers."""
        return MappedQueues(lookup=self._lookup, offsets=self._offsets, peers=self.peers)

    @property
    def does_master_work(self) -> bool:
        """Whether this broker is a master, or a slave that stands in for a master that is gone."""
        return not self._is_slave or (self.members is not None and self.members.state is StandIn.ACTING)

    @property
    def has_master(self) -> bool:
        """At a slave: whether clients find a master besides it."""
        if self.members is None:
            return self.registration.master is not None
        return self.members.state is StandIn.FOLLOWING and not self.members.is_taken_for_master

    @property
    def is_taken_for_master(self) -> bool:
        """At a slave: whether clients may take it for the master."""
        return self.members is not None and self.members.is_taken_for_master

    def close_with(self, resources: AsyncExitStack) -> None:
        """Close the links to other brokers when `resources` close."""
        resources.push_async_callback(self.peers.close)

    def start(self, resources: AsyncExitStack) -> None:
        """Begin to register; end that when `resources` close. Without a number there is nothing to register yet."""
        if self.registration.config.broker_id < 0:
            return
        self.registration.start()
        resources.push_async_callback(self.registration.close)
        if self.members is not None:
            self.members.start()
            resources.push_async_callback(self.members.close)

    async def wait_registered(self) -> None:
        """Return when all NameServers have registered this broker, or after REGISTERED_TIMEOUT_S; retries go on."""
        if self.registration.config.broker_id < 0:
            return
        try:
            async with asyncio.timeout(REGISTERED_TIMEOUT_S):
                await self.registration.wait_registered()
        except TimeoutError:
            logger.warning("not registered at every NameServer yet; the broker keeps trying")
