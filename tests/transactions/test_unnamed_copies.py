"""A store that a broker of RocketMQ has written: copies of half messages that do not name the first one
(transactions/transaction_recovery.py)."""

from __future__ import annotations

import msgspec

from tests.transactions.test_unnoted_commits import as_slave, next_master
from tests.transactions.transaction_parts import COMMIT, TOPIC, Named, World
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.properties import PropertyName, decode_properties, encode_properties
from thermocline.remoting.topic_validation import TRANSACTION_HALF_TOPIC
from thermocline.transactions.half_message import HalfMessage
from thermocline.transactions.op_message import op_draft


def copy_of_rocketmq(world: World, named: Named, *, check_times: int = 1) -> Named:
    """Put a half message again as RocketMQ does after it has asked."""
    half = HalfMessage.read(world.record(TRANSACTION_HALF_TOPIC, named.half_offset))
    assert half is not None
    draft = half.copy(check_times=check_times)
    properties = decode_properties(draft.properties_text)
    del properties[PropertyName.TRANSACTION_PREPARED_QUEUE_OFFSET]
    result = world.store.put(msgspec.structs.replace(draft, properties_text=encode_properties(properties)))
    return Named(result.queue_offset, result.physical_offset)


def note_end(world: World, half_offset: QueueOffset) -> None:
    """Write the op message of a half message, as the master before did."""
    world.store.put(op_draft(b"%d," % half_offset, now_ms=world.clock.now_ms, host=("10.0.0.2", 4000)))


def test_only_the_last_copy_is_open() -> None:
    world = World()
    first, other = world.send(b"a"), world.send(b"other")
    copy_of_rocketmq(world, first)
    last = copy_of_rocketmq(world, first, check_times=2)
    as_slave(world)
    master = next_master(world)
    assert master.coordinator.table.open_count == 2
    assert master.counts[TOPIC] == 2
    master.end(last, COMMIT)
    master.end(first, COMMIT)
    assert master.committed() == [b"a"], "a late answer about the first one commits nothing again"
    master.end(other, COMMIT)
    assert master.committed() == [b"a", b"other"]
    assert master.stop().coordinator.table.open_count == 0


def test_what_ended_by_its_copy_is_not_asked_about() -> None:
    world = World()
    first, _other = world.send(b"a"), world.send(b"other")
    note_end(world, copy_of_rocketmq(world, first).half_offset)
    as_slave(world)
    master = next_master(world)
    assert master.coordinator.table.open_count == 1
    assert master.counts[TOPIC] == 1
    master.clock.now_ms += 10_000
    (question,) = master.check()
    master.end(question, COMMIT)
    assert master.committed() == [b"other"]
    assert master.stop().coordinator.table.open_count == 0


def test_messages_with_one_id_are_not_taken_for_copies() -> None:
    """A producer's retry has the same id, and was not asked about once more."""
    world = World()
    for _ in range(2):
        world.send(b"a", **{PropertyName.UNIQUE_KEY: "same"})
    as_slave(world)
    assert next_master(world).coordinator.table.open_count == 2
