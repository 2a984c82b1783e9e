"""DerivedSync: what is promised is true, whatever goes on between the slices.

Covers `store/files/sync_site.py`, `store/queues/queue_ends.py`.
"""

from __future__ import annotations

import struct
from random import Random
from zlib import crc32

import pytest

from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import bodies_of, draft, open_store
from thermocline.remoting.errors import CorruptDataError, StoreClosedError
from thermocline.store.files.sync_site import SyncSite
from thermocline.store.queues.queue_ends import (
    CHECKSUM,
    HEAD,
    MAGIC,
    NAME_SIZE,
    TOPIC,
    QueueEnds,
    TopicEnds,
    encode_queue_ends,
)
from thermocline.store.read_limit import ReadLimit
from thermocline.store.state.checkpoint import StoreCheckpoint


def test_slices_let_the_loop_work_in_between() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for number in range(60):
        store.put(draft(f"t{number % 6}", number % 10))
    sync = store.begin_derived_sync(queues_per_slice=1)
    slices = 0
    while not sync.advance():
        slices += 1
        store.put(draft("t0", 0, b"between"))
    assert slices > 30
    sync.commit()
    store.end_derived_sync(sync, committed=True)
    assert store.recovery_offset == sync.recovery_offset < store.commit_log.append_offset
    ends = QueueEnds.load(disk, "/store/thermocline/queueEnds")
    assert ends is not None
    assert ends.recovery_offset < ends.capture_offset == store.commit_log.flush_offset
    assert len(ends.topics) == 6


def test_the_confirm_offset_is_kept() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    store.put(draft())
    store.sync_derived()
    assert StoreCheckpoint.load(disk, "/store/checkpoint").confirm_offset == 0, "without a controller"
    confirm_offset = store.commit_log.append_offset
    store.put(draft())
    store.read_limit = ReadLimit(lambda: confirm_offset)
    store.sync_derived()
    assert StoreCheckpoint.load(disk, "/store/checkpoint").confirm_offset == confirm_offset > 0


@pytest.mark.parametrize("stop", ["close", "kill"])
def test_queue_files_that_were_not_synced_are_made_anew(stop: str) -> None:
    """After a failed sync the kernel takes their pages for clean: the next sync succeeds, and makes nothing durable."""
    disk = SimulatedDisk()
    store = open_store(disk)
    store.put(draft(body=b"before"))
    store.sync_derived()
    promised = store.recovery_offset
    store.put(draft(body=b"after"))
    disk.fail_syncs.add(SyncSite.QUEUE_FILE)
    with pytest.raises(OSError, match="simulated"):
        store.sync_derived()
    disk.fail_syncs.clear()
    with pytest.raises(StoreClosedError):
        store.sync_derived()
    assert store.recovery_offset == promised
    with pytest.raises(StoreClosedError):
        store.put(draft(body=b"refused"))
    assert bodies_of(store) == [b"before", b"after"]
    store.commit_log.flush()
    if stop == "close":
        with pytest.raises(StoreClosedError):
            store.close()
    disk = disk.after_power_cut(Random(1), kept_share=0)
    store = open_store(disk)
    assert bodies_of(store) == [b"before", b"after"]
    disk = disk.after_power_cut(Random(2), kept_share=0)
    assert bodies_of(open_store(disk)) == [b"before", b"after"]


def test_queue_ends_that_were_not_written_are_written_by_the_next_round() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    store.put(draft())
    before = store.recovery_offset
    disk.fail_syncs.add(SyncSite.QUEUE_ENDS_FILE)
    with pytest.raises(OSError, match="simulated"):
        store.sync_derived()
    assert store.recovery_offset == before
    disk.fail_syncs.clear()
    store.sync_derived()
    assert store.recovery_offset == store.commit_log.append_offset
    assert bodies_of(open_store(disk.after_power_cut(Random(1)))) == [b"hello"]


def test_a_failed_flush_promises_nothing() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    store.put(draft())
    disk.fail_syncs.add(SyncSite.LOG_FLUSH)
    with pytest.raises(StoreClosedError):
        store.sync_derived()
    assert store.recovery_offset == 0


def test_no_room_for_units_promises_only_written_units() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    store.put(draft(queue_id=0))
    store.tick()
    second = store.put(draft(queue_id=1))
    disk.is_full = True
    sync = store.begin_derived_sync()
    while not sync.advance():
        continue
    disk.is_full = False
    sync.commit()
    store.end_derived_sync(sync, committed=True)
    assert store.recovery_offset == second.physical_offset
    disk.revive()
    assert bodies_of(open_store(disk), queue_id=1) == [b"hello"]


def test_apache_rocketmqs_checkpoint_is_kept() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    store.put(draft())
    store.index_timestamp_ms = 12
    store.sync_derived()
    stamps = StoreCheckpoint.load(disk, "/store/checkpoint")
    assert (stamps.log_timestamp_ms, stamps.queue_timestamp_ms) == (store.clock.last_ms, store.clock.last_ms)
    assert stamps.index_timestamp_ms == 12
    store.close()
    assert open_store(disk).index_timestamp_ms == 12


@pytest.mark.parametrize(
    ("recovery_offset", "ends"), [(11, (0, 5, 5, 0)), (10, (0, 5, 6, 0)), (10, (0, 5, 5, 6)), (10, (0, 5, 5, -1))]
)
def test_queue_ends_that_cannot_be_are_neither_written_nor_read(
    recovery_offset: int, ends: tuple[int, int, int, int]
) -> None:
    """Recovery offset above the capture offset; units in files, or a minimum, above the end."""
    name = b"t"
    topic = NAME_SIZE.pack(len(name)) + name + TOPIC.pack(1, 0, 1) + struct.pack("<Iqqq", *ends)
    body = MAGIC + HEAD.pack(recovery_offset, 10, 0, 1) + topic
    with pytest.raises(CorruptDataError, match="impossible"):
        QueueEnds.decode(body + CHECKSUM.pack(crc32(body)))
    if min(ends) >= 0:
        made = TopicEnds(topic="t", incarnation_id=1, expired_before_ms=0, queues=(ends,))
        with pytest.raises(AssertionError):
            encode_queue_ends([made.encode()], recovery_offset=recovery_offset, capture_offset=10, store_timestamp_ms=0)
