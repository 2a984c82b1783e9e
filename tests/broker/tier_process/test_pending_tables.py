"""Merged tables have the same effect on a tier process as the single tables in turn."""

from thermocline.broker.helpers.helper_protocol import QueueState, QueueTable, TopicState
from thermocline.broker.tier_process.pending_tables import PendingTables


def topic_state(topic: str, incarnation: int, *, cut_ms: int = 0, deleted: bool = False) -> TopicState:
    return TopicState(
        topic=topic,
        incarnation=incarnation,
        ttl_ms=None,
        expired_before_ms=0,
        cut_ms=cut_ms,
        tiered=True,
        deleted=deleted,
    )


def queue_state(topic: str, queue_id: int, end_offset: int) -> QueueState:
    return QueueState(topic=topic, queue_id=queue_id, min_offset=0, end_offset=end_offset)


def table(sequence: int, *states: TopicState | QueueState) -> QueueTable:
    return QueueTable(
        sequence=sequence,
        log_offset=sequence * 100,
        topics=[state for state in states if isinstance(state, TopicState)],
        queues=[state for state in states if isinstance(state, QueueState)],
        pressure=sequence % 2 == 0,
    )


def test_nothing_is_none() -> None:
    assert PendingTables().take_merged() is None


def test_the_last_word_on_each_counts_and_is_taken_once() -> None:
    pending = PendingTables()
    pending.add(table(1, topic_state("a", 1), queue_state("a", 0, 5), queue_state("a", 1, 7)))
    pending.add(table(2, topic_state("a", 1, cut_ms=9), queue_state("a", 0, 6)))
    expected = table(2, topic_state("a", 1, cut_ms=9), queue_state("a", 0, 6), queue_state("a", 1, 7))
    assert pending.take_merged() == expected
    assert pending.take_merged() is None
    pending.add(table(3, queue_state("b", 0, 1)))
    assert pending.take_merged() == table(3, queue_state("b", 0, 1))


def test_queues_of_an_earlier_life_are_not_the_next_ones() -> None:
    pending = PendingTables()
    pending.add(table(1, topic_state("a", 1), queue_state("a", 0, 5), topic_state("b", 2), queue_state("b", 0, 3)))
    pending.add(table(2, topic_state("a", 3), queue_state("a", 1, 1), topic_state("b", 2, deleted=True)))
    assert pending.take_merged() == table(
        2, topic_state("a", 3), queue_state("a", 1, 1), topic_state("b", 2, deleted=True)
    )
