"""What mixed load may do to messages when consumers and brokers are killed in it: the rules, and their check.

Each message has a name that only its sender gave (load_mix.py). Nothing else counts: a client's retry gives the same
name, and so does the broker's.

Lost
  Nothing. A message whose send was answered SEND_OK is in its topic, and every group that wants it has taken it. One
  whose send failed, or had no answer, may be there or not.
Never seen
  A message without a producer; one of a rolled back transaction; one that a group's filter excludes; a delayed or timed
  one before it is due; a body that is not whole.
In a topic, by offsets
  Once. More than once is what was under way when the broker was killed, and nothing else:
    retried      its send was under way then, or took longer than the client waits before it sends the same message
                 again: up to TRIES_MAX copies
    due twice    a delayed or timed message that the broker had put into its topic shortly before, and had not noted as
                 done on disk yet (`flushDelayOffsetInterval`, `timerFlushIntervalMs`), nor a slave as its master had
                 (every 10 s): one copy more for each such kill
    queued twice a timed message that was sent shortly before a broker of RocketMQ took over, and was due later: such a
                 broker has it in its wheel, and begins again where its master was when it last asked it
  A committed transaction is a message like all others here: in its topic once.
At a group, each repetition of a message
    refused      the reception before it was refused (RECONSUME_LATER); or an earlier one was, and its copy in the retry
                 topic comes now: each refusal makes one, also of a message that came twice
    stored       its topic holds it more than once, see above
    consumer     the member that had it before was killed after that, sooner than news of its progress was due (the
                 interval at which it commits offsets; by POP the invisible time, at which what has no acknowledgement
                 comes again), and another member has it now
    broker       it was received shortly before the broker was killed or while it was away: the news of that (offset,
                 acknowledgement, send-back) was lost with it or never arrived
  A consumer that broadcasts keeps its offsets itself: for it there is only `stored`.
Order, at groups that consume in order
  Messages with one sharding key have rising numbers and lie in one queue. Their first receptions rise. A repetition
  goes back to a message that may be repeated, and goes on from there without a gap; it happens once at most for each
  kill, and for each message that is stored twice in a row.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.interop.load_cluster import NOTED_MS, VICTIM
from tests.interop.load_journal import Received, Sent
from tests.interop.load_mix import (
    BODY_BYTES,
    JAVA_FIRST_COMMIT_MS,
    SEND_TIMEOUT_MS,
    TRIES_MAX,
    GroupPlan,
    MessageName,
)

SLACK_MS = 3_000
"""What a busy machine may add to any interval."""
REFIND_MS = 5_000
"""How long clients may take to find a broker that is back: they try again after 3 s."""
EXAMPLES_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A broker was killed; when it, or another one in its place, served again."""

    killed_ms: int
    back_ms: int
    is_switch: bool = False
    """Whether it was not killed but replaced, and served for a while yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """What happened when. `consumers_killed_ms` None: none was."""

    consumers_started_ms: int
    consumers_killed_ms: int | None
    outages: Sequence[Outage]
    noted_ms: int = NOTED_MS
    """How old may be what is known of positions after a kill: offsets of groups, of delay levels, of timers."""
    is_queued_twice: bool = False
    """Whether brokers of RocketMQ take over."""

    @property
    def kill_count(self) -> int:
        """How many moments there were at which something was killed."""
        return len(self.outages) + (self.consumers_killed_ms is not None)


Outcomes = Mapping[str, Mapping[int, Sent]]


class StoredMessages:
    """What the topics hold, checked by the rules."""

    def __init__(self, stored: Iterable[Received], sent: Outcomes, begun: Mapping[str, int], events: Events) -> None:
        self._sent = sent
        self._begun = begun
        self._events = events
        self._copies: dict[str, list[Received]] = defaultdict(list)
        for record in stored:
            self._copies[record.name].append(record)

    def count(self, name: str) -> int:
        return len(self._copies.get(name, ()))

    def check(self) -> Counter[str]:
        """Fail on what breaks a rule; how many messages there are of each kind, and extra copies of each cause."""
        found: Counter[str] = Counter()
        for name, copies in self._copies.items():
            message = MessageName.read(name)
            assert message.number < self._begun[message.producer.name], f"{name} was never sent"
            assert not message.is_rolled_back, f"{name} was rolled back, and is in its topic"
            for copy in copies:
                assert (copy.topic, copy.body_bytes) == (message.producer.topic, BODY_BYTES), copy
                self.check_due(message, copy.store_ms)
            found["messages"] += 1
            if len(copies) > 1:
                found[self._cause(message, copies)] += len(copies) - 1
        for producer, outcomes in self._sent.items():
            for sent in outcomes.values():
                name = f"{producer}-{sent.number}"
                if not sent.is_acknowledged:
                    found["without an answer, stored" if name in self._copies else "without an answer, not stored"] += 1
                elif not MessageName.read(name).is_rolled_back:
                    assert name in self._copies, f"{name} was acknowledged, and is not in its topic: {sent}"
        return found

    def check_due(self, message: MessageName, seen_ms: int) -> None:
        """A delayed message that is seen now must be due."""
        sent = self._sent[message.producer.name].get(message.number)
        assert sent is None or seen_ms >= sent.due_ms, f"{message} is {sent.due_ms - seen_ms} ms early: {sent}"

    def _cause(self, message: MessageName, copies: Sequence[Received]) -> str:
        """Why it is there more than once."""
        events = self._events
        sent = self._sent[message.producer.name].get(message.number)
        was_under_way = sent is None or any(
            sent.sent_ms <= outage.back_ms + REFIND_MS and sent.answered_ms >= outage.killed_ms
            for outage in events.outages
        )
        took_long = sent is None or sent.answered_ms - sent.sent_ms >= SEND_TIMEOUT_MS
        if (was_under_way or took_long) and len(copies) <= TRIES_MAX:
            return "retried"
        if message.producer.kind in ("delayed", "timed"):
            stored_ms = sorted(copy.store_ms for copy in copies)
            if all(self._is_due_again(*pair) for pair in itertools.pairwise(stored_ms)):
                return "due twice"
            if message.producer.kind == "timed" and self._is_queued_twice(sent, stored_ms[-2]):
                once_ms = stored_ms[:-1]
                if all(self._is_due_again(*pair) for pair in itertools.pairwise(once_ms)):
                    return "queued twice"
        raise AssertionError(f"{message} is in its topic {len(copies)} times: {sent}, {copies}, {events}")

    def _is_due_again(self, first_ms: int, second_ms: int) -> bool:
        """Whether a kill between them may have taken the note of the first delivery with it."""
        events = self._events
        return any(
            outage.killed_ms - events.noted_ms - SLACK_MS <= first_ms
            and first_ms <= (outage.back_ms if outage.is_switch else outage.killed_ms)
            and outage.killed_ms <= second_ms
            for outage in events.outages
        )

    def _is_queued_twice(self, sent: Sent | None, stored_ms: int) -> bool:
        """Whether a broker of RocketMQ took over between its send and this copy, and had it in its wheel."""
        events = self._events
        if sent is None or not events.is_queued_twice:
            return False
        return any(
            outage.killed_ms - events.noted_ms - SLACK_MS <= sent.sent_ms <= outage.back_ms
            and outage.killed_ms <= stored_ms
            for outage in events.outages
        )


class Refusals:
    """The refused receptions of one group, and the copies in its retry topic that came of them: one of each."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._copies: dict[str, set[int]] = defaultdict(set)

    def add(self, received: Received) -> bool:
        """Note a reception; whether it is of a copy not seen before that an earlier refusal made."""
        name, copies = received.name, self._copies[received.name]
        is_new = received.reconsume_times > 0 and received.store_ms not in copies
        if is_new:
            copies.add(received.store_ms)
        is_of_refusal = is_new and len(copies) <= self._counts[name]
        self._counts[name] += not received.is_taken
        return is_of_refusal


