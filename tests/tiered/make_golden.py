"""Writes `golden/`: a small bucket in format version 1, and what it must be read as.

    python -m tests.tiered.make_golden VERSION        in the repository's root

What the writer writes today is under VERSION and, with a record of every kind, under RECORDS_VERSION. What an earlier
one wrote stays as it is, and stays readable: `v1` is of the time before JSON objects carried a checksum. Run it only
when a kind of part gets a new version (docs/cold-format.md 5.1), for a new folder.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import zstandard

from tests.tiered.cold_data import Log, write_segment
from tests.tiered.record_variants import LONG_TOPIC
from thermocline.remoting.records.message_record import decode_record
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.catalog.ledger_entry import (
    CatalogSettings,
    DamagedPart,
    LedgerChanges,
    LostRange,
    Quarantine,
    QueueHole,
    TopicChange,
    TopicDelete,
)
from thermocline.tiered.ledger.ledger_writer import LedgerIdentity, LedgerWriter
from thermocline.tiered.packs.segment_upload import upload_segment
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.segments.segment_writer import SegmentOptions
from thermocline.tiered.stores.file import FileObjectStore

GOLDEN = Path(__file__).parent / "golden"
VERSION = "v1-checked"
RECORDS_VERSION = "v1-records"
OPTIONS = SegmentOptions(frame_bytes=1_500, coarse_frames=2)
NOW_MS = 1_700_000_100_000
KEYS = BrokerKeys.of(cluster="DefaultCluster", broker_name="broker-a")


def make_log(topic: str, seed: int) -> Log:
    """Two queues of a topic, one record of them from an IPv6 producer."""
    log = Log(topic, Random(seed), queue_count=2, other_bytes_max=100)
    log.append_flights(12)
    log.append(0, body=b"", born_host=("::1", 1234), unique_key="IPV6", keys="tail N14228  N14228")
    log.append(1, body=b"no properties to speak of")
    return log


async def open_writer(store: FileObjectStore) -> LedgerWriter:
    """The writer of an empty bucket."""
    return await LedgerWriter.open(
        store,
        KEYS,
        identity=LedgerIdentity(store_uuid="golden-store", cluster="DefaultCluster", broker_name="broker-a"),
        clock_ms=lambda: NOW_MS,
        random=Random(1),
        checkpoint_interval=4,
    )


async def write_halves(store: FileObjectStore, writer: LedgerWriter, log: Log) -> dict[str, object]:
    """Write a log as two segments, and return what they must be read as."""
    halves = {queue_id: end // 2 for queue_id, end in log.ends().items()}
    for starts, ends in (({}, halves), (halves, log.ends())):
        segment_id = writer.next_segment_id()
        with write_segment(
            log, starts=starts, ends=ends, segment_id=segment_id, incarnation=3, options=OPTIONS
        ) as finished:
            entry = await upload_segment(store, KEYS, finished, created_ms=NOW_MS)
        await writer.commit(LedgerChanges(segments_in=(entry,)))
    return {
        str(queue_id): [
            {"record": record.hex(), "tags_code": code, "keys": keys_of(record)}
            for record, code in zip(queue.records, queue.tags_codes, strict=True)
        ]
        for queue_id, queue in sorted(log.queues.items())
    }


async def write_bucket(folder: Path) -> dict[str, object]:
    """Write the bucket, and return what it must be read as."""
    store = FileObjectStore(str(folder), disk=RealDisk())
    writer = await open_writer(store)
    topics: dict[str, object] = {}
    for seed, topic in enumerate(("flights", "%RETRY%group", "gone")):
        topics[topic] = await write_halves(store, writer, make_log(topic, seed))
    del topics["gone"]
    change = TopicChange(
        topic="flights", incarnation=3, ttl_ms=86_400_000, expired_before_ms=1_000, holes=(QueueHole(0, 90, 95),)
    )
    await writer.commit(LedgerChanges(topics=(change,), settings=CatalogSettings(default_ttl_ms=None)))
    await writer.commit(LedgerChanges(topics_deleted=(TopicDelete("gone", 3),)))
    await quarantine_a_segment(store, writer)
    topics["broken"] = {}
    return await closed(folder, store, writer, topics)


async def write_records_bucket(folder: Path) -> dict[str, object]:
    """Write a bucket with a record of every kind in two topics, one of a long name; return what it must be read as."""
    store = FileObjectStore(str(folder), disk=RealDisk())
    writer = await open_writer(store)
    topics: dict[str, object] = {}
    end_offset = 0
    for seed, topic in enumerate(("variants", LONG_TOPIC)):
        log = Log(topic, Random(seed), other_bytes_max=100, physical_offset=end_offset)
        log.put_variants()
        end_offset = log.physical_offset
        topics[topic] = await write_halves(store, writer, log)
    return await closed(folder, store, writer, topics)


async def closed(
    folder: Path, store: FileObjectStore, writer: LedgerWriter, topics: dict[str, object]
) -> dict[str, object]:
    """Close the writer and the store of the bucket, and return the expected content."""
    await writer.close()
    await store.close()
    shutil.rmtree(folder / ".partial", ignore_errors=True)
    return {"version": writer.version, "zstd": list(zstandard.ZSTD_VERSION), "topics": topics}


async def quarantine_a_segment(store: FileObjectStore, writer: LedgerWriter) -> None:
    """A topic whose one segment has lost its records: no reader gets any."""
    segment_id = writer.next_segment_id()
    with write_segment(make_log("broken", seed=3), segment_id=segment_id, incarnation=3, options=OPTIONS) as finished:
        entry = await upload_segment(store, KEYS, finished, created_ms=NOW_MS)
    await writer.commit(LedgerChanges(segments_in=(entry,)))
    lost = tuple(LostRange(run.queue_id, run.start_offset, run.end_offset) for run in entry.runs)
    await store.delete(entry.log.key)
    kept = Quarantine(segment=entry, damage=(DamagedPart(entry.log.key, "missing"),), lost=lost)
    await writer.commit(LedgerChanges(quarantine=(kept,)))


def keys_of(record: bytes) -> list[str]:
    """The keys under which a record is found."""
    message = decode_record(record)
    return [*filter(None, [message.unique_key]), *filter(None, (message.keys or "").split(" "))]


WRITERS: dict[str, Callable[[Path], Awaitable[dict[str, object]]]] = {
    VERSION: write_bucket,
    RECORDS_VERSION: write_records_bucket,
}
"""What is written today, by version."""


def main() -> None:
    version = sys.argv[1]
    folder = GOLDEN / version
    write = WRITERS[version]
    shutil.rmtree(folder, ignore_errors=True)

    async def run() -> dict[str, object]:
        return await write(folder / "bucket")

    expected = asyncio.run(run())
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
