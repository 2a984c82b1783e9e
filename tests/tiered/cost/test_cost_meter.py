"""The cost meter: which account a request counts for, and what of it was within the last hour."""

from __future__ import annotations

from thermocline.tiered.cost import cost_meter
from thermocline.tiered.cost.cost_meter import HOUR_MS, MINUTE_MS, OTHER_TOPICS, CostMeter, Purpose
from thermocline.tiered.segments.object_keys import BrokerKeys
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.stores.memory import MemoryObjectStore
from thermocline.tiered.wrappers import MeteringObjectStore, Verb

KEYS = BrokerKeys.of(cluster="C", broker_name="b")


class Metered:
    """A store in memory behind a meter, on a clock that is moved."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.meter = CostMeter(KEYS, lambda: self.now_ms)
        self.store = MeteringObjectStore(MemoryObjectStore(), self.meter.totals, self.meter.accounts_of)

    async def put_segment(self, topic: str, size_bytes: int = 10) -> None:
        for key in KEYS.segment(topic, SegmentId(1, 1)):
            await self.store.put(key, bytes(size_bytes))


async def test_each_request_counts_for_its_purpose_and_segments_for_their_topic() -> None:
    metered = Metered()
    store, meter = metered.store, metered.meter
    await metered.put_segment("orders", 100)
    await store.get_range(KEYS.segment("orders", SegmentId(1, 1))[0], start=0, end=40)
    await metered.put_segment("a b", 1)
    await store.create_if_absent(KEYS.ledger_entry(1), b"123")
    await store.put(KEYS.head_hint, b"1")
    await store.put(KEYS.checkpoint_head(1), b"1")
    await store.put(KEYS.state(epoch=1, sequence=1), b"1")
    await store.put(f"{KEYS.packs_prefix}forever/0000000001-0000000002.pack", b"1234")
    await store.put(KEYS.index("places", SegmentId(1, 3)), b"1")
    async for _ in store.list(KEYS.topics_prefix):
        pass
    await store.put(f"{KEYS.doctor_prefix}x/y", b"1")
    assert {name: account.put_count for name, account in meter.by_topic.items()} == {"orders": 3, "a=20b": 3}
    assert (meter.by_topic["orders"].sent_bytes, meter.by_topic["orders"].received_bytes) == (300, 40)
    puts = {purpose: account.put_count for purpose, account in meter.by_purpose.items()}
    assert puts == {
        Purpose.SEGMENTS: 6,
        Purpose.PACKS: 1,
        Purpose.INDEX: 1,
        Purpose.LEDGER: 2,
        Purpose.CHECKPOINTS: 1,
        Purpose.STATE: 1,
        Purpose.PINS: 0,
        Purpose.DOCTOR: 1,
        Purpose.OTHER: 0,
    }
    assert meter.by_purpose[Purpose.OTHER].requests[Verb.LIST] == 1
    assert meter.totals.request_count == sum(each.request_count for each in meter.by_purpose.values()) == 15
    assert meter.totals.sent_bytes == sum(each.sent_bytes for each in meter.by_purpose.values())


async def test_the_last_hour_forgets_older_requests() -> None:
    metered = Metered()
    meter = metered.meter
    for minute in range(150):
        metered.now_ms = meter.started_ms + minute * MINUTE_MS
        await metered.put_segment("orders")
        if minute == 29:
            recent = meter.recent()
            assert recent.elapsed_ms == 29 * MINUTE_MS
            assert recent.by_purpose[Purpose.SEGMENTS].put_count == 90
    recent = meter.recent()
    assert recent.elapsed_ms == HOUR_MS
    assert recent.by_purpose[Purpose.SEGMENTS].put_count == 61 * 3, "now, and the sixty minutes before"
    metered.now_ms += HOUR_MS - 10 * MINUTE_MS
    assert meter.recent().by_purpose[Purpose.SEGMENTS].put_count == 11 * 3, "requests of the minutes since then"
    metered.now_ms += HOUR_MS
    assert meter.recent().by_purpose[Purpose.SEGMENTS].request_count == 0
    assert meter.totals.put_count == 450


async def test_topics_beyond_the_bound_share_an_account() -> None:
    metered = Metered()
    meter = metered.meter
    for number in range(cost_meter.TOPICS_MAX + 5):
        meter.accounts_of(f"{KEYS.topics_prefix}t{number}/x.log")
    await metered.put_segment("one more")
    await metered.put_segment("t7")
    assert len(meter.by_topic) == cost_meter.TOPICS_MAX + 1
    assert meter.by_topic[OTHER_TOPICS].put_count == meter.by_topic["t7"].put_count == 3
