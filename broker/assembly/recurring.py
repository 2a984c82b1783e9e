"""Recurring work: what a broker does beside requests, from its first request to its last.

    made    before the link that answers for state snapshots, which has the same files written (state.py)
    start   housekeeping, the delay, timer and transaction services, the cleaner of static topics' mappings
    close   they end; then offsets, order infos, filters, delay progress and counts are written a last time

It closes after the last request and before the log, so that its last write includes the changes of all requests.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack

from thermocline.broker.assembly.housekeeping import Housekeeping
from thermocline.broker.assembly.parts import BrokerParts
from thermocline.broker.due import TimerService, TransactionService
from thermocline.broker.static_topics import MappingCleaner, local_hour


def start_recurring_work(housekeeping: Housekeeping, resources: AsyncExitStack) -> None:
    """Begin, until `resources` close; returns at once."""
    housekeeping.start()
    resources.push_async_callback(housekeeping.close)


def make_housekeeping(parts: BrokerParts) -> Housekeeping:
    """With the services that it runs. On the loop."""
    base, tables, due = parts.base, parts.tables, parts.due
    return Housekeeping(
        settings=base.settings,
        persister=tables.persister,
        clients=tables.clients,
        proxied=tables.proxied,
        locks=tables.locks,
        delays=due.delays,
        timers=make_timer_service(parts),
        transactions=make_transaction_service(parts),
        pops=parts.pops.store,
        clean_orders=parts.pops.clean_orders,
        mappings=make_mapping_cleaner(parts),
        stats=base.stats,
        clock=base.steady_clock,
    )


def make_timer_service(parts: BrokerParts) -> TimerService | None:
    """None while timers are switched off."""
    timers = parts.due.timers
    if timers is None:
        return None
    base = parts.base
    return TimerService(timers, parts.due.appender, commit_log=base.store.commit_log, rates=base.stats.rates)


def make_transaction_service(parts: BrokerParts) -> TransactionService:
    """From now on it takes the notes of ended transactions. On the loop."""
    base, tables, due = parts.base, parts.tables, parts.due
    return TransactionService(
        settings=base.settings,
        store=base.store,
        topics=tables.topics,
        offsets=tables.offsets,
        clients=tables.clients,
        transactions=due.transactions,
        transaction_counts=due.transaction_counts,
        persister=tables.persister,
        clock=base.clock,
        may_send=parts.access.may_send if parts.access is not None else None,
    )


def make_mapping_cleaner(parts: BrokerParts, *, hour: Callable[[], int] = local_hour) -> MappingCleaner:
    """`hour`: of the day."""
    tables, cluster = parts.tables, parts.cluster
    return MappingCleaner(
        store=parts.base.store,
        static_topics=tables.static_topics,
        peers=cluster.peers,
        registration=cluster.registration,
        mapped_queues=cluster.mapped_queues,
        hour=hour,
    )
