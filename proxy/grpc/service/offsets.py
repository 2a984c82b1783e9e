"""PullMessage, UpdateOffset, GetOffset and QueryOffset: reading a queue by offsets.

The official proxy serves none of them, and no official client calls them. Here they do what the protocol says. A queue
is a broker's name and the number of the queue on that broker, which for a topic with as many read queues as write
queues is the number in its route.
Source: apache.rocketmq.v2, service.proto.
"""

from __future__ import annotations

from typing import Any

from thermocline.client.message_queue import MessageQueue
from thermocline.proxy.grpc.calls import Method, MethodKind, RpcCall, RpcError
from thermocline.proxy.grpc.messages import Code, enums, messages
from thermocline.proxy.grpc.service.application import BROKER_TIMEOUT_MS, Application, decode
from thermocline.proxy.grpc.service.context import RequestContext
from thermocline.proxy.grpc.service.conversion import duration_ms, timestamp_ms
from thermocline.proxy.grpc.service.delivered_message import to_message
from thermocline.proxy.grpc.service.statuses import CodeError, status, status_of
from thermocline.proxy.grpc.service.validation import check_group_name, check_topic_name, read_subscription
from thermocline.proxy.metrics import Protocol
from thermocline.remoting.errors import BrokerBusyError, MQError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.topic_validation import is_retry_topic

__all__ = ["Offsets"]


class Offsets:
    """See the module."""

    def __init__(self, app: Application) -> None:
        self._app = app

    def pull_method(self) -> Method:
        """The method PullMessage."""
        return Method(name="PullMessage", kind=MethodKind.SERVER_STREAM, handle=self._handle_pull)

    async def _handle_pull(self, call: RpcCall, data: bytes) -> None:
        request = decode(messages.PullMessageRequest, data)
        try:
            await self._pull(await self._app.admit(call, request), call, request)
        except MQError as error:
            if isinstance(error, RpcError):
                raise
            _begin_answer(call, status_of(error))

    async def _pull(self, context: RequestContext, call: RpcCall, request: Any) -> None:
        app, queue = self._app, _read_queue(request.message_queue)
        check_group_name(request.group.name)
        _check_offset(request.offset)
        subscription = read_subscription(queue.topic, request.filter_expression)
        await_ms = max(0, min(duration_ms(request.long_polling_timeout), app.config.polling_ms_max))
        remaining_ms = call.remaining_ms()
        if remaining_ms is not None:
            await_ms = min(await_ms, remaining_ms)
        app.quotas.check_read(queue.topic, request.group.name, host=call.remote_host, username=context.username)
        if app.polls >= app.config.polls_max:
            raise BrokerBusyError("too many long polls are open on this proxy")
        app.polls += 1
        try:
            pulled = await app.messaging.pull(
                queue,
                subscription,
                group=request.group.name,
                offset=QueueOffset(request.offset),
                count_max=max(1, min(request.batch_size, app.config.receive_batch)),
                await_ms=await_ms,
                timeout_ms=await_ms + BROKER_TIMEOUT_MS,
            )
        finally:
            app.polls -= 1
        await app.check_again(context.permit)
        size_bytes = sum(len(message.record.body) for message in pulled.messages)
        app.quotas.took(
            queue.topic,
            request.group.name,
            size_bytes=size_bytes,
            host=call.remote_host,
            username=context.username,
        )
        found = status(Code.OK) if pulled.messages else status(Code.MESSAGE_NOT_FOUND, "no new message")
        _begin_answer(call, found)
        for message in pulled.messages:
            await call.drain()
            delivered = to_message(message, topic=queue.topic)
            call.write(messages.PullMessageResponse(message=delivered).SerializeToString())
        if pulled.messages:
            app.traffic.received(
                Protocol.GRPC,
                queue.topic,
                request.group.name,
                is_retry=is_retry_topic(queue.topic),
                count=len(pulled.messages),
                size_bytes=size_bytes,
            )
        call.write(messages.PullMessageResponse(next_offset=pulled.next_offset).SerializeToString())

    async def update_offset(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """UpdateOffset."""
        queue = _read_queue(request.message_queue)
        check_group_name(request.group.name)
        _check_offset(request.offset)
        await self._app.messaging.commit_offset(
            queue,
            group=request.group.name,
            offset=QueueOffset(request.offset),
            timeout_ms=self._app.timeout_ms(call),
        )
        return messages.UpdateOffsetResponse(status=status(Code.OK))

    async def get_offset(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """GetOffset."""
        queue = _read_queue(request.message_queue)
        check_group_name(request.group.name)
        offset = await self._app.messaging.committed_offset(
            queue, group=request.group.name, timeout_ms=self._app.timeout_ms(call)
        )
        if offset is None:
            raise CodeError(Code.OFFSET_NOT_FOUND, "the group has no offset in this queue")
        return messages.GetOffsetResponse(status=status(Code.OK), offset=offset)

    async def query_offset(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """QueryOffset."""
        queue, policy = _read_queue(request.message_queue), request.query_offset_policy
        if policy == enums.QueryOffsetPolicy.TIMESTAMP and not request.HasField("timestamp"):
            raise CodeError(Code.BAD_REQUEST, "an offset by time needs the time")
        by_time = policy == enums.QueryOffsetPolicy.TIMESTAMP
        offset = await self._app.messaging.queue_offset(
            queue,
            timestamp_ms=timestamp_ms(request.timestamp) if by_time else None,
            is_end=policy == enums.QueryOffsetPolicy.END,
            timeout_ms=self._app.timeout_ms(call),
        )
        return messages.QueryOffsetResponse(status=status(Code.OK), offset=offset)


def _begin_answer(call: RpcCall, answer_status: Any) -> None:
    call.code = answer_status.code
    call.write(messages.PullMessageResponse(status=answer_status).SerializeToString())


def _read_queue(queue: Any) -> MessageQueue:
    check_topic_name(queue.topic.name)
    if queue.id < 0:
        raise CodeError(Code.BAD_REQUEST, "a queue's number is needed")
    return MessageQueue(topic=queue.topic.name, broker_name=queue.broker.name, queue_id=queue.id)


def _check_offset(offset: int) -> None:
    if offset < 0:
        raise CodeError(Code.ILLEGAL_OFFSET, "an offset is not negative")