class GroupReceptions:
    """What one group received, checked by the rules."""

    def __init__(
        self, group: GroupPlan, received: Iterable[tuple[str, Received]], stored: StoredMessages, events: Events
    ) -> None:
        """`received`: with the member that did; one member's in its own order."""
        self._group = group
        self._stored = stored
        self._events = events
        self._received = sorted(received, key=lambda each: each[1].received_ms)

    def check(self) -> Counter[str]:
        """Fail on what breaks a rule; how many messages were received, and repetitions of each cause."""
        found: Counter[str] = Counter()
        before: dict[str, tuple[str, Received]] = {}
        before_of_copy: dict[tuple[str, int, int], tuple[str, Received]] = {}
        copies_seen: Counter[str] = Counter()
        refusals = Refusals()
        unexplained: list[tuple[Received, Received]] = []
        for part, received in self._received:
            self._check_wanted(received)
            found["receptions"] += 1
            is_of_refusal = refusals.add(received)
            last = before.get(received.name)
            before[received.name] = part, received
            last_of_copy = None
            if not received.reconsume_times:  # a message sent back has an offset of its retry topic
                copy = received.name, received.queue_id, received.queue_offset
                last_of_copy = before_of_copy.get(copy)
                before_of_copy[copy] = part, received
            if last is None:
                found["messages"] += 1
                continue
            if last_of_copy is None:
                cause = self._cause(last, (part, received), copies_seen)
            else:
                cause = self._cause_of_same_copy(last_of_copy, (part, received))
            if cause is None and is_of_refusal:
                cause = "refused"
            if cause is None:
                unexplained.append((last[1], received))
            else:
                found[cause] += 1
        assert not unexplained, (
            f"{self._group.name}: {len(unexplained)} repetitions without a cause, {self._events}: "
            f"{unexplained[:EXAMPLES_MAX]}"
        )
        return found

    def _check_wanted(self, received: Received) -> None:
        message = MessageName.read(received.name)
        assert message.is_for(self._group), f"{self._group.name} does not want {received}"
        assert not message.is_rolled_back, f"{self._group.name} received what was rolled back: {received}"
        assert received.body_bytes == BODY_BYTES, received
        assert self._stored.count(received.name), f"{self._group.name} received what no topic holds: {received}"
        self._stored.check_due(message, received.received_ms)

    def _cause(self, last: tuple[str, Received], now: tuple[str, Received], copies_seen: Counter[str]) -> str | None:
        """Why a message came again, as another copy or from a retry topic; None when it should not have."""
        (_, before), (_, received) = last, now
        if before.is_taken and copies_seen[received.name] < self._stored.count(received.name) - 1:
            copies_seen[received.name] += 1
            return "stored"
        return self._cause_of_same_copy(last, now)

    def _cause_of_same_copy(self, last: tuple[str, Received], now: tuple[str, Received]) -> str | None:
        """Why one copy of a message was received again; None when it should not have been."""
        group, events = self._group, self._events
        before = last[1]
        if not before.is_taken:
            return "refused"
        if group.is_broadcast:
            return None
        if events.consumers_killed_ms is not None:
            cause = self._cause_of_killed_consumer(last, now, events.consumers_killed_ms)
            if cause is not None:
                return cause
        for outage in events.outages:
            known_ms = outage.killed_ms - group.commit_ms - events.noted_ms - SLACK_MS
            if known_ms <= before.received_ms <= outage.back_ms + REFIND_MS:
                return "broker"
        return None

    def _cause_of_killed_consumer(
        self, last: tuple[str, Received], now: tuple[str, Received], killed_ms: int
    ) -> str | None:
        group, events = self._group, self._events
        (last_part, before), (part, received) = last, now
        known_ms = killed_ms - group.commit_ms - SLACK_MS
        if group.language == "java" and killed_ms - events.consumers_started_ms < JAVA_FIRST_COMMIT_MS + SLACK_MS:
            known_ms = 0  # it has not said anything yet
        if last_part == VICTIM and part != VICTIM and before.received_ms >= known_ms:
            return "consumer"
        # The victim's send-back left no line in its journal; the next owner of its queue sent the message back again.
        is_other_copy = received.reconsume_times == before.reconsume_times > 0 and received.store_ms != before.store_ms
        earliest_ms = killed_ms - group.commit_ms - SLACK_MS
        latest_ms = max(outage.back_ms for outage in events.outages) + REFIND_MS
        if is_other_copy and earliest_ms <= before.store_ms <= latest_ms:
            return "sent back twice"
        return None

    def check_order(self) -> int:
        """Fail where the order of a sharding key is broken; how often it went back."""
        assert self._group.is_orderly
        by_shard: dict[str, list[Received]] = defaultdict(list)
        for _, received in self._received:
            shard = MessageName.read(received.name).shard
            assert shard is not None, received
            by_shard[shard].append(received)
        return sum(self._check_shard(shard, receptions) for shard, receptions in by_shard.items())

    def _check_shard(self, shard: str, receptions: Sequence[Received]) -> int:
        assert len({received.queue_id for received in receptions}) == 1, f"{shard} is in more than one queue"
        numbers = [MessageName.read(received.name).number for received in receptions]
        firsts = list(dict.fromkeys(numbers))
        assert firsts == sorted(firsts), f"{self._group.name}: first receptions of {shard} do not rise: {firsts}"
        successor = dict(itertools.pairwise(firsts))
        went_back = 0
        for place, (last, now) in enumerate(itertools.pairwise(numbers), start=1):
            if now <= last:
                went_back += now < last or self._stored.count(receptions[place].name) < 2
                continue
            assert now == successor[last], (
                f"{self._group.name}: {shard} goes from {last} to {now}, not to {successor[last]}: "
                f"{receptions[place - 1 : place + 1]}"
            )
        assert went_back <= self._events.kill_count, (
            f"{self._group.name}: {shard} went back {went_back} times: {numbers}"
        )
        return went_back


def describe(found: Mapping[str, int]) -> str:
    """Counts in a line."""
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items()))
