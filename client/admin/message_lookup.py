"""Messages: find them by key, by id, by place; have transactions asked about again; offsets of queues."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.busy_retry import retry_while_busy
from thermocline.client.consumer.consumer_calls import ConsumerCalls, PullResult, PullStatus
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage, decode_messages
from thermocline.client.topic_route import MASTER_ID, BrokerAddress
from thermocline.remoting.bodies.subscription import parse_subscription
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import ObjectNotFoundError, QueryNotFoundError, ResponseError, UnavailableError
from thermocline.remoting.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    QueryMessageRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    ViewMessageRequestHeader,
)
from thermocline.remoting.java_long import LONG_MAX
from thermocline.remoting.records.message_id import decode_message_id, unique_id_time_ms
from thermocline.remoting.records.message_record import decode_record
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.socket_address import format_address
from thermocline.remoting.topic_validation import TOOLS_CONSUMER_GROUP, TRANSACTION_CHECK_MAX_TIME_TOPIC

__all__ = ["MessageLookup", "WantedMessages", "wanted_by_key", "wanted_by_unique_key"]

END_OF_TIME_MS = LONG_MAX
UNIQUE_KEY_MARGIN_MS = 3 * 24 * 3600 * 1000
UNIQUE_KEY_COUNT_MAX = 32
PULL_COUNT_MAX = 32
PULL_BYTES_MAX = 4 * 1024 * 1024
PULL_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedMessages:
    """What a lookup by key is for; `index_type` "K" for keys, "U" for unique ids."""

    topic: str
    key: str
    index_type: str
    count_max: int
    begin_timestamp_ms: int
    end_timestamp_ms: int
    matches: Callable[[ReceivedMessage], bool]


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
            PartialResultError: Some brokers failed; `result` has what the others found.
        """
        wanted = wanted_by_key(
            topic, key, count_max=count_max, begin_timestamp_ms=begin_timestamp_ms, end_timestamp_ms=end_timestamp_ms
        )
        return await self._query(wanted, await self._topic_masters(topic))

    async def query_by_unique_key(self, topic: str, unique_key: str) -> list[ReceivedMessage]:
        """Return the message with this id, made by its producer: one, or several when a send was repeated.

        Raises:
            TopicNotFoundError: There is no such topic.
            InvalidRequestError: It is no unique id.
            PartialResultError: Some brokers failed; `result` has what the others found.
        """
        return await self._query(wanted_by_unique_key(topic, unique_key), await self._topic_masters(topic))

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
            PartialResultError: Some brokers failed, so that it may be there; `result` has what the others found.
        """
        masters = await self._topic_masters(topic)
        wanted = wanted_by_unique_key(topic, message_id)
        # First, as it costs one lookup.
        answers = await self._ask_each(masters, lambda master: self._query_at(master, wanted), takes_replicas=True)
        found = _by_store_time(answers.values())
        if found:
            return answers.whole(found)
        with contextlib.suppress(ObjectNotFoundError, UnavailableError):  # an address that no broker may ever have had
            return [await self.view_message(message_id, topic=topic)]
        return answers.whole([])

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
            UnavailableError: The broker cannot serve this, and could not for `request_timeout_ms`.
        """
        calls = await self._calls(queue)
        subscription = parse_subscription(queue.topic, expression, expression_type=expression_type)

        async def ask(left_ms: int) -> PullResult:
            return await calls.pull(
                queue,
                offset=offset,
                subscription=subscription,
                count_max=count_max,
                bytes_max=PULL_BYTES_MAX,
                suspend_ms=0,
                timeout_ms=PULL_TIMEOUT_MS,
                tells_subscription=True,
            )

        pulling = retry_while_busy(ask, timeout_ms=self.request_timeout_ms)
        return await self._while_alive(await self._running().routes.find_reader(queue), pulling)

    async def pull_topic(
        self,
        topic: str,
        *,
        count_max: int = 32,
        offset: int | None = None,
        since_ms: int | None = None,
        broker: str | None = None,
        queue_id: int | None = None,
        expression: str = "*",
        expression_type: str = "TAG",
    ) -> list[ReceivedMessage]:
        """Read up to `count_max` messages of each queue of a topic, brokers side by side; without being in a group.

        From an offset on, from the first one stored since a time, or from the first one. All queues, or those of one
        broker by its name, or those with one number.

        Raises:
            ObjectNotFoundError: There is no such topic or queue.
            SubscriptionParseError: The expression is none.
            PartialResultError: Some brokers failed; `result` has the messages of the others.
        """
        route = await self._running().routes.refresh(topic)
        by_reader: dict[str, list[MessageQueue]] = {}
        for queue in route.subscribe_queues:
            if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id):
                by_reader.setdefault(route.broker_of(queue), []).append(queue)
        if not by_reader:
            raise ObjectNotFoundError("the topic has no such queue", topic=topic)

        async def read(reader: BrokerAddress) -> list[ReceivedMessage]:
            found: list[ReceivedMessage] = []
            for queue in by_reader[reader.broker_name]:
                start = offset
                if start is None:
                    start = await (self.min_offset(queue) if since_ms is None else self.search_offset(queue, since_ms))
                found += await self._read_queue(queue, start, count_max, expression, expression_type)
            return found

        readers = [
            BrokerAddress(cluster="", broker_name=name, broker_id=MASTER_ID, address=route.reader(name))
            for name in by_reader
        ]
        answers = await self._ask_each(readers, read)
        return answers.whole([message for each in answers.values() for message in each])

    async def _read_queue(
        self, queue: MessageQueue, offset: int, count_max: int, expression: str, expression_type: str
    ) -> list[ReceivedMessage]:
        """Up to `count_max` messages of one queue."""
        found: list[ReceivedMessage] = []
        while len(found) < count_max:
            result = await self.pull(
                queue,
                offset,
                count_max=min(count_max - len(found), PULL_COUNT_MAX),
                expression=expression,
                expression_type=expression_type,
            )
            found += result.messages
            if result.status is PullStatus.NO_NEW_MESSAGE or result.next_begin_offset >= result.max_offset:
                break
            if result.status is PullStatus.OFFSET_ILLEGAL and result.next_begin_offset <= offset:
                break
            offset = result.next_begin_offset
        return found[:count_max]

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

    async def _query(self, wanted: WantedMessages, masters: Iterable[BrokerAddress]) -> list[ReceivedMessage]:
        answers = await self._ask_each(masters, lambda master: self._query_at(master, wanted), takes_replicas=True)
        return answers.whole(_by_store_time(answers.values()))

    async def _query_at(self, master: BrokerAddress, wanted: WantedMessages) -> list[ReceivedMessage]:
        """What one broker finds."""
        header = QueryMessageRequestHeader(
            topic=wanted.topic,
            key=wanted.key,
            max_num=wanted.count_max,
            begin_timestamp=wanted.begin_timestamp_ms,
            end_timestamp=wanted.end_timestamp_ms,
            index_type=wanted.index_type,
            unique_key_query="true" if wanted.index_type == "U" else "false",
        )
        try:
            answer = await self._running().call(master.address, RequestCode.QUERY_MESSAGE, header)
        except QueryNotFoundError:
            return []
        found: list[ReceivedMessage] = []
        queue = MessageQueue(topic=wanted.topic, broker_name=master.broker_name, queue_id=0)
        for message in decode_messages(answer.body, queue=queue):
            # The index holds hashes only, so messages of other keys and topics may be among them.
            if message.record.topic == wanted.topic and wanted.matches(message):
                message.queue = MessageQueue(
                    topic=wanted.topic, broker_name=master.broker_name, queue_id=message.record.queue_id
                )
                found.append(message)
        return found

    async def _calls(self, queue: MessageQueue) -> ConsumerCalls:
        await self._running().routes.get(queue.topic)
        return ConsumerCalls(self._running(), group=TOOLS_CONSUMER_GROUP)


