"""What tests of POP share: a store with its group offsets, on a disk that can be cut, and a consumer."""

from __future__ import annotations

from dataclasses import dataclass

from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from tests.store.store_parts import draft, open_store, small_config
from thermocline.broker.state_files.config_persister import load_file
from thermocline.broker.tables.consumer_offsets import ConsumerOffsets
from thermocline.pop.in_flight import Pending
from thermocline.pop.order_table import OrderTable
from thermocline.pop.pop_store import PopStore, Take
from thermocline.pop.revival import dead_letter_draft, is_dead, retry_draft, retry_topic_of
from thermocline.pop.revive_log import ReviveLog
from thermocline.remoting.handles.pop_topics import revive_topic
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.store.files.disk import replace_file
from thermocline.store.message_store import MessageStore

TOPIC = "orders"
GROUP = "group"
RETRY_TOPIC = f"%RETRY%{GROUP}_{TOPIC}"
DLQ_TOPIC = f"%DLQ%{GROUP}"
REVIVE_TOPIC = revive_topic("cluster")
REVIVE_QUEUES = 2
TRIES_MAX = 3
LOG_FILE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A message in a consumer's hands, and what its receipt names."""

    topic: str
    queue_id: int
    offset: int
    start_offset: int
    pop_time_ms: int
    body: bytes
    reconsume_times: int


class PopParts:
    """One life of a store, from `open` to `crash` or `close`."""

    def __init__(self, disk: SimulatedDisk, clock: Clock, *, is_slave: bool = False) -> None:
        self.disk = disk
        self.clock = clock
        self.store: MessageStore = open_store(disk, small_config(log_file_bytes=LOG_FILE_BYTES), clock=clock)
        self.offsets = ConsumerOffsets(clock=clock)
        self.orders = OrderTable()
        self.offsets.load(load_file(disk, self.offsets_path))
        self.orders.load(load_file(disk, self._orders_path))
        self.pops = PopStore(
            self.store,
            ReviveLog(self.store, topic=REVIVE_TOPIC, queue_count=REVIVE_QUEUES, broker_name="broker-a", clock=clock),
            self.offsets,
            self.orders,
            clock=clock,
        )
        if not is_slave and self.pops.open(offsets_log_offset=self.offsets.pop_log_offset):
            self.save()

    @property
    def offsets_path(self) -> str:
        return f"{self.store.config.config_path}/consumerOffset.json"

    @property
    def _orders_path(self) -> str:
        return f"{self.store.config.config_path}/consumerOrderInfo.json"

    # -- life ----------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the state files as the broker does: the log first."""
        self.pops.order_saves.begin_save()
        data = self.pops.encode_orders()
        self.store.commit_log.flush()
        self.replace(self._orders_path, data)
        self.pops.order_saves.end_save()
        self.pops.note_progress()
        data = self.offsets.encode(pop_log_offset=self.store.commit_log.append_offset)
        self.store.commit_log.flush()
        self.replace(self.offsets_path, data)

    def killed(self) -> PopParts:
        """The next life after the process was killed: everything written is there."""
        self.disk.revive()
        return PopParts(self.disk, self.clock)

    def follow(self) -> PopParts:
        """A slave that has the log and nothing else: its offsets' file is empty."""
        self.disk.revive()
        return PopParts(self.disk, self.clock, is_slave=True)

    def cut(self, disk: SimulatedDisk) -> PopParts:
        """The next life on the disk that a power cut has left."""
        return PopParts(disk, self.clock)

    def replace(self, path: str, data: bytes) -> None:
        replace_file(self.disk, path, data, keep_backup=True)

    # -- producer and consumer -----------------------------------------------------------------------------------------

    def send(self, body: bytes, queue_id: int = 0) -> None:
        self.store.put(draft(topic=TOPIC, queue_id=queue_id, body=body))

    def read(self, topic: str, queue_id: int, offset: int) -> MessageRecord | None:
        queue = self.store.queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.next_offset:
            return None
        return self.store.read_record(queue.unit(offset).physical_offset)

    def pop(self, count: int, *, invisible_ms: int, topic: str = TOPIC, queue_id: int = 0) -> list[Held]:
        """Take the next messages of a queue, as many as there are."""
        start = self.offsets.query(topic, GROUP, queue_id) or 0
        records = [self.read(topic, queue_id, start + number) for number in range(count)]
        found = [record for record in records if record is not None]
        if not found:
            return []
        offsets = [record.queue_offset for record in found]
        claim = self.pops.claim(
            GROUP,
            [Take(topic=topic, queue_id=queue_id, offsets=offsets, next_offset=offsets[-1] + 1)],
            invisible_ms=invisible_ms,
        )
        assert claim.end_offset == self.store.commit_log.append_offset
        return [
            Held(
                topic=topic,
                queue_id=queue_id,
                offset=record.queue_offset,
                start_offset=offsets[0],
                pop_time_ms=claim.pop_time_ms,
                body=record.body,
                reconsume_times=record.reconsume_times,
            )
            for record in found
        ]

    def pending(self, held: Held) -> Pending | None:
        return self.pops.in_flight.find(
            (held.topic, GROUP, held.queue_id, held.start_offset, held.pop_time_ms, "broker-a")
        )

    def ack(self, *helds: Held) -> int:
        """Acknowledge messages, of one or several POPs; the end offset."""
        acks = [(pending, [held.offset]) for held in helds if (pending := self.pending(held)) is not None]
        merged: dict[Pending, list[int]] = {}
        for pending, offsets in acks:
            merged.setdefault(pending, []).extend(offsets)
        return self.pops.ack(merged.items())

    def renew(self, held: Held, *, invisible_ms: int, is_suspended: bool = False) -> Held | None:
        """Extend the invisible time of a message; None when the receipt has expired."""
        pending = self.pending(held)
        if pending is None or pending.is_acked(held.offset) is not False:
            return None
        claim = self.pops.renew(pending, held.offset, invisible_ms=invisible_ms, is_suspended=is_suspended)
        return Held(
            topic=held.topic,
            queue_id=held.queue_id,
            offset=held.offset,
            start_offset=held.offset,
            pop_time_ms=claim.pop_time_ms,
            body=held.body,
            reconsume_times=held.reconsume_times,
        )

    def revive_due(self) -> int:
        """Put once more what is due now; how many messages."""
        self.pops.catch_up()
        count = 0
        while (pending := self.pops.in_flight.take_due(self.clock())) is not None:
            check_point = pending.check_point
            drafts, offsets = [], []
            for offset in pending.open_offsets():
                record = self.read(check_point.topic, check_point.queue_id, offset)
                assert record is not None
                offsets.append(offset)
                if is_dead(record, check_point, tries_max=TRIES_MAX):
                    drafts.append(dead_letter_draft(record, check_point))
                else:
                    topic = retry_topic_of(check_point, is_v2=False)
                    drafts.append(retry_draft(record, check_point, topic=topic, store_host=self.store.store_host))
            self.pops.revive(pending, drafts, offsets)
            count += len(drafts)
        return count
