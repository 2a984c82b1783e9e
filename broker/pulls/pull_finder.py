"""Pull finder: finds the messages of a pull in a queue, hot or cold.

In this order (min, end: the visible queue, see visible_queues.py):

    a reset is pending                     OFFSET_RESET             21   the reset offset
    no such queue                          NO_MATCHED_LOGIC_QUEUE   19 if offset is 0, else 21: 0
    nothing was ever put into it           NO_MESSAGE_IN_QUEUE      19 if offset is 0, else 21: 0
    offset == end                          OFFSET_OVERFLOW_ONE      19   the offset itself
    offset > end, not flushed yet          OFFSET_OVERFLOW_ONE      19   the offset itself: a slave may have been faster
    offset > end                           OFFSET_OVERFLOW_BADLY    21   end
    offset < min                           OFFSET_TOO_SMALL         21   min
    a message that matches                 FOUND                     0   after the last one returned
    none of those examined matches         NO_MATCHED_MESSAGE       20   after the last one examined

Rules
  - Messages that have expired but are still stored are skipped like those of other tags. With "offset moved" a consumer
    that lags behind the cut of a busy topic would get new offsets for ever, each one expired by its next pull.
  - One pull with a filter looks at `UNITS_EXAMINED_MAX` messages. Tags are compared in the queue's units, at once. A
    filter on properties has to look into the records: `find` raises SearchNeeded with the search, `search_answer` makes
    an answer of it once it has ended.
  - At most 32 messages and 256 KiB, 8 and 64 KiB when they are so far back that the page cache has hardly kept them
    (settings `maxTransfer...OnMessageInMemory` and `...InDisk`); what the client asks for is a limit too; one message
    always goes. From the cold tier at most 8 MiB come, whatever settings say: all of an answer is one frame on its way
    to this process, and at most 64 are on the way.
  - In a store that was recovered from its bucket, queues go on above all offsets that the lost disk may have given out.
    Offsets below the first stored message are skipped there too: "offset moved" would cost an official consumer ten
    seconds and its pulled messages.
  - An offset below the local minimum is answered by the cold tier. Records that it has sent before are in memory
    (cold_runs.py); else `find` raises ColdNeeded, and `find_cold` asks it. Cold messages that expire before the answer
    are cut off.
Source: DefaultMessageStore.java (getMessage), PullMessageProcessor.java (composeResponseHeader), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from thermocline.broker.cold import ColdPull, ColdPullResult, ColdReads
from thermocline.broker.process import total_memory_bytes
from thermocline.broker.pulls.cold_pull_limits import ColdPullLimits
from thermocline.broker.pulls.cold_read_quota import ColdReadQuota
from thermocline.broker.pulls.pull_reply import PullAnswer
from thermocline.broker.pulls.pull_request import PullRequest
from thermocline.broker.pulls.request_expressions import Wanted
from thermocline.broker.queues import VisibleQueues
from thermocline.broker.settings import BrokerConfig, CurrentConfig
from thermocline.broker.tables import ConsumerOffsets
from thermocline.filters import CompiledFilter
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.headers.read import PullMessageRequestHeader
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.records import sys_flag as sys_flags
from thermocline.remoting.records.message_record import (
    INT,
    POSITION_SIZE,
    store_timestamp_at,
)
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.log import GetStatus
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue, FilteredRuns, RunLimits, read_runs

UNITS_EXAMINED_MAX = 800
"""How many units one pull with a filter looks at before it answers that none matched (`maxFilterMessageSize`)."""

COLD_BYTES_MAX = 8 * 1024 * 1024
"""Of an answer from the cold tier, whatever `maxTransferBytesOnMessageInMemory` says."""

OFFSET_RESET = "OFFSET_RESET"


class ColdNeeded(Exception):  # noqa: N818 - no failure: the way out of the synchronous path
    """The answer has to be fetched from the cold tier."""


class SearchNeeded(Exception):  # noqa: N818 - no failure: the way out of the synchronous path
    """The answer is what a search in records finds, `runs`, which has not begun."""

    def __init__(self, runs: FilteredRuns) -> None:
        super().__init__()
        self.runs = runs


class PullLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one pull may take, near the log's end and further back than `near_bytes`."""

    near: RunLimits
    far: RunLimits
    near_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig, *, near_bytes: int | None) -> PullLimits:
        """As the settings say; `near_bytes` None is the share of this machine's memory that they name."""
        return cls(
            near=RunLimits(count_max=config.pull_count_max, bytes_max=config.pull_bytes_max),
            far=RunLimits(count_max=config.disk_pull_count_max, bytes_max=config.disk_pull_bytes_max),
            near_bytes=total_memory_bytes() * config.memory_percent // 100 if near_bytes is None else near_bytes,
        )


