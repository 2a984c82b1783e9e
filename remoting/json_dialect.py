"""JSON as RocketMQ's Java side writes and reads it: the bodies of administrative requests.

Written like standard JSON, but
  - null members are left out, members and map keys are in alphabetical order;
  - a map with integer keys has them unquoted:        {0:"127.0.0.1:10911"}
  - a map keyed by objects has the objects as keys:   {{"brokerName":"b","queueId":0,"topic":"t"}:7}
Read as well
  - an object met before may be written as a reference to it: {"$ref":"$.path.to[0]"}, also "$", "@" and "..".
  - names without quotes, texts in single quotes, commas too many or missing, comments, numbers as Java writes them.

`dumps` writes standard JSON (what new clients ask of the NameServer; every map has text keys there), `dumps_dialect`
the Java form, which only differs for integer and object keys. `loads` reads all of it: standard text at msgspec's
speed, the rest with a parser of our own. That one is slow, so it has bounds: size, depth, references followed.
`loads_as` reads a structure: at msgspec's speed when the text is standard and every member of its type, else member by
member as leniently as RocketMQ does (json_conversion.py). If only integer keys are unquoted, a text above
STRUCTURE_BYTES_MIN is read at nearly msgspec's speed too, and may have any size. `loads_file_as` reads a state file so,
of any size in all cases.
Source: fastjson 1.2 and fastjson 2 as RemotingSerializable.java uses them, Apache RocketMQ 5.3 and 5.5.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, TypeVar

import msgspec

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.java_long import LONG_MAX, LONG_MIN
from thermocline.remoting.json_conversion import convert, number_from_text, plain

DEPTH_MAX = 64
DIALECT_BYTES_MAX = 4 * 1024 * 1024
STRUCTURE_BYTES_MIN = 64 * 1024
REFERENCED_VALUES_MAX = 200_000

T = TypeVar("T")

_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_encode_plain = msgspec.json.Encoder().encode


class ObjectKey(dict[str, Any]):
    """An object that is a key of a map; msgspec turns it into a frozen structure."""

    def __hash__(self) -> int:  # type: ignore[override]
        # With its values: keys of one hash would make a map of them cost the square of its size.
        scalars = (None if isinstance(value, dict | list) else value for value in self.values())
        return hash(frozenset(zip(self, scalars, strict=True)))


# -- writing -------------------------------------------------------------------------------------------------------


def dumps(value: object, *, ascii_only: bool = False) -> bytes:
    """Standard JSON of structures, maps, lists and scalars; integer keys are quoted, object keys refused.

    `ascii_only` escapes every other character, as the NameServer does for route queries.
    """
    try:
        data = _encode_sorted(value)
    except TypeError:  # integer keys, which msgspec does not sort
        data = b""
    if not data or b"null" in data:  # rare: only then is it worth looking where
        data = _encode_sorted(_without_nulls(msgspec.to_builtins(value, str_keys=True)))
    if ascii_only and not data.isascii():
        return _NON_ASCII.sub(_escape, data.decode()).encode()
    return data


def dumps_dialect(value: object) -> bytes:
    """The Java form: integer keys unquoted, frozen structures as keys."""
    pieces: list[str] = []
    _write(value, pieces)
    return "".join(pieces).encode()


_NON_ASCII = re.compile(r"[^\x00-\x7f]")


def _escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _write(value: object, pieces: list[str]) -> None:
    if isinstance(value, msgspec.Struct):
        names = sorted(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        members = ((name, getattr(value, attribute)) for name, attribute in names)
        _write_members(((name, member) for name, member in members if member is not msgspec.UNSET), pieces)
    elif isinstance(value, dict):
        _write_members(sorted(value.items(), key=_key_order), pieces)
    elif isinstance(value, list | tuple | set | frozenset):
        pieces.append("[")
        items = sorted(value) if isinstance(value, set | frozenset) else value
        for index, item in enumerate(items):
            if index:
                pieces.append(",")
            _write(item, pieces)
        pieces.append("]")
    else:
        pieces.append(_encode_plain(value).decode())


def _key_order(item: tuple[object, object]) -> tuple[int, Any]:
    key = item[0]
    if isinstance(key, int):
        return 0, key
    if isinstance(key, str):
        return 1, key
    return 2, dumps_dialect(key)


def _write_members(members: Any, pieces: list[str]) -> None:
    pieces.append("{")
    first = True
    for key, member in members:
        if member is None:
            continue
        if not first:
            pieces.append(",")
        first = False
        if isinstance(key, str):
            pieces.append(_encode_plain(key).decode())
        elif isinstance(key, int):
            pieces.append(str(int(key)))
        else:
            _write(key, pieces)
        pieces.append(":")
        _write(member, pieces)
    pieces.append("}")


# -- reading -------------------------------------------------------------------------------------------------------


def loads(data: bytes | memoryview) -> Any:
    """The value of a text in either form; unquoted integer keys come as int, object keys as `ObjectKey`.

    Raises:
        InvalidRequestError: It is neither.
    """
    return plain(read_exactly(data))


def loads_as(data: bytes | memoryview, value_type: type[T]) -> T:
    """The value of a text in either form as a structure; members that the structure does not have are passed over.

    Raises:
        InvalidRequestError: It is no JSON of either form, or does not fit the type.
    """
    if b"$ref" not in bytes(data):
        try:
            return msgspec.json.decode(data, type=value_type)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass  # the dialect, members of other types, or not JSON at all: the slow way decides
        if len(data) > STRUCTURE_BYTES_MIN:
            # The registration of a broker with many topics may be: static ones have unquoted keys.
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return msgspec.json.decode(quote_integer_keys(data), type=value_type)
    return convert(read_exactly(data), value_type)


def loads_file_as(data: bytes | memoryview, value_type: type[T]) -> T:
    """As `loads_as`, for a table in a file, or in a broker's answer: it is as large as the broker has entries.

    Raises:
        InvalidRequestError: It is no JSON of either form, or does not fit the type.
    """
    data = bytes(data)
    if b"$ref" not in data:
        for text in (data, quote_integer_keys(data)):
            try:
                return msgspec.json.decode(text, type=value_type)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue  # the next form, or the slow way
    return convert(read_exactly(data, bytes_max=len(data)), value_type)


def quote_integer_keys(data: bytes | memoryview) -> bytes:
    """The text with quotes around integer keys that have none; what stands in a text is no key."""
    return _UNQUOTED_KEY.sub(_quote_key, bytes(data))


_UNQUOTED_KEY = re.compile(rb'"(?:[^"\\]|\\.)*+"|([{,]\s*+)(-?[0-9]++)(?=\s*:)', re.DOTALL)


def _quote_key(match: re.Match[bytes]) -> bytes:
    before, key = match.groups()
    return match.group() if key is None else b'%b"%b"' % (before, key)


def read_exactly(data: bytes | memoryview, *, bytes_max: int = DIALECT_BYTES_MAX) -> Any:
    """As `loads`, fractions as exact as they are written, for `convert`. `bytes_max`: of text that is not standard."""
    try:
        value = _exact_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _parse(data, bytes_max)
    if b"$ref" in bytes(data):
        return _resolve_references(value)
    return value


_exact_decoder = msgspec.json.Decoder(float_hook=number_from_text)


def loads_dialect(data: bytes | memoryview) -> Any:
    """As `loads`, always with the tolerant parser."""
    return plain(_parse(data))


def _parse(data: bytes | memoryview, bytes_max: int = DIALECT_BYTES_MAX) -> Any:
    if len(data) > bytes_max:
        raise InvalidRequestError("the body is too large", size_bytes=len(data), size_bytes_max=bytes_max)
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError("the body is not UTF-8") from error
    parser = _Parser(text.removeprefix("\ufeff"))
    value = parser.parse()
    return _resolve_references(value) if parser.has_references else value


_SPACE = re.compile(r"(?:[ \t\r\n\f\b\0]+|/\*(?s:.*?)\*/|//[^\n]*(?:\n|$))*")
_BARE = re.compile(r"[A-Za-z0-9_$.+\-]+")
_TEXT_CHUNK = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPES |= {"F": "\f", **{str(code): chr(code) for code in range(8)}}
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None}


class _Parser:
    """Recursive descent over one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self.has_references = False

    def parse(self) -> Any:
        value = self._value(DEPTH_MAX)
        self._skip_space()
        if self._position != len(self._text):
            raise self._error("something follows the value")
        return value

    def _error(self, what: str) -> InvalidRequestError:
        return InvalidRequestError(f"not JSON: {what}", position=self._position)

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._position)
        assert match is not None
        self._position = match.end()

    def _peek(self) -> str:
        self._skip_space()
        return self._text[self._position : self._position + 1]

    def _value(self, depth: int) -> Any:
        if depth == 0:
            raise self._error("nested too deeply")
        first = self._peek()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        if first == "":
            raise self._error("it ends too early")
        if first in ('"', "'"):
            return self._string(first)
        return self._bare_value()

    def _bare_word(self) -> str:
        match = _BARE.match(self._text, self._position)
        if match is None:
            raise self._error("a value is missing")
        self._position = match.end()
        return match.group()

    def _bare_value(self) -> Any:
        word = self._bare_word()
        if word in _WORDS:
            return _WORDS[word]
        number = word[:-1] if word[-1] in "LSBFD" else word  # Java's suffixes, which fastjson reads
        try:
            return number_from_text(number)
        except ValueError:
            raise self._error("neither a number nor a word") from None

    def _array(self, depth: int) -> list[Any]:
        self._position += 1
        items: list[Any] = []
        while True:
            following = self._peek()
            if following == "]":
                self._position += 1
                return items
            if following == ",":
                self._position += 1
                continue
            items.append(self._value(depth - 1))

    def _object(self, depth: int) -> dict[Any, Any]:
        self._position += 1
        members: dict[Any, Any] = {}
        while True:
            following = self._peek()
            if following == "}":
                self._position += 1
                return members
            if following == ",":
                self._position += 1
                continue
            key = self._key(following, depth)
            if self._peek() != ":":
                raise self._error("a colon is missing")
            self._position += 1
            members[key] = self._value(depth - 1)
            if key == "$ref":
                self.has_references = True

    def _key(self, first: str, depth: int) -> Any:
        if first in ('"', "'"):
            return self._string(first)
        if first == "{":
            return ObjectKey(self._value(depth - 1))
        if first in ("[", ""):
            raise self._error("a name is missing")
        word = self._bare_word()
        # Integers beyond 64 bits stay text: of these, as many as wanted have one hash.
        return int(word) if _INTEGER.fullmatch(word) and LONG_MIN <= int(word) <= LONG_MAX else word

    def _string(self, quote: str) -> str:
        self._position += 1
        chunk = _TEXT_CHUNK[quote]
        pieces: list[str] = []
        while True:
            match = chunk.match(self._text, self._position)
            assert match is not None
            pieces.append(match.group())
            self._position = match.end() + 1
            stop = self._text[match.end() : match.end() + 1]
            if stop == quote:
                return "".join(pieces)
            if stop != "\\":
                raise self._error("a text is not closed")
            pieces.append(self._escape())

    def _escape(self) -> str:
        letter = self._text[self._position : self._position + 1]
        self._position += 1
        if letter in _ESCAPES and letter:
            return _ESCAPES[letter]
        if letter == "x":
            return chr(self._hexadecimal(2))
        if letter == "u":
            unit = self._hexadecimal(4)
            if 0xD800 <= unit < 0xDC00 and self._text.startswith("\\u", self._position):
                self._position += 2
                low = self._hexadecimal(4)
                if 0xDC00 <= low < 0xE000:
                    return chr(0x10000 + (unit - 0xD800 << 10) + (low - 0xDC00))
                raise self._error("half of a surrogate pair")
            if 0xD800 <= unit < 0xE000:
                raise self._error("half of a surrogate pair")
            return chr(unit)
        raise self._error("an unknown escape")

    def _hexadecimal(self, count: int) -> int:
        digits = self._text[self._position : self._position + count]
        if len(digits) != count or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise self._error(f"{count} hexadecimal digits are missing")
        self._position += count
        return int(digits, 16)


