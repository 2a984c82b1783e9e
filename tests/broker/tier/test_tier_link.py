"""TierLink: what the hot process has of the cold tier: the tables that the tier process sends."""

from __future__ import annotations

import pytest

from thermocline.broker.helpers import HelperHub
from thermocline.broker.helpers.helper_protocol import CatalogTable, ColdRange, HelloReply
from thermocline.broker.tier.tier_link import NOTHING, TierLink
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.store.config import StoreConfig
from thermocline.tiered.budgets import TierConfig

TOPIC, INCARNATION = "orders", 3


@pytest.fixture
def link() -> TierLink:
    settings = HelloReply(
        store=StoreConfig(root_path="/store"),
        tier=TierConfig(),
        store_uuid="u",
        cluster_name="c",
        broker_name="b",
        was_clean=True,
    )
    return TierLink(
        HelperHub(generation=1, build_id=1, settings=settings),
        incarnation_of=lambda topic: INCARNATION,
        timeout_ms=1_000,
        on_connected=lambda: None,
        on_fenced=lambda fenced: None,
    )


def table(version: int, *ranges: ColdRange, sequence: int = 1) -> CatalogTable:
    return CatalogTable(sequence=sequence, version=version, committed_offset=PhysicalOffset(0), ranges=list(ranges))


def cold(start: int, end: int, *, incarnation: int = INCARNATION) -> ColdRange:
    return ColdRange(
        topic=TOPIC,
        incarnation=incarnation,
        queue_id=0,
        min_offset=QueueOffset(start),
        end_offset=QueueOffset(end),
    )


def bounds(link: TierLink) -> tuple[int, int] | None:
    found = link.bounds(TOPIC, 0)
    return None if found is None else (found.min_offset, found.end_offset)


def test_an_empty_ledger_is_a_report_too(link: TierLink) -> None:
    """Version 0 has no commit yet; before the first table nothing is known."""
    assert bounds(link) is None
    link.apply_table(table(0))
    assert link.bounds(TOPIC, 0) == NOTHING


def test_ranges_come_change_and_go(link: TierLink) -> None:
    link.apply_table(table(4, cold(0, 10)))
    assert bounds(link) == (0, 10)
    link.apply_table(table(5, cold(3, 12), sequence=2))
    assert bounds(link) == (3, 12)
    link.apply_table(table(6, cold(12, 12), sequence=3))
    assert link.bounds(TOPIC, 0) == NOTHING
    link.apply_table(table(7, cold(0, 9, incarnation=INCARNATION - 1), sequence=4))
    assert link.bounds(TOPIC, 0) == NOTHING, "that topic was deleted"


def test_a_full_table_replaces_the_ranges_of_an_earlier_tier_process(link: TierLink) -> None:
    link.apply_table(table(4, cold(0, 10)))
    link.apply_table(table(5, sequence=1))
    assert link.bounds(TOPIC, 0) == NOTHING
