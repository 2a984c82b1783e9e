"""Bucket recovery: makes a store directory from the bucket of a lost broker.

    look      is there a ledger, and a snapshot of the state? else nothing is touched
    try       would the store let two writers commit? then nothing is touched either: as at every start of a broker
    claim     the next epoch, under the new store's UUID: an earlier writer is fenced at its next commit
    read      the newest snapshot (the one before, if it is damaged): no later one can be valid now; the catalog
    declare   the holes, in the ledger
    reserve   two snapshots of our own, so that a disk that is lost tomorrow is recovered behind what we give out today
    write     the directory (recovered_store.py)

It may be cut off anywhere and begun again: until the directory has its identity it is no store, and each try goes on
behind what the one before reserved. A directory that was recovered from the same root starts as any store does, so
that `--recover-from` may stay in a service's command.

Refused: a directory with messages in it. One that a broker has begun and that never took a message counts as empty, as
that is what a start without `--recover-from` leaves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from random import Random

from thermocline.broker.recovery.directory import clear, was_recovered
from thermocline.broker.recovery.readable_counts import with_readable_counts
from thermocline.broker.recovery.recovered_store import restored_documents, visible_from, write_recovered_store
from thermocline.broker.recovery.recovery_report import RecoveryReport, TopicReport, unfinished_work
from thermocline.broker.settings import BrokerConfig
from thermocline.broker.state import reserve_bytes
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.records.message_record import RECORD_BYTES_MIN
from thermocline.remoting.topic_validation import is_internal_topic
from thermocline.store.config import StoreConfig
from thermocline.store.files import Disk, make_durable_directory
from thermocline.store.queues import UNIT
from thermocline.store.state import StoreOrigin
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.doctor import check_fencing, races_for
from thermocline.tiered.ledger import (
    LedgerIdentity,
    LedgerWriter,
    find_entry_or_hint,
    find_roots,
    new_arbiter,
    open_catalog,
)
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.state import (
    STATE_FORMAT,
    QueueEnd,
    RecoveryPlan,
    StateLog,
    StateSnapshot,
    TopicState,
    find_last,
    plan_recovery,
)

logger = logging.getLogger(__name__)


async def recover_from_bucket(
    bucket: ObjectStore,
    *,
    broker: BrokerConfig,
    store: StoreConfig,
    tier: TierConfig,
    disk: Disk,
    clock: Callable[[], int],
    random: Random,
    make_id: Callable[[], str],
) -> RecoveryReport | None:
    """Make the store directory; None when it was recovered from there before. Nothing is open afterwards.

    Raises:
        InvalidRequestError: There is nothing to recover, or the directory holds messages. Nothing was changed.
        UnfitStoreError: The store would let two writers commit. Nothing was changed.
        UnavailableError: A broker has the directory open.
        ObjectStoreUnavailableError: The bucket does not answer; try again.
        FencedError: Another broker claims the same ledger at the same time.
        CorruptDataError: The bucket's data cannot be read.
        OSError, DiskFullError: The directory cannot be written.
    """
    keys = BrokerKeys.of(cluster=broker.cluster_name, broker_name=broker.broker_name)
    make_durable_directory(disk, store.root_path)
    unlock = disk.lock(store.lock_path)
    try:
        if was_recovered(disk, store, keys):
            logger.info("recovered before path=%s root=%s", store.root_path, keys.root)
            return None
        written_ms = (await _check_bucket(bucket, keys)).committed_ms
        races = races_for(tier.cold_url)
        if races is not None:
            await check_fencing(bucket, keys, mode=tier.fencing_mode, random=random, races=races)
        clear(disk, store)
        identity = LedgerIdentity(store_uuid=make_id(), cluster=broker.cluster_name, broker_name=broker.broker_name)
        writer = await LedgerWriter.open(
            bucket,
            keys,
            identity=identity,
            clock_ms=clock,
            random=random,
            arbiter=new_arbiter(tier.fencing_mode, bucket, keys, random=random),
            adopt=True,
        )
        try:
            return await _recover(writer, store=store, tier=tier, disk=disk, now_ms=clock(), written_ms=written_ms)
        finally:
            await writer.close()
    finally:
        unlock()


async def _recover(
    writer: LedgerWriter, *, store: StoreConfig, tier: TierConfig, disk: Disk, now_ms: int, written_ms: int
) -> RecoveryReport:
    """`written_ms`: when the ledger was last written to, before it was claimed."""
    log = StateLog(writer)
    found = await log.newest()
    snapshot = found.snapshot
    if snapshot is None:
        raise InvalidRequestError("the state snapshots are gone", root=writer.keys.root)
    catalog = writer.catalog
    plan = plan_recovery(
        snapshot,
        catalog,
        written_ms=written_ms,
        is_internal=is_internal_topic,
        units_per_file=store.queue_file_bytes // UNIT.size,
        log_file_bytes=store.log_file_bytes,
    )
    for changes in plan.changes(catalog):
        await writer.commit(changes)
    skipped = (*snapshot.skipped, *found.skipped)
    documents = restored_documents(plan, snapshot.documents, is_ledger_newer=written_ms >= snapshot.captured_ms)
    report = _report(plan, snapshot, writer, skipped=skipped, now_ms=now_ms)
    cuts_ms = visible_from(plan, documents, now_ms=now_ms)
    report = replace(report, topics=await with_readable_counts(report.topics, writer.store, catalog, cuts_ms))
    ceiling = plan.log_offset + reserve_bytes(disk, store, configured=tier.reserve_bytes)
    while log.reserved_ceiling < ceiling:
        name = log.next_name()
        await log.write(
            StateSnapshot(
                format=STATE_FORMAT,
                epoch=name.epoch,
                sequence=name.sequence,
                store_uuid=writer.catalog.store_uuid,
                cluster=writer.catalog.cluster,
                broker_name=writer.catalog.broker_name,
                captured_ms=now_ms,
                log_offset=plan.log_offset,
                log_ceiling=ceiling,
                record_bytes_min=RECORD_BYTES_MIN,
                new_queue_offset=plan.new_queue_offset,
                last_incarnation=plan.last_incarnation,
                topics=_topic_states(plan),
                documents=documents,
                lost={topic.topic: topic.known_lost_count for topic in report.topics if topic.known_lost_count},
                lost_since_ms=report.captured_ms,
                skipped=skipped,
            )
        )
    write_recovered_store(
        disk,
        store,
        plan,
        documents=documents,
        origin=StoreOrigin(
            store_id=writer.catalog.store_uuid,
            root=writer.keys.root,
            new_queue_offset=plan.new_queue_offset,
            recovered_ms=now_ms,
        ),
        log_ceiling=ceiling,
        store_timestamp_ms=max(snapshot.captured_ms, catalog.newest_store_ms),
        report="".join(f"{line}\n" for line in report.lines()),
    )
    logger.info("recovered root=%s topics=%d log_offset=%d", writer.keys.root, len(plan.topics), plan.log_offset)
    return report


async def _check_bucket(bucket: ObjectStore, keys: BrokerKeys) -> Catalog:
    """The newest catalog, without topics; InvalidRequestError when there is nothing to recover."""
    if not await find_entry_or_hint(bucket, keys):
        roots = ", ".join(await find_roots(bucket)) or "none"
        raise InvalidRequestError(
            "no broker of this name has a cold tier there: name the cluster and the broker that were lost",
            root=keys.root,
            there=roots,
        )
    catalog = await open_catalog(bucket, keys, only_topics=frozenset())
    if (await find_last(bucket, keys, epoch=catalog.epoch)).snapshot is None:
        raise InvalidRequestError(
            "the bucket holds history but no state snapshot, so nothing says which offsets were given out;"
            " --read-only-from serves what is there",
            root=keys.root,
        )
    return catalog


def _report(
    plan: RecoveryPlan, snapshot: StateSnapshot, writer: LedgerWriter, *, skipped: tuple[str, ...], now_ms: int
) -> RecoveryReport:
    return RecoveryReport(
        root=writer.keys.root,
        version=writer.version,
        epoch=writer.epoch,
        captured_ms=snapshot.lost_since_ms or snapshot.captured_ms,
        recovered_ms=now_ms,
        topics=tuple(
            TopicReport(
                topic=topic.topic,
                committed_count=topic.committed_count,
                known_lost_count=topic.known_lost_count + snapshot.lost.get(topic.topic, 0),
                quarantined_count=topic.quarantined_count,
            )
            for topic in plan.topics
            if topic.queues
        ),
        unfinished=unfinished_work(snapshot),
        skipped=skipped,
    )


def _topic_states(plan: RecoveryPlan) -> tuple[TopicState, ...]:
    return tuple(
        TopicState(
            topic=topic.topic,
            incarnation=topic.incarnation,
            start_offset=topic.start_offset,
            deleted=topic.deleted,
            expired_before_ms=topic.expired_before_ms,
            ends=tuple(QueueEnd(queue.queue_id, queue.next_offset) for queue in topic.queues),
        )
        for topic in plan.topics
    )
