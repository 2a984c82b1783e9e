"""SendPipeline: every send request under way of one producer, from its queue to its outcome.

    submit -> choose a queue -> write the frame -> [answer | time-out | lost connection] -> callback, or once more
    elsewhere

The common path runs through without a task, a future or a command object: frames come from templates, answers are taken
from the received bytes (`feed`, the connection's chunk handler) and settled in a dict by opaque.

Rules
  - What waits for a route or a connection waits in a line, one a topic or address, so that messages keep the order in
    which they were submitted. The number under way is bounded by the producer before it submits.
  - A retry goes to another broker; with one broker it goes to another queue, after a pause. Retried are lost
    connections and the codes by which a broker says that another might do. A request that may have been stored is sent
    again too: at least once, as the official clients do; but for half messages, where two would be two transactions.
    Sends to a chosen queue are never retried.
  - Opaques of sends are in the upper half of the range, apart from those of commands on the same connection.
Source: client/impl/producer/DefaultMQProducerImpl.java (sendDefaultImpl), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from thermocline.client.answer import answer_error
from thermocline.client.producer.in_flight import InFlight
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.producer.send_answer import (
    STATUS_BY_CODE,
    SendAnswer,
    batch_results,
    decode_answer,
    says_where,
    send_result,
)
from thermocline.client.producer.send_target import Lane, SendTarget
from thermocline.client.producer.sending import Sending, SingleSending
from thermocline.client.route_table import RouteTable
from thermocline.client.send_result import SendStatus
from thermocline.client.topic_route import TopicRoute
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import FLAG_ONEWAY, FLAG_RESPONSE
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import (
    BrokerBusyError,
    ClosedError,
    ConnectionLostError,
    MQError,
    ProtocolError,
    RequestTimeoutError,
    UnavailableError,
)
from thermocline.remoting.frames import FRAME_HEAD
from thermocline.remoting.response_code import ResponseCode

__all__ = ["SendPipeline"]

logger = logging.getLogger(__name__)

RETRY_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Codes by which a broker says that another one might take the message."""

ROUTE_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_PERMISSION,
        ResponseCode.GO_AWAY,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        ResponseCode.SYSTEM_BUSY,
    }
)
"""Codes that hint at an outdated route; a slave is busy that was the master before."""

OPAQUE_FIRST = 1 << 30
OPAQUE_END = 1 << 31
UNSENT_BYTES_MAX = 128 * 1024 * 1024
"""With more than this unsent to a broker, it gets no further send. It is more than a producer may have under way, so
it is reached by sends that timed out: those of a broker that is frozen stay in its connection's buffer."""
NOT_TAKEN = "the broker does not take what is sent"
SAME_BROKER_PAUSE_S = 0.1
SWEEP_INTERVAL_S = 0.1


