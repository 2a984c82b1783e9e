"""PopQueue: positions, finished messages, and lost ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.proxy.fake_messaging import handle_at
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.proxy.messaging import HeldMessage, ProxyHandle
from thermocline.proxy.remoting.pop_queue import Held, PopQueue
from thermocline.remoting.handles import ReceiptHandle, RetryFlag
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import decode_record, encode_record

QUEUE = MessageQueue(topic="T", broker_name="broker-a", queue_id=1)


def popped(offset: int, *, physical_offset: int | None = None, is_back: bool = False, tries: int = 0) -> HeldMessage:
    """A message of the queue, or one that came back."""
    place = PhysicalOffset(offset * 100 if physical_offset is None else physical_offset)
    record = decode_record(
        encode_record(
            topic="T",
            queue_id=1,
            queue_offset=QueueOffset(offset),
            physical_offset=place,
            body=b"x",
            properties_text=b"",
            born_timestamp_ms=1,
            born_host=("127.0.0.1", 1),
            store_timestamp_ms=1,
            store_host=("127.0.0.1", 1),
            flag=0,
            sys_flag=0,
            reconsume_times=tries,
            prepared_transaction_offset=PhysicalOffset(0),
        )
    )
    receipt = ReceiptHandle(
        start_offset=QueueOffset(offset),
        pop_time_ms=0,
        invisible_ms=60_000,
        revive_queue_id=0,
        retry_flag=RetryFlag.RETRY_V1 if is_back else RetryFlag.NORMAL,
        broker_name="broker-a",
        queue_id=1,
        queue_offset=QueueOffset(offset),
    )
    return HeldMessage(ReceivedMessage(record, queue=QUEUE), ProxyHandle(receipt=receipt, physical_offset=int(place)))


def offsets(held: list[Held]) -> list[int]:
    return [each.handle.physical_offset // 100 for each in held]


def test_messages_have_their_own_offsets_and_gaps_stay() -> None:
    queue = PopQueue(5)
    assert queue.begin(5) == []
    assert queue.place([popped(5), popped(6), popped(9)]) == [5, 6, 9]
    assert queue.next_position == 10


def test_what_comes_back_takes_the_next_position_and_pushes_the_others_on() -> None:
    queue = PopQueue(10)
    assert queue.place([popped(3, is_back=True, tries=1), popped(10), popped(11)]) == [10, 11, 12]


def test_the_client_is_done_with_what_lies_below() -> None:
    queue = PopQueue(0)
    queue.place([popped(0), popped(1), popped(2)])
    assert offsets(queue.take_below(2)) == [0, 1]
    assert offsets(queue.take_below(2)) == []
    assert offsets(queue.take_below(None)) == [2]


def test_a_pull_from_an_earlier_position_means_that_the_answer_was_lost() -> None:
    queue = PopQueue(0)
    queue.begin(0)
    queue.place([popped(0), popped(1)])
    queue.begin(2)
    queue.place([popped(2), popped(3)])
    before = queue.turn
    assert offsets(queue.begin(2)) == [2, 3]
    assert queue.turn == before + 1
    assert offsets(queue.take_below(None)) == [0, 1]


def test_a_client_that_begins_anew_holds_nothing() -> None:
    queue = PopQueue(0)
    queue.place([popped(0), popped(1)])
    queue.begins_anew = True
    assert offsets(queue.begin(2)) == [0, 1]
    assert not queue.begins_anew
    assert len(queue) == 0


def test_a_client_that_jumps_ahead_holds_nothing() -> None:
    queue = PopQueue(0)
    queue.place([popped(0)])
    assert offsets(queue.begin(50)) == [0]
    assert queue.place([popped(1)]) == [50]


def test_a_message_is_sent_back_by_its_place_in_the_log() -> None:
    queue = PopQueue(0)
    queue.place([popped(0), popped(1, tries=4)])
    taken = queue.take_returned(100)
    assert taken is not None
    assert taken.reconsume_times == 4
    assert queue.take_returned(100) is None
    assert offsets(queue.take_below(10)) == [0], "it is not acknowledged besides"


def test_a_client_is_late_with_its_oldest_message() -> None:
    queue = PopQueue(0)
    assert not queue.is_late(99_999)
    queue.place([popped(0)])
    assert not queue.is_late(59_999)
    assert queue.is_late(60_000)
    queue.take_below(1)
    assert not queue.is_late(99_999)


def test_expired_messages_are_forgotten() -> None:
    queue = PopQueue(0)
    queue.place([popped(0)])
    assert queue.take_expired(59_999) == 0
    assert queue.take_expired(60_000) == 1
    assert queue.take_returned(0) is None
    assert handle_at(0).receipt.revive_time_ms == 60_000


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("pop"), st.integers(1, 4), st.booleans()),
            st.tuples(st.just("done"), st.integers(0, 40), st.booleans()),
            st.tuples(st.just("lost"), st.integers(1, 6), st.booleans()),
        ),
        max_size=30,
    )
)
def test_nothing_is_ended_twice_or_before_the_client_had_it(steps: list[tuple[str, int, bool]]) -> None:
    """Every message is held until it is done with or given back, once; only what the client counted past is done."""
    queue, number = PopQueue(0), 0
    live: dict[int, int] = {}
    for kind, count, is_back in steps:
        if kind == "pop":
            messages = [popped(number + each, is_back=is_back) for each in range(count)]
            positions = queue.place(messages)
            assert positions == sorted(set(positions))
            assert queue.next_position == positions[-1] + 1
            live |= dict(zip(range(number, number + count), positions, strict=True))
            number += count
        elif kind == "done":
            below = min(count, queue.next_position)
            done = offsets(queue.take_below(below))
            assert sorted(done) == sorted(each for each, position in live.items() if position < below)
            live = {each: position for each, position in live.items() if each not in done}
        else:
            start = max(0, queue.next_position - count)
            lost = offsets(queue.begin(start))
            assert sorted(lost) == sorted(each for each, position in live.items() if position >= start)
            live = {each: position for each, position in live.items() if each not in lost}
        assert len(queue) == len(live)
