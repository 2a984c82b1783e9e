"""Messages: find them by key, by id, by place; have transactions asked about again; offsets of queues."""

from __future__ import annotations

from collections.abc import Callable

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.consumer.consumer_calls import ConsumerCalls, PullResult, PullStatus
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage, decode_messages
from thermocline.client.session import wall_clock_ms
from thermocline.remoting.errors import ObjectNotFoundError, QueryNotFoundError, ResponseError, UnavailableError
from thermocline.remoting.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    QueryMessageRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    ViewMessageRequestHeader,
)
from thermocline.remoting.message_id import decode_message_id, unique_id_time_ms
from thermocline.remoting.message_record import decode_record
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.socket_address import format_address
from thermocline.remoting.subscription import parse_subscription
from thermocline.remoting.topic_validation import TOOLS_CONSUMER_GROUP, TRANSACTION_CHECK_MAX_TIME_TOPIC

__all__ = ["MessageLookup"]

END_OF_TIME_MS = 2**63 - 1
UNIQUE_KEY_MARGIN_MS = 3 * 24 * 3600 * 1000
UNIQUE_KEY_COUNT_MAX = 32
PULL_BYTES_MAX = 4 * 1024 * 1024
PULL_TIMEOUT_MS = 30_000


class MessageLookup(AdminBase):
    """Part of `AsyncAdminClient`."""

    async def query_by_key(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 64,
        begin_timestamp_ms: int = 0,
        end_timestamp_ms: int = END_OF_TIME_MS,
    ) -> list[ReceivedMessage]:
        """Return messages with one of their keys equal to `key`, stored in a span of time, oldest first.

        At most `count_max` from each broker. Nothing found is an empty list.

        Raises:
            TopicNotFoundError: There is no such topic.
        """
        return await self._query(
            topic,
            key,
            index_type="K",
            count_max=count_max,
            begin_timestamp_ms=begin_timestamp_ms,
            end_timestamp_ms=end_timestamp_ms,
            matches=lambda message: key in message.keys.split(),
        )

    async def query_by_unique_key(self, topic: str, unique_key: str) -> list[ReceivedMessage]:
        """Return the message with this id, made by its producer: one, or several when a send was repeated.

        Raises:
            TopicNotFoundError: There is no such topic.
            InvalidRequestError: It is no unique id.
        """
        born_ms = unique_id_time_ms(unique_key, wall_clock_ms())
        return await self._query(
            topic,
            unique_key,
            index_type="U",
            count_max=UNIQUE_KEY_COUNT_MAX,
            begin_timestamp_ms=born_ms - UNIQUE_KEY_MARGIN_MS,
            end_timestamp_ms=END_OF_TIME_MS,
            matches=lambda message: message.message_id == unique_key,
        )

    async def view_message(self, offset_message_id: str, *, topic: str | None = None) -> ReceivedMessage:
        """Return the message with this id, made by its broker, which is asked at the address that the id names.

        Raises:
            InvalidRequestError: It is no such id.
            ObjectNotFoundError: No message starts at that place (any more).
            UnavailableError: That address does not answer.
        """
        place = decode_message_id(offset_message_id)
        address = format_address(*place.host)
        header = ViewMessageRequestHeader(topic=topic, offset=place.physical_offset)
        try:
            answer = await self._running().call(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        except ResponseError as error:
            raise ObjectNotFoundError("no message with this id", message_id=offset_message_id) from error
        record = decode_record(answer.body)
        names = [one.broker_name for one in await self._brokers() if one.address == address]
        queue = MessageQueue(topic=record.topic, broker_name=names[0] if names else "", queue_id=record.queue_id)
        return ReceivedMessage(record, queue=queue)

    async def query_by_id(self, topic: str, message_id: str) -> list[ReceivedMessage]:
        """Return the message with this id, its producer's or its broker's; both kinds have one form.

        Nothing found is an empty list; several are one message whose send was repeated.

        Raises:
            TopicNotFoundError: There is no such topic.
            InvalidRequestError: It is no id.
        """
        found = await self.query_by_unique_key(topic, message_id)  # first, for it costs nothing but a lookup
        if found:
            return found
        try:
            return [await self.view_message(message_id, topic=topic)]
        except (ObjectNotFoundError, UnavailableError):
            return []

    async def resume_check_half_message(self, offset_message_id: str, *, topic: str | None = None) -> None:
        """Have the producers of a parked message (in TRANS_CHECK_MAX_TIME_TOPIC) asked again how its transaction ended.

        The id is its broker's. An open half message begins to be asked about anew.

        Raises:
            InvalidRequestError: It is no such id, of no transaction, or of one that has ended.
            ResponseError: The broker found no such message.
            UnavailableError: The broker does not answer.
        """
        place = decode_message_id(offset_message_id)
        header = ResumeCheckHalfMessageRequestHeader(
            topic=topic or TRANSACTION_CHECK_MAX_TIME_TOPIC, msg_id=offset_message_id
        )
        await self._running().call(format_address(*place.host), RequestCode.RESUME_CHECK_HALF_MESSAGE, header)

    async def view_by_offset(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        """Return the message at a queue offset; ObjectNotFoundError when there is none (any more)."""
        result = await self.pull(queue, offset, count_max=1)
        if result.status is not PullStatus.FOUND or result.messages[0].queue_offset != offset:
            raise ObjectNotFoundError("no message at this offset", queue=str(queue), queue_offset=offset)
        return result.messages[0]

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count_max: int = 32,
        expression: str = "*",
        expression_type: str = "TAG",
    ) -> PullResult:
        """Read messages of a queue from an offset on, without being in a group or waiting for new ones.

        Raises:
            ObjectNotFoundError: There is no such topic or broker.
            SubscriptionParseError: The expression is none.
            ResponseError: The broker does not choose messages by such expressions; it needs `enablePropertyFilter`.
            UnavailableError: The broker cannot serve this now.
        """
        calls = await self._calls(queue)
        return await calls.pull(
            queue,
            offset=offset,
            subscription=parse_subscription(queue.topic, expression, expression_type=expression_type),
            count_max=count_max,
            bytes_max=PULL_BYTES_MAX,
            suspend_ms=0,
            timeout_ms=PULL_TIMEOUT_MS,
            tells_subscription=True,
        )

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the first offset that a queue still holds."""
        return await (await self._calls(queue)).min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that a queue's next message will have."""
        return await (await self._calls(queue)).max_offset(queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int, *, boundary: str = "LOWER") -> int:
        """Return the first offset stored at that time or later (`LOWER`), or the last at or before it (`UPPER`)."""
        return await (await self._calls(queue)).offset_by_time(queue, timestamp_ms, boundary=boundary)

    async def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """Return when a queue's first message was stored, in ms since 1970; None when it is empty."""
        header = GetEarliestMsgStoretimeRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        session = self._running()
        await session.routes.get(queue.topic)
        address = await session.routes.find_reader(queue)
        answer = await session.call(address, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        timestamp_ms = answer.header(GetEarliestMsgStoretimeResponseHeader).timestamp
        return timestamp_ms if timestamp_ms >= 0 else None

    async def _query(
        self,
        topic: str,
        key: str,
        *,
        index_type: str,
        count_max: int,
        begin_timestamp_ms: int,
        end_timestamp_ms: int,
        matches: Callable[[ReceivedMessage], bool],
    ) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        for master in await self._topic_masters(topic):
            header = QueryMessageRequestHeader(
                topic=topic,
                key=key,
                max_num=count_max,
                begin_timestamp=begin_timestamp_ms,
                end_timestamp=end_timestamp_ms,
                index_type=index_type,
                unique_key_query="true" if index_type == "U" else "false",
            )
            try:
                answer = await self._running().call(master.address, RequestCode.QUERY_MESSAGE, header)
            except QueryNotFoundError:
                continue
            queue = MessageQueue(topic=topic, broker_name=master.broker_name, queue_id=0)
            for message in decode_messages(answer.body, queue=queue):
                # The index knows hashes only, so other keys and topics may be among them.
                if message.record.topic == topic and matches(message):
                    message.queue = MessageQueue(
                        topic=topic, broker_name=master.broker_name, queue_id=message.record.queue_id
                    )
                    found.append(message)
        # Of one broker and one millisecond: in the order of its log.
        return sorted(
            found, key=lambda one: (one.store_timestamp_ms, one.queue.broker_name, one.record.physical_offset)
        )

    async def _calls(self, queue: MessageQueue) -> ConsumerCalls:
        await self._running().routes.get(queue.topic)
        return ConsumerCalls(self._running(), group=TOOLS_CONSUMER_GROUP)
