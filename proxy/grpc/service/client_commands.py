"""ClientCommands: commands to a client over its Telemetry stream that it answers there, each under a nonce.

    command with nonce -> client -> thread stack or result with the same nonce -> who waits

An answer counts only from the client that was asked. What comes later than `timeout_ms` is passed over. Bound:
WAITING_MAX commands that wait for their answers.
Source: GrpcChannelManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from thermocline.proxy.clients import ProxyClient
from thermocline.remoting.errors import BrokerBusyError, ConsumerOfflineError, RequestTimeoutError

__all__ = ["ClientCommands"]

WAITING_MAX = 1_000
ANSWERS = ("thread_stack_trace", "verify_message_result", "verify_message_command")
"""The commands of a client that are answers. The npm client refuses to verify by the command itself."""


class ClientCommands:
    """See the module. Belongs to the proxy's event loop."""

    def __init__(self, *, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._nonces = map(str, itertools.count())
        self._waiting: dict[tuple[str, str], asyncio.Future[Any]] = {}

    async def ask(self, client: ProxyClient, command: Any) -> Any:
        """Send a command, whose nonce is set here, and return the client's TelemetryCommand. Cancelling is safe.

        Raises:
            ConsumerOfflineError: The client has no stream, or does not read it.
            RequestTimeoutError: It does not answer in time.
            BrokerBusyError: Too many commands wait.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise BrokerBusyError("too many questions to clients wait for their answers", count_max=WAITING_MAX)
        nonce = next(self._nonces)
        getattr(command, command.WhichOneof("command")).nonce = nonce
        key = client.client_id, nonce
        answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            if client.channel is None or not client.channel.send(command):
                raise ConsumerOfflineError("the client has no Telemetry stream now", client_id=client.client_id)
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await answer
        except TimeoutError as error:
            raise RequestTimeoutError("the client does not answer", client_id=client.client_id) from error
        finally:
            del self._waiting[key]

    def receive(self, client_id: str, command: Any) -> None:
        """Pass a client's command on if it is an answer that is waited for."""
        kind = command.WhichOneof("command")
        if kind not in ANSWERS:
            return
        answer = self._waiting.get((client_id, getattr(command, kind).nonce))
        if answer is not None and not answer.done():
            answer.set_result(command)
