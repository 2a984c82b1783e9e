"""Escaped pops: POP at a slave that stands in for its master. Its log is a copy, so check points go to another master.

    claim     check points -> the revive topic of another master, with their times; then the group's offsets move on
    ack       acknowledgements -> the same revive queue of the same master
    renew     a check point for one message alone -> that master, then the old one's acknowledgement
    forward   what the own master had in flight (`PopStore.open_copy`): a check point that is due goes to another
              master, with the bits of what was acknowledged here; not one with messages that this slave lacks: the
              own master has to read them

The other master puts what is not acknowledged into its own retry topic; it reads the message from this broker name, so
from this slave, or from the master when that is back.

Rules
  - A group's offset moves on when its check point was answered SEND_OK. While it is on the way, the queue is busy.
  - All records of one topic go to one queue of one master, chosen by names, so that an acknowledgement finds its check
    point. A master without the topic is not chosen: nothing would pop there.
  - Receipts are known until their messages come back, also after the end: clients are late.
  - Without another master that has the topic nothing is popped.
Bounds: `pending_max` of the POP store for the check points remembered here or on their way, then BrokerBusyError.
Owner: the hot process's event loop.
Source: PopMessageProcessor.java, PopBufferMergeService.java, AckMessageProcessor.java,
ChangeInvisibleTimeProcessor.java, PopReviveService.java, EscapeBridge.java (putMessageToSpecificQueue), Apache RocketMQ
5.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from thermocline.pop.ack_record import AckRecord
from thermocline.pop.check_point import DELIVER_AHEAD_MS, CheckPoint
from thermocline.pop.in_flight import Key, Pending
from thermocline.pop.pop_store import Claim, GroupOffsets, PopStore, Take
from thermocline.remoting.errors import BrokerBusyError, MQError, ServiceUnavailableError
from thermocline.remoting.handles import normal_topic
from thermocline.remoting.offsets import LOG_START, QUEUE_START, PhysicalOffset, QueueOffset
from thermocline.store.log import MessageDraft

logger = logging.getLogger(__name__)

SLICE_MAX = 64
AGAIN_MS = 10_000
"""After a check point that could not be forwarded."""
REST_MS_MAX = 1_000
EXPIRE_MS = 10_000


class RecordPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A revive queue of another master."""

    broker_name: str
    queue_id: int


class RecordBridge(Protocol):
    """The way to other masters."""

    async def record_place(self, topic: str) -> RecordPlace:
        """Where records about messages of a topic go. Raises MQError: nowhere now."""

    async def send(self, draft: MessageDraft, *, place: RecordPlace | None = None, due_ms: int | None = None) -> None:
        """Return when another master has the record; it is to be in its queue at `due_ms`. Raises MQError."""


class EscapedCheckPoint(Pending):
    """A check point that another master has."""

    __slots__ = ("place",)

    def __init__(self, check_point: CheckPoint, place: RecordPlace) -> None:
        super().__init__(
            check_point,
            revive_queue_id=place.queue_id,
            revive_offset=QUEUE_START,
            physical_offset=LOG_START,
            due_ms=check_point.revive_time_ms,
        )
        self.place = place


