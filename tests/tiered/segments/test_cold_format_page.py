"""What docs/cold-format.md says of segments holds for the golden buckets, as read by the reader in examples/, which is
written from that page alone, and by ours; our writer writes them still. Where they disagree, the page is wrong.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from examples.cold_reader import History, columns, read, unzip
from tests.tiered.make_golden import GOLDEN, KEYS, RECORDS_VERSION, VERSION, WRITERS
from tests.tiered.record_variants import COMPRESSED_BODIES, LONG_TOPIC, PLAIN_BODY, THREE_MESSAGES, TWO_MESSAGES
from thermocline.remoting.records.batch import decode_batch
from thermocline.remoting.records.compression import decompress
from thermocline.remoting.records.message_record import MAGIC_V1, MAGIC_V2, decode_record
from thermocline.remoting.records.sys_flag import (
    BORN_HOST_V6,
    INNER_BATCH,
    STORE_HOST_V6,
    CompressionType,
    compression_type,
    is_compressed,
)
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.segments.segment_reader import SegmentReader
from thermocline.tiered.stores.file import FileObjectStore

OLD_VERSION = "v1"


@dataclass(frozen=True)
class Golden:
    """One bucket, and what it must be read as."""

    version: str
    expected: dict[str, Any]

    @property
    def bucket(self) -> Path:
        return GOLDEN / self.version / "bucket"

    def history(self) -> History:
        """What the reader in examples/ finds."""
        return History(self.bucket, KEYS.root, now_ms=0)

    def records(self, topic: str) -> dict[int, list[bytes]]:
        return {
            int(queue_id): [bytes.fromhex(item["record"]) for item in items]
            for queue_id, items in self.expected["topics"][topic].items()
        }


def read_golden(version: str) -> Golden:
    return Golden(version, json.loads((GOLDEN / version / "expected.json").read_text()))


BUCKETS = {version: read_golden(version) for version in (OLD_VERSION, VERSION, RECORDS_VERSION)}
TOPICS = [(version, topic) for version, golden in BUCKETS.items() for topic in sorted(golden.expected["topics"])]
every_bucket = pytest.mark.parametrize("golden", BUCKETS.values(), ids=BUCKETS)


def read_tags(golden: Golden, segment: dict[str, Any]) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Queue and offset -> size, physical offset and tags code, by section 2.3, which that reader needs not."""
    part, footer = read(golden.bucket, b"THERM-CQ", *segment["cq"])
    found: dict[tuple[int, int], tuple[int, int, int]] = {}
    for queue_id, position, stored_bytes, _, start, end, least, place_end in struct.iter_unpack("<iQII4q", footer[28:]):
        data = unzip(part[position : position + stored_bytes])
        count, code_count, place = struct.unpack_from("<IIq", data)
        assert (end - start, place) == (count, least)
        codes = struct.unpack_from(f"<{code_count}q", data, 16)
        assert list(codes) == sorted(set(codes))
        rows = columns(data, 16 + 8 * code_count, (count, 4), (count, 8), (count, 2))
        assert len(data) == 16 + 8 * code_count + 14 * count
        for offset, (size, gap, which) in enumerate(zip(*rows, strict=True), start=start):
            place = (place + gap) % 2**64
            found[queue_id, offset] = (size, place, codes[which])
            place += size
        assert place == place_end
    return found


@every_bucket
def test_the_catalog(golden: Golden) -> None:
    topics = golden.history().topics
    newest = max(int(path.stem) for path in (golden.bucket / KEYS.root / "ledger").iterdir())
    assert newest == golden.expected["version"]
    assert {name for name, topic in topics.items() if not topic["deleted"]} == set(golden.expected["topics"])
    if golden.version == RECORDS_VERSION:
        return
    assert topics["gone"]["deleted"]
    assert topics["flights"]["ttl_ms"] == 86_400_000
    assert topics["flights"]["expired_before_ms"] == 1_000
    assert topics["flights"]["holes"] == [[0, 90, 95]]
    if golden.version != OLD_VERSION:
        (segment,) = golden.history().segments(topics["broken"])
        assert [lost[:3] for lost in segment["lost"]] == [run[:3] for run in segment["runs"]]


@every_bucket
def test_objects_of_the_ledger_have_checksums(golden: Golden) -> None:
    for path in golden.bucket.rglob("*"):
        if path.suffix == ".json" or path.name == "head-hint":
            assert ("crc32" in json.loads(path.read_bytes())) == (golden.version != OLD_VERSION)


