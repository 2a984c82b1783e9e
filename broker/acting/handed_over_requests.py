"""Handed-over requests: those for a master that reach its slave, as a client's route still shows that as the master.

    while there is a master, or one is about to register    they go to the master, and its answer comes back
    while there is none                                     the slave serves them, as any broker

    15 UPDATE_CONSUMER_OFFSET    14 QUERY_CONSUMER_OFFSET    41 LOCK_BATCH_MQ    42 UNLOCK_BATCH_MQ
    222 INVOKE_BROKER_TO_RESET_OFFSET

Clients ask for routes every 30 s. Without this, what they commit in between would be overwritten by the master's
offsets, and two clients could hold the lock of one queue, one at each broker. RocketMQ's slave has neither.
A master that starts is busy until it serves: it is asked again for as long as `forwardTimeout`.
Bound: CALLS_MAX requests are on the way at once, more are refused.
Owner: the hot process's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from thermocline.broker.cluster import MemberWatch, StandIn
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import BrokerBusyError, UnavailableError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import without_proof
from thermocline.remoting.response_code import ResponseCode

CODES = (
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
)
CALLS_MAX = 1_024
AGAIN_S = 0.2


class HandedOverRequests:
    """See the module's header. Stands before the processors that serve these codes."""

    def __init__(
        self,
        members: MemberWatch,
        client: RemotingClient,
        *,
        served_by: Mapping[int, Handler],
        timeout_ms: Callable[[], int],
    ) -> None:
        """`client`: closed by its owner. `served_by`: request code -> the method of this broker."""
        self._members = members
        self._client = client
        self._served_by = served_by
        self._timeout_ms = timeout_ms
        self._calls_count = 0

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return dict.fromkeys(CODES, self.serve)

    def serve(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Serve it here, or have the master serve it."""
        master = self._members.master_address
        if master is None or self._members.state not in (StandIn.FOLLOWING, StandIn.HANDING_OVER):
            return self._served_by[command.code](connection, command)
        if self._calls_count >= CALLS_MAX:
            raise BrokerBusyError("too many requests to the master are on the way", calls_max=CALLS_MAX)
        # A copy: the body is part of a buffer that is used again when this returns.
        return self._pass_on(master, msgspec.structs.replace(command, body=bytes(command.body)))

    async def _pass_on(self, master: str, command: RemotingCommand) -> RemotingCommand:
        self._calls_count += 1
        try:
            answer = await self._call(master, command)
        finally:
            self._calls_count -= 1
        return RemotingCommand.response(
            command, answer.code, remark=answer.remark, ext_fields=answer.ext_fields, body=answer.body
        )

    async def _call(self, master: str, command: RemotingCommand) -> RemotingCommand:
        loop = asyncio.get_running_loop()
        timeout_ms = self._timeout_ms()
        deadline = loop.time() + timeout_ms / 1_000
        fields = without_proof(command.ext_fields or {})
        while True:
            request = RemotingCommand.request(command.code, ext_fields=fields, body=command.body)
            try:
                answer = await self._client.call(master, request, timeout_ms=timeout_ms)
                if answer.code != ResponseCode.SYSTEM_BUSY or loop.time() >= deadline:
                    return answer
            except UnavailableError:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(AGAIN_S)
