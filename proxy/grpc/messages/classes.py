"""Classes of the protocol's messages, made from the schema, and its enums.

    request = messages.SendMessageRequest.FromString(data)

They are in a descriptor pool of their own, so a process may also load a client's generated classes of the same names.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any

from thermocline.proxy.grpc.messages.codes import Code, Language
from thermocline.proxy.grpc.messages.schema import ENUMS, MESSAGES
from thermocline.remoting.errors import SettingError

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2
except ImportError as error:  # an extra of the package
    raise SettingError("the proxy needs protobuf: install thermocline[proxy]") from error

__all__ = ["PACKAGE", "SERVICE", "enums", "messages"]

PACKAGE = "apache.rocketmq.v2"
SERVICE = f"{PACKAGE}.MessagingService"

_FIELD = re.compile(
    r"(?P<number>\d+) (?P<name>\w+): (?P<repeated>\*?)(?P<type>\w+)(?P<optional>\??)(?:\|(?P<group>\w+))?"
)
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "float": _Field.TYPE_FLOAT,
    "bool": _Field.TYPE_BOOL,
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
}


def _entries(text: str) -> list[str]:
    """The table's entries, each with its continuation lines."""
    return re.sub(r"\n +", " ", text.strip()).split("\n")


def _enum_tables() -> dict[str, dict[str, int]]:
    tables: dict[str, dict[str, int]] = {}
    for entry in _entries(ENUMS):
        name, _, values = entry.partition(": ")
        pairs = [value.partition("=") for value in values.split()]
        tables[name] = {value: int(number) for value, _, number in pairs}
    for enum in (Code, Language):
        tables[enum.__name__] = {value.name: value.value for value in enum}
    return tables


class _Namespace:
    """Attributes that are made at the start, and never change."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def _message_descriptor(entry: str, enum_names: frozenset[str]) -> Any:
    name, *fields = entry.split("; ")
    message = descriptor_pb2.DescriptorProto(name=name)
    groups: dict[str, int] = {}
    optionals = []
    for text in fields:
        match = _FIELD.fullmatch(text)
        assert match is not None, text
        field = message.field.add(name=match["name"], number=int(match["number"]), label=_Field.LABEL_OPTIONAL)
        kind = match["type"]
        if match["repeated"]:
            field.label = _Field.LABEL_REPEATED
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        elif kind == "map":
            _make_map(message, field)
        elif kind in enum_names:
            field.type, field.type_name = _Field.TYPE_ENUM, f".{PACKAGE}.{kind}"
        else:
            package = "google.protobuf" if kind in ("Timestamp", "Duration") else PACKAGE
            field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"
        if match["group"]:
            field.oneof_index = groups.setdefault(match["group"], len(groups))
        elif match["optional"]:
            optionals.append(field)
    for group in groups:
        message.oneof_decl.add(name=group)
    for field in optionals:
        field.oneof_index, field.proto3_optional = len(message.oneof_decl), True
        message.oneof_decl.add(name=f"_{field.name}")
    return message


def _make_map(message: Any, field: Any) -> None:
    entry_name = "".join(word.capitalize() for word in field.name.split("_")) + "Entry"
    entry = message.nested_type.add(name=entry_name)
    entry.options.map_entry = True
    for number, name in ((1, "key"), (2, "value")):
        entry.field.add(name=name, number=number, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
    field.label, field.type = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{message.name}.{entry_name}"


def _make_classes(enum_tables: dict[str, dict[str, int]]) -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="rocketmq_v2.proto", package=PACKAGE, syntax="proto3")
    for imported in (timestamp_pb2, duration_pb2):
        pool.AddSerializedFile(imported.DESCRIPTOR.serialized_pb)
        file.dependency.append(imported.DESCRIPTOR.name)
    for name, values in enum_tables.items():
        enum = file.enum_type.add(name=name)
        for value, number in values.items():
            # Values of enums share the package's names; these are only shown in texts.
            enum.value.add(name=value, number=number)
    names = frozenset(enum_tables)
    entries = _entries(MESSAGES)
    for entry in entries:
        file.message_type.append(_message_descriptor(entry, names))
    pool.AddSerializedFile(file.SerializeToString())
    found = (entry.partition(";")[0] for entry in entries)
    classes = {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in found}
    for name in ("Timestamp", "Duration"):
        classes[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"google.protobuf.{name}"))
    return classes


_ENUM_TABLES = _enum_tables()
enums: Any = _Namespace(
    {name: IntEnum(name, values) for name, values in _ENUM_TABLES.items() if name not in ("Code", "Language")}
)
"""The enums of the schema, by name."""
messages: Any = _Namespace(_make_classes(_ENUM_TABLES))
"""The classes, by the messages' names."""
