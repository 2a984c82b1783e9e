"""A store that is cut has what was before the cut, in log, queues and index; also when the power fails meanwhile.

Covers `store/truncation.py`, `CommitLog.cut`, `CommitLog.border_at_or_below`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from tests.clock import Clock
from tests.simulated_disk import PowerCut, SimulatedDisk
from tests.store.power_cut import seed_shown
from tests.store.store_parts import LOG_FILE_BYTES, draft, open_store, records_of
from thermocline.remoting.errors import OffsetOutOfRangeError, StoreClosedError
from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.store.files.sync_site import SyncSite
from thermocline.store.index.index_service import IndexService
from thermocline.store.log.log_scan import RecordScan
from thermocline.store.log.message_draft import PutResult
from thermocline.store.truncation import truncate_store
from thermocline.store.unit_placement import UnitPlacement

TOPICS = ("orders", "bills")
END_MS = 1 << 60


class CutStore:
    """A store with messages of two topics in several files, and its index."""

    def __init__(self, seed: int, *, count: int = 40) -> None:
        random = Random(seed)
        self.clock = Clock(1_000_000)
        self.disk = SimulatedDisk()
        self.store = open_store(self.disk, clock=self.clock)
        self.puts: list[tuple[str, int, bytes, PutResult]] = []
        for number in range(count):
            self.put(random, number)
            if random.random() < 0.2:
                self.store.tick()
            if random.random() < 0.1:
                self.store.sync_derived()

    def put(self, random: Random, number: int) -> None:
        topic, queue_id = random.choice(TOPICS), random.randrange(2)
        body = b"%d " % number + bytes(random.choice((0, 100, 700)))
        self.clock.now_ms += 1
        result = self.store.put(draft(topic, queue_id, body, properties=b"KEYS\x01key%d\x02" % number))
        self.puts.append((topic, queue_id, body, result))

    def build_index(self) -> None:
        self.store.commit_log.flush()
        with IndexOf(self) as index:
            while index.build(self.store.commit_log.flush_offset):
                pass

    def cut(self, offset: int) -> PhysicalOffset:
        return truncate_store(self.store, self.disk, PhysicalOffset(offset), cut_derived=self.cut_index)

    def cut_index(self, end_offset: PhysicalOffset) -> None:
        IndexService.open(
            self.disk, self.store.config, log_end_offset=end_offset, was_clean=True, clock=self.clock
        ).close()

    def reopen(self, disk: SimulatedDisk | None = None) -> None:
        if disk is None:
            self.disk.revive()
        else:
            self.disk = disk
        self.store = open_store(self.disk, clock=self.clock)

    def check(self) -> None:
        """Log, queues and index have the messages below the log's end, and nothing else."""
        end_offset = self.store.commit_log.append_offset
        kept = [put for put in self.puts if put[3].end_offset <= end_offset]
        assert not kept or kept[-1][3].end_offset == end_offset or end_offset % LOG_FILE_BYTES == 0
        for topic in TOPICS:
            for queue_id in range(2):
                expected = [put[2] for put in kept if put[:2] == (topic, queue_id)]
                queue = self.store.queues.find(topic, queue_id)
                assert ([] if queue is None else [record.body for record in records_of(self.store, queue)]) == expected
        scan = RecordScan(self.store.commit_log.files.last.base_offset)
        last = self.store.commit_log.files.last
        list(scan.records(last.view, last.base_offset))
        assert scan.end_offset == end_offset
        assert not any(last.view[end_offset - last.base_offset :])

    def check_index(self) -> None:
        self.build_index()
        end_offset = self.store.commit_log.append_offset
        with IndexOf(self) as index:
            for number, (topic, _, _, result) in enumerate(self.puts):
                found = index.query(topic, f"key{number}", begin_ms=0, end_ms=END_MS, count_max=9)
                assert found == ([result.physical_offset] if result.end_offset <= end_offset else [])


class IndexOf:
    """The index, open for a while."""

    def __init__(self, parts: CutStore) -> None:
        self._parts = parts

    def __enter__(self) -> IndexService:
        parts = self._parts
        self._index = IndexService.open(
            parts.disk,
            parts.store.config,
            log_end_offset=parts.store.commit_log.append_offset,
            was_clean=True,
            clock=parts.clock,
        )
        return self._index

    def __exit__(self, *_: object) -> None:
        self._index.close()


def test_what_was_derived_is_cut_before_the_log() -> None:
    parts = CutStore(1)
    border, end_offset = parts.puts[7][3].physical_offset, parts.store.commit_log.append_offset
    cuts: list[tuple[int, int]] = []

    def cut_derived(offset: PhysicalOffset) -> None:
        cuts.append((offset, parts.store.commit_log.append_offset))

    truncate_store(parts.store, parts.disk, border, cut_derived=cut_derived)
    assert cuts == [(border, end_offset)]
    assert parts.store.commit_log.append_offset == border


@pytest.mark.parametrize("reopened", [False, True], ids=["open", "opened again"])
def test_at_each_border(reopened: bool) -> None:
    for number in range(0, 40, 3):
        parts = CutStore(1)
        parts.build_index()
        border = parts.puts[number][3].physical_offset
        assert parts.cut(border) == border == parts.store.commit_log.append_offset
        if reopened:
            parts.reopen()
        parts.check()
        parts.check_index()
        del parts.puts[number:]
        for again in range(number, number + 8):
            parts.put(Random(again), again)
        parts.check()
        parts.check_index()
        parts.store.close()
        parts.reopen()
        assert parts.store.recovery_report.was_clean
        parts.check()


