"""Request signature: how a client proves who it is, in the ext fields of each request.

    AccessKey       name of the user
    SecurityToken   optional, signed along with the others
    Signature       base64 of HMAC-SHA1(secret key, content)

    content = the values of all ext fields but Signature, joined in the order of their names, then the body

Names are ordered as Java orders strings: by UTF-16 code units. A client up to 4.9.3 adds `_UNIQUE_KEY_QUERY` after it
has signed: of its requests that field is left out.
Source: acl/common/{AclClientRPCHook,AclUtils,AclSigner}.java, auth/authentication/builder/
DefaultAuthenticationContextBuilder.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import binascii
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from thermocline.remoting.command import RemotingCommand

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"

_ALGORITHM = "sha1"
_LATE_FIELD = "_UNIQUE_KEY_QUERY"
_LATE_FIELD_VERSION_MAX = 399
"""Ordinal of release 4.9.3 in MQVersion."""
_ORDERS_MAX = 1024

Pick = Callable[[Mapping[str, str]], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a client signs with. The secrets are not in `repr`."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def sign(self, command: RemotingCommand) -> None:
        """Add the three ext fields to a request, in place."""
        fields = dict(command.ext_fields or {})
        fields[ACCESS_KEY] = self.access_key
        if self.security_token:
            fields[SECURITY_TOKEN] = self.security_token
        fields.pop(SIGNATURE, None)
        fields[SIGNATURE] = sign_content(self.secret_key.encode(), signed_content(fields, command.body))
        command.ext_fields = fields


def sign_content(secret_key: bytes, content: bytes) -> str:
    """The signature of a content."""
    return binascii.b2a_base64(hmac.digest(secret_key, content, _ALGORITHM), newline=False).decode()


def is_signed_by(secret_key: bytes, content: bytes, signature: str) -> bool:
    """Whether `signature` is that of the content; takes as long for a wrong one."""
    expected = binascii.b2a_base64(hmac.digest(secret_key, content, _ALGORITHM), newline=False)
    return hmac.compare_digest(expected, signature.encode("utf-8", "replace"))


def signed_content(ext_fields: Mapping[str, str], body: bytes | memoryview, *, version: int | None = None) -> bytes:
    """The bytes that are signed; `version` is the ordinal in the header of a request that was received."""
    names = tuple(ext_fields)
    pick = _orders.get(names)
    if pick is None:
        pick = _remember_order(names)
    if version is not None and version <= _LATE_FIELD_VERSION_MAX and _LATE_FIELD in ext_fields:
        ext_fields = {**ext_fields, _LATE_FIELD: ""}
    text = "".join(pick(ext_fields)).encode("utf-8", "replace")
    return b"".join((text, body)) if body else text


_orders: dict[tuple[str, ...], Pick] = {}
"""Names of ext fields as they came -> what gives their values in the order of the content. A client's requests have few
orders; names come from outside, so there is a bound, at which all are forgotten."""


def _remember_order(names: tuple[str, ...]) -> Pick:
    ordered = sorted((name for name in names if name != SIGNATURE), key=lambda name: name.encode("utf-16-be", "replace"))
    if len(_orders) >= _ORDERS_MAX:
        _orders.clear()
    pick = _picker(ordered)
    _orders[names] = pick
    return pick


def _picker(names: list[str]) -> Pick:
    if not names:
        return lambda _fields: ()
    if len(names) == 1:
        (name,) = names
        return lambda fields: (fields[name],)
    return itemgetter(*names)
