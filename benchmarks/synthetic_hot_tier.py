"""SyntheticHotTier: a commit log and its queues in memory, as the tier process reads them, on a clock that is moved.

It stands where `LocalLog` and `LocalQueues` stand, so that everything from the seal backlog to the object store is the
real part, while messages of hours are made in seconds. Bodies do not compress. What is committed may be forgotten.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from random import Random

import numpy as np

from thermocline.remoting.errors import ObjectNotFoundError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_id import month_bounds_ms
from thermocline.remoting.records.message_record import (
    POSITION_QUEUE_OFFSET,
    POSITION_STORE_TIMESTAMP,
    encode_record,
    store_timestamp_at,
)
from thermocline.remoting.string_hash import tags_code
from thermocline.tiered.sealing import UNIT, Units

HOST = ("10.1.2.3", 10911)
POSITION_BODY_CRC = 8
POSITION_QUEUE_ID = 12
POSITION_PHYSICAL_OFFSET = 28
POSITION_BODY = 88
UNIQUE_KEY_BYTES = 32
_INT, _UINT, _LONG = struct.Struct(">i"), struct.Struct(">I"), struct.Struct(">q")
TAG = "synthetic"


@dataclass(slots=True)
class SyntheticQueue:
    """One queue: units of offsets from `first_offset` on."""

    first_offset: int = 0
    units: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        """The next offset."""
        return self.first_offset + len(self.units)


@dataclass(slots=True)
class _Template:
    record: bytearray
    body_bytes: int
    key_position: int


class SyntheticHotTier:
    """See the module's header. `record`, `store_timestamp_ms`, `units` and `first_offset` are what sealing reads."""

    def __init__(self, *, seed: int = 1, now_ms: int = 4_000_000_000_000, dated_ids: bool = False) -> None:
        """`dated_ids`: ids tell when they were made, as those of RocketMQ's clients do; else they are numbers."""
        self._dated_ids = dated_ids
        self.random = Random(seed)
        self.now_ms = now_ms
        self.append_offset = PhysicalOffset(0)
        self.min_offset = PhysicalOffset(0)
        self.queues: dict[tuple[str, int], SyntheticQueue] = {}
        self._records: dict[int, bytes] = {}
        self._templates: dict[tuple[str, int, str], _Template] = {}
        self._sent = self._sent_ms = 0

    def append(self, topic: str, queue_id: int, *, body_bytes: int, unique_key: str = "", keys: str = "") -> bytes:
        """Store one message with an id, a tag and perhaps keys; the record. `unique_key`: the id, as long as others."""
        template = self._templates.get((topic, body_bytes, keys))
        if template is None:
            template = self._templates[topic, body_bytes, keys] = _make_template(topic, body_bytes, keys)
        queue = self.queues.setdefault((topic, queue_id), SyntheticQueue())
        record, body = template.record, self.random.randbytes(body_bytes)
        _UINT.pack_into(record, POSITION_BODY_CRC, zlib.crc32(body) & 0x7FFF_FFFF)
        _INT.pack_into(record, POSITION_QUEUE_ID, queue_id)
        _LONG.pack_into(record, POSITION_QUEUE_OFFSET, queue.end_offset)
        _LONG.pack_into(record, POSITION_PHYSICAL_OFFSET, self.append_offset)
        _LONG.pack_into(record, POSITION_STORE_TIMESTAMP, self.now_ms)
        record[POSITION_BODY : POSITION_BODY + body_bytes] = body
        self._sent += 1
        self._sent_ms = self.now_ms
        assert not unique_key or len(unique_key) == UNIQUE_KEY_BYTES
        written = (unique_key or self.last_key).encode()
        record[template.key_position : template.key_position + UNIQUE_KEY_BYTES] = written
        stored = bytes(record)
        self.put(topic, queue_id, stored, tags_code(TAG))
        return stored

    def put(self, topic: str, queue_id: int, record: bytes, code: int) -> None:
        """Store a whole record, made for the place and the offset that are next; `code`: the tags code of its unit."""
        queue = self.queues.setdefault((topic, queue_id), SyntheticQueue())
        self._records[self.append_offset] = record
        queue.units.append((self.append_offset, len(record), code))
        self.append_offset += len(record)

    @property
    def last_key(self) -> str:
        """The id of the message appended last."""
        if not self._dated_ids:
            return f"{self._sent:032X}"
        month_start_ms, _ = month_bounds_ms(self._sent_ms)
        return f"0A010203{self._sent >> 16:012X}{self._sent_ms - month_start_ms:08X}{self._sent & 0xFFFF:04X}"

    def forget_before(self, physical_offset: PhysicalOffset) -> None:
        """Local files below an offset of the log are gone."""
        self.min_offset = max(self.min_offset, physical_offset)
        for offset in [offset for offset in self._records if offset < self.min_offset]:
            del self._records[offset]
        for queue in self.queues.values():
            gone = 0
            while gone < len(queue.units) and queue.units[gone][0] < self.min_offset:
                gone += 1
            if gone:
                del queue.units[:gone]
                queue.first_offset += gone

    def delete_topic(self, topic: str) -> None:
        """The topic's queues are gone; another life of it starts at 0."""
        for name in [name for name in self.queues if name[0] == topic]:
            del self.queues[name]

    # -- LocalLog ------------------------------------------------------------------------------------------------------

    def record(self, physical_offset: int, size_bytes: int) -> memoryview:
        """See LocalLog."""
        stored = self._records.get(physical_offset)
        if stored is None:
            raise ObjectNotFoundError("log file is gone", physical_offset=physical_offset)
        assert len(stored) == size_bytes
        return memoryview(stored)

    def store_timestamp_ms(self, physical_offset: int) -> int:
        """See LocalLog."""
        stored = self._records.get(physical_offset)
        if stored is None:
            raise ObjectNotFoundError("log file is gone", physical_offset=physical_offset)
        return store_timestamp_at(stored, 0)

    # -- LocalQueues ---------------------------------------------------------------------------------------------------

    def units(self, topic: str, queue_id: int, *, start: int, end: int) -> Units:
        """See LocalQueues."""
        queue = self.queues.get((topic, queue_id))
        if queue is None or start < queue.first_offset or end > queue.end_offset:
            raise ObjectNotFoundError("queue file is gone", topic=topic, queue_id=queue_id, start=start, end=end)
        return np.array(queue.units[start - queue.first_offset : end - queue.first_offset], UNIT)

    def first_offset(self, topic: str, queue_id: int) -> int | None:
        """See LocalQueues."""
        queue = self.queues.get((topic, queue_id))
        return None if queue is None else queue.first_offset


def _make_template(topic: str, body_bytes: int, keys: str) -> _Template:
    key = "0" * UNIQUE_KEY_BYTES
    properties = f"UNIQ_KEY\x01{key}\x02TAGS\x01{TAG}\x02WAIT\x01true\x02".encode()
    if keys:
        properties += f"KEYS\x01{keys}\x02".encode()
    record = bytearray(
        encode_record(
            topic=topic,
            queue_id=0,
            queue_offset=QueueOffset(0),
            physical_offset=PhysicalOffset(0),
            body=bytes(body_bytes),
            properties_text=properties,
            born_timestamp_ms=0,
            born_host=HOST,
            store_timestamp_ms=0,
            store_host=HOST,
            sys_flag=0,
        )
    )
    return _Template(record, body_bytes, record.index(key.encode()))
