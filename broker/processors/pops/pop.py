"""POP: POP_MESSAGE 200050.

    admission (pop_admission.py) -> finding (pop_finder.py) -> found: claimed (pop/pop_store.py), answered
                                                            -> nothing: waits (pop_polling.py), or 210
                                                            -> cold: ask the tier process, answer later
                                                            -> a long search by properties: in turns, answer later

Rules
  - Messages are claimed before the answer: the claim is in the log, and durable where sends wait for the flush, or at a
    slave that stands in at another master (escaped_pops.py). If the answer is lost, they come back when their time is
    up.
  - An answer that leaves matching messages in the queue wakes the next POP that waits at the same place.
  - Messages of a retry topic are answered under the requested topic, with their receipt in POP_CK
    (`popResponseReturnActualRetryTopic` leaves them as they are).
  - A POP that waits is answered at its deadline with POLLING_TIMEOUT; too many that wait are POLLING_FULL, and so are
    too many messages in flight. If its queue has left the local log, it gets POLLING_TIMEOUT: the client asks again
    at once, and is served from the cold tier. Its bounds are those of pulls (cold_pull_limits.py).
Source: PopMessageProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from thermocline.auth.quota_buckets import QuotaTable
from thermocline.broker.pops import (
    EscapedPops,
    FoundQueue,
    LaterNeeded,
    Parking,
    Place,
    PopAdmission,
    PopFinder,
    PopHarvest,
    PopPolling,
    PopRequest,
)
from thermocline.broker.pulls import ColdPullLimits, Wanted
from thermocline.broker.sends import FlushedAnswers
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.stats import BrokerStats
from thermocline.broker.tables import CompileNeeded, ConsumerOffsets, MessageFilters
from thermocline.pop.order_info import make_order_info
from thermocline.pop.pop_store import Claim, PopStore, Take
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Answer, Connection, Handler
from thermocline.remoting.error_table import error_response
from thermocline.remoting.errors import BrokerBusyError, MQError, PropertiesTooLargeError, ResponseError
from thermocline.remoting.handles import (
    ORDER_REVIVE_QUEUE_ID,
    QUEUE_SEPARATOR,
    PoppedOffsets,
    ReceiptHandle,
    RetryFlag,
    message_offset_info,
    order_count_info,
    start_offset_info,
)
from thermocline.remoting.headers.read import (
    NotificationRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from thermocline.remoting.offsets import LOG_START
from thermocline.remoting.records.message_record import MessageRecord, encode_record, iterate_records
from thermocline.remoting.records.properties import PropertyName, encode_properties
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

logger = logging.getLogger(__name__)

FOUND = "FOUND"
NOTHING = "NO_MESSAGE_IN_QUEUE"
LATE_MS_MAX = 500


class PopProcessor:
    """Serves POPs."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        offsets: ConsumerOffsets,
        filters: MessageFilters,
        pops: PopStore,
        escaped: EscapedPops | None,
        stats: BrokerStats,
        clock: Callable[[], int],
        store_host: tuple[str, int],
        admission: PopAdmission,
        finder: PopFinder,
        polling: PopPolling,
        answers: FlushedAnswers,
        limits: ColdPullLimits,
        quotas: QuotaTable,
    ) -> None:
        """`escaped`: of a slave."""
        self._escaped = escaped
        self._tasks: set[asyncio.Task[None]] = set()
        self._settings = settings
        self._offsets = offsets
        self._filters = filters
        self._pops = pops
        self._stats = stats
        self._clock = clock
        self._store_host = store_host
        self._admission = admission
        self._finder = finder
        self._polling = polling
        self._answers = answers
        self._limits = limits
        self._quotas = quotas

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {RequestCode.POP_MESSAGE: self.pop}

    def pop(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """200050: give messages to a group, or wait for some."""
        if command.is_oneway:
            return None
        fill_born_time(command, self._clock())
        request = PopRequest(connection, command, command.header(PopMessageRequestHeader))
        correct_born_time(request.header, self._clock())
        if self._clock() - request.deadline_ms > LATE_MS_MAX:
            raise ResponseError(
                code=ResponseCode.POLLING_TIMEOUT,
                remark=f"the broker[{self._store_host[0]}] pop message is timeout too much",
            )
        quotas = self._quotas.current()
        if quotas is not None:
            header, address = request.header, connection.remote_host_bytes
            quotas.check_read(header.topic, header.consumer_group, address, command.user)
            quotas.took(header.topic, header.consumer_group, address, command.user, requests=1, size_bytes=0)
        try:
            wanted = self._admission.admit(request.header, remote_address=connection.remote_address)
        except CompileNeeded as needed:
            return self._compile_and_pop(connection, command, needed.text)
        harvest = self._finder.start(request)
        try:
            self._finder.collect(request, wanted, harvest)
        except LaterNeeded:
            return self._pop_later(request, wanted, harvest)
        return self._answer_or_park(request, harvest)

    async def close(self) -> None:
        """Stop claiming for POPs that waited. Idempotent."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def look_again(self, request: PopRequest, *, is_last: bool) -> bool:
        """Look for what a POP waits for; True when it is answered, or will be. `is_last`: it does not wait any
        longer."""
        try:
            if self._escaped is not None and not self._escaped.is_open:
                raise BrokerBusyError("the master is back, ask it")
            wanted = self._admission.admit(request.header, remote_address=request.connection.remote_address)
            harvest = self._finder.start(request)
            try:
                self._finder.collect(request, wanted, harvest)
            except LaterNeeded:
                is_last = True  # the client asks again at once, and then waits
            if harvest.found and self._answers.has_room(request.connection):
                response = self._claim(request, harvest)
            elif harvest.found:
                response = self._nothing(request, harvest, ResponseCode.POLLING_FULL)
            else:
                self._step(request, harvest)
                if not is_last:
                    self._look_on(request, harvest)
                    return False
                response = self._nothing(request, harvest, ResponseCode.POLLING_TIMEOUT)
        except CompileNeeded:  # its filter was evicted: unused for a while, among many newer ones
            response = self._nothing(request, PopHarvest((), wanted_count=0), ResponseCode.POLLING_TIMEOUT)
        except Exception as error:  # the end of a POP: it becomes an answer
            if not isinstance(error, MQError):
                logger.error("POP failed, a bug of ours", exc_info=error)
            response = error_response(request.command, error)
        if isinstance(response, Awaitable):
            task = asyncio.get_running_loop().create_task(self._answer_later(request, response), name="POP that waited")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif response is not None:
            request.connection.send(response)
        return True

    async def _answer_later(self, request: PopRequest, answer: Awaitable[RemotingCommand | None]) -> None:
        try:
            response = await answer
        except Exception as error:  # the end of a POP: it becomes an answer
            if not isinstance(error, MQError):
                logger.error("POP failed, a bug of ours", exc_info=error)
            response = error_response(request.command, error)
        if response is not None:
            request.connection.send(response)

    # -- answers -------------------------------------------------------------------------------------------------------

    async def _compile_and_pop(
        self, connection: Connection, command: RemotingCommand, expression: str
    ) -> RemotingCommand | None:
        await self._filters.compile_in_turn(expression)
        if connection.is_closed:
            return None  # it has left since it asked, and would take messages from the others
        answer = self.pop(connection, command)
        return await answer if isinstance(answer, Awaitable) else answer

    async def _pop_later(self, request: PopRequest, wanted: Wanted, harvest: PopHarvest) -> RemotingCommand | None:
        if not self._limits.has_room(request.connection):
            return RemotingCommand.response(
                request.command, ResponseCode.FLOW_CONTROL, remark="too many pulls from the cold tier are on the way"
            )
        if request.connection.is_closed:
            return None  # it has left since it asked, and would take messages from the others
        with self._limits.reading(request.connection):
            await self._finder.collect_later(request, wanted, harvest)
        answer = self._answer_or_park(request, harvest)
        return await answer if isinstance(answer, Awaitable) else answer

    def _answer_or_park(self, request: PopRequest, harvest: PopHarvest) -> Answer:
        if harvest.found and self._answers.has_room(request.connection):
            return self._claim(request, harvest)
        if harvest.found:
            return self._nothing(request, harvest, ResponseCode.POLLING_FULL)
        self._step(request, harvest)
        code = ResponseCode.POLLING_TIMEOUT
        if request.header.poll_time > 0:
            waiting = WaitingPop(self, request)
            parking = self._polling.park(
                request.place, waiting, deadline_ms=request.deadline_ms, characters=request.characters
            )
            if parking is Parking.PARKED:
                self._look_on(request, harvest)
                return None
            if parking is Parking.FULL:
                code = ResponseCode.POLLING_FULL
        return self._nothing(request, harvest, code)

    def _look_on(self, request: PopRequest, harvest: PopHarvest) -> None:
        """A POP goes on waiting: schedule the wake-ups that no arrival causes."""
        if harvest.stepped and harvest.rest_count:
            self._polling.wake(request.place)  # there is more behind what did not match
        if harvest.free_ms is not None and self._settings.broker.pop_notify_order_free:
            self._polling.wake_at(request.place, harvest.free_ms)

    def _step(self, request: PopRequest, harvest: PopHarvest) -> None:
        """Move the group past messages that do not match its filter."""
        offsets, group = self._offsets, request.header.consumer_group
        for queue in harvest.stepped:
            if offsets.query(queue.topic, group, queue.queue_id) == queue.start_offset:
                offsets.commit(queue.topic, group, queue.queue_id, queue.next_offset)

    def _nothing(self, request: PopRequest, harvest: PopHarvest, code: int) -> RemotingCommand:
        header = request.header
        self._stats.add_get_miss()
        return RemotingCommand.response(
            request.command,
            code,
            remark=NOTHING,
            header=PopMessageResponseHeader(
                pop_time=self._clock(),
                invisible_time=header.invisible_time,
                revive_qid=ORDER_REVIVE_QUEUE_ID if header.order else 0,
                rest_num=harvest.rest_count,
                start_offset_info="",
                msg_offset_info="",
                order_count_info="" if header.order else None,
            ),
        )

    def _claim(self, request: PopRequest, harvest: PopHarvest) -> Answer:
        """Claim the messages found for the group; return the answer, or None when it waits for the flush."""
        header = request.header
        self._step(request, harvest)
        counts: str | None = None
        try:
            if header.order:
                claim, counts = self._claim_in_order(request, harvest)
            elif self._escaped is not None:
                return self._claim_elsewhere(self._escaped, request, harvest)
            else:
                invisible_ms = max(0, header.invisible_time)
                claim = self._pops.claim(header.consumer_group, _takes(harvest), invisible_ms=invisible_ms)
        except BrokerBusyError as error:
            logger.warning("POP refused group=%s: %s", header.consumer_group, error)
            return self._nothing(request, harvest, ResponseCode.POLLING_FULL)
        return self._claimed(request, harvest, claim, counts)

    async def _claim_elsewhere(
        self, escaped: EscapedPops, request: PopRequest, harvest: PopHarvest
    ) -> RemotingCommand | None:
        """`_claim` at a slave that stands in."""
        header = request.header
        harvest.keep_bytes()
        try:
            with self._finder.holding(header.consumer_group, harvest.found) as is_held:
                if not is_held:
                    return self._nothing(request, harvest, ResponseCode.POLLING_TIMEOUT)
                claim = await escaped.claim(
                    header.consumer_group, _takes(harvest), invisible_ms=max(0, header.invisible_time)
                )
        except BrokerBusyError as error:
            logger.warning("POP refused group=%s: %s", header.consumer_group, error)
            return self._nothing(request, harvest, ResponseCode.POLLING_FULL)
        return self._claimed(request, harvest, claim, None)

    def _claimed(
        self, request: PopRequest, harvest: PopHarvest, claim: Claim, counts: str | None
    ) -> RemotingCommand | None:
        """The answer; None when it waits for the flush."""
        header = request.header
        quotas = self._quotas.current()
        if quotas is not None:
            size_bytes = sum(queue.answer.size_bytes for queue in harvest.found)
            address = request.connection.remote_host_bytes
            user = request.command.user
            quotas.took(header.topic, header.consumer_group, address, user, requests=0, size_bytes=size_bytes)
        stats = self._stats
        for queue in harvest.found:
            stats.add_get(queue.topic, header.consumer_group, len(queue.offsets), queue.answer.size_bytes)
            if not header.order:
                stats.add_check_point(header.topic, header.consumer_group)
        popped = [
            PoppedOffsets(
                retry_flag=queue.retry_flag,
                queue_id=queue.queue_id,
                start_offset=queue.offsets[0],
                offsets=queue.offsets,
            )
            for queue in harvest.found
        ]
        response = RemotingCommand.response(
            request.command,
            ResponseCode.SUCCESS,
            remark=FOUND,
            header=PopMessageResponseHeader(
                pop_time=claim.pop_time_ms,
                invisible_time=header.invisible_time,
                revive_qid=claim.revive_queue_id,
                rest_num=harvest.rest_count,
                start_offset_info=start_offset_info(popped),
                msg_offset_info=message_offset_info(popped),
                order_count_info=counts,
            ),
            body=self._body(request, harvest, claim),
        )
        if harvest.rest_count:
            self._polling.wake(request.place)
        return self._answers.answer(request.connection, response, end_offset=claim.end_offset)

    def _claim_in_order(self, request: PopRequest, harvest: PopHarvest) -> tuple[Claim, str]:
        pops, header = self._pops, request.header
        group = header.consumer_group
        pops.check_order_room(group, [(queue.topic, queue.queue_id) for queue in harvest.found])
        pop_time_ms = self._clock()
        end_offset = LOG_START
        counts: list[str] = []
        for queue in harvest.found:
            info = make_order_info(
                queue.read_offsets,
                pop_time_ms=pop_time_ms,
                invisible_ms=max(0, header.invisible_time),
                attempt_id=header.attempt_id,
                previous=pops.orders.find(queue.topic, group, queue.queue_id),
            )
            end_offset = pops.order_changed(queue.topic, group, queue.queue_id, info, next_offset=info.next_offset)
            counts.append(order_count_info(RetryFlag.NORMAL, queue.queue_id, info.counts, least=info.count_min))
        claim = Claim(pop_time_ms=pop_time_ms, revive_queue_id=ORDER_REVIVE_QUEUE_ID, end_offset=end_offset)
        return claim, QUEUE_SEPARATOR.join(counts)

    def _body(self, request: PopRequest, harvest: PopHarvest, claim: Claim) -> bytes:
        pieces: list[bytes | memoryview] = []
        for queue in harvest.found:
            if queue.retry_flag is RetryFlag.NORMAL or self._settings.broker.pop_returns_retry_topic:
                pieces.extend(queue.buffers)
            else:
                pieces.extend(self._as_asked_for(request, queue, claim))
        return b"".join(pieces)

    def _as_asked_for(self, request: PopRequest, queue: FoundQueue, claim: Claim) -> list[bytes]:
        """The records of a retry topic under the requested topic, each with its receipt."""
        header = request.header
        records: list[bytes] = []
        for run in queue.buffers:
            for record in iterate_records(run, check_crc=False):
                receipt = ReceiptHandle(
                    start_offset=queue.offsets[0],
                    pop_time_ms=claim.pop_time_ms,
                    invisible_ms=header.invisible_time,
                    revive_queue_id=claim.revive_queue_id,
                    retry_flag=queue.retry_flag,
                    broker_name=self._settings.broker.broker_name,
                    queue_id=queue.queue_id,
                    queue_offset=record.queue_offset,
                )
                records.append(_record_as(record, header.topic, receipt))
        return records


def _takes(harvest: PopHarvest) -> list[Take]:
    return [
        Take(
            topic=queue.topic,
            queue_id=queue.queue_id,
            offsets=queue.offsets,
            next_offset=queue.answer.next_offset,
        )
        for queue in harvest.found
    ]


class WaitingPop:
    """A POP that waits."""

    __slots__ = ("_processor", "_request")

    def __init__(self, processor: PopProcessor, request: PopRequest) -> None:
        self._processor = processor
        self._request = request

    @property
    def connection(self) -> Connection:
        """The client's connection."""
        return self._request.connection

    def look_again(self) -> bool:
        """There may be something now."""
        return self._processor.look_again(self._request, is_last=False)

    def time_is_up(self) -> None:
        """The client does not want to wait any longer."""
        self._processor.look_again(self._request, is_last=True)


def _record_as(record: MessageRecord, topic: str, receipt: ReceiptHandle) -> bytes:
    try:
        properties_text = encode_properties({**record.properties, PropertyName.POP_CHECKPOINT: receipt.text()})
    except PropertiesTooLargeError:
        properties_text, topic = record.properties_text, record.topic  # clients make the receipt from the header then
    return encode_record(
        topic=topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        body=record.body,
        properties_text=properties_text,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_timestamp_ms=record.store_timestamp_ms,
        store_host=record.store_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )


def fill_born_time(command: RemotingCommand, now_ms: int) -> None:
    """Some clients leave out when their request was born, or send 0."""
    fields = command.ext_fields
    if fields is not None and fields.get("bornTime", "0") == "0":
        fields["bornTime"] = str(now_ms)


def correct_born_time(header: PopMessageRequestHeader | NotificationRequestHeader, now_ms: int) -> None:
    """A client whose clock is ahead waits no longer than others: what it no longer waits for would take messages."""
    header.born_time = min(header.born_time, now_ms)


def place_of(topic: str, group: str, queue_id: int) -> Place:
    """A place by a request's fields; every negative queue id means any queue."""
    return Place(topic, group, max(queue_id, -1))
