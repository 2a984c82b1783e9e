"""Protobuf bodies: one message each, of the type that the reader names, from a descriptor set.

    double, float, bool, string, bytes    the same
    int32, sint32, sfixed32               int
    uint32, fixed32, int64 and its kin    bigint
    uint64, fixed64                       decimal(20,0)
    enum                                  string: the value's name, its number where it has none
    message                               struct; null when it is not there
    google.protobuf.Timestamp             timestamp
    repeated, map                         array, map

A field that is not there is null when its presence is known (`optional`, proto2, oneof, messages), else its default, as
Protobuf means it. Unknown fields are passed over. Messages that contain themselves are refused: they have no columns.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.bodies.column_values import BadBodies, SchemaRules
from thermocline.spark.missing_extra import missing_extra

_TIMESTAMP = "google.protobuf.Timestamp"


class ProtobufBodies(SchemaRules):
    """Decodes Protobuf, and says what fits which type; see the module."""

    def __init__(self, descriptors: bytes, message_name: str) -> None:
        """Find the message's type.

        Raises:
            InvalidRequestError: protobuf is not installed, it is no descriptor set, or the type is not in it.
        """
        from google.protobuf import message, message_factory

        descriptor = _descriptor(descriptors, message_name)
        self._parse: Callable[[bytes], Any] = message_factory.GetMessageClass(descriptor).FromString
        self._error = message.DecodeError
        self._reader = _message_reader(descriptor)

    def decode(self, bodies: Sequence[bytes | None], bad: BadBodies) -> list[dict[str, Any] | None]:
        """The message in each body; None, and marked as bad, where there is none."""
        decoded: list[dict[str, Any] | None] = []
        for place, body in enumerate(bodies):
            value: dict[str, Any] | None = None
            if body is not None:
                try:
                    value = self._reader(self._parse(body))
                except self._error as error:
                    bad.mark(place, f"no Protobuf message of the type: {error}")
            decoded.append(value)
        return decoded


def descriptor_bytes(text: str) -> bytes:
    """The descriptor set that an option names: a file on this machine, or the set itself in base64.

    Raises:
        InvalidRequestError: It is neither.
    """
    path = text.removeprefix("file://")
    if path.startswith("/"):
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise InvalidRequestError("the descriptor set cannot be read", path=path) from error
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise InvalidRequestError(
            "name the file of the descriptor set (protoc --include_imports --descriptor_set_out), or give it in base64",
            option="bodySchema",
        ) from error


def protobuf_ddl(descriptors: bytes, message_name: str) -> str:
    """The columns of a message type as Spark's DDL.

    Raises:
        InvalidRequestError: As for ProtobufBodies; or the type contains itself.
    """
    descriptor = _descriptor(descriptors, message_name)
    return ", ".join(f"`{field.name}` {_ddl(field, (descriptor.full_name,))}" for field in descriptor.fields)


def _descriptor(descriptors: bytes, message_name: str) -> Any:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message
    except ImportError as error:
        raise InvalidRequestError(missing_extra("protobuf, which Protobuf bodies need,", "bodies")) from error
    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(descriptors)
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(message_name)
    except KeyError as error:
        raise InvalidRequestError(
            "the descriptor set has no such message", option="bodyMessage", message_name=message_name
        ) from error
    except (message.DecodeError, TypeError) as error:
        raise InvalidRequestError(
            "no descriptor set, or one without its imports (protoc --include_imports)", option="bodySchema"
        ) from error


def _ddl(field: Any, seen: tuple[str, ...]) -> str:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return f"MAP<{_one_ddl(key, seen)}, {_one_ddl(value, seen)}>"
    one = _one_ddl(field, seen)
    return f"ARRAY<{one}>" if _is_repeated(field) else one


def _one_ddl(field: Any, seen: tuple[str, ...]) -> str:
    kind = _KINDS.get(field.type)
    if kind is not None:
        return kind
    inner = field.message_type
    if inner.full_name == _TIMESTAMP:
        return "timestamp"
    if inner.full_name in seen:
        raise InvalidRequestError(
            "a message that contains itself has no columns", option="bodyMessage", message_name=inner.full_name
        )
    names = ", ".join(f"`{one.name}`: {_ddl(one, (*seen, inner.full_name))}" for one in inner.fields)
    return f"STRUCT<{names}>"


def _message_reader(descriptor: Any) -> Callable[[Any], dict[str, Any]]:
    """A function from a message to a dict of what its columns hold."""
    readers = [(field.name, _field_reader(field)) for field in descriptor.fields]

    def read(message: Any) -> dict[str, Any]:
        return {name: reader(message) for name, reader in readers}

    return read


def _field_reader(field: Any) -> Callable[[Any], Any]:
    name = field.name
    if _is_map(field):
        value = _value_reader(field.message_type.fields_by_name["value"])
        return lambda message: {key: value(one) for key, one in getattr(message, name).items()}
    one_reader = _value_reader(field)
    if _is_repeated(field):
        return lambda message: [one_reader(one) for one in getattr(message, name)]
    if field.has_presence:
        return lambda message: one_reader(getattr(message, name)) if message.HasField(name) else None
    return lambda message: one_reader(getattr(message, name))


def _value_reader(field: Any) -> Callable[[Any], Any]:
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    if field.message_type is None:
        return lambda value: value
    if field.message_type.full_name == _TIMESTAMP:
        return lambda moment: moment.seconds * 1_000_000 + moment.nanos // 1_000
    return _message_reader(field.message_type)


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _is_repeated(field: Any) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)  # protobuf before 6.31


# By google.protobuf.FieldDescriptor.TYPE_*; messages and groups are not among them.
_KINDS = {
    1: "double",
    2: "float",
    3: "bigint",
    4: "decimal(20,0)",
    5: "int",
    6: "decimal(20,0)",
    7: "bigint",
    8: "boolean",
    9: "string",
    12: "binary",
    13: "bigint",
    14: "string",
    15: "int",
    16: "bigint",
    17: "int",
    18: "bigint",
}
