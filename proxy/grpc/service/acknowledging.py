"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue: how a client ends what it received.

A client whose handles are renewed knows an old one; the present one is used (flow/held_handles.py). A request is
answered entry by entry; entries of one request are sent to brokers side by side.
Source: AckMessageActivity.java and its neighbours, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
from typing import Any

from thermocline.proxy.grpc.calls import RpcCall
from thermocline.proxy.grpc.messages import Code, messages
from thermocline.proxy.grpc.service.application import Application
from thermocline.proxy.grpc.service.context import RequestContext
from thermocline.proxy.grpc.service.conversion import duration_ms
from thermocline.proxy.grpc.service.statuses import CodeError, common_status, status, status_of
from thermocline.proxy.grpc.service.validation import check_group_name, check_invisible_ms, check_topic_name
from thermocline.proxy.messaging import ProxyHandle
from thermocline.remoting.errors import MQError

__all__ = ["Acknowledging"]

ENTRIES_MAX = 1_024
PARALLEL_MAX = 32


class Acknowledging:
    """See the module."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def ack_message(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """AckMessage."""
        topic, group = request.topic.name, request.group.name
        check_topic_name(topic)
        check_group_name(group)
        if len(request.entries) > ENTRIES_MAX:
            raise CodeError(Code.BAD_REQUEST, f"a request acknowledges at most {ENTRIES_MAX} messages")
        timeout_ms = self._app.timeout_ms(call)
        self._app.clients.touch(context.client_id)
        entries = list(request.entries)
        statuses: list[Any] = []
        for start in range(0, len(entries), PARALLEL_MAX):
            part = entries[start : start + PARALLEL_MAX]
            statuses += await asyncio.gather(
                *(self._ack(context, entry, topic=topic, group=group, timeout_ms=timeout_ms) for entry in part)
            )
        answer = messages.AckMessageResponse(
            status=common_status((each.code for each in statuses), nothing="ack message result is empty")
        )
        for entry, entry_status in zip(entries, statuses, strict=True):
            answer.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=entry_status)
        return answer

    async def _ack(self, context: RequestContext, entry: Any, *, topic: str, group: str, timeout_ms: int) -> Any:
        try:
            handle = await self._present_handle(context, group, entry.message_id, entry.receipt_handle)
            await self._app.messaging.ack(handle, topic=topic, group=group, timeout_ms=timeout_ms)
        except MQError as error:
            return status_of(error)
        return status(Code.OK)

    async def change_invisible_duration(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """ChangeInvisibleDuration."""
        topic, group = request.topic.name, request.group.name
        check_topic_name(topic)
        check_group_name(group)
        invisible_ms = duration_ms(request.invisible_duration)
        check_invisible_ms(invisible_ms, self._app.config)
        handle = await self._present_handle(context, group, request.message_id, request.receipt_handle)
        changed = await self._app.messaging.change_invisible(
            handle, topic=topic, group=group, invisible_ms=invisible_ms, timeout_ms=self._app.timeout_ms(call)
        )
        return messages.ChangeInvisibleDurationResponse(status=status(Code.OK), receipt_handle=changed.text())

    async def forward_message(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """ForwardMessageToDeadLetterQueue."""
        topic, group = request.topic.name, request.group.name
        check_topic_name(topic)
        check_group_name(group)
        handle = await self._present_handle(context, group, request.message_id, request.receipt_handle)
        await self._app.consumption.forward_to_dead_letters(
            handle, topic=topic, group=group, message_id=request.message_id, timeout_ms=self._app.timeout_ms(call)
        )
        return messages.ForwardMessageToDeadLetterQueueResponse(status=status(Code.OK))

    async def _present_handle(self, context: RequestContext, group: str, message_id: str, text: str) -> ProxyHandle:
        given = ProxyHandle.parse(text)
        handle = await self._app.handles.take(context.client_id, group, message_id, given)
        handle.check_fresh(self._app.clock_ms())
        return handle