class PullFinder:
    """Looks into queues. Pulls that wait look again through the same methods."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        store: MessageStore,
        offsets: ConsumerOffsets,
        cold: ColdReads,
        cold_quota: ColdReadQuota,
        limits: ColdPullLimits,
        visible: VisibleQueues,
        on_cold_read: Callable[[int], None],
        near_bytes: int | None = None,
    ) -> None:
        """`limits`: those that the callers of `find_cold` are counted in. `on_cold_read` receives how many ms each read
        from the cold tier took: others take no measurable time.
        `near_bytes`: how far behind the log's end messages count as being in memory; None: as settings say."""
        self._settings = settings
        self._store = store
        self._offsets = offsets
        self._cold = cold
        self._quota = cold_quota
        self._cold_limits = limits
        self._visible = visible
        self._on_cold_read = on_cold_read
        self._near_bytes = near_bytes
        self._log = store.commit_log
        self._config = settings.broker
        self._known_limits = PullLimits.of(self._config, near_bytes=near_bytes)

    def find(self, request: PullRequest, wanted: Wanted) -> PullAnswer:
        """Read the queue for the pull now.

        Raises:
            ColdNeeded: The cold tier has to be asked.
            SearchNeeded: Records have to be looked into.
            BrokerBusyError: There is no room for the offset that it commits.
        """
        header = request.header
        queue = self._store.queues.find(header.topic, header.queue_id)
        if self._settings.broker.server_side_reset:
            reset = self._offsets.take_reset(header.topic, header.consumer_group, header.queue_id)
            if reset is not None:
                return self._moved(OFFSET_RESET, reset, queue)
        if request.is_first and header.sys_flag & sys_flags.PULL_COMMIT_OFFSET and header.commit_offset >= 0:
            self._offsets.check_room(header.topic, header.consumer_group, address=request.connection.remote_address)
            self._offsets.commit(header.topic, header.consumer_group, header.queue_id, header.commit_offset)
        offset = request.offset
        if queue is None:
            return _nothing_stored(GetStatus.NO_MATCHED_LOGIC_QUEUE, offset)
        end = self._store.max_offset(queue)
        is_unflushed = end < offset <= queue.next_offset
        if end == 0 and not is_unflushed:
            return _nothing_stored(GetStatus.NO_MESSAGE_IN_QUEUE, offset)
        visible = self._visible
        if offset == end or is_unflushed:
            return PullAnswer(
                ResponseCode.PULL_NOT_FOUND,
                GetStatus.OFFSET_OVERFLOW_ONE.value,
                next_offset=offset,
                min_offset=visible.near_minimum(queue),
                max_offset=end,
            )
        if offset > end:
            return self._moved(GetStatus.OFFSET_OVERFLOW_BADLY.value, end, queue)
        start = visible.hot_start(queue)
        if offset < queue.min_offset:
            cold_start = visible.cold_start(queue)
            if cold_start == queue.min_offset:
                return self._too_small(start, queue)
            # When even the oldest local message has expired, so has everything in front of it.
            if cold_start is None or start == queue.min_offset or offset < cold_start:
                pull = self._cold_pull(request, wanted)
                # The tier no longer serves messages below `cold_start`, also those that it has sent before.
                is_refused = cold_start is None or offset < cold_start or self._quota.is_used_up(header.consumer_group)
                held = None if is_refused else self._cold.held(pull)
                if held is None:
                    raise ColdNeeded
                return self._cold_answer(header, held, queue, expired_before_ms=pull.expired_before_ms)
        start = max(offset, start)
        if wanted.properties is not None:
            raise SearchNeeded(self._search(header, wanted.properties, queue, start=start, end=end))
        return self._read(header, wanted.codes, queue, start=start, end=end)

    async def find_cold(self, request: PullRequest, wanted: Wanted) -> PullAnswer:
        """The same for a pull that needs the cold tier, and is counted in the limits. Cancelling is safe.

        Raises:
            UnavailableError: The tier cannot be asked now; the same pull may be retried.
        """
        header = request.header
        visible = self._visible
        queue = self._store.queues.find(header.topic, header.queue_id)
        bounds = self._cold.bounds(header.topic, header.queue_id)
        if bounds is None:
            raise UnavailableError("the cold tier has not reported yet")
        if queue is None or request.offset >= queue.min_offset or bounds.min_offset >= bounds.end_offset:
            raise UnavailableError("the queue has changed")  # asked again, the pull takes another way
        offset = request.offset
        if offset < bounds.min_offset:
            return self._too_small(await visible.minimum(queue), queue)
        if offset >= bounds.end_offset:
            # Neither tier holds the offsets between: their messages were dropped, and are skipped.
            return self._stepped(queue, queue.min_offset)
        while self._quota.is_used_up(header.consumer_group):
            await self._cold_limits.while_waiting(lambda: self._quota.wait(header.consumer_group))
        clock = self._store.clock
        started_ms = clock.now_ms()
        result = await self._cold.pull(self._cold_pull(request, wanted))
        self._on_cold_read(clock.now_ms() - started_ms)
        if result.next_offset <= offset:
            raise UnavailableError("the cold tier does not hold what it said it holds", topic=header.topic)
        return self._cold_answer(header, result, queue, expired_before_ms=visible.expired_before_ms(header.topic))

    def search_answer(self, runs: FilteredRuns) -> PullAnswer:
        """The answer with the result of a finished search."""
        if not runs.message_count:
            return self._stepped(runs.queue, runs.next_offset)
        return PullAnswer(
            ResponseCode.SUCCESS,
            GetStatus.FOUND.value,
            next_offset=runs.next_offset,
            min_offset=self._visible.near_minimum(runs.queue),
            max_offset=self._store.max_offset(runs.queue),
            buffers=runs.buffers(),
            message_count=runs.message_count,
            size_bytes=runs.size_bytes,
        )

    def _cold_pull(self, request: PullRequest, wanted: Wanted) -> ColdPull:
        header, limits, properties = request.header, self._limits.near, wanted.properties
        return ColdPull(
            topic=header.topic,
            queue_id=header.queue_id,
            offset=request.offset,
            count_max=_count_max(header, limits),
            bytes_max=min(_bytes_max(header, limits), COLD_BYTES_MAX),
            codes=wanted.codes,
            expression="" if properties is None else properties.text,
            expired_before_ms=self._visible.expired_before_ms(header.topic),
            group=header.consumer_group,
            reader=request.connection.remote_address,
        )

    def _cold_answer(
        self, header: PullMessageRequestHeader, result: ColdPullResult, queue: ConsumeQueue, *, expired_before_ms: int
    ) -> PullAnswer:
        records, dropped_count = without_expired(result.records, expired_before_ms)
        if not records:
            return self._stepped(queue, result.next_offset)
        size_bytes = sum(map(len, records))
        self._quota.add(header.consumer_group, size_bytes)
        return PullAnswer(
            ResponseCode.SUCCESS,
            GetStatus.FOUND.value,
            next_offset=result.next_offset,
            min_offset=self._visible.near_minimum(queue),
            max_offset=self._store.max_offset(queue),
            buffers=records,
            message_count=result.message_count - dropped_count,
            size_bytes=size_bytes,
        )

    def _read(
        self,
        header: PullMessageRequestHeader,
        codes: frozenset[int] | None,
        queue: ConsumeQueue,
        *,
        start: QueueOffset,
        end: QueueOffset,
    ) -> PullAnswer:
        limits = self._limits
        count_max = _count_max(header, limits.near)
        runs = read_runs(
            self._log,
            queue.units(start, min(UNITS_EXAMINED_MAX if codes else count_max, end - start)),
            codes=codes,
            count_max=count_max,
            bytes_max=_bytes_max(header, limits.near),
            far_offset=self._log.append_offset - limits.near_bytes,
            far_limits=limits.far,
        )
        if not runs.message_count:
            return self._stepped(queue, start + runs.examined)
        return PullAnswer(
            ResponseCode.SUCCESS,
            GetStatus.FOUND.value,
            next_offset=start + runs.examined,
            min_offset=self._visible.near_minimum(queue),
            max_offset=end,
            buffers=runs.buffers,
            message_count=runs.message_count,
            size_bytes=runs.size_bytes,
        )

    def _search(
        self,
        header: PullMessageRequestHeader,
        properties: CompiledFilter,
        queue: ConsumeQueue,
        *,
        start: QueueOffset,
        end: QueueOffset,
    ) -> FilteredRuns:
        limits = self._limits
        return FilteredRuns(
            self._log,
            queue,
            matches=properties.matches_text,
            start=start,
            end=min(end, start + UNITS_EXAMINED_MAX),
            count_max=_count_max(header, limits.near),
            bytes_max=_bytes_max(header, limits.near),
            far_offset=self._log.append_offset - limits.near_bytes,
            far_limits=limits.far,
        )

    @property
    def near_bytes(self) -> int:
        """How far behind the log's end messages count as being in memory."""
        return self._limits.near_bytes

    @property
    def _limits(self) -> PullLimits:
        config = self._settings.broker
        if config is not self._config:  # a setting was changed
            self._config = config
            self._known_limits = PullLimits.of(config, near_bytes=self._near_bytes)
        return self._known_limits

    def _stepped(self, queue: ConsumeQueue, next_offset: QueueOffset) -> PullAnswer:
        """The answer of a pull that found no matching message below `next_offset`: the client pulls on from there."""
        return PullAnswer(
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            GetStatus.NO_MATCHED_MESSAGE.value,
            next_offset=next_offset,
            min_offset=self._visible.near_minimum(queue),
            max_offset=self._store.max_offset(queue),
        )

    def _too_small(self, minimum: QueueOffset, queue: ConsumeQueue) -> PullAnswer:
        """In front of all that is stored."""
        if self._store.origin is not None:
            return self._stepped(queue, minimum)
        return self._moved(GetStatus.OFFSET_TOO_SMALL.value, minimum, queue)

    def _moved(self, status: str, next_offset: QueueOffset, queue: ConsumeQueue | None) -> PullAnswer:
        return PullAnswer(
            ResponseCode.PULL_OFFSET_MOVED,
            status,
            next_offset=next_offset,
            min_offset=QUEUE_START if queue is None else self._visible.near_minimum(queue),
            max_offset=QUEUE_START if queue is None else self._store.max_offset(queue),
        )


