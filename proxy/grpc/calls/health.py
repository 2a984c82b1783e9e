"""grpc.health.v1.Health: whether the proxy serves, for probes of orchestrators and load balancers.

    Check("")                                    the proxy serves
    Check("apache.rocketmq.v2.MessagingService")   and a NameServer answers, with at least one broker
    any other name                                 NOT_FOUND

The two messages have one field each, so they are read and written here without a schema: request `1: service name`,
answer `1: status`.
Source: gRPC health checking protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from thermocline.proxy.grpc.calls.call import Method, MethodKind, RpcCall
from thermocline.proxy.grpc.calls.status import GrpcStatus, RpcError

__all__ = ["health_methods"]

SERVING = b"\x08\x01"
NOT_SERVING = b"\x08\x02"
_NAME_TAG = 0x0A


def health_methods(service: str, is_ready: Callable[[], Awaitable[bool]]) -> dict[str, Method]:
    """Return the methods by path. `is_ready`: whether `service` can be served."""

    async def check(call: RpcCall, data: bytes) -> bytes:
        name = _service_name(data)
        if not name:
            return SERVING
        if name != service:
            raise RpcError(GrpcStatus.NOT_FOUND, "there is no such service")
        return SERVING if await is_ready() else NOT_SERVING

    return {"/grpc.health.v1.Health/Check": Method(name="Check", kind=MethodKind.UNARY, handle=check)}


def _service_name(data: bytes) -> str:
    if not data:
        return ""
    if len(data) < 2 or data[0] != _NAME_TAG or data[1] >= 0x80 or len(data) != data[1] + 2:
        raise RpcError(GrpcStatus.INVALID_ARGUMENT, "the request is no HealthCheckRequest")
    return data[2:].decode("utf-8", "replace")
