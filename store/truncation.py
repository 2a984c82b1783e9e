"""Truncation: an open store's log ends earlier, and everything that is derived from it.

A broker that was a master has messages at its log's end that no other broker got. When it follows another master, they
have to go: the two logs part there. They were not confirmed, so no promise is broken.

    1  queues durable, as ever                                         the store as it was
    2  queue ends at the border, where the next recovery begins        recovery places what is behind it anew: as it was
    3  queue files, incarnations                                       likewise
    4  what else is derived: the caller cuts it                        it is made anew
    5  log files behind the border, newest first; zeroes in the last   the log to the border or behind it
A crash between two of them leaves a sound store, whose log ends at the border or behind it: the broker finds that out
when it meets its master again, and cuts the rest.

Nothing may append or read behind the border meanwhile, and no round of the queues (derived_sync.py) may be under way.
Source: DefaultMessageStore.truncateFiles, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.store.derived_sync import ends_of_topic
from thermocline.store.files import Disk
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue, encode_queue_ends, save_queue_ends

logger = logging.getLogger(__name__)


def truncate_store(
    store: MessageStore, disk: Disk, offset: PhysicalOffset, *, cut_derived: Callable[[PhysicalOffset], None]
) -> PhysicalOffset:
    """Cut a store at the last border between records at or below `offset`; where its log ends now, durably.

    `cut_derived` makes durable that nothing outside the log and its queues tells of records at or behind the offset it
    is given: the key index (`IndexService.open` with this end of the log does it), positions of timers and POP.

    Raises:
        OffsetOutOfRangeError: The offset is below the oldest file; nothing has changed.
        StoreClosedError, OSError, DiskFullError: It was not cut, or not in whole. The log takes no writes until the
            store is opened again.
    """
    log = store.commit_log
    end_offset = log.border_at_or_below(offset)
    if end_offset == log.append_offset:
        return end_offset
    logger.warning("log is cut from_offset=%d to_offset=%d", log.append_offset, end_offset)
    try:
        store.sync_derived()
        _cut_queues(store, disk, end_offset)
        cut_derived(end_offset)
        log.cut(end_offset)
    except Exception as error:
        if not log.is_failed:
            log.fail(f"not cut: {error}")
        store.derived_rounds.is_over = True
        raise
    return end_offset


def _cut_queues(store: MessageStore, disk: Disk, end_offset: PhysicalOffset) -> None:
    """Take back the units of records at or behind the log's end to be."""
    queues, config = store.queues, store.config
    shorter = [queue for queue in queues if _cut_units(queue, end_offset)]
    ends = [ends_of_topic(topic, queues, store.incarnations).encode() for topic in queues.topics]
    data = encode_queue_ends(
        ends, recovery_offset=end_offset, capture_offset=end_offset, store_timestamp_ms=store.clock.last_ms
    )
    save_queue_ends(disk, config.queue_ends_path, data)
    store.derived_rounds.recovery_offset = end_offset
    for queue in shorter:
        positions = queues.files.base_positions(queue.topic, queue.queue_id)
        if positions:
            queues.files.cut(queue, queue.next_offset, positions)
    queues.files.take_unsynced().sync()
    if store.incarnations.begin_at_latest(end_offset):
        store.incarnations.save(disk, config.incarnation_path)


def _cut_units(queue: ConsumeQueue, end_offset: PhysicalOffset) -> bool:
    """Let a queue end before its first record at or behind an offset of the log; whether it has one."""
    start = queue.min_offset
    end = queue.first_at_or_behind(end_offset, start=start)
    # Offsets without a message stand in front of one that is cut off, and may get one.
    while end > start and not _is_before(queue, end - 1, end_offset):
        end -= 1
    if end == queue.next_offset:
        return False
    queue.restart_at(QueueOffset(end))
    return True


def _is_before(queue: ConsumeQueue, offset: QueueOffset, end_offset: PhysicalOffset) -> bool:
    unit = queue.unit(offset)
    return not unit.is_empty and unit.physical_offset < end_offset
