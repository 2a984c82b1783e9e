"""Ledger takeover: a slave's store becomes the master's, and continues its ledger. Before the broker opens the store.

    enrolment   names the store that has written the ledger: without it this is no slave's store, and nothing is done
    ledger      has to be there, if the master had one
    try         would the store let two writers commit? then nothing is touched
    claim       the next epoch, under this store's UUID: the old master is fenced at its next commit. Refused if the
                ledger belongs to neither of the two stores: another slave has taken over, and its log may differ. Under
                a controller one that has claimed it alone, and could not serve then, does not count
    topics      are brought to their incarnations in the ledger (ledger_topics.py)
    continue    queues that end before the ledger's end go on there: all below is in the bucket. Queues without a local
                message go on where the saved state says that they ended: what they had has expired
    hole        the ledger may know a log offset that this log does not reach, if nothing had to wait for this slave:
                the log then goes on in the file behind it, and blanks fill what is between
    end         all is durable, then the enrolment goes: from here on the store is a master's

It may be cut off anywhere and begun again: every step finds done what an earlier try has done. So no queue offset and
no log offset is given out that a message in the bucket has, and no message is sealed that is there.
Messages that the old master had acknowledged and that neither this log nor the bucket has are lost, and their offsets
are given out again: with ASYNC_MASTER as in RocketMQ; with sends that wait for this slave there are none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from random import Random

import msgspec

from thermocline.broker.recovery.ledger_topics import follow_topics, later_lives
from thermocline.broker.settings import BrokerConfig
from thermocline.broker.state import encode_ceiling
from thermocline.remoting.errors import SettingError
from thermocline.remoting.offsets import QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.store.config import SlaveStoreConfig, StoreConfig
from thermocline.store.files import Disk, replace_file
from thermocline.store.message_store import MessageStore
from thermocline.store.state import (
    Enrolment,
    load_enrolment,
    load_or_make_identity,
    remove_enrolment,
    save_enrolment,
)
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.catalog import Catalog
from thermocline.tiered.doctor import check_fencing, races_for
from thermocline.tiered.ledger import LedgerIdentity, LedgerReader, LedgerWriter, check_owner, new_arbiter
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.segments import BrokerKeys
from thermocline.tiered.state import TOPICS, StateLog, StateSnapshot, TopicState

logger = logging.getLogger(__name__)


class ContinuedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue whose messages [log_end, next_offset) are in the bucket and not in this log."""

    topic: str
    queue_id: int
    log_end: QueueOffset
    next_offset: QueueOffset


class TakeoverReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report to the operator. The log's hole is [log_end, next_offset), empty where the two are the same."""

    root: str
    epoch: int
    ledger_end: PhysicalOffset
    log_end: PhysicalOffset
    next_offset: PhysicalOffset
    queues: tuple[ContinuedQueue, ...]

    def lines(self) -> Iterator[str]:
        """The printed text."""
        yield (
            f"took over root={self.root} epoch={self.epoch} ledger_end={self.ledger_end} log_end={self.log_end}"
            f" next={self.next_offset}"
        )
        for queue in self.queues:
            yield (
                f"topic={queue.topic} queue={queue.queue_id} in_bucket_only={queue.log_end}-{queue.next_offset}"
                f" count={queue.next_offset - queue.log_end}"
            )
        if self.next_offset > self.log_end:
            yield (
                f"hole: the log lacks its bytes {self.log_end} to {self.next_offset}: what of them is not in the bucket"
                " is lost"
            )


def find_enrolment(disk: Disk, store: StoreConfig) -> Enrolment | None:
    """Whose ledger the store has followed as a slave; None if none.

    Raises:
        CorruptDataError: The enrolment, or the identity, cannot be read.
    """
    return load_enrolment(disk, store.enrolment_path, store_id=_store_id(disk, store))


