"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue: how a client ends what it received.

A client whose handles are renewed shows an old one; the present one is used (flow/held_handles.py). A request is
answered entry by entry; entries of one request are sent to brokers side by side.
Source: AckMessageActivity.java and its neighbours, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from thermocline.client.trace.trace_records import ConsumeOutcome
from thermocline.proxy.flow import TakenHandle
from thermocline.proxy.grpc.calls import RpcCall
from thermocline.proxy.grpc.messages import Code, messages
from thermocline.proxy.grpc.service.application import Application
from thermocline.proxy.grpc.service.context import RequestContext
from thermocline.proxy.grpc.service.conversion import duration_ms
from thermocline.proxy.grpc.service.statuses import CodeError, common_status, status, status_of
from thermocline.proxy.grpc.service.validation import check_group_name, check_invisible_ms, check_topic_name
from thermocline.proxy.messaging import ProxyHandle
from thermocline.remoting.errors import MQError, UnavailableError

__all__ = ["Acknowledging"]

T = TypeVar("T")

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
            statuses += await self._ack_all(context, part, topic=topic, group=group, timeout_ms=timeout_ms)
        answer = messages.AckMessageResponse(
            status=common_status((each.code for each in statuses), nothing="ack message result is empty")
        )
        for entry, entry_status in zip(entries, statuses, strict=True):
            answer.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=entry_status)
        return answer

    async def _ack_all(
        self, context: RequestContext, entries: Sequence[Any], *, topic: str, group: str, timeout_ms: int
    ) -> list[Any]:
        """Acknowledge entries side by side; the status of each.

        Those of one broker share a future, so only an entry whose handle is being renewed is waited for by itself.
        """
        app, client_id = self._app, context.client_id
        statuses: list[Any] = [status(Code.OK)] * len(entries)
        started: list[tuple[int, TakenHandle, asyncio.Future[MQError | None]]] = []
        renewed: list[tuple[int, ProxyHandle]] = []

        def start(number: int, taken: TakenHandle) -> None:
            try:
                taken.check_fresh(app.clock_ms())
                answered = app.messaging.start_ack(taken.handle, topic=topic, group=group, timeout_ms=timeout_ms)
                started.append((number, taken, answered))
            except MQError as error:
                statuses[number] = status_of(error)

        for number, entry in enumerate(entries):
            try:
                handle = ProxyHandle.parse(entry.receipt_handle)
            except MQError as error:
                statuses[number] = status_of(error)
                continue
            taken = app.handles.take_now(client_id, group, entry.message_id, handle)
            if taken is None:
                renewed.append((number, handle))
            else:
                start(number, taken)
        takes = [app.handles.take_handle(client_id, group, entries[at].message_id, handle) for at, handle in renewed]
        for (number, _), taken in zip(renewed, await asyncio.gather(*takes), strict=True):
            start(number, taken)
        if started:
            await asyncio.wait({answered for _, _, answered in started})
        for number, taken, answered in started:
            refusal = answered.result()
            if refusal is None:
                self._trace(entries[number], group, ConsumeOutcome.SUCCESS)
                continue
            if isinstance(refusal, UnavailableError):
                app.handles.put_back(taken)
            statuses[number] = status_of(refusal)
        return statuses

    async def change_invisible_duration(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """ChangeInvisibleDuration."""
        topic, group = request.topic.name, request.group.name
        check_topic_name(topic)
        check_group_name(group)
        invisible_ms = duration_ms(request.invisible_duration)
        check_invisible_ms(invisible_ms, self._app.config)

        async def end(handle: ProxyHandle) -> ProxyHandle:
            return await self._app.messaging.change_invisible(
                handle, topic=topic, group=group, invisible_ms=invisible_ms, timeout_ms=self._app.timeout_ms(call)
            )

        changed = await self._end(context, group, request.message_id, request.receipt_handle, end)
        return messages.ChangeInvisibleDurationResponse(status=status(Code.OK), receipt_handle=changed.text())

    async def forward_message(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """ForwardMessageToDeadLetterQueue."""
        topic, group, message_id = request.topic.name, request.group.name, request.message_id
        check_topic_name(topic)
        check_group_name(group)

        async def end(handle: ProxyHandle) -> None:
            consumption, timeout_ms = self._app.consumption, self._app.timeout_ms(call)
            await consumption.check_place(handle, topic=topic, group=group, timeout_ms=timeout_ms)
            await consumption.forward_to_dead_letters(
                handle, topic=topic, group=group, message_id=message_id, timeout_ms=timeout_ms
            )

        await self._end(context, group, message_id, request.receipt_handle, end)
        self._trace(request, group, ConsumeOutcome.FAILED)
        return messages.ForwardMessageToDeadLetterQueueResponse(status=status(Code.OK))

    def _trace(self, ended: Any, group: str, outcome: ConsumeOutcome) -> None:
        """Note how a delivery ended; `ended` has the message's id and the handle that the client was given."""
        if self._app.traces is not None:
            handle = ProxyHandle.parse(ended.receipt_handle)
            self._app.traces.ended(handle, message_id=ended.message_id, group=group, outcome=outcome)

    async def _end(
        self,
        context: RequestContext,
        group: str,
        message_id: str,
        text: str,
        end: Callable[[ProxyHandle], Awaitable[T]],
    ) -> T:
        """Do something with the present handle of a delivery. It is held on where the broker did not answer."""
        handles = self._app.handles
        taken = await handles.take_handle(context.client_id, group, message_id, ProxyHandle.parse(text))
        taken.check_fresh(self._app.clock_ms())
        try:
            return await end(taken.handle)
        except UnavailableError:
            handles.put_back(taken)
            raise
