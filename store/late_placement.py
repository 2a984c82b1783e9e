"""Late placement: queue units of records that were copied before their topic was made here.

A topic that was deleted and made again at a master begins in its log before a slave has that change. The records that
the slave gets meanwhile are in its log; as the topic is deleted there, they have no units. Once the slave has the
change, the log is read again from where the topic begins.
"""

from __future__ import annotations

from collections.abc import Iterator

from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.dispatch import has_unit
from thermocline.store.log import LogScan
from thermocline.store.message_store import MessageStore
from thermocline.store.unit_placement import UnitPlacement


def place_late(store: MessageStore, topic: str, start_offset: PhysicalOffset) -> Iterator[None]:
    """Place the units of a topic that is deleted here, from `start_offset`, where it begins anew, to the log's end.

    One record a step. After the last step the units are durable, and the log ends where the reading ended: the caller
    has the topic live before anything else is appended.

    Raises:
        OSError, DiskFullError: Units cannot be written.
    """
    log = store.commit_log
    placement = UnitPlacement(store.queues, store.config)
    was_placed = False
    scan = LogScan(log.files, max(start_offset, log.min_offset))
    if scan.end_offset < log.append_offset:
        for record in scan:
            if record.topic == topic and has_unit(record.sys_flag):
                placement.place(store.queues.find_or_create(topic, record.queue_id), record)
                was_placed = True
            yield
        assert scan.end_offset == log.append_offset, "a copied log is sound up to its end"
    if was_placed:
        store.sync_derived()
