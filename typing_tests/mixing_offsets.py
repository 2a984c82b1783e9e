"""The three kinds of offsets, as the project's own code uses them: right uses, and mix-ups the checker must find."""

from __future__ import annotations

from typing import assert_type

from thermocline.broker.tables import ConsumerOffsets
from thermocline.remoting.handles import ReceiptHandle
from thermocline.remoting.headers import PullMessageRequestHeader, ViewMessageRequestHeader
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset, offset_range
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.store.log import CommitLog
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue
from thermocline.tiered.objects import ObjectStore, SegmentOffset
from thermocline.tiered.reading import ColdReader
from thermocline.tiered.segments import PartLocator, QueueRun, SegmentReader


def arithmetic(queue_offset: QueueOffset, physical_offset: PhysicalOffset, part: PartLocator) -> None:
    assert_type(queue_offset + 1, QueueOffset)
    assert_type(1 + queue_offset, QueueOffset)
    assert_type(queue_offset - 1, QueueOffset)
    assert_type(queue_offset - queue_offset, int)
    assert_type(max(physical_offset, physical_offset + 91), PhysicalOffset)
    assert_type(part.start + 4, SegmentOffset)
    assert_type(part.end - part.start, int)
    for each in offset_range(queue_offset, queue_offset + 3):
        assert_type(each, QueueOffset)


async def right_uses(
    store: MessageStore, queue: ConsumeQueue, record: MessageRecord, objects: ObjectStore, part: PartLocator
) -> None:
    unit = queue.unit(queue.min_offset)
    assert_type(unit.physical_offset, PhysicalOffset)
    assert_type(store.commit_log.read_record(unit.physical_offset).queue_offset, QueueOffset)
    assert_type(queue.first_at_or_behind(record.end_offset, start=record.queue_offset), QueueOffset)
    await objects.get_range(part.key, start=part.footer_start, end=part.end)
    assert_type([0, 1][record.queue_offset] + record.physical_offset % 4_096, int)


def queue_for_physical(log: CommitLog, store: MessageStore, record: MessageRecord) -> None:
    log.record_at(record.queue_offset)  # type: ignore[arg-type]
    log.raise_minimum(record.queue_offset)  # type: ignore[arg-type]
    store.read_record(record.queue_offset + 1)  # type: ignore[arg-type]
    ViewMessageRequestHeader(offset=record.queue_offset)  # type: ignore[arg-type]


def physical_for_queue(
    queue: ConsumeQueue, store: MessageStore, offsets: ConsumerOffsets, handle: ReceiptHandle, record: MessageRecord
) -> None:
    queue.unit(record.physical_offset)  # type: ignore[arg-type]
    queue.first_at_or_behind(record.physical_offset, start=record.physical_offset)  # type: ignore[arg-type]
    store.get("orders", 0, record.physical_offset, count_max=1, bytes_max=1)  # type: ignore[arg-type]
    offsets.commit("orders", "billing", 0, record.end_offset)  # type: ignore[arg-type]
    queue.next_offset = record.end_offset  # type: ignore[assignment]
    assert handle.start_offset != record.physical_offset  # type: ignore[comparison-overlap]
    PullMessageRequestHeader(
        consumer_group="billing",
        topic="orders",
        queue_id=0,
        queue_offset=record.physical_offset,  # type: ignore[arg-type]
        max_msg_nums=1,
        sys_flag=0,
        subscription="*",
        sub_version=0,
    )


async def with_segments(
    reader: ColdReader, segment: SegmentReader, objects: ObjectStore, run: QueueRun, part: PartLocator
) -> None:
    await reader.message_time("orders", 0, part.start, cut_ms=0)  # type: ignore[arg-type]
    await segment.frame_at(run, part.footer_start)  # type: ignore[arg-type]
    await segment.find_physical_offset(run.start_offset)  # type: ignore[arg-type]
    await objects.get_range(part.key, start=run.start_offset, end=part.end)  # type: ignore[arg-type]
    await objects.get_range(part.key, start=part.start, end=run.end_physical_offset)  # type: ignore[arg-type]
    PartLocator(part.key, part.start, run.end_offset, part.footer_start, part.crc32)  # type: ignore[arg-type]


def arithmetic_with_two_kinds(record: MessageRecord, part: PartLocator) -> list[int]:
    return [
        record.physical_offset - record.queue_offset,  # type: ignore[list-item]
        record.queue_offset + record.queue_offset,  # type: ignore[list-item]
        part.start + record.physical_offset,  # type: ignore[list-item]
        part.end - record.end_offset,  # type: ignore[list-item]
    ]


def no_kind_at_all(queue: ConsumeQueue, log: CommitLog, size_bytes: int) -> None:
    queue.unit(7)  # type: ignore[arg-type]
    log.record_at(size_bytes)  # type: ignore[arg-type]
    queue.unit(queue.next_offset // 2)  # type: ignore[arg-type]
    QueueOffset("7")  # type: ignore[arg-type]
