"""A broker comes back that was away while another one delivered its timed messages.

Both have the same log: the other one up to where it was copied.
"""

from __future__ import annotations

import pytest

from tests.timers.timer_parts import NOW_MS, World
from thermocline.remoting.offsets import LOG_START, PhysicalOffset
from thermocline.remoting.topic_validation import TIMER_TOPIC
from thermocline.timers.taken_back import DELIVERED_MARGIN_MS, TakenBackTimers
from thermocline.timers.timer_checkpoint import TimerCheckpoint

MESSAGES = 60
COPIED = 50
DIED_MS = NOW_MS + 10_500
BACK_MS = NOW_MS + 30_800
"""A moment after the beginning of a tick."""


def world_with(count: int) -> World:
    """Messages that are due one a second, the last ones first: as many of them as are copied."""
    world = World()
    for number in range(count):
        world.send_at(NOW_MS + (MESSAGES - number) * 1_000)
    world.run()
    return world


def of(world: World, *, log_start: PhysicalOffset = LOG_START) -> TakenBackTimers:
    """What a broker that has stopped cleanly tells."""
    return TakenBackTimers.of_checkpoint(world.timers.checkpoint.encode_shared(), is_at_rest=True, log_start=log_start)


def delivered(world: World, until_ms: int) -> list[int]:
    """In which second each message was due that is delivered up to a time."""
    return sorted(MESSAGES + 1 - int(body) for _, body in world.run_until(until_ms, step_ms=500))


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_each_message_is_delivered_once(ends: str) -> None:
    """Those due in the first ten seconds were never copied; the master has delivered them before it died."""
    master, slave = world_with(MESSAGES), world_with(COPIED)
    first = delivered(master, DIED_MS)
    while master.timers.run_round():
        continue
    if ends == "stop":
        master.close()
    slave.clock.now_ms = DIED_MS
    meanwhile = delivered(slave, BACK_MS)
    assert slave.timers.is_between_ticks
    slave.close()
    master.clock.now_ms = BACK_MS
    taken = of(slave)
    master = master.reopen(taken_back=taken) if ends == "stop" else master.kill(taken_back=taken)
    rest = delivered(master, NOW_MS + (MESSAGES + 2) * 1_000)
    assert first == list(range(1, 11))
    assert meanwhile == list(range(11, 31))
    assert rest == list(range(31, MESSAGES + 1))
    master.close()
    assert delivered(master.reopen(), NOW_MS + (MESSAGES + 9) * 1_000) == []


def test_a_message_that_was_never_copied_is_delivered_after_the_return() -> None:
    """It was due while the master was away."""
    master, slave = World(), World()
    for world in (master, slave):
        world.send_at(NOW_MS + 15_000, body=b"copied")
    master.send_at(NOW_MS + 16_000, body=b"enqueued")
    master.run()
    while master.timers.run_round():
        continue
    master.send_at(NOW_MS + 17_000, body=b"not enqueued")
    assert [body for _, body in slave.run_until(BACK_MS)] == [b"copied"]
    slave.close()
    master.clock.now_ms = BACK_MS
    master = master.kill(taken_back=of(slave))
    assert sorted(body for _, body in master.run_until(BACK_MS + 2_000)) == [b"enqueued", b"not enqueued"]
    master = master.kill()
    assert master.timers.status().pending_count == 0


def test_a_recall_of_a_message_that_was_never_copied_counts() -> None:
    master = World()
    draft = master.send_at(NOW_MS + 15_000, body=b"recalled")
    assert draft.topic != "orders"
    master.send_at(NOW_MS + 15_000, body=b"", TIMER_DEL_UNIQKEY="orders+id-1")
    master.run()
    master.close()
    slave = World()
    slave.run_until(BACK_MS)
    slave.close()
    master.clock.now_ms = BACK_MS
    master = master.reopen(taken_back=of(slave))
    assert master.run_until(BACK_MS + 3_000) == []


def test_a_broker_that_was_not_at_rest_is_believed_for_what_is_older_than_a_minute() -> None:
    checkpoint = TimerCheckpoint(read_time_ms=NOW_MS)
    assert (
        TakenBackTimers.of_checkpoint(checkpoint.encode_shared(), is_at_rest=True, log_start=LOG_START).read_time_ms
        == NOW_MS
    )
    taken = TakenBackTimers.of_checkpoint(checkpoint.encode_shared(), is_at_rest=False, log_start=LOG_START)
    assert taken.read_time_ms == NOW_MS - DELIVERED_MARGIN_MS
    assert TakenBackTimers.of_checkpoint(bytes(56), is_at_rest=False, log_start=LOG_START).read_time_ms == 0
    with pytest.raises(ValueError, match="56 bytes"):
        TakenBackTimers.of_checkpoint(bytes(55), is_at_rest=True, log_start=LOG_START)


def test_a_broker_that_was_behind_changes_nothing() -> None:
    master, slave = world_with(MESSAGES), world_with(COPIED)
    first = delivered(master, DIED_MS)
    master.close()
    slave.close()
    master = master.reopen(taken_back=of(slave))
    assert first + delivered(master, NOW_MS + (MESSAGES + 2) * 1_000) == list(range(1, MESSAGES + 1))


@pytest.mark.parametrize("ends", ["stop", "kill", "timer log lost"])
def test_a_message_from_before_the_other_log_is_delivered_after_the_return(ends: str) -> None:
    """The other broker began empty, with a later file: it never had the first message."""
    master = World()
    for name in (b"older", b"newer"):
        master.send_at(NOW_MS + 15_000, body=name)
    if ends != "kill":
        master.run()
        master.close()
    queue = master.store.queues.find(TIMER_TOPIC, 0)
    assert queue is not None
    log_start = queue.unit(1).physical_offset
    if ends == "timer log lost":
        master.disk.remove_tree(master.config.log_path)
    other = World()
    for name in (b"older", b"newer"):
        other.send_at(NOW_MS + 15_000, body=name)
    other.run_until(BACK_MS)
    other.close()
    master.clock.now_ms = BACK_MS
    taken = of(other, log_start=log_start)
    master = master.kill(taken_back=taken) if ends == "kill" else master.reopen(taken_back=taken)
    assert [body for _, body in master.run_until(BACK_MS + 3_000)] == [b"older"]
