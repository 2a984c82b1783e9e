"""Telemetry, Heartbeat and NotifyClientTermination: the life of a client.

    client -> proxy   settings: checked, merged with the proxy's, sent back; results of commands
    proxy -> client   settings, transactions to check, commands (client_commands.py)

A client may open the stream again at any time; the newest one is its channel. It sends settings every five minutes
too, and gets the group's configuration of that moment. With access control every command is checked; the answer to one
that is not allowed is its status alone, and ends the stream. The npm client loses settings that come before its last
route answer: so a new stream of it gets them again after REPEATS_S.

Commands wait in the stream while a client does not read; beyond CHANNEL_BYTES_MAX they are not sent.
Source: ClientActivity.java, GrpcClientChannel.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from thermocline.proxy.clients import ClientKind, ProxyClient
from thermocline.proxy.grpc.calls import GrpcStatus, Method, MethodKind, RpcCall, RpcError
from thermocline.proxy.grpc.messages import Code, enums, messages
from thermocline.proxy.grpc.service.application import Application, decode
from thermocline.proxy.grpc.service.client_settings import merged_settings
from thermocline.proxy.grpc.service.context import RequestContext, read_context
from thermocline.proxy.grpc.service.statuses import CodeError, code_of, status, status_of
from thermocline.proxy.grpc.service.validation import check_group_name, check_topic_name, read_subscription
from thermocline.proxy.messaging import TopicType
from thermocline.remoting.errors import MQError, UnavailableError

__all__ = ["Telemetry"]

logger = logging.getLogger(__name__)

CHANNEL_BYTES_MAX = 4 << 20
NODE_LANGUAGES = frozenset({"HTTP", "NODE_JS"})
REPEATS_S = (1.0, 3.0)
_KINDS = {
    enums.ClientType.PRODUCER: ClientKind.PRODUCER,
    enums.ClientType.PUSH_CONSUMER: ClientKind.PUSH_CONSUMER,
    enums.ClientType.SIMPLE_CONSUMER: ClientKind.SIMPLE_CONSUMER,
}


class TelemetryChannel:
    """The channel of a client: its Telemetry stream."""

    __slots__ = ("call",)

    def __init__(self, call: RpcCall) -> None:
        self.call = call

    def send(self, command: Any) -> bool:
        """Send a TelemetryCommand; False when the stream is over, or its client does not read."""
        if self.call.is_over or self.call.stream.pending_bytes > CHANNEL_BYTES_MAX:
            return False
        self.call.write(command.SerializeToString())
        return True


class Telemetry:
    """See the module."""

    def __init__(self, app: Application) -> None:
        self._app = app

    def method(self) -> Method:
        """The method Telemetry."""
        return Method(name="Telemetry", kind=MethodKind.BIDIRECTIONAL, handle=self._handle)

    async def _handle(self, call: RpcCall, _data: bytes) -> None:
        call.begin()  # the Rust client waits for the head
        channel = TelemetryChannel(call)
        try:
            client_id = read_context(call).client_id
        except CodeError as error:
            channel.send(messages.TelemetryCommand(status=status_of(error)))
            return
        repeats: asyncio.Task[None] | None = None
        try:
            while (data := await call.read()) is not None:
                command = decode(messages.TelemetryCommand, data)
                try:
                    context = await self._app.admit(call, command)
                except MQError as error:
                    channel.send(messages.TelemetryCommand(status=status_of(error)))
                    return
                if command.WhichOneof("command") == "settings":
                    await self._settings(context, channel, command.settings)
                    if repeats is None and context.language in NODE_LANGUAGES:
                        repeats = self._app.background.start(self._repeat(context, channel))
                else:
                    self._app.clients.touch(context.client_id)
                    self._app.commands.receive(context.client_id, command)
        finally:
            if repeats is not None:
                repeats.cancel()
            client = self._app.clients.find(client_id)
            if client is not None and client.channel is channel:
                client.channel = None

    async def _settings(self, context: RequestContext, channel: TelemetryChannel, settings: Any) -> None:
        """Register the client, and answer with its merged settings.

        Raises:
            RpcError: They are refused.
        """
        try:
            self._app.clients.check_names(len(settings.subscription.subscriptions))
            client = _read_client(context, settings)
            client.channel = channel
            merged = await self._merged(client)
            self._app.clients.register(client)
            if client.kind == ClientKind.PRODUCER:
                await self._watch(client)
        except MQError as error:
            code = code_of(error)
            status_code = GrpcStatus.INTERNAL
            if code == Code.TOO_MANY_REQUESTS:
                status_code = GrpcStatus.RESOURCE_EXHAUSTED
            elif Code.BAD_REQUEST <= code < Code.INTERNAL_ERROR:
                status_code = GrpcStatus.INVALID_ARGUMENT
            raise RpcError(status_code, f"process client telemetryCommand failed. {error.message}") from error
        channel.send(messages.TelemetryCommand(status=status(Code.OK), settings=merged))

    async def _merged(self, client: ProxyClient) -> Any:
        group = None
        if client.kind != ClientKind.PRODUCER:
            topics = [entry.topic.name for entry in client.settings.subscription.subscriptions[:1]]
            group = await self._app.messaging.group_config(client.names[0], topic="".join(topics))
        return merged_settings(client.settings, self._app.config, group)

    async def _watch(self, client: ProxyClient) -> None:
        """Have brokers ask about transactions of topics that take them."""
        for topic in client.names:
            try:
                topic_type = await self._app.messaging.topic_type(topic)
            except (MQError, UnavailableError) as error:
                logger.info("a topic's type is not known topic=%s error=%s", topic, error)
                continue
            if topic_type in (TopicType.TRANSACTION, TopicType.MIXED):
                self._app.messaging.watch_transactions(topic, topic)

    async def _repeat(self, context: RequestContext, channel: TelemetryChannel) -> None:
        for pause_s in REPEATS_S:
            await asyncio.sleep(pause_s)
            client = self._app.clients.find(context.client_id)
            if client is None or client.channel is not channel:
                return
            merged = await self._merged(client)
            channel.send(messages.TelemetryCommand(status=status(Code.OK), settings=merged))

    async def heartbeat(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """Heartbeat."""
        client = self._app.clients.touch(context.client_id)
        if client is None or client.settings is None:
            raise _unknown_client()
        if client.kind != ClientKind.PRODUCER:
            check_group_name(request.group.name)
        return messages.HeartbeatResponse(status=status(Code.OK))

    async def notify_client_termination(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """NotifyClientTermination."""
        client = self._app.clients.find(context.client_id)
        if client is None:
            raise _unknown_client()
        if client.kind != ClientKind.PRODUCER:
            check_group_name(request.group.name)
        self._app.clients.remove(context.client_id)
        return messages.NotifyClientTerminationResponse(status=status(Code.OK))


def _unknown_client() -> CodeError:
    return CodeError(Code.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")


def _read_client(context: RequestContext, settings: Any) -> ProxyClient:
    """The client that settings describe.

    Raises:
        CodeError: A name or a filter breaks the rules, or the client is of a kind that is not served.
    """
    part = settings.WhichOneof("pub_sub")
    if part == "publishing":
        kind = ClientKind.PRODUCER
        names = tuple(dict.fromkeys(topic.name for topic in settings.publishing.topics))
        for topic in names:
            check_topic_name(topic)
    elif part == "subscription":
        found = _KINDS.get(settings.client_type)
        if found is None or found == ClientKind.PRODUCER:
            raise CodeError(Code.UNRECOGNIZED_CLIENT_TYPE, "Client type is not consumer")
        kind = found
        check_group_name(settings.subscription.group.name)
        names = (settings.subscription.group.name,)
        for entry in settings.subscription.subscriptions:
            read_subscription(entry.topic.name, entry.expression)
    else:
        raise CodeError(Code.BAD_REQUEST, "there is no publishing or subscription data in settings")
    return context.client(kind=kind, names=names, settings=settings)
