"""Pop store: which group has which messages in flight, durable before any answer.

    claim    messages of some queues, for one group: check points -> revive topic, the group's offsets move on
    ack      acknowledgement -> revive topic; with the last one the check point is finished
    renew    a check point for one message alone, and the old one's acknowledgement, in one write
    revive   the messages once more (in a retry or dead-letter topic) and their acknowledgement, in one write
    order_*  ordered POP: the queue's order info -> revive topic

What a method has put is in the log on return; it is durable when the log is flushed past the `end_offset` that comes
back, and no answer may leave before, where sends wait for the flush.

Crash: what was put is read again (`open`), from the first check point on that was not finished. Group offsets that were
not written since are raised from the check points behind the log offset that stands in the offsets' file: so neither a
message nor an acknowledgement is forgotten. A state file must not be written before the log is durable up
to where it ended when the state was encoded, or an offset could outlive the check point that it skips.

A slave that stands in for its master has the master's records in its copy of the log, and may put none (`open_copy` to
`close_copy`): acknowledgements and changes of ordered queues are kept in memory alone. What it pops itself is recorded
at another master (broker/pops/escaped_pops.py), which has check points of two brokers then.

Bounds
  - Check points in flight: `pending_max`, then BrokerBusyError. The same number of queues popped in order.
  - Records that a restart has to read: when many more follow a queue's first check point than are in flight
    (WINDOW_...), the oldest check points are put anew (`maintain`). So are old ones, since the local log files from the
    first one on cannot be deleted (`held_offset`).
A full disk pauses the log. Acknowledgements are still appended: they end what was given out. So are, if check points
keep log files that are wanted back (`release_below`), these check points anew, new invisible times and messages that
come back: otherwise the files would wait for the log, and the log for the files. Nothing new is given out.
Clock: due times are those of the wall clock, as in the records. When that is set back, what was popped while it was
ahead is due its invisible time from then on (`maintain`).
Belongs to the loop thread.
Source: PopMessageProcessor.java, PopBufferMergeService.java, PopReviveService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from thermocline.pop.ack_record import AckRecord
from thermocline.pop.check_point import CheckPoint
from thermocline.pop.in_flight import InFlight, Pending, key_of
from thermocline.pop.order_info import OrderInfo
from thermocline.pop.order_record import OrderRecord
from thermocline.pop.order_saves import OrderSaves
from thermocline.pop.order_table import OrderTable
from thermocline.pop.revive_log import ReviveLog, ReviveRecord
from thermocline.remoting.errors import BrokerBusyError
from thermocline.remoting.handles import REVIVE_GROUP
from thermocline.remoting.offsets import LOG_START, QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.store.log import MessageDraft, PutResult
from thermocline.store.message_store import MessageStore
from thermocline.store.retention import DISK_NEARLY_FULL

logger = logging.getLogger(__name__)

PENDING_MAX = 400_000
WINDOW_RECORDS_MIN = 4_096
WINDOW_RECORDS_EACH = 4
OLD_MS = 3_600_000
MAINTAIN_MAX = 256
"""Check points put anew, or forgotten, in one go."""
SET_BACK_MS = 10_000
"""By how much the clock must have been set back to matter."""
_BEHIND_ALL = PhysicalOffset(1 << 62)
TIMED_GRACE_MS = 2_000
"""RocketMQ's acknowledgements come through a timer, at the revive time; it revives that much later itself."""


class GroupOffsets(Protocol):
    """Where groups go on in their queues."""

    def query(self, topic: str, group: str, queue_id: int) -> QueueOffset | None:
        """The group's offset; None when it has none."""

    def commit(self, topic: str, group: str, queue_id: int, offset: QueueOffset) -> None:
        """Store the group's offset."""

    def forget(self, topic: str, group: str, queue_id: int) -> None:
        """The group has no offset there any more."""


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one queue that a group is to get. `offsets` may be empty: nothing matched up to `next_offset`."""

    topic: str
    queue_id: int
    offsets: Sequence[QueueOffset]
    next_offset: QueueOffset

    @property
    def start_offset(self) -> QueueOffset:
        """The key of the check point in receipts."""
        return self.offsets[0]

    def check_point(self, group: str, *, pop_time_ms: int, invisible_ms: int, broker_name: str) -> CheckPoint:
        """The check point of these messages for a group."""
        return CheckPoint(
            topic=self.topic,
            group=group,
            queue_id=self.queue_id,
            start_offset=self.start_offset,
            offsets=tuple(self.offsets),
            pop_time_ms=pop_time_ms,
            invisible_ms=invisible_ms,
            broker_name=broker_name,
        )


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that a group has in flight now. `end_offset` is 0 when nothing was put."""

    pop_time_ms: int
    revive_queue_id: int
    end_offset: PhysicalOffset


