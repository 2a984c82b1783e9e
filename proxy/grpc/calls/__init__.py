"""RPCs of gRPC over HTTP/2 streams: messages, deadlines, statuses."""

from thermocline.proxy.grpc.calls.call import Method, MethodKind, ReceivedBytes, RpcCall, RpcService
from thermocline.proxy.grpc.calls.health import health_methods
from thermocline.proxy.grpc.calls.status import GrpcStatus, RpcError, refusal_block

__all__ = [
    "GrpcStatus",
    "Method",
    "MethodKind",
    "ReceivedBytes",
    "RpcCall",
    "RpcError",
    "RpcService",
    "health_methods",
    "refusal_block",
]
