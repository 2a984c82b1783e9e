"""What waits of a topic at its seal age, half a segment or more, is sealed as one object, which no merge rewrites.

Covers `tiered/sealing/catalog_commits.py`, `tiered/sealing/seal_demands.py`.
"""

from __future__ import annotations

import pytest

from benchmarks.synthetic_cold_tier import KEYS, SyntheticColdTier, SyntheticTopic, opened
from benchmarks.synthetic_hot_tier import SyntheticHotTier
from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.ledger.ledger_reader import open_catalog
from thermocline.tiered.objects.object_store import Data
from thermocline.tiered.reading.cold_pull import ColdPull, ColdPullStatus
from thermocline.tiered.stores.memory import MemoryObjectStore

AGE_MS = 60_000
SEGMENT_BYTES = 64 << 10
BODY_BYTES = 1_000
CONFIG = TierConfig(
    cold_url="memory://joined",
    seal_age_ms=AGE_MS,
    segment_bytes=SEGMENT_BYTES,
    frame_bytes=8 << 10,
    merge_fan_in=2,
)
NAMES = ("large", "small")


class Store(MemoryObjectStore):
    """Remembers what was put; `is_away` refuses it."""

    def __init__(self) -> None:
        super().__init__()
        self.put_keys: list[str] = []
        self.is_away = False

    async def put(self, key: str, data: Data) -> None:
        """See ObjectStore."""
        if self.is_away and key.startswith(KEYS.topics_prefix):
            raise ObjectStoreUnavailableError("away")
        self.put_keys.append(key)
        await super().put(key, data)


def send(tier: SyntheticColdTier, name: str, size_bytes: int) -> list[str]:
    """Messages of so many bytes; their keys."""
    keys: list[str] = []
    while size_bytes > 0:
        size_bytes -= len(tier.hot.append(name, len(keys) % 2, body_bytes=BODY_BYTES))
        keys.append(tier.hot.last_key)
    return keys


async def seal_by_age(tier: SyntheticColdTier) -> None:
    tier.hot.now_ms += AGE_MS
    tier.report()
    await tier.service.run_once()


async def read_count(tier: SyntheticColdTier, name: str) -> int:
    """Records of all queues, as a consumer reads them."""
    count = 0
    for queue_id in range(2):
        offset = 0
        while True:
            pull = ColdPull(
                topic=name, queue_id=queue_id, offset=offset, count_max=32, bytes_max=1 << 20, cut_ms=0, group="g"
            )
            result = await tier.reader.pull(pull)
            if result.status in (ColdPullStatus.ABOVE_END, ColdPullStatus.NO_QUEUE):
                break
            count, offset = count + result.next_offset - offset, result.next_offset
    return count


async def test_half_a_segment_is_one_object_of_its_own_and_less_goes_into_a_pack() -> None:
    store, hot = Store(), SyntheticHotTier()
    topics = {name: SyntheticTopic() for name in NAMES}
    async with opened(store, CONFIG, hot=hot, topics=topics) as tier:
        keys: list[str] = []
        for number in range(1, 4):
            store.put_keys.clear()
            keys += send(tier, "large", SEGMENT_BYTES // 2)
            send(tier, "small", SEGMENT_BYTES // 4)
            await seal_by_age(tier)
            sealed = [key for key in store.put_keys if key.startswith((KEYS.topics_prefix, KEYS.packs_prefix))]
            assert len(sealed) == 2, "an object for each"
            (segment,) = [key for key in sealed if key.startswith(KEYS.topics_prefix)]
            assert segment.endswith(".pack")
            assert len(tier.catalog.topics["large"].segments) == number
        assert set(tier.catalog.packed) == {"small"}
        assert await tier.merge_all() > 0
        assert len(tier.catalog.topics["large"].segments) == 3
        assert await open_catalog(store, KEYS) == tier.catalog
        assert await read_count(tier, "large") == len(keys)
        for key in (keys[0], keys[-1]):
            found = await tier.reader.query_key("large", key, begin_ms=0, end_ms=1 << 60, count_max=4, cut_ms=0)
            assert len(found) == 1


async def test_a_full_segment_has_three_objects_as_before() -> None:
    store, hot = Store(), SyntheticHotTier()
    async with opened(store, CONFIG, hot=hot, topics={"large": SyntheticTopic()}) as tier:
        send(tier, "large", SEGMENT_BYTES)
        tier.report()
        await tier.service.run_once()
        (segment,) = tier.catalog.topics["large"].segments
        assert len(set(segment.keys)) == 3


async def test_one_that_cannot_be_put_is_sealed_later_and_leaves_nothing() -> None:
    store, hot = Store(), SyntheticHotTier()
    async with opened(store, CONFIG, hot=hot, topics={"large": SyntheticTopic()}) as tier:
        keys = send(tier, "large", SEGMENT_BYTES // 2)
        store.is_away = True
        with pytest.raises(ObjectStoreUnavailableError):
            await seal_by_age(tier)
        assert not tier.writer.under_way(), "its id is given up"
        store.is_away = False
        await seal_by_age(tier)
        assert await read_count(tier, "large") == len(keys)
        await tier.service.sweep_orphans()
        live = tier.catalog.live_keys()
        assert {key for key in store.objects if key.startswith(KEYS.topics_prefix)} <= live
