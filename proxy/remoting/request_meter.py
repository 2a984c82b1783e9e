"""RequestMeter: measures the requests of remoting clients, and counts the messages that they send and are given.

It stands between the connections and the methods that serve them. A request is measured from its arrival to its answer;
one-way requests, which have none, until they are passed on, and one-way sends are counted then. What a client is given
is read from the answer itself, whether a broker made it or the proxy did for a push consumer that is served by POP.
Owner: the proxy's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from thermocline.proxy.metrics import Protocol, RpcLatency, RpcResult, Traffic
from thermocline.proxy.remoting.message_types import message_type
from thermocline.proxy.remoting.quotas import GIVES_MESSAGES, PortQuotas
from thermocline.proxy.remoting.request_codes import LONG_POLLS, SENDS, SENDS_WITH_LETTERS
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Answer, Connection, Dispatcher
from thermocline.remoting.error_table import response_code
from thermocline.remoting.errors import MessageIllegalError, MQError
from thermocline.remoting.records.batch import decode_batch
from thermocline.remoting.records.message_record import count_bodies
from thermocline.remoting.request_code import request_name
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.topic_validation import is_retry_topic

__all__ = ["RequestMeter"]

OTHER = "other"
STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
_CODE_NAMES: Mapping[int | None, str] = {None: "", **{int(code): code.name.lower() for code in ResponseCode}}


class RequestMeter:
    """See the module: a handler of requests around another one."""

    def __init__(
        self,
        served: Dispatcher,
        latency: RpcLatency,
        traffic: Traffic,
        *,
        quotas: PortQuotas,
        clock_s: Callable[[], float],
    ) -> None:
        """`quotas`: what is given out counts there, too. `clock_s`: seconds, never stepping back."""
        self._quotas = quotas
        self._served = served
        self._latency = latency
        self._traffic = traffic
        self._clock_s = clock_s
        self._names = {code: request_name(code).lower() for code in served.codes}

    def handle(self, connection: Connection, command: RemotingCommand) -> Answer:
        """Serve one request.

        Raises:
            MQError: As the method that serves it does.
        """
        started_s = self._clock_s()
        try:
            answer = self._served.handle(connection, command)
        except MQError as error:
            self._measure(connection, command, response_code(error), RpcResult.SUCCESS, started_s)
            raise
        if answer is None or isinstance(answer, RemotingCommand):
            self._answered(connection, command, answer, started_s)
            return answer
        return self._wait(connection, answer, command, started_s)

    def connection_opened(self, connection: Connection) -> None:
        """A connection was made."""
        self._served.connection_opened(connection)

    def connection_closed(self, connection: Connection) -> None:
        """A connection has closed."""
        self._served.connection_closed(connection)

    async def _wait(
        self,
        connection: Connection,
        answering: Awaitable[RemotingCommand | None],
        command: RemotingCommand,
        started_s: float,
    ) -> RemotingCommand | None:
        try:
            answer = await answering
        except asyncio.CancelledError:
            self._measure(connection, command, None, RpcResult.CANCELED, started_s)
            raise
        except MQError as error:
            self._measure(connection, command, response_code(error), RpcResult.SUCCESS, started_s)
            raise
        except Exception:
            self._measure(connection, command, ResponseCode.SYSTEM_ERROR, RpcResult.FAILED, started_s)
            raise
        self._answered(connection, command, answer, started_s)
        return answer

    def _answered(
        self, connection: Connection, command: RemotingCommand, answer: RemotingCommand | None, started_s: float
    ) -> None:
        if answer is None:
            self._measure(connection, command, None, RpcResult.ONEWAY, started_s)
            if command.code in SENDS:
                self._count_sent(command)
            return
        self._measure(connection, command, answer.code, RpcResult.SUCCESS, started_s)
        if command.code in SENDS:
            if answer.code in STORED:
                self._count_sent(command)
        elif command.code in GIVES_MESSAGES and answer.code == ResponseCode.SUCCESS and not connection.is_closed:
            self._count_received(connection, command, answer)

    def _measure(
        self, connection: Connection, command: RemotingCommand, code: int | None, result: RpcResult, started_s: float
    ) -> None:
        if code is not None and connection.is_closed:
            result = RpcResult.UNSENT
        self._latency.add(
            self._names.get(command.code, OTHER),
            _CODE_NAMES.get(code, OTHER),
            result,
            protocol=Protocol.REMOTING,
            is_long_polling=command.code in LONG_POLLS,
            ms=(self._clock_s() - started_s) * 1000,
        )

    def _count_sent(self, command: RemotingCommand) -> None:
        fields = command.ext_fields or {}
        has_letters = command.code in SENDS_WITH_LETTERS
        topic, properties, is_batch = (
            fields.get(name, "") for name in (("b", "i", "m") if has_letters else ("topic", "properties", "batch"))
        )
        count, size_bytes = 1, len(command.body)
        if is_batch == "true":
            try:
                bodies = [len(message.body) for message in decode_batch(bytes(command.body))]
            except MessageIllegalError:  # one-way, and the broker does not take it
                return
            count, size_bytes = len(bodies), sum(bodies)
        kind = message_type(properties).label
        self._traffic.sent(Protocol.REMOTING, topic, kind, count=count, size_bytes=size_bytes)

    def _count_received(self, connection: Connection, command: RemotingCommand, answer: RemotingCommand) -> None:
        fields = command.ext_fields or {}
        topic, group = fields.get("topic", ""), fields.get("consumerGroup", "")
        count, size_bytes = count_bodies(answer.body)
        self._quotas.took(connection, topic, group, size_bytes)
        self._traffic.received(
            Protocol.REMOTING,
            topic,
            group,
            is_retry=is_retry_topic(topic),
            count=count,
            size_bytes=size_bytes,
        )
