"""POP finder: finds the messages of a POP in the queues of a topic and of the group's retry topic, hot or cold.

    which queues    with a probability the retry topic first, else last; of two of them either first; the topic's own
                   from a random one on, or the requested one; an ordered POP reads no retry topic
    from where      the group's offset; a pending reset first; without an offset the queue's minimum or, if the request
                    says so, its end (the last message, or the first one ever when that is still in memory)
    how far         until the requested number of messages, or ANSWER_BYTES_MAX of them, is found, with the limits of a
                   pull for each queue

Queues are read by the same finder as pulls (pull_finder.py): hot and cold, expired messages and filters are as there.
Messages found do not count before they are claimed; those after them are summed up as the remaining messages.

Rules
  - A queue that is popped in order and not free is skipped; `free_ms` is the time to try again. An acknowledged message
    is not given out again with an unacknowledged one before it.
  - The POP waits for a queue in the cold tier (`collect_later`) when no message was found before it; else it leaves the
    queue to another POP. While one POP waits for a queue, it is busy, and others skip it.
  - A search by properties (SQL92) runs at once for `SEARCH_S` of a POP; a longer one goes on in turns of the loop
    (loop_turns.py), and the POP waits for it in the same way.
  - An offset that the queue no longer has is corrected, and the corrected one committed.
Belongs to the hot process's loop thread.
Source: PopMessageProcessor.java (popMsgFromTopic, popMsgFromQueue, getPopOffset), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from random import Random

import msgspec

from thermocline.broker.pops.escaped_pops import EscapedPops
from thermocline.broker.pops.pop_request import ANSWER_BYTES_MAX, PopRequest
from thermocline.broker.process import LoopTurns
from thermocline.broker.pulls import ColdNeeded, PullAnswer, PullFinder, PullRequest, SearchNeeded, Wanted
from thermocline.broker.queues import FirstMessages, QueueLookup, VisibleQueues
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.tables import ConsumerOffsets, TopicTable
from thermocline.pop.pop_store import PopStore
from thermocline.remoting.errors import BrokerBusyError, CorruptDataError, UnavailableError
from thermocline.remoting.handles import RetryFlag, pop_retry_topic_v1, pop_retry_topic_v2, retry_flag
from thermocline.remoting.headers.read import PullMessageRequestHeader
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.records.message_record import INT, LONG, POSITION_QUEUE_OFFSET, POSITION_SIZE
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.message_store import MessageStore

INIT_MODE_MIN = 0
CORRECTIONS_MAX = 3
SEARCH_S = 0.0005


class LaterNeeded(Exception):  # noqa: N818 - no failure: the way out of the synchronous path
    """The search takes longer than the loop may be blocked: call `PopFinder.collect_later`."""


class FoundQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one queue. `start_offset` is where the group was, `answer` what was read from there on.

    `read_offsets` holds more than `offsets` where an ordered POP has read what was acknowledged before.
    """

    topic: str
    queue_id: int
    start_offset: QueueOffset
    offsets: tuple[QueueOffset, ...]
    buffers: Sequence[bytes | memoryview]
    read_offsets: tuple[QueueOffset, ...]
    answer: PullAnswer

    @property
    def retry_flag(self) -> RetryFlag:
        """The kind of its topic."""
        return retry_flag(self.topic)


class SteppedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in which nothing was for this group from `start_offset` up to `next_offset`."""

    topic: str
    queue_id: int
    start_offset: QueueOffset
    next_offset: QueueOffset


class PopHarvest:
    """The messages that one POP has found so far, and the queues that are still to be read."""

    __slots__ = (
        *("found", "free_ms", "message_count", "plan", "rest_count"),
        *("search_end_s", "size_bytes", "stepped", "wanted_count"),
    )

    def __init__(self, plan: Sequence[tuple[str, int]], *, wanted_count: int) -> None:
        self.plan = deque(plan)
        self.wanted_count = wanted_count
        self.found: list[FoundQueue] = []
        self.stepped: list[SteppedQueue] = []
        self.message_count = 0
        self.size_bytes = 0
        """Of the messages found."""
        self.rest_count = 0
        """How many messages remain in the queues that were read."""
        self.free_ms: int | None = None
        """When the first of the queues is free that were passed over; None when none was."""
        self.search_end_s: float | None = None
        """Until when searches may go on at once, on `time.perf_counter`; None before the first."""

    @property
    def is_full(self) -> bool:
        """Whether the answer takes no messages of a further queue."""
        return self.message_count >= self.wanted_count or self.size_bytes >= ANSWER_BYTES_MAX

    def keep_bytes(self) -> None:
        """Copy what is found: it stays as it is while the POP waits for another broker."""
        self.found = [
            msgspec.structs.replace(queue, buffers=[bytes(piece) for piece in queue.buffers]) for queue in self.found
        ]


class PopFinder:
    """Reads queues for POPs."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        turns: LoopTurns,
        pops: PopStore,
        escaped: EscapedPops | None,
        visible: VisibleQueues,
        lookup: QueueLookup,
        first_messages: FirstMessages,
        clock: Callable[[], int],
        random: Random,
        finder: PullFinder,
        on_free: Callable[[str, str], None],
    ) -> None:
        """`escaped`: of a slave. `on_free(topic, group)`: called when a queue is no longer busy; the topic may be a
        retry topic."""
        self._settings = settings
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._turns = turns
        self._pops = pops
        self._escaped = escaped
        self._visible = visible
        self._lookup = lookup
        self._first_messages = first_messages
        self._clock = clock
        self._random = random
        self._finder = finder
        self._on_free = on_free
        self._busy: set[tuple[str, str, int]] = set()

    def start(self, request: PopRequest) -> PopHarvest:
        """A harvest with nothing in it yet."""
        header = request.header
        config = self._settings.broker
        # One that wants nothing would wait in front of others for ever, and be woken in their place.
        wanted_count = max(1, header.max_msg_nums)
        chance = self._random.randrange(100)
        own = self._queues_from(header.topic, chance) if header.queue_id < 0 else [(header.topic, header.queue_id)]
        if header.order:
            return PopHarvest(own, wanted_count=wanted_count)
        names = [name(header.topic, header.consumer_group) for name in (pop_retry_topic_v1, pop_retry_topic_v2)]
        if not config.retry_topic_v2:
            names = names[:1]
        elif not config.read_retry_topic_v1:
            names = names[1:]
        elif chance % 2:
            names.reverse()
        retries = [place for name in names for place in self._queues_from(name, chance)]
        is_retry_first = chance < config.pop_from_retry_percent
        return PopHarvest(retries + own if is_retry_first else own + retries, wanted_count=wanted_count)

    def collect(self, request: PopRequest, wanted: Wanted, harvest: PopHarvest) -> None:
        """Read what is in memory or the local log.

        Raises:
            LaterNeeded: Nothing was found so far, and the first queue of the plan is in the cold tier, or a search in
                it takes long.
            UnavailableError: A queue's minimum is not known now.
        """
        plan = harvest.plan
        while plan:
            topic, queue_id = plan[0]
            try:
                self._visit(request, wanted, harvest, topic, queue_id)
            except (ColdNeeded, SearchNeeded) as needed:
                if not harvest.found:
                    raise LaterNeeded from needed
                harvest.rest_count += 1
            plan.popleft()

    async def collect_later(self, request: PopRequest, wanted: Wanted, harvest: PopHarvest) -> None:
        """Read what `collect` could not, and go on. Cancelling is safe.

        Raises:
            UnavailableError: The tier cannot be asked now; the same POP may be repeated.
            BrokerBusyError: Too many searches are under way.
        """
        while harvest.plan:
            await self._visit_later(request, wanted, harvest, *harvest.plan[0])
            harvest.plan.popleft()
            try:
                self.collect(request, wanted, harvest)
            except LaterNeeded:
                continue

    @contextlib.contextmanager
    def holding(self, group: str, queues: Sequence[FoundQueue]) -> Iterator[bool]:
        """Keep other POPs of the group from these queues; False: one of them was faster, and nothing is kept."""
        keys = {(queue.topic, group, queue.queue_id) for queue in queues}
        if keys & self._busy or any(
            self._offsets.query(queue.topic, group, queue.queue_id) != queue.start_offset for queue in queues
        ):
            yield False
            return
        self._busy |= keys
        try:
            yield True
        finally:
            self._busy -= keys
            for topic in {queue.topic for queue in queues}:
                self._on_free(topic, group)

    def offset(self, topic: str, group: str, queue_id: int, *, init_mode: int) -> QueueOffset:
        """The group's offset in a queue; without one, the start offset, which is committed.

        Raises:
            UnavailableError: The queue's minimum is not known now.
        """
        reset = self._offsets.take_reset(topic, group, queue_id)
        if reset is not None:
            if self._pops.orders.find(topic, group, queue_id) is not None:
                self._pops.order_changed(topic, group, queue_id, None, next_offset=reset)
            self._offsets.commit(topic, group, queue_id, reset)
            return reset
        offset = self._offsets.query(topic, group, queue_id)
        if offset is None:
            offset = self._first_offset(topic, queue_id, init_mode)
            self._offsets.commit(topic, group, queue_id, offset)
        return offset

    # -- inside --------------------------------------------------------------------------------------------------------

    def _queues_from(self, topic: str, chance: int) -> list[tuple[str, int]]:
        config = self._topics.get(topic)
        if config is None:
            return []
        count = config.read_queue_nums
        return [(topic, (chance + index) % count) for index in range(count)]

    def _visit(self, request: PopRequest, wanted: Wanted, harvest: PopHarvest, topic: str, queue_id: int) -> None:
        header = request.header
        group = header.consumer_group
        if (topic, group, queue_id) in self._busy:
            return
        offset = self.offset(topic, group, queue_id, init_mode=header.init_mode)
        if self._is_blocked(request, harvest, topic, queue_id):
            return  # its remaining messages do not count: no other POP may have them, so none is woken for them
        if harvest.is_full or self._is_too_much(topic, group, queue_id):
            harvest.rest_count += max(0, self._lookup.end(topic, queue_id) - offset)
            return
        count = harvest.wanted_count - harvest.message_count
        for _ in range(CORRECTIONS_MAX):
            answer = self._find(harvest, _pull(request, topic, queue_id, offset=offset, count=count), wanted)
            if answer.code != ResponseCode.PULL_OFFSET_MOVED:
                break
            offset = answer.next_offset
            self._offsets.commit(topic, group, queue_id, offset)
        self._gather(request, harvest, topic, queue_id, offset, answer)

    async def _visit_later(
        self, request: PopRequest, wanted: Wanted, harvest: PopHarvest, topic: str, queue_id: int
    ) -> None:
        """`_visit`, however long that takes. Since that, another POP may have begun to read the queue, or have it."""
        group = request.header.consumer_group
        key = topic, group, queue_id
        if key in self._busy:
            return
        offset = self.offset(topic, group, queue_id, init_mode=request.header.init_mode)
        if self._is_blocked(request, harvest, topic, queue_id):
            return
        self._busy.add(key)
        try:
            pull = _pull(request, topic, queue_id, offset=offset, count=harvest.wanted_count - harvest.message_count)
            answer = await self._find_later(pull, wanted)
        finally:
            self._busy.discard(key)
            self._on_free(topic, group)
        if self._offsets.query(topic, group, queue_id) == offset:  # the group's offset has not changed meanwhile
            self._gather(request, harvest, topic, queue_id, offset, answer)

    def _is_blocked(self, request: PopRequest, harvest: PopHarvest, topic: str, queue_id: int) -> bool:
        """Whether an ordered POP may not have more of a queue yet; noted in the harvest."""
        header = request.header
        info = self._pops.orders.find(topic, header.consumer_group, queue_id) if header.order else None
        if info is None or not info.is_blocking(self._clock(), attempt_id=header.attempt_id):
            return False
        harvest.free_ms = info.free_ms if harvest.free_ms is None else min(harvest.free_ms, info.free_ms)
        return True

    def _find(self, harvest: PopHarvest, pull: PullRequest, wanted: Wanted) -> PullAnswer:
        """Read a queue, unless that takes long. Raises ColdNeeded, SearchNeeded."""
        try:
            return self._finder.find(pull, wanted)
        except SearchNeeded as needed:
            if harvest.search_end_s is None:
                harvest.search_end_s = time.perf_counter() + SEARCH_S
            end_s = harvest.search_end_s
            if not needed.runs.go_on(lambda: time.perf_counter() >= end_s):
                raise
            return self._finder.search_answer(needed.runs)

    async def _find_later(self, pull: PullRequest, wanted: Wanted) -> PullAnswer:
        """Read a queue, however long that takes. Cancelling is safe."""
        try:
            return self._finder.find(pull, wanted)
        except ColdNeeded:
            return await self._finder.find_cold(pull, wanted)
        except SearchNeeded as needed:
            runs = needed.runs
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def go_on(is_time_up: Callable[[], bool]) -> bool:
            try:
                has_ended = done.done() or runs.go_on(is_time_up)
            except CorruptDataError as error:
                done.set_exception(error)
                return True
            if has_ended and not done.done():
                done.set_result(None)
            return has_ended

        if not self._turns.add(go_on):
            raise BrokerBusyError("too many searches for messages are on the way")
        await done
        return self._finder.search_answer(runs)

    def _gather(
        self,
        request: PopRequest,
        harvest: PopHarvest,
        topic: str,
        queue_id: int,
        offset: QueueOffset,
        answer: PullAnswer,
    ) -> None:
        group = request.header.consumer_group
        next_offset = answer.next_offset
        if answer.code == ResponseCode.SUCCESS:
            read_offsets, buffers = queue_offsets(answer.buffers), answer.buffers
            assert len(read_offsets) == answer.message_count
            offsets = read_offsets
            info = self._pops.orders.find(topic, group, queue_id) if request.header.order else None
            acked = info.acked_from(offset) if info is not None else ()
            if acked and any(each in acked for each in read_offsets):
                buffers, offsets = _without(buffers, acked)
            if offsets:
                found = FoundQueue(
                    topic=topic,
                    queue_id=queue_id,
                    start_offset=offset,
                    offsets=offsets,
                    buffers=buffers,
                    read_offsets=read_offsets,
                    answer=answer,
                )
                harvest.found.append(found)
                harvest.message_count += len(offsets)
                harvest.size_bytes += sum(map(len, buffers))
            else:
                harvest.stepped.append(
                    SteppedQueue(topic=topic, queue_id=queue_id, start_offset=offset, next_offset=next_offset)
                )
        elif answer.code == ResponseCode.PULL_OFFSET_MOVED:  # of a queue in the cold tier
            self._offsets.commit(topic, group, queue_id, next_offset)
        elif next_offset > offset:
            harvest.stepped.append(
                SteppedQueue(topic=topic, queue_id=queue_id, start_offset=offset, next_offset=next_offset)
            )
        harvest.rest_count += max(0, answer.max_offset - next_offset)

    def _is_too_much(self, topic: str, group: str, queue_id: int) -> bool:
        config = self._settings.broker
        if not config.pop_threshold_on:
            return False
        count = self._pops.in_flight.message_count(topic, group, queue_id)
        if self._escaped is not None:
            count += self._escaped.message_count(topic, group, queue_id)
        return count > config.pop_threshold

    def _first_offset(self, topic: str, queue_id: int, init_mode: int) -> QueueOffset:
        queue = self._store.queues.find(topic, queue_id)
        if queue is None:
            return QUEUE_START
        if init_mode == INIT_MODE_MIN or retry_flag(topic) is not RetryFlag.NORMAL:
            if self._visible.cold_start(queue) is None:
                raise UnavailableError("the cold tier has not reported yet", topic=topic, queue_id=queue_id)
            return self._visible.near_minimum(queue)
        if self._settings.broker.pop_init_in_memory and self._first_messages.is_in_memory(topic, queue_id):
            return QUEUE_START
        return max(QUEUE_START, self._visible.end(queue) - 1)