async def check_ledger(
    bucket: ObjectStore, *, broker: BrokerConfig, store: StoreConfig, disk: Disk, master_epoch: int = 0
) -> None:
    """Pass a store whose ledger is its own, or that has none; before a master of a replica set takes sends. A directory
    without a store yet has none. `master_epoch`: for which a controller has elected this broker.

    Raises:
        ForeignLedgerError: The ledger is another store's.
        ObjectStoreUnavailableError: The bucket does not answer.
        CorruptDataError: The ledger, or the identity, cannot be read.
    """
    keys = BrokerKeys.of(cluster=broker.cluster_name, broker_name=broker.broker_name)
    identity = LedgerIdentity(
        store_uuid=_store_id(disk, store),
        cluster=broker.cluster_name,
        broker_name=broker.broker_name,
        master_epoch=master_epoch,
    )
    await check_owner(bucket, keys, (await LedgerReader.open(bucket, keys, only_topics=frozenset())).catalog, identity)


async def claim_again(
    bucket: ObjectStore,
    *,
    broker: BrokerConfig,
    store: StoreConfig,
    tier: TierConfig,
    disk: Disk,
    clock: Callable[[], int],
    random: Random,
    master_epoch: int,
) -> None:
    """Record in the ledger of a store that is no slave's that a controller has elected its broker. Raises as
    `take_over`; nothing was changed unless it returns."""
    if not disk.exists(store.identity_path):
        return
    writer = await _claim(
        bucket, broker, tier, store_id=_store_id(disk, store), master_epoch=master_epoch, clock=clock, random=random
    )
    await writer.close()


async def take_over(
    bucket: ObjectStore,
    *,
    broker: BrokerConfig,
    store: StoreConfig,
    tier: TierConfig,
    disk: Disk,
    clock: Callable[[], int],
    random: Random,
    open_local: Callable[[StoreConfig], MessageStore],
    master_epoch: int = 0,
) -> TakeoverReport | None:
    """Make a slave's store a master's; None if it is none of a slave. Nothing is open afterwards.

    `open_local`: opens the store with these settings, as a master does. `master_epoch`: for which a controller has
    elected this broker.

    Raises:
        ForeignLedgerError: The ledger belongs to neither this store nor its master's. Nothing was changed.
        SettingError: There is no ledger, and the master had one. Nothing was changed.
        UnfitStoreError: The store would let two writers commit. Nothing was changed.
        ObjectStoreUnavailableError: The bucket does not answer; try again.
        FencedError: Another broker claims the same ledger at the same time.
        UnavailableError: A broker has the directory open.
        CorruptDataError: The bucket's data, or the store, cannot be read.
        OSError, DiskFullError: The store cannot be written; try again.
    """
    enrolment = find_enrolment(disk, store)
    if enrolment is None:
        return None
    keys = BrokerKeys.of(cluster=broker.cluster_name, broker_name=broker.broker_name)
    logger.info("ledger is being taken over root=%s from=%s", keys.root, enrolment.master_store_id)
    reader = await LedgerReader.open(bucket, keys, only_topics=frozenset())
    if enrolment.has_ledger and not reader.catalog.version:
        raise SettingError(
            "this store's master has written a ledger, and there is none here: coldUrl, brokerName and"
            " brokerClusterName have to be the master's",
            root=keys.root,
        )
    local = open_local(SlaveStoreConfig.of(store))
    try:
        writer = await _claim(
            bucket,
            broker,
            tier,
            store_id=enrolment.store_id,
            predecessor=enrolment.master_store_id,
            master_epoch=master_epoch,
            clock=clock,
            random=random,
        )
        try:
            report = await _continue(writer, local, disk, enrolment)
        finally:
            await writer.close()
    finally:
        local.close()
    remove_enrolment(disk, store.enrolment_path)
    logger.info("ledger taken over root=%s from=%s epoch=%d", keys.root, enrolment.master_store_id, report.epoch)
    return report


