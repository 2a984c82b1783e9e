"""What docs/cold-format.md says of packs holds for the golden buckets, as read by the reader in examples/, which is
written from that page alone, and by ours; our writer writes them still. Where they disagree, the page is wrong.

Covers `tiered/packs/packed_catalog.py`.
"""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from examples.cold_reader import History, columns, read, unzip
from tests.tiered.packs.make_golden import GOLDEN, GOLDEN_BEFORE, GOLDEN_RECORDS, LARGE, WRITERS
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.catalog.pack_pieces import PackPieces, with_pieces
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.segments.segment_reader import SegmentReader
from thermocline.tiered.stores.file import FileObjectStore

ROOT = "DefaultCluster/broker-a"
BUCKETS = pytest.mark.parametrize("golden", [GOLDEN, *GOLDEN_BEFORE, GOLDEN_RECORDS], ids=lambda folder: folder.name)
TODAYS = pytest.mark.parametrize("golden", [GOLDEN, GOLDEN_RECORDS], ids=lambda folder: folder.name)


def expected_of(golden: Path) -> dict[str, Any]:
    """What a bucket must be read as."""
    found: dict[str, Any] = json.loads((golden / "expected.json").read_text())
    return found


def read_packs(golden: Path) -> list[dict[str, Any]]:
    """The pack entries of the newest version with a topic that is not deleted."""
    history = History(golden / "bucket", ROOT, now_ms=0)
    live_topics = {(name, topic["incarnation"]) for name, topic in history.topics.items() if not topic["deleted"]}
    packs = [entry for entry in history.parts.values() if "pieces" in entry]
    return [pack for pack in packs if any(row[:2] in live_topics for row in read_table(pack))]


def read_pieces(golden: Path, pack: dict[str, Any]) -> list[dict[str, Any]]:
    """The segment entry of each piece, from the sections of the pack's footer."""
    data, first = read(golden / "bucket", b"THERMPAK", *pack["whole"])
    entries: list[dict[str, Any]] = []
    start, raw_bytes = pack["footer_start"], 0
    for end in pack["section_ends"]:
        section = unzip(data[start:end])
        assert entries or section == first
        raw_bytes += len(section)
        entries += json.loads(section)
        start = end
    assert start == len(data) - 32
    assert raw_bytes == int.from_bytes(data[-20:-16], "little")
    assert [entry["topic"] for entry in entries] == pack["topics"]
    assert pack["topics"] == sorted(pack["topics"], key=lambda name: (zlib.crc32(name.encode()), name))
    return entries


def read_table(pack: dict[str, Any]) -> list[tuple[str, int, dict[int, tuple[int, int]]]]:
    """Topic, incarnation, and queue id -> [start, end), of each piece."""
    data = unzip(base64.b64decode(pack["pieces"]))
    count = len(pack["topics"])
    incarnations, _raw, _stored, queue_counts = columns(data, 0, (count, 8), (count, 8), (count, 8), (count, 2))
    total = sum(queue_counts)
    ids, starts, counts = columns(data, 26 * count, (total, 4), (total, 8), (total, 4))
    assert len(data) == 26 * count + 16 * total
    rows = iter(zip(ids, starts, counts, strict=True))
    found: list[tuple[str, int, dict[int, tuple[int, int]]]] = []
    for topic, incarnation, queue_count in zip(pack["topics"], incarnations, queue_counts, strict=True):
        queues = {}
        for _ in range(queue_count):
            queue_id, start, records = next(rows)
            queues[queue_id] = (start, start + records)
        found.append((topic, incarnation, queues))
    return found


@BUCKETS
def test_the_page_reads_every_record(golden: Path) -> None:
    expected = expected_of(golden)
    history = History(golden / "bucket", ROOT, now_ms=0)
    newest = max(int(path.stem) for path in (golden / "bucket" / ROOT / "ledger").iterdir())
    assert newest == expected["version"]
    assert {pack["ttl_class"] for pack in read_packs(golden)} == {"forever", "h015"}
    if golden is not GOLDEN_RECORDS:
        assert history.topics["gone"]["deleted"]
        assert {pack.get("level", 0) for pack in read_packs(golden)} == {0, 1}
    for name, queues in expected["topics"].items():
        found = {queue: list(history.records(history.topics[name], int(queue))) for queue in queues}
        assert {queue: [each["raw"].hex() for each in records] for queue, records in found.items()} == queues
        assert {str(span[0]) for span in history.spans(history.topics[name])} == set(queues)


@BUCKETS
def test_the_ledger_lists_the_pieces(golden: Path) -> None:
    for pack in read_packs(golden):
        for (_name, incarnation, queues), entry in zip(read_table(pack), read_pieces(golden, pack), strict=True):
            assert entry["incarnation"] == incarnation
            assert {run[0]: (run[1], run[2]) for run in entry["runs"]} == queues


@TODAYS
def test_the_page_says_how_many_requests_lookups_need(golden: Path) -> None:
    """Store times and sizes of pieces, where the columns begin, and every frame, in what is written today."""
    packs = read_packs(golden)
    assert packs
    for pack in packs:
        data, count = unzip(base64.b64decode(pack["times"])), len(pack["topics"])
        least, spans = columns(data, 0, (count, 8), (count, 8))
        assert len(data) == 16 * count
        (sizes,) = columns(unzip(base64.b64decode(pack["logs"])), 0, (count, 8))
        pieces = read_pieces(golden, pack)
        assert sizes == [piece["log"][2] - piece["log"][1] for piece in pieces]
        assert pack["columns_start"] == min(piece["cq"][1] for piece in pieces) == pieces[-1]["log"][2]
        for piece, after_ms, span_ms in zip(pieces, least, spans, strict=True):
            assert pack["min_store_ms"] + after_ms == min(run[3] for run in piece["runs"])
            assert pack["min_store_ms"] + after_ms + span_ms == max(run[4] for run in piece["runs"])
            assert [frame[0] for frame in piece["coarse"]] == list(range(piece["runs"][-1][6]))


def test_records_of_every_kind_lie_in_a_pack_a_segment_and_index_objects() -> None:
    history = History(GOLDEN_RECORDS / "bucket", ROOT, now_ms=0)
    assert history.indexed_to == expected_of(GOLDEN_RECORDS)["indexed_to"] > 0
    assert {name for name, _ in history.parts} == {"", LARGE}
    indexes = [entry for entry in history.parts.values() if "directory" in entry]
    assert {index["ttl_class"] for index in indexes} == {"forever", "h015", "places"}
    assert max(pack["end_physical_offset"] for pack in read_packs(GOLDEN_RECORDS)) > history.indexed_to


@BUCKETS
async def test_our_reader_reads_it(golden: Path) -> None:
    expected = expected_of(golden)
    store = FileObjectStore(str(golden / "bucket"), disk=RealDisk())
    catalog = await open_catalog(store, BrokerKeys(ROOT))
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


@TODAYS
async def test_the_writer_still_writes_it(golden: Path, tmp_path: Path) -> None:
    """To the byte with the zstd it was made with; with another one, the same names."""
    before, bucket = expected_of(golden), golden / "bucket"
    expected = await WRITERS[golden](tmp_path)
    same_zstd = expected.pop("zstd") == before.pop("zstd")
    assert expected == before
    names = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {path.relative_to(bucket) for path in bucket.rglob("*") if path.is_file()}
    if same_zstd:
        for name in names:
            assert (tmp_path / name).read_bytes() == (bucket / name).read_bytes(), name
