"""Unnoted commits: committed messages that the log of a former slave has without their op message.

A master writes the op message of a commit some seconds later (transaction_coordinator.py). A slave's log may end
between the two. Settlement does not find that: a slave promises how far recovery reads again without knowing of notes.
So the ends of the queues that open half messages are for are read back, as far as a note can be late.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK
from thermocline.store.message_store import MessageStore
from thermocline.transactions.half_message import HalfMessage
from thermocline.transactions.queue_records import record_at


def find_unnoted_commits(
    store: MessageStore, halves: Iterable[HalfMessage], *, late_ms_max: int
) -> Iterator[HalfMessage]:
    """Those of the half messages, which no op message names, that are committed all the same.

    `late_ms_max`: how long after a commit its op message is written at the latest.
    """
    by_queue: dict[tuple[str, int], dict[PhysicalOffset, HalfMessage]] = defaultdict(dict)
    for half in halves:
        by_queue[half.real_topic, half.real_queue_id][half.record.physical_offset] = half
    oldest_ms = store.clock.last_ms - late_ms_max
    for (topic, queue_id), wanted in by_queue.items():
        queue = store.queues.find(topic, queue_id)
        if queue is None:
            continue
        start = queue.first_at_or_behind(min(wanted), start=queue.min_offset)
        for queue_offset in range(queue.next_offset - 1, start - 1, -1):
            record = record_at(store, queue, QueueOffset(queue_offset))
            if record is None:
                continue
            if record.store_timestamp_ms < oldest_ms:
                break
            if record.sys_flag & TRANSACTION_MASK != TRANSACTION_COMMIT:
                continue
            named = wanted.get(record.prepared_transaction_offset)
            if named is not None and record.unique_key == named.transaction_id:
                yield named
