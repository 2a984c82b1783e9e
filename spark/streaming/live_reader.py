"""LiveReader: a task's side of the live part of a micro-batch: pulls offsets [start, end) of a queue from its broker.

    pulls      by offset, in the name of a system group: no member, no commit, no long polling, so that consumers and
               groups of the cluster are not affected
    windows    several side by side, bounded in bytes (`pull_windows.py`): a broker answers one pull with some 32
               messages, so one after another would be slow
    batches    of the records of a window, decoded as those of a cold frame are: pulls give the same bytes

Rules
  - Every offset is accounted for. A missing one is in a declared hole, or before the first visible message of a queue
    that is read from its beginning, or lost: an error, or a warning with failOnDataLoss=false.
  - A broker that is away is asked again, with pauses, until it has not answered for `timeout_ms`.
  - The topic's incarnation is requested after the last pull: the messages before are of the same incarnation, as the
    plan has checked the one before.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from thermocline.client.answer import answer_error
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import (
    CorruptDataError,
    OffsetOutOfRangeError,
    TopicNotFoundError,
    UnavailableError,
)
from thermocline.remoting.headers import PullMessageRequestHeader, PullMessageResponseHeader
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.sys_flag import PULL_SUBSCRIPTION
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.topic_validation import TOOLS_CONSUMER_GROUP
from thermocline.spark.decoding.arrow_decoder import ArrowDecoder
from thermocline.spark.decoding.message_columns import choose_columns
from thermocline.spark.reading.losses import skip_bad_body
from thermocline.spark.reading.row_choice import row_selection
from thermocline.spark.reading.source_options import QueueName
from thermocline.spark.streaming.cold_line import Span
from thermocline.spark.streaming.live_client import LiveClient
from thermocline.spark.streaming.live_view import flushed_ranges
from thermocline.spark.streaming.pull_windows import WINDOW_BYTES_MAX, PullWindow, PullWindows
from thermocline.spark.streaming.stream_options import StreamOptions

logger = logging.getLogger(__name__)

BATCH_BYTES_MAX = 8 << 20
RETRY_PAUSE_S = 0.1
RETRY_PAUSE_MAX_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePart:
    """Offsets [start, end) of a queue that a task pulls. `holes` within it are declared. `is_beginning`: the query has
    read nothing of the queue before, so that it begins where its messages do. `starting_ms`: the store time from which
    on the query takes messages."""

    topic: str
    broker_name: str
    queue_id: int
    start: QueueOffset
    end: QueueOffset
    incarnation: int | None
    holes: tuple[Span, ...]
    is_beginning: bool
    record_bytes: int
    starting_ms: int | None

    def names(self) -> dict[str, object]:
        """The context of an error about it."""
        return {"topic": self.topic, "queue": f"{self.broker_name}:{self.queue_id}"}


class LiveReader:
    """Reads live parts. Bounded: what PullWindows holds is in memory, and one batch being decoded."""

    def __init__(
        self,
        options: StreamOptions,
        client: LiveClient,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._client = client
        self._clock_s = clock_s
        self._columns = choose_columns(options.read.columns, include_properties=options.read.include_properties)

    def read(self, part: LivePart) -> Iterator[pa.RecordBatch]:
        """Batches of the part's wanted rows, offsets rising.

        Raises:
            UnavailableError: The broker has not answered for the whole of the timeout.
            OffsetOutOfRangeError: Offsets have expired, or are gone.
            CorruptDataError: The topic was deleted and made again; or what came are no records; or a body does not
                decompress.
        """
        read = replace(self._options.read, starting_ms=part.starting_ms)
        decoder = ArrowDecoder(self._columns, broker_name=part.broker_name, decompress_body=read.decompress_body)
        queue = QueueName(part.broker_name, part.queue_id)
        selection = row_selection(read, topic=part.topic, queue=queue, start=part.start, end=part.end)
        on_bad_body = partial(skip_bad_body, read, part.names())
        first_seen = not part.is_beginning
        windows = PullWindows(part.start, part.end, record_bytes=part.record_bytes)
        while not windows.is_done:
            self._client.run(self._fill(part, windows.waiting()))
            for pulled in windows.drain():
                for start, end in pulled.missing:
                    # In front of the first message of a queue that is read from its beginning nothing is missing.
                    if first_seen or (pulled.first_offset is not None and start > pulled.first_offset):
                        self._lose(part, start, end)
                first_seen |= pulled.first_offset is not None
                for body in _joined(pulled.bodies):
                    for batch in decoder.decode_bounded(body, selection, on_bad_body=on_bad_body):
                        for row in range(0, batch.num_rows, read.batch_rows_max):
                            yield batch.slice(row, read.batch_rows_max)
        self._client.run(self._check_incarnation(part))

    async def _fill(self, part: LivePart, windows: Sequence[PullWindow]) -> None:
        """Pull every window until it is full, or done."""
        calls = [asyncio.ensure_future(self._fill_window(part, window)) for window in windows]
        try:
            await asyncio.gather(*calls)
        finally:
            for call in calls:
                call.cancel()

    async def _fill_window(self, part: LivePart, window: PullWindow) -> None:
        """Pull until every offset has come, or is known not to come, or enough is held."""
        retry = _Retry(self._options.broker_timeout_ms, self._clock_s)
        while window.is_waiting:
            try:
                await self._pull(part, window, fresh_route=retry.count > 0)
                retry.reset()
            except (UnavailableError, TopicNotFoundError) as error:
                await retry.pause(error, **part.names(), offset=window.position)

    async def _pull(self, part: LivePart, window: PullWindow, *, fresh_route: bool) -> None:
        """Pull once."""
        address = await self._client.address(part.topic, part.broker_name, fresh=fresh_route)
        header = PullMessageRequestHeader(
            consumer_group=TOOLS_CONSUMER_GROUP,
            topic=part.topic,
            queue_id=part.queue_id,
            queue_offset=window.position,
            max_msg_nums=window.end - window.position,
            max_msg_bytes=WINDOW_BYTES_MAX,
            sys_flag=PULL_SUBSCRIPTION,
            subscription="*",
            expression_type="TAG",
            broker_name=part.broker_name,
            logical=False,
        )
        answer = await self._client.ask(address, RemotingCommand.request(RequestCode.PULL_MESSAGE, header))
        match answer.code:
            case ResponseCode.SUCCESS:
                window.add(bytes(answer.body))
            case ResponseCode.PULL_RETRY_IMMEDIATELY | ResponseCode.PULL_OFFSET_MOVED:
                next_offset = answer.header(PullMessageResponseHeader).next_begin_offset
                if next_offset <= window.position:
                    raise UnavailableError(
                        "the queue ends before what was flushed of it", offset=window.position, end=next_offset
                    )
                window.skip_to(next_offset)
            case ResponseCode.PULL_NOT_FOUND:
                raise UnavailableError("the queue ends before what was flushed of it", offset=window.position)
            case _:
                raise answer_error(answer.code, answer.remark, address=address)

    def _lose(self, part: LivePart, start: QueueOffset, end: QueueOffset) -> None:
        """Go on without offsets, or fail."""
        for hole_start, hole_end in part.holes:
            if hole_start <= start < hole_end:
                start = min(hole_end, end)
        if start >= end:
            return
        offsets = f"[{start}, {end})"
        if self._options.read.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                "messages have expired, or are gone, before they were read; failOnDataLoss=false goes on without them",
                **part.names(),
                offsets=offsets,
            )
        logger.warning("messages were gone before they were read offsets=%s %s", offsets, part.names())

    async def _check_incarnation(self, part: LivePart) -> None:
        if part.incarnation is None:
            return
        retry = _Retry(self._options.broker_timeout_ms, self._clock_s)
        while True:
            try:
                address = await self._client.address(part.topic, part.broker_name, fresh=retry.count > 0)
                found = await flushed_ranges(self._client, part.topic, address)
                break
            except (UnavailableError, TopicNotFoundError) as error:
                await retry.pause(error, **part.names())
        if found.incarnation != part.incarnation:
            raise CorruptDataError(
                "the topic was deleted and made again while it was read",
                **part.names(),
                incarnation=part.incarnation,
                found=found.incarnation,
            )


class _Retry:
    """Pauses that grow, until nothing has come for the whole of a time."""

    def __init__(self, timeout_ms: int, clock_s: Callable[[], float]) -> None:
        self._timeout_ms = timeout_ms
        self._clock_s = clock_s
        self.count = 0
        self._failing_since_s = 0.0

    def reset(self) -> None:
        """Something came."""
        self.count = 0

    async def pause(self, error: Exception, **names: object) -> None:
        """Wait before the next attempt; UnavailableError when there is to be none."""
        now_s = self._clock_s()
        if not self.count:
            self._failing_since_s = now_s
        if (now_s - self._failing_since_s) * 1_000 >= self._timeout_ms:
            raise UnavailableError(
                "the broker has not given the messages in time; the query may be started again",
                **names,
                waited_ms=self._timeout_ms,
                reason=str(error),
            ) from error
        await asyncio.sleep(min(RETRY_PAUSE_S * 2**self.count, RETRY_PAUSE_MAX_S))
        self.count += 1


def _joined(bodies: Sequence[memoryview]) -> Iterator[bytes]:
    """Bodies end to end, as many as fit a batch."""
    group: list[memoryview] = []
    size_bytes = 0
    for body in bodies:
        if group and size_bytes + len(body) > BATCH_BYTES_MAX:
            yield b"".join(group)
            group, size_bytes = [], 0
        group.append(body)
        size_bytes += len(body)
    if group:
        yield b"".join(group)
