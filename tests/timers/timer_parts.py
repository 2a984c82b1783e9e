"""What tests of timers share: a small store with small timers on any disk, and a driver like the broker's."""

from __future__ import annotations

from typing import Any

from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import open_store, records_of, small_config
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import PropertyName, decode_properties, encode_properties
from thermocline.remoting.topic_validation import TIMER_TOPIC
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import Disk
from thermocline.store.log.message_draft import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.timers.due_message import DueKind, DueMessage
from thermocline.timers.taken_back import TakenBackTimers
from thermocline.timers.timer_config import TimerConfig
from thermocline.timers.timer_message_store import TimerMessageStore
from thermocline.timers.timer_request import is_timer_request

NOW_MS = 1_000_000_000_250
"""A wall clock a quarter into a tick."""
TICK_MS = 1_000
WHEEL_SLOTS = 400
WINDOW_MS = (WHEEL_SLOTS // 2 - 60) * TICK_MS
"""140 s."""
LOG_FILE_BYTES = 1_024
UNITS_PER_FILE = 19


def timer_config(root_path: str = "/store", **changes: Any) -> TimerConfig:
    """A wheel of 400 ticks, so that rolls and turns are met."""
    settings: dict[str, Any] = {
        "root_path": root_path,
        "roll_window_slots": 0,  # the greatest
        "delay_ms_max": 40 * 86_400_000,
        "log_file_bytes": LOG_FILE_BYTES,
        "wheel_slots": WHEEL_SLOTS,
    }
    return TimerConfig(**settings | changes)


def log_config(**changes: Any) -> StoreConfig:
    """A store whose log files hold some hundred messages."""
    return small_config(**{"log_file_bytes": 65_536, "queue_file_bytes": 20 * 256} | changes)


class World:
    """A store, its timers and their clock."""

    def __init__(
        self,
        disk: Disk | None = None,
        *,
        store_config: StoreConfig | None = None,
        config: TimerConfig | None = None,
        clock: Clock | None = None,
        taken_back: TakenBackTimers | None = None,
    ) -> None:
        self.disk = SimulatedDisk() if disk is None else disk
        self.clock = clock or Clock(NOW_MS)
        self.store_config = store_config or log_config()
        self.config = config or timer_config(self.store_config.root_path)
        self.store: MessageStore = open_store(self.disk, self.store_config, clock=self.clock)
        self.timers = open_timers(self.store, self.disk, self.config, self.clock, taken_back=taken_back)
        self.rolls = 0
        self.releases = 0
        self.number = 0

    def reopen(self, disk: Disk | None = None, *, taken_back: TakenBackTimers | None = None) -> World:
        """Open the same store again; on the same disk after a kill or a stop, or on what a power cut left."""
        return World(
            disk or self.disk,
            store_config=self.store_config,
            config=self.config,
            clock=Clock(self.clock.now_ms),
            taken_back=taken_back,
        )

    def kill(self, *, taken_back: TakenBackTimers | None = None) -> World:
        """The process dies; another one opens what it wrote."""
        assert isinstance(self.disk, SimulatedDisk)
        self.disk.revive()
        return self.reopen(taken_back=taken_back)

    def close(self) -> None:
        """Stop cleanly."""
        self.timers.close()
        self.store.close()

    # -- what a broker does ----------------------------------------------------------------------------------------

    def send(self, topic: str = "orders", *, body: bytes | None = None, **properties: str) -> MessageDraft:
        """Send a message with these properties (TIMER_DELAY_MS="500"); what was stored for it."""
        self.number += 1
        name = str(self.number)
        properties = {PropertyName.UNIQUE_KEY: f"id-{name}", **properties}
        draft = MessageDraft(
            topic=topic,
            queue_id=3,
            body=name.encode() if body is None else body,
            properties_text=encode_properties(properties),
            born_timestamp_ms=self.clock.now_ms,
            born_host=("10.0.0.2", 4000),
        )
        stored = draft
        if is_timer_request(properties):
            stored = self.timers.schedule(draft, properties) or draft
        self.store.put(stored)
        return stored

    def send_at(self, deliver_ms: int, topic: str = "orders", **properties: str) -> MessageDraft:
        """Send a message for an absolute time."""
        return self.send(topic, **{PropertyName.TIMER_DELIVER_MS: str(deliver_ms), **properties})

    def run(self, *, steps_max: int = 100_000) -> list[bytes]:
        """Step until nothing is left to do now; the bodies that were delivered."""
        delivered = []
        for _ in range(steps_max):
            due = self.timers.step()
            for message in due:
                self.put(message)
                if message.kind is DueKind.DELIVER:
                    delivered.append(bytes(message.draft.body))
            self.timers.confirm(len(due))
            if not self.timers.has_more:
                return delivered
        raise AssertionError("the timers do not come to rest")

    def put(self, message: DueMessage) -> None:
        """Put one message."""
        self.store.put(message.draft)
        self.rolls += message.kind is DueKind.ROLL
        self.releases += message.kind is DueKind.RELEASE

    def run_until(self, time_ms: int, *, step_ms: int = 10) -> list[tuple[int, bytes]]:
        """Let the clock run; when each body was delivered."""
        delivered = [(self.clock.now_ms, body) for body in self.run()]
        while self.clock.now_ms < time_ms:
            self.clock.now_ms = min(time_ms, self.clock.now_ms + step_ms)
            delivered += [(self.clock.now_ms, body) for body in self.run()]
        return delivered

    def jump(self, time_ms: int) -> list[bytes]:
        """Set the clock."""
        self.clock.now_ms = time_ms
        return self.run()

    # -- looking ---------------------------------------------------------------------------------------------------

    def delivered(self, topic: str = "orders") -> list[MessageRecord]:
        """Records of the queue that `send` names."""
        queue = self.store.queues.find(topic, 3)
        return [] if queue is None else list(records_of(self.store, queue))

    def timed(self) -> list[MessageRecord]:
        """Records of the timer topic."""
        queue = self.store.queues.find(TIMER_TOPIC, 0)
        return [] if queue is None else list(records_of(self.store, queue))


def open_timers(
    store: MessageStore,
    disk: Disk,
    config: TimerConfig,
    clock: Clock,
    *,
    taken_back: TakenBackTimers | None = None,
) -> TimerMessageStore:
    """Open the timers of an open store."""
    return TimerMessageStore.open(store, config, disk=disk, clock=clock, random=lambda: 0.5, taken_back=taken_back)


def properties_of(draft: MessageDraft) -> dict[str, str]:
    """A draft's properties."""
    return decode_properties(draft.properties_text)
