"""A JSON value as a structure, as leniently as RocketMQ's own decoder takes it.

Clients in other languages write members as their libraries do: enum constants as ordinals, numbers as text, flags as
numbers. What fastjson takes is taken here, with the same value:

    member      is taken from
    number      a number, its fraction cut off; its text; true and false; the only item of a list; {"val": number}
    flag        true, false; a number, of which only 1 and -1 are true; "true", "false" in any case, "1", "Y", "0", "N"
    text        a text; a number or flag, as it is written in Java; an object or list, as JSON
    enum        a constant's name in any case; its ordinal, as number or text; of a name not known: not sent
    list, set   a list; a single item where a list belongs
    structure   an object
    map         an object; keys may be numbers, texts or, where structures are keys, objects

Anything else does not fit: an ordinal that does not exist, a number beyond its type, a text that is no number.

Three rules are ours. The first two apply where the official decoders of releases 5.5.0 and before differ, or take what
their broker then fails on.
  - null, and for all but text an empty text, counts as not sent, and what is not sent has its default: 5.5.0 reads such
    a number as 0, releases before as its default.
  - null is left out of lists and maps: the official broker keeps it and fails with a NullPointerException when it comes
    to it.
  - A member that RocketMQ does not have (EXTENSION) counts as not sent if it does not fit: RocketMQ ignores it.
Source: fastjson 2.0.59 (JSONReader.java, ObjectReaderImplEnum.java, ObjectReaderImplList.java), as RemotingSerializable
of Apache RocketMQ 5.5.0 uses it; fastjson 1.2 in releases before. Held against both by
`tests/interop/test_official_decoder.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from thermocline.remoting.errors import InvalidRequestError

T = TypeVar("T")

INT_BITS = 32
LONG_BITS = 64
# Bounded: the time that Python takes for a number grows with the square of its length.
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3}){1,100}")
_FRACTION = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,9})?")
_NAME_SEPARATORS = str.maketrans("", "", "_- ")


class _NotSent(Enum):
    """The value of null."""

    NOT_SENT = 0


NOT_SENT = _NotSent.NOT_SENT

Converter = Callable[[Any], Any]
"""From what a JSON reader gave to the member's value, or NOT_SENT; raises `_MisfitError`."""


class _MisfitError(Exception):
    """A value cannot become a member; `path` names it from the outside in."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: list[str] = []


def enum_names(*names: str, keeps_unknown: bool = False) -> msgspec.Meta:
    """Of a text that is one of a Java enum's constants, in the order of their ordinals: for `Annotated[str, ...]`.

    `keeps_unknown`: another name stays as it is, for a request that refuses it; else it counts as not sent.
    """
    return msgspec.Meta(pattern=f"^(?:{'|'.join(names)})$", extra={"names": names, "keeps_unknown": keeps_unknown})


EXTENSION = msgspec.Meta(extra={"is_extension": True})
"""Marks a member that RocketMQ does not have, for `Annotated[..., EXTENSION]`; it must have a default."""


def number_from_text(text: str) -> int | float | Decimal:
    """A number as JSON writes it; a fraction stays as exact as it is written, unless it has an exponent.

    Raises:
        ValueError: There is none.
    """
    if _INTEGER.fullmatch(text):
        return int(text)
    if not _FRACTION.fullmatch(text):
        raise ValueError(text)
    return float(text) if "e" in text or "E" in text else Decimal(text)


def convert(value: Any, value_type: type[T]) -> T:
    """What a JSON reader gave as `value_type`.

    Raises:
        InvalidRequestError: It does not fit; the message names the member.
    """
    converter = _converters.get(value_type)
    if converter is None:
        converter = _converters[value_type] = _make(inspect.type_info(value_type), {})
    try:
        converted = converter(value)
    except _MisfitError as error:
        where = ".".join(error.path)
        raise InvalidRequestError(f"the JSON does not fit: {f'{where}: ' if where else ''}{error}") from error
    if converted is NOT_SENT:
        raise InvalidRequestError("the JSON does not fit: there is none")
    fitted: T = converted
    return fitted


_converters: dict[Any, Converter] = {}


# -- one converter a type ----------------------------------------------------------------------------------------------


def _make(described: inspect.Type, structures: dict[type, Converter]) -> Converter:
    """The converter of a type; `structures`: those of the structures around it, which may be in it again."""
    names: tuple[str, ...] = ()
    keeps_unknown = False
    if isinstance(described, inspect.Metadata):
        extra = described.extra or {}
        names, keeps_unknown = extra.get("names", ()), extra.get("keeps_unknown", False)
        described = described.type
    if isinstance(described, inspect.StructType):
        converter = structures.get(described.cls)
        return converter or _structure_converter(described, structures)
    if isinstance(described, inspect.UnionType):
        return _optional_converter(described, structures)
    if isinstance(described, inspect.DictType):
        return _map_converter(described, structures)
    if isinstance(described, inspect.ListType | inspect.SetType | inspect.FrozenSetType | inspect.VarTupleType):
        return _collection_converter(described, structures)
    if isinstance(described, inspect.StrType):
        return _enum_converter(names, keeps_unknown=keeps_unknown) if names else _text
    if isinstance(described, inspect.IntType):
        return _int if described.le == 2 ** (INT_BITS - 1) - 1 else _long
    if isinstance(described, inspect.BoolType):
        return _flag
    if isinstance(described, inspect.FloatType):
        return _double
    assert isinstance(described, inspect.AnyType), described
    return plain


def plain(value: Any) -> Any:
    """The value with Python's own numbers."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def _structure_converter(described: inspect.StructType, structures: dict[type, Converter]) -> Converter:
    members: dict[str, tuple[str, Converter]] = {}
    required = [field for field in described.fields if field.required]
    cls = described.cls

    def structure(value: Any) -> Any:
        if not isinstance(value, dict):
            return _not_sent_or_misfit(value, "an object is expected")
        arguments: dict[str, Any] = {}
        for name, member in value.items():
            found = members.get(name)
            if found is None:
                continue
            try:
                converted = found[1](member)
            except _MisfitError as error:
                error.path.insert(0, name)
                raise
            if converted is not NOT_SENT:
                arguments[found[0]] = converted
        for field in required:
            if field.name not in arguments:
                raise _MisfitError(f"{field.encode_name} is missing")
        return cls(**arguments)

    structures[cls] = structure
    for field in described.fields:
        converter = _make(field.type, structures)
        if isinstance(field.type, inspect.Metadata) and (field.type.extra or {}).get("is_extension"):
            assert not field.required, field
            converter = _lenient_converter(converter)
        members[field.encode_name] = (field.name, converter)
    return structure


