"""What do index objects store for a key, and how long are they in the making? `python -m benchmarks.index_objects`

Workload: records of two keys each (an id and a key, unpredictable hashes), sizes of 300 to 1 700 bytes, of
some topics with eight queues each, between each other in the log. Of each topic the `.idx` parts of its segments; of
each half a million keys the objects of the lowest level; then merges by four until there is one of each kind a slot. In
memory or in `--folder`, without records: what is counted are bytes stored for a key, and seconds.

`--full` makes what there is of 100 million keys in 30 days: SLOTS slots of them, and one of which all but the end has
expired, one after another. Without it a few million are made, and the rest is extrapolated: the same bytes a key, and
blooms for one slot more.

In the end it is counted of which objects all blooms are in memory: in the cache of the process that makes them, and in
that of a process which begins then and loads them (`lookup_memory.py`), the one with fewer. Both are of
the default size, or with `--scale` of that for as many keys as are made.

Wanted: at most 14 bytes a key stored, at most 128 MB of blooms, all of them resident. Exit status 1 when one is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

from benchmarks.verdicts import Verdict, show_verdicts
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.files import RealDisk
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.catalog import Catalog, LedgerChanges
from thermocline.tiered.index_format import PLACES, IndexEntry, salt_of, salted
from thermocline.tiered.indexes import FAN_IN, RECORDS_MAX, SLOTS, BloomCache, IndexBuilder, IndexedPart, IndexMerger
from thermocline.tiered.ledger import LedgerIdentity, LedgerWriter
from thermocline.tiered.lookups import LookupMemory
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.packs import ttl_class
from thermocline.tiered.segments import BrokerKeys, SegmentId, encode_key_index
from thermocline.tiered.stores.file import FileObjectStore
from thermocline.tiered.stores.memory import MemoryObjectStore

KEYS_OF_RECORD = 2
QUEUES = 8
SEGMENT_RECORDS = 131_072
DAY_MS = 86_400_000
CLASS = ttl_class(30 * DAY_MS)

WANTED_KEYS = 100_000_000
BYTES_PER_KEY_MAX = 14.0
BLOOM_MB_MAX = 128.0

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSizes:
    """Bytes of everything, and seconds. `ledger_bytes`: what entries say of the objects that are left;
    `resident_bytes`: blooms of live objects that are in memory in the end."""

    key_count: int
    segment_bytes: int
    key_object_bytes: int
    bloom_bytes: int
    place_object_bytes: int
    ledger_bytes: int
    resident_bytes: int
    written_bytes: int
    build_s: float
    merge_s: float

    @property
    def bytes_per_key(self) -> float:
        """All that is stored for a key: parts of segments, objects, the ledger's words."""
        stored = self.segment_bytes + self.key_object_bytes + self.place_object_bytes + self.ledger_bytes
        return stored / self.key_count

    @property
    def blooms_of_wanted(self) -> float:
        """Bloom pages of WANTED_KEYS, and of what has expired of the oldest object."""
        return self.bloom_bytes / self.key_count * WANTED_KEYS * (1 + 1 / SLOTS)


