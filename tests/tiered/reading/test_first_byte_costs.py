"""How many requests a reader of history waits for before it has its first record: at most three in all cases.

With only the catalog in memory, as a broker has it; and for readers that have to open the catalog first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.lookup_history import CONFIG, MIB, NAMES, History, LaterReader, Sent, opened_later, tier_of
from benchmarks.synthetic_cold_tier import KEYS
from benchmarks.synthetic_hot_tier import TAG
from tests.full_cases import full
from thermocline.remoting.string_hash import tags_code
from thermocline.tiered.ledger.ledger_reader import PROBE_WINDOW_MAX, LedgerReader
from thermocline.tiered.ledger.ledger_writer import CHECKPOINT_INTERVAL
from thermocline.tiered.reading.cold_pull import ColdPull, ColdPullStatus
from thermocline.tiered.segments.segment_reader import WHOLE_PART_BYTES_MAX
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import MeteringObjectStore

FIRST_BYTE_MAX = 3
SAMPLES = 150
TAGS_CODES = frozenset({tags_code(TAG)})


def pull_of(sent: Sent, *, cut_ms: int = 0, tags_codes: frozenset[int] | None = None) -> ColdPull:
    return ColdPull(
        topic=sent.topic,
        queue_id=sent.queue_id,
        offset=sent.offset,
        count_max=32,
        bytes_max=1 << 20,
        cut_ms=cut_ms,
        tags_codes=tags_codes,
    )


async def first_byte(store: MemoryObjectStore, start: LaterReader, sent: Sent, pull: ColdPull) -> int:
    """Requests of a pull by a reader that holds only the catalog; it gives the record."""
    async with start.another(store, keeps=False) as later:
        result = await later.reader.pull(pull)
        assert result.status is ColdPullStatus.FOUND
        assert bytes(result.buffers[0])[: len(sent.record)] == sent.record
        return later.request_count


async def check_first_bytes(history: History) -> Counter[str]:
    """The most that pulls of each kind took: of everything, by tag, and each with a cut somewhere before."""
    most = Counter[str]()
    async with opened_later(history.store, keeps=False) as start:
        for _ in range(SAMPLES):
            sent, other = history.random.choice(history.sent), history.random.choice(history.sent)
            earlier_ms = min(sent.store_ms, other.store_ms)
            for kind, pull in (
                ("all", pull_of(sent)),
                ("all, a cut before", pull_of(sent, cut_ms=earlier_ms)),
                ("all, from the cut on", pull_of(sent, cut_ms=sent.store_ms)),
                ("by tag", pull_of(sent, tags_codes=TAGS_CODES)),
                ("by tag, from the cut on", pull_of(sent, cut_ms=sent.store_ms, tags_codes=TAGS_CODES)),
            ):
                most[kind] = max(most[kind], await first_byte(history.store, start, sent, pull))
    return most


@pytest.mark.parametrize("is_indexed", [False, True], ids=["not indexed", "indexed"])
@pytest.mark.parametrize("is_packed", [True, *full(False)], ids=["packs", "own segments"])
async def test_the_first_record_of_history(is_packed: bool, is_indexed: bool) -> None:
    history = History()
    async with tier_of(history) as tier:
        await history.write(tier, rounds=16, is_packed=is_packed, is_indexed=is_indexed)
        assert bool(tier.catalog.packs) == is_packed
    assert max((await check_first_bytes(history)).values()) <= FIRST_BYTE_MAX


async def test_the_first_record_of_a_large_piece() -> None:
    """One that is not read whole: where its frames are says its entry in the pack."""
    history = History()
    config = replace(CONFIG, segment_bytes=64 * MIB, frame_bytes=MIB, pack_bytes=64 * MIB)
    async with tier_of(history, config) as tier:
        for _ in range(12):
            for name in NAMES[:2]:
                history.send(name, history.random.randrange(2), body_bytes=MIB // 2)
            history.hot.now_ms += 20
        await history.pack(tier)
        (pack,) = tier.catalog.packs.values()
        assert min(piece.stored_bytes for piece in pack.table().pieces()) > WHOLE_PART_BYTES_MAX
    assert max((await check_first_bytes(history)).values()) <= FIRST_BYTE_MAX


async def test_the_first_record_for_a_reader_that_opens_the_catalog() -> None:
    """The catalog is its checkpoint's objects and the entries since, however long the history; then it is the same."""
    history = History()
    async with tier_of(history) as tier:
        await history.write(tier, rounds=40, is_packed=False)
        assert tier.catalog.version > 4 * CHECKPOINT_INTERVAL
        since = tier.catalog.version - tier.catalog.checkpoint_version
    metered = MeteringObjectStore(history.store)
    opened = await LedgerReader.open(metered, KEYS)
    catalog, base = opened.catalog, opened.base
    assert base is not None
    # The hint, the checkpoint's head and entry, its objects, entries and those that are not there yet, the last again.
    assert metered.counters.request_count <= 3 + len(base.buckets) + since + PROBE_WINDOW_MAX + 1
    assert catalog.segment_count == 40 * len(NAMES)
    later = LaterReader(history.store, catalog, blooms=None, fresh=None)
    for sent in history.random.sample(history.sent, 10):
        assert await first_byte(history.store, later, sent, pull_of(sent)) <= FIRST_BYTE_MAX
    await later.close()
