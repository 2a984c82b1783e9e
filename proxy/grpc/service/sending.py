"""SendMessage and RecallMessage.

A request holds one message, or several of one topic, which are stored as one batch and have one entry in the answer. A
batch holds normal messages, or FIFO messages of one message group: brokers cannot delay or prepare a batch.
Source: SendMessageActivity.java, RecallMessageActivity.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thermocline.client.send_result import SendStatus
from thermocline.proxy.grpc.calls import RpcCall
from thermocline.proxy.grpc.messages import Code, messages
from thermocline.proxy.grpc.service.application import Application, EncodedAnswer
from thermocline.proxy.grpc.service.context import RequestContext
from thermocline.proxy.grpc.service.conversion import stored_message
from thermocline.proxy.grpc.service.statuses import CodeError, status
from thermocline.proxy.grpc.service.validation import check_topic_name
from thermocline.proxy.messaging import OutgoingMessage, SendOutcome, TopicType, TransactionHandle
from thermocline.proxy.metrics import Protocol
from thermocline.remoting.errors import IllegalOperationError
from thermocline.remoting.handles import decode_recall_handle

__all__ = ["SEND_CODES", "Sending"]

BATCH_MESSAGES_MAX = 4_096
SEND_CODES = {
    SendStatus.SEND_OK: Code.OK,
    SendStatus.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    SendStatus.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}
"""What a client is answered when a message is stored, by how safely."""


class Sending:
    """See the module."""

    def __init__(self, app: Application) -> None:
        self._app = app
        # The answer that most requests get: filled in and encoded at once, for a new object costs four times as much.
        self._stored = messages.SendMessageResponse(status=status(Code.OK))
        self._entry = self._stored.entries.add(status=status(Code.OK))

    async def send_message(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """SendMessage."""
        app, drafts = self._app, request.messages
        if not drafts:
            raise CodeError(Code.MESSAGE_CORRUPTED, "no message to send")
        if len(drafts) > BATCH_MESSAGES_MAX:
            raise CodeError(Code.MESSAGE_CORRUPTED, f"a batch has at most {BATCH_MESSAGES_MAX} messages")
        topic = drafts[0].topic
        check_topic_name(topic.name)
        now_ms, host = app.clock_ms(), call.remote_host
        outgoing = []
        for draft in drafts:
            if len(drafts) > 1 and draft.topic != topic:
                raise CodeError(Code.MESSAGE_CORRUPTED, "topic in message is not same")
            outgoing.append(
                stored_message(draft, topic=topic.name, config=app.config, remote_address=host[0], now_ms=now_ms)
            )
        message_type = outgoing[0].message_type
        if len(outgoing) > 1:
            _check_batch(outgoing)
        if message_type in (TopicType.LITE, TopicType.PRIORITY):
            raise CodeError(Code.UNSUPPORTED, f"messages of the type {message_type.value} are not supported")
        size_bytes = sum([len(each.body) for each in outgoing])
        app.quotas.check_send(outgoing[0].topic, size_bytes=size_bytes, host=host, username=context.username)
        outcome = await app.production.send(
            outgoing,
            message_type=message_type,
            message_group=outgoing[0].message_group,
            timeout_ms=app.timeout_ms(call),
        )
        app.traffic.sent(
            Protocol.GRPC, outgoing[0].topic, message_type.label, count=len(outgoing), size_bytes=size_bytes
        )
        if app.traces is not None:
            app.traces.sent(outgoing, outcome, message_type=message_type, started_ms=now_ms)
        return self._send_answer(outcome, ",".join([each.unique_key for each in outgoing]), message_type)

    def _send_answer(self, outcome: SendOutcome, message_id: str, message_type: TopicType) -> Any:
        if outcome.status is not SendStatus.SEND_OK:
            code = SEND_CODES[outcome.status]
            answer = messages.SendMessageResponse(status=status(code))
            answer.entries.add(status=status(code, f"send message failed, sendStatus={outcome.status.value}"))
            return answer
        transaction_id = outcome.transaction_id
        if message_type is TopicType.TRANSACTION:
            transaction_id = TransactionHandle(
                unique_key=message_id,
                broker_name=outcome.queue.broker_name,
                queue_offset=outcome.queue_offset,
                physical_offset=outcome.physical_offset,
            ).text()
        entry = self._entry
        entry.message_id, entry.transaction_id = message_id, transaction_id
        entry.offset, entry.recall_handle = outcome.queue_offset, outcome.recall_handle
        return EncodedAnswer(Code.OK, self._stored.SerializeToString())

    async def recall_message(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """RecallMessage."""
        app, topic = self._app, request.topic.name
        check_topic_name(topic)
        if app.config.checks_message_type:
            broker_name = _broker_of(request.recall_handle)
            await app.production.check_type(topic, TopicType.DELAY, broker_name=broker_name)
        message_id = await app.messaging.recall(topic, request.recall_handle, timeout_ms=app.timeout_ms(call))
        return messages.RecallMessageResponse(status=status(Code.OK), message_id=message_id)


def _broker_of(recall_handle: str) -> str:
    """The broker that gave a handle; "" for what is none, which is refused later."""
    try:
        return decode_recall_handle(recall_handle).broker_name
    except IllegalOperationError:
        return ""


def _check_batch(outgoing: Sequence[OutgoingMessage]) -> None:
    first = outgoing[0]
    if first.message_type not in (TopicType.NORMAL, TopicType.FIFO):
        raise CodeError(Code.BAD_REQUEST, "a batch holds messages of the type NORMAL or FIFO")
    for each in outgoing:
        if each.message_type != first.message_type or each.message_group != first.message_group:
            raise CodeError(Code.BAD_REQUEST, "a batch holds messages of one type and one message group")