class IndexMaker:
    """Makes index objects of records, slot by slot, each to the top of its slot; their blooms stay in `blooms`. Belongs
    to one event loop."""

    def __init__(
        self, store: ObjectStore, writer: LedgerWriter, *, topic_count: int, keys_of_object: int, blooms: BloomCache
    ) -> None:
        self._store = store
        self._writer = writer
        self._topic_count = topic_count
        self._records_of_object = keys_of_object // KEYS_OF_RECORD
        self._builder = IndexBuilder(writer, spool_folder=None, clock=lambda: 0)
        self._merger = IndexMerger(writer, spool_folder=None, clock=lambda: 0)
        self._next_place = 0
        self._next_offsets = np.zeros(topic_count * QUEUES, np.int64)
        self._blooms = blooms

    async def make(self, record_count: int, rng: np.random.Generator) -> IndexSizes:
        """One slot: what is left of it."""
        sizes = rng.integers(300, 1_700, record_count)
        places: Longs = self._next_place + np.cumsum(sizes) - sizes
        topics = rng.integers(0, self._topic_count, record_count)
        queues = rng.integers(0, QUEUES, record_count)
        offsets = self._offsets_of(topics * QUEUES + queues)
        hashes = rng.integers(0, 1 << 32, (record_count, KEYS_OF_RECORD), np.uint32)
        segment_bytes = 0
        for topic in range(self._topic_count):
            mine = np.flatnonzero(topics == topic)
            for start in range(0, len(mine), SEGMENT_RECORDS):
                segment_bytes += _idx_bytes(mine[start : start + SEGMENT_RECORDS], hashes, places)
        levels: dict[str, list[IndexEntry]] = {PLACES: [], CLASS: []}
        began, written_bytes = time.process_time(), 0
        for start in range(0, record_count, self._records_of_object):
            end = min(start + self._records_of_object, record_count)
            parts = [
                _part(f"topic-{topic}", start + np.flatnonzero(topics[start:end] == topic), places, sizes, queues,
                      offsets, hashes)
                for topic in range(self._topic_count)
            ]  # fmt: skip
            first, last = int(places[start]), int(places[end - 1] + sizes[end - 1])
            result = await self._builder.write(
                {PLACES: list(parts), CLASS: parts}, start=PhysicalOffset(first), end=PhysicalOffset(last), gaps={}
            )
            written_bytes += result.written_bytes
            for entry in result.indexes_in:
                levels[entry.ttl_class].append(entry)
            self._keep_blooms(result.indexes_in, result.blooms)
            await self._writer.commit(
                LedgerChanges(indexes_in=tuple(result.indexes_in), indexed_to=PhysicalOffset(last))
            )
        self._next_place = int(places[-1] + sizes[-1])
        built = time.process_time()
        for entries in levels.values():
            while len(entries) > 1:
                above: list[IndexEntry] = []
                for start in range(0, len(entries), FAN_IN):
                    merged_bytes = await self._merge(entries[start : start + FAN_IN], above)
                    written_bytes += merged_bytes
                entries[:] = above
        merged_s = time.process_time()
        (keys,), (of_places,) = levels[CLASS], levels[PLACES]
        assert keys.key_count == record_count * KEYS_OF_RECORD
        assert of_places.record_count == record_count
        return IndexSizes(
            key_count=record_count * KEYS_OF_RECORD,
            segment_bytes=segment_bytes,
            key_object_bytes=keys.object_bytes,
            bloom_bytes=keys.bloom_bytes,
            place_object_bytes=of_places.object_bytes,
            ledger_bytes=(len(keys.directory) + len(of_places.directory) + 2_000) * 4 // 3,
            resident_bytes=0,
            written_bytes=written_bytes,
            build_s=built - began,
            merge_s=merged_s - built,
        )

    async def _merge(self, group: list[IndexEntry], above: list[IndexEntry]) -> int:
        """One object of adjacent ones, which are deleted; the bytes written."""
        if len(group) == 1:
            above += group
            return 0
        merged = await self._merger.merge(group, cuts_ms={})
        await self._writer.commit(LedgerChanges(indexes_in=tuple(merged.indexes_in), indexes_out=merged.indexes_out))
        above += merged.indexes_in
        self._blooms.keep_only(self._writer.catalog.indexes)
        self._keep_blooms(merged.indexes_in, merged.blooms)
        for entry in group:
            await self._store.delete(entry.key)
        return merged.written_bytes

    def _keep_blooms(self, indexes: Iterable[IndexEntry], blooms: Mapping[str, bytes]) -> None:
        for index in indexes:
            if index.index_id in blooms:
                self._blooms.add(index, blooms[index.index_id])

    def _offsets_of(self, groups: Longs) -> Longs:
        """Queue offsets, queues going on where they were."""
        offsets: Longs = self._next_offsets[groups] + _numbers_in(groups)
        self._next_offsets += np.bincount(groups, minlength=len(self._next_offsets))
        return offsets


