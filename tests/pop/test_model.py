"""POP against a model: whatever happens, kills and power cuts included, every message is acknowledged or comes back.

At any time a message is in one state: in the queue, held by a consumer, or consumed. So
  - what was acknowledged in time is never seen again,
  - a held message is not delivered to another consumer before its invisible time ends,
  - in the end, when time has passed, every other message can be popped, or is a dead letter.
Everything is flushed when it is answered, as with SYNC_FLUSH; a power cut tears what is not.
"""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.clock import Clock
from tests.pop.pop_parts import DLQ_TOPIC, RETRY_TOPIC, TOPIC, Held, PopParts
from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import bodies_of

INVISIBLE_MS = (1, 10, 100, 10_000)
TOPICS = (TOPIC, RETRY_TOPIC)


class Hand:
    """A message that a consumer holds, until `due_ms`."""

    def __init__(self, held: Held, due_ms: int) -> None:
        self.held = held
        self.due_ms = due_ms


class PopMachine(RuleBasedStateMachine):
    """One queue, one group, consumers that do what they like."""

    @initialize()
    def begin(self) -> None:
        self.clock = Clock(1_000_000)
        self.parts = PopParts(SimulatedDisk(), self.clock)
        self.parts.save()
        self.sent: set[bytes] = set()
        self.through: set[bytes] = set()
        self.hands: dict[bytes, Hand] = {}

    # -- what happens --------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 5))
    def send(self, count: int) -> None:
        for _ in range(count):
            body = b"%d" % len(self.sent)
            self.parts.send(body)
            self.sent.add(body)
        self.flush()

    @rule(count=st.integers(1, 8), invisible_ms=st.sampled_from(INVISIBLE_MS), topic=st.sampled_from(TOPICS))
    def pop(self, count: int, invisible_ms: int, topic: str) -> None:
        for held in self.parts.pop(count, invisible_ms=invisible_ms, topic=topic):
            self.receive(held, invisible_ms)
        self.flush()

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        bodies = data.draw(st.lists(st.sampled_from(sorted(self.hands) or [b""]), max_size=6, unique=True))
        hands = [self.hands[body] for body in bodies if body in self.hands]
        # Until the reviver has looked, an acknowledgement is in time.
        in_time = [hand for hand in hands if self.is_held(hand)]
        end_offset = self.parts.ack(*[hand.held for hand in hands])
        assert bool(end_offset) == bool(in_time)
        self.flush()
        for hand in in_time:
            self.through.add(hand.held.body)
        for hand in hands:
            del self.hands[hand.held.body]

    @rule(data=st.data(), invisible_ms=st.sampled_from(INVISIBLE_MS), is_suspended=st.booleans())
    def renew(self, data: st.DataObject, invisible_ms: int, is_suspended: bool) -> None:
        body = data.draw(st.sampled_from(sorted(self.hands) or [b""]))
        hand = self.hands.get(body)
        if hand is None:
            return
        was_held = self.is_held(hand)
        kept = self.parts.renew(hand.held, invisible_ms=invisible_ms, is_suspended=is_suspended)
        assert (kept is not None) == was_held
        self.flush()
        if kept is None:
            del self.hands[body]
        else:
            self.hands[body] = Hand(kept, kept.pop_time_ms + invisible_ms)

    @rule(ms=st.sampled_from((1, 5, 50, 5_000)))
    def wait(self, ms: int) -> None:
        self.clock.now_ms += ms

    @rule()
    def revive(self) -> None:
        self.parts.revive_due()
        self.flush()

    @rule()
    def maintain(self) -> None:
        self.parts.pops.maintain()
        self.flush()

    @rule()
    def save(self) -> None:
        self.parts.save()

    @rule()
    def kill(self) -> None:
        self.parts = self.parts.killed()

    @rule(seed=st.integers(0, 1 << 32))
    def cut(self, seed: int) -> None:
        self.parts = self.parts.cut(self.parts.disk.after_power_cut(Random(seed)))

    # -- what holds ----------------------------------------------------------------------------------------------------

    @invariant()
    def everything_in_flight_is_known(self) -> None:
        if not hasattr(self, "parts"):
            return
        opened = sum(len(pending.open_offsets()) for pending in self.parts.pops.in_flight)
        counted = sum(self.parts.pops.in_flight.message_count(topic, "group", 0) for topic in (TOPIC, RETRY_TOPIC))
        assert opened == counted

    def teardown(self) -> None:
        if not hasattr(self, "parts"):
            return
        for _ in range(10):
            self.clock.now_ms += 1 << 20
            self.parts.revive_due()
            for topic in TOPICS:
                while helds := self.parts.pop(32, invisible_ms=1, topic=topic):
                    for held in helds:
                        self.receive(held, 1)
                    if Random(self.clock.now_ms).random() < 0.5:
                        self.parts.ack(*helds)
                        self.through.update(held.body for held in helds)
        self.clock.now_ms += 1 << 20
        self.parts.revive_due()
        assert len(self.parts.pops.in_flight) == 0
        dead = bodies_of(self.parts.store, DLQ_TOPIC)
        assert len(set(dead)) == len(dead)
        assert self.through.isdisjoint(dead)
        assert self.through | set(dead) == self.sent

    # -- inside --------------------------------------------------------------------------------------------------------

    def receive(self, held: Held, invisible_ms: int) -> None:
        assert held.body in self.sent
        assert held.body not in self.through, "what was acknowledged came back"
        before = self.hands.get(held.body)
        if before is not None:
            assert before.due_ms <= self.clock(), "two have the message"
        self.hands[held.body] = Hand(held, held.pop_time_ms + invisible_ms)

    def is_held(self, hand: Hand) -> bool:
        pending = self.parts.pending(hand.held)
        return pending is not None and pending.is_acked(hand.held.offset) is False

    def flush(self) -> None:
        self.parts.store.commit_log.flush()


PopMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPop = PopMachine.TestCase