def queue_offsets(runs: Sequence[bytes | memoryview]) -> tuple[QueueOffset, ...]:
    """The queue offsets of the records in runs of whole records."""
    offsets: list[QueueOffset] = []
    for run in runs:
        position = 0
        while position < len(run):
            offsets.append(LONG.unpack_from(run, position + POSITION_QUEUE_OFFSET)[0])
            position += INT.unpack_from(run, position + POSITION_SIZE)[0]
    return tuple(offsets)


def _without(
    runs: Sequence[bytes | memoryview], unwanted: Container[QueueOffset]
) -> tuple[list[memoryview], tuple[QueueOffset, ...]]:
    """The records in runs of whole records that do not have one of these queue offsets, and theirs."""
    records: list[memoryview] = []
    offsets: list[QueueOffset] = []
    for run in runs:
        view, position = memoryview(run), 0
        while position < len(view):
            (offset,) = LONG.unpack_from(view, position + POSITION_QUEUE_OFFSET)
            (size_bytes,) = INT.unpack_from(view, position + POSITION_SIZE)
            if offset not in unwanted:
                records.append(view[position : position + size_bytes])
                offsets.append(offset)
            position += size_bytes
    return records, tuple(offsets)


def _pull(request: PopRequest, topic: str, queue_id: int, *, offset: QueueOffset, count: int) -> PullRequest:
    """The pull that reads one queue for a POP."""
    return PullRequest(
        request.connection,
        PullMessageRequestHeader(
            consumer_group=request.header.consumer_group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=0,
        ),
        code=RequestCode.POP_MESSAGE,
        opaque=request.command.opaque,
        serialize_type=request.command.serialize_type,
    )
