"""Realistic records for cold-tier tests: queues of one topic interleaved in one log, with ids, keys and tags."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.tiered.record_variants import VARIANTS
from thermocline.remoting.records.message_record import decode_record, encode_record
from thermocline.remoting.string_hash import tags_code
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.segments.segment_writer import FinishedSegment, SegmentOptions, SegmentWriter

HOST = ("10.1.2.3", 10911)
START_MS = 1_700_000_000_000


@dataclass(slots=True)
class Queue:
    """One queue as the hot tier would have it: every record from offset 0."""

    records: list[bytes] = field(default_factory=list)
    tags_codes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Log:
    """A commit log of one topic; `other_bytes_max` bytes of other topics lie between its records."""

    topic: str
    random: Random
    queue_count: int = 4
    other_bytes_max: int = 0
    physical_offset: int = 0
    now_ms: int = START_MS
    queues: dict[int, Queue] = field(default_factory=dict)

    def append(
        self,
        queue_id: int,
        *,
        body: bytes,
        tag: str | None = None,
        keys: str | None = None,
        unique_key: str | None = None,
        born_host: tuple[str, int] = HOST,
        sys_flag: int = 0,
    ) -> bytes:
        """Append one record and return it."""
        queue = self.queues.setdefault(queue_id, Queue())
        properties = ""
        if keys is not None:
            properties += f"KEYS\x01{keys}\x02"
        if unique_key is not None:
            properties += f"UNIQ_KEY\x01{unique_key}\x02"
        if tag is not None:
            properties += f"TAGS\x01{tag}\x02"
        properties += "WAIT\x01true\x02CLUSTER\x01DefaultCluster\x02"
        record = encode_record(
            topic=self.topic,
            queue_id=queue_id,
            queue_offset=len(queue.records),
            physical_offset=self.physical_offset,
            body=body,
            properties_text=properties.encode(),
            born_timestamp_ms=self.now_ms - 1,
            born_host=born_host,
            store_timestamp_ms=self.now_ms,
            store_host=HOST,
            sys_flag=sys_flag,
        )
        self.put(queue_id, record, tags_code(tag))
        return record

    def put(self, queue_id: int, record: bytes, code: int) -> None:
        """Append a whole record, made for the place and the offset that are next."""
        queue = self.queues.setdefault(queue_id, Queue())
        queue.records.append(record)
        queue.tags_codes.append(code)
        self.physical_offset += len(record) + self.random.randint(0, self.other_bytes_max)

    def put_variants(self) -> None:
        """Append one record of every kind."""
        for variant in VARIANTS:
            record = variant.record(
                topic=self.topic,
                queue_offset=len(self.queues.get(variant.queue_id, Queue()).records),
                physical_offset=self.physical_offset,
                now_ms=self.now_ms,
            )
            self.put(variant.queue_id, record, variant.tags_code)
            self.now_ms += not variant.is_same_send

    def append_flights(self, count: int) -> None:
        """Append JSON messages such as a departure log would hold: a key, a tag, an id, 2 a millisecond."""
        random = self.random
        for _ in range(count):
            carrier = random.choice(["UA", "AA", "B6", "DL", "EV", "MQ", "US", "9E", "WN"])
            tail = f"N{random.randint(100, 999)}{carrier}"
            flight = {
                "year": 2013,
                "month": random.randint(1, 12),
                "day": random.randint(1, 28),
                "dep_delay": random.randint(-20, 200),
                "carrier": carrier,
                "flight": random.randint(1, 6000),
                "tailnum": tail,
                "origin": random.choice(["EWR", "LGA", "JFK"]),
                "air_time": random.randint(30, 600),
                "distance": random.randint(90, 4900),
            }
            self.append(
                random.randrange(self.queue_count),
                body=json.dumps(flight).encode(),
                tag=carrier,
                keys=tail,
                unique_key=f"0A010203{random.getrandbits(64):016X}{self.physical_offset % 65536:08X}",
            )
            self.now_ms += random.randint(0, 1)

    def ends(self) -> dict[int, int]:
        """The end offset of each queue."""
        return {queue_id: len(queue.records) for queue_id, queue in sorted(self.queues.items())}


def write_segment(
    log: Log,
    *,
    starts: dict[int, int] | None = None,
    ends: dict[int, int] | None = None,
    segment_id: SegmentId = SegmentId(1, 1),  # noqa: B008 - frozen
    incarnation: int = 1,
    options: SegmentOptions | None = None,
) -> FinishedSegment:
    """A segment of queue offsets [starts, ends) of every queue; all there is by default."""
    writer = SegmentWriter(
        segment_id=segment_id, topic=log.topic, incarnation=incarnation, options=options or SegmentOptions()
    )
    for queue_id, queue in sorted(log.queues.items()):
        start = (starts or {}).get(queue_id, 0)
        end = (ends or log.ends()).get(queue_id, 0)
        if start < end:
            writer.append(queue_id, start, queue.records[start:end], queue.tags_codes[start:end])
    return writer.finish()


def unique_keys(log: Log) -> Iterator[str]:
    """The id of every record."""
    for queue in log.queues.values():
        for record in queue.records:
            key = decode_record(record).unique_key
            assert key is not None
            yield key
