"""ConsumerCalls: the typed requests of consumers to brokers: pull, offsets, members, queue locks, send-back.

Every method finds the broker by its name in the routes. Pulls may be sent elsewhere by the broker's own suggestion;
everything else goes to the master. Source: client/impl/consumer/PullAPIWrapper.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from thermocline.client.answer import answer_error
from thermocline.client.message_queue import MessageQueue, from_wire, to_wire
from thermocline.client.received_message import ReceivedMessage, decode_messages, restore_topic
from thermocline.client.session import ClientSession
from thermocline.client.topic_route import MASTER_ID, TopicRoute
from thermocline.remoting.bodies import (
    EXPRESSION_TAG,
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    SubscriptionData,
)
from thermocline.remoting.bodies.logic_queue import is_virtual_broker
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError, QueryNotFoundError, TopicNotFoundError, UnavailableError
from thermocline.remoting.header_codec import Header
from thermocline.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import RECONSUME_TIMES_MAX
from thermocline.remoting.records.properties import PropertyName
from thermocline.remoting.records.sys_flag import PULL_COMMIT_OFFSET, PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from thermocline.remoting.request_code import RequestCode, request_name
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.topic_validation import retry_topic

__all__ = ["ConsumerCalls", "LockResult", "PullResult", "PullStatus"]

logger = logging.getLogger(__name__)

LOCK_TIMEOUT_MS = 1_000
SEND_BACK_TIMEOUT_MS = 5_000


class PullStatus(enum.Enum):
    """What came of a pull."""

    FOUND = "FOUND"
    NO_NEW_MESSAGE = "NO_NEW_MESSAGE"
    """The requested offset is the end of the queue."""
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    """There are messages, none of them wanted; go on at `next_begin_offset`."""
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
    """The offset is outside the queue, or was reset by an operator; go on at `next_begin_offset`."""


_STATUS_BY_CODE = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MESSAGE,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MESSAGE,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResult:
    """The answer to a pull."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[ReceivedMessage]

    def has_expired(self, asked_offset: int) -> bool:
        """Whether what was asked for is below the queue's first message; from there, or from further on, it goes on."""
        return asked_offset < self.min_offset <= self.next_begin_offset

    def is_past_end(self, asked_offset: int) -> bool:
        """Whether the queue ends below the offset that was asked for: its end was lost."""
        return asked_offset > self.max_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LockResult:
    """The answers to a request for queue locks."""

    held: frozenset[MessageQueue]
    """Locked for this member now."""
    refused: frozenset[MessageQueue]
    """Locked for another member."""


