"""The proof in a gRPC request's metadata: who the client says it is, and the signature that shows it.

    authorization   MQv2-HMAC-SHA1 Credential=ACCESS_KEY[/REGION/SERVICE], SignedHeaders=x-mq-date-time, Signature=HEX
    x-mq-date-time  any text; what is signed, as it is

HEX is in either case: upper from Java and Node, lower from Python, Go, Rust and C++. Go writes `ACCESS_KEY//Rocketmq`.
The time is not compared with a clock, as the official proxy does not: what was recorded can be sent again, so a network
that others read needs TLS.
Source: auth/authentication/builder/DefaultAuthenticationContextBuilder.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping

from thermocline.proxy.access import Proof

__all__ = ["read_proof"]

AUTHORIZATION, DATE_TIME = "authorization", "x-mq-date-time"


def read_proof(metadata: Mapping[str, str]) -> Proof:
    """Return what a request shows; `problem` says in RocketMQ's words why that is nothing."""
    authorization, date_time = metadata.get(AUTHORIZATION, ""), metadata.get(DATE_TIME, "")
    if not authorization:
        return Proof(problem="authentication header is null")
    if not date_time:
        return Proof(problem="datetime is null")
    _, space, rest = authorization.partition(" ")
    if not space:
        return Proof(problem="authentication header is incorrect")
    username, signature = "", ""
    for part in rest.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals:
            return Proof(problem="authentication keyValues length is incorrect, actual length=1")
        if name == "Credential":
            username = value.partition("/")[0]
        elif name == "Signature":
            try:
                signature = binascii.b2a_base64(binascii.unhexlify(value), newline=False).decode()
            except ValueError:
                return Proof(username=username, problem="create authentication context error.")
    return Proof(username=username, content=date_time.encode("utf-8", "replace"), signature=signature)
