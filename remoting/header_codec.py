"""Typed headers: a command's `extFields` as a structure, and back.

On the wire every header field is text: numbers in decimal, booleans `true` and `false`, null not sent. A header type
is a `Header` with one attribute a field; attributes are snake_case, names on the wire camelCase unless `name=` says
otherwise. A field without default is one that the request makes no sense without; what RocketMQ's own clients always
send but other clients may not has RocketMQ's default here.

An invalid number counts as missing, as in RocketMQ; only the headers of sends, pulls and a few more, which decode
themselves there (`decodes_itself`), are refused for it. RocketMQ reads a missing required field as null or 0 and fails
later, or does something other than requested: here such a request is refused. A flag that is neither
true nor false is false; 1 is true, which RocketMQ's C++ client writes for it and RocketMQ reads as false.

    class GetMinOffsetRequestHeader(TopicQueueHeader):
        topic: str
        queue_id: Int

Source: RemotingCommand.java (decodeCommandCustomHeader), FastCodesHeader.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import inspect

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.java_long import LONG_MAX, LONG_MIN
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset

Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""Java's int."""

Long = Annotated[int, msgspec.Meta(ge=LONG_MIN, le=LONG_MAX)]
"""Java's long."""

QueueOffsetLong = Annotated[QueueOffset, msgspec.Meta(ge=LONG_MIN, le=LONG_MAX)]
"""Java's long, of a queue offset."""

PhysicalOffsetLong = Annotated[PhysicalOffset, msgspec.Meta(ge=LONG_MIN, le=LONG_MAX)]
"""Java's long, of a physical offset."""


class Header(msgspec.Struct, rename="camel", kw_only=True):
    """Base of every header type."""

    decodes_itself: ClassVar[bool] = False
    """Whether its class in RocketMQ is a FastCodesHeader, for which a number that is none is an error."""


class RpcHeader(Header, kw_only=True):
    """Base of the headers that may also carry where a request belongs."""

    namespace: str | None = msgspec.field(default=None, name="ns")
    namespaced: bool | None = msgspec.field(default=None, name="nsd")
    broker_name: str | None = msgspec.field(default=None, name="bname")
    oneway: bool | None = msgspec.field(default=None, name="oway")


class TopicHeader(RpcHeader, kw_only=True):
    """Base of the headers about one topic. `logical`: True asks for the static topic, False for the physical one."""

    logical: bool | None = msgspec.field(default=None, name="lo")


class TopicQueueHeader(TopicHeader, kw_only=True):
    """Base of the headers about one queue."""


H = TypeVar("H", bound=Header)

_EMPTY: dict[str, str] = {}
_wire_names: dict[type[Header], tuple[tuple[str, str], ...]] = {}


def decode_header(header_type: type[H], ext_fields: Mapping[str, str] | None) -> H:
    """The header in a command's `extFields`; unknown fields are passed over.

    Raises:
        InvalidRequestError: A required field is missing, or the text of one is not of its type.
    """
    fields = _EMPTY if ext_fields is None else ext_fields
    try:
        return msgspec.convert(fields, header_type, strict=False)
    except msgspec.ValidationError as error:
        return _decode_odd_header(header_type, fields, error)


_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")


def _decode_odd_header(header_type: type[H], fields: Mapping[str, str], cause: Exception) -> H:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(header_type):
        text = fields.get(field.encode_name)
        value = None if text is None else _read_field(inspect.type_info(field.type), text)
        if value is not None:
            values[field.encode_name] = value
        elif text is not None and (header_type.decodes_itself or field.required):
            raise InvalidRequestError(f"a custom field cannot be read: {cause}") from cause
        elif field.required:
            raise InvalidRequestError(f"the custom field <{field.encode_name}> is null") from cause
    try:
        return msgspec.convert(values, header_type)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"a custom field cannot be read: {error}") from error


def _read_field(described: inspect.Type, text: str) -> object:
    """The value of a field as Java parses it; None if it has none."""
    if isinstance(described, inspect.UnionType):
        (described,) = (kind for kind in described.types if not isinstance(kind, inspect.NoneType))
    if isinstance(described, inspect.BoolType):
        return text.lower() in ("true", "1")
    if isinstance(described, inspect.IntType):
        number = int(text) if _INTEGER.fullmatch(text) else None
        assert described.le is not None
        return number if number is not None and -described.le - 1 <= number <= described.le else None
    return text


def encode_header(header: Header) -> dict[str, str]:
    """The `extFields` of a header; what is None is left out."""
    header_type = type(header)
    names = _wire_names.get(header_type)
    if names is None:
        names = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(header_type))
        _wire_names[header_type] = names
    fields: dict[str, str] = {}
    for attribute, wire_name in names:
        value = getattr(header, attribute)
        if value is None:
            continue
        if value is True:
            fields[wire_name] = "true"
        elif value is False:
            fields[wire_name] = "false"
        else:
            fields[wire_name] = value if type(value) is str else str(value)
    return fields
