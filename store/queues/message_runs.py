"""Message runs: from queue units to slices of the log.

Records that lie next to each other in one log file are one slice, so that an answer to a pull is a few large pieces, or
one copy, and never decoded. A read that takes all of its units slices them in one step instead: one slice when all lie
next to each other, else one for each record.

Rules
  - At most `count_max` messages and `bytes_max` bytes, but always the first one that matches.
  - Far behind the log's end the page cache has hardly kept what is read: `far_limits` are lower limits for messages
    whose physical offset is below `far_offset`, so that one pull does not wait for many disk reads.
  - A filler unit is an offset without a message: it is stepped over, like a unit with another tags code.
Source: DefaultMessageStore.java (getMessage, isTheBatchFull), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct
from functools import lru_cache

import msgspec

from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.store.log import CommitLog
from thermocline.store.queues.consume_queue import FILLER_SIZE_BYTES, UNIT

iterate_units = UNIT.iter_unpack

UNITS_AT_ONCE_MAX = 64
"""Of a read without a filter, in one step: twice what official clients ask for."""


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one read may take."""

    count_max: int
    bytes_max: int


class MessageRuns:
    """The result of a read: slices of the log in order, messages and bytes in them, and units examined."""

    __slots__ = ("buffers", "examined", "message_count", "size_bytes")

    def __init__(self, buffers: list[memoryview], *, message_count: int, size_bytes: int, examined: int) -> None:
        self.buffers = buffers
        self.message_count = message_count
        self.size_bytes = size_bytes
        self.examined = examined


def read_runs(
    log: CommitLog,
    units: bytes,
    *,
    codes: frozenset[int] | None,
    count_max: int,
    bytes_max: int,
    far_offset: PhysicalOffset = LOG_START,
    far_limits: RunLimits | None = None,
) -> MessageRuns:
    """Slices of the messages that `units` stand for, as far as their tags code is among `codes` (None or empty: all).

    Raises:
        OffsetOutOfRangeError: A log file has gone.
    """
    if not codes:
        runs = _all_units(log, units, count_max=count_max, bytes_max=bytes_max, far_offset=far_offset)
        if runs is not None:
            return runs
    buffers: list[memoryview] = []
    run_start = run_end = -1
    file_start = file_end = 0
    view = memoryview(b"")
    message_count = size_bytes = examined = 0
    for physical_offset, record_bytes, tags_code in iterate_units(units):
        if (codes and tags_code not in codes) or record_bytes == FILLER_SIZE_BYTES:
            examined += 1
            continue
        if message_count:
            if message_count >= count_max or size_bytes + record_bytes > bytes_max:
                break
        elif far_limits is not None and physical_offset < far_offset:
            count_max = min(count_max, far_limits.count_max)
            bytes_max = min(bytes_max, far_limits.bytes_max)
        if physical_offset != run_end:
            if run_start >= 0:
                buffers.append(view[run_start - file_start : run_end - file_start])
            if not file_start <= physical_offset < file_end:
                file = log.files.find(physical_offset)
                view, file_start, file_end = file.view, file.base_offset, file.end_offset
            run_start = physical_offset
        run_end = physical_offset + record_bytes
        examined += 1
        message_count += 1
        size_bytes += record_bytes
    if run_start >= 0:
        buffers.append(view[run_start - file_start : run_end - file_start])
    assert message_count <= 1 or (message_count <= count_max and size_bytes <= bytes_max)
    return MessageRuns(buffers, message_count=message_count, size_bytes=size_bytes, examined=examined)


def _all_units(
    log: CommitLog, units: bytes, *, count_max: int, bytes_max: int, far_offset: PhysicalOffset
) -> MessageRuns | None:
    """All messages of `units` if they are within the limits and in one log file, as most are; else None.

    A step of Python for each unit would cost twice as much. Raises as `read_runs`.
    """
    count = len(units) // UNIT.size
    if not 0 < count <= min(count_max, UNITS_AT_ONCE_MAX):
        return None
    numbers = _layout(count).unpack(units)
    sizes = numbers[1::3]
    size_bytes = sum(sizes)
    start: PhysicalOffset = numbers[0]
    if size_bytes > bytes_max or size_bytes >= FILLER_SIZE_BYTES or start < far_offset:
        return None
    file = log.files.find(start)
    base, view = file.base_offset, file.view
    end = numbers[-3] + sizes[-1]
    if end > file.end_offset:
        return None
    if end - start == size_bytes:  # records lie next to each other, as those of a batch do
        buffers = [view[start - base : end - base]]
    else:
        starts = numbers[::3]
        if min(starts) < start or max(starts) > numbers[-3]:
            return None  # the queue file is damaged
        buffers = [view[offset - base : offset - base + size] for offset, size in zip(starts, sizes, strict=True)]
    return MessageRuns(buffers, message_count=count, size_bytes=size_bytes, examined=count)


@lru_cache(maxsize=UNITS_AT_ONCE_MAX)
def _layout(count: int) -> struct.Struct:
    """The layout of so many units."""
    return struct.Struct(">" + "qiq" * count)
