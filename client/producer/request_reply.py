"""Request and reply: a producer's messages that a consumer answers, and the answers.

    requester --message with a correlation id--> topic --> consumer --SEND_REPLY_MESSAGE_V2 325--> broker
        ^                                                                                           |
        '----------------------- PUSH_REPLY_MESSAGE_TO_CLIENT 326, on the requester's connection ---'

A request carries CORRELATION_ID, REPLY_TO_CLIENT (the requester's client id) and TTL (its time-out, ms). Its reply is a
message for `{cluster}_REPLY_TOPIC` with the same three and MSG_TYPE `reply`, which the broker pushes to the requester.

Rules
  - A broker finds the requester by its heartbeat. So one is sent before the first request to a topic, again when a
    connection was made anew since, and at once when one breaks while requests wait: their replies are still to come.
  - A reply is sent to the broker that the request came from, as the requester is connected to it; if it refuses, to
    others.
  - A request may be stored twice, as every message may, and so be answered twice: the first reply counts.
  - At most `in_flight_max` requests wait for replies; those beyond wait for their turn within their own time.
Source: client/impl/producer/DefaultMQProducerImpl.java (request), client/utils/MessageUtil.java,
client/impl/ClientRemotingProcessor.java (receiveReplyMessage), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from typing import Protocol

from thermocline.client.answer import check_answer
from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.in_flight import InFlight
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.producer.sending import Draft, SendCallback, draft
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.send_result import SendResult, SendStatus
from thermocline.client.session import ClientSession
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import (
    ClosedError,
    InvalidRequestError,
    MQError,
    ReplyTimeoutError,
    RequestTimeoutError,
    ResponseError,
    UnavailableError,
)
from thermocline.remoting.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from thermocline.remoting.offsets import LOG_START, QUEUE_START
from thermocline.remoting.records.message_id import UniqueIdGenerator
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import PropertyName, find_property
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.socket_address import Host, parse_address
from thermocline.remoting.topic_validation import REPLY_TOPIC_SUFFIX

__all__ = ["RequestReply"]

logger = logging.getLogger(__name__)

REPLY_TYPE = "reply"
HEARTBEATS_TIMEOUT_S = 1.0
"""A request waits no longer for brokers that do not answer heartbeats: others may well have its reply."""


class BeginSend(Protocol):
    """Begins to send a draft; its callback gets the outcome."""

    def __call__(self, prepared: Draft, callback: SendCallback, *, timeout_ms: int) -> None:
        """Begin."""


class RequestReply:
    """See the module. Belongs to the producer's loop."""

    def __init__(
        self,
        options: ProducerOptions,
        session: ClientSession,
        *,
        in_flight: InFlight,
        unique_ids: UniqueIdGenerator,
    ) -> None:
        self._options = options
        self._session = session
        self._in_flight = in_flight
        self._unique_ids = unique_ids
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self._room = asyncio.Semaphore(options.in_flight_max)
        self._known_topics: set[str] = set()
        self._announced: dict[str, Connection] = {}
        self._is_announcing = False
        self._closed = False

    # -- asking ------------------------------------------------------------------------------------------------------

    async def request(self, message: Message, begin: BeginSend, *, timeout_ms: int) -> ReceivedMessage:
        """Send a message by `begin` and wait for its reply; see `AsyncProducer.request`."""
        prepared = draft(message, self._options)
        correlation_id = str(uuid.uuid4())
        deadline = self._loop.time() + timeout_ms / 1000
        reply: asyncio.Future[ReceivedMessage] = self._loop.create_future()
        is_stored = False

        def sent(outcome: SendResult | MQError) -> None:
            nonlocal is_stored
            if isinstance(outcome, SendResult):
                is_stored = True
            elif not reply.done():
                reply.set_exception(outcome)

        self._waiting[correlation_id] = reply
        try:
            async with asyncio.timeout_at(deadline), self._room:
                await self._announce(message.topic)
                await self._in_flight.wait_for_room()
                left_ms = max(1, int((deadline - self._loop.time()) * 1000))
                begin(
                    Draft(
                        message,
                        prepared.body,
                        prepared.sys_flag,
                        added_properties=self._request_properties(correlation_id, timeout_ms),
                    ),
                    sent,
                    timeout_ms=left_ms,
                )
                return await reply
        except (TimeoutError, RequestTimeoutError) as error:
            # The send had what was left of the time, in whole milliseconds: it may end first.
            if self._loop.time() < deadline - 0.001:
                raise
            raise ReplyTimeoutError(topic=message.topic, timeout_ms=timeout_ms, is_stored=is_stored) from error
        finally:
            del self._waiting[correlation_id]
            if reply.done() and not reply.cancelled():
                reply.exception()  # it came at the same moment as the time-out; asyncio would log an unread exception

    def accept_reply(self, command: RemotingCommand) -> RemotingCommand:
        """Give a reply that a broker pushes to the request that waits for it; confirm it in any case.

        Raises:
            InvalidRequestError: The header is none.
        """
        header = command.header(ReplyMessageRequestHeader)
        properties_text = (header.properties or "").encode()
        found = find_property(properties_text, PropertyName.CORRELATION_ID.encode())
        correlation_id = "" if found is None else found.decode(errors="replace")
        waiting = self._waiting.get(correlation_id)
        if waiting is None or waiting.done():
            logger.warning("no request waits for reply correlation_id=%s from=%s", correlation_id, header.born_host)
        else:
            waiting.set_result(_received(header, properties_text, bytes(command.body)))
        return RemotingCommand.response(command)

    def connection_closed(self) -> None:
        """Send the broker of a broken connection a heartbeat on a new one, if requests wait for replies."""
        if self._waiting and not self._closed and not self._is_announcing:
            self._is_announcing = True
            self._session.start_task(self._announce_again())

    async def _announce_again(self) -> None:
        try:
            await self._session.send_heartbeats()
        finally:
            self._is_announcing = False

    def close(self) -> None:
        """Fail all requests that wait for a reply."""
        self._closed = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ClosedError("the producer is closed"))

    def _request_properties(self, correlation_id: str, timeout_ms: int) -> str:
        return (
            f"{PropertyName.CORRELATION_ID}\x01{correlation_id}\x02"
            f"{PropertyName.REPLY_TO_CLIENT}\x01{self._session.client_id}\x02"
            f"{PropertyName.MESSAGE_TTL}\x01{timeout_ms}\x02"
        )

    async def _announce(self, topic: str) -> None:
        """Send heartbeats to the brokers of a topic, so that they can deliver replies to this client."""
        session, options = self._session, self._options
        route = session.routes.cached(topic)
        if route is None or topic not in self._known_topics:
            route = await session.routes.get_for_sending(
                topic, template_topic=options.create_topic_key, queue_nums_max=options.default_topic_queue_nums
            )
            self._known_topics.add(topic)
            is_due = True
        else:
            connections = {one.address: session.connections.connection(one.address) for one in route.brokers}
            # A broker that we have no connection to gets its heartbeat from the session's own round.
            is_due = any(
                connection is not None and self._announced.get(address) is not connection
                for address, connection in connections.items()
            )
        if is_due:
            heartbeats = session.start_task(session.send_heartbeats())
            await asyncio.wait((heartbeats,), timeout=HEARTBEATS_TIMEOUT_S)
            for one in route.brokers:
                connection = session.connections.connection(one.address)
                if connection is not None:
                    self._announced[one.address] = connection

    # -- answering ---------------------------------------------------------------------------------------------------

    async def reply(
        self, request: ReceivedMessage, body: bytes, *, properties: Mapping[str, str], timeout_ms: int
    ) -> SendResult:
        """Answer a request; see `AsyncProducer.reply`."""
        asked = request.properties
        cluster = asked.get(PropertyName.CLUSTER)
        requester = asked.get(PropertyName.REPLY_TO_CLIENT)
        correlation_id = asked.get(PropertyName.CORRELATION_ID)
        if not (cluster and requester and correlation_id):
            raise InvalidRequestError("this message asks for no reply", message_id=request.message_id)
        prepared = draft(Message(f"{cluster}{REPLY_TOPIC_SUFFIX}", body, properties=properties), self._options)
        unique_id = self._unique_ids.next()
        text = (
            f"{prepared.message.properties_text(unique_id)}{PropertyName.MESSAGE_TYPE}\x01{REPLY_TYPE}\x02"
            f"{PropertyName.CORRELATION_ID}\x01{correlation_id}\x02{PropertyName.REPLY_TO_CLIENT}\x01{requester}\x02"
        )
        ttl = asked.get(PropertyName.MESSAGE_TTL)
        if ttl:
            text += f"{PropertyName.MESSAGE_TTL}\x01{ttl}\x02"
        deadline = self._loop.time() + timeout_ms / 1000
        refusal: MQError | None = None
        for queue in await self._reply_queues(prepared.message.topic, request.queue.broker_name):
            left_ms = int((deadline - self._loop.time()) * 1000)
            if left_ms <= 0:
                break
            try:
                return await self._send_reply(prepared, queue, text, unique_id=unique_id, timeout_ms=left_ms)
            except (ResponseError, UnavailableError) as error:
                logger.warning("reply not delivered broker_name=%s error=%s", queue.broker_name, error)
                refusal = error
        raise refusal or RequestTimeoutError("no time left for a reply", topic=prepared.message.topic)

    async def _reply_queues(self, topic: str, first_broker: str) -> list[MessageQueue]:
        """One queue of each broker, beginning with the broker that has the request."""
        route = await self._session.routes.get(topic)
        queues = {queue.broker_name: queue for queue in reversed(route.publish_queues)}
        if not queues:
            raise UnavailableError("no broker takes replies now", topic=topic)
        return sorted(queues.values(), key=lambda queue: (queue.broker_name != first_broker, queue.broker_name))

    async def _send_reply(
        self, prepared: Draft, queue: MessageQueue, properties_text: str, *, unique_id: str, timeout_ms: int
    ) -> SendResult:
        session = self._session
        route = await session.routes.get(queue.topic)
        address = route.master(queue.broker_name)
        header = SendMessageRequestHeaderV2(
            producer_group=self._options.group,
            topic=queue.topic,
            default_topic=self._options.create_topic_key,
            default_topic_queue_nums=self._options.default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=prepared.sys_flag,
            born_timestamp=wall_clock_ms(),
            flag=prepared.message.flag,
            properties=properties_text,
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            broker_name=queue.broker_name,
        )
        command = RemotingCommand.request(RequestCode.SEND_REPLY_MESSAGE_V2, header, body=prepared.body)
        answer = await session.connections.call(address, command, timeout_ms=timeout_ms)
        check_answer(answer, address=address)
        stored = answer.header(SendMessageResponseHeader)
        return SendResult(
            status=SendStatus.SEND_OK,
            message_id=unique_id,
            offset_message_id=stored.msg_id,
            queue=MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=stored.queue_id),
            queue_offset=stored.queue_offset,
        )


def _received(header: ReplyMessageRequestHeader, properties_text: bytes, body: bytes) -> ReceivedMessage:
    """A pushed reply as a message; it has no place in a queue or log, so those are 0."""
    record = MessageRecord(
        queue_id=header.queue_id,
        flag=header.flag,
        queue_offset=QUEUE_START,
        physical_offset=LOG_START,
        sys_flag=header.sys_flag,
        born_timestamp_ms=header.born_timestamp,
        born_host=_host(header.born_host),
        store_timestamp_ms=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=LOG_START,
        body=body,
        topic=header.topic,
        properties_text=properties_text + f"{PropertyName.REPLY_ARRIVE_TIME}\x01{wall_clock_ms()}\x02".encode(),
        body_crc=0,
        size_bytes=0,
    )
    queue = MessageQueue(topic=header.topic, broker_name=header.broker_name or "", queue_id=header.queue_id)
    return ReceivedMessage(record, queue=queue)


def _host(text: str) -> Host:
    """The address in a header; Java brokers write `name/address:port`."""
    return parse_address(text.rpartition("/")[2])
