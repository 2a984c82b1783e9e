"""Timers beside a model that fits on a page: whatever is sent, recalled, waited for, stopped and cut off."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulated_disk import SimulatedDisk
from tests.timers.test_timer_message_store import recall
from tests.timers.timer_parts import NOW_MS, WINDOW_MS, World
from thermocline.store.log.message_draft import MessageDraft

DELAYS_MS = st.one_of(
    st.integers(1, 3_000), st.integers(1, WINDOW_MS), st.integers(WINDOW_MS, 6 * WINDOW_MS), st.just(1_750)
)
OPERATIONS = st.one_of(
    st.tuples(st.just("send"), DELAYS_MS),
    st.tuples(st.just("recall"), st.integers(0, 30)),
    st.tuples(st.just("wait"), st.one_of(st.integers(1, 2_000), st.integers(1, 2 * WINDOW_MS))),
    st.tuples(st.just("round"), st.just(0)),
    st.tuples(st.just("release"), st.just(0)),
    st.tuples(st.just("stop"), st.just(0)),
    st.tuples(st.just("cut"), st.integers(0, 1_000)),
)


@dataclass(eq=False)
class Expected:
    """A message of the model."""

    number: int
    deliver_ms: int
    stored: MessageDraft
    is_recalled: bool = False
    went_ms: list[int] = field(default_factory=list)


@settings(max_examples=60, deadline=None)
@given(operations=st.lists(OPERATIONS, max_size=40))
def test_each_message_goes_out_once_in_time_or_again_after_a_cut(operations: list[tuple[str, int]]) -> None:
    """Exactly once, within the 20 ms of the look that comes first; after a power cut, at least once."""
    world, messages, was_cut = World(), list[Expected](), False

    def run_timers() -> None:
        for body in world.run():
            messages[int(body) - 1].went_ms.append(world.clock.now_ms)

    for name, value in operations:
        if name == "send":
            deliver_ms = world.clock.now_ms + value
            world.number = len(messages)
            messages.append(Expected(len(messages) + 1, deliver_ms, world.send_at(deliver_ms)))
            run_timers()
        elif name == "recall":
            waiting = [each for each in messages if each.deliver_ms > world.clock.now_ms + 2_000]
            if waiting:
                message = waiting[value % len(waiting)]
                recall(world, message.stored)
                message.is_recalled = True
                run_timers()
        elif name == "wait":
            world.clock.now_ms += value
            run_timers()
        elif name == "round":
            world.timers.run_round()
        elif name == "release":
            world.timers.release_below(world.store.commit_log.append_offset)
            run_timers()
        elif name == "stop":
            world.close()
            world = world.reopen()
        else:
            world.store.commit_log.flush()
            assert isinstance(world.disk, SimulatedDisk)
            world = world.reopen(world.disk.after_power_cut(Random(value), kept_share=0))
            was_cut = True
            run_timers()
    for _ in range(8):
        world.clock.now_ms += WINDOW_MS
        run_timers()

    for message in messages:
        if message.is_recalled:
            assert message.went_ms == []
            continue
        assert message.went_ms, message
        assert all(went_ms >= message.deliver_ms for went_ms in message.went_ms)
        assert was_cut or len(message.went_ms) == 1
    assert world.clock.now_ms > NOW_MS
