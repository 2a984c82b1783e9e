"""Queue ends: where recovery begins, and where every queue ended.

File: thermocline/queueEnds (with `.bak`), little-endian

    8 bytes "TCQENDS1"
    int64 recovery offset | int64 capture offset | int64 store time, ms | uint32 topics
    per topic: uint16 name size | name, UTF-8 | int64 incarnation id | int64 expired before, ms | uint32 queues,
               then for all its queues uint32 id, for all int64 end, for all int64 filed end, for all int64 minimum
    uint32 CRC-32 of all before

What it promises, once it is durable
  - Units of records below the recovery offset are durable in the queues' files. Recovery scans from there.
  - The ends were read, queue after queue, while the log grew from the recovery offset to the capture offset, and the
    log was made durable up to the capture offset afterwards. So no end is ahead of the log, and a record between the
    two may or may not be counted: recovery goes back to the first one that it meets of each queue.
  - Units below the filed end of a queue are in its files; when they are not, the files were removed from outside.
  - It holds every queue, also those whose files and messages are gone: no queue starts again at zero.
Topics carry their incarnation, by its recorded id (state/incarnation.py), so that what is here of a topic that was
deleted since is not taken for the new one's.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import le
from zlib import crc32

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.store.files import Disk, SyncSite, read_with_backup, replace_file

logger = logging.getLogger(__name__)

MAGIC = b"TCQENDS1"
HEAD = struct.Struct(
    "<q"  # recovery offset
    "q"  # capture offset
    "q"  # store time at the recovery offset, ms
    "I"  # topics
)
TOPIC = struct.Struct(
    "<q"  # incarnation id
    "q"  # expired before, ms
    "I"  # queues
)
NAME_SIZE = struct.Struct("<H")
CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnds:
    """The queues of one topic."""

    topic: str
    incarnation_id: int
    expired_before_ms: int
    queues: tuple[tuple[int, QueueOffset, QueueOffset, QueueOffset], ...]
    """Queue id, end, filed end, minimum."""

    def encode(self) -> bytes:
        """The topic's part of the file."""
        name = self.topic.encode()
        count = len(self.queues)
        queue_ids, ends, filed_ends, minimums = zip(*self.queues, strict=True) if count else ((), (), (), ())
        assert all(map(le, filed_ends, ends)), "units in files are below the queue's end"
        assert all(map(le, minimums, ends))
        return b"".join(
            (
                NAME_SIZE.pack(len(name)),
                name,
                TOPIC.pack(self.incarnation_id, self.expired_before_ms, count),
                struct.pack(f"<{count}I{3 * count}q", *queue_ids, *ends, *filed_ends, *minimums),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEnds:
    """The content of the file."""

    recovery_offset: PhysicalOffset
    capture_offset: PhysicalOffset
    store_timestamp_ms: int
    topics: dict[str, TopicEnds] = field(default_factory=dict)

    @classmethod
    def load(cls, disk: Disk, path: str) -> QueueEnds | None:
        """Read the file, or its backup when it is missing or damaged; None when neither can be used."""
        for candidate, data in read_with_backup(disk, path):
            try:
                return cls.decode(data)
            except CorruptDataError as error:
                logger.warning("queue ends not usable path=%s error=%s", candidate, error)
        return None

    @classmethod
    def decode(cls, data: bytes) -> QueueEnds:
        """Take the file's content apart; CorruptDataError when it is not whole."""
        body_end = len(data) - CHECKSUM.size
        if body_end < len(MAGIC) + HEAD.size or data[: len(MAGIC)] != MAGIC:
            raise CorruptDataError("not a file of queue ends", size_bytes=len(data))
        if CHECKSUM.unpack_from(data, body_end)[0] != crc32(data[:body_end]):
            raise CorruptDataError("the checksum of the queue ends does not match", size_bytes=len(data))
        recovery_offset, capture_offset, store_timestamp_ms, count = HEAD.unpack_from(data, len(MAGIC))
        if not 0 <= recovery_offset <= capture_offset:
            raise CorruptDataError("impossible queue ends", recovery_offset=recovery_offset, end=capture_offset)
        topics = {ends.topic: ends for ends in _decode_topics(data, len(MAGIC) + HEAD.size, count)}
        return cls(
            recovery_offset=recovery_offset,
            capture_offset=capture_offset,
            store_timestamp_ms=store_timestamp_ms,
            topics=topics,
        )

    def encode(self) -> bytes:
        """The file's content."""
        return encode_queue_ends(
            (ends.encode() for ends in self.topics.values()),
            recovery_offset=self.recovery_offset,
            capture_offset=self.capture_offset,
            store_timestamp_ms=self.store_timestamp_ms,
        )


def encode_queue_ends(
    topics: Iterable[bytes], *, recovery_offset: PhysicalOffset, capture_offset: PhysicalOffset, store_timestamp_ms: int
) -> bytes:
    """The file's content from encoded topics, which the hot loop makes in small slices."""
    parts = list(topics)
    assert 0 <= recovery_offset <= capture_offset, "the ends were read once the log had reached the recovery offset"
    head = HEAD.pack(recovery_offset, capture_offset, store_timestamp_ms, len(parts))
    body = b"".join((MAGIC, head, *parts))
    return body + CHECKSUM.pack(crc32(body))


def save_queue_ends(disk: Disk, path: str, data: bytes) -> None:
    """Put it in the place of the last one, which stays as `.bak`; durable on return. Helper thread."""
    replace_file(
        disk,
        path,
        data,
        keep_backup=True,
        file_site=SyncSite.QUEUE_ENDS_FILE,
        directory_site=SyncSite.QUEUE_ENDS_DIRECTORY,
    )


def _decode_topics(data: bytes, position: int, count: int) -> Iterator[TopicEnds]:
    for _ in range(count):
        (name_bytes,) = NAME_SIZE.unpack_from(data, position)
        position += NAME_SIZE.size
        topic = data[position : position + name_bytes].decode()
        position += name_bytes
        incarnation_id, expired_before_ms, queue_count = TOPIC.unpack_from(data, position)
        position += TOPIC.size
        columns = struct.Struct(f"<{queue_count}I{3 * queue_count}q")
        numbers = columns.unpack_from(data, position)
        position += columns.size
        rows = [numbers[row::queue_count] for row in range(queue_count)]
        for queue_id, end, filed_end, minimum in rows:
            if not (0 <= minimum <= end and 0 <= filed_end <= end):
                raise CorruptDataError("impossible ends of a queue", topic=topic, queue_id=queue_id, end=end)
        yield TopicEnds(
            topic=topic,
            incarnation_id=incarnation_id,
            expired_before_ms=expired_before_ms,
            queues=tuple((queue_id, end, filed_end, minimum) for queue_id, end, filed_end, minimum in rows),
        )
