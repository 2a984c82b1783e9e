"""RecordHeads: the fixed fields and part positions of many CommitLog records at once, as parallel NumPy arrays.

Layout of a record: message_record.py. An IPv6 born host moves all that follows it by 12 bytes, an IPv6 store host by
12 more; here every head has the shape of one with IPv4 hosts.

    read_heads      records one after the other with nothing between or behind them: a cold frame, a PULL answer
    read_heads_at   records whose starts and sizes are known: a log file, a frame that is being written

Rules
  - No Python per record: records are found by scanning for the magic and checking that the sizes chain up; heads are
    gathered through a view of 88-byte items that overlap at stride 1, which NumPy copies at memory speed when the item
    type is void.
  - Only when a body happens to hold something that looks like a record is the chain walked one by one.
  - Sizes and positions come from a bucket or a disk and are checked before anything is read through them.
Source: MessageDecoder.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.records.message_record import BLANK as SIZE_AND_MAGIC
from thermocline.remoting.records.message_record import (
    MAGIC_V1,
    MAGIC_V2,
    POSITION_BODY,
    POSITION_MAGIC,
    POSITION_RECONSUME_TIMES,
    POSITION_STORE_TIMESTAMP,
    RECORD_BYTES_MIN,
)
from thermocline.remoting.records.record_layout import HEAD_FIELDS, HOST, HOST_V6_MORE_BYTES, HOSTS_V6
from thermocline.remoting.records.sys_flag import BORN_HOST_V6, STORE_HOST_V6

MAGIC_FIRST_BYTE = MAGIC_V1 >> 24 & 0xFF  # the same in both, and never part of ASCII text
assert MAGIC_FIRST_BYTE == MAGIC_V2 >> 24 & 0xFF

_DTYPES = {"i": ">i4", "q": ">i8", HOST: ">u8"}  # of a host the first eight bytes: an IPv4 address, the port
HEAD = np.dtype([(name, _DTYPES[code]) for name, code in HEAD_FIELDS])
HEAD_BYTES = HEAD.itemsize
assert HEAD_BYTES == POSITION_BODY, "record head with IPv4 hosts, shared with Apache RocketMQ"

SCAN_BLOCK_BYTES = 128 << 10

Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordHeads:
    """Fields and part positions of n records; every array has n items, positions count from the start of `data`."""

    data: Bytes
    head: npt.NDArray[Any]  # HEAD items; of an IPv6 host the first eight bytes only
    starts: Integers
    body_starts: Integers
    topic_starts: Integers
    topic_bytes: Integers
    properties_starts: Integers
    properties_bytes: Integers

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sys_flags(self) -> npt.NDArray[np.int32]:
        return self.head["sys_flag"].astype(np.int32)

    def integers(self, field: str) -> Integers:
        """One head field as native 64-bit integers."""
        values: Integers = self.head[field].astype(np.int64)
        return values

    def select(self, rows: Mask | Integers) -> RecordHeads:
        """The same for some of the rows, in their order."""
        return RecordHeads(
            data=self.data,
            head=self.head[rows],
            starts=self.starts[rows],
            body_starts=self.body_starts[rows],
            topic_starts=self.topic_starts[rows],
            topic_bytes=self.topic_bytes[rows],
            properties_starts=self.properties_starts[rows],
            properties_bytes=self.properties_bytes[rows],
        )


def read_heads(records: bytes | bytearray | memoryview | Bytes) -> RecordHeads:
    """Find every record of `records` and read its head; CorruptDataError names the first byte that does not fit."""
    data = np.frombuffer(records, np.uint8)
    return read_heads_at(data, *find_records(data))


def read_heads_at(data: Bytes, starts: Integers, sizes: Integers) -> RecordHeads:
    """Read the heads of the records that start there; `data[start:start + size]` must exist.

    Raises:
        CorruptDataError: A record's parts do not add up to its size; `position` in its context is the start of the
            first such record.
    """
    is_short = sizes < RECORD_BYTES_MIN
    if is_short.any():
        row = int(np.argmax(is_short))
        raise CorruptDataError("bytes too few for a record", position=int(starts[row]), size_bytes=int(sizes[row]))
    ends = starts + sizes
    head = gather(data, starts, HEAD_BYTES).view(HEAD)
    tail_starts = starts + HEAD_BYTES
    v6_flags = head["sys_flag"].astype(np.int64) & HOSTS_V6
    if v6_flags.any():
        head, tail_starts = _shift_heads(data, starts, sizes, head, v6_flags)
    return _read_parts(data, starts, ends, head, tail_starts)


def find_records(data: Bytes) -> tuple[Integers, Integers]:
    """Start positions and sizes of the records that fill `data` from its first to its last byte.

    Raises:
        CorruptDataError: The bytes are not a gapless chain of records.
    """
    if len(data) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if len(data) < RECORD_BYTES_MIN:
        raise CorruptDataError("bytes too few for a record", position=0, size_bytes=len(data))
    starts: Integers = find_bytes(data, lambda block: block == MAGIC_FIRST_BYTE) - POSITION_MAGIC
    starts = starts[(starts >= 0) & (starts <= len(data) - RECORD_BYTES_MIN)]
    magic = gather(data, starts + POSITION_MAGIC, 4).view(">i4")
    starts = starts[(magic == MAGIC_V1) | (magic == MAGIC_V2)]
    sizes: Integers = gather(data, starts, 4).view(">i4").astype(np.int64)
    ends = starts + sizes
    if len(starts) and starts[0] == 0 and ends[-1] == len(data) and bool((ends[:-1] == starts[1:]).all()):
        return starts, sizes
    return _walk_records(data)


def find_bytes(data: Bytes, test: Callable[[Bytes], Mask]) -> Integers:
    """Positions of the bytes that pass a test, block by block, so that the masks stay in the processor's cache."""
    found = [
        np.flatnonzero(test(data[start : start + SCAN_BLOCK_BYTES])) + start
        for start in range(0, len(data), SCAN_BLOCK_BYTES)
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _walk_records(data: Bytes) -> tuple[Integers, Integers]:
    """The chain of sizes, record by record: for bodies that themselves hold a magic, and to name what is damaged."""
    view = data.data
    starts: list[int] = []
    sizes: list[int] = []
    position = 0
    while position < len(view):
        if len(view) - position < RECORD_BYTES_MIN:
            raise CorruptDataError("bytes too few for a record", position=position, size_bytes=len(view) - position)
        size_bytes, magic = SIZE_AND_MAGIC.unpack_from(view, position)
        if magic not in (MAGIC_V1, MAGIC_V2):
            raise CorruptDataError("no record magic", position=position, magic=magic)
        if not RECORD_BYTES_MIN <= size_bytes <= len(view) - position:
            raise CorruptDataError("impossible record size", position=position, size_bytes=size_bytes)
        starts.append(position)
        sizes.append(size_bytes)
        position += size_bytes
    return np.array(starts, np.int64), np.array(sizes, np.int64)


def gather(data: Bytes, starts: Integers, item_bytes: int) -> npt.NDArray[Any]:
    """`item_bytes` bytes from each start, as void items; the caller has checked that all lie inside."""
    void = np.dtype(f"V{item_bytes}")
    if not len(starts):
        return np.empty(0, void)
    windows: npt.NDArray[Any] = np.ndarray((len(data) - item_bytes + 1,), void, buffer=data.data, strides=(1,))
    gathered: npt.NDArray[Any] = windows[starts]  # fancy indexing: np.take on such a view is 100 times slower
    return gathered


def _shift_heads(
    data: Bytes, starts: Integers, sizes: Integers, head: npt.NDArray[Any], v6_flags: Integers
) -> tuple[npt.NDArray[Any], Integers]:
    """Bring heads with IPv6 hosts into the shape of HEAD; gives them and the position behind each real head."""
    born_extra = np.where(v6_flags & BORN_HOST_V6, HOST_V6_MORE_BYTES, 0)
    extra = born_extra + np.where(v6_flags & STORE_HOST_V6, HOST_V6_MORE_BYTES, 0)
    _check(sizes >= RECORD_BYTES_MIN + extra, starts, head, "record too short for its hosts")
    shifted = np.empty((len(starts), HEAD_BYTES), np.uint8)
    as_bytes = head.view(np.uint8).reshape(len(starts), HEAD_BYTES)
    shifted[:, :POSITION_STORE_TIMESTAMP] = as_bytes[:, :POSITION_STORE_TIMESTAMP]
    # Store time and host move with an IPv6 born host, the 16 bytes behind them with both.
    for position, moved in ((POSITION_STORE_TIMESTAMP, born_extra), (POSITION_RECONSUME_TIMES, extra)):
        part = gather(data, starts + position + moved, 16)
        shifted[:, position : position + 16] = part.view(np.uint8).reshape(len(starts), 16)
    return shifted.reshape(-1).view(HEAD), starts + HEAD_BYTES + extra


def _read_parts(
    data: Bytes, starts: Integers, ends: Integers, head: npt.NDArray[Any], body_starts: Integers
) -> RecordHeads:
    """Follow the three lengths of each record and check that they add up to its size."""
    body_bytes: Integers = head["body_bytes"].astype(np.int64)
    topic_length_bytes = np.where(head["magic"] == MAGIC_V2, 2, 1)
    topic_positions = body_starts + body_bytes
    fits = (body_bytes >= 0) & (topic_positions + topic_length_bytes + 2 <= ends)
    _check(fits, starts, head, "impossible body length")
    topic_bytes: Integers = data[topic_positions].astype(np.int64)
    if bool((topic_length_bytes == 2).any()):
        wide = (topic_bytes << 8) | data[topic_positions + 1]
        topic_bytes = np.where(topic_length_bytes == 2, wide, topic_bytes)
    topic_starts = topic_positions + topic_length_bytes
    properties_positions = topic_starts + topic_bytes
    _check(properties_positions + 2 <= ends, starts, head, "impossible topic length")
    properties_bytes: Integers = data[properties_positions].astype(np.int64) << 8
    properties_bytes |= data[properties_positions + 1]
    properties_starts = properties_positions + 2
    _check(properties_starts + properties_bytes == ends, starts, head, "lengths do not add up to the record size")
    return RecordHeads(
        data=data,
        head=head,
        starts=starts,
        body_starts=body_starts,
        topic_starts=topic_starts,
        topic_bytes=topic_bytes,
        properties_starts=properties_starts,
        properties_bytes=properties_bytes,
    )


def _check(fits: Mask, starts: Integers, head: npt.NDArray[Any], message: str) -> None:
    if bool(fits.all()):
        return
    row = int(np.argmin(fits))
    raise CorruptDataError(
        message,
        position=int(starts[row]),
        size_bytes=int(head["size_bytes"][row]),
        queue_offset=int(head["queue_offset"][row]),
    )
