"""GrpcStatus: how an RPC ends on the wire, and the error that ends one.

RocketMQ's business errors are answers with the status OK and a code inside; other statuses are for what is no answer
at all: an unknown method, a message that cannot be decoded, a Telemetry stream that is refused.
Source: gRPC over HTTP/2 (doc/PROTOCOL-HTTP2.md), statuscodes.md.
"""

from __future__ import annotations

from enum import IntEnum
from urllib.parse import quote

from thermocline.proxy.http2 import encode_field
from thermocline.remoting.errors import MQError

__all__ = ["HEAD_BLOCK", "OK_TRAILERS", "GrpcStatus", "RpcError", "refusal_block", "trailers_block"]


class GrpcStatus(IntEnum):
    """Statuses that are used here."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class RpcError(MQError):
    """Ends an RPC by a status; the client sees the sentence."""

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


HEAD_BLOCK = encode_field(":status", "200") + encode_field("content-type", "application/grpc")
OK_TRAILERS = encode_field("grpc-status", "0")
_MESSAGE_CHARS_MAX = 1024


def trailers_block(status: GrpcStatus, message: str = "") -> bytes:
    """Return the header block that ends an answer."""
    if status is GrpcStatus.OK:
        return OK_TRAILERS
    block = encode_field("grpc-status", str(int(status)))
    if message:
        text = quote(message[:_MESSAGE_CHARS_MAX], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
        block += encode_field("grpc-message", text)
    return block


def refusal_block(status: GrpcStatus, message: str, *, http_status: int = 200) -> bytes:
    """Return the header block of an answer that consists of its trailers."""
    head = encode_field(":status", str(http_status))
    return head + encode_field("content-type", "application/grpc") + trailers_block(status, message)
