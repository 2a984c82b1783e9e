"""Cold tier and brokers joined, while brokers change: the cold tier is a real one, what brokers answer is made up."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from pathlib import Path
from typing import cast

import pytest

from tests.spark.cold_tier import ColdTier, directory_url, flights
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.private_requests import FlushedRange
from thermocline.spark.streaming.cold_view import ColdView
from thermocline.spark.streaming.live_view import LiveSnapshot, LiveTopic, LiveView
from thermocline.spark.streaming.stream_options import stream_options_from
from thermocline.spark.streaming.stream_sources import SourceSnapshot, StreamSources

KEY = ("orders", "broker-a")


class Brokers:
    """In place of a LiveView: one broker, whose store a test changes."""

    def __init__(self, store_uuid: str) -> None:
        self.store_uuid = store_uuid
        self.end = QueueOffset(150)

    def snapshot(self, *, fresh: bool, wait_ms: int, expected: Collection[tuple[str, str]]) -> LiveSnapshot:
        queue = FlushedRange(
            queue_id=0, local_start=QueueOffset(0), visible_start=QueueOffset(0), end=self.end, record_bytes=100
        )
        return LiveSnapshot(topics={KEY: LiveTopic(store_uuid=self.store_uuid, incarnation=1, queues={0: queue})})


@pytest.fixture
def tier(tmp_path: Path) -> ColdTier:
    tier = ColdTier(directory_url(tmp_path))
    tier.seal(flights("orders", 100, queue_count=1))
    return tier


def sources_of(tier: ColdTier, brokers: Brokers) -> StreamSources:
    options = stream_options_from({"path": tier.url, "topic": "orders", "namesrvAddr": "127.0.0.1:1"})
    seconds = itertools.count()
    view = ColdView(options.read, clock_s=lambda: float(next(seconds)))
    return StreamSources(options, view, cast("LiveView", brokers))


def ends(snapshot: SourceSnapshot) -> tuple[int, bool]:
    return snapshot.sources[KEY].end_offset(0), snapshot.is_complete


def test_a_new_master_that_has_not_taken_the_ledger_over_is_waited_for(tier: ColdTier) -> None:
    """The query ended, as if it were of another cluster."""
    brokers = Brokers("uuid-broker-a")
    sources = sources_of(tier, brokers)
    assert ends(sources.snapshot(now_ms=0)) == (150, True)
    brokers.store_uuid, brokers.end = "uuid-of-the-next", QueueOffset(170)
    assert ends(sources.snapshot(now_ms=0)) == (100, False)
    brokers.store_uuid = "uuid-broker-a"
    assert ends(sources.snapshot(now_ms=0)) == (170, True)


def test_a_broker_that_never_belonged_to_the_ledger_is_refused(tier: ColdTier) -> None:
    with pytest.raises(InvalidRequestError, match="belong to different clusters"):
        sources_of(tier, Brokers("another")).snapshot(now_ms=0)
