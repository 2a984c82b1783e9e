"""Shared parts of the transaction tests: a small store with a coordinator over it, that runs, dies and recovers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from tests.store.inline_executor import InlineExecutor
from tests.store.store_parts import bodies_of, small_config
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import PropertyName, encode_properties
from thermocline.store.files.disk import Disk
from thermocline.store.log.message_draft import MessageDraft, PutResult
from thermocline.store.message_store import MessageStore
from thermocline.store.retention import RetentionGate
from thermocline.transactions.check_round import CheckBack, CheckRound
from thermocline.transactions.half_message import half_draft
from thermocline.transactions.settlement import settle_commits
from thermocline.transactions.transaction_config import TransactionConfig
from thermocline.transactions.transaction_coordinator import Decision, EndRequest, TransactionCoordinator
from thermocline.transactions.transaction_recovery import recover_transactions

TOPIC = "orders"
GROUP = "shop"
NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 6_000
COMMIT, ROLL_BACK = Decision.COMMIT, Decision.ROLL_BACK


@dataclass(frozen=True, slots=True)
class Named:
    """A producer's reference to a half message, or to the copy that a check named."""

    half_offset: int
    physical_offset: int


@dataclass(slots=True)
class Kept:
    """What outlives a process: the disk, and the file of consumer offsets."""

    disk: Disk = field(default_factory=SimulatedDisk)
    progress: tuple[int, int] | None = None


class World:
    """One life of a store with transactions."""

    def __init__(
        self,
        kept: Kept | None = None,
        *,
        clock: Clock | None = None,
        config: TransactionConfig | None = None,
        settle: Callable[[MessageStore], None] = settle_commits,
        note_late_ms_max: int = -1,
        **store_settings: Any,
    ) -> None:
        """`note_late_ms_max`: see find_unnoted_commits; below 0 nothing is searched."""
        self.kept = kept or Kept()
        self.clock = clock or Clock(NOW_MS)
        self.number = 0
        self._config = config or TransactionConfig()
        self._store_settings = {"log_file_bytes": 1 << 16, "delete_when_hours": (), **store_settings}
        self.store = MessageStore.open(
            small_config(**self._store_settings),
            disk=self.kept.disk,
            clock=self.clock,
            allocator_executor=InlineExecutor(),
            process_id=7,
            settle=settle,
        )
        self.store.store_host = ("10.0.0.1", 10911)
        progress = self.kept.progress or (None, None)
        recovered = recover_transactions(
            self.store,
            half_offset=progress[0],
            op_offset=progress[1],
            now_ms=self.clock(),
            note_late_ms_max=note_late_ms_max,
        )
        self.counts = Counter(recovered.open_counts)
        self.puts: list[MessageDraft] = []
        self.waiting_notices = 0
        self.fails = False
        self.coordinator = TransactionCoordinator(
            self.store,
            recovered.table,
            put=self.put,
            clock=self.clock,
            config=self._config,
            count_open=self._count,
        )
        self.coordinator.on_notes_waiting = self._count_notice

    # -- what a producer does ------------------------------------------------------------------------------------------

    def send(
        self,
        body: bytes = b"",
        *,
        queue_id: int = 0,
        group: str | None = GROUP,
        born_ahead_ms: int = 0,
        **properties: str,
    ) -> Named:
        """Send a half message. `born_ahead_ms`: by how much its producer's clock is ahead."""
        self.number += 1
        pairs = {
            PropertyName.UNIQUE_KEY: f"ID{self.number}",
            PropertyName.TRANSACTION_PREPARED: "true",
            **({PropertyName.PRODUCER_GROUP: group} if group else {}),
            **properties,
        }
        result = self.put(
            half_draft(
                MessageDraft(
                    topic=TOPIC,
                    queue_id=queue_id,
                    body=body or b"%d" % self.number,
                    properties_text=encode_properties(pairs),
                    born_timestamp_ms=self.clock.now_ms + born_ahead_ms,
                    born_host=("10.0.0.2", 4000),
                )
            )
        )
        self.coordinator.prepared(TOPIC)
        return Named(result.queue_offset, result.physical_offset)

    def end(
        self,
        named: Named | CheckBack,
        decision: Decision = COMMIT,
        *,
        group: str = GROUP,
        is_checked: bool = False,
        waits: bool = False,
    ) -> None:
        """Decide."""
        self.coordinator.end(
            EndRequest(
                decision=decision,
                producer_group=group,
                half_offset=named.half_offset,
                physical_offset=named.physical_offset,
                is_checked=is_checked or isinstance(named, CheckBack),
                waits=waits,
            )
        )

    def check(self) -> list[CheckBack]:
        """One round; its questions."""
        check_round = CheckRound(self.coordinator, self.store, now_ms=self.clock())
        questions: list[CheckBack] = []
        while not check_round.is_done:
            questions += check_round.step()
            check_round.has_parking_topic |= check_round.needs_parking_topic
        return questions

    # -- what the broker does ------------------------------------------------------------------------------------------

    def put(self, draft: MessageDraft) -> PutResult:
        """What the coordinator puts with."""
        if self.fails:
            self.store.commit_log.pause("the test says so")
        try:
            result = self.store.put(draft)
        finally:
            if self.fails:
                self.store.commit_log.resume()
        self.puts.append(draft)
        return result

    def save_progress(self) -> None:
        """What housekeeping does: progress that is durable joins the file."""
        if self.coordinator.advance_progress():
            self.kept.progress = self.coordinator.progress

    def retain(self) -> None:
        """Delete every log file that may go."""
        self.store.sync_derived()
        gate = RetentionGate(transactions_offset=self.coordinator.held_offset)
        self.store.retention.execute(self.store.retention.plan(gate, now_ms=1 << 60, hour=0))

    # -- how it ends ---------------------------------------------------------------------------------------------------

    def stop(self) -> World:
        """Stop cleanly; the next life."""
        self.close()
        return self.again()

    def close(self) -> None:
        """Stop cleanly, for good."""
        self.coordinator.close()
        self.save_progress()
        self.store.close()

    def kill(self) -> World:
        """Die as by `kill -9`: what was written is there; the next life."""
        disk = self.kept.disk
        assert isinstance(disk, SimulatedDisk)
        disk.revive()
        return self.again()

    def again(self, disk: Disk | None = None) -> World:
        """Another life, over the same disk or what a power cut has left of it."""
        if disk is not None:
            self.kept.disk = disk
        world = World(self.kept, clock=self.clock, config=self._config, **self._store_settings)
        world.number = self.number
        return world

    # -- what there is -------------------------------------------------------------------------------------------------

    def visible(self, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
        """The bodies of a queue."""
        return bodies_of(self.store, topic, queue_id)

    def committed(self) -> list[bytes]:
        """The bodies that were put into the real topic in this life."""
        return [bytes(draft.body) for draft in self.puts if draft.topic == TOPIC]

    def record(self, topic: str, queue_offset: int, queue_id: int = 0) -> MessageRecord:
        """One record."""
        queue = self.store.queues.find(topic, queue_id)
        assert queue is not None
        return self.store.read_record(queue.unit(queue_offset).physical_offset)

    def _count(self, topic: str, change: int) -> None:
        self.counts[topic] += change

    def _count_notice(self) -> None:
        self.waiting_notices += 1
