"""Visible queues: the start follows the cut exactly, over gaps, restarts of a name, and deleted files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.broker.cold_tier import MemoryColdTier
from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.pulling import expire_local_files
from thermocline.broker.queues.visible_queues import VisibleQueues
from thermocline.remoting.errors import UnavailableError
from thermocline.store.log.message_draft import MessageDraft
from thermocline.store.queues.consume_queue import FILLER, UNIT, ConsumeQueue

TOPIC = "TopicA"


@dataclass
class Case:
    """A queue, and a cut that the test sets."""

    broker: DataBroker
    cold: MemoryColdTier
    visible: VisibleQueues
    cut_ms: int = 0

    @property
    def queue(self) -> ConsumeQueue:
        return self.broker.store.queues.find_or_create(TOPIC, 0)

    def put(self, store_timestamp_ms: int) -> None:
        """A message stored at a time; times rise."""
        self.broker.clock.now_ms = store_timestamp_ms
        self.broker.store.put(
            MessageDraft(
                topic=TOPIC,
                queue_id=0,
                body=bytes(200),
                properties_text=b"",
                born_timestamp_ms=0,
                born_host=("127.0.0.1", 1),
            )
        )

    def gap(self, count: int) -> None:
        """Offsets without messages, as recovery may leave them."""
        for _ in range(count):
            self.queue.append_unit(*UNIT.unpack(FILLER))


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[Case]:
    cold = MemoryColdTier()
    async with data_broker(tmp_path, topics=[TOPIC], cold=cold, start=False, log_file_bytes=4_096) as broker:
        base_ms = broker.clock.now_ms
        case = Case(
            broker,
            cold,
            VisibleQueues(
                broker.store, cold, expired_before_ms=lambda topic: base_ms + case.cut_ms if case.cut_ms else 0
            ),
        )
        yield case


async def test_without_a_cut_everything_is_visible(case: Case) -> None:
    base_ms = case.broker.clock.now_ms
    assert case.visible.hot_start(case.queue) == 0
    for number in range(3):
        case.put(base_ms + number)
    assert (case.visible.hot_start(case.queue), case.visible.end(case.queue)) == (0, 3)


async def test_the_cut_is_exact_over_gaps(case: Case) -> None:
    """An offset without a message is as old as the message behind it: it hides none that has not expired."""
    base_ms = case.broker.clock.now_ms
    case.put(base_ms + 10)
    case.gap(5_000)
    case.put(base_ms + 20)
    case.put(base_ms + 30)
    case.gap(3)
    for cut_ms, start in ((5, 0), (10, 0), (11, 1), (20, 1), (21, 5_002), (30, 5_002), (31, 5_003)):
        case.cut_ms = cut_ms
        assert case.visible.hot_start(case.queue) == start


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=25),
    cuts=st.lists(st.integers(1, 90), min_size=1, max_size=6).map(sorted),
)
async def test_the_start_is_the_first_message_that_has_not_expired(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], cuts: list[int]
) -> None:
    """Against a plain list, for a cut that moves on."""
    async with data_broker(tmp_path_factory.mktemp("store"), topics=[TOPIC], start=False) as broker:
        base_ms = broker.clock.now_ms
        cold = MemoryColdTier()
        case = Case(
            broker, cold, VisibleQueues(broker.store, cold, expired_before_ms=lambda topic: base_ms + case.cut_ms)
        )
        times: list[int | None] = []
        now_ms = 0
        for gap_count, elapsed_ms in steps:
            now_ms += elapsed_ms
            case.gap(gap_count)
            case.put(base_ms + now_ms)
            times += [None] * gap_count + [now_ms]
        for cut_ms in cuts:
            case.cut_ms = cut_ms
            last_expired = max(
                (o for o, time_ms in enumerate(times) if time_ms is not None and time_ms < cut_ms), default=-1
            )
            # A gap at the very front has no message in front of it, so the queue begins behind it.
            assert case.visible.hot_start(case.queue) == max(case.queue.min_offset, last_expired + 1)


async def test_a_queue_of_a_new_topic_does_not_inherit_a_start(case: Case) -> None:
    """Its offsets begin at 0 again."""
    base_ms = case.broker.clock.now_ms
    for number in range(5):
        case.put(base_ms + number)
    case.cut_ms = 4
    assert case.visible.hot_start(case.queue) == 4
    case.broker.store.queues.remove_topic(TOPIC)
    case.put(base_ms + 9)
    assert case.visible.hot_start(case.queue) == 0


async def test_nothing_of_a_deleted_topic_is_kept(case: Case) -> None:
    """Its queues would stay in memory, one for each life of the name."""
    broker, visible = case.broker, case.broker.parts.reads.visible
    await broker.make_topic(TOPIC, attributes="+thermocline.ttl.ms=1000")
    case.put(broker.clock.now_ms)
    broker.clock.now_ms += 2_000
    assert visible.hot_start(case.queue) == 1
    assert list(visible._starts) == [case.queue]
    await broker.parts.tables.topics.delete(TOPIC)
    assert visible._starts == {}


async def test_a_queue_with_its_first_message_needs_no_tier(case: Case) -> None:
    """Right after a start the tier has not been heard of, and most queues do not need it."""
    case.cold.is_known = False
    case.put(case.broker.clock.now_ms)
    assert await case.visible.minimum(case.queue) == 0


async def test_minimum_in_front_of_the_local_files(case: Case) -> None:
    base_ms = case.broker.clock.now_ms
    for number in range(40):
        case.put(base_ms + number)
    case.cold.copy_from(case.broker.store, TOPIC, 0, end=30)
    local_minimum = expire_local_files(case.broker, 25)
    assert 0 < local_minimum <= 25
    visible, queue = case.visible, case.queue
    assert (visible.cold_start(queue), visible.near_minimum(queue), await visible.minimum(queue)) == (0, 0, 0)
    case.cut_ms = 7
    assert await visible.minimum(queue) == 7
    case.cold.is_away = True
    with pytest.raises(UnavailableError):
        await visible.minimum(queue)
    case.cut_ms = local_minimum + 3
    assert await visible.minimum(queue) == local_minimum + 3
    case.cold.is_known = False
    assert visible.cold_start(queue) is None
    assert visible.near_minimum(queue) == local_minimum + 3
    with pytest.raises(UnavailableError):
        await visible.minimum(queue)
