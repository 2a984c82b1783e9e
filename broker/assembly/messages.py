"""Messages: the path of sends and pulls, and the lookups of single messages.

made     the fast path, the processors behind it, and what they share
start    the log is flushed by a helper thread, and waiting requests are answered at their time
close    deadlines are no longer checked; a flush in flight ends first. The store stays open
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack

from thermocline.auth.actions import Action
from thermocline.broker.assembly.access import AccessParts
from thermocline.broker.assembly.base import Base
from thermocline.broker.assembly.cluster import Cluster
from thermocline.broker.assembly.due import DueMessages
from thermocline.broker.assembly.reads import Reads
from thermocline.broker.assembly.tables import Tables
from thermocline.broker.cold import KeyIndex
from thermocline.broker.processors.messages import (
    ColdFlowProcessor,
    HotServer,
    OffsetLookupProcessor,
    PullProcessor,
    QueryProcessor,
    ReplyProcessor,
    SendProcessor,
    TransactionProcessor,
    ViewProcessor,
)
from thermocline.broker.pulls import ColdPullLimits, LongPolling, PullAdmission, PullFinder, ReplicaReads
from thermocline.broker.queues import LocalRecords
from thermocline.broker.sends import Acknowledgements, SendTargets
from thermocline.broker.settings import INT_MAX
from thermocline.remoting.connections import Connection, Processor
from thermocline.remoting.records.message_id import UniqueIdGenerator


class MessagePath:
    """See the module's header. On the loop."""

    def __init__(
        self,
        base: Base,
        tables: Tables,
        reads: Reads,
        cluster: Cluster,
        due: DueMessages,
        *,
        key_index: KeyIndex,
        long_polling: LongPolling,
        near_bytes: int | None = None,
        access: AccessParts | None = None,
    ) -> None:
        """`near_bytes`: how much of the log's end counts as being in memory; None: as settings say. `access`: access
        control, if it is on."""
        settings, store = base.settings, base.store
        acknowledgements = Acknowledgements(
            store,
            long_polling,
            clock=base.clock,
            steady_clock=base.steady_clock,
            call_soon=asyncio.get_running_loop().call_soon,
            sends_waiting_max=lambda: settings.broker.sends_waiting_max,
            send_wait_ms_max=lambda: settings.broker.send_wait_ms_max if settings.broker.fast_failure else INT_MAX,
            rates=base.stats.rates,
        )
        targets = SendTargets(tables.topics, tables.static_topics, store.queues)
        self._pulls = _make_pulls(base, tables, reads, cluster, long_polling=long_polling, near_bytes=near_bytes)
        unique_ids = UniqueIdGenerator(
            address=base.store_host[0],
            process_id=os.getpid(),
            number=base.random.getrandbits(32),
            clock_ms=base.clock,
        )
        choose_queue = base.random.randrange
        sends = _make_sends(
            base, tables, due, acknowledgements=acknowledgements, unique_ids=unique_ids, choose_queue=choose_queue
        )
        self.hot = HotServer(
            settings=settings,
            store=store,
            stats=base.stats,
            clock=base.clock,
            steady_clock=base.steady_clock,
            store_host=base.store_host,
            targets=targets,
            acknowledgements=acknowledgements,
            pulls=self._pulls,
            long_polling=long_polling,
            unique_ids=unique_ids,
            choose_queue=choose_queue,
            quotas=tables.quotas,
            guard=access.message_guard if access is not None else None,
        )
        self.processors: tuple[Processor, ...] = (
            sends,
            TransactionProcessor(
                store=store,
                transactions=due.transactions,
                cold=base.cold,
                acknowledgements=acknowledgements,
                check_topic=access.topic_check(Action.PUB) if access is not None else None,
                check_resumed=access.topic_check(Action.UPDATE) if access is not None else None,
            ),
            _make_replies(base, tables, due, sends),
            self._pulls,
            *_make_lookups(base, tables, reads, cluster, key_index=key_index, access=access),
            ColdFlowProcessor(settings=settings, cold_quota=reads.cold_quota),
        )
        """For the dispatcher; `connection_closed` is to be called for every connection that ends."""

    def start(self, resources: AsyncExitStack) -> None:
        """Flush in a helper thread and keep time, until `resources` close."""
        self.hot.start()
        resources.push_async_callback(self.hot.close)

    def connection_closed(self, connection: Connection) -> None:
        """A client has left."""
        self._pulls.connection_closed(connection)


