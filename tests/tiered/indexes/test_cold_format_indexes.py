"""What docs/cold-format.md says of index objects holds for the golden bucket: the reader in examples/, which is written
from that page alone, finds every key by them, what it needs not is read here by the page; ours finds all, our writer
writes it still. Where reader and page disagree, the page is wrong.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from examples.cold_reader import History, columns, read, unzip
from tests.tiered.indexes.make_golden import GOLDEN, write_bucket
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.reading.cold_reader import ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.stores.file import FileObjectStore

BUCKET = GOLDEN / "bucket"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
ROOT = "DefaultCluster/broker-a"
INCARNATION = 4


class IndexReader:
    """One index object."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.entry = entry
        self.data, footer = read(BUCKET, b"THERMKEY", *entry["whole"])
        assert json.loads(footer) == {
            name: 0 if name in ("object_bytes", "crc32") else value
            for name, value in entry.items()
            if name not in ("topic", "whole")  # the reader's own
        }
        content = unzip(base64.b64decode(entry["directory"]))
        (frames_of_page,) = columns(content, 0, (entry["page_count"], 2))
        position, total = 2 * entry["page_count"], sum(frames_of_page)
        frame_bytes, first = columns(content, position, (total, 4), (total, 4))
        self.first_hashes = first
        position += 8 * total
        count = (len(content) - position) // 24
        assert len(content) == position + 24 * count
        shapes = ((count, 4), (count, 4), (count, 8), (count, 8))
        self.chapter_records, chapter_bytes, places, newest = columns(content, position, *shapes)
        self.places = [entry["start"] + place for place in places]
        assert all(entry["min_store_ms"] + each <= entry["max_store_ms"] for each in newest)
        self.frames_of_page = [0, *accumulate(frames_of_page)]
        self.frame_ends = [8, *accumulate(frame_bytes, initial=8)][1:]
        self.chapter_ends = list(accumulate(chapter_bytes, initial=entry["chapters_start"]))

    def check(self) -> None:
        entry = self.entry
        assert self.frame_ends[-1] == entry["blooms_start"]
        assert entry["chapters_start"] - entry["blooms_start"] == entry["page_bytes"] * entry["page_count"]
        assert self.chapter_ends[-1] == entry["footer_start"]
        for start, end in pairwise(self.frames_of_page):
            for number in range(start, end):
                content = unzip(self.data[self.frame_ends[number] : self.frame_ends[number + 1]])
                ((first, *_),) = columns(content, 0, (len(content) // 16, 4))
                assert self.first_hashes[number] == (0 if number == start else first)

    def holds(self, topic: str) -> bool:
        content = unzip(base64.b64decode(self.entry["topics"]))
        (steps,) = columns(content, 0, (len(content) // 4, 4))
        return zlib.crc32(topic.encode()) in accumulate(steps)

    def find_place(self, wanted: int) -> tuple[str, int, int, int] | None:
        """Topic, incarnation, queue and offset."""
        numbers = [number for number, place in enumerate(self.places) if place <= wanted]
        if not numbers:
            return None
        content = unzip(self.data[self.chapter_ends[numbers[-1]] : self.chapter_ends[numbers[-1] + 1]])
        count, run_count, names_bytes, first = struct.unpack_from("<IIIq", content)
        names = json.loads(content[20 : 20 + names_bytes])
        of_runs, of_records = [(run_count, width) for width in (4, 4, 8)], [(count, width) for width in (4, 8, 4)]
        found = columns(content, 20 + names_bytes, *of_runs, *of_records)
        which, queue_ids, offsets, sizes, gaps, runs = found
        assert len(content) == 20 + names_bytes + 16 * (run_count + count)
        assert count == self.chapter_records[numbers[-1]]
        place = first
        for size, gap, run in zip(sizes, gaps, runs, strict=True):
            place += gap
            if place == wanted:
                topic, incarnation = names[which[run]]
                return topic, incarnation, queue_ids[run], offsets[run]
            offsets[run] += 1
            place += size
        return None


# -- what it finds -----------------------------------------------------------------------------------------------------


def test_the_page_finds_every_key_and_place() -> None:
    history = History(BUCKET, ROOT, now_ms=0)
    entries = [entry for entry in history.parts.values() if "directory" in entry]
    assert history.indexed_to == EXPECTED["indexed_to"] > 0
    assert {entry["ttl_class"] for entry in entries} == {"forever", "h015", "places"}
    assert {entry.get("level", 0) for entry in entries} == {0, 1}
    readers = [IndexReader(entry) for entry in entries]
    for reader in readers:
        reader.check()
    checked = 0
    for record in EXPECTED["records"]:
        topic, place = record["topic"], record["place"]
        if place >= history.indexed_to:
            continue
        checked += 1
        covering = [each for each in readers if each.entry["start"] <= place < each.entry["end"]]
        (of_places,) = [each for each in covering if each.entry["ttl_class"] == "places"]
        at = (topic, INCARNATION, record["queue_id"], record["queue_offset"])
        assert of_places.find_place(place) == at
        assert of_places.find_place(place + 1) is None
        assert len([each for each in covering if each is not of_places and each.holds(topic)]) == 1
        entry = history.topics[topic]
        (found,) = history.find_key(entry, record["key"])  # by index objects alone: below `indexed_to`
        assert (found["queue_id"], found["queue_offset"], found["physical_offset"]) == (*at[2:], place)
        assert history.find_key(entry | {"incarnation": INCARNATION + 1}, record["key"]) == []
    assert checked > 80


async def test_our_reader_finds_them() -> None:
    store = FileObjectStore(str(BUCKET), disk=RealDisk())
    catalog = await open_catalog(store, BrokerKeys(ROOT))
    assert catalog.indexed_to == EXPECTED["indexed_to"]
    cache = FrameCache()
    reader = ColdReader(store, catalog=lambda: catalog, cache=cache)
    for record in EXPECTED["records"]:
        (found,) = await reader.query_key(
            record["topic"], record["key"], begin_ms=0, end_ms=1 << 60, count_max=2, cut_ms=0
        )
        assert int.from_bytes(found[28:36], "big") == record["place"]
        assert await reader.view(record["place"], cut_ms=lambda _: 0) == found
    await reader.close()
    await cache.close()
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
