"""Application: what the RPCs of one proxy share, and how one of them is served.

    message decoded -> access control -> client id -> handler -> answer; an MQError becomes an answer with its code

Owner: the proxy's event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from thermocline.proxy.access import AccessCheck, Permit, QuotaCheck
from thermocline.proxy.clients import ClientRegistry
from thermocline.proxy.flow import Consumption, HeldHandles, Production, Traces
from thermocline.proxy.grpc.calls import GrpcStatus, Method, MethodKind, RpcCall, RpcError
from thermocline.proxy.grpc.messages import Code
from thermocline.proxy.grpc.service.background import Background
from thermocline.proxy.grpc.service.client_commands import ClientCommands
from thermocline.proxy.grpc.service.context import RequestContext, read_context
from thermocline.proxy.grpc.service.grpc_proof import read_proof
from thermocline.proxy.grpc.service.grpc_rights import REQUEST_NAMES, rights_of
from thermocline.proxy.grpc.service.statuses import CodeError, status_of
from thermocline.proxy.messaging import CALLER, Caller, Messaging
from thermocline.proxy.metrics import Traffic
from thermocline.proxy.settings import Listeners, ProxyConfig
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import MQError, PermissionDeniedError

__all__ = ["BROKER_TIMEOUT_MS", "Application", "EncodedAnswer", "decode", "unary"]

BROKER_TIMEOUT_MS = 2_000
"""How long a broker has for a request that it answers at once."""


@dataclass(slots=True, kw_only=True)
class Application:
    """See the module."""

    config: ProxyConfig
    messaging: Messaging
    clients: ClientRegistry
    production: Production
    consumption: Consumption
    handles: HeldHandles
    background: Background
    counts: LimitCounts
    clock_ms: Callable[[], int]
    """Milliseconds since 1970."""
    quotas: QuotaCheck
    commands: ClientCommands
    traffic: Traffic
    """Counts what passes."""
    traces: Traces | None = None
    """None: none are written."""
    access: AccessCheck | None = None
    """None: every client may do everything."""
    listeners: Listeners = field(default_factory=lambda: Listeners(()))
    """The addresses that are listened on beside the main ones."""
    grpc_port: int = 0
    """The port that is open."""
    polls: int = field(default=0)
    """Long polls under way, of all clients."""

    def timeout_ms(self, call: RpcCall) -> int:
        """How long a broker has for a request of this call."""
        remaining_ms = call.remaining_ms()
        return BROKER_TIMEOUT_MS if remaining_ms is None else max(1, min(BROKER_TIMEOUT_MS, remaining_ms))

    async def admit(self, call: RpcCall, request: Any) -> RequestContext:
        """Return the caller of a request that is allowed.

        Raises:
            CodeError: It is not allowed; or it gives no client id, or one that another user's client has.
            UnavailableError: No broker could be asked what is allowed.
        """
        if self.access is None:
            CALLER.set(Caller(address=call.remote_host[0]))
            return read_context(call)
        name = call.name
        try:
            permit = await self.access.check(
                REQUEST_NAMES[name], read_proof(call.metadata), rights_of(name, request), call.remote_host[0]
            )
        except PermissionDeniedError as error:
            raise CodeError(Code.UNAUTHORIZED, error.message) from error
        context = read_context(call, permit)
        client = self.clients.find(context.client_id)
        if client is not None and client.username != permit.username and permit.user is not None:
            raise CodeError(Code.UNAUTHORIZED, "another user's client has this client id")
        CALLER.set(Caller(user=permit.username, address=call.remote_host[0]))
        return context

    async def check_again(self, permit: Permit | None) -> None:
        """Pass if a request that was allowed is allowed still: when its answer had to wait, or a command is sent later.

        Raises:
            CodeError: It is not.
            UnavailableError: No broker could be asked.
        """
        if self.access is not None and permit is not None:
            try:
                await self.access.check_again(permit)
            except PermissionDeniedError as error:
                raise CodeError(Code.UNAUTHORIZED, error.message) from error


def decode(message_class: Any, data: bytes) -> Any:
    """Decode a request.

    Raises:
        RpcError: It is none.
    """
    try:
        return message_class.FromString(data)
    except DecodeError:
        raise RpcError(GrpcStatus.INVALID_ARGUMENT, f"the request is no {message_class.DESCRIPTOR.name}") from None


class EncodedAnswer(msgspec.Struct, frozen=True):
    """An answer as it is on the wire, and the code of its status."""

    code: int
    data: bytes


def unary(
    app: Application,
    name: str,
    request_class: Any,
    response_class: Any,
    serve: Callable[[RequestContext, RpcCall, Any], Awaitable[Any]],
) -> Method:
    """Return the method of an RPC with one request and one answer."""

    async def handle(call: RpcCall, data: bytes) -> bytes:
        request = decode(request_class, data)
        try:
            answer = await serve(await app.admit(call, request), call, request)
        except MQError as error:
            if isinstance(error, RpcError):
                raise
            answer = response_class(status=status_of(error))
        if isinstance(answer, EncodedAnswer):
            call.code = answer.code
            return answer.data
        call.code = answer.status.code
        encoded: bytes = answer.SerializeToString()
        return encoded

    return Method(name=name, kind=MethodKind.UNARY, handle=handle)