@pytest.mark.parametrize(("name", "topic"), TOPICS)
def test_records_columns_and_keys(name: str, topic: str) -> None:
    golden = BUCKETS[name]
    history = golden.history()
    entry = history.topics[topic]
    tags: dict[tuple[int, int], tuple[int, int, int]] = {}
    for segment in history.segments(entry):
        if "lost" not in segment:
            tags |= read_tags(golden, segment)
            assert (
                segment["key_count"]
                == struct.unpack_from("<16xQ", read(golden.bucket, b"THERMIDX", *segment["idx"])[1])[0]
            )
    for queue_id, items in golden.expected["topics"][topic].items():
        found = list(history.records(entry, int(queue_id)))
        assert [record["raw"].hex() for record in found] == [item["record"] for item in items]
        for record, item in zip(found, items, strict=True):
            offset, place = record["queue_offset"], record["physical_offset"]
            assert tags.pop((int(queue_id), offset)) == (record["size"], place, item["tags_code"])
            assert record["keys"] == item["keys"]
            for key in item["keys"]:
                assert record["raw"] in [each["raw"] for each in history.find_key(entry, key)]
    assert not tags
    if golden.expected["topics"][topic]:
        assert history.find_key(entry, "another key") == []


@every_bucket
async def test_our_reader_reads_it(golden: Golden) -> None:
    store = FileObjectStore(str(golden.bucket), disk=RealDisk())
    catalog = await open_catalog(store, KEYS)
    assert catalog.version == golden.expected["version"]
    for topic in golden.expected["topics"]:
        found: dict[int, list[bytes]] = {}
        for segment in catalog.topics[topic].segments:
            for run in segment.runs:
                records = SegmentReader(store, segment).records(
                    run.queue_id, start_offset=run.start_offset, end_offset=run.end_offset
                )
                async for part in records:
                    found.setdefault(run.queue_id, []).append(bytes(part.data))
        assert {queue_id: b"".join(parts) for queue_id, parts in found.items()} == {
            queue_id: b"".join(items) for queue_id, items in golden.records(topic).items()
        }


@pytest.mark.parametrize("version", WRITERS)
async def test_the_writer_still_writes_it(version: str, tmp_path: Path) -> None:
    """To the byte with the zstd it was made with; with another one, the same names and JSON."""
    golden = BUCKETS[version]
    expected = await WRITERS[version](tmp_path)
    same_zstd = expected.pop("zstd") == golden.expected["zstd"]
    assert expected == {key: value for key, value in golden.expected.items() if key != "zstd"}
    names = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {path.relative_to(golden.bucket) for path in golden.bucket.rglob("*") if path.is_file()}
    if same_zstd:
        for name in names:
            assert (tmp_path / name).read_bytes() == (golden.bucket / name).read_bytes(), name


def test_there_is_a_record_of_every_kind() -> None:
    """V1 and V2, each pair of address families, each compression, and inner batches; all bodies are what they say."""
    for topic, magic in (("variants", MAGIC_V1), (LONG_TOPIC, MAGIC_V2)):
        records = [record for items in BUCKETS[RECORDS_VERSION].records(topic).values() for record in items]
        assert {int.from_bytes(record[4:8], "big", signed=True) for record in records} == {magic}
        messages = [decode_record(record) for record in records]
        hosts = BORN_HOST_V6 | STORE_HOST_V6
        assert {each.sys_flag & hosts for each in messages} == {0, BORN_HOST_V6, STORE_HOST_V6, hosts}
        plain = [each for each in messages if is_compressed(each.sys_flag) and not each.sys_flag & INNER_BATCH]
        assert {compression_type(each.sys_flag) for each in plain} == set(CompressionType) == set(COMPRESSED_BODIES)
        assert 0 in {each.sys_flag >> 8 for each in plain}
        assert {decompress(each.body, compression_type(each.sys_flag)) for each in plain} == {PLAIN_BODY}
        batches = [each for each in messages if each.sys_flag & INNER_BATCH]
        for each in batches:
            body = decompress(each.body, CompressionType.ZSTD) if is_compressed(each.sys_flag) else each.body
            assert body in (THREE_MESSAGES, TWO_MESSAGES)
            assert len(decode_batch(body)) == int(each.properties["INNER_NUM"])
            assert each.properties["INNER_BASE"] == str(each.queue_offset)
        assert len(batches) == 2


def test_the_golden_bucket_is_where_the_page_says() -> None:
    assert KEYS.root == "DefaultCluster/broker-a"
    assert (BUCKETS[VERSION].bucket / KEYS.ledger_entry(1)).exists()
