"""ReceiveMessage: a long poll, answered as a stream.

    status, then each message, then delivery_timestamp; without messages: status and delivery_timestamp

The client says how long it polls, or its deadline does; both are kept within the settings. The broker waits; the proxy
waits for the broker. With `auto_renew` the messages' handles are renewed while the client works. A client that has come
from another proxy may receive before it sends its settings here: the Go client sends them five minutes later.

A client that cancels, or is lost, while the broker has messages for it gets none: they become visible after
GIVE_BACK_MS. The same where the client may not receive any more. So do messages of an answer that was cut off before
they were sent, by the proxy's own state: what it has sent counts as delivered.
Bounds: polls of all clients, polls of one client, and handles held.
Source: ReceiveMessageActivity.java, ReceiveMessageResponseStreamWriter.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from thermocline.proxy.clients import ClientKind, ProxyClient
from thermocline.proxy.flow import ReceiveOutcome
from thermocline.proxy.grpc.calls import Method, MethodKind, RpcCall, RpcError
from thermocline.proxy.grpc.messages import Code, messages
from thermocline.proxy.grpc.service.application import Application, decode
from thermocline.proxy.grpc.service.client_settings import attempts_max
from thermocline.proxy.grpc.service.context import RequestContext
from thermocline.proxy.grpc.service.conversion import duration_ms, timestamp
from thermocline.proxy.grpc.service.delivered_message import encode_received
from thermocline.proxy.grpc.service.statuses import CodeError, status, status_of
from thermocline.proxy.grpc.service.validation import (
    check_group_name,
    check_invisible_ms,
    check_topic_name,
    read_subscription,
)
from thermocline.proxy.messaging import HeldMessage, PopStatus
from thermocline.proxy.metrics import Protocol
from thermocline.remoting.bodies import SubscriptionData, SubscriptionGroupConfig
from thermocline.remoting.errors import BrokerBusyError, ConnectionLostError, MQError
from thermocline.remoting.socket_address import format_address

__all__ = ["Receiving"]

GIVE_BACK_MS = 1_000
ILLEGAL_POLLING_TIME_SINCE = "5.0.3"
REQUEST_TIMEOUT_MS = 3_000
"""Of a client that has not said its own."""
ATTEMPT_ID_CHARS_MAX = 256
WRITE_BYTES = 64 * 1024
"""Messages are written together until they are so large."""


class Receiving:
    """See the module."""

    def __init__(self, app: Application) -> None:
        self._app = app

    def method(self) -> Method:
        """The method ReceiveMessage."""
        return Method(name="ReceiveMessage", kind=MethodKind.SERVER_STREAM, handle=self._handle)

    async def _handle(self, call: RpcCall, data: bytes) -> None:
        request = decode(messages.ReceiveMessageRequest, data)
        try:
            await self._receive(await self._app.admit(call, request), call, request)
        except MQError as error:
            if isinstance(error, RpcError | ConnectionLostError) and call.is_over:
                raise
            _write(call, status=status_of(error))
        _write(call, delivery_timestamp=timestamp(self._app.clock_ms()))

    async def _receive(self, context: RequestContext, call: RpcCall, request: Any) -> None:
        app = self._app
        client = app.clients.touch(context.client_id)
        await_ms = self._await_ms(context, call, request, client)
        topic, group = request.message_queue.topic.name, request.group.name
        check_topic_name(topic)
        check_group_name(group)
        is_renewed = app.config.renews and request.auto_renew
        invisible_ms = app.config.invisible_ms_default
        if not is_renewed:
            invisible_ms = duration_ms(request.invisible_duration)
            check_invisible_ms(invisible_ms, app.config, least_ms=app.config.invisible_ms_min)
        subscription = read_subscription(topic, request.filter_expression)
        if len(request.attempt_id) > ATTEMPT_ID_CHARS_MAX:
            raise CodeError(Code.BAD_REQUEST, f"an attempt id has at most {ATTEMPT_ID_CHARS_MAX} characters")
        count_max = max(1, min(request.batch_size, app.config.receive_batch))
        if is_renewed:
            client = client or self._register(context, group)
            app.handles.check_room(context.client_id, count_max)
        app.quotas.check_read(topic, group, host=call.remote_host, username=context.username)
        config = await app.messaging.group_config(group, topic=topic) or SubscriptionGroupConfig()
        outcome = await self._poll(
            call,
            client,
            request,
            subscription,
            config,
            count_max=count_max,
            invisible_ms=invisible_ms,
            await_ms=await_ms,
        )
        if outcome.status is PopStatus.POLLING_FULL:
            raise CodeError(Code.TOO_MANY_REQUESTS, "polling full")
        if not outcome.messages:
            text = "no match message" if outcome.had_others else "no new message"
            raise CodeError(Code.MESSAGE_NOT_FOUND, text)
        try:
            await app.check_again(context.permit)
            if is_renewed and app.clients.find(context.client_id) is None:
                raise CodeError(Code.MESSAGE_NOT_FOUND, f"The client [{context.client_id}] is disconnected.")
        except (MQError, asyncio.CancelledError):
            self._give_back(outcome, topic, group)
            raise
        app.quotas.took(
            topic,
            group,
            size_bytes=sum(len(message.record.body) for message in outcome.messages),
            host=call.remote_host,
            username=context.username,
        )
        await self._deliver(context, call, outcome, topic=topic, group=group, is_renewed=is_renewed)

    def _register(self, context: RequestContext, group: str) -> ProxyClient:
        """Register a push consumer whose settings another proxy has.

        Raises:
            BrokerBusyError: There are too many clients.
        """
        return self._app.clients.register(context.client(kind=ClientKind.PUSH_CONSUMER, names=(group,)))

    def _await_ms(self, context: RequestContext, call: RpcCall, request: Any, client: ProxyClient | None) -> int:
        """How long to poll, by the request, the client's deadline and the settings."""
        config, remaining_ms = self._app.config, call.remaining_ms()
        if remaining_ms is None:
            raise CodeError(Code.BAD_REQUEST, "a long poll needs a deadline")
        if request.HasField("long_polling_timeout"):
            await_ms = duration_ms(request.long_polling_timeout)
        else:
            settings = None if client is None else client.settings
            own_ms = duration_ms(settings.request_timeout) if settings is not None else REQUEST_TIMEOUT_MS
            await_ms = remaining_ms - own_ms // 2
        await_ms = max(config.polling_ms_min, min(await_ms, config.polling_ms_max))
        if await_ms <= remaining_ms:
            return await_ms
        if remaining_ms >= config.polling_ms_min:
            return remaining_ms
        is_old = not context.version or context.version < ILLEGAL_POLLING_TIME_SINCE
        raise CodeError(
            Code.BAD_REQUEST if is_old else Code.ILLEGAL_POLLING_TIME,
            "The deadline time remaining is not enough for polling, please check network condition",
        )

    async def _poll(
        self,
        call: RpcCall,
        client: ProxyClient | None,
        request: Any,
        subscription: SubscriptionData,
        config: SubscriptionGroupConfig,
        *,
        count_max: int,
        invisible_ms: int,
        await_ms: int,
    ) -> ReceiveOutcome:
        app, group = self._app, request.group.name
        self._check_polls(call, client)
        pop = app.background.start(
            app.consumption.receive(
                subscription,
                broker_name=request.message_queue.broker.name,
                group=group,
                count_max=count_max,
                invisible_ms=invisible_ms,
                await_ms=await_ms,
                in_order=config.consume_message_orderly,
                attempts_max=attempts_max(config),
                attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
            )
        )
        app.polls += 1
        if client is not None:
            client.polls += 1
        pop.add_done_callback(lambda _: self._polled(client))
        try:
            return await asyncio.shield(pop)
        except asyncio.CancelledError:
            pop.add_done_callback(lambda done: self._abandoned(done, subscription.topic, group))
            raise

    def _check_polls(self, call: RpcCall, client: ProxyClient | None) -> None:
        app = self._app
        remote = format_address(*call.remote_host)
        if app.polls >= app.config.polls_max:
            app.counts.refused("grpcLongPollsMax", address=remote, detail=f"{app.polls} long polls are open")
            raise BrokerBusyError("too many long polls are open on this proxy")
        if client is not None and client.polls >= app.config.client_polls_max:
            detail = f"{client.polls} long polls of one client are open"
            app.counts.refused("grpcLongPollsPerClientMax", address=remote, detail=detail)
            raise BrokerBusyError("too many long polls of this client are open")

    def _polled(self, client: ProxyClient | None) -> None:
        self._app.polls -= 1
        if client is not None:
            client.polls -= 1

    def _abandoned(self, pop: asyncio.Task[ReceiveOutcome], topic: str, group: str) -> None:
        """The client went while the broker was asked."""
        if not pop.cancelled() and pop.exception() is None and pop.result().messages:
            self._give_back(pop.result(), topic, group)

    def _give_back(self, outcome: ReceiveOutcome, topic: str, group: str) -> None:
        app = self._app
        app.background.start(
            app.consumption.give_back(outcome.messages, topic=topic, group=group, invisible_ms=GIVE_BACK_MS)
        )

    async def _deliver(
        self,
        context: RequestContext,
        call: RpcCall,
        outcome: ReceiveOutcome,
        *,
        topic: str,
        group: str,
        is_renewed: bool,
    ) -> None:
        app = self._app
        _write(call, status=status(Code.OK))
        written: list[int] = []
        try:
            rest = deque(outcome.messages)
            while rest:
                await call.drain()
                answers = self._take_some(context, rest, topic=topic, group=group, is_renewed=is_renewed)
                written += call.write_all(answers)
            if app.traces is not None:
                app.traces.delivered(outcome.messages, group=group)
            await call.drain(pending_bytes_max=0)
        except (ConnectionLostError, asyncio.CancelledError):
            first = len(written)
            if call.is_canceled:  # else the proxy stops, and what was written may still be sent
                first -= _count_unsent(written, call.unsent_bytes)
            app.background.start(self._take_back(context, outcome.messages[first:], topic=topic, group=group))
            raise

    def _take_some(
        self, context: RequestContext, rest: deque[HeldMessage], *, topic: str, group: str, is_renewed: bool
    ) -> list[bytes]:
        """Take the next messages, which the client is about to get; encoded."""
        app = self._app
        answers: list[bytes] = []
        size_bytes = 0
        while rest and size_bytes < WRITE_BYTES:
            message = rest.popleft()
            handle = message.handle
            answers.append(encode_received(message, topic=topic, receipt_handle=handle.text()))
            size_bytes += len(answers[-1])
            if is_renewed:
                app.handles.hold(
                    context.client_id,
                    group,
                    topic,
                    message.message_id,
                    handle,
                    reconsume_times=message.reconsume_times,
                )
            app.traffic.received(
                Protocol.GRPC,
                topic,
                group,
                is_retry=bool(handle.receipt.retry_flag),
                count=1,
                size_bytes=len(message.record.body),
            )
        return answers

    async def _take_back(
        self, context: RequestContext, unsent: Sequence[HeldMessage], *, topic: str, group: str
    ) -> None:
        """Let messages that have not left the proxy become visible soon, and renew them no more."""
        app = self._app
        for message in unsent:
            taken = await app.handles.take_handle(context.client_id, group, message.message_id, message.handle)
            message.handle = taken.handle
        await app.consumption.give_back(unsent, topic=topic, group=group, invisible_ms=GIVE_BACK_MS)


def _count_unsent(sizes_bytes: Sequence[int], unsent_bytes: int) -> int:
    """How many of the last pieces that were written are sent in part, or not at all, when so many bytes are unsent."""
    count = 0
    for size_bytes in reversed(sizes_bytes):
        if unsent_bytes <= 0:
            break
        unsent_bytes -= size_bytes
        count += 1
    return count


def _write(call: RpcCall, **content: Any) -> None:
    """Write a part of the answer that is no message."""
    if "status" in content:
        call.code = content["status"].code
    call.write(messages.ReceiveMessageResponse(**content).SerializeToString())
