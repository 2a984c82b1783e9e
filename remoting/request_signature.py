"""Request signature: how a client proves who it is, in the ext fields of each request.

    AccessKey       name of the user
    SecurityToken   optional, signed along with the others
    Signature       base64 of HMAC-SHA1(secret key, content)

    content = the values of all ext fields but Signature, joined in the order of their names, then the body

Names are ordered as Java orders strings: by UTF-16 code units. A client up to 4.9.3 adds `_UNIQUE_KEY_QUERY` after it
has signed: of its requests that field is left out. The Go client (2.1.2) adds SecurityToken after it has signed;
RocketMQ refuses its requests with one, here the form without it counts, too: what the token says decides nothing.
Source: acl/common/{AclClientRPCHook,AclUtils,AclSigner}.java, auth/authentication/builder/
DefaultAuthenticationContextBuilder.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from operator import itemgetter

from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidParameterError

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
PROOF_FIELDS = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN})

_BLOCK_BYTES = 64
_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))
_LATE_FIELD = "_UNIQUE_KEY_QUERY"
_LATE_FIELD_VERSION_MAX = 399
"""Ordinal of release 4.9.3 in MQVersion."""
_ORDERS_MAX = 1024
_ORDER_CHARACTERS_MAX = 1_000
"""Of all names of an order that is remembered."""

Pick = Callable[[Mapping[str, str]], tuple[str, ...]]


class SigningKey:
    """A secret key, ready to sign: HMAC-SHA1 with its two halves begun, which are copied for each content.

    Half of the time that `hmac.digest` takes for a small content (measured: 1.8 and 4.0 us for 350 bytes).
    """

    __slots__ = ("_begin_inner", "_begin_outer")

    def __init__(self, secret_key: bytes) -> None:
        block = hashlib.sha1(secret_key).digest() if len(secret_key) > _BLOCK_BYTES else secret_key
        padded = block.ljust(_BLOCK_BYTES, b"\0")
        self._begin_inner = hashlib.sha1(padded.translate(_INNER_PAD)).copy
        self._begin_outer = hashlib.sha1(padded.translate(_OUTER_PAD)).copy

    def signature(self, content: bytes) -> bytes:
        """The signature of a content, as its text has it."""
        inner = self._begin_inner()
        inner.update(content)
        outer = self._begin_outer()
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False)

    def has_signed(self, content: bytes, signature: str) -> bool:
        """Whether `signature` is that of the content; takes as long for a wrong one."""
        # As in `signature`: a call less on the path of each send.
        inner = self._begin_inner()
        inner.update(content)
        outer = self._begin_outer()
        outer.update(inner.digest())
        made = b2a_base64(outer.digest(), newline=False)
        return compare_digest(made, signature.encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a client signs with. The secrets are not in `repr`.

    Raises:
        InvalidParameterError: The secret key is no text, as an environment variable may be that is not UTF-8.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)
    key: SigningKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            secret_key = self.secret_key.encode()
        except UnicodeEncodeError:
            raise InvalidParameterError("the secret key is no text", access_key=self.access_key) from None
        object.__setattr__(self, "key", SigningKey(secret_key))

    def sign(self, command: RemotingCommand) -> None:
        """Add the three ext fields to a request, in place."""
        fields = dict(command.ext_fields or {})
        fields[ACCESS_KEY] = self.access_key
        if self.security_token:
            fields[SECURITY_TOKEN] = self.security_token
        fields.pop(SIGNATURE, None)
        fields[SIGNATURE] = self.key.signature(signed_content(fields, command.body)).decode()
        command.ext_fields = fields


def without_proof(ext_fields: Mapping[str, str]) -> dict[str, str]:
    """The fields without those that prove who sent them: for a request that is passed on under another's name, or to a
    client, which could send the proof again as its own."""
    return {name: value for name, value in ext_fields.items() if name not in PROOF_FIELDS}


def signed_content_without_token(
    ext_fields: Mapping[str, str], body: bytes | memoryview, *, version: int | None = None
) -> bytes:
    """The same as the Go client signs it, see the module."""
    rest = {name: value for name, value in ext_fields.items() if name != SECURITY_TOKEN}
    return signed_content(rest, body, version=version)


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
orders; names come from outside, also from clients without a user, so there are bounds: on the orders, at which all are
forgotten, and on the characters of each."""


def _remember_order(names: tuple[str, ...]) -> Pick:
    ordered = sorted(
        (name for name in names if name != SIGNATURE), key=lambda name: name.encode("utf-16-be", "replace")
    )
    pick = _picker(ordered)
    if sum(map(len, names)) + len(names) <= _ORDER_CHARACTERS_MAX:
        if len(_orders) >= _ORDERS_MAX:
            _orders.clear()
        _orders[names] = pick
    return pick


def _picker(names: list[str]) -> Pick:
    if not names:
        return lambda _fields: ()
    if len(names) == 1:
        (name,) = names
        return lambda fields: (fields[name],)
    return itemgetter(*names)
