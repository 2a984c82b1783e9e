"""Requests of each topic: its own, its share, and no request without a topic.

Covers `tiered/catalog/ledger_entry.py`.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiered.cost.metered_tier import KEYS, MeteredTier, Sender
from thermocline.tiered.bill import topic_shares
from thermocline.tiered.bill.topic_shares import NAMES, RECEIVED, TopicShares, rounded
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.catalog.catalog import Catalog
from thermocline.tiered.cost.cost_meter import OTHER_TOPICS, CostMeter, Purpose
from thermocline.tiered.cost.request_kind import RequestKind, requests_by_kind
from thermocline.tiered.wrappers import Verb

CONFIG = TierConfig(
    cold_url="memory://shares",
    segment_bytes=256 << 10,
    frame_bytes=32 << 10,
    seal_age_ms=30_000,
    grace_ms=300_000,
    merge_fan_in=4,
)


def ask(meter: CostMeter, key: str, verb: Verb, count: int = 1) -> None:
    for counters in (meter.totals, *meter.accounts_of(key)):
        counters.requests[verb] += count


def assert_nothing_is_left_over(shares: TopicShares, topics: list[str]) -> None:
    """Requests of each kind, errors and bytes of all rows are the meter's."""
    rows = shares.rows(topics)
    for kind, count in requests_by_kind(shares.meter.totals.requests).items():
        assert sum(row.own[kind] + row.shared[kind] for row in rows) == count
    assert sum(row.own[RECEIVED] + row.shared[RECEIVED] for row in rows) == shares.meter.totals.received_bytes
    assert all(count >= 0 for row in rows for count in (*row.own.values(), *row.shared.values()))


async def test_shares_of_a_whole_tier_add_up_and_follow_bytes() -> None:
    """Large topics with segments of their own, small ones in packs; merged, indexed, expired, collected, and read."""
    senders = {
        "large": Sender(per_minute=300, body_bytes=900),
        "small": Sender(per_minute=20, body_bytes=300, ttl_ms=300_000),
        "twice": Sender(per_minute=40, body_bytes=300, ttl_ms=300_000),
        "silent": Sender(per_minute=0),
    }
    tier = MeteredTier(senders, step_ms=5_000, is_whole=True)
    shares = TopicShares(tier.meter)
    tier.on_sealed = shares.settle
    before = {topic: shares.of(topic) for topic in senders}
    async with tier.opened(CONFIG) as service:
        for _ in range(20):
            await tier.run(1)
            for pack in list(service.catalog.packs.values())[:2]:
                await tier.store.get_range(pack.key, start=0, end=100)
            shares.settle(service.catalog, {})
            assert_nothing_is_left_over(shares, list(senders))
            for topic, amounts in before.items():
                now = shares.of(topic)
                assert all(now[name] >= amounts[name] for name in NAMES), "counters only grow"
                before[topic] = now
        rows = {row.topic: row for row in shares.rows(senders)}
    assert rows["silent"].own == rows["silent"].shared == dict.fromkeys(NAMES, 0)
    assert rows["large"].own[RequestKind.PUT] > 10
    assert rows["small"].own[RequestKind.PUT] < rows["small"].shared[RequestKind.PUT]
    for kind in (RequestKind.PUT, RequestKind.GET):
        part = rows["twice"].shared[kind] / rows["small"].shared[kind]
        assert part == pytest.approx(2, rel=0.3), "shares are by bytes"


def test_requests_between_commits_count_for_the_topics_of_the_next_commit() -> None:
    meter = CostMeter(KEYS, lambda: 0)
    shares = TopicShares(meter)
    ask(meter, f"{KEYS.doctor_prefix}x", Verb.PUT, 7)
    ask(meter, KEYS.ledger_entry(1), Verb.CREATE_IF_ABSENT, 4)
    shares.settle(Catalog.empty(), {"a": 3, "b": 1})
    ask(meter, KEYS.ledger_entry(2), Verb.CREATE_IF_ABSENT, 5)
    ask(meter, KEYS.state(epoch=1, sequence=1), Verb.PUT, 1)
    assert shares.of("a")[RequestKind.PUT] == 3
    shares.settle(Catalog.empty(), {})
    assert shares.of("b")[RequestKind.PUT] == 1, "no seal has run since"
    rows = {row.topic: row.shared[RequestKind.PUT] for row in shares.rows(["a", "b"])}
    assert rows == {"a": 3, "b": 1, OTHER_TOPICS: 7 + 5 + 1}
    shares.settle(Catalog.empty(), {"b": 10})
    rows = {row.topic: row.shared[RequestKind.PUT] for row in shares.rows(["a", "b"])}
    assert rows == {"a": 3, "b": 7, OTHER_TOPICS: 7}
    assert shares.meter.by_purpose[Purpose.DOCTOR].put_count == 7


def test_topics_beyond_the_bound_have_a_share_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_shares, "TOPICS_MAX", 3)
    meter = CostMeter(KEYS, lambda: 0)
    shares = TopicShares(meter)
    ask(meter, KEYS.ledger_entry(1), Verb.CREATE_IF_ABSENT, 100)
    shares.settle(Catalog.empty(), {f"t{number}": 1 for number in range(10)})
    assert shares.of("t2")[RequestKind.PUT] == pytest.approx(10)
    rows = shares.rows([f"t{number}" for number in range(10)])
    assert [row.shared[RequestKind.PUT] for row in rows] == [10, 10, 10, *([0] * 7), 70]


@settings(max_examples=200)
@given(weights=st.lists(st.integers(0, 1 << 40), min_size=1, max_size=40), total=st.integers(0, 10_000))
def test_rounded_shares_add_up(weights: list[int], total: int) -> None:
    whole = sum(weights) or 1
    weights[0] += whole - sum(weights)
    parts = {str(number): total * weight / whole for number, weight in enumerate(weights)}
    counts = rounded(parts, total)
    assert sum(counts.values()) == total
    assert all(abs(counts[name] - parts[name]) < 1.001 for name in parts)
