"""ProcessQueue: the committed offset never passes a message without an outcome."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thermocline.client.consumer.dispatch.process_queue import LOCK_TRUSTED_MS, ProcessQueue
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.remoting.records.message_record import decode_record, encode_record

QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)


def message(offset: int) -> ReceivedMessage:
    record = encode_record(
        topic="orders",
        queue_id=0,
        queue_offset=offset,
        physical_offset=offset * 100,
        body=b"x",
        properties_text=b"",
        born_timestamp_ms=1,
        born_host=("127.0.0.1", 1),
        store_timestamp_ms=2,
        store_host=("127.0.0.1", 2),
    )
    return ReceivedMessage(decode_record(record), queue=QUEUE)


def process_queue(start_offset: int = 10) -> ProcessQueue:
    return ProcessQueue(QUEUE, start_offset=start_offset, now_ms=0)


def test_nothing_pulled_commits_the_start() -> None:
    assert process_queue(10).commit_offset == 10


def test_the_oldest_message_without_outcome_holds_the_commit_back() -> None:
    queue = process_queue()
    messages = [message(offset) for offset in (10, 11, 12)]
    queue.put(messages, next_offset=13)
    assert (queue.commit_offset, queue.span, queue.held.cached_count) == (10, 2, 3)
    queue.finish([messages[1]])
    assert queue.commit_offset == 10
    queue.finish([messages[0]])
    assert queue.commit_offset == 12
    queue.finish([messages[2]])
    assert (queue.commit_offset, queue.held.cached_count, queue.held.cached_bytes) == (13, 0, 0)


def test_filtered_messages_count_as_done() -> None:
    queue = process_queue()
    queue.put([], next_offset=50)
    assert queue.commit_offset == 50


def test_finishing_twice_or_a_stranger_changes_nothing() -> None:
    queue = process_queue()
    first, second = message(10), message(11)
    queue.put([first, second], next_offset=12)
    queue.finish([first])
    queue.finish([first, message(99)])
    assert (queue.commit_offset, queue.held.cached_count) == (11, 1)
    assert queue.contains(second)
    assert not queue.contains(message(11))


@given(
    batches=st.lists(st.lists(st.integers(1, 3), max_size=5), max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_commit_equals_the_smallest_unfinished_offset(batches: list[list[int]], order: object) -> None:
    queue = process_queue(0)
    waiting: list[ReceivedMessage] = []
    position = 0
    for gaps in batches:
        pulled = []
        for gap in gaps:
            position += gap
            pulled.append(message(position))
        queue.put(pulled, next_offset=position + 1)
        waiting += pulled
    order.shuffle(waiting)  # type: ignore[attr-defined]
    unfinished = {one.queue_offset for one in waiting}
    for one in waiting:
        queue.finish([one])
        unfinished.remove(one.queue_offset)
        assert queue.commit_offset == min(unfinished, default=queue.next_pull_offset)


def test_an_orderly_batch_is_committed_or_returned_to_the_head() -> None:
    queue = process_queue()
    messages = [message(offset) for offset in range(10, 15)]
    queue.put(messages, next_offset=15)
    queue.queue_up(messages)
    assert [one.queue_offset for one in queue.take_batch(2)] == [10, 11]
    assert (queue.taken_count, queue.taken_offsets) == (2, (10, 11))
    queue.return_taken()
    assert [one.queue_offset for one in queue.take_batch(3)] == [10, 11, 12]
    queue.commit_taken()
    assert queue.commit_offset == 13
    assert queue.cached_offsets == (13, 14)


def test_a_lock_is_trusted_for_a_while_only() -> None:
    queue = process_queue()
    assert not queue.is_lock_trusted(0)
    queue.locked = True
    assert queue.is_lock_trusted(LOCK_TRUSTED_MS)
    assert not queue.is_lock_trusted(LOCK_TRUSTED_MS + 1)
