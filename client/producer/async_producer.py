"""AsyncProducer: sends messages from an event loop. `Producer` is its blocking half.

    async with AsyncProducer(group="orders", namesrv="127.0.0.1:9876") as producer:
        result = await producer.send(Message("orders", b"...", tags="paid", keys="4711"))

Ways to send
  - `send` waits for the broker's answer; `send_async` returns a future and may call back; `send_one_way` asks for none.
  - `send_many` keeps a window of sends under way: the fastest way to send one by one.
  - `send_batch` puts messages of one topic into one request, stored one after another in one queue: faster still.
  - with `auto_batch=True` single sends linger up to `batch_max_delay_ms` and travel together.
  - `request` waits until a consumer has answered the message with `reply`.

Every message gets a unique id, made here. A send that fails after its retries raises; it may still have been stored
when no answer came, so a consumer must tolerate a message twice, as with every RocketMQ client.
Bounds: at most `in_flight_max` sends and `IN_FLIGHT_BYTES_MAX` bytes are under way; see each method for what happens
then.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Self

from thermocline.client.client_id import address_of_ids
from thermocline.client.close_once import CloseOnce
from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.options import ClientOptions
from thermocline.client.producer.fault_tolerant_pipeline import FaultTolerantPipeline
from thermocline.client.producer.in_flight import InFlight
from thermocline.client.producer.lingering import Lingering
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.producer.producer_owner import ProducerOwner
from thermocline.client.producer.queue_selector import QueueSelector
from thermocline.client.producer.request_reply import RequestReply
from thermocline.client.producer.send_many import ManyRun
from thermocline.client.producer.send_pipeline import SendPipeline
from thermocline.client.producer.send_requests import SendRequests
from thermocline.client.producer.sending import Draft, SendCallback, call_back, draft, settle
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.send_result import SendResult
from thermocline.client.session import ClientSession
from thermocline.client.trace.publish_tracer import PublishTracer
from thermocline.client.trace.trace_dispatcher import TraceDispatcher, trace_group
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import (
    BrokerBusyError,
    ClosedError,
    InvalidRequestError,
    MQError,
    UnsupportedRequestError,
)
from thermocline.remoting.handles import decode_recall_handle
from thermocline.remoting.headers import RecallMessageRequestHeader, RecallMessageResponseHeader
from thermocline.remoting.records.message_id import UniqueIdGenerator
from thermocline.remoting.request_code import RequestCode

__all__ = ["IN_FLIGHT_BYTES_MAX", "AsyncProducer", "trace_producer"]

IN_FLIGHT_BYTES_MAX = 100 * 1024 * 1024
WINDOW = 256
TRACE_SEND_TIMEOUT_MS = 5_000


class AsyncProducer(ProducerOptions):
    """See the module. Belongs to one event loop; every method must be called on it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._session: ClientSession | None = None
        self._pipeline: SendPipeline | None = None
        self._lingering: Lingering | None = None
        self._requests: SendRequests | None = None
        self._request_reply: RequestReply | None = None
        self._traces: TraceDispatcher | None = None
        self._tracer: PublishTracer | None = None
        self._in_flight = InFlight(count_max=self.in_flight_max, bytes_max=IN_FLIGHT_BYTES_MAX)
        self._closed = False
        self._close = CloseOnce()

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to work; connections are made when they are first needed.

        Raises:
            ClosedError: It was started or closed before.
        """
        if self._session is not None or self._closed:
            raise ClosedError("a producer starts once")
        make_pipeline = FaultTolerantPipeline if self.send_latency_fault_enable else SendPipeline
        pipeline = make_pipeline(self, in_flight=self._in_flight, clock_ms=wall_clock_ms, random_source=random.Random())
        session = ClientSession(
            self,
            ProducerOwner(self.group, answer=self.answer, connection_closed=self._connection_closed),
            chunk_handler=pipeline,
            zone_name=self.zone_name,
            may_leave_zone=True,
        )
        pipeline.bind(session.routes, session.connections)
        unique_ids = UniqueIdGenerator(
            address=address_of_ids(session.client_address),
            process_id=os.getpid(),
            number=random.getrandbits(32),
            clock_ms=wall_clock_ms,
        )
        self._requests = SendRequests(self, unique_ids)
        self._request_reply = RequestReply(self, session, in_flight=self._in_flight, unique_ids=unique_ids)
        if self.auto_batch:
            self._lingering = Lingering(self, requests=self._requests, pipeline=pipeline, in_flight=self._in_flight)
        self._session, self._pipeline = session, pipeline
        for topic in self.watched_topics():
            session.routes.watch(topic)
        try:
            await session.start()
            if self.enable_trace:
                self._traces = TraceDispatcher(trace_producer(self, self.group, kind="PRODUCE"), topic=self.trace_topic)
                self._tracer = PublishTracer(self._traces, group=self.group)
                await self._traces.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Take no more messages, wait for the outcome of all under way, leave the brokers; idempotent.

        Cancelling stops only the waiting.
        """
        self._closed = True
        await self._close.run(self._finish)

    async def _finish(self) -> None:
        session, pipeline = self._session, self._pipeline
        if session is None or pipeline is None:
            return
        if self._lingering is not None:
            self._lingering.flush_all()
        pipeline.refuse_new()
        await self._in_flight.wait_until_idle()
        if self._request_reply is not None:
            self._request_reply.close()
        if self._traces is not None:
            await self._traces.close()
        await pipeline.close()
        await session.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        """The client id of this producer; ClosedError before `start`."""
        return self._started()[0].client_id

    # -- sending -----------------------------------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message and wait until the broker has stored it. Waits for room when too much is under way.

        `queue`, or `selector` with its `argument`, chooses the queue; else messages with a `sharding_key` go by its
        hash, and others round the queues. Cancelling leaves open whether the message is stored.

        Raises:
            InvalidRequestError: The message, its topic or its queue is impossible.
            UnavailableError: No broker took it, after all attempts or in time.
            ClosedError: The producer is not started, or closed.
        """
        prepared = draft(message, self)
        if not self._in_flight.has_room:
            await self._in_flight.wait_for_room()
        return await self._begin_send(
            prepared, queue=queue, selector=selector, argument=argument, timeout_ms=timeout_ms
        )

    def send_async(
        self,
        message: Message,
        callback: SendCallback | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[SendResult]:
        """Begin to send; the future, and `callback` if given, gets the result or the error. Never waits.

        Raises:
            BrokerBusyError: Too much is under way.
            InvalidRequestError: The message, its topic or its queue is impossible.
            ClosedError: The producer is not started, or closed.
        """
        prepared = draft(message, self)
        if not self._in_flight.has_room:
            raise BrokerBusyError("too many sends are under way", in_flight_max=self.in_flight_max)
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()

        def done(outcome: SendResult | MQError) -> None:
            settle(future, outcome)
            if callback is not None:
                if isinstance(outcome, MQError) and not future.cancelled():
                    future.exception()  # the callback gets it, so no caller has to ask the future
                call_back(callback, outcome)

        self.start_send(prepared, done, queue=queue, selector=selector, argument=argument, timeout_ms=timeout_ms)
        return future

    async def send_one_way(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: object = None,
    ) -> None:
        """Send without an answer: fast, but arrival is not confirmed. Waits while the connection is full.

        Raises:
            InvalidRequestError: The message, its topic or its queue is impossible.
            UnavailableError: There is no broker to send to.
            ClosedError: The producer is not started, or closed.
        """
        prepared = draft(message, self)
        _, pipeline, requests = self._started()
        await pipeline.send_one_way(
            requests.single(prepared, _forget, queue=queue, selector=selector, argument=argument, timeout_ms=None)
        )

    async def send_many(
        self,
        messages: Iterable[Message] | AsyncIterable[Message],
        *,
        window: int = WINDOW,
        selector: QueueSelector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages with up to `window` under way, and return their results in order.

        Messages that go to one queue arrive there in order, unless one of them needs a second attempt. The first
        failure stops the sending of more; those under way are waited for.

        Raises:
            SendManyError: Some were not sent; it holds every outcome.
            ClosedError: The producer is not started, or closed.
        """
        if window < 1:
            raise InvalidRequestError("a window holds at least one message", window=window)
        self._started()
        run = ManyRun(window)

        def begin(message: Message) -> None:
            record = run.begin()
            try:
                self.start_send(
                    draft(message, self),
                    record,
                    queue=None,
                    selector=selector,
                    argument=argument,
                    timeout_ms=timeout_ms,
                )
            except MQError as error:
                record(error)

        async def wait_for_room() -> None:
            if run.is_full:
                await run.wait_for_room()
            await self._in_flight.wait_for_room()

        try:
            if isinstance(messages, AsyncIterable):
                async for message in messages:
                    if run.is_full or not self._in_flight.has_room:
                        await wait_for_room()
                    if run.has_failed:
                        break
                    begin(message)
            else:  # the same, without a coroutine a message
                for message in messages:
                    if run.is_full or not self._in_flight.has_room:
                        await wait_for_room()
                    if run.has_failed:
                        break
                    begin(message)
        finally:
            if self._lingering is not None:
                self._lingering.flush_all()
            await run.wait_for_all()
        return run.results()

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in one request; they are stored one after another in one queue, all or none.

        Raises:
            InvalidRequestError: They differ in topic, are delayed, or are too large together.
            UnavailableError: No broker took them, after all attempts or in time.
            ClosedError: The producer is not started, or closed.
        """
        if not messages:
            return []
        await self._in_flight.wait_for_room()
        future: asyncio.Future[list[SendResult]] = asyncio.get_running_loop().create_future()
        _, pipeline, requests = self._started()

        def done(outcome: list[SendResult] | MQError) -> None:
            settle(future, outcome)

        callback = done if self._tracer is None else self._tracer.batch(messages, done)
        sending = requests.batch(messages, callback, queue=queue, timeout_ms=timeout_ms)
        self._in_flight.add(len(messages), sending.counted_bytes)
        pipeline.submit(sending)
        return await future

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> ReceivedMessage:
        """Send a message and return what a consumer replies to it; `timeout_ms` bounds both (`send_timeout_ms`).

        Raises:
            ReplyTimeoutError: No reply came in time; the message may be consumed all the same.
            InvalidRequestError: The message, its topic or its queue is impossible.
            UnavailableError: No broker took the message.
            ClosedError: The producer is not started, or closed; also when it closes meanwhile.
        """
        begin = functools.partial(self.start_send, queue=queue, selector=selector, argument=argument)
        return await self._letters().request(message, begin, timeout_ms=timeout_ms or self.send_timeout_ms)

    async def reply(
        self,
        request: ReceivedMessage,
        body: bytes,
        *,
        properties: Mapping[str, str] = MappingProxyType({}),
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Answer a message that was sent by `request`, of any RocketMQ client. The consumer of the message calls it.

        Raises:
            InvalidRequestError: The message asks for no reply, or the reply's body or properties are impossible.
            ResponseError: The requester is gone.
            UnavailableError: No broker hands the reply on.
            ClosedError: The producer is not started, or closed.
        """
        return await self._letters().reply(
            request, body, properties=properties, timeout_ms=timeout_ms or self.send_timeout_ms
        )

    async def recall(self, recall_handle: str, *, timeout_ms: int | None = None) -> str:
        """Take back a message that waits for its time, and return its message id.

        `recall_handle`: from the `SendResult`. Success says that the broker will not deliver it if it still waits; not
        that there was such a message. Brokers allow it when their `recallMessageEnable` is true.

        Raises:
            InvalidRequestError: The handle is none, its time has come, or the broker allows no recalls.
            UnavailableError: The broker that has the message does not answer.
            ClosedError: The producer is not started, or closed.
        """
        session, _, _ = self._started()
        handle = decode_recall_handle(recall_handle)
        route = await session.routes.get(handle.topic)
        header = RecallMessageRequestHeader(
            producer_group=self.group,
            topic=handle.topic,
            recall_handle=recall_handle,
            broker_name=handle.broker_name,
        )
        answer = await session.call(
            route.master(handle.broker_name),
            RequestCode.RECALL_MESSAGE,
            header,
            timeout_ms=timeout_ms or self.send_timeout_ms,
        )
        return answer.header(RecallMessageResponseHeader).msg_id

    async def fetch_publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that messages of a topic may be sent to, sorted.

        Raises:
            TopicNotFoundError: There is no such topic, and no broker would create it.
            UnavailableError: No NameServer answers.
        """
        session, _, _ = self._started()
        route = await session.routes.get_for_sending(
            topic, template_topic=self.create_topic_key, queue_nums_max=self.default_topic_queue_nums
        )
        return list(route.publish_queues)

    # -- for the blocking half, and inside ---------------------------------------------------------------------------

    def watched_topics(self) -> tuple[str, ...]:
        """The topics whose brokers are to know this producer from its start: none, as no broker asks it anything."""
        return ()

    def answer(self, command: RemotingCommand) -> RemotingCommand | None:
        """Take replies; UnsupportedRequestError for any other request of a broker."""
        if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return self._letters().accept_reply(command)
        raise UnsupportedRequestError(code=command.code)

    def _begin_send(
        self,
        prepared: Draft,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: object = None,
        timeout_ms: int | None,
    ) -> asyncio.Future[SendResult]:
        """Begin to send what was drafted, as `start_send`; the future gets the result or the error."""
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self.start_send(
            prepared,
            lambda outcome: settle(future, outcome),
            queue=queue,
            selector=selector,
            argument=argument,
            timeout_ms=timeout_ms,
        )
        return future

    def start_send(
        self,
        prepared: Draft,
        callback: SendCallback,
        *,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        argument: object,
        timeout_ms: int | None,
    ) -> None:
        """Begin to send what was drafted; only on the loop. The callback gets the outcome, once.

        Raises:
            InvalidRequestError: An argument without a selector.
            ClosedError: The producer is not started, or closed.
        """
        _, pipeline, requests = self._started()
        if self._tracer is not None and prepared.message.topic != self.trace_topic:
            callback = self._tracer.single(prepared.message, callback)
        lingering = self._lingering
        is_plain = selector is None and argument is None and timeout_ms is None
        if lingering is not None and is_plain and lingering.may_linger(prepared):
            lingering.add(prepared, callback, queue=queue)
            return
        sending = requests.single(
            prepared, callback, queue=queue, selector=selector, argument=argument, timeout_ms=timeout_ms
        )
        self._in_flight.add(1, sending.counted_bytes)
        pipeline.submit(sending)

    def _connection_closed(self, connection: Connection) -> None:
        """Send again what was lost with the connection, and be there for replies."""
        assert self._pipeline is not None
        assert self._request_reply is not None
        self._request_reply.connection_closed()
        self._pipeline.connection_closed(connection)

    def _letters(self) -> RequestReply:
        self._started()
        assert self._request_reply is not None
        return self._request_reply

    def _started(self) -> tuple[ClientSession, SendPipeline, SendRequests]:
        if self._session is None or self._pipeline is None or self._requests is None:
            raise ClosedError("the producer is not started")
        if self._closed:
            raise ClosedError("the producer is closed")
        return self._session, self._pipeline, self._requests


def trace_producer(options: ClientOptions, group: str, *, kind: str) -> AsyncProducer:
    """A producer for the traces of a client; `kind`: PRODUCE or CONSUME."""
    return AsyncProducer(
        group=trace_group(group, kind=kind),
        namesrv=options.namesrv,
        client_ip=options.client_ip,
        unit_name=options.unit_name,
        request_timeout_ms=options.request_timeout_ms,
        connect_timeout_ms=options.connect_timeout_ms,
        tls=options.tls,
        credentials=options.credentials,
        send_timeout_ms=TRACE_SEND_TIMEOUT_MS,
    )


def _forget(outcome: SendResult | MQError) -> None:
    """The callback of a one-way send, which has no outcome."""