class EscapedPops:
    """See the module's header."""

    def __init__(self, pops: PopStore, offsets: GroupOffsets, *, clock: Callable[[], int]) -> None:
        """`clock`: wall clock in ms."""
        self._pops = pops
        self._offsets = offsets
        self._clock = clock
        self._bridge: RecordBridge | None = None
        self._has: Callable[[str, int, QueueOffset], bool] = _has_all
        self._held: dict[Key, EscapedCheckPoint] = {}
        self._message_counts: Counter[tuple[str, str, int]] = Counter()
        self._expired_ms = 0
        self._claims_count = 0
        self._on_way_count = 0
        """Check points that are to be remembered; for a moment they count twice."""
        self._claimed = asyncio.Event()
        self._failure = ""
        self.is_open = False
        """Whether messages are popped here."""

    def __len__(self) -> int:
        return len(self._held)

    def begin(
        self,
        bridge: RecordBridge,
        *,
        offsets_log_offset: PhysicalOffset | None,
        has: Callable[[str, int, QueueOffset], bool],
    ) -> Iterator[None]:
        """Read what the master had in flight; to be iterated. At its end this broker stands in. `offsets_log_offset`:
        see PopStore.open. `has(topic, queue id, offset)`: whether this broker serves that message."""
        assert not self.is_open
        self._bridge = bridge
        self._has = has
        yield from self._pops.open_copy(offsets_log_offset=offsets_log_offset)
        self.is_open = True

    async def end(self) -> None:
        """Nothing is popped here from now on; on return, how far the master's check points were done with is noted.
        Idempotent."""
        was_open, self.is_open = self.is_open, False
        while self._claims_count:
            self._claimed.clear()
            await self._claimed.wait()
        if was_open:
            self._pops.note_progress()
        self._pops.close_copy()

    def note_progress(self) -> None:
        """See PopStore."""
        if self.is_open:
            self._pops.note_progress()

    def find(self, key: Key) -> EscapedCheckPoint | None:
        """The check point that a receipt names; None when it is finished, or never was recorded from here."""
        held = self._held.get(key)
        return held if held is not None and held.due_ms > self._clock() else None

    def message_count(self, topic: str, group: str, queue_id: int) -> int:
        """How many messages of a queue a group has in flight, by these check points."""
        return self._message_counts[topic, group, queue_id]

    # -- what consumers do ---------------------------------------------------------------------------------------------

    async def claim(self, group: str, takes: Sequence[Take], *, invisible_ms: int) -> Claim:
        """Give messages to a group until `invisible_ms` from now, and let its offsets go on behind them. The caller
        keeps others from these queues meanwhile. If it is cancelled, the messages may come twice.

        Raises:
            BrokerBusyError: Too much is in flight, or nothing is popped here now.
            MQError: No other master has all check points; the messages may come twice.
        """
        if not self.is_open:
            raise BrokerBusyError("the master is back, ask it")
        with self._room_for(len(takes)), self._claiming():
            bridge = self._bridge
            assert bridge is not None
            place = await bridge.record_place(normal_topic(takes[0].topic, group))
            places = [(each.topic, group, each.queue_id, each.start_offset) for each in takes]
            pop_time_ms = self._free_time(places, self._clock())
            broker_name = self._pops.log.broker_name
            check_points = [
                each.check_point(group, pop_time_ms=pop_time_ms, invisible_ms=invisible_ms, broker_name=broker_name)
                for each in takes
            ]
            await _all(self._record(check_point, place) for check_point in check_points)
            for each in takes:
                self._offsets.commit(each.topic, group, each.queue_id, each.next_offset)
        return Claim(pop_time_ms=pop_time_ms, revive_queue_id=place.queue_id, end_offset=LOG_START)

    async def ack(self, acks: Iterable[tuple[EscapedCheckPoint, Sequence[QueueOffset]]]) -> None:
        """Note messages as consumed. If it is cancelled, they may come again.

        Raises:
            MQError: Not all of it is noted.
        """
        wanted = [
            (held, opened)
            for held, offsets in acks
            if (opened := [offset for offset in dict.fromkeys(offsets) if held.is_acked(offset) is False])
        ]
        await _all(self._ack(held, offsets) for held, offsets in wanted)

    async def renew(self, pending: Pending, offset: QueueOffset, *, invisible_ms: int, is_suspended: bool) -> Claim:
        """Set the due time of a message in flight to `invisible_ms` from now; it gets a new receipt. `pending`: of this
        broker or of its master.

        Raises:
            BrokerBusyError: Too much is in flight; nothing has changed.
            MQError: No other master has the new check point.
        """
        bridge, old = self._bridge, pending.check_point
        assert bridge is not None
        with self._room_for(1):
            if isinstance(pending, EscapedCheckPoint):
                place = pending.place
            else:
                place = await bridge.record_place(normal_topic(old.topic, old.group))
            key_place = old.topic, old.group, old.queue_id, offset
            check_point = old.renewed(
                offset,
                pop_time_ms=self._free_time([key_place], max(self._clock(), old.pop_time_ms + 1)),
                invisible_ms=invisible_ms,
                is_suspended=is_suspended,
            )
            await self._record(check_point, place)
        if isinstance(pending, EscapedCheckPoint):
            try:
                await self._ack(pending, [offset])
            except MQError as error:
                logger.warning("a message with a new invisible time comes by the old one, too error=%s", error)
        else:
            self._pops.ack([(pending, [offset])])
        return Claim(pop_time_ms=check_point.pop_time_ms, revive_queue_id=place.queue_id, end_offset=LOG_START)

    # -- what the master had in flight ---------------------------------------------------------------------------------

    async def forward_due(self) -> int | None:
        """Send check points of the master that are due to another one, up to a slice; how long to rest afterwards, in
        ms; None: one could not be sent."""
        pops, now = self._pops, self._clock()
        self._expire(now)
        pops.catch_up()
        due: list[Pending] = []
        while len(due) < SLICE_MAX and (pending := pops.in_flight.take_due(now)) is not None:
            due.append(pending)
        results = await asyncio.gather(*(self._forward(pending) for pending in due))
        if not all(results):
            return None
        if len(due) == SLICE_MAX:
            return 0
        next_due_ms = pops.in_flight.next_due_ms
        return REST_MS_MAX if next_due_ms is None else min(max(1, next_due_ms - now), REST_MS_MAX)

    async def _forward(self, pending: Pending) -> bool:
        bridge, check_point = self._bridge, pending.check_point
        assert bridge is not None
        in_flight = self._pops.in_flight
        try:
            if in_flight.is_own(check_point) and not all(
                self._has(check_point.topic, check_point.queue_id, offset) for offset in pending.open_offsets()
            ):
                raise ServiceUnavailableError("only the master has a popped message", topic=check_point.topic)
            place = await bridge.record_place(normal_topic(check_point.topic, check_point.group))
            await self._send_check_point(pending.as_record(), place)
        except MQError as error:
            if str(error) != self._failure:
                self._failure = str(error)
                logger.warning("popped messages of the master are not back yet error=%s", error)
            pending.tries += 1
            in_flight.put_off(pending, self._clock() + AGAIN_MS)
            return False
        except BaseException:
            in_flight.put_off(pending, self._clock() + AGAIN_MS)
            raise
        self._failure = ""
        in_flight.drop(pending)
        return True

    # -- inside --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _claiming(self) -> Iterator[None]:
        self._claims_count += 1
        try:
            yield
        finally:
            self._claims_count -= 1
            self._claimed.set()

    @contextlib.contextmanager
    def _room_for(self, count: int) -> Iterator[None]:
        """Raises BrokerBusyError: There is none."""
        if len(self._held) + self._on_way_count + count > self._pops.pending_max:
            raise BrokerBusyError("too many popped messages are not acknowledged", count_max=self._pops.pending_max)
        self._on_way_count += count
        try:
            yield
        finally:
            self._on_way_count -= count

    def _free_time(self, places: Sequence[tuple[str, str, int, QueueOffset]], time_ms: int) -> int:
        """The first pop time from `time_ms` on at which no check point begins at these places."""
        name = self._pops.log.broker_name
        while any((key := (*place, time_ms, name)) in self._held or key in self._pops.in_flight for place in places):
            time_ms += 1
        return time_ms

    async def _record(self, check_point: CheckPoint, place: RecordPlace) -> None:
        """Have it at another master, and remember it."""
        held = EscapedCheckPoint(check_point, place)
        self._held[held.key] = held
        self._count(held, len(check_point.offsets))
        try:
            await self._send_check_point(check_point, place)
        except BaseException:
            self._forget(held)
            raise

    async def _send_check_point(self, check_point: CheckPoint, place: RecordPlace) -> None:
        assert self._bridge is not None
        draft = self._pops.log.check_point_draft(check_point, place.queue_id)
        await self._bridge.send(draft, place=place, due_ms=check_point.revive_time_ms - DELIVER_AHEAD_MS)

    async def _ack(self, held: EscapedCheckPoint, offsets: Sequence[QueueOffset]) -> None:
        assert self._bridge is not None
        check_point = held.check_point
        record = AckRecord.of(check_point, offsets)
        revive_time_ms = check_point.revive_time_ms
        draft = self._pops.log.ack_draft(record, held.place.queue_id, revive_time_ms=revive_time_ms)
        await self._bridge.send(draft, place=held.place, due_ms=revive_time_ms)
        if held.key not in self._held:
            return
        for offset in offsets:
            if held.is_acked(offset) is False:
                held.acked_bits |= 1 << check_point.offsets.index(offset)
                self._count(held, -1)
        if not held.open_offsets():
            self._forget(held)

    def _forget(self, held: EscapedCheckPoint) -> None:
        """Idempotent: it may expire while it is on its way, or while an acknowledgement is."""
        if self._held.get(held.key) is held:
            self._count(held, -len(held.open_offsets()))
            del self._held[held.key]

    def _count(self, held: EscapedCheckPoint, change: int) -> None:
        check_point = held.check_point
        key = check_point.topic, check_point.group, check_point.queue_id
        self._message_counts[key] += change
        if not self._message_counts[key]:
            del self._message_counts[key]

    def _expire(self, now: int) -> None:
        """Forget those whose messages come back by now."""
        if now - self._expired_ms < EXPIRE_MS:
            return
        self._expired_ms = now
        for held in list(self._held.values()):
            if held.due_ms <= now:
                self._forget(held)


def _has_all(topic: str, queue_id: int, offset: QueueOffset) -> bool:
    return True


async def _all(calls: Iterable[Awaitable[None]]) -> None:
    """Await all of them; raise the first error."""
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