class PopStore:
    """See the module's header."""

    def __init__(
        self,
        store: MessageStore,
        log: ReviveLog,
        offsets: GroupOffsets,
        orders: OrderTable,
        *,
        clock: Callable[[], int],
        pending_max: int = PENDING_MAX,
    ) -> None:
        self.in_flight = InFlight(log.broker_name)
        self.orders = self._own_orders = orders
        self._is_copy = False
        self.on_due: Callable[[], None] = _nobody_waits
        """Called when a check point came in that is due before all others."""
        self._store = store
        self.log = log
        self._offsets = offsets
        self._clock = clock
        self.pending_max = pending_max
        # Per revive queue: up to where its records are known here.
        self._read_offsets: dict[int, QueueOffset] = {}
        self._awaited_offset = LOG_START
        self._latest_ms = 0
        """The time that `maintain` has seen last."""
        self.order_saves = OrderSaves(orders.changes)
        """Follows the saves of the order table, whose file's content is `encode_orders`."""
        # While records are read again: the physical offset of each queue's newest order record.
        self._order_places: dict[tuple[str, str, int], PhysicalOffset] = {}

    def open(self, *, offsets_log_offset: PhysicalOffset | None) -> bool:
        """Read the check points in flight; once, before anything else. True if the group offsets have to be saved
        before anything is put: by their file, records are done with that the revive topic never had.

        `offsets_log_offset`: the log offset up to which the group offsets' file is complete; None: unknown.
        """
        is_corrected = self._correct_progress()
        for _ in self._read_all(offsets_log_offset):
            pass
        popped_ms = [pending.check_point.pop_time_ms for pending in self.in_flight]
        popped_ms += [info.popped_ms for *_, info in self.orders.items()]
        self._latest_ms = max(popped_ms, default=0)
        return is_corrected

    def _read_all(self, offsets_log_offset: PhysicalOffset | None) -> Iterator[None]:
        append_offset = self._store.commit_log.append_offset
        # After a power cut the log may end before what the files have seen: new records begin there.
        offsets_from = min(offsets_log_offset, append_offset) if offsets_log_offset is not None else append_offset
        orders_from = self.orders.log_offset
        orders_from = min(orders_from, append_offset) if orders_from is not None else append_offset
        count = 0
        for queue in self.log.queues():
            committed = self._offsets.query(self.log.topic, REVIVE_GROUP, queue.queue_id)
            start = QUEUE_START if committed is None else committed + 1
            start = max(min(start, queue.next_offset), queue.min_offset)
            for record in self.log.records(queue, start, queue.next_offset):
                count += 1
                self._replay(record, offsets_from=offsets_from, orders_from=orders_from)
                yield
            self._read_offsets[queue.queue_id] = queue.next_offset
        self._order_places.clear()
        if count:
            logger.info(
                "pop state read records=%d check_points=%d orders=%d", count, len(self.in_flight), len(self.orders)
            )

    def open_copy(self, *, offsets_log_offset: PhysicalOffset | None) -> Iterator[None]:
        """At a slave that begins to stand in: read what its master had in flight; see `open`. To be iterated to its
        end. Until `close_copy` nothing is put, and the orders' file is not changed."""
        assert not self._is_copy
        self._is_copy = True
        self.orders = OrderTable()
        self.orders.load(None)
        self._correct_progress()
        return self._read_all(offsets_log_offset)

    def close_copy(self) -> None:
        """The master has its messages again: nothing is in flight here. Idempotent."""
        if self._is_copy:
            self._is_copy = False
            self.orders = self._own_orders
            self.in_flight.clear()
            self._read_offsets.clear()

    def _correct_progress(self) -> bool:
        """Bring the progress in the revive topic within its queues, as on the store of a slave that had no record of
        them; whether it was not."""
        topic, is_corrected = self.log.topic, False
        for revive_queue_id in range(self.log.queue_count):
            queue = self._store.queues.find(topic, revive_queue_id)
            end = QUEUE_START if queue is None else queue.next_offset
            done = self._offsets.query(topic, REVIVE_GROUP, revive_queue_id)
            if done is not None and done >= end:
                logger.warning("revive offset behind its queue's end queue_id=%d offset=%d", revive_queue_id, done)
                self._offsets.forget(topic, REVIVE_GROUP, revive_queue_id)
                if end:
                    self._offsets.commit(topic, REVIVE_GROUP, revive_queue_id, end - 1)
                is_corrected = True
        return is_corrected

    # -- messages in no order ------------------------------------------------------------------------------------------

    def claim(self, group: str, takes: Sequence[Take], *, invisible_ms: int) -> Claim:
        """Give messages to a group until `invisible_ms` from now, and let its offsets go on behind them.

        Raises:
            BrokerBusyError: Too much is in flight; nothing has changed.
            MQError: The store refuses the check points; nothing has changed.
        """
        taken = [each for each in takes if each.offsets]
        revive_queue_id = self.log.next_queue_id()
        claim = Claim(pop_time_ms=self._clock(), revive_queue_id=revive_queue_id, end_offset=LOG_START)
        if taken:
            if len(self.in_flight) + len(taken) > self.pending_max:
                raise BrokerBusyError("too many popped messages are not acknowledged", count_max=self.pending_max)
            pop_time_ms = self._free_time(
                [(each.topic, group, each.queue_id, each.start_offset) for each in taken], claim.pop_time_ms
            )
            check_points = [
                each.check_point(
                    group, pop_time_ms=pop_time_ms, invisible_ms=invisible_ms, broker_name=self.log.broker_name
                )
                for each in taken
            ]
            results = self._put([self.log.check_point_draft(each, revive_queue_id) for each in check_points])
            for check_point, result in zip(check_points, results, strict=True):
                self._add(check_point, revive_queue_id, result)
            claim = Claim(pop_time_ms=pop_time_ms, revive_queue_id=revive_queue_id, end_offset=results[-1].end_offset)
        for each in takes:
            self._offsets.commit(each.topic, group, each.queue_id, each.next_offset)
        return claim

    def ack(self, acks: Iterable[tuple[Pending, Sequence[QueueOffset]]]) -> PhysicalOffset:
        """Note messages as consumed that are in flight; the end offset of what was put, 0 for nothing.

        Raises:
            MQError: The store refuses the acknowledgements; nothing has changed.
        """
        wanted: list[tuple[Pending, list[QueueOffset]]] = []
        for pending, offsets in acks:
            opened = [offset for offset in dict.fromkeys(offsets) if pending.is_acked(offset) is False]
            if opened and not pending.is_finished:
                wanted.append((pending, opened))
        if not wanted or self._is_copy:
            for pending, offsets in wanted:
                self._done(pending, offsets)
            return LOG_START
        results = self._put([self._ack_draft(pending, offsets) for pending, offsets in wanted], passes=True)
        for pending, offsets in wanted:
            self._done(pending, offsets)
        return results[-1].end_offset

    def renew(self, pending: Pending, offset: QueueOffset, *, invisible_ms: int, is_suspended: bool) -> Claim:
        """Set the due time of a message in flight to `invisible_ms` from now; it gets a new receipt.

        Raises:
            BrokerBusyError: Too much is in flight; nothing has changed.
            MQError: The store refuses the records; nothing has changed.
        """
        assert pending.is_acked(offset) is False
        old = pending.check_point
        if len(self.in_flight) >= self.pending_max and len(old.offsets) > 1:
            raise BrokerBusyError("too many popped messages are not acknowledged", count_max=self.pending_max)
        place = old.topic, old.group, old.queue_id, offset
        check_point = old.renewed(
            offset,
            # Later than the old one also within a millisecond: old receipts are worth nothing any more.
            pop_time_ms=self._free_time([place], max(self._clock(), old.pop_time_ms + 1)),
            invisible_ms=invisible_ms,
            is_suspended=is_suspended,
        )
        revive_queue_id = pending.revive_queue_id
        results = self._put(
            [self.log.check_point_draft(check_point, revive_queue_id), self._ack_draft(pending, [offset])],
            passes=self._is_awaited(pending),
        )
        self._add(check_point, revive_queue_id, results[0])
        self._done(pending, [offset])
        return Claim(
            pop_time_ms=check_point.pop_time_ms, revive_queue_id=revive_queue_id, end_offset=results[-1].end_offset
        )

    def revive(
        self, pending: Pending, drafts: Sequence[MessageDraft], offsets: Sequence[QueueOffset]
    ) -> list[PutResult]:
        """Put messages that no consumer has acknowledged once more, and note that this is done for these offsets.

        Raises:
            MQError: The store refuses them; nothing has changed.
        """
        assert not pending.is_finished
        results = self._put([*drafts, self._ack_draft(pending, offsets)], passes=self._is_awaited(pending))
        self._done(pending, offsets)
        return results[:-1]

    # -- ordered messages ----------------------------------------------------------------------------------------------

    def check_order_room(self, group: str, places: Iterable[tuple[str, int]]) -> None:
        """Pass queues, (topic, queue id), of which a group is to pop in order.

        Raises:
            BrokerBusyError: With them groups would hold too many queues.
        """
        new_count = sum(self.orders.find(topic, group, queue_id) is None for topic, queue_id in places)
        if new_count and len(self.orders) + new_count > self.pending_max:
            raise BrokerBusyError("too many queues are popped in order", count_max=self.pending_max)

    def order_changed(
        self,
        topic: str,
        group: str,
        queue_id: int,
        info: OrderInfo | None,
        *,
        next_offset: QueueOffset,
        is_ack: bool = False,
    ) -> PhysicalOffset:
        """Note what has become of a queue that is popped in order; the end offset of what was put.

        `info` is the state from now on, `next_offset` where the group goes on. `is_ack`: by an acknowledgement.

        Raises:
            MQError: The store refuses the record; nothing has changed.
        """
        record = OrderRecord(topic=topic, group=group, queue_id=queue_id, next_offset=next_offset, info=info)
        if self._is_copy:
            self._apply_order(record)
            return LOG_START
        (result,) = self._put([self.log.order_draft(record)], passes=is_ack)
        self._apply_order(record)
        self.order_saves.add_record(self.log.order_queue_id(queue_id), result.queue_offset, result.physical_offset)
        return result.end_offset

    def encode_orders(self) -> bytes:
        """The content of the order table's file now."""
        return self.orders.encode(log_offset=self._store.commit_log.append_offset)

    # -- topics and groups that go -------------------------------------------------------------------------------------

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: nothing of it comes back, except what is in queues of other brokers."""
        for pending in list(self.in_flight):
            if pending.check_point.topic == topic and self.in_flight.is_own(pending.check_point):
                self.in_flight.drop(pending)
        self.orders.remove_if(lambda name, _group, _queue_id, _info: name == topic)

    def forget_group(self, group: str) -> Iterator[None]:
        """The group was deleted with its offsets: nothing comes back for it, also after a restart, except what is in
        queues of other brokers. To be iterated: a slice at a time.

        Raises:
            MQError: The store refuses that; the rest comes back.
        """
        self.orders.remove_if(lambda _topic, name, _queue_id, _info: name == group)
        keys = [
            pending.key
            for pending in self.in_flight
            if pending.check_point.group == group and self.in_flight.is_own(pending.check_point)
        ]
        for start in range(0, len(keys), MAINTAIN_MAX):
            found = [self.in_flight.find(key) for key in keys[start : start + MAINTAIN_MAX]]
            self.ack([(pending, pending.open_offsets()) for pending in found if pending is not None])
            yield

    # -- rounds --------------------------------------------------------------------------------------------------------

    @property
    def held_offset(self) -> PhysicalOffset | None:
        """The physical offset from which on the local log must be kept; None when nothing is in flight."""
        places = list(self.order_saves.physical_offsets())
        for revive_queue_id in self.in_flight.revive_queue_ids:
            first = self.in_flight.first(revive_queue_id)
            if first is not None:
                places.append(first.physical_offset)
        return min(places, default=None)

    def release_below(self, physical_offset: PhysicalOffset) -> None:
        """Set the offset below which retention would delete the log now, except for messages that wait in it. Call this
        in every round of retention."""
        self._awaited_offset = physical_offset

    def note_progress(self) -> None:
        """Commit how far the revive topic is done with, as RocketMQ has it: the last record that is not needed."""
        for revive_queue_id, read_offset in self._read_offsets.items():
            needed = [read_offset]
            first = self.in_flight.first(revive_queue_id)
            if first is not None:
                needed.append(first.revive_offset)
            needed += [revive_offset for revive_offset, _ in self.order_saves.floors(revive_queue_id)]
            done = min(needed) - 1
            if done >= 0 and done != self._offsets.query(self.log.topic, REVIVE_GROUP, revive_queue_id):
                self._offsets.commit(self.log.topic, REVIVE_GROUP, revive_queue_id, done)

    def catch_up(self) -> None:
        """Read records that another part has put: timers that RocketMQ started, and slaves of other brokers that stand
        in. Mostly there are none."""
        for queue in self.log.queues():
            start = self._read_offsets.get(queue.queue_id, QUEUE_START)
            if start < queue.next_offset:
                for record in self.log.records(queue, start, queue.next_offset):
                    self._replay(record, offsets_from=_BEHIND_ALL, orders_from=_BEHIND_ALL)
                self._read_offsets[queue.queue_id] = queue.next_offset

    def maintain(self) -> bool:
        """Read records that another part has put, and put the oldest check points anew where too many records follow
        them; True when there is more to do. To be called every second or so: only this call sees records of timers.

        Raises:
            MQError: The store refuses them; nothing has changed.
        """
        self._follow_clock()
        self.catch_up()
        remaining = MAINTAIN_MAX
        for queue in self.log.queues():
            remaining -= self._maintain_queue(queue.queue_id, queue.next_offset, remaining)
        return not remaining

    def _follow_clock(self) -> None:
        """Look whether the clock was set back: what was popped while it was ahead would stay away for so long."""
        now_ms, before_ms = self._clock(), self._latest_ms
        self._latest_ms = now_ms
        if now_ms >= before_ms - SET_BACK_MS:
            return
        logger.warning(
            "the clock was set back from_ms=%d to_ms=%d in_flight=%d", before_ms, now_ms, len(self.in_flight)
        )
        self.in_flight.set_back(now_ms)
        for topic, group, queue_id, info in list(self.orders.items()):
            changed = info.set_back(now_ms)
            if changed is not None:
                self.orders.put(topic, group, queue_id, changed)
        self.on_due()

    def _maintain_queue(self, revive_queue_id: int, end: QueueOffset, count_max: int) -> int:
        in_flight = self.in_flight
        is_paused = self._store.commit_log.refusal == DISK_NEARLY_FULL
        old_ms = self._clock() - OLD_MS
        done = 0
        while done < count_max:
            first = in_flight.first(revive_queue_id)
            if first is None:
                break
            if is_paused:
                if not self._is_awaited(first):
                    break
            else:
                window = WINDOW_RECORDS_MIN + WINDOW_RECORDS_EACH * in_flight.count_of(revive_queue_id)
                if end - first.revive_offset <= window and self._put_ms(first) > old_ms:
                    break
            self._put_anew(first)
            done += 1
        return done

    def _put_ms(self, pending: Pending) -> int:
        """When the check point's record was put, ms."""
        return self._store.commit_log.store_timestamp_ms(pending.physical_offset)

    def _put_anew(self, pending: Pending) -> None:
        draft = self.log.check_point_draft(pending.as_record(), pending.revive_queue_id)
        (result,) = self._put([draft], passes=self._is_awaited(pending))
        self.in_flight.moved(
            pending,
            revive_queue_id=pending.revive_queue_id,
            revive_offset=result.queue_offset,
            physical_offset=result.physical_offset,
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _is_awaited(self, pending: Pending) -> bool:
        """Whether retention would delete the log file with the check point's record, except for messages that wait."""
        return pending.physical_offset < self._awaited_offset

    def _put(self, drafts: Sequence[MessageDraft], *, passes: bool = False) -> list[PutResult]:
        """Put records, and others that belong to them, in one write. `passes`: also while the log is paused for a full
        disk."""
        assert not self._is_copy
        self.catch_up()
        with self._store.commit_log.let_through(DISK_NEARLY_FULL) if passes else contextlib.nullcontext():
            results = self._store.put_batch(drafts, was_accepted=True)
        for draft, result in zip(drafts, results, strict=True):
            if draft.topic == self.log.topic:
                self._read_offsets[draft.queue_id] = result.queue_offset + 1
        return results

    def _add(self, check_point: CheckPoint, revive_queue_id: int, result: PutResult) -> None:
        next_due_ms = self.in_flight.next_due_ms
        due_ms, now_ms = check_point.revive_time_ms, self._clock()
        if check_point.pop_time_ms > now_ms + SET_BACK_MS:  # later than a receipt of before the clock was set back
            due_ms = now_ms + check_point.invisible_ms
        self.in_flight.add(
            check_point,
            revive_queue_id=revive_queue_id,
            revive_offset=result.queue_offset,
            physical_offset=result.physical_offset,
            due_ms=due_ms,
        )
        if next_due_ms is None or due_ms < next_due_ms:
            self.on_due()

    def _ack_draft(self, pending: Pending, offsets: Sequence[QueueOffset]) -> MessageDraft:
        check_point = pending.check_point
        record = AckRecord.of(check_point, offsets)
        return self.log.ack_draft(record, pending.revive_queue_id, revive_time_ms=check_point.revive_time_ms)

    def _done(self, pending: Pending, offsets: Sequence[QueueOffset]) -> None:
        for offset in offsets:
            if not pending.is_finished:
                self.in_flight.ack(pending, offset)

    def _free_time(self, places: Sequence[tuple[str, str, int, QueueOffset]], time_ms: int) -> int:
        """The first pop time from `time_ms` on at which no check point begins at these places."""
        while any((*place, time_ms, self.log.broker_name) in self.in_flight for place in places):
            time_ms += 1
        return time_ms

    def _apply_order(self, record: OrderRecord) -> None:
        if record.info is None:
            self.orders.remove(record.topic, record.group, record.queue_id)
        else:
            self.orders.put(record.topic, record.group, record.queue_id, record.info)
        self._offsets.commit(record.topic, record.group, record.queue_id, record.next_offset)

    def _replay(self, record: ReviveRecord, *, offsets_from: PhysicalOffset, orders_from: PhysicalOffset) -> None:
        entry = record.entry
        if isinstance(entry, CheckPoint):
            is_own = self.in_flight.is_own(entry)
            if not is_own or self._store.incarnations.is_live(entry.topic, record.physical_offset):
                self._replay_check_point(entry, record, offsets_from=offsets_from)
        elif isinstance(entry, AckRecord):
            pending = self.in_flight.find(key_of(entry))
            if pending is not None:
                self._done(pending, [offset for offset in entry.offsets if pending.is_acked(offset) is False])
        elif isinstance(entry, OrderRecord):
            self._replay_order(entry, record, offsets_from=offsets_from, orders_from=orders_from)

    def _replay_order(
        self, entry: OrderRecord, record: ReviveRecord, *, offsets_from: PhysicalOffset, orders_from: PhysicalOffset
    ) -> None:
        place = entry.topic, entry.group, entry.queue_id
        if not self._store.incarnations.is_live(entry.topic, record.physical_offset):
            return
        # Had there been another number of revive queues before, newer records could be read first.
        if record.physical_offset < self._order_places.get(place, 0):
            return
        self._order_places[place] = record.physical_offset
        if record.physical_offset >= orders_from:
            if entry.info is None:
                self.orders.remove(*place)
            else:
                self.orders.put(*place, entry.info)
            if not self._is_copy:
                self.order_saves.add_record(record.revive_queue_id, record.revive_offset, record.physical_offset)
        if record.physical_offset >= offsets_from:
            self._offsets.commit(*place, entry.next_offset)

    def _replay_check_point(self, entry: CheckPoint, record: ReviveRecord, *, offsets_from: PhysicalOffset) -> None:
        pending = self.in_flight.find(key_of(entry))
        if pending is not None:
            self.in_flight.moved(
                pending,
                revive_queue_id=record.revive_queue_id,
                revive_offset=record.revive_offset,
                physical_offset=record.physical_offset,
            )
        elif entry.acked_bits != (1 << len(entry.offsets)) - 1:
            grace_ms = TIMED_GRACE_MS if record.is_timed else 0
            self.in_flight.add(
                entry,
                revive_queue_id=record.revive_queue_id,
                revive_offset=record.revive_offset,
                physical_offset=record.physical_offset,
                due_ms=entry.revive_time_ms + grace_ms,
            )
            self.on_due()
        # The record of its first pop tells where the group went on; since a new invisible time it may have been reset.
        is_news = record.physical_offset >= offsets_from and not entry.is_renewal
        if is_news and self.in_flight.is_own(entry):
            committed = self._offsets.query(entry.topic, entry.group, entry.queue_id)
            behind = entry.offsets[-1] + 1
            if committed is None or committed < behind:
                self._offsets.commit(entry.topic, entry.group, entry.queue_id, behind)


def _nobody_waits() -> None:
    """What a store without a reviver does with the news."""