def wanted_by_key(
    topic: str,
    key: str,
    *,
    count_max: int = 64,
    begin_timestamp_ms: int = 0,
    end_timestamp_ms: int = END_OF_TIME_MS,
) -> WantedMessages:
    """Return what to look for: messages with this key."""
    return WantedMessages(
        topic=topic,
        key=key,
        index_type="K",
        count_max=count_max,
        begin_timestamp_ms=begin_timestamp_ms,
        end_timestamp_ms=end_timestamp_ms,
        matches=lambda message: key in message.keys.split(),
    )


def wanted_by_unique_key(topic: str, unique_key: str) -> WantedMessages:
    """Return what to look for: the message with its producer's id; InvalidRequestError unless it can be one."""
    return WantedMessages(
        topic=topic,
        key=unique_key,
        index_type="U",
        count_max=UNIQUE_KEY_COUNT_MAX,
        begin_timestamp_ms=unique_id_time_ms(unique_key, wall_clock_ms()) - UNIQUE_KEY_MARGIN_MS,
        end_timestamp_ms=END_OF_TIME_MS,
        matches=lambda message: message.message_id == unique_key,
    )


def _by_store_time(found: Iterable[Iterable[ReceivedMessage]]) -> list[ReceivedMessage]:
    """Oldest first; of one broker and one millisecond in the order of its log."""
    return sorted(
        (message for each in found for message in each),
        key=lambda one: (one.store_timestamp_ms, one.queue.broker_name, one.record.physical_offset),
    )
