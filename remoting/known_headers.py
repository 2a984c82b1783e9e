"""Known headers: binary request headers that are decoded by comparison with earlier ones of the same client.

A client that sends or pulls in a loop writes the same ext fields in the same order, and few of their values change. A
header is cut at the values that do, the `varying` ones:

    head | stretch 1 | value 1 | stretch 2 | value 2 | ... | stretch n
    head        code, language, version, opaque, flag, remark size (0), size of all ext fields
    stretch     whole ext fields, then the name of the next varying one and its value's size
    value       its bytes

The first header of a kind is decoded field by field, and its stretches are remembered as a path in a tree, at whose end
the decoded header is. A later one whose stretches lead along the same path has the same fields, except for its varying
values. Decoding such a header costs a search and a look-up a stretch, however many fields it has.

Rules
  - A stretch starts where a field starts. Equal bytes from there on hold equal fields, so the search for a varying name
    can end at a wrong place only where no path goes on.
  - What does not fit (a remark, varying fields in another order, one of them twice, a number that is not written in
    plain digits) is decoded field by field. Both ways give the same header, or none.
  - Bounds: PATHS_MAX paths of HEADER_BYTES_MAX each; beyond them the tree is begun anew.
Belongs to one thread.
Source: RocketMQSerializable.java, FastCodesHeader.java (the order in which Java clients write), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Generic

import msgspec

from thermocline.remoting.command import BINARY_HEAD, decode_binary_header
from thermocline.remoting.errors import HeaderDecodeError, InvalidRequestError
from thermocline.remoting.header_codec import H, decode_header

PATHS_MAX = 4_096
HEADER_BYTES_MAX = 2_048
"""Of a header that is remembered, its varying values not counted."""

DIGITS_MAX = {"int": 9, "long": 18, "text": 0}
"""How many digits a number of each kind has for certain."""

_HEAD = struct.Struct(BINARY_HEAD.format + "i")  # and the size of all ext fields, as there is no remark
_HEAD_BYTES = _HEAD.size
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_INT_BYTES = _INT.size
_ZERO = ord("0")

_unpack_head = _HEAD.unpack_from
_unpack_int = _INT.unpack_from


class KnownHeaders(Generic[H]):
    """Decodes the binary headers of one type."""

    def __init__(self, header_type: type[H], varying: Mapping[str, str]) -> None:
        """`varying`: attribute -> kind ("int", "long", "text"), in the order in which official clients write them."""
        wire_names = {field.name: field.encode_name for field in msgspec.structs.fields(header_type)}
        self._header_type = header_type
        self._varying = [(attribute, DIGITS_MAX[kind]) for attribute, kind in varying.items()]
        self._names = [wire_names[attribute].encode() for attribute in varying]
        self._marks = [_SHORT.pack(len(name)) + name for name in self._names]
        self._tree: dict[Any, Any] = {}
        self._path_count = 0

    def decode(self, header: bytes) -> tuple[H, int, int] | None:
        """The typed header with opaque and flag, or None when it cannot be read. The header belongs to the caller."""
        header_bytes = len(header)
        if header_bytes < _HEAD_BYTES:
            return None
        _code, _language, _version, opaque, flag, remark_bytes, fields_bytes = _unpack_head(header)
        if remark_bytes or fields_bytes != header_bytes - _HEAD_BYTES:
            return self._decode_fields(header)
        node: Any = self._tree
        values: list[bytes] = []
        position = _HEAD_BYTES
        for mark in self._marks:
            size_position = header.find(mark, position) + len(mark)
            node = node.get(header[position:size_position])
            if node is None or size_position + _INT_BYTES > header_bytes:
                return self._decode_fields(header)
            position = size_position + _INT_BYTES
            end = position + _unpack_int(header, size_position)[0]
            if not position <= end <= header_bytes:
                return None
            values.append(header[position:end])
            position = end
        known = node.get(header[position:])
        if known is None:
            return self._decode_fields(header)
        typed = copy(known)
        for (attribute, digits_max), value in zip(self._varying, values, strict=True):
            if not digits_max:
                try:
                    setattr(typed, attribute, value.decode())
                except UnicodeDecodeError:
                    return None
            elif value.isdigit() and len(value) <= digits_max and (value[0] != _ZERO or len(value) == 1):
                setattr(typed, attribute, int(value))
            else:
                return self._decode_fields(header)
        return typed, opaque, flag

    def _decode_fields(self, header: bytes) -> tuple[H, int, int] | None:
        try:
            command = decode_binary_header(header)
            typed = decode_header(self._header_type, command.ext_fields)
        except (HeaderDecodeError, InvalidRequestError):
            return None
        if command.remark is None:
            self._remember(header, typed)
        return typed, command.opaque, command.flag

    def _remember(self, header: bytes, typed: H) -> None:
        stretches = self._stretches(header)
        if stretches is None:
            return
        if self._path_count >= PATHS_MAX:
            self._tree = {}
            self._path_count = 0
        node = self._tree
        for stretch in stretches[:-1]:
            node = node.setdefault(stretch, {})
        if stretches[-1] not in node:
            self._path_count += 1
            known = node[stretches[-1]] = copy(typed)
            for attribute, digits_max in self._varying:
                if not digits_max:
                    setattr(known, attribute, "")  # it may be long

    def _stretches(self, header: bytes) -> Sequence[bytes] | None:
        """The header's stretches; None when it does not have every varying field, once, in order, or is too long."""
        stretches: list[bytes] = []
        seen: set[bytes] = set()
        start = position = _HEAD_BYTES
        while position < len(header):
            name_end = position + _SHORT.size + _SHORT.unpack_from(header, position)[0]
            name = header[position + _SHORT.size : name_end]
            value_start = name_end + _INT_BYTES
            position = value_start + _unpack_int(header, name_end)[0]
            if name in seen:
                return None
            seen.add(name)
            if name in self._names:
                if name != self._names[len(stretches)]:
                    return None
                stretches.append(header[start:name_end])
                start = position
        if len(stretches) != len(self._names):
            return None
        stretches.append(header[start:])
        return stretches if sum(map(len, stretches)) <= HEADER_BYTES_MAX else None
