"""Stand-in: with enableSlaveActingMaster, what a slave does for a master that is gone, and a master that comes back.

take_back     before a master's parts are made: positions come from its slaves
StandInParts  of a slave: made with the dispatcher; its services start with the link to the master
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack

from thermocline.broker.acting import (
    ActingPopRequests,
    ActingServices,
    EscapeBridge,
    HalfEscapes,
    HandedOverRequests,
    MasterMemberRequests,
    OffsetReturn,
    PreOnline,
    SlaveMemberRequests,
)
from thermocline.broker.assembly.parts import BrokerParts
from thermocline.broker.due import recover_open, timer_config
from thermocline.broker.replicas import MetadataFollower
from thermocline.broker.settings import BrokerSettings
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.connections import Handler, Processor
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.socket_address import format_address
from thermocline.remoting.tls import ClientTls, outgoing_options
from thermocline.replication.links import MasterPort, SlaveLink
from thermocline.store.files import Disk, make_durable_directory
from thermocline.store.message_store import MessageStore
from thermocline.timers.followed_timers import FollowedTimers
from thermocline.timers.taken_back import TakenBackTimers
from thermocline.timers.timer_message_store import TimerMessageStore


async def take_back(
    settings: BrokerSettings, store: MessageStore, port: MasterPort, *, disk: Disk, store_host: tuple[str, int]
) -> TakenBackTimers | None:
    """See PreOnline; how far timed messages were delivered. None: by no slave. `store_host`: the advertised address.

    Raises:
        CorruptDataError: A state file of this broker cannot be read.
        OSError, DiskFullError: The disk failed.
    """
    outgoing = outgoing_options(settings.tls)
    client = RemotingClient(
        tls=None if outgoing is None else ClientTls(outgoing), credentials=settings.auth.credentials()
    )
    make_durable_directory(disk, store.config.config_path)

    def place_of(topic: str, queue_id: int, offset: QueueOffset) -> PhysicalOffset | None:
        queue = store.queues.find(topic, queue_id)
        if queue is None:
            return None
        first = queue.skip_empty(max(offset, queue.min_offset))
        return queue.unit(first).physical_offset if first < queue.next_offset else None

    def connected_count() -> int:
        is_empty = not store.commit_log.append_offset
        return sum(1 for slave in port.states() if slave.next_offset or is_empty)

    try:
        taken = await PreOnline(
            lambda: settings.broker,
            client,
            disk=disk,
            folder=store.config.config_path,
            address=format_address(*store_host),
            ha_address=format_address(store_host[0], settings.broker.ha_port),
            log_end=lambda: store.commit_log.append_offset,
            place_of=place_of,
            connected_count=connected_count,
            clock=wall_clock_ms,
        ).run()
    finally:
        await client.close()
    return taken.timers


def member_requests(parts: BrokerParts) -> Processor:
    """What a master answers to brokers of its name, or a broker that takes no slaves."""
    base, registration = parts.base, parts.cluster.registration
    ha_address = registration.ha_address if base.settings.broker.takes_slaves else None
    return MasterMemberRequests(base.store, address=base.advertised_address, ha_address=ha_address)


class StandInParts:
    """Of a slave. On the loop."""

    def __init__(self, parts: BrokerParts, link: SlaveLink) -> None:
        base, cluster, tables = parts.base, parts.cluster, parts.tables
        settings = base.settings
        members = cluster.members
        assert members is not None
        self._settings = settings
        self._members = members
        self._link = link
        self._log, self._queues = base.store.commit_log, base.store.queues
        self.followed_timers = (
            FollowedTimers(base.disk, timer_config(settings)) if settings.broker.timer_wheel else None
        )
        self._client = RemotingClient(tls=cluster.registration.tls, credentials=cluster.registration.credentials)
        self._returns = OffsetReturn(
            members,
            tables.offsets,
            self._client,
            had=self._had,
            timeout_ms=lambda: settings.broker.forward_timeout_ms,
            clock=base.clock,
        )

        def open_timers() -> TimerMessageStore | None:
            if not settings.broker.timer_wheel:
                return None
            return TimerMessageStore.open(
                base.store, timer_config(settings), disk=base.disk, clock=base.clock, random=base.random.random
            )

        assert parts.pops.escaped is not None
        self._escaped = parts.pops.escaped
        bridge = EscapeBridge(
            cluster.registration, cluster.peers, config=lambda: settings.broker, clock=base.steady_clock
        )
        self.services = ActingServices(
            members,
            bridge,
            delays=parts.due.delays,
            persister=tables.persister,
            pops=self._escaped,
            halves=HalfEscapes(
                base.store,
                tables.offsets,
                bridge,
                recover=lambda: recover_open(settings, base.store, tables.offsets, clock=base.clock).table,
                wait_ms=lambda: settings.broker.transaction_check_interval_ms,
                clock=base.steady_clock,
            ),
            offsets=tables.offsets,
            has=self._has,
            followed_timers=self.followed_timers,
            open_timers=open_timers,
            is_following=lambda: link.is_following,
            escapes=settings.broker.remote_escape,
        )

    def _had(self, topic: str, queue_id: int, offset: QueueOffset) -> bool:
        """Whether this broker has had the messages of a queue from an offset on."""
        queue = self._queues.find(topic, queue_id)
        return self._settings.tier.is_enabled or queue is None or offset >= queue.min_offset

    def _has(self, topic: str, queue_id: int, offset: QueueOffset) -> bool:
        """Whether this broker serves a message, from its log or the bucket."""
        queue = self._queues.find(topic, queue_id)
        return self._settings.tier.is_enabled or (queue is not None and offset >= queue.min_offset)

    def master_address(self) -> str | None:
        """The master whose tables are followed; None: there is none, or it does not have this broker's offsets yet."""
        return None if self._returns.is_pending else self.services.master_address

    def processors(self, served_by: Mapping[int, Handler]) -> tuple[Processor, ...]:
        """What stands before the processors whose methods are `served_by`."""
        link = self._link

        def follow(ha_address: str) -> None:
            link.follow(ha_address)
            link.connect_soon()

        return (
            SlaveMemberRequests(
                self._members,
                self.services,
                follow=follow,
                followed_timers=self.followed_timers,
                log_start=lambda: self._log.min_offset,
                has_history=self._settings.tier.is_enabled,
            ),
            HandedOverRequests(
                self._members,
                self._client,
                served_by=served_by,
                timeout_ms=lambda: self._settings.broker.forward_timeout_ms,
            ),
            ActingPopRequests(self._escaped, served_by=served_by),
        )

    def start(self, metadata: MetadataFollower, resources: AsyncExitStack) -> None:
        """Begin to watch whether the master is gone, until `resources` close. `metadata` follows its tables."""
        self.services.metadata = metadata
        resources.push_async_callback(self._client.close)
        resources.push_async_callback(self._returns.close)
        self.services.start()
        resources.push_async_callback(self.services.close)