def _nothing_stored(status: GetStatus, offset: QueueOffset) -> PullAnswer:
    code = ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return PullAnswer(code, status.value, next_offset=QUEUE_START, min_offset=QUEUE_START, max_offset=QUEUE_START)


def _count_max(header: PullMessageRequestHeader, limits: RunLimits) -> int:
    return max(1, min(header.max_msg_nums, limits.count_max))


def _bytes_max(header: PullMessageRequestHeader, limits: RunLimits) -> int:
    wanted = header.max_msg_bytes
    return limits.bytes_max if wanted is None or not 0 < wanted < limits.bytes_max else wanted


def without_expired(runs: Sequence[bytes | memoryview], expired_before_ms: int) -> tuple[list[bytes | memoryview], int]:
    """The runs of records without those at their front that were stored before the cut, and how many those were."""
    kept = list(runs)
    dropped_count = 0
    while kept and expired_before_ms > 0:
        run = kept[0]
        position = 0
        while position < len(run):
            if store_timestamp_at(run, position) >= expired_before_ms:
                break
            position += INT.unpack_from(run, position + POSITION_SIZE)[0]
            dropped_count += 1
        if position < len(run):
            kept[0] = memoryview(run)[position:] if position else run
            break
        del kept[0]
    return kept, dropped_count