# -- references ----------------------------------------------------------------------------------------------------

_PATH_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[['\"]([^'\"]*)['\"]\]")


def _resolve_references(root: Any) -> Any:
    """Put in place of every {"$ref": path} what the path names; a reference that leads nowhere becomes None.

    Raises:
        InvalidRequestError: The references blow the value up beyond `REFERENCED_VALUES_MAX`, or lead too deep.
    """
    return _Resolver(root).resolve(root, (), DEPTH_MAX)


class _Resolver:
    """One value whose references are being replaced."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._values_left = REFERENCED_VALUES_MAX

    def resolve(self, value: Any, parents: tuple[Any, ...], depth: int) -> Any:
        self._values_left -= 1
        if depth == 0 or self._values_left < 0:
            raise InvalidRequestError("not JSON: too many references")
        if isinstance(value, dict):
            if len(value) == 1 and isinstance(path := value.get("$ref"), str):
                target = _follow(path, self._root, parents)
                if target is None or target is self._root or any(target is parent for parent in parents):
                    return None  # nowhere, or a cycle: no body of the protocol needs one
                return self.resolve(target, (), depth - 1)
            inside = (*parents, value)
            return {key: self.resolve(member, inside, depth - 1) for key, member in value.items()}
        if isinstance(value, list):
            inside = (*parents, value)
            return [self.resolve(item, inside, depth - 1) for item in value]
        return value


def _follow(path: str, root: Any, parents: tuple[Any, ...]) -> Any:
    if path == "@":
        return parents[-1] if parents else None
    if path == "..":
        return parents[-2] if len(parents) > 1 else None
    if not path.startswith("$"):
        return None
    value, position = root, 1
    while position < len(path):
        step = _PATH_STEP.match(path, position)
        if step is None:
            return None
        position = step.end()
        name, index, quoted = step.groups()
        if index is not None:
            if isinstance(value, list) and int(index) < len(value):
                value = value[int(index)]
            elif isinstance(value, dict):
                value = value.get(int(index), value.get(index))
            else:
                return None
        else:
            if not isinstance(value, dict):
                return None
            key = name if quoted is None else quoted
            value = value.get(key)
        if value is None:
            return None
    return value
