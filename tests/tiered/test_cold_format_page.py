"""A reader written from docs/cold-format.md alone reads the golden bucket; so does ours, and our writer writes it.

That reader imports nothing of Thermocline. Where it and the page disagree, the page is wrong.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.tiered.make_golden import GOLDEN, KEYS, VERSION, write_bucket
from thermocline.store.disk import RealDisk
from thermocline.tiered.file import FileObjectStore
from thermocline.tiered.ledger_reader import open_catalog
from thermocline.tiered.segment_reader import SegmentReader

OLD_VERSION = "v1"


@dataclass(frozen=True)
class Golden:
    """One bucket, and what it must be read as."""

    version: str
    expected: dict[str, Any]

    @property
    def bucket(self) -> Path:
        return GOLDEN / self.version / "bucket"

    @property
    def root(self) -> Path:
        return self.bucket / "DefaultCluster" / "broker-a"

    def records(self, topic: str) -> dict[int, list[bytes]]:
        return {
            int(queue_id): [bytes.fromhex(item["record"]) for item in items]
            for queue_id, items in self.expected["topics"][topic].items()
        }


def read_golden(version: str) -> Golden:
    return Golden(version, json.loads((GOLDEN / version / "expected.json").read_text()))


BUCKETS = {version: read_golden(version) for version in (OLD_VERSION, VERSION)}
TOPICS = [(version, topic) for version, golden in BUCKETS.items() for topic in sorted(golden.expected["topics"])]


# -- a reader from the page --------------------------------------------------------------------------------------------


def unzip(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)


def read_json(path: Path, *, checked: bool) -> dict[str, Any]:
    """A JSON object of the ledger, its checksum compared."""
    data = path.read_bytes()
    found: dict[str, Any] = json.loads(data)
    assert ("crc32" in found) == checked
    if checked:
        assert data.endswith(b',"crc32":"%08x"}' % zlib.crc32(data[:-20]))
    return found


def read_part(bucket: Path, locator: list[Any], magic: bytes) -> tuple[bytes, bytes]:
    """The part, and the content of its footer."""
    key, start, end, footer_start, crc32 = locator
    part = (bucket / key).read_bytes()[start:end]
    assert zlib.crc32(part) == crc32
    assert part[:8] == magic
    part_bytes, stored_bytes, raw_bytes, version, _zero, checksum, found = struct.unpack("<QIIHHI8s", part[-32:])
    assert (part_bytes, version, found) == (len(part), 1, magic)
    assert footer_start == len(part) - 32 - stored_bytes
    tail = part[footer_start - start :]
    assert zlib.crc32(tail[: stored_bytes + 20]) == checksum
    footer = unzip(tail[:stored_bytes])
    assert len(footer) == raw_bytes
    return part, footer


def read_log(bucket: Path, segment: dict[str, Any]) -> dict[int, dict[int, bytes]]:
    """Queue id -> queue offset -> record."""
    part, footer = read_part(bucket, segment["log"], b"THERMLOG")
    *_ids, _incarnation, records, _raw_bytes, run_count, frame_count, topic_bytes = struct.unpack_from(
        "<QQQQQIIH", footer
    )
    assert footer[50 : 50 + topic_bytes].decode() == segment["topic"]
    runs_start = 50 + topic_bytes
    frames_start = runs_start + 60 * run_count
    assert len(footer) == frames_start + 56 * frame_count
    found: dict[int, dict[int, bytes]] = {}
    for run in range(run_count):
        queue_id, first, end, start_offset, end_offset, *_rest = struct.unpack_from(
            "<iIIqqqqqq", footer, runs_start + 60 * run
        )
        offset = start_offset
        for frame in range(first, end):
            fields = struct.unpack_from("<QIIQqqqq", footer, frames_start + 56 * frame)
            position, stored_bytes, raw_bytes, _raw_position, frame_start, frame_end, _least, _greatest = fields
            assert frame_start == offset
            data = unzip(part[position : position + stored_bytes])
            assert len(data) == raw_bytes
            place = 0
            while place < len(data):
                (size,) = struct.unpack_from(">i", data, place)
                assert struct.unpack_from(">i", data, place + 12) == (queue_id,)
                assert struct.unpack_from(">q", data, place + 20) == (offset,)
                found.setdefault(queue_id, {})[offset] = data[place : place + size]
                place, offset = place + size, offset + 1
            assert offset == frame_end
        assert offset == end_offset
    assert sum(map(len, found.values())) == records
    return found


def read_planes(data: bytes, position: int, count: int, width: int) -> tuple[list[int], int]:
    planes = [data[position + count * plane : position + count * (plane + 1)] for plane in range(width)]
    return [int.from_bytes(bytes(column), "little") for column in zip(*planes, strict=True)], position + count * width


def read_columns(bucket: Path, segment: dict[str, Any]) -> dict[int, dict[int, tuple[int, int, int]]]:
    """Queue id -> queue offset -> (size, physical offset, tags code)."""
    part, footer = read_part(bucket, segment["cq"], b"THERM-CQ")
    _epoch, _sequence, _records, block_count = struct.unpack_from("<QQQI", footer)
    found: dict[int, dict[int, tuple[int, int, int]]] = {}
    for block in range(block_count):
        fields = struct.unpack_from("<iQIIqqqq", footer, 28 + 52 * block)
        queue_id, position, stored_bytes, _raw_bytes, start_offset, end_offset, _least, _end = fields
        data = unzip(part[position : position + stored_bytes])
        count, code_count, physical = struct.unpack_from("<IIq", data)
        assert end_offset == start_offset + count
        codes = struct.unpack_from(f"<{code_count}q", data, 16)
        sizes, place = read_planes(data, 16 + 8 * code_count, count, 4)
        gaps, place = read_planes(data, place, count, 8)
        which, place = read_planes(data, place, count, 2)
        assert place == len(data)
        for index in range(count):
            if index:
                physical = (physical + sizes[index - 1] + gaps[index]) % 2**64
            found.setdefault(queue_id, {})[start_offset + index] = (sizes[index], physical, codes[which[index]])
    return found


def mix(value: int) -> int:
    value ^= value >> 16
    value = value * 0x85EBCA6B % 2**32
    value ^= value >> 13
    value = value * 0xC2B2AE35 % 2**32
    return value ^ value >> 16


def find_key(bucket: Path, segment: dict[str, Any], key: str) -> list[int]:
    """Ordinals of the records that may carry the key."""
    part, footer = read_part(bucket, segment["idx"], b"THERMIDX")
    _epoch, _sequence, _entries, page_bytes, page_count, block_count = struct.unpack_from("<QQQIII", footer)
    assert (page_bytes, page_count) == (segment["bloom_page_bytes"], segment["bloom_page_count"])
    hashed = mix(zlib.crc32(key.encode()))
    if not page_count:
        return []
    page_start = 8 + (hashed * page_count >> 32) * page_bytes
    page = part[page_start : page_start + page_bytes]
    mixed = mix(hashed ^ 0x9E3779B9)
    bits = [(mixed + probe * (mixed >> 16 | 1)) % (8 * page_bytes) for probe in range(7)]
    if not all(page[bit >> 3] >> (bit & 7) & 1 for bit in bits):
        return []
    found: list[int] = []
    for block in range(block_count):
        first, last, position, stored_bytes, count = struct.unpack_from("<IIQII", footer, 36 + 24 * block)
        if first <= hashed <= last:
            data = unzip(part[position : position + stored_bytes])
            steps, place = read_planes(data, 0, count, 4)
            ordinals, place = read_planes(data, place, count, 4)
            value = 0
            for step, ordinal in zip(steps, ordinals, strict=True):
                value = (value + step) % 2**32
                if value == hashed:
                    found.append(ordinal)
    return found


def read_catalog(golden: Golden) -> tuple[int, dict[str, dict[str, Any]]]:
    """The newest version, and the topics at it."""
    root, checked = golden.root, golden.version != OLD_VERSION
    hint = read_json(root / "head-hint", checked=checked)
    version, topics, nonce = 0, {}, ""
    if hint["checkpoint"]:
        head = read_json(root / f"checkpoints/{hint['checkpoint']:020}/head.json", checked=checked)
        version, nonce = head["version"], head["nonce"]
        assert read_json(root / f"ledger/{version:020}.json", checked=checked)["nonce"] == nonce
        for bucket, key, stored_bytes, _raw_bytes, crc32 in head["buckets"]:
            data = (golden.bucket / key).read_bytes()
            assert (len(data), zlib.crc32(data)) == (stored_bytes, crc32)
            for topic in json.loads(unzip(data))["topics"]:
                assert zlib.crc32(topic["topic"].encode()) % head["bucket_count"] == bucket
                topics[topic["topic"]] = topic
    while (path := root / f"ledger/{version + 1:020}.json").exists():
        entry = read_json(path, checked=checked)
        assert entry["previous_nonce"] == nonce
        version, nonce = version + 1, entry["nonce"]
        for name, incarnation in entry.get("topics_deleted", []):
            topics[name] = {"topic": name, "incarnation": incarnation, "deleted": True}
        gone = [*entry.get("segments_out", [])]
        gone += [(kept["segment"]["topic"], kept["segment"]["segment_id"]) for kept in entry.get("quarantine", [])]
        for name, segment_id in gone:
            kept = [segment for segment in topics[name]["segments"] if segment["segment_id"] != segment_id]
            topics[name]["segments"] = kept
        for kept in entry.get("quarantine", []):
            topics[kept["segment"]["topic"]].setdefault("quarantine", []).append(kept)
        for change in entry.get("topics", []):
            topics.setdefault(change["topic"], {"topic": change["topic"]}).update(change)
        for segment in entry.get("segments_in", []):
            topics.setdefault(segment["topic"], {"topic": segment["topic"]}).setdefault("segments", []).append(segment)
    return version, topics


# -- what it finds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", BUCKETS.values(), ids=BUCKETS)
def test_the_catalog(golden: Golden) -> None:
    version, topics = read_catalog(golden)
    assert version == golden.expected["version"]
    assert {name for name, topic in topics.items() if not topic.get("deleted")} == set(golden.expected["topics"])
    assert topics["gone"]["deleted"]
    assert topics["flights"]["ttl_ms"] == 86_400_000
    assert topics["flights"]["expired_before_ms"] == 1_000
    assert topics["flights"]["holes"] == [[0, 90, 95]]
    if golden.version != OLD_VERSION:
        (kept,) = topics["broken"]["quarantine"]
        assert [lost[:3] for lost in kept["lost"]] == [run[:3] for run in kept["segment"]["runs"]]


@pytest.mark.parametrize(("name", "topic"), TOPICS)
def test_records_columns_and_keys(name: str, topic: str) -> None:
    golden = BUCKETS[name]
    _, topics = read_catalog(golden)
    records: dict[int, dict[int, bytes]] = {}
    for segment in topics[topic]["segments"]:
        found = read_log(golden.bucket, segment)
        columns = read_columns(golden.bucket, segment)
        assert {queue_id: set(items) for queue_id, items in columns.items()} == {
            queue_id: set(items) for queue_id, items in found.items()
        }
        ordinals: list[tuple[int, int]] = []
        for run in segment["runs"]:
            ordinals.extend((run[0], offset) for offset in range(run[1], run[2]))
        for queue_id, items in found.items():
            records.setdefault(queue_id, {}).update(items)
            for offset, record in items.items():
                expected = golden.expected["topics"][topic][str(queue_id)][offset]
                (physical,) = struct.unpack_from(">q", record, 28)
                assert columns[queue_id][offset] == (len(record), physical, expected["tags_code"])
                for key in expected["keys"]:
                    assert (queue_id, offset) in [
                        ordinals[ordinal] for ordinal in find_key(golden.bucket, segment, key)
                    ]
        assert find_key(golden.bucket, segment, "another key") == []
    assert {
        queue_id: [items[offset] for offset in sorted(items)] for queue_id, items in records.items()
    } == golden.records(topic)


@pytest.mark.parametrize("golden", BUCKETS.values(), ids=BUCKETS)
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


async def test_the_writer_still_writes_it(tmp_path: Path) -> None:
    """To the byte with the zstd it was made with; with another one, the same names and JSON."""
    golden = BUCKETS[VERSION]
    expected = await write_bucket(tmp_path)
    same_zstd = expected.pop("zstd") == golden.expected["zstd"]
    assert expected == {key: value for key, value in golden.expected.items() if key != "zstd"}
    names = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {path.relative_to(golden.bucket) for path in golden.bucket.rglob("*") if path.is_file()}
    if same_zstd:
        for name in names:
            assert (tmp_path / name).read_bytes() == (golden.bucket / name).read_bytes(), name


def test_the_golden_bucket_is_where_the_page_says() -> None:
    assert KEYS.root == "DefaultCluster/broker-a"
    assert (BUCKETS[VERSION].bucket / KEYS.ledger_entry(1)).exists()
