"""PopCalls: sends the requests of a POP consumer to brokers, and decodes the answers. AsyncPopConsumer calls it.

Each request goes to the master of a broker name; the session's routes have its address.
Source: client/impl/MQClientAPIImpl.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from thermocline.client.answer import answer_error
from thermocline.client.consumer.batch_acks import batch_acks
from thermocline.client.consumer.popped_message import PoppedMessage, read_popped
from thermocline.client.session import ClientSession
from thermocline.remoting.bodies import BatchAckMessageRequestBody, SubscriptionData
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError
from thermocline.remoting.handles import ReceiptHandle
from thermocline.remoting.header_codec import Header
from thermocline.remoting.headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

__all__ = ["PopCalls"]

logger = logging.getLogger(__name__)

ALL_QUEUES = -1
ANSWER_GRACE_MS = 10_000
"""The client waits for the answer so much longer than the broker waits for messages."""
NO_MESSAGE_CODES = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL})


class PopCalls:
    """See the module. Belongs to its session's event loop."""

    def __init__(self, session: ClientSession, *, group: str) -> None:
        self._session = session
        self._group = group

    async def pop(
        self,
        subscription: SubscriptionData,
        broker_name: str,
        *,
        count_max: int,
        invisible_ms: int,
        await_ms: int,
        init_mode: int,
        in_order: bool,
        attempt_id: str | None,
    ) -> list[PoppedMessage]:
        """Pop messages of a topic from all queues of one broker. The list is empty if none comes within `await_ms`.

        `init_mode`: where a group without an offset begins, 0 at the first message of a queue, 1 at its end.
        `attempt_id`: names one ordered POP, so that a retry gets the same messages. Brokers compare hashes of tags:
        messages with another tag of the same hash are acknowledged and not returned; where that fails, they come again
        after `invisible_ms`.
        Cancelling may lose the answer. The messages of a lost answer, and of any call that raises, become visible again
        after `invisible_ms`.

        Raises:
            UnavailableError: No answer, or the broker cannot serve this now.
            MQError: The broker refused, or its answer's header cannot be read.
            CorruptDataError: The messages in the answer are damaged.
        """
        header = PopMessageRequestHeader(
            consumer_group=self._group,
            topic=subscription.topic,
            queue_id=ALL_QUEUES,
            max_msg_nums=count_max,
            invisible_time=invisible_ms,
            poll_time=await_ms,
            born_time=wall_clock_ms(),
            init_mode=init_mode,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=in_order,
            attempt_id=attempt_id,
            broker_name=broker_name,
        )
        address = self._session.routes.master(broker_name)
        answer = await self._session.connections.call(
            address,
            RemotingCommand.request(RequestCode.POP_MESSAGE, header),
            timeout_ms=await_ms + ANSWER_GRACE_MS,
        )
        if answer.code in NO_MESSAGE_CODES:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise answer_error(answer.code, answer.remark, address=address)
        messages = read_popped(
            answer.body,
            answer.header(PopMessageResponseHeader),
            topic=subscription.topic,
            group=self._group,
            broker_name=broker_name,
        )
        tags = subscription.tags_set
        unwanted = [message for message in messages if tags and message.record.tags not in tags]
        if not unwanted:
            return messages
        try:
            await self.ack(unwanted)  # no member of the group wants them: all have the same subscription
        except MQError as error:
            logger.warning(
                "messages of other tags come again, they could not be acknowledged topic=%s count=%d error=%s",
                subscription.topic,
                len(unwanted),
                error,
            )
        return [message for message in messages if message.record.tags in tags]

    async def ack(self, messages: Sequence[PoppedMessage]) -> None:
        """Acknowledge messages: one request for each broker, one after another. The first failure ends it.

        Raises:
            UnavailableError: No answer, or the broker cannot serve this now. Messages that were not acknowledged become
                visible again unless `ack` is repeated in time.
            MQError: The broker refused.
        """
        if len(messages) == 1:
            (message,) = messages
            header = AckMessageRequestHeader(
                consumer_group=self._group,
                topic=message.queue.topic,
                queue_id=message.receipt.queue_id,
                extra_info=message.receipt.text(),
                offset=message.receipt.queue_offset,
                broker_name=message.receipt.broker_name,
            )
            await self._call(message.receipt.broker_name, RequestCode.ACK_MESSAGE, header)
            return
        messages_by_broker: dict[str, list[PoppedMessage]] = {}
        for message in messages:
            messages_by_broker.setdefault(message.receipt.broker_name, []).append(message)
        for broker_name, broker_messages in messages_by_broker.items():
            # A batch names the topic that was popped and the retry flag; the single request above the stored topic.
            acks = batch_acks([(message.topic, message.receipt) for message in broker_messages], group=self._group)
            body = BatchAckMessageRequestBody(acks=acks, broker_name=broker_name)
            await self._call(broker_name, RequestCode.BATCH_ACK_MESSAGE, body=body.encode())

    async def change_invisible(self, message: PoppedMessage, *, invisible_ms: int) -> ReceiptHandle:
        """Keep a message invisible to other consumers for `invisible_ms` from now. Returns its new receipt, which
        replaces the old one.

        Raises:
            UnavailableError: No answer, or the broker cannot serve this now; the message keeps its old receipt.
            MQError: The broker refused; the message keeps its old receipt.
        """
        receipt = message.receipt
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=self._group,
            topic=message.queue.topic,
            queue_id=receipt.queue_id,
            extra_info=receipt.text(),
            offset=receipt.queue_offset,
            invisible_time=invisible_ms,
            broker_name=receipt.broker_name,
        )
        answer = await self._call(receipt.broker_name, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        changed = answer.header(ChangeInvisibleTimeResponseHeader)
        return ReceiptHandle(
            start_offset=receipt.queue_offset,
            pop_time_ms=changed.pop_time,
            invisible_ms=changed.invisible_time,
            revive_queue_id=changed.revive_qid,
            retry_flag=receipt.retry_flag,
            broker_name=receipt.broker_name,
            queue_id=receipt.queue_id,
            queue_offset=receipt.queue_offset,
        )

    async def _call(
        self, broker_name: str, code: int, header: Header | None = None, *, body: bytes = b""
    ) -> RemotingCommand:
        address = self._session.routes.master(broker_name)
        return await self._session.call(address, code, header, body=body)