class SendPipeline:
    """See the module. Belongs to the producer's loop."""

    def __init__(
        self,
        options: ProducerOptions,
        *,
        in_flight: InFlight,
        clock_ms: Callable[[], int],
        random_source: random.Random,
    ) -> None:
        """What is submitted was added to `in_flight`, and is removed there just before its callback is called."""
        self._options = options
        self._in_flight = in_flight
        self._clock_ms = clock_ms
        self._random = random_source
        self._loop = asyncio.get_running_loop()
        self._routes: RouteTable
        self._connections: RemotingClient
        self._targets: dict[str, SendTarget] = {}
        self._pending: dict[int, Sending] = {}
        self._next_opaque = OPAQUE_FIRST
        self._waiting_for_route: dict[str, deque[Sending]] = {}
        self._waiting_for_connection: dict[str, deque[Sending]] = {}
        self._paused: set[Sending] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._closed = False

    def bind(self, routes: RouteTable, connections: RemotingClient) -> None:
        """Use these; `connections` must have this pipeline as its chunk handler."""
        self._routes = routes
        self._connections = connections
        routes.on_change(self._route_changed)

    # -- in ----------------------------------------------------------------------------------------------------------

    def submit(self, sending: Sending) -> None:
        """Send on its way; the outcome goes to its callback, perhaps before this returns."""
        if self._closed:
            self._fail(sending, ClosedError("the producer is closed"))
            return
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(SWEEP_INTERVAL_S, self._sweep)
        topic = sending.topic
        target = self._targets.get(topic)
        if target is not None and topic not in self._waiting_for_route:
            self._place(sending, target)
            return
        waiting = self._waiting_for_route.get(topic)
        if waiting is None:
            waiting = self._waiting_for_route[topic] = deque()
            self._start_task(self._find_route(topic))
        waiting.append(sending)

    async def send_one_way(self, sending: Sending) -> None:
        """Write a request without an answer, once the peer has taken enough of what was written before.

        Raises:
            MQError: There is no route or connection; later failures are not reported.
            RequestTimeoutError: The peer took nothing for `send_timeout_ms`; nothing was written.
        """
        target = self._targets.get(sending.topic)
        if target is None:
            await self._routes.get_for_sending(
                sending.topic,
                template_topic=self._options.create_topic_key,
                queue_nums_max=self._options.default_topic_queue_nums,
            )
            target = self._targets[sending.topic]
        lane = self._choose(sending, target)
        connection = await self._connections.connect(lane.address)
        try:
            async with asyncio.timeout(self._options.send_timeout_ms / 1000):
                await connection.wait_writable()
        except TimeoutError as error:
            raise RequestTimeoutError(NOT_TAKEN, address=lane.address) from error
        if connection.is_closed:
            raise ConnectionLostError(ConnectionLostError.LOST, address=lane.address)
        connection.write(self._frame(sending, lane, opaque=self._take_opaque(), command_flag=FLAG_ONEWAY))

    def refuse_new(self) -> None:
        """Take nothing more; what is under way goes on."""
        self._closed = True

    async def close(self) -> None:
        """Stop, once nothing is under way any more."""
        assert self._closed
        assert not self._pending
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- the common path ---------------------------------------------------------------------------------------------

    def _place(self, sending: Sending, target: SendTarget) -> None:
        try:
            lane = self._choose(sending, target)
        except MQError as error:
            self._routes.refresh_soon(sending.topic)  # a master may have come since
            self._fail(sending, error)
            return
        sending.lane = lane
        address = lane.address
        connection = self._connections.connection(address)
        if connection is not None and not connection.is_closed and address not in self._waiting_for_connection:
            self._write(sending, lane, connection)
            return
        waiting = self._waiting_for_connection.get(address)
        if waiting is None:
            waiting = self._waiting_for_connection[address] = deque()
            self._start_task(self._connect(address))
        waiting.append(sending)

    def _choose(self, sending: Sending, target: SendTarget) -> Lane:
        if sending.queue is not None:
            return target.lane_of(sending.queue)
        if sending.choose is not None:
            if not target.queues:
                raise UnavailableError("no broker takes messages for this topic now", topic=sending.topic)
            return target.lane_of(sending.choose(target.queues))
        previous = sending.lane
        return target.next_lane() if previous is None else target.next_lane(avoid_broker=previous.broker_name)

    def _write(self, sending: Sending, lane: Lane, connection: Connection) -> None:
        if connection.is_write_paused and connection.unsent_bytes > UNSENT_BYTES_MAX:
            self._retry_or_fail(sending, BrokerBusyError(NOT_TAKEN, address=lane.address), is_retryable=True)
            return
        opaque = self._take_opaque()
        self._pending[opaque] = sending
        sending.connection = connection
        connection.write(self._frame(sending, lane, opaque=opaque, command_flag=0))

    def _frame(self, sending: Sending, lane: Lane, *, opaque: int, command_flag: int) -> bytes:
        template = lane.single if isinstance(sending, SingleSending) else lane.batch
        return template.fill(
            sys_flag=sending.sys_flag,
            born_timestamp_ms=self._clock_ms(),
            flag=sending.flag,
            properties_text=sending.properties_text,
            body=sending.body,
            opaque=opaque,
            command_flag=command_flag,
        )

    def _take_opaque(self) -> int:
        opaque = self._next_opaque
        self._next_opaque = opaque + 1 if opaque + 1 < OPAQUE_END else OPAQUE_FIRST
        return opaque

    def feed(self, connection: Connection, buffer: memoryview) -> int:
        """Settle the sends that are answered at the front of `buffer`; see `ChunkHandler`."""
        position = 0
        pending = self._pending
        if not pending:
            return 0
        end = len(buffer)
        while end - position >= FRAME_HEAD.size:
            size_bytes, header_bytes = FRAME_HEAD.unpack_from(buffer, position)
            frame_end = position + 4 + size_bytes
            # A binary header (type 1 in the high byte) is longer than any frame here, so it is left to others too.
            if frame_end > end or 4 + header_bytes > size_bytes:
                break
            start = position + FRAME_HEAD.size
            try:
                answer = decode_answer(buffer[start : start + header_bytes])
            except msgspec.MsgspecError:
                break
            if not answer.flag & FLAG_RESPONSE:
                break
            sending = pending.get(answer.opaque)
            if sending is None or sending.connection is not connection:
                break  # an answer on another connection says nothing of this message
            del pending[answer.opaque]
            self._settle(sending, answer)
            position = frame_end
        return position

    def _settle(self, sending: Sending, answer: SendAnswer) -> None:
        lane = sending.lane
        assert lane is not None
        status = STATUS_BY_CODE.get(answer.code)
        if status is None:
            refusal = answer_error(answer.code, answer.remark, address=lane.address)
            if answer.code in ROUTE_CODES:
                self._routes.refresh_soon(sending.topic)
            if answer.code == ResponseCode.NOT_LEADER_FOR_QUEUE and sending.attempts_left:
                self._pause(sending, refusal)  # the same queue has another leader; the route will say which
            else:
                self._retry_or_fail(sending, refusal, is_retryable=answer.code in RETRY_CODES)
            return
        if not says_where(answer):
            silent = ProtocolError("the broker does not say where it stored the message", address=lane.address)
            self._fail(sending, silent)
            return
        is_unsafe = status is not SendStatus.SEND_OK and sending.may_repeat
        if is_unsafe and self._options.retry_another_broker_when_not_store_ok:
            unsafe = UnavailableError("stored, but not as safely as asked", status=status.value, address=lane.address)
            self._retry_or_fail(sending, unsafe, is_retryable=True)
            return
        if isinstance(sending, SingleSending):
            result = send_result(answer, status, lane.queue, sending.message_id)
            self._in_flight.remove(1, sending.counted_bytes)
            sending.callback(result)
        else:
            results = batch_results(answer, status, lane.queue, sending.message_ids)
            self._in_flight.remove(len(results), sending.counted_bytes)
            sending.callback(results)

    # -- what goes wrong ---------------------------------------------------------------------------------------------

    def connection_closed(self, connection: Connection) -> None:
        """Every send that waits for an answer on this connection is tried elsewhere, or fails."""
        lost = [opaque for opaque, sending in self._pending.items() if sending.connection is connection]
        for opaque in lost:
            sending = self._pending.pop(opaque)
            self._routes.refresh_soon(sending.topic)
            error = ConnectionLostError(ConnectionLostError.LOST, address=connection.remote_address)
            self._retry_or_fail(sending, error, is_retryable=sending.may_repeat)

    def _retry_or_fail(self, sending: Sending, error: MQError, *, is_retryable: bool) -> None:
        sending.last_error = error
        sending.connection = None
        if not is_retryable or sending.attempts_left == 0 or sending.is_pinned:
            self._fail(sending, error)
            return
        sending.attempts_left -= 1
        logger.warning("send failed, next attempt topic=%s error=%s", sending.topic, error)
        target = self._targets.get(sending.topic)
        if target is not None and target.broker_count > 1:
            self._place(sending, target)
            return
        self._wait_a_moment(sending)

    def _pause(self, sending: Sending, error: MQError) -> None:
        """Try again in a moment, on whichever queue is chosen then: for one that is pinned, on the same."""
        sending.last_error = error
        sending.connection = None
        sending.lane = None
        sending.attempts_left -= 1
        self._wait_a_moment(sending)

    def _wait_a_moment(self, sending: Sending) -> None:
        self._paused.add(sending)
        self._loop.call_later(SAME_BROKER_PAUSE_S, self._resume, sending)

    def _resume(self, sending: Sending) -> None:
        if sending not in self._paused:
            return  # its time ran out meanwhile
        self._paused.remove(sending)
        target = self._targets.get(sending.topic)
        if target is None:
            assert sending.last_error is not None
            self._fail(sending, sending.last_error)
            return
        self._place(sending, target)

    def _sweep(self) -> None:
        """Fail what is due; one timer for all sends, which only runs while there are some."""
        now = self._loop.time()
        due = [self._pending.pop(opaque) for opaque, one in list(self._pending.items()) if one.deadline <= now]
        for line in (*self._waiting_for_route.values(), *self._waiting_for_connection.values()):
            for _ in range(len(line)):
                sending = line.popleft()
                (due if sending.deadline <= now else line).append(sending)
        due += [paused for paused in self._paused if paused.deadline <= now]
        self._paused.difference_update(due)
        for sending in due:  # all are taken out before the first callback, which may send, and so add lines
            self._time_out(sending)
        busy = self._pending or self._waiting_for_route or self._waiting_for_connection or self._paused
        self._sweep_timer = self._loop.call_later(SWEEP_INTERVAL_S, self._sweep) if busy else None

    def _time_out(self, sending: Sending) -> None:
        context = {} if sending.lane is None else {"address": sending.lane.address}
        self._routes.refresh_soon(sending.topic)  # another broker may be the master since
        if sending.last_error is not None:
            context["last_error"] = str(sending.last_error)
        self._fail(sending, RequestTimeoutError("no answer to a send in time", topic=sending.topic, **context))

    def _fail(self, sending: Sending, error: MQError) -> None:
        self._in_flight.remove(sending.message_count, sending.counted_bytes)
        sending.callback(error)

    # -- routes and connections --------------------------------------------------------------------------------------

    def _route_changed(self, route: TopicRoute) -> None:
        self._targets[route.topic] = SendTarget(route, self._options, start=self._random.randrange(1 << 16))

    async def _find_route(self, topic: str) -> None:
        error: MQError | None = None
        try:
            await self._routes.get_for_sending(
                topic,
                template_topic=self._options.create_topic_key,
                queue_nums_max=self._options.default_topic_queue_nums,
            )
        except MQError as failure:
            error = failure
        line = self._waiting_for_route.pop(topic)
        target = self._targets.get(topic)
        for sending in line:
            if error is not None or target is None:
                self._fail(sending, error or UnavailableError("no route", topic=topic))
            else:
                self._place(sending, target)

    async def _connect(self, address: str) -> None:
        connection: Connection | None = None
        error: MQError | None = None
        try:
            connection = await self._connections.connect(address)
        except MQError as failure:
            error = failure
        line = self._waiting_for_connection.pop(address)
        for sending in line:
            assert sending.lane is not None
            if connection is None or connection.is_closed:
                self._routes.refresh_soon(sending.topic)
                lost = error or ConnectionLostError(ConnectionLostError.LOST, address=address)
                self._retry_or_fail(sending, lost, is_retryable=True)
            else:
                self._write(sending, sending.lane, connection)

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