def _make_pulls(
    base: Base, tables: Tables, reads: Reads, cluster: Cluster, *, long_polling: LongPolling, near_bytes: int | None
) -> PullProcessor:
    admission = PullAdmission(
        settings=base.settings,
        topics=tables.topics,
        groups=tables.groups,
        holds=tables.holds,
        clients=tables.clients,
        filters=tables.filters,
        store_host=base.store_host,
    )
    limits = ColdPullLimits(on_reader_left=base.cold.reader_left)
    finder = PullFinder(
        settings=base.settings,
        store=base.store,
        offsets=tables.offsets,
        cold=base.cold,
        cold_quota=reads.cold_quota,
        limits=limits,
        visible=reads.visible,
        on_cold_read=base.stats.rates.add_get_time,
        near_bytes=near_bytes,
    )
    return PullProcessor(
        settings=base.settings,
        store=base.store,
        static_topics=tables.static_topics,
        peers=cluster.peers,
        offsets=tables.offsets,
        turns=tables.turns,
        filters=tables.filters,
        stats=base.stats,
        clock=base.steady_clock,
        admission=admission,
        finder=finder,
        long_polling=long_polling,
        limits=limits,
        quotas=tables.quotas,
        replica_reads=ReplicaReads(
            settings=base.settings,
            store=base.store,
            groups=tables.groups,
            near_bytes=lambda: finder.near_bytes,
            is_slave=base.is_slave,
            has_master=lambda: cluster.has_master,
            is_taken_for_master=lambda: cluster.is_taken_for_master,
        ),
    )


def _make_sends(
    base: Base,
    tables: Tables,
    due: DueMessages,
    *,
    acknowledgements: Acknowledgements,
    unique_ids: UniqueIdGenerator,
    choose_queue: Callable[[int], int],
) -> SendProcessor:
    return SendProcessor(
        settings=base.settings,
        store=base.store,
        topics=tables.topics,
        static_topics=tables.static_topics,
        groups=tables.groups,
        locks=tables.locks,
        timers=due.timers,
        transactions=due.transactions,
        stats=base.stats,
        clock=base.clock,
        store_host=base.store_host,
        acknowledgements=acknowledgements,
        unique_ids=unique_ids,
        choose_queue=choose_queue,
        quotas=tables.quotas,
    )


def _make_replies(base: Base, tables: Tables, due: DueMessages, sends: SendProcessor) -> ReplyProcessor:
    return ReplyProcessor(
        settings=base.settings,
        topics=tables.topics,
        clients=tables.clients,
        appender=due.appender,
        clock=base.clock,
        random=base.random,
        store_host=base.store_host,
        advertised_address=base.advertised_address,
        check=sends.check,
        count=sends.count,
        make_topic=sends.make_topic,
    )


def _make_lookups(
    base: Base,
    tables: Tables,
    reads: Reads,
    cluster: Cluster,
    *,
    key_index: KeyIndex,
    access: AccessParts | None,
) -> tuple[Processor, ...]:
    local = LocalRecords(base.store, expired_before_ms=tables.topics.expired_before)
    return (
        OffsetLookupProcessor(
            static_topics=tables.static_topics, lookup=reads.lookup, mapped_queues=cluster.mapped_queues
        ),
        QueryProcessor(
            settings=base.settings,
            stats=base.stats,
            cold=base.cold,
            visible=reads.visible,
            local=local,
            index=key_index,
        ),
        ViewProcessor(
            store=base.store,
            topics=tables.topics,
            stats=base.stats,
            cold=base.cold,
            visible=reads.visible,
            local=local,
            check_topic=access.topic_check(Action.GET) if access is not None else None,
        ),
    )