async def _claim(
    bucket: ObjectStore,
    broker: BrokerConfig,
    tier: TierConfig,
    *,
    store_id: str,
    predecessor: str = "",
    master_epoch: int,
    clock: Callable[[], int],
    random: Random,
) -> LedgerWriter:
    """Claim the ledger's next epoch, if the object store lets one writer commit only. Raises as `take_over`."""
    keys = BrokerKeys.of(cluster=broker.cluster_name, broker_name=broker.broker_name)
    races = races_for(tier.cold_url)
    if races is not None:
        await check_fencing(bucket, keys, mode=tier.fencing_mode, random=random, races=races)
    return await LedgerWriter.open(
        bucket,
        keys,
        identity=LedgerIdentity(
            store_uuid=store_id,
            cluster=broker.cluster_name,
            broker_name=broker.broker_name,
            predecessor=predecessor,
            master_epoch=master_epoch,
        ),
        clock_ms=clock,
        random=random,
        arbiter=new_arbiter(tier.fencing_mode, bucket, keys, random=random),
    )


async def _continue(writer: LedgerWriter, local: MessageStore, disk: Disk, enrolment: Enrolment) -> TakeoverReport:
    catalog, log = writer.catalog, local.commit_log
    snapshot = (await StateLog(writer).newest()).snapshot
    configs = {} if snapshot is None else snapshot.documents.get(TOPICS, {}).get("topicConfigTable", {})
    redone = {*enrolment.redone_topics, *later_lives(catalog, local)}
    if redone != {*enrolment.redone_topics}:
        noted = msgspec.structs.replace(enrolment, redone_topics=tuple(sorted(redone)))
        save_enrolment(disk, local.config.enrolment_path, noted)
    follow_topics(catalog, configs, local, disk, redone=redone)
    if snapshot is not None:
        replace_file(disk, local.config.log_ceiling_path, encode_ceiling(snapshot.log_ceiling), keep_backup=False)
    log_end = log.append_offset
    while log.append_offset < catalog.end_physical_offset:
        log.roll()
    queues = tuple(_continue_queues(catalog, snapshot, local))
    return TakeoverReport(
        root=writer.keys.root,
        epoch=writer.epoch,
        ledger_end=catalog.end_physical_offset,
        log_end=log_end,
        next_offset=log.append_offset,
        queues=queues,
    )


def _store_id(disk: Disk, store: StoreConfig) -> str:
    """The store's id; empty for a directory without a store."""
    if not disk.exists(store.identity_path):
        return ""
    return load_or_make_identity(disk, store.identity_path, make_id=lambda: "").store_id


def _continue_queues(catalog: Catalog, snapshot: StateSnapshot | None, local: MessageStore) -> Iterator[ContinuedQueue]:
    """Have queues that end before the ledger's end go on there, and those without a local message not before the end
    that the saved state has."""
    saved = {} if snapshot is None else {state.topic: state for state in snapshot.topics}
    for topic in sorted({*catalog.topics, *saved}):
        incarnation = local.incarnations.find(topic)
        if incarnation.deleted:
            continue
        cold_ends = _cold_ends(catalog, topic, incarnation.id)
        saved_ends = _saved_ends(saved.get(topic), incarnation.id)
        for queue_id in sorted({*cold_ends, *saved_ends}):
            queue = local.queues.find_or_create(topic, queue_id)
            log_end, cold_end = queue.next_offset, cold_ends.get(queue_id, QUEUE_START)
            saved_end = saved_ends.get(queue_id, QUEUE_START) if queue.min_offset == log_end else QUEUE_START
            next_offset = max(cold_end, saved_end)
            if log_end < next_offset:
                queue.restart_at(next_offset, min_offset=next_offset)
            if log_end < cold_end:
                yield ContinuedQueue(topic=topic, queue_id=queue_id, log_end=log_end, next_offset=cold_end)


def _cold_ends(catalog: Catalog, topic: str, incarnation: int) -> dict[int, QueueOffset]:
    entry = catalog.topics.get(topic)
    if entry is None or entry.deleted or entry.incarnation != incarnation:
        return {}
    ends = dict(catalog.queue_ends(topic))
    for hole in entry.holes:
        ends[hole.queue_id] = max(hole.end_offset, ends.get(hole.queue_id, hole.end_offset))
    return ends


def _saved_ends(state: TopicState | None, incarnation: int) -> dict[int, QueueOffset]:
    if state is None or state.deleted or state.incarnation != incarnation:
        return {}
    return {end.queue_id: end.end_offset for end in state.ends}
