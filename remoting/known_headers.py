"""Known headers: binary request headers that are decoded by comparison with earlier ones of the same client.

A client that sends or pulls in a loop writes the same ext fields in the same order, and few of their values change. A
header is cut at the values that do, the `varying` ones: numbers, and perhaps one text behind them.

    head | stretch | number | stretch | number | ... | stretch | text's size, text | rest
    head        code, language, version, opaque, flag, remark size (0), size of all ext fields
    stretch     whole ext fields, then name and size of the next varying one; of the text, its name alone
    rest        whole ext fields

The first header of a kind is decoded field by field, and its layout is remembered with the decoded header. A later one
with the same stretches and rest, at the same places, has the same fields, except for its varying values. Decoding it
takes one `struct` and a few comparisons, however many fields it has.

Rules
  - A stretch starts where a field starts, so equal bytes hold equal fields.
  - What does not fit (a remark, varying fields in another order, one of them twice, a number that is not written in
    plain digits) is decoded field by field. Both ways give the same header, or none.
  - Layouts are found by the ext fields in front of the first varying one; those that share them, such as sends to queue
    9 and to queue 10, are tried in turn.
  - Bounds: KEYS_MAX keys, LAYOUTS_MAX layouts each, HEADER_BYTES_MAX each; beyond them older ones are forgotten.
Belongs to one thread.
Source: RocketMQSerializable.java, FastCodesHeader.java (the order in which Java clients write), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Generic

import msgspec

from thermocline.remoting.command import BINARY_HEAD, decode_binary_header
from thermocline.remoting.errors import HeaderDecodeError, InvalidRequestError
from thermocline.remoting.header_codec import H, decode_header

KEYS_MAX = 4_096
LAYOUTS_MAX = 8
HEADER_BYTES_MAX = 1_024
"""Of a header that is remembered, its text not counted."""

DIGITS_MAX = 9
LONG_DIGITS_MAX = 18
"""How many digits a number has that surely fits its type."""

_HEAD_BYTES = BINARY_HEAD.size + 4
_HEAD_FORMAT = ">5xiiii"  # opaque, flag, remark size, size of all ext fields
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_INT_BYTES = _INT.size
_VALUES_START = 4
"""Of what a layout's `unpack` gives: stretches and numbers in turn behind the head's four values."""


class _Layout(Generic[H]):
    """One layout. `size`: bytes up to the text, or of the whole header when none varies."""

    __slots__ = ("header", "lows", "numbers_end", "rest", "size", "stretches", "unpack")

    def __init__(
        self, header: H, stretches: Sequence[bytes], digits: Sequence[int], rest: bytes, *, has_text: bool
    ) -> None:
        parts = [f"{len(stretch)}s{count}s" for stretch, count in zip(stretches, digits, strict=False)]
        if has_text:
            parts.append(f"{len(stretches[-1])}si")
        form = struct.Struct(_HEAD_FORMAT + "".join(parts))
        self.header = header
        self.stretches = tuple(stretches)
        self.lows = tuple(10 ** (count - 1) if count > 1 else 0 for count in digits)
        self.numbers_end = _VALUES_START + 2 * len(digits)
        self.rest = rest
        self.size = form.size
        self.unpack = form.unpack_from


class KnownHeaders(Generic[H]):
    """Decodes the binary headers of one type."""

    def __init__(
        self,
        header_type: type[H],
        *,
        ints: Sequence[str] = (),
        longs: Sequence[str] = (),
        text: str | None = None,
    ) -> None:
        """The attributes that vary, in the order in which official clients write them: `ints`, `longs`, `text`."""
        wire_names = {field.name: field.encode_name.encode() for field in msgspec.structs.fields(header_type)}
        self._header_type = header_type
        self._numbers = (*ints, *longs)
        self._digits_max = [DIGITS_MAX] * len(ints) + [LONG_DIGITS_MAX] * len(longs)
        self._text = text
        self._names = [wire_names[attribute] for attribute in (*self._numbers, *([text] if text else []))]
        self._first_mark = _SHORT.pack(len(self._names[0])) + self._names[0]
        self._layouts: dict[bytes, list[_Layout[H]]] = {}

    def decode(self, header: bytes) -> tuple[H, int, int] | None:
        """The typed header with opaque and flag, or None when it cannot be read. The header belongs to the caller."""
        header_bytes = len(header)
        for layout in self._layouts.get(header[_HEAD_BYTES : header.find(self._first_mark)], ()):
            start = layout.size
            if header_bytes < start:
                continue
            found: tuple[Any, ...] = layout.unpack(header)
            numbers_end = layout.numbers_end
            if found[_VALUES_START::2] != layout.stretches or found[2] or found[3] != header_bytes - _HEAD_BYTES:
                continue
            end = start
            if self._text is not None:
                end += found[numbers_end + 1]
                if not start <= end <= header_bytes:
                    return None
            if header[end:] != layout.rest:
                continue
            typed: H = layout.header.__copy__()  # type: ignore[attr-defined]  # a msgspec Struct has it
            for attribute, value, low in zip(
                self._numbers, found[_VALUES_START + 1 : numbers_end : 2], layout.lows, strict=True
            ):
                if not value.isdigit():
                    break
                number = int(value)
                if number < low:
                    break
                setattr(typed, attribute, number)
            else:
                if self._text is not None:
                    try:
                        setattr(typed, self._text, header[start:end].decode())
                    except UnicodeDecodeError:
                        return None
                return typed, found[0], found[1]
        return self._decode_fields(header)

    def _decode_fields(self, header: bytes) -> tuple[H, int, int] | None:
        try:
            command = decode_binary_header(header)
            typed = decode_header(self._header_type, command.ext_fields)
        except (HeaderDecodeError, InvalidRequestError):
            return None
        # A remark, or bytes behind the ext fields: another size than that of all ext fields stands in its place.
        if _INT.unpack_from(header, _HEAD_BYTES - _INT_BYTES)[0] == len(header) - _HEAD_BYTES and not command.remark:
            self._remember(header, typed)
        return typed, command.opaque, command.flag

    def _remember(self, header: bytes, typed: H) -> None:
        layout = self._layout_of(header, typed)
        if layout is None:
            return
        if len(self._layouts) >= KEYS_MAX:
            self._layouts = {}
        of_key = self._layouts.setdefault(header[_HEAD_BYTES : header.find(self._first_mark)], [])
        del of_key[: len(of_key) - LAYOUTS_MAX + 1]
        of_key.append(layout)

    def _layout_of(self, header: bytes, typed: H) -> _Layout[H] | None:
        """The layout; None when the header does not have every varying field, once, in order, or is too long."""
        stretches: list[bytes] = []
        digits: list[int] = []
        seen: set[bytes] = set()
        start = position = _HEAD_BYTES
        text_bytes = 0
        while position < len(header):
            name_end = position + _SHORT.size + _SHORT.unpack_from(header, position)[0]
            name = header[position + _SHORT.size : name_end]
            value_start = name_end + _INT_BYTES
            position = value_start + _INT.unpack_from(header, name_end)[0]
            if name in seen:
                return None
            seen.add(name)
            if name not in self._names:
                continue
            place = len(stretches)
            if name != self._names[place]:
                return None
            if place < len(self._numbers):
                digits.append(position - value_start)
                if not 0 < digits[-1] <= self._digits_max[place]:
                    return None
                stretches.append(header[start:value_start])
            else:
                text_bytes = position - value_start
                stretches.append(header[start:name_end])
            start = position
        if len(stretches) != len(self._names) or len(header) - text_bytes > HEADER_BYTES_MAX:
            return None
        template: H = typed.__copy__()  # type: ignore[attr-defined]
        if self._text is not None:
            setattr(template, self._text, "")  # it may be long
        return _Layout(template, stretches, digits, header[start:], has_text=self._text is not None)