def _lenient_converter(inner: Converter) -> Converter:
    """A value of another type counts as not sent."""

    def lenient(value: Any) -> Any:
        try:
            return inner(value)
        except _MisfitError:
            return NOT_SENT

    return lenient


def _optional_converter(described: inspect.UnionType, structures: dict[type, Converter]) -> Converter:
    kinds = [kind for kind in described.types if not isinstance(kind, inspect.NoneType)]
    assert len(kinds) == 1, described
    inner = _make(kinds[0], structures)

    def optional(value: Any) -> Any:
        converted = inner(value)
        return None if converted is NOT_SENT else converted

    return optional


def _map_converter(described: inspect.DictType, structures: dict[type, Converter]) -> Converter:
    key_converter = _make(described.key_type, structures)
    value_converter = _make(described.value_type, structures)
    holds_texts = isinstance(described.value_type, inspect.StrType)

    def mapping(value: Any) -> Any:
        if holds_texts and isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
            value = value[0]
        if not isinstance(value, dict):
            return _not_sent_or_misfit(value, "an object is expected")
        converted: dict[Any, Any] = {}
        for key, member in value.items():
            try:
                name, item = key_converter(key), value_converter(member)
            except _MisfitError as error:
                error.path.insert(0, str(key))
                raise
            if name is NOT_SENT:
                continue
            if item is NOT_SENT:
                converted.pop(name, None)  # 1 and "1" may be one key: the last value counts, null too
            else:
                converted[name] = item
        return converted

    return mapping


def _collection_converter(
    described: inspect.ListType | inspect.SetType | inspect.FrozenSetType | inspect.VarTupleType,
    structures: dict[type, Converter],
) -> Converter:
    item_converter = _make(described.item_type, structures)
    makers: dict[type, Callable[..., Any]] = {
        inspect.ListType: list,
        inspect.SetType: set,
        inspect.FrozenSetType: frozenset,
        inspect.VarTupleType: tuple,
    }
    make = makers[type(described)]
    holds_texts = item_converter is _text

    def collection(value: Any) -> Any:
        if value is None or (value == "null" and not holds_texts):
            return NOT_SENT
        if isinstance(value, list):
            items = value
        elif value == "":
            return make() if holds_texts else NOT_SENT
        elif holds_texts and not isinstance(value, str | dict):
            raise _MisfitError("a list is expected")
        else:
            items = [value]
        converted = []
        for index, item in enumerate(items):
            try:
                converted.append(item_converter(item))
            except _MisfitError as error:
                error.path.insert(0, str(index))
                raise
        return make(item for item in converted if item is not NOT_SENT)

    return collection


