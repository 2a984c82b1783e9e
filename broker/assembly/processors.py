"""Processors: every family of requests, each made of the parts that it uses, put behind one dispatcher."""

from collections.abc import Awaitable, Callable, Sequence

from thermocline.auth.actions import Action
from thermocline.broker.assembly.cold_tier import ColdTier
from thermocline.broker.assembly.helper_links import HelperLinks
from thermocline.broker.assembly.messages import MessagePath
from thermocline.broker.assembly.parts import BrokerParts
from thermocline.broker.assembly.pops import PopPath
from thermocline.broker.assembly.replicas import Replicas
from thermocline.broker.cluster import ClusterQueues
from thermocline.broker.cold import DroppedRange
from thermocline.broker.follower import ReadOnlyProcessor, Source
from thermocline.broker.helpers import HelperHub, HelperStatus
from thermocline.broker.processors import (
    AdminProcessor,
    AssignmentProcessor,
    ClientProcessor,
    ConsumerCallProcessor,
    ConsumerOffsetProcessor,
    GroupProcessor,
    HandOffProcessor,
    LockProcessor,
    ProxiedClientProcessor,
    ReplicaProcessor,
    RuntimeInfo,
    SlaveProcessor,
    StatsProcessor,
    TopicProcessor,
)
from thermocline.broker.processors.messages import RecallProcessor, SendBackProcessor
from thermocline.broker.processors.tier import (
    CostProcessor,
    FlushedRangesProcessor,
    ScrubProcessor,
    TierProcessor,
    TtlProcessor,
)
from thermocline.broker.tier import HiddenMessages, fenced_by
from thermocline.remoting.bodies import HARuntimeInfo
from thermocline.remoting.connections import Connection, Dispatcher, Processor
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.retention import RetentionGate


def make_dispatcher(
    parts: BrokerParts,
    messages: MessagePath,
    pops: PopPath,
    helpers: HelperLinks,
    tier: ColdTier,
    *,
    run_retention: Callable[[], Awaitable[None]],
    delete_expired: Callable[[], Awaitable[None]],
    report_now: Callable[[], Awaitable[None]],
    replicas: Replicas,
    source: Source | None,
    controlled: Processor | None = None,
) -> Dispatcher:
    """All of them. `run_retention`, `delete_expired`: see AdminProcessor. `report_now`: flush, and tell the tier
    process. `source`: the broker whose cold tier is served, read-only. `controlled`: of a broker under a controller."""
    log, index, fence = parts.base.store.commit_log, helpers.index, tier.fence
    access = parts.access
    processors = (
        *messages.processors,
        *pops.processors,
        *(access.processors if access is not None else ()),
        *table_processors(parts, consumer_left=pops.consumer_left),
        *due_processors(parts),
        *state_processors(
            parts,
            run_retention=run_retention,
            delete_expired=delete_expired,
            ha_runtime_info=replicas.runtime_info,
            owns_ledger=lambda: tier.owns_ledger,
            has_claimed=lambda: tier.has_claimed,
            waiting_offset=tier.gate.waiting_offset,
            dispatch_behind_bytes=lambda: max(0, log.append_offset - index.durable_offset),
        ),
        *tier_processors(
            parts,
            helpers.hub,
            helpers=helpers.helpers.statuses,
            report_now=report_now,
            gate=tier.gate.now,
            dropped=tier.dropped.live,
            fenced_by=lambda: fenced_by(fence.later_epoch) if fence.reason else "",
        ),
    )
    served_by = {code: handler for processor in processors for code, handler in processor.routes().items()}
    return Dispatcher(
        processors,
        on_closed=(
            messages.connection_closed,
            pops.connection_closed,
            parts.tables.clients.connection_closed,
            parts.tables.proxied.connection_closed,
            *((access.guard.connection_closed,) if access is not None else ()),
        ),
        guard=access.guard.check if access is not None else None,
        before=(
            *(() if source is None else (ReadOnlyProcessor(source),)),
            *((SlaveProcessor(),) if parts.base.is_slave else ()),
            *replicas.processors(parts, served_by),
            *(() if controlled is None else (controlled,)),
        ),
    )


def table_processors(
    parts: BrokerParts, *, consumer_left: Callable[[Connection, str], None] = lambda connection, group: None
) -> tuple[Processor, ...]:
    """Topics, groups, clients, offsets, locks and assignments. `consumer_left`: called when a client leaves a group."""
    base, tables, reads, cluster = parts.base, parts.tables, parts.reads, parts.cluster
    settings = base.settings
    return (
        TopicProcessor(
            settings=settings,
            topics=tables.topics,
            static_topics=tables.static_topics,
            offsets=tables.offsets,
            stats=base.stats,
            persister=tables.persister,
            limits=base.limits,
        ),
        GroupProcessor(
            settings=settings,
            groups=tables.groups,
            offsets=tables.offsets,
            stats=base.stats,
            persister=tables.persister,
            forget_popped=parts.pops.forget_group,
            limits=base.limits,
        ),
        ClientProcessor(
            settings=settings,
            topics=tables.topics,
            groups=tables.groups,
            holds=tables.holds,
            clients=tables.clients,
            proxied=tables.proxied,
            filters=tables.filters,
            consumer_left=consumer_left,
            clock=base.clock,
        ),
        ProxiedClientProcessor(
            topics=tables.topics,
            groups=tables.groups,
            proxied=tables.proxied,
            check_super=parts.access.control.check_super if parts.access is not None else None,
        ),
        ConsumerOffsetProcessor(
            settings=settings,
            topics=tables.topics,
            static_topics=tables.static_topics,
            groups=tables.groups,
            offsets=tables.offsets,
            holds=tables.holds,
            clients=tables.clients,
            lookup=reads.lookup,
            mapped_queues=cluster.mapped_queues,
            first_messages=reads.first_messages,
            does_master_work=lambda: cluster.does_master_work,
        ),
        HandOffProcessor(
            store=base.store,
            topics=tables.topics,
            static_topics=tables.static_topics,
            groups=tables.groups,
            offsets=tables.offsets,
            holds=tables.holds,
            clients=tables.clients,
            pops=parts.pops.store,
            persister=tables.persister,
            lookup=reads.lookup,
        ),
        LockProcessor(locks=tables.locks),
        AssignmentProcessor(
            settings=settings,
            topics=tables.topics,
            groups=tables.groups,
            clients=tables.clients,
            request_modes=tables.request_modes,
            queues=ClusterQueues(
                tables.topics, cluster.registration, config=lambda: settings.broker, clock=base.steady_clock
            ),
        ),
    )


