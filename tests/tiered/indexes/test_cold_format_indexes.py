"""A reader of index objects written from docs/cold-format.md alone finds every key and place in the golden bucket; our
writer writes it still. That reader imports nothing of Thermocline. Where it and the page disagree, the page is wrong.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from itertools import accumulate
from pathlib import Path
from typing import Any

import zstandard

from tests.tiered.indexes.make_golden import GOLDEN, write_bucket
from thermocline.store.disk import RealDisk
from thermocline.tiered.cold_reader import ColdReader
from thermocline.tiered.file import FileObjectStore
from thermocline.tiered.frame_cache import FrameCache
from thermocline.tiered.ledger_reader import open_catalog
from thermocline.tiered.object_keys import BrokerKeys

BUCKET = GOLDEN / "bucket"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
MASK = 0xFFFF_FFFF
INCARNATION = 4

# -- a reader from the page --------------------------------------------------------------------------------------------


def unzip(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)


def planes(data: bytes, position: int, count: int, width: int) -> tuple[list[int], int]:
    columns = [data[position + count * plane : position + count * (plane + 1)] for plane in range(width)]
    return [int.from_bytes(bytes(each), "little") for each in zip(*columns, strict=True)], position + count * width


def mix(value: int) -> int:
    value ^= value >> 16
    value = value * 0x85EBCA6B & MASK
    value ^= value >> 13
    value = value * 0xC2B2AE35 & MASK
    return value ^ value >> 16


def hash_of(topic: str, incarnation: int, key: str) -> int:
    salt = mix(zlib.crc32(topic.encode() + b"\0" + str(incarnation).encode()))
    return mix(mix(zlib.crc32(key.encode())) ^ salt)


def read_indexes() -> tuple[list[dict[str, Any]], int]:
    """The index entries of the newest version, and how far they reach, from the entries of the ledger alone."""
    live: dict[str, dict[str, Any]] = {}
    indexed_to = 0
    for path in sorted((BUCKET / "DefaultCluster" / "broker-a" / "ledger").iterdir()):
        entry = json.loads(path.read_bytes())
        for index_id in entry.get("indexes_out", []):
            del live[index_id]
        live |= {index["index_id"]: index for index in entry.get("indexes_in", [])}
        indexed_to = max(indexed_to, entry.get("indexed_to", 0))
    return list(live.values()), indexed_to


class IndexReader:
    """One index object."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.entry = entry
        self.data = (BUCKET / entry["key"]).read_bytes()
        content = unzip(base64.b64decode(entry["directory"]))
        frames_of_page, position = planes(content, 0, entry["page_count"], 2)
        frame_bytes, position = planes(content, position, sum(frames_of_page), 4)
        _first, position = planes(content, position, sum(frames_of_page), 4)
        count = (len(content) - position) // 24
        self.chapter_records, position = planes(content, position, count, 4)
        chapter_bytes, position = planes(content, position, count, 4)
        places, position = planes(content, position, count, 8)
        self.places = [entry["start"] + place for place in places]
        newest, position = planes(content, position, count, 8)
        assert position == len(content)
        assert all(entry["min_store_ms"] + each <= entry["max_store_ms"] for each in newest)
        self.frames_of_page = [0, *accumulate(frames_of_page)]
        self.frame_ends = [8, *accumulate(frame_bytes, initial=8)][1:]
        self.chapter_ends = list(accumulate(chapter_bytes, initial=entry["chapters_start"]))

    def check(self) -> None:
        entry, data = self.entry, self.data
        assert (len(data), zlib.crc32(data)) == (entry["object_bytes"], entry["crc32"])
        assert data[:8] == data[-8:] == b"THERMKEY"
        size_bytes, footer_bytes, content_bytes, version, zero, crc32 = struct.unpack("<QIIHHI", data[-32:-8])
        assert (size_bytes, version, zero) == (len(data), 1, 0)
        assert zlib.crc32(data[-32 - footer_bytes : -12]) == crc32
        assert entry["footer_start"] == len(data) - 32 - footer_bytes
        footer = unzip(data[entry["footer_start"] : -32])
        assert len(footer) == content_bytes
        assert json.loads(footer) | {"object_bytes": len(data), "crc32": entry["crc32"]} == entry
        assert self.frame_ends[-1] == entry["blooms_start"]
        assert entry["chapters_start"] - entry["blooms_start"] == entry["page_bytes"] * entry["page_count"]
        assert self.chapter_ends[-1] == entry["footer_start"]

    def holds(self, topic: str) -> bool:
        content = unzip(base64.b64decode(self.entry["topics"]))
        steps, _ = planes(content, 0, len(content) // 4, 4)
        return zlib.crc32(topic.encode()) in accumulate(steps)

    def may_hold(self, hash_value: int) -> bool:
        entry = self.entry
        start = entry["blooms_start"] + (hash_value * entry["page_count"] >> 32) * entry["page_bytes"]
        page = self.data[start : start + entry["page_bytes"]]
        mixed = mix(hash_value ^ 0x9E3779B9)
        bits = [(mixed + i * (mixed >> 16 | 1)) % (8 * len(page)) for i in range(6)]
        return all(page[bit >> 3] >> (bit & 7) & 1 for bit in bits)

    def find_key(self, hash_value: int) -> list[tuple[int, int]]:
        """Queue and offset of each record with a key of the hash."""
        page = hash_value * self.entry["page_count"] >> 32
        found: list[tuple[int, int]] = []
        for number in range(self.frames_of_page[page], self.frames_of_page[page + 1]):
            content = unzip(self.data[self.frame_ends[number] : self.frame_ends[number + 1]])
            count = len(content) // 16
            steps, position = planes(content, 0, count, 4)
            queue_ids, position = planes(content, position, count, 4)
            offsets, position = planes(content, position, count, 8)
            hashes = [value & MASK for value in accumulate(steps)]
            assert hashes == sorted(hashes)
            rows = zip(hashes, queue_ids, offsets, strict=True)
            found += [(queue_id, offset) for value, queue_id, offset in rows if value == hash_value]
        return found

    def find_place(self, wanted: int) -> tuple[str, int, int, int] | None:
        """Topic, incarnation, queue and offset."""
        numbers = [number for number, place in enumerate(self.places) if place <= wanted]
        if not numbers:
            return None
        content = unzip(self.data[self.chapter_ends[numbers[-1]] : self.chapter_ends[numbers[-1] + 1]])
        count, run_count, names_bytes, first = struct.unpack_from("<IIIq", content)
        names = json.loads(content[20 : 20 + names_bytes])
        which, position = planes(content, 20 + names_bytes, run_count, 4)
        queue_ids, position = planes(content, position, run_count, 4)
        offsets, position = planes(content, position, run_count, 8)
        sizes, position = planes(content, position, count, 4)
        gaps, position = planes(content, position, count, 8)
        runs, position = planes(content, position, count, 4)
        assert position == len(content)
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
    entries, indexed_to = read_indexes()
    assert indexed_to == EXPECTED["indexed_to"] > 0
    assert {entry["ttl_class"] for entry in entries} == {"forever", "h015", "places"}
    assert {entry.get("level", 0) for entry in entries} == {0, 1}
    readers = [IndexReader(entry) for entry in entries]
    for reader in readers:
        reader.check()
    checked = 0
    for record in EXPECTED["records"]:
        topic, place = record["topic"], record["place"]
        if place >= indexed_to:
            continue
        checked += 1
        covering = [each for each in readers if each.entry["start"] <= place < each.entry["end"]]
        (of_places,) = [each for each in covering if each.entry["ttl_class"] == "places"]
        at = (topic, INCARNATION, record["queue_id"], record["queue_offset"])
        assert of_places.find_place(place) == at
        assert of_places.find_place(place + 1) is None
        (of_keys,) = [each for each in covering if each is not of_places and each.holds(topic)]
        hash_value = hash_of(topic, INCARNATION, record["key"])
        assert of_keys.may_hold(hash_value)
        assert (record["queue_id"], record["queue_offset"]) in of_keys.find_key(hash_value)
        assert not of_keys.find_key(hash_of(topic, INCARNATION + 1, record["key"]))
    assert checked > 80


async def test_our_reader_finds_them() -> None:
    store = FileObjectStore(str(BUCKET), disk=RealDisk())
    catalog = await open_catalog(store, BrokerKeys("DefaultCluster/broker-a"))
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
