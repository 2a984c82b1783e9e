"""A reader of packs written from docs/cold-format.md alone reads the golden bucket; so does ours, and our writer
writes it. That reader imports nothing of Thermocline. Where it and the page disagree, the page is wrong.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.tiered.packs.make_golden import GOLDEN, GOLDEN_BEFORE, write_bucket
from thermocline.store.disk import RealDisk
from thermocline.tiered.file import FileObjectStore
from thermocline.tiered.ledger_reader import open_catalog
from thermocline.tiered.object_keys import BrokerKeys
from thermocline.tiered.packs.pack_pieces import PackPieces, with_pieces
from thermocline.tiered.segment_reader import SegmentReader

BUCKET = GOLDEN / "bucket"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
BUCKETS = pytest.mark.parametrize("golden", [GOLDEN, *GOLDEN_BEFORE], ids=lambda folder: folder.name)


# -- a reader from the page --------------------------------------------------------------------------------------------


def unzip(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)


def planes(data: bytes, position: int, count: int, width: int) -> tuple[list[int], int]:
    columns = [data[position + count * plane : position + count * (plane + 1)] for plane in range(width)]
    return [int.from_bytes(bytes(each), "little") for each in zip(*columns, strict=True)], position + count * width


def read_table(pack: dict[str, Any]) -> list[tuple[str, int, dict[int, tuple[int, int]]]]:
    """Topic, incarnation, and queue id -> [start, end), of each piece."""
    data = unzip(base64.b64decode(pack["pieces"]))
    count = len(pack["topics"])
    incarnations, position = planes(data, 0, count, 8)
    _raw, position = planes(data, position, count, 8)
    _stored, position = planes(data, position, count, 8)
    queue_counts, position = planes(data, position, count, 2)
    total = sum(queue_counts)
    ids, position = planes(data, position, total, 4)
    starts, position = planes(data, position, total, 8)
    counts, position = planes(data, position, total, 4)
    assert position == len(data)
    rows = iter(zip(ids, starts, counts, strict=True))
    found: list[tuple[str, int, dict[int, tuple[int, int]]]] = []
    for topic, incarnation, queue_count in zip(pack["topics"], incarnations, queue_counts, strict=True):
        queues = {}
        for _ in range(queue_count):
            queue_id, start, records = next(rows)
            queues[queue_id] = (start, start + records)
        found.append((topic, incarnation, queues))
    return found


def read_pieces(bucket: Path, pack: dict[str, Any]) -> list[dict[str, Any]]:
    """The segment entry of each piece, from the pack's footer."""
    data = (bucket / pack["key"]).read_bytes()
    assert (len(data), zlib.crc32(data)) == (pack["object_bytes"], pack["crc32"])
    assert data[:8] == b"THERMPAK"
    size, stored_bytes, raw_bytes, version, _zero, checksum, magic = struct.unpack("<QIIHHI8s", data[-32:])
    assert (size, version, magic) == (len(data), 1, b"THERMPAK")
    assert pack["footer_start"] == len(data) - 32 - stored_bytes
    assert zlib.crc32(data[pack["footer_start"] : -12]) == checksum
    entries: list[dict[str, Any]] = []
    start = pack["footer_start"]
    for end in pack["section_ends"]:
        section = unzip(data[start:end])
        raw_bytes -= len(section)
        entries += json.loads(section)
        start = end
    assert (start, raw_bytes) == (len(data) - 32, 0)
    assert [entry["topic"] for entry in entries] == pack["topics"]
    assert pack["topics"] == sorted(pack["topics"], key=lambda name: (zlib.crc32(name.encode()), name))
    return entries


def read_records(bucket: Path, segment: dict[str, Any]) -> dict[int, dict[int, bytes]]:
    """Queue id -> queue offset -> record, wherever the part lies."""
    key, start, end, footer_start, crc32 = segment["log"]
    part = (bucket / key).read_bytes()[start:end]
    assert zlib.crc32(part) == crc32
    _size, stored_bytes, _raw, _version, _zero, _crc, magic = struct.unpack("<QIIHHI8s", part[-32:])
    assert magic == b"THERMLOG"
    assert footer_start == end - 32 - stored_bytes
    footer = unzip(part[footer_start - start : -32])
    *_ids, run_count, frame_count, topic_bytes = struct.unpack_from("<QQQQQIIH", footer)
    frames_start = 50 + topic_bytes + 60 * run_count
    found: dict[int, dict[int, bytes]] = {}
    for frame in range(frame_count):
        position, size, _raw_bytes, *_rest = struct.unpack_from("<QIIQqqqq", footer, frames_start + 56 * frame)
        data, place = unzip(part[position : position + size]), 0
        while place < len(data):
            (record_bytes,) = struct.unpack_from(">i", data, place)
            queue_id, offset = struct.unpack_from(">i4xq", data, place + 12)
            found.setdefault(queue_id, {})[offset] = data[place : place + record_bytes]
            place += record_bytes
    return found


def read_json(path: Path) -> Any:
    """A JSON object of the ledger, its checksum compared."""
    data = path.read_bytes()
    assert data.endswith(b',"crc32":"%08x"}' % zlib.crc32(data[:-20]))
    return json.loads(data)


