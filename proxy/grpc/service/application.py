"""Application: what the RPCs of one proxy share, and how one of them is served.

    metadata -> client id -> message decoded -> handler -> answer; an MQError becomes an answer with its code

Owner: the proxy's event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from thermocline.proxy.clients import ClientRegistry
from thermocline.proxy.flow import Consumption, HeldHandles, Production
from thermocline.proxy.grpc.calls import GrpcStatus, Method, MethodKind, RpcCall, RpcError
from thermocline.proxy.grpc.service.background import Background
from thermocline.proxy.grpc.service.context import RequestContext, read_context
from thermocline.proxy.grpc.service.statuses import status_of
from thermocline.proxy.messaging import Messaging
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import MQError

__all__ = ["BROKER_TIMEOUT_MS", "Application", "decode", "unary"]

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
    grpc_port: int = 0
    """The port that is open."""
    polls: int = field(default=0)
    """Long polls under way, of all clients."""

    def timeout_ms(self, call: RpcCall) -> int:
        """How long a broker has for a request of this call."""
        remaining_ms = call.remaining_ms()
        return BROKER_TIMEOUT_MS if remaining_ms is None else max(1, min(BROKER_TIMEOUT_MS, remaining_ms))


def decode(message_class: Any, data: bytes) -> Any:
    """Decode a request.

    Raises:
        RpcError: It is none.
    """
    try:
        return message_class.FromString(data)
    except DecodeError:
        raise RpcError(GrpcStatus.INVALID_ARGUMENT, f"the request is no {message_class.DESCRIPTOR.name}") from None


def unary(
    name: str,
    request_class: Any,
    response_class: Any,
    serve: Callable[[RequestContext, RpcCall, Any], Awaitable[Any]],
) -> Method:
    """Return the method of an RPC with one request and one answer."""

    async def handle(call: RpcCall, data: bytes) -> bytes:
        request = decode(request_class, data)
        try:
            answer = await serve(read_context(call), call, request)
        except MQError as error:
            if isinstance(error, RpcError):
                raise
            answer = response_class(status=status_of(error))
        encoded: bytes = answer.SerializeToString()
        return encoded

    return Method(name=name, kind=MethodKind.UNARY, handle=handle)
