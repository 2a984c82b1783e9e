"""Timers that run, are cut off and recover, beside a plain list of the messages that were sent.

One `Trial` is one seed: several runs of one store with timers on a simulated disk, each ended by a power cut, a kill
or a stop at a random step, while messages are sent and recalled, the clock runs, jumps and is set back, log files are
released and deleted, the disk is full for a while, syncs fail, and after a stop wheel or timer log may be removed.
Afterwards, when all times have come:

  - Every message whose record the store has kept was delivered, to its queue, and that delivery is in the log, unless
    it was recalled.
  - None was delivered before its time.
  - None was delivered twice, save that each delivery, roll or release that no durable round had covered when the
    process died may have cost one repetition.
  - One that was recalled in time, by a marker that was kept, was not delivered.
  - The counts by topic are zero.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from tests.clock import Clock
from tests.simulated_disk import PowerCut, SimulatedDisk
from tests.store.store_parts import open_store, records_of
from tests.timers.timer_parts import NOW_MS, TICK_MS, WHEEL_SLOTS, WINDOW_MS, log_config, open_timers, timer_config
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.handles.recall_handle import decode_recall_handle
from thermocline.remoting.records.properties import PropertyName, decode_properties, encode_properties
from thermocline.remoting.topic_validation import TIMER_TOPIC
from thermocline.store.log.message_draft import MessageDraft, PutResult
from thermocline.store.message_store import MessageStore
from thermocline.store.retention import RetentionGate
from thermocline.timers.due_message import DueKind, DueMessage
from thermocline.timers.errors import TimerCongestedError
from thermocline.timers.recall import MARKER_BODY, recall_handle_of, recall_marker
from thermocline.timers.sync_site import TimerSyncSite
from thermocline.timers.timer_message_store import TimerMessageStore

TOPICS = ("orders", "payments")
DELAYS_MS = (1, 50, 500, 1_000, 3_000, 20_000, WINDOW_MS - 5_000, WINDOW_MS + 20_000, 2 * WINDOW_MS, 5 * WINDOW_MS)
FAR_MS = 20 * WINDOW_MS
STEPS_MAX = 500
FAR_BEHIND_MARGIN_MS = 5_000
UNKNOWN_OFFSET = 1 << 62


class ProcessDied(BaseException):
    """The broker stops without a word; the machine does not."""


@dataclass(eq=False)
class Sent:
    """One message of the list."""

    number: int
    topic: str
    deliver_ms: int
    stored: MessageDraft
    physical_offset: int = UNKNOWN_OFFSET
    deliveries: list[int] = field(default_factory=list)
    """Where it was put, as far as the log has kept it."""
    delivery_count: int = 0
    doubts: int = 0
    """How often it was put while no durable round had covered that when the process died."""
    uncovered: list[int] = field(default_factory=list)
    """When it was put in this life, counted in actions."""
    marker_offset: int | None = None
    """Of a marker that was enqueued in time."""
    was_due: bool = False
    """Whether its time had come in this life: it may go out then, also when the clock is set back meanwhile."""


class Trial:
    """One seed."""

    def __init__(self, seed: int, *, ignored_sites: Collection[str] = (), run_count: int = 4) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(ignored_sites=ignored_sites)
        self.clock = Clock(NOW_MS)
        self.run_count = run_count
        self.cut_count = 0
        self.sites: set[str] = set()
        self.store_config = log_config(
            log_file_bytes=self.random.choice((4_096, 16_384)), file_reserved_ms=-1, delete_when_hours=()
        )
        self.config = timer_config(slot_count_max=self.random.choice((50, 1 << 30)))
        self.sent: dict[int, Sent] = {}
        self.number = 0
        self.recalled: set[int] = set()
        """Messages for which a marker may be there."""
        self.actions = 0
        self.covered = 0
        """The action at which the last durable round of this life began."""
        self.is_rebuilt = False
        """Whether files of the timers were removed: then everything may repeat."""
        self.was_far_behind = False
        """Whether the timers lagged so far behind that new entries had to wait for the wheel, and with them markers."""

    def run(self) -> None:
        """Run the store `run_count` times, then until no message waits."""
        for _ in range(self.run_count):
            self.live()
        self.disk.cut_at_step = None
        store, timers = self.open()
        # The clock may have been set back far behind the times of messages.
        last_ms = max([self.clock.now_ms, *(message.deliver_ms for message in self.sent.values())])
        step_ms = (last_ms + FAR_MS - self.clock.now_ms) // 400
        for _ in range(400):
            self.clock.now_ms += step_ms
            self.deliver(store, timers, steps_max=10_000)
        while timers.run_round():
            continue
        self.check(store, timers)
        timers.close()
        store.close()
        self.sites |= set(self.disk.sync_counts)

    # -- one life --------------------------------------------------------------------------------------------------

    def live(self) -> None:
        """Open, work for a while, end somehow."""
        end = self.random.choices(("cut", "kill", "close"), (6, 3, 2))[0]
        if end != "close":
            self.disk.cut_at_step = self.disk.step_count + self.random.randrange(1, STEPS_MAX)
        is_clean = False
        try:
            store, timers = self.open()
            while self.disk.cut_at_step is not None or self.random.random() < 0.98:
                self.work(store, timers)
            timers.close()
            self.covered = self.actions
            store.close()
            is_clean = True
        except PowerCut:
            pass
        except ProcessDied:
            end = "kill"
        for message in self.sent.values():
            message.doubts += sum(1 for action in message.uncovered if action > self.covered)
            message.uncovered.clear()
        if end == "kill" or (is_clean and self.random.random() < 0.5):
            self.disk.revive()
        else:
            self.sites |= set(self.disk.sync_counts)
            self.disk = self.disk.after_power_cut(self.random)
            self.cut_count += 1
        if end != "cut":
            self.remove_something()

    def open(self) -> tuple[MessageStore, TimerMessageStore]:
        """Recover; forget what the store has lost."""
        store = open_store(self.disk, self.store_config, clock=self.clock)
        end_offset = store.commit_log.append_offset
        for number, message in list(self.sent.items()):
            if message.physical_offset >= end_offset:
                del self.sent[number]
                continue
            message.deliveries = [offset for offset in message.deliveries if offset < end_offset]
            if message.marker_offset is not None and message.marker_offset >= end_offset:
                message.marker_offset = None
            message.was_due = False
        self.actions += 1
        self.covered = self.actions
        return store, open_timers(store, self.disk, self.config, self.clock)

    def work(self, store: MessageStore, timers: TimerMessageStore) -> None:
        """One random thing that a broker does, or that happens to it."""
        self.actions += 1
        kind = self.random.random()
        if kind < 0.35:
            for _ in range(self.random.choice((1, 1, 1, 5, 30))):
                self.send(store, timers)
        elif kind < 0.40:
            self.recall(store, timers)
        elif kind < 0.62:
            self.deliver(store, timers, steps_max=self.random.choice((1, 3, 10, 100)))
        elif kind < 0.72:
            self.pass_time()
        elif kind < 0.76:
            store.commit_log.flush()
        elif kind < 0.80:
            store.tick()
        elif kind < 0.83:
            store.sync_derived()
        elif kind < 0.93:
            self.round(store, timers)
        elif kind < 0.95:
            files = [file.base_offset for file in store.commit_log.files]
            timers.release_below(self.random.choice([*files, store.commit_log.append_offset]))
        elif kind < 0.98:
            gate = RetentionGate(held_offset=timers.held_offset)
            store.retention.execute(store.retention.plan(gate, now_ms=self.clock.now_ms, hour=4))
        elif kind < 0.99:
            self.fill_disk(store, timers)
        else:
            self.fail_sync(store, timers)

    def pass_time(self) -> None:
        """Mostly a little."""
        kind = self.random.random()
        if kind < 0.7:
            self.clock.now_ms += self.random.choice((1, 20, 100, 990, 1_000, 2_500))
        elif kind < 0.95:
            self.clock.now_ms += self.random.choice((5_000, 30_000, WINDOW_MS // 2))
        elif kind < 0.97:
            self.clock.now_ms += self.random.choice((WINDOW_MS, 450_000, 2_000_000))
        else:
            self.clock.now_ms -= self.random.choice((500, 10_000, WINDOW_MS, 2_000_000))

    def send(self, store: MessageStore, timers: TimerMessageStore) -> None:
        """Send a message."""
        self.number += 1
        number = self.number
        topic = self.random.choice(TOPICS)
        delay_ms = self.random.choice(DELAYS_MS) + self.random.randrange(2_000)
        name, value = self.random.choice(
            (
                (PropertyName.TIMER_DELAY_MS, delay_ms),
                (PropertyName.TIMER_DELIVER_MS, self.clock.now_ms + delay_ms),
            )
        )
        properties = {PropertyName.UNIQUE_KEY: str(number), name: str(value)}
        draft = MessageDraft(
            topic=topic,
            queue_id=3,
            body=str(number).encode(),
            properties_text=encode_properties(properties),
            born_timestamp_ms=self.clock.now_ms,
            born_host=("10.0.0.2", 4000),
        )
        try:
            stored = timers.schedule(draft, properties)
        except TimerCongestedError:
            return
        assert stored is not None
        message = Sent(number, topic, self.clock.now_ms + delay_ms, stored)
        self.sent[number] = message
        try:
            message.physical_offset = store.put(stored).physical_offset
        except UnavailableError:
            del self.sent[number]

    def recall(self, store: MessageStore, timers: TimerMessageStore) -> None:
        """Recall some message that has not gone out, and see that the marker is enqueued."""
        now_ms = self.clock.now_ms
        waiting = [
            message
            for message in self.sent.values()
            if not message.delivery_count
            and message.deliver_ms > now_ms + 2 * TICK_MS
            and message.marker_offset is None
        ]
        if not waiting:
            return
        message = self.random.choice(waiting)
        handle = recall_handle_of(message.stored, broker_name="b")
        assert handle is not None
        marker = recall_marker(
            decode_recall_handle(handle),
            self.config,
            topic=message.topic,
            broker_name="b",
            producer_group=None,
            born_host=("10.0.0.3", 1),
            now_ms=now_ms,
        )
        self.recalled.add(message.number)
        with suppress(UnavailableError):
            result = store.put(marker)
            self.deliver(store, timers, steps_max=1_000)
            if not message.delivery_count and timers.status().queue_behind_count == 0:
                message.marker_offset = result.physical_offset

    def deliver(self, store: MessageStore, timers: TimerMessageStore, *, steps_max: int) -> None:
        """Step, and put what is due."""
        self.was_far_behind |= timers.status().read_behind_ms > WHEEL_SLOTS * TICK_MS - WINDOW_MS - FAR_BEHIND_MARGIN_MS
        for _ in range(steps_max):
            due = timers.step()
            count = 0
            for each in self.sent_of(due):
                each.was_due |= self.clock.now_ms >= each.deliver_ms
            for message in due:
                try:
                    self.put(store, message)
                except UnavailableError:
                    break
                count += 1
                if self.random.random() < 0.002:
                    break
            timers.confirm(count)
            if count < len(due) or not timers.has_more:
                return

    def sent_of(self, due: Iterable[DueMessage]) -> list[Sent]:
        """What was sent of these, without markers."""
        keys = [
            int(decode_properties(each.draft.properties_text)[PropertyName.UNIQUE_KEY])
            for each in due
            if each.draft.body != MARKER_BODY
        ]
        return [self.sent[key] for key in keys if key in self.sent]

    def put(self, store: MessageStore, due: DueMessage) -> PutResult:
        """Put one message."""
        message = next(iter(self.sent_of([due])), None)
        self.actions += 1
        if message is not None:
            message.uncovered.append(self.actions)
        result = store.put(due.draft)
        if message is None:
            return result
        if due.kind is DueKind.DELIVER:
            assert message.was_due, "delivered before its time"
            assert (due.draft.topic, due.draft.queue_id) == (message.topic, 3)
            message.deliveries.append(result.physical_offset)
            message.delivery_count += 1
        else:
            assert due.draft.topic == TIMER_TOPIC
        return result

    def round(self, store: MessageStore, timers: TimerMessageStore) -> None:
        """A round with other work between its slices."""
        timer_round = timers.begin_round()
        if timer_round is None:
            return
        began = self.actions
        committed = False
        try:
            while not timer_round.advance():
                continue
            if self.random.random() < 0.3:
                self.send(store, timers)
            if self.random.random() < 0.3:
                self.deliver(store, timers, steps_max=3)
            timer_round.commit()
            committed = True
            self.covered = began
        finally:
            timers.end_round(timer_round, committed=committed)

    def fill_disk(self, store: MessageStore, timers: TimerMessageStore) -> None:
        """The disk is full for a while."""
        self.disk.is_full = True
        for _ in range(self.random.randrange(8)):
            with suppress(UnavailableError):
                self.send(store, timers)
            self.deliver(store, timers, steps_max=5)
            with suppress(UnavailableError):
                timers.run_round()
            store.tick()
        self.disk.is_full = False
        store.tick()

    def fail_sync(self, store: MessageStore, timers: TimerMessageStore) -> None:
        """A sync of the timers fails: they go on, and the process dies some time later."""
        self.disk.fail_syncs.add(
            self.random.choice((TimerSyncSite.LOG_FILE, TimerSyncSite.WHEEL_FILE, TimerSyncSite.CHECKPOINT_FILE))
        )
        with suppress(OSError):
            timers.run_round()
        self.disk.fail_syncs.clear()
        if timers.failure is None:
            return
        for _ in range(self.random.randrange(5)):
            self.pass_time()
            self.send(store, timers)
            self.deliver(store, timers, steps_max=20)
            timers.run_round()
        raise ProcessDied

    def remove_something(self) -> None:
        """Remove a file that can be rebuilt."""
        kind = self.random.random()
        if kind < 0.15 and self.disk.exists(self.config.wheel_path):
            self.disk.remove(self.config.wheel_path)
        elif kind < 0.2 and self.disk.exists(self.config.metrics_path):
            self.disk.remove(self.config.metrics_path)
        elif kind < 0.25:
            self.disk.remove_tree(self.config.log_path)
            self.is_rebuilt = True

    # -- comparison ------------------------------------------------------------------------------------------------

    def check(self, store: MessageStore, timers: TimerMessageStore) -> None:
        """Compare with the list."""
        kept = {
            record.body
            for topic in TOPICS
            if (queue := store.queues.find(topic, 3)) is not None
            for record in records_of(store, queue, count_max=64)
        }
        for message in self.sent.values():
            if message.physical_offset == UNKNOWN_OFFSET:
                continue
            # A put that a kill has ended may have stored it: recovered timers find it in its queue.
            is_delivered = message.deliveries or message.stored.body in kept
            assert is_delivered or message.number in self.recalled, f"never delivered: {message}"
            log_min_offset = store.commit_log.min_offset
            assert all(offset < log_min_offset or message.stored.body in kept for offset in message.deliveries)
            if not self.is_rebuilt:
                assert message.delivery_count <= 1 + message.doubts, f"delivered too often: {message}"
                if message.marker_offset is not None and not self.was_far_behind:
                    assert not message.delivery_count, f"recalled and delivered: {message}"
        counts = timers.metrics.counts()
        assert not any(counts.values()), counts
        assert timers.status().queue_behind_count == 0
