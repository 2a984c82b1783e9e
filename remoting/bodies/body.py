"""Bases of the structures that travel as JSON in a command's body.

Attributes are snake_case, members on the wire camelCase unless `name=` says otherwise. Every member has RocketMQ's own
default: what a peer leaves out, or writes as null, takes it; what a peer adds is passed over.
"""

from __future__ import annotations

from typing import Self

import msgspec

from thermocline.remoting.json_dialect import dumps, dumps_dialect, loads_as


class _JsonText:
    """The interface of every body."""

    __slots__ = ()

    def encode(self) -> bytes:
        """The JSON text; null members are left out."""
        return dumps(self)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """The body in a JSON text of either form.

        Raises:
            InvalidRequestError: There is none.
        """
        return loads_as(data, cls)


class Body(_JsonText, msgspec.Struct, rename="camel", kw_only=True):
    """A body, or a part of one."""


class FrozenBody(_JsonText, msgspec.Struct, rename="camel", kw_only=True, frozen=True, order=True):
    """A body, or a part of one, that can be a key."""


class DialectBody(Body, kw_only=True):
    """A body with integers or objects as keys, which Java clients want unquoted."""

    def encode(self) -> bytes:
        """The JSON text in the Java form; null members are left out."""
        return dumps_dialect(self)