def _enum_converter(names: tuple[str, ...], *, keeps_unknown: bool) -> Converter:
    by_name = {folded_name(name): name for name in names}

    def enum(value: Any) -> Any:
        if value is None:
            return NOT_SENT
        if isinstance(value, str):
            found = by_name.get(folded_name(value))
            if found is None and _INTEGER.fullmatch(value) and 0 <= int(value) < len(names):
                found = names[int(value)]
            if found is None:
                return value if keeps_unknown else NOT_SENT
            return found
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise _MisfitError("the name of a constant is expected")
        ordinal = int(value)
        if not 0 <= ordinal < len(names):
            raise _MisfitError(f"there is no constant with the ordinal {ordinal}")
        return names[ordinal]

    return enum


def folded_name(name: str) -> str:
    """The name of an enum's constant as it is compared: without case and separators."""
    return name.translate(_NAME_SEPARATORS).lower()


def _not_sent_or_misfit(value: Any, expected: str) -> _NotSent:
    if value is None or (isinstance(value, str) and value in ("", "null")):
        return NOT_SENT
    raise _MisfitError(expected)


# -- scalars -----------------------------------------------------------------------------------------------------------


def _text(value: Any) -> Any:
    if type(value) is str:
        return value
    if value is None:
        return NOT_SENT
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, list) and len(value) == 1 and (value[0] is None or isinstance(value[0], str)):
        return NOT_SENT if value[0] is None else value[0]
    if isinstance(value, dict | list):
        return msgspec.json.encode(_without_nulls(value)).decode()
    return str(value)


def _without_nulls(value: Any) -> Any:
    """As fastjson writes a value: no null members, fractions as they were read."""
    if isinstance(value, Decimal):
        return msgspec.Raw(str(value).encode())
    if isinstance(value, dict):
        return {_text(key): _without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _java_double(number: float) -> str:
    """As Double.toString: plain from 1e-3 to below 1e7, else with an exponent."""
    if number == 0 or 1e-3 <= abs(number) < 1e7 or number != number or abs(number) == float("inf"):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(number), repr(number))
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"


def _flag(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if value is None:
        return NOT_SENT
    if isinstance(value, int | float | Decimal):
        return isinstance(value, int) and abs(value) == 1
    if isinstance(value, str):
        return _flag_from_text(value)
    raise _MisfitError("true or false is expected")


def _flag_from_text(text: str) -> bool | _NotSent:
    if text in ("1", "Y", "0", "N"):
        return text in ("1", "Y")
    folded = text.lower()
    if folded in ("", "null"):
        return NOT_SENT
    if folded not in ("true", "false"):
        raise _MisfitError("true or false is expected")
    return folded == "true"


def _int(value: Any) -> Any:
    return _whole(value, INT_BITS)


def _long(value: Any) -> Any:
    return _whole(value, LONG_BITS)


def _whole(value: Any, bits: int) -> Any:
    """A whole number that Java's int or long holds."""
    number = _number(value, bits)
    if isinstance(number, _NotSent):
        return number
    limit = 2 ** (bits - 1)
    if isinstance(number, Decimal):  # as BigDecimal.intValue: the lowest bits
        return (int(number) + limit) % (2 * limit) - limit
    if isinstance(number, float):  # as a cast of a double: the nearest there is
        return 0 if number != number else int(min(max(number, -limit), limit - 1))
    if not -limit <= number < limit:
        raise _MisfitError(f"{number} is beyond {bits} bits")
    return int(number)


def _number(value: Any, bits: int) -> int | float | Decimal | _NotSent:
    if value is None:
        return NOT_SENT
    if isinstance(value, int | float | Decimal):
        return value
    if isinstance(value, str):
        return _number_from_quoted(value)
    if isinstance(value, Mapping):
        inner = value.get("val")
        if isinstance(inner, int | float | Decimal) and not isinstance(inner, bool):
            return inner
        if bits == INT_BITS:
            return 0
    elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], int | float | Decimal | str):
        item = value[0]
        if not isinstance(item, bool):
            return _number_from_quoted(item) if isinstance(item, str) else item
    raise _MisfitError("a number is expected")


def _number_from_quoted(text: str) -> int | float | Decimal | _NotSent:
    if text in ("", "null"):
        return NOT_SENT
    if text in ("true", "false"):
        return int(text == "true")
    if _THOUSANDS.fullmatch(text):
        return int(text.replace(",", ""))
    try:
        return number_from_text(text)
    except ValueError:
        raise _MisfitError(f"a number is expected, not {text[:100]!r}") from None


def _double(value: Any) -> Any:
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    number = _number(value, LONG_BITS)
    return number if isinstance(number, _NotSent) else float(number)
