"""JSON bodies: what `from_json` makes of them, in its PERMISSIVE mode and with its defaults.

    type                fits
    tinyint to bigint   a number without fraction or exponent, in range
    float, double       any number; "NaN", "Infinity", "-Infinity" and their short forms as strings
    decimal(p,s)        a number or a string of one, rounded half up to s digits; p digits at most
    string              a string; of anything else its JSON text
    boolean             true, false
    binary              a string in base64
    date                "2026-01-31"; a time behind a T or blank is left out
    timestamp           ISO 8601; UTC when it names no zone. A number is seconds since 1970
    array, struct, map  the same, with elements that fit; keys that the schema does not name are left out

On purpose other than `from_json`
  - bad are: an empty body; one with something behind the object; an array (Spark takes its first element); NaN and
    Infinity without quotes; invalid UTF-8; a number that a tinyint or smallint cannot hold (Spark takes its low bits);
    a date that is a number (days since 1970), a time that no timestamp can hold.
  - A number in a string column is written anew, in Python's way: 1.50 becomes 1.5, and 12345678.5 stays.
  - Times without a zone are UTC, not the session's.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa

from thermocline.spark.bodies.column_values import BadBodies, MisfitError

_NAMED_NUMBERS = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "+Infinity": float("inf"),
    "-Infinity": float("-inf"),
    "INF": float("inf"),
    "+INF": float("inf"),
    "-INF": float("-inf"),
}
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ].*)?")
_TIMESTAMP = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)\s*(Z|UTC|[+-]\d{2}(?::?\d{2})?)?)?"
)
_WORDS = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    Decimal: "a number",
    str: "a string",
    list: "an array",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_EXACT = Context(prec=76, rounding=ROUND_HALF_UP)


class JsonBodies:
    """Decodes JSON, and says what fits which type; see the module."""

    def __init__(self, kind: pa.StructType) -> None:
        # As exact numbers where the schema has decimals, else as floats, which are much faster.
        self._decoder = msgspec.json.Decoder(float_hook=Decimal) if _has_decimal(kind) else msgspec.json.Decoder()

    def decode(self, bodies: Sequence[bytes | None], bad: BadBodies) -> list[dict[str, Any] | None]:
        """The object in each body; None, and marked as bad, where there is none."""
        decoded: list[dict[str, Any] | None] = []
        decode = self._decoder.decode
        for place, body in enumerate(bodies):
            value: Any = None
            if body is not None:
                try:
                    value = decode(body)
                except (msgspec.DecodeError, UnicodeDecodeError, InvalidOperation, RecursionError) as error:
                    bad.mark(place, f"no JSON: {error}")
                else:
                    if not isinstance(value, dict):
                        bad.mark(place, f"no JSON object but {_word(value)}")
                        value = None
            decoded.append(value)
        return decoded

    def exact_kinds(self, kind: pa.DataType) -> frozenset[type]:
        """See `ValueRules`."""
        if pa.types.is_string(kind):
            return frozenset({str})
        if pa.types.is_boolean(kind):
            return frozenset({bool})
        if pa.types.is_integer(kind):
            return frozenset({int})
        if pa.types.is_float64(kind):
            return frozenset({float})
        return frozenset()

    def convert(self, value: Any, kind: pa.DataType) -> Any:
        """See `ValueRules`."""
        if pa.types.is_string(kind):
            return value if isinstance(value, str) else _json_text(value)
        if pa.types.is_boolean(kind):
            return _checked(value, bool)
        if pa.types.is_integer(kind):
            if type(value) is not int:
                raise MisfitError(f"found {_word(value)}")
            return value
        if pa.types.is_floating(kind):
            return _float(value, kind)
        if pa.types.is_decimal(kind):
            return _decimal(value, kind)
        if pa.types.is_timestamp(kind) and type(value) is int:
            return value * 1_000_000
        text: str = _checked(value, str)
        if pa.types.is_binary(kind):
            try:
                return base64.b64decode(text, validate=True)
            except ValueError as error:
                raise MisfitError("no base64") from error
        if pa.types.is_date(kind):
            return _date(text)
        assert pa.types.is_timestamp(kind), kind
        return _timestamp_us(text)


def _float(value: Any, kind: pa.DataType) -> float:
    if isinstance(value, str):
        if value in _NAMED_NUMBERS:
            return _NAMED_NUMBERS[value]
        raise MisfitError("found a string")
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise MisfitError(f"found {_word(value)}")
    try:
        return float(value)
    except OverflowError as error:
        raise MisfitError("out of range") from error


def _decimal(value: Any, kind: pa.Decimal128Type) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, str, float)):
        raise MisfitError(f"found {_word(value)}")
    try:
        exact = Decimal(repr(value) if isinstance(value, float) else value)
        if not exact.is_finite():
            raise MisfitError("no number")
        rounded = exact.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    except InvalidOperation as error:
        raise MisfitError("no number, or too large") from error
    if rounded and rounded.adjusted() >= kind.precision - kind.scale:
        raise MisfitError("too many digits")
    return rounded


def _date(text: str) -> date:
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise MisfitError("no date")
    try:
        return date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError as error:
        raise MisfitError("no date") from error


def _timestamp_us(text: str) -> int:
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise MisfitError("no time")
    day, time, zone = match[1], match[2] or "00:00:00", match[3] or "Z"
    try:
        clock, _, fraction = time.partition(".")
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in ('Z', 'UTC') else zone}")
    except ValueError as error:
        raise MisfitError("no time") from error
    elapsed = moment - _EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + int(fraction[:6].ljust(6, "0"))


def _checked(value: Any, wanted: type) -> Any:
    if type(value) is not wanted:
        raise MisfitError(f"found {_word(value)}")
    return value


def _json_text(value: Any) -> str:
    try:
        return _ENCODER.encode(value).decode()
    except RecursionError as error:  # it was read a few calls further up
        raise MisfitError("arrays or objects in too many others") from error


def _word(value: Any) -> str:
    return _WORDS.get(type(value), "an object")


def _has_decimal(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_decimal(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _has_decimal(kind.value_type)
    if pa.types.is_map(kind):
        return _has_decimal(kind.key_type) or _has_decimal(kind.item_type)
    return bool(pa.types.is_decimal(kind))
