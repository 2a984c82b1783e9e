"""Proof: what a request brings to show who sent it, in the same form for every protocol.

remoting   AccessKey, Signature, and the signed content     remoting/request_signature.py
gRPC       authorization, x-mq-date-time                    proxy/grpc/service/grpc_proof.py
"""

from __future__ import annotations

import msgspec

__all__ = ["Proof", "RequestName"]


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """`signature`: base64 of HMAC-SHA1 over `content`. `problem`: why there is no proof that can be checked."""

    username: str = ""
    content: bytes = b""
    signature: str = ""
    problem: str = ""


class RequestName(msgspec.Struct, frozen=True):
    """What a request is called: in white lists (`apache.rocketmq.v2.SendMessageRequest`; of remoting the number of its
    code), and in the audit log."""

    listed: str
    shown: str