def read_catalog(bucket: Path) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """The newest version, the topics at it, and the packs."""
    root = bucket / "DefaultCluster" / "broker-a"
    hint = read_json(root / "head-hint")
    version, topics, packs = 0, dict[str, Any](), dict[str, Any]()
    if hint["checkpoint"]:
        head = read_json(root / f"checkpoints/{hint['checkpoint']:020}/head.json")
        version = head["version"]
        for _bucket, key, *_rest in head["buckets"]:
            for topic in json.loads(unzip((bucket / key).read_bytes()))["topics"]:
                topics[topic["topic"]] = topic
        if head.get("packs"):
            content = json.loads(unzip((bucket / head["packs"][1]).read_bytes()))
            packs = {pack["pack_id"]: pack for pack in content["packs"]}
    while (path := root / f"ledger/{version + 1:020}.json").exists():
        entry = read_json(path)
        version += 1
        for name, incarnation in entry.get("topics_deleted", []):
            topics[name] = {"topic": name, "incarnation": incarnation, "deleted": True}
        for pack_id in entry.get("packs_out", []):
            packs.pop(pack_id, None)
        for change in entry.get("topics", []):
            topics.setdefault(change["topic"], {"topic": change["topic"]}).update(change)
        for segment in entry.get("segments_in", []):
            topics.setdefault(segment["topic"], {"topic": segment["topic"]}).setdefault("segments", []).append(segment)
        for pack in entry.get("packs_in", []):
            packs[pack["pack_id"]] = pack
            for name, incarnation, _queues in read_table(pack):
                topics.setdefault(name, {"topic": name, "incarnation": incarnation})
    return version, topics, packs


# -- what it finds -----------------------------------------------------------------------------------------------------


@BUCKETS
def test_the_page_reads_every_record(golden: Path) -> None:
    bucket, expected = golden / "bucket", json.loads((golden / "expected.json").read_text())
    version, topics, packs = read_catalog(bucket)
    assert version == expected["version"]
    assert topics["gone"]["deleted"]
    assert {pack["ttl_class"] for pack in packs.values()} == {"forever", "h015"}
    assert {pack.get("level", 0) for pack in packs.values()} == {0, 1}
    found: dict[str, dict[int, dict[int, bytes]]] = {}
    for pack in packs.values():
        for (name, incarnation, queues), entry in zip(read_table(pack), read_pieces(bucket, pack), strict=True):
            assert entry["incarnation"] == incarnation
            assert {run[0]: (run[1], run[2]) for run in entry["runs"]} == queues
            if topics[name].get("deleted") or topics[name]["incarnation"] != incarnation:
                continue
            for queue_id, records in read_records(bucket, entry).items():
                assert (min(records), max(records) + 1) == queues[queue_id]
                found.setdefault(name, {}).setdefault(queue_id, {}).update(records)
    assert {
        name: {str(queue_id): [records[offset].hex() for offset in sorted(records)] for queue_id, records in of.items()}
        for name, of in found.items()
    } == expected["topics"]


def test_the_page_says_what_lookups_need() -> None:
    """Store times and sizes of pieces, where the columns begin, and every frame, in what is written today."""
    _version, _topics, packs = read_catalog(BUCKET)
    assert packs
    for pack in packs.values():
        data, count = unzip(base64.b64decode(pack["times"])), len(pack["topics"])
        least, position = planes(data, 0, count, 8)
        spans, position = planes(data, position, count, 8)
        assert position == len(data)
        sizes, _ = planes(unzip(base64.b64decode(pack["logs"])), 0, count, 8)
        pieces = read_pieces(BUCKET, pack)
        assert sizes == [piece["log"][2] - piece["log"][1] for piece in pieces]
        assert pack["columns_start"] == min(piece["cq"][1] for piece in pieces) == pieces[-1]["log"][2]
        for piece, after_ms, span_ms in zip(pieces, least, spans, strict=True):
            assert pack["min_store_ms"] + after_ms == min(run[3] for run in piece["runs"])
            assert pack["min_store_ms"] + after_ms + span_ms == max(run[4] for run in piece["runs"])
            assert [frame[0] for frame in piece["coarse"]] == list(range(piece["runs"][-1][6]))


@BUCKETS
async def test_our_reader_reads_it(golden: Path) -> None:
    expected: dict[str, Any] = json.loads((golden / "expected.json").read_text())
    store = FileObjectStore(str(golden / "bucket"), disk=RealDisk())
    catalog = await open_catalog(store, BrokerKeys("DefaultCluster/broker-a"))
    pieces = PackPieces(store)
    for name, queues in expected["topics"].items():
        entry = await with_pieces(pieces, catalog, name)
        assert entry is not None
        found: dict[str, str] = {}
        for segment in sorted(entry.segments, key=lambda each: each.min_physical_offset):
            for run in segment.runs:
                reader = SegmentReader(store, segment)
                async for part in reader.records(
                    run.queue_id, start_offset=run.start_offset, end_offset=run.end_offset
                ):
                    found[str(run.queue_id)] = found.get(str(run.queue_id), "") + bytes(part.data).hex()
        assert found == {queue_id: "".join(records) for queue_id, records in queues.items()}
    await store.close()


async def test_the_writer_still_writes_it(tmp_path: Path) -> None:
    """To the byte with the zstd it was made with; with another one, the same names."""
    expected = await write_bucket(tmp_path)
    same_zstd = expected.pop("zstd") == EXPECTED["zstd"]
    assert expected == {key: value for key, value in EXPECTED.items() if key != "zstd"}
    names = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {path.relative_to(BUCKET) for path in BUCKET.rglob("*") if path.is_file()}
    if same_zstd:
        for name in names:
            assert (tmp_path / name).read_bytes() == (BUCKET / name).read_bytes(), name
