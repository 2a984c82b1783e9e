"""BrokerQuestions: what a broker asks a gRPC client for an administrator, and the client's answers as classic ones.

    307 GET_CONSUMER_RUNNING_INFO   PrintThreadStackTrace where stacks are wanted -> ConsumerRunningInfo
    309 CONSUME_MESSAGE_DIRECTLY    VerifyMessage -> ConsumeMessageDirectlyResult

Running info says the kind, start and version of the client, without which mqadmin fails; queues it has none.
A client that is not here is CONSUMER_NOT_ONLINE, upon which the broker asks another proxy; without an answer in time
CONSUME_MSG_TIMEOUT; a client that refuses to verify a message of a group in order NO_PERMISSION, as RocketMQ's proxy
has it; other refusals SYSTEM_ERROR with the client's code and sentence.
Source: GrpcClientChannel.java, ClientActivity.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.proxy.clients import ClientKind, ProxyClient
from thermocline.proxy.grpc.messages import Code, messages
from thermocline.proxy.grpc.service.application import Application
from thermocline.proxy.grpc.service.client_settings import REPORTED_MAX, subscriptions_of
from thermocline.proxy.grpc.service.delivered_message import to_message
from thermocline.remoting.bodies import (
    CONSUME_ACTIVELY,
    CONSUME_PASSIVELY,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
)
from thermocline.remoting.clocks import monotonic_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import (
    ConsumerOfflineError,
    MQError,
    PermissionDeniedError,
    RequestTimeoutError,
    UnsupportedRequestError,
)
from thermocline.remoting.headers import ConsumeMessageDirectlyRequestHeader, GetConsumerRunningInfoRequestHeader
from thermocline.remoting.records.message_record import decode_record
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

__all__ = ["BrokerQuestions"]

RESULTS = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}
REMARK = "from gRPC client"


class BrokerQuestions:
    """See the module: the `RequestHandler` of the connections over which clients are reported."""

    def __init__(self, app: Application) -> None:
        self._app = app

    def handle(self, connection: Connection, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Answer a broker's question.

        Raises:
            UnsupportedRequestError: It is none of those.
        """
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return self._answered(command, self._running_info(command))
        if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return self._answered(command, self._consume(command))
        raise UnsupportedRequestError(f" request type {command.code} not supported")

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to do."""

    def connection_closed(self, connection: Connection) -> None:
        """Nothing to do: answers that are still made are dropped."""

    async def _answered(self, command: RemotingCommand, body: Awaitable[bytes]) -> RemotingCommand:
        try:
            return RemotingCommand.response(command, body=await body)
        except RequestTimeoutError as error:
            return RemotingCommand.response(command, ResponseCode.CONSUME_MSG_TIMEOUT, remark=error.message)

    async def _running_info(self, command: RemotingCommand) -> bytes:
        header = command.header(GetConsumerRunningInfoRequestHeader)
        client = self._member(header.consumer_group, header.client_id)
        stacks: str | None = None
        if header.jstack_enable:
            question = messages.TelemetryCommand(
                print_thread_stack_trace_command=messages.PrintThreadStackTraceCommand()
            )
            answer = await self._app.commands.ask(client, question)
            _check_status(answer)
            stacks = answer.thread_stack_trace.thread_stack_trace
        is_push = client.kind == ClientKind.PUSH_CONSUMER
        started_ms = self._app.clock_ms() - self._app.clients.age_ms(client)
        return ConsumerRunningInfo(
            properties={
                "PROP_CONSUME_TYPE": CONSUME_PASSIVELY if is_push else CONSUME_ACTIVELY,
                "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
                "PROP_CLIENT_VERSION": client.version,
            },
            subscription_set=subscriptions_of(client.settings, count_max=REPORTED_MAX),
            jstack=stacks,
        ).encode()

    async def _consume(self, command: RemotingCommand) -> bytes:
        header = command.header(ConsumeMessageDirectlyRequestHeader)
        client = self._member(header.consumer_group, header.client_id or "")
        await self._app.check_again(client.permit)
        record = decode_record(command.body)
        queue = MessageQueue(topic=record.topic, broker_name=header.target_broker_name or "", queue_id=record.queue_id)
        message = ReceivedMessage(record, queue=queue)
        verify = messages.VerifyMessageCommand(message=to_message(message, topic=header.topic or message.topic))
        began_ms = monotonic_ms()
        answer = await self._app.commands.ask(client, messages.TelemetryCommand(verify_message_command=verify))
        result = RESULTS.get(answer.status.code)
        if result is None:
            _check_status(answer)
        return ConsumeMessageDirectlyResult(
            consume_result=result, remark=REMARK, spent_time_mills=int(monotonic_ms() - began_ms)
        ).encode()

    def _member(self, group: str, client_id: str) -> ProxyClient:
        """The consumer of a group that is connected here.

        Raises:
            ConsumerOfflineError: It is not here.
        """
        client = self._app.clients.find(client_id)
        if client is None or client.kind == ClientKind.PRODUCER or group not in client.names:
            raise ConsumerOfflineError("the client is not connected to this proxy", group=group, client_id=client_id)
        return client


def _check_status(answer: Any) -> None:
    """Pass a client's answer that is OK.

    Raises:
        PermissionDeniedError: The client must not do that with messages in order.
        MQError: It did not do it for another reason.
    """
    code = answer.status.code
    if code == Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED:
        raise PermissionDeniedError("forbidden to verify message")
    if code != Code.OK:
        raise MQError(f"the client answers {code}: {answer.status.message[:256]}")