def test_an_offset_in_a_record_or_in_a_blank() -> None:
    parts = CutStore(2)
    borders = [result.physical_offset for *_, result in parts.puts]
    end_offset = parts.store.commit_log.append_offset
    for offset in range(0, end_offset, 13):
        at_or_below = max(border for border in (*borders, LOG_START) if border <= offset)
        found = parts.store.commit_log.border_at_or_below(PhysicalOffset(offset))
        behind = next(put[3] for put in parts.puts if put[3].physical_offset == at_or_below)
        # Behind a file's last record its end is a border, too, and the next file's start.
        assert found in (at_or_below, behind.end_offset, offset - offset % LOG_FILE_BYTES)
        assert found <= offset
    assert parts.store.commit_log.border_at_or_below(PhysicalOffset(end_offset + 9)) == end_offset
    assert parts.cut(borders[20] + 1) == borders[20]
    parts.check()


def test_at_the_start_and_at_the_end() -> None:
    parts = CutStore(3)
    end_offset = parts.store.commit_log.append_offset
    assert parts.cut(end_offset + 1) == end_offset
    parts.check()
    assert parts.cut(0) == 0
    parts.check()
    parts.check_index()
    parts.reopen()
    parts.check()


def test_below_the_oldest_file() -> None:
    parts = CutStore(4)
    log = parts.store.commit_log
    end_offset = log.append_offset
    parts.store.sync_derived()
    for file in log.raise_minimum(PhysicalOffset(LOG_FILE_BYTES)):
        log.delete_file(file)
    with pytest.raises(OffsetOutOfRangeError):
        parts.cut(LOG_FILE_BYTES - 1)
    assert log.append_offset == end_offset
    assert parts.cut(LOG_FILE_BYTES) == LOG_FILE_BYTES


def test_a_file_that_was_made_ahead_goes_too() -> None:
    parts = CutStore(5)
    log = parts.store.commit_log
    while log.room_bytes >= LOG_FILE_BYTES // 2:
        parts.put(Random(0), len(parts.puts))
    parts.store.tick()
    assert parts.cut(parts.puts[2][3].physical_offset) == parts.puts[2][3].physical_offset
    del parts.puts[2:]
    for number in range(2, 12):
        parts.put(Random(number), number)
    parts.reopen()
    parts.check()


def test_offsets_without_a_message_go_with_the_message_behind_them() -> None:
    """A queue of a copied log may jump; its next message has the offset of the jump's start again."""
    parts = CutStore(6, count=16)
    store = parts.store
    store.tick()
    queue = store.queues.find_or_create("orders", 0)
    assert queue.next_offset
    end, border = queue.next_offset, store.commit_log.append_offset
    result = store.put(draft("other", 0))
    scan = RecordScan(result.physical_offset)
    view = store.commit_log.record_view(result.physical_offset, result.size_bytes)
    (record,) = scan.records(view, result.physical_offset)
    store.tick()
    record.queue_offset = QueueOffset(end + 20)
    UnitPlacement(store.queues, store.config).place(queue, record)
    parts.cut(border)
    assert queue.next_offset == end
    parts.reopen()
    reopened = parts.store.queues.find("orders", 0)
    assert reopened is not None
    assert reopened.next_offset == end
    parts.check()


@pytest.mark.parametrize("site", [SyncSite.LOG_RECOVER, SyncSite.QUEUE_FILE])
def test_a_disk_that_fails_ends_the_log(site: str) -> None:
    """Nothing is promised from then on, not even by a stop: the next start looks for itself."""
    parts = CutStore(7)
    parts.store.sync_derived()
    border = parts.puts[5][3].physical_offset
    parts.disk.fail_syncs.add(site)
    with pytest.raises(OSError, match="simulated"):
        parts.cut(border)
    with pytest.raises(StoreClosedError):
        parts.put(Random(1), 99)
    parts.disk.fail_syncs.clear()
    with pytest.raises(StoreClosedError):
        parts.store.close()
    parts.reopen(parts.disk.after_power_cut(Random(3), kept_share=0))
    assert not parts.store.recovery_report.was_clean
    parts.check()
    assert parts.cut(border) == border
    parts.check()


def test_the_power_fails_at_each_step(case_count: Callable[..., int]) -> None:
    for seed in range(case_count(quick=6, full=30, soak=300)):
        with seed_shown(seed):
            random = Random(seed)
            number, cut_at, is_done = random.randrange(36), 1, False
            while not is_done:
                parts = CutStore(seed)
                parts.build_index()
                border, end_offset = parts.puts[number][3].physical_offset, parts.store.commit_log.append_offset
                parts.disk.cut_at_step = parts.disk.step_count + cut_at
                is_done = True
                with suppress(PowerCut):
                    is_done = False
                    parts.cut(border)
                    is_done = True
                parts.disk.cut_at_step = None
                parts.reopen(parts.disk.after_power_cut(random))
                assert border <= parts.store.commit_log.append_offset <= end_offset
                assert not is_done or parts.store.commit_log.append_offset == border
                parts.check()
                parts.check_index()
                assert parts.cut(border) == border
                parts.check()
                parts.check_index()
                cut_at += 1
            assert cut_at > 10