async def measure(
    key_count: int,
    *,
    topic_count: int,
    keys_of_object: int = RECORDS_MAX * KEYS_OF_RECORD,
    seed: int = 1,
    slot_count: int = 1,
    store: ObjectStore | None = None,
    index_bytes: int | None = None,
    is_told: bool = False,
) -> IndexSizes:
    """Make them, slot by slot, and count all that is left of every slot. `index_bytes`: of blooms that are kept in
    memory (default: a broker's). `is_told`: say when a slot is done."""
    index_bytes = TierConfig().index_bytes if index_bytes is None else index_bytes
    store = store if store is not None else MemoryObjectStore()
    writer = await LedgerWriter.open(
        store,
        BrokerKeys("benchmark/index"),
        identity=LedgerIdentity(store_uuid="index", cluster="benchmark", broker_name="index"),
        clock_ms=lambda: 0,
        random=Random(seed),
    )
    blooms = BloomCache(bytes_max=index_bytes)
    maker = IndexMaker(store, writer, topic_count=topic_count, keys_of_object=keys_of_object, blooms=blooms)
    rng, found = np.random.default_rng(seed), list[IndexSizes]()
    for number in range(slot_count):
        found.append(await maker.make(key_count // KEYS_OF_RECORD // slot_count, rng))
        if is_told:
            print(f"slot {number + 1} of {slot_count}: {found[-1].key_count:,} keys", flush=True)
    kept_bytes = _resident_bytes(blooms, writer.catalog)
    blooms.keep_only(())
    loaded = BloomCache(bytes_max=index_bytes)
    memory = LookupMemory(store, catalog=lambda: writer.catalog, blooms=loaded, fresh=None)
    await memory.load()
    loaded_bytes = _resident_bytes(loaded, writer.catalog)
    await memory.close()
    await writer.close()
    sums = IndexSizes(**{field.name: sum(getattr(each, field.name) for each in found) for field in fields(IndexSizes)})
    return replace(sums, resident_bytes=min(kept_bytes, loaded_bytes))


def _resident_bytes(blooms: BloomCache, catalog: Catalog) -> int:
    """Blooms of live objects that are in the cache."""
    found = (blooms.get(index) for index in catalog.indexes.values())
    return sum(len(pages) for pages in found if pages is not None)


def _numbers_in(groups: Longs) -> Longs:
    """The how-manieth of its group each is."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    numbers = np.empty(len(groups), np.int64)
    numbers[order] = np.arange(len(groups)) - np.searchsorted(ordered, ordered, side="left")
    return numbers


def _idx_bytes(rows: Longs, hashes: npt.NDArray[np.uint32], places: Longs) -> int:
    """The `.idx` part of a segment of these records."""
    ordinals = np.repeat(np.arange(len(rows), dtype=np.uint32), KEYS_OF_RECORD)
    encoded = encode_key_index(
        SegmentId(1, 1),
        hashes=hashes[rows].reshape(-1),
        ordinals=ordinals,
        physical_offsets=np.repeat(places[rows], KEYS_OF_RECORD),
    )
    return len(encoded.data)


def _part(
    topic: str,
    rows: Longs,
    places: Longs,
    sizes: Longs,
    queues: Longs,
    offsets: Longs,
    hashes: npt.NDArray[np.uint32],
) -> IndexedPart:
    return IndexedPart(
        topic=topic,
        incarnation=1,
        places=places[rows],
        sizes=sizes[rows],
        queue_ids=queues[rows],
        offsets=offsets[rows],
        newest_ms=np.full(len(rows), DAY_MS, np.int64),
        oldest_ms=0,
        key_hashes=salted(hashes[rows].reshape(-1), salt_of(topic, 1)),
        key_records=np.repeat(np.arange(len(rows), dtype=np.int64), KEYS_OF_RECORD),
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and judge; 1 when something is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--full", action="store_true", help=f"{WANTED_KEYS:,} keys, in {SLOTS} slots and one more")
    parser.add_argument("--folder", type=Path, help="where objects lie (default: in memory)")
    parser.add_argument("--scale", action="store_true", help=f"as --full, with --keys of {WANTED_KEYS:,} keys")
    options = parser.parse_args(arguments)
    is_whole = options.full or options.scale
    wanted_keys = options.keys if options.scale and not options.full else WANTED_KEYS
    slot_count = SLOTS + 1 if is_whole else 1
    key_count = wanted_keys // SLOTS * slot_count if is_whole else options.keys
    index_bytes = TierConfig().index_bytes * wanted_keys // WANTED_KEYS
    with tempfile.TemporaryDirectory(prefix="index-", dir=options.folder) as name:
        store = FileObjectStore(name, disk=RealDisk()) if options.folder else MemoryObjectStore()
        found = asyncio.run(
            measure(
                key_count,
                topic_count=options.topics,
                slot_count=slot_count,
                store=store,
                index_bytes=index_bytes,
                is_told=is_whole,
            )
        )
    return _report(found, topic_count=options.topics, wanted_keys=wanted_keys, is_whole=is_whole)


def _report(found: IndexSizes, *, topic_count: int, wanted_keys: int, is_whole: bool) -> int:
    count = found.key_count
    print(f"{count:,} keys of {topic_count} topics, {KEYS_OF_RECORD} a record, really made; bytes a key:")
    for name, size_bytes in (
        (".idx parts of segments", found.segment_bytes),
        ("objects of keys, blooms included", found.key_object_bytes),
        ("  blooms", found.bloom_bytes),
        ("objects of places", found.place_object_bytes),
        ("ledger", found.ledger_bytes),
    ):
        print(f"  {name:<36}{size_bytes / count:8.2f}")
    print(f"  {'stored':<36}{found.bytes_per_key:8.2f}")
    if is_whole:
        print(f"that is {wanted_keys:,} keys of {SLOTS} slots, and one slot more of which nearly all has expired:")
        stored, blooms = found.bytes_per_key * count, found.resident_bytes
        print(f"  {found.bloom_bytes / 1e6:.1f} MB of blooms, {blooms / 1e6:.1f} MB of them in the cache")
        stored, blooms = stored * WANTED_KEYS / wanted_keys, round(found.bloom_bytes * WANTED_KEYS / wanted_keys)
    else:
        print(
            f"extrapolated from {count:,} keys to {WANTED_KEYS:,}, and one of {SLOTS} slots more for what has expired:"
        )
        stored, blooms = found.bytes_per_key * WANTED_KEYS, round(found.blooms_of_wanted)
    print(f"  {stored / 1e9:.2f} GB stored, the ledger's words {found.ledger_bytes / count * WANTED_KEYS / 1e3:.0f} kB")
    print(
        f"written {found.written_bytes / count:.1f} bytes a key; processor seconds a million keys: making"
        f" {found.build_s * 1e6 / count:.2f}, merging to the top of a slot {found.merge_s * 1e6 / count:.2f}"
    )
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    verdicts = [
        Verdict("bytes a key stored", found.bytes_per_key, BYTES_PER_KEY_MAX),
        Verdict(f"blooms of {WANTED_KEYS:,} keys", blooms / 1e6, BLOOM_MB_MAX, "MB"),
        Verdict("blooms that found no room", (found.bloom_bytes - found.resident_bytes) / 1e6, 0.0, "MB"),
    ]
    return show_verdicts(verdicts)


if __name__ == "__main__":
    sys.exit(main())
