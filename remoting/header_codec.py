"""Typed headers: a command's `extFields` as a structure, and back.

On the wire every header field is text: numbers in decimal, booleans `true` and `false`, null not sent. A header type
is a `Header` with one attribute a field; attributes are snake_case, names on the wire camelCase unless `name=` says
otherwise. A field without default is one that the request makes no sense without; what RocketMQ's own clients always
send but other clients may not has RocketMQ's default here.

    class GetMinOffsetRequestHeader(TopicQueueHeader):
        topic: str
        queue_id: Int

Source: RemotingCommand.java (decodeCommandCustomHeader), FastCodesHeader.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec

from thermocline.remoting.errors import InvalidRequestError

Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""Java's int."""

Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's long."""


class Header(msgspec.Struct, rename="camel", kw_only=True):
    """Base of every header type."""


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
        raise _invalid_header(header_type, fields, error) from error


def _invalid_header(header_type: type[Header], fields: Mapping[str, str], cause: Exception) -> InvalidRequestError:
    for field in msgspec.structs.fields(header_type):
        if field.required and field.encode_name not in fields:
            return InvalidRequestError(f"the custom field <{field.encode_name}> is null")
    return InvalidRequestError(f"a custom field cannot be read: {cause}")


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