def due_processors(parts: BrokerParts) -> tuple[Processor, ...]:
    """Messages that are stored again for later, or recalled."""
    base, tables, due = parts.base, parts.tables, parts.due
    return (
        SendBackProcessor(
            settings=base.settings,
            store=base.store,
            topics=tables.topics,
            groups=tables.groups,
            delays=due.delays,
            stats=base.stats,
            cold=base.cold,
            appender=due.appender,
            random=base.random,
            store_host=base.store_host,
            check_topic=parts.access.topic_check(Action.SUB) if parts.access is not None else None,
        ),
        RecallProcessor(
            settings=base.settings,
            topics=tables.topics,
            timers=due.timers,
            appender=due.appender,
            clock=base.clock,
        ),
    )


def state_processors(
    parts: BrokerParts,
    *,
    run_retention: Callable[[], Awaitable[None]],
    delete_expired: Callable[[], Awaitable[None]],
    ha_runtime_info: Callable[[], HARuntimeInfo],
    owns_ledger: Callable[[], bool],
    has_claimed: Callable[[], bool],
    waiting_offset: Callable[[], PhysicalOffset | None],
    dispatch_behind_bytes: Callable[[], int],
) -> tuple[Processor, ...]:
    """The requests of administration tools. `owns_ledger`, `has_claimed`, `waiting_offset`: see
    ReplicaProcessor. `dispatch_behind_bytes`: how far the index lags."""
    base, tables, reads, due = parts.base, parts.tables, parts.reads, parts.due
    return (
        StatsProcessor(
            settings=base.settings,
            topics=tables.topics,
            static_topics=tables.static_topics,
            groups=tables.groups,
            offsets=tables.offsets,
            clients=tables.clients,
            proxied=tables.proxied,
            consumer_filters=tables.consumer_filters,
            stats=base.stats,
            lookup=reads.lookup,
            remaining=reads.remaining,
            clock=base.clock,
            advertised_address=base.advertised_address,
        ),
        ConsumerCallProcessor(
            settings=base.settings,
            store=base.store,
            topics=tables.topics,
            groups=tables.groups,
            clients=tables.clients,
            proxied=tables.proxied,
            cold=base.cold,
            check_topic=parts.access.topic_check(Action.SUB) if parts.access is not None else None,
        ),
        ReplicaProcessor(
            store=base.store,
            runtime_info=ha_runtime_info,
            owns_ledger=owns_ledger,
            has_claimed=has_claimed,
            waiting_offset=waiting_offset,
        ),
        AdminProcessor(
            settings=base.settings,
            store=base.store,
            topics=tables.topics,
            filters=tables.filters,
            delays=due.delays,
            timers=due.timers,
            persister=tables.persister,
            registration=parts.cluster.registration,
            runtime_info=RuntimeInfo(
                settings=base.settings,
                disk=base.disk,
                store=base.store,
                stats=base.stats,
                delays=due.delays,
                timers=due.timers,
                clock=base.clock,
                boot_time_ms=parts.boot_time_ms,
                dispatch_behind_bytes=dispatch_behind_bytes,
                is_active=lambda: parts.cluster.does_master_work,
            ),
            run_retention=run_retention,
            delete_expired=delete_expired,
        ),
    )


def tier_processors(
    parts: BrokerParts,
    hub: HelperHub,
    *,
    helpers: Callable[[], Sequence[HelperStatus]],
    report_now: Callable[[], Awaitable[None]],
    gate: Callable[[], RetentionGate],
    dropped: Callable[[], Sequence[DroppedRange]] = list,
    fenced_by: Callable[[], str] = str,
) -> tuple[Processor, ...]:
    """The requests of the `thermocline` command about the cold tier; parameters as those of TierProcessor."""
    base, tables, reads = parts.base, parts.tables, parts.reads
    settings = base.settings
    hidden = HiddenMessages(
        disk=base.disk,
        store=base.store,
        cold=base.cold,
        visible=reads.visible,
        lookup=reads.lookup,
        store_host=base.store_host,
        gate=gate,
    )
    return (
        TierProcessor(
            settings=settings,
            store=base.store,
            topics=tables.topics,
            stats=base.stats,
            cold=base.cold,
            clock=base.clock,
            hub=hub,
            helpers=helpers,
            report_now=report_now,
            gate=gate,
            dropped=dropped,
            fenced_by=fenced_by,
        ),
        ScrubProcessor(hub),
        TtlProcessor(
            settings=settings,
            store=base.store,
            topics=tables.topics,
            lookup=reads.lookup,
            hub=hub,
            hidden=hidden,
            report_now=report_now,
        ),
        CostProcessor(settings=settings, topics=tables.topics, hub=hub),
        FlushedRangesProcessor(store=base.store, topics=tables.topics, visible=reads.visible),
    )
