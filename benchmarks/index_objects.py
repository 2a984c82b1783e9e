"""What do index objects store for a key, and how long are they in the making? `python -m benchmarks.index_objects`

Workload: records of two keys each (an id and a key, hashes that nobody can foresee), sizes of 300 to 1 700 bytes, of
some topics with eight queues each, between each other in the log. Of each topic the `.idx` parts of its segments; of
each half a million keys the objects of the lowest level; then merges by four until there is one. In memory, without
records: what is counted are bytes stored for a key, and seconds.

Extrapolated to 100 million keys in 30 days: objects of a twelfth of that, the expired part of the oldest one included.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from thermocline.tiered.indexes.index_builder import IndexBuilder
from thermocline.tiered.indexes.index_entry import PLACES, IndexEntry
from thermocline.tiered.indexes.index_merger import IndexMerger
from thermocline.tiered.indexes.index_policy import FAN_IN, SLOTS
from thermocline.tiered.indexes.indexed_parts import IndexedPart
from thermocline.tiered.indexes.key_pages import salt_of, salted
from thermocline.tiered.indexes.range_cut import RECORDS_MAX
from thermocline.tiered.key_index import encode_key_index
from thermocline.tiered.ledger_entry import LedgerChanges
from thermocline.tiered.ledger_writer import LedgerIdentity, LedgerWriter
from thermocline.tiered.memory import MemoryObjectStore
from thermocline.tiered.object_keys import BrokerKeys
from thermocline.tiered.packs.ttl_class import ttl_class
from thermocline.tiered.segment_format import SegmentId

KEYS_OF_RECORD = 2
QUEUES = 8
SEGMENT_RECORDS = 131_072
DAY_MS = 86_400_000
CLASS = ttl_class(30 * DAY_MS)

WANTED_KEYS = 100_000_000

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSizes:
    """Bytes of everything, and seconds. `ledger_bytes`: what entries say of the objects that are left."""

    key_count: int
    segment_bytes: int
    key_object_bytes: int
    bloom_bytes: int
    place_object_bytes: int
    ledger_bytes: int
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


async def measure(
    key_count: int, *, topic_count: int, keys_of_object: int = RECORDS_MAX * KEYS_OF_RECORD, seed: int = 1
) -> IndexSizes:
    """Make them, merge them until one of each kind is left, and count."""
    rng = np.random.default_rng(seed)
    record_count = key_count // KEYS_OF_RECORD
    store = MemoryObjectStore()
    writer = await LedgerWriter.open(
        store,
        BrokerKeys("benchmark/index"),
        identity=LedgerIdentity(store_uuid="index", cluster="benchmark", broker_name="index"),
        clock_ms=lambda: 0,
        random=Random(seed),
    )
    sizes = rng.integers(300, 1_700, record_count)
    places: Longs = np.cumsum(sizes) - sizes
    topics = rng.integers(0, topic_count, record_count)
    queues = rng.integers(0, QUEUES, record_count)
    offsets = _numbers_in(topics * QUEUES + queues)
    hashes = rng.integers(0, 1 << 32, (record_count, KEYS_OF_RECORD), np.uint32)
    segment_bytes = 0
    for topic in range(topic_count):
        mine = np.flatnonzero(topics == topic)
        for start in range(0, len(mine), SEGMENT_RECORDS):
            segment_bytes += _idx_bytes(mine[start : start + SEGMENT_RECORDS], hashes, places)

    builder = IndexBuilder(writer, spool_folder=None, clock=lambda: 0)
    merger = IndexMerger(writer, spool_folder=None, clock=lambda: 0)
    levels: dict[str, list[IndexEntry]] = {PLACES: [], CLASS: []}
    began, written_bytes = time.process_time(), 0
    records_of_object = keys_of_object // KEYS_OF_RECORD
    for start in range(0, record_count, records_of_object):
        end = min(start + records_of_object, record_count)
        parts = [
            _part(f"topic-{topic}", start + np.flatnonzero(topics[start:end] == topic), places, sizes, queues, offsets,
                  hashes)
            for topic in range(topic_count)
        ]  # fmt: skip
        first, last = int(places[start]), int(places[end - 1] + sizes[end - 1])
        result = await builder.write({PLACES: list(parts), CLASS: parts}, start=first, end=last, gaps={})
        written_bytes += result.written_bytes
        for entry in result.indexes_in:
            levels[entry.ttl_class].append(entry)
        await writer.commit(LedgerChanges(indexes_in=tuple(result.indexes_in), indexed_to=last))
    built = time.process_time()
    for entries in levels.values():
        while len(entries) > 1:
            above: list[IndexEntry] = []
            for start in range(0, len(entries), FAN_IN):
                group = entries[start : start + FAN_IN]
                if len(group) == 1:
                    above += group
                    continue
                merged = await merger.merge(group, cuts_ms={})
                written_bytes += merged.written_bytes
                await writer.commit(LedgerChanges(indexes_in=tuple(merged.indexes_in), indexes_out=merged.indexes_out))
                above += merged.indexes_in
            entries[:] = above
    merged_s = time.process_time()
    (keys,), (of_places,) = levels[CLASS], levels[PLACES]
    await writer.close()
    assert keys.key_count == record_count * KEYS_OF_RECORD
    assert of_places.record_count == record_count
    return IndexSizes(
        key_count=record_count * KEYS_OF_RECORD,
        segment_bytes=segment_bytes,
        key_object_bytes=keys.object_bytes,
        bloom_bytes=keys.bloom_bytes,
        place_object_bytes=of_places.object_bytes,
        ledger_bytes=(len(keys.directory) + len(of_places.directory) + 2_000) * 4 // 3,
        written_bytes=written_bytes,
        build_s=built - began,
        merge_s=merged_s - built,
    )


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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--topics", type=int, default=20)
    options = parser.parse_args()
    found = asyncio.run(measure(options.keys, topic_count=options.topics))
    count = found.key_count
    print(f"{count:,} keys of {options.topics} topics, {KEYS_OF_RECORD} a record; bytes a key:")
    for name, size_bytes in (
        (".idx parts of segments", found.segment_bytes),
        ("objects of keys, blooms included", found.key_object_bytes),
        ("  blooms", found.bloom_bytes),
        ("objects of places", found.place_object_bytes),
        ("ledger", found.ledger_bytes),
    ):
        print(f"  {name:<36}{size_bytes / count:8.2f}")
    print(f"  {'stored':<36}{found.bytes_per_key:8.2f}   (wanted: at most 14)")
    print(f"{WANTED_KEYS:,} keys: {found.bytes_per_key * WANTED_KEYS / 1e9:.2f} GB stored,")
    print(f"  blooms {found.blooms_of_wanted / 1e6:.1f} MB   (wanted: at most 128)")
    print(f"  ledger's words {found.ledger_bytes / count * WANTED_KEYS / 1e3:.0f} kB")
    print(
        f"written {found.written_bytes / count:.1f} bytes a key; processor seconds a million keys: making"
        f" {found.build_s * 1e6 / count:.2f}, merging to the top {found.merge_s * 1e6 / count:.2f}"
    )
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB, all objects included")


if __name__ == "__main__":
    main()