class ConsumerCalls:
    """See the module. Belongs to its session's loop."""

    def __init__(self, session: ClientSession, *, group: str) -> None:
        self._session = session
        self._group = group
        self._retry_topic = retry_topic(group)
        self._suggested_broker_ids: dict[MessageQueue, int] = {}

    # -- pull --------------------------------------------------------------------------------------------------------

    async def pull(
        self,
        queue: MessageQueue,
        *,
        offset: int,
        subscription: SubscriptionData,
        count_max: int,
        bytes_max: int,
        suspend_ms: int,
        timeout_ms: int,
        commit_offset: int | None = None,
        is_lite: bool = False,
        tells_subscription: bool = False,
    ) -> PullResult:
        """Ask for messages from `offset` on; an empty queue's broker holds the request for up to `suspend_ms`.

        `commit_offset` is committed along the way. Cancelling is safe: a pull removes nothing from the queue.

        Raises:
            UnavailableError: No answer, or the broker cannot serve this now; pull the same offset again.
            MQError: It refused; see `check_answer`.
            CorruptDataError: The messages that came are damaged; none of them is given.
        """
        broker_id = self._suggested_broker_ids.get(queue, MASTER_ID)
        address = await self._session.routes.find_reader(queue, broker_id)
        is_master = self._session.routes.is_master(queue, address)
        sys_flag = PULL_SUSPEND if suspend_ms else 0
        if tells_subscription:
            sys_flag |= PULL_SUBSCRIPTION
        if is_lite:
            sys_flag |= PULL_LITE
        if commit_offset is not None and is_master:
            sys_flag |= PULL_COMMIT_OFFSET
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=QueueOffset(offset),
            max_msg_nums=count_max,
            max_msg_bytes=bytes_max,
            sys_flag=sys_flag,
            commit_offset=QueueOffset(commit_offset or 0),
            suspend_timeout_millis=suspend_ms,
            subscription=subscription.sub_string if tells_subscription else None,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )
        code = RequestCode.LITE_PULL_MESSAGE if is_lite else RequestCode.PULL_MESSAGE
        try:
            answer = await self._session.connections.call(
                address, RemotingCommand.request(code, header), timeout_ms=timeout_ms
            )
        except UnavailableError:
            self._suggested_broker_ids.pop(queue, None)  # back to the master
            raise
        if answer.code == ResponseCode.NOT_LEADER_FOR_QUEUE:
            await self._find_leader(queue)
        return self._read_pull(queue, answer, subscription.tags_set, address=address)

    def _read_pull(
        self, queue: MessageQueue, answer: RemotingCommand, tags: Collection[str], *, address: str
    ) -> PullResult:
        status = _STATUS_BY_CODE.get(answer.code)
        if status is None:
            self._suggested_broker_ids.pop(queue, None)
            raise answer_error(answer.code, answer.remark, address=address)
        header = answer.header(PullMessageResponseHeader)
        self._suggested_broker_ids[queue] = header.suggest_which_broker_id
        messages: list[ReceivedMessage] = []
        if status is PullStatus.FOUND:
            messages = decode_messages(answer.body, queue=queue, tags=tags, offset_delta=header.offset_delta or 0)
            for message in messages:
                restore_topic(message, retry_topic=self._retry_topic)
        return PullResult(
            status=status,
            next_begin_offset=header.next_begin_offset,
            min_offset=header.min_offset,
            max_offset=header.max_offset,
            messages=messages,
        )

    async def _find_leader(self, queue: MessageQueue) -> None:
        """Another broker leads the logic queue now: learn which, for the next pull."""
        try:
            await self._session.routes.refresh(queue.topic)
        except MQError as error:
            logger.info("route refresh failed topic=%s error=%s", queue.topic, error)

    def forget(self, queue: MessageQueue) -> None:
        """Forget where this queue was read from."""
        self._suggested_broker_ids.pop(queue, None)

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def consumer_offset(self, queue: MessageQueue) -> int | None:
        """Return the group's offset in the queue, None when it has none; UnavailableError when no broker can answer."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        try:
            answer = await self._ask_master(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except QueryNotFoundError:
            return None
        return answer.header(OffsetResponseHeader).offset

    async def commit_offset(self, queue: MessageQueue, offset: int, *, is_confirmed: bool) -> None:
        """Store the group's offset at the broker; with `is_confirmed` return when the broker has it."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=QueueOffset(offset),
            broker_name=queue.broker_name,
        )
        if is_confirmed:
            await self._ask_master(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        else:
            address = await self._session.routes.find_reader(queue)
            await self._session.tell(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will have."""
        header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
        answer = await self._ask_master(queue, RequestCode.GET_MAX_OFFSET, header)
        return answer.header(OffsetResponseHeader).offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the first offset that the queue still holds."""
        header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
        answer = await self._ask_master(queue, RequestCode.GET_MIN_OFFSET, header)
        return answer.header(OffsetResponseHeader).offset

    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int, *, boundary: str = "LOWER") -> int:
        """Return the first offset stored at that time or later (`LOWER`), or the last at or before it (`UPPER`)."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            boundary_type=boundary,
            broker_name=queue.broker_name,
        )
        answer = await self._ask_master(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return answer.header(OffsetResponseHeader).offset

    # -- the group ---------------------------------------------------------------------------------------------------

    async def check_subscription(self, subscription: SubscriptionData) -> None:
        """Have a broker of the topic look at an expression that is not one of tags, as official clients do at start.

        Passes when no broker answers now: then pulls raise the error.

        Raises:
            SubscriptionParseError: It is no expression; the error names the place.
            ResponseError: The topic's brokers choose messages by tags only.
        """
        if subscription.expression_type == EXPRESSION_TAG:
            return
        body = CheckClientRequestBody(
            client_id=self._session.client_id, group=self._group, subscription_data=subscription
        ).encode()
        try:
            route = await self._session.routes.get(subscription.topic)
            if route.brokers:
                address = _some_broker(route)
                await self._session.call(address, RequestCode.CHECK_CLIENT_CONFIG, body=body)
        except (TopicNotFoundError, UnavailableError) as error:
            logger.info("expression not checked topic=%s error=%s", subscription.topic, error)

    async def member_ids(self, topic: str) -> list[str]:
        """Return the client ids of the group's members, sorted, from one broker of the topic."""
        route = await self._session.routes.get(topic)
        if not route.brokers:
            raise UnavailableError("no broker of the topic is in its route", topic=topic)
        address = _some_broker(route)
        header = GetConsumerListByGroupRequestHeader(consumer_group=self._group)
        answer = await self._session.call(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        return sorted(GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list)

    async def lock(self, queues: Iterable[MessageQueue]) -> LockResult:
        """Lock queues for this member, or renew its locks; brokers are asked side by side, failures are logged.

        Queues of a broker that does not answer, or has no master now, are neither held nor refused.
        """
        held: set[MessageQueue] = set()
        refused: set[MessageQueue] = set()

        async def ask(master: str, of_broker: list[MessageQueue]) -> None:
            answer = await self._ask_lock(RequestCode.LOCK_BATCH_MQ, master, of_broker)
            if answer is None:
                return
            try:
                granted = set(map(from_wire, LockBatchResponseBody.decode(answer.body).lock_ok_mq_set))
            except MQError as error:
                logger.warning("locks: the answer cannot be read address=%s error=%s", master, error)
                return
            held.update(granted.intersection(of_broker))
            refused.update(set(of_broker) - granted)

        await asyncio.gather(*(ask(master, of_broker) for master, of_broker in self._by_master(queues)))
        return LockResult(held=frozenset(held), refused=frozenset(refused))

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release this member's locks; a broker that does not answer keeps them until they expire."""
        await asyncio.gather(
            *(
                self._ask_lock(RequestCode.UNLOCK_BATCH_MQ, master, of_broker)
                for master, of_broker in self._by_master(queues)
            )
        )

    async def _ask_lock(self, code: int, master: str, queues: list[MessageQueue]) -> RemotingCommand | None:
        try:
            return await self._session.call(master, code, body=self._lock_body(queues), timeout_ms=LOCK_TIMEOUT_MS)
        except MQError as error:
            logger.warning("locks: %s failed address=%s error=%s", request_name(code), master, error)
            return None

    def _by_master(self, queues: Iterable[MessageQueue]) -> Iterator[tuple[str, list[MessageQueue]]]:
        """The queues by the addresses of their masters; those without one are left out."""
        for broker_name, of_broker in self._by_broker(queues).items():
            try:
                master = self._session.routes.master(broker_name)
            except UnavailableError:
                continue
            yield master, of_broker

    def _lock_body(self, queues: list[MessageQueue]) -> bytes:
        return LockBatchRequestBody(
            client_id=self._session.client_id, consumer_group=self._group, mq_set=[to_wire(queue) for queue in queues]
        ).encode()

    # -- messages that failed ----------------------------------------------------------------------------------------

    async def send_back(self, message: ReceivedMessage, *, delay_level: int, max_reconsume_times: int) -> None:
        """Have the broker deliver a message to the group again later, or to its dead-letter topic.

        Raises:
            MQError: Neither that nor sending a copy to the retry topic succeeded; the message is still this member's.
        """
        if is_virtual_broker(message.queue.broker_name):
            # Which broker holds a message of a logic queue is not known here.
            await self.resend(message, max_reconsume_times=max_reconsume_times)
            return
        header = ConsumerSendMsgBackRequestHeader(
            offset=PhysicalOffset(message.physical_offset),
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            max_reconsume_times=max_reconsume_times,
            broker_name=message.queue.broker_name,
        )
        try:
            await self._session.call(
                await self._session.routes.find_reader(message.queue),
                RequestCode.CONSUMER_SEND_MSG_BACK,
                header,
                timeout_ms=SEND_BACK_TIMEOUT_MS,
            )
        except MQError:
            await self.resend(message, max_reconsume_times=max_reconsume_times)

    async def resend(self, message: ReceivedMessage, *, max_reconsume_times: int) -> None:
        """Send a copy of the message to the group's retry topic, whose broker delays or buries it.

        Raises:
            MQError: No broker took it.
        """
        properties = dict(message.properties)
        properties.setdefault(PropertyName.ORIGIN_MESSAGE_ID, message.message_id)
        properties[PropertyName.RETRY_TOPIC] = message.topic
        properties[PropertyName.DELAY_LEVEL] = str(3 + message.reconsume_times)
        properties.pop(PropertyName.TRANSACTION_PREPARED, None)
        route = await self._session.routes.get(self._retry_topic)
        if not route.publish_queues:
            raise UnavailableError("the group's retry topic takes nothing now", topic=self._retry_topic)
        queue = random.choice(route.publish_queues)
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=self._retry_topic,
            queue_id=queue.queue_id,
            sys_flag=message.record.sys_flag & ~_STORED_FLAGS,
            born_timestamp=message.born_timestamp_ms,
            flag=message.flag,
            properties="".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
            reconsume_times=min(message.reconsume_times + 1, RECONSUME_TIMES_MAX),
            max_reconsume_times=max_reconsume_times,
            unit_mode=False,
            batch=False,
            broker_name=queue.broker_name,
        )
        await self._session.call(
            route.master(queue.broker_name),
            RequestCode.SEND_MESSAGE_V2,
            header,
            body=message.record.body,
            timeout_ms=SEND_BACK_TIMEOUT_MS,
        )

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        grouped: dict[str, list[MessageQueue]] = {}
        for queue in sorted(queues):
            grouped.setdefault(self._session.routes.broker_of(queue), []).append(queue)
        return grouped

    async def _ask_master(self, queue: MessageQueue, code: int, header: Header) -> RemotingCommand:
        return await self._session.call(await self._session.routes.find_reader(queue), code, header)


def _some_broker(route: TopicRoute) -> str:
    """The address of one of the route's masters; without any that of a replica."""
    masters = [one for one in route.brokers if one.broker_id == MASTER_ID]
    return random.choice(masters or route.brokers).address


_STORED_FLAGS = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80
"""System flag bits that say how a copy was stored, not what it is."""
