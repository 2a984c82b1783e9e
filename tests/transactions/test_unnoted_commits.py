"""A former slave's store, in which a committed message has no op message (transactions/unnoted_commits.py)."""

from __future__ import annotations

from tests.transactions.transaction_parts import COMMIT, TOPIC, World
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.records.properties import PropertyName, encode_properties
from thermocline.remoting.records.sys_flag import TRANSACTION_COMMIT
from thermocline.store.log.message_draft import MessageDraft

LATE_MS_MAX = 8_000


def as_slave(world: World) -> None:
    """Stop as a slave does: it promises that recovery begins at the log's end, and has no notes."""
    world.store.before_promise = lambda: None
    world.store.close()


def next_master(world: World, *, late_ms_max: int = LATE_MS_MAX) -> World:
    return World(world.kept, clock=world.clock, note_late_ms_max=late_ms_max)


def test_a_commit_without_note_is_found_and_noted() -> None:
    world = World()
    first, second, open_one = world.send(b"a"), world.send(b"b", queue_id=3), world.send(b"open")
    world.end(first, COMMIT)
    world.end(second, COMMIT)
    as_slave(world)
    master = next_master(world)
    assert master.coordinator.table.open_count == 1
    assert master.counts[TOPIC] == 1
    assert master.waiting_notices == 0
    assert master.coordinator.table.buffer, "their op messages are to be written"
    master.end(first, COMMIT)
    master.end(second, COMMIT)
    assert master.committed() == [], "a decision that is repeated commits nothing again"
    master.end(open_one, COMMIT)
    assert master.committed() == [b"open"]
    after = master.stop()
    assert after.coordinator.table.open_count == 0


def test_without_the_search_it_is_committed_again() -> None:
    world = World()
    half = world.send(b"a")
    world.end(half, COMMIT)
    as_slave(world)
    master = next_master(world, late_ms_max=-1)
    master.end(half, COMMIT)
    assert master.visible() == [b"a", b"a"]


def test_the_last_copy_counts() -> None:
    world = World()
    world.send(b"a")
    world.clock.now_ms += 10_000
    (question,) = world.check()
    world.end(question, COMMIT)
    as_slave(world)
    assert next_master(world).coordinator.table.open_count == 0


def test_nothing_older_than_a_late_note_is_read() -> None:
    world = World()
    half = world.send(b"a")
    world.end(half, COMMIT)
    world.clock.now_ms += LATE_MS_MAX + 1
    world.send(b"later")
    as_slave(world)
    assert next_master(world).coordinator.table.open_count == 2


def test_a_message_with_another_id_is_no_commit_of_it() -> None:
    """A consumer's retry of a committed message keeps the bits and the place that it names."""
    world = World()
    half = world.send(b"a")
    world.store.put(
        MessageDraft(
            topic=TOPIC,
            queue_id=0,
            body=b"a retry",
            properties_text=encode_properties({PropertyName.UNIQUE_KEY: "another"}),
            born_timestamp_ms=world.clock(),
            born_host=("10.0.0.2", 4000),
            sys_flag=TRANSACTION_COMMIT,
            prepared_transaction_offset=PhysicalOffset(half.physical_offset),
        )
    )
    as_slave(world)
    assert next_master(world).coordinator.table.open_count == 1
