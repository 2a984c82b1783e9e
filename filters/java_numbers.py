"""Numbers in property values, read and ordered as Java does it.

    32 and 64 bits   sign, then decimal digits of any script in the basic plane; no spaces; in range or not a number
    double           spaces around; sign; NaN, Infinity, decimal or hexadecimal notation; f, F, d or D may follow
    order            -Infinity < ... < -0.0 < 0.0 < ... < Infinity < NaN, each equal to itself alone

`EvaluationError` says that a text is no such number. RocketMQ then gives up the whole evaluation, and so do we.
Source: Integer.valueOf, Long.valueOf, Double.valueOf, Double.compareTo of the Java platform, which
filter/expression/ComparisonExpression.java calls.
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import lru_cache

from thermocline.remoting.java_long import LONG_MAX, LONG_MIN

INTEGER_MIN, INTEGER_MAX = -(2**31), 2**31 - 1

# So many plain digits are in range whatever they are.
_INTEGER_DIGITS_SAFE = 9
_LONG_DIGITS_SAFE = 18
_LONG_DIGITS_MAX = 19

# A number of more characters than this is read once a message, however often an expression asks for it.
_COMMON_CHARS_MAX = 64
_LONG_TEXTS_KEPT = 16

_SIGN_AND_DIGITS = re.compile(r"([+-]?)(\d+)")
_SPACE = "".join(map(chr, range(0x21)))
# Of these characters alone, Python's float makes the same numbers as Java, and refuses the same texts.
_DECIMAL_CHARS = "0123456789.eE+-"
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?+|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++",
)
_NAMED = {
    sign + name: math.copysign(value, -1.0 if sign == "-" else 1.0)
    for sign in ("", "+", "-")
    for name, value in (("NaN", math.nan), ("Infinity", math.inf))
}


class EvaluationError(ValueError):
    """Values met that cannot be compared; for RocketMQ such a message does not match."""


def parse_integer(text: str) -> int:
    """The 32-bit number that `text` stands for; EvaluationError if it is none."""
    if len(text) <= _INTEGER_DIGITS_SAFE and text.isdecimal() and text.isascii():
        return int(text)
    value = _parse_whole(text) if len(text) <= _COMMON_CHARS_MAX else _parse_long_whole(text)
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise EvaluationError("not a 32-bit number")
    return value


def parse_long(text: str) -> int:
    """The 64-bit number that `text` stands for; EvaluationError if it is none."""
    if len(text) <= _LONG_DIGITS_SAFE and text.isdecimal() and text.isascii():
        return int(text)
    value = _parse_whole(text) if len(text) <= _COMMON_CHARS_MAX else _parse_long_whole(text)
    if not LONG_MIN <= value <= LONG_MAX:
        raise EvaluationError("not a 64-bit number")
    return value


def _parse_whole(text: str) -> int:
    match = _SIGN_AND_DIGITS.fullmatch(text)
    # Java looks at UTF-16 units one by one: digits beyond the basic plane are none.
    if match is None or (not text.isascii() and max(text) > "\uffff"):
        raise EvaluationError("not a whole number")
    sign, digits = match.groups()
    if not digits.isascii():
        digits = "".join([str(unicodedata.decimal(digit)) for digit in digits])
    digits = digits.lstrip("0") or "0"
    if len(digits) > _LONG_DIGITS_MAX:
        raise EvaluationError("not a 64-bit number")
    return int(sign + digits)


def parse_double(text: str) -> float:
    """The double that `text` stands for; EvaluationError if it is none."""
    if len(text) > _COMMON_CHARS_MAX:
        return _parse_long_double(text)
    return _parse_double(text)


def _parse_double(text: str) -> float:
    try:
        if text.strip(_DECIMAL_CHARS):
            return _parse_uncommon_double(text.strip(_SPACE))
        return float(text)
    except ValueError:
        raise EvaluationError("not a number") from None


def _parse_uncommon_double(text: str) -> float:
    named = _NAMED.get(text)
    if named is not None:
        return named
    number = text[:-1] if text and text[-1] in "fFdD" else text
    if not number.strip(_DECIMAL_CHARS):
        return float(number)
    if not _HEXADECIMAL.fullmatch(number):
        raise EvaluationError("not a number")
    try:
        return float.fromhex(number)
    except OverflowError:
        return -math.inf if number[0] == "-" else math.inf


_parse_long_whole = lru_cache(maxsize=_LONG_TEXTS_KEPT)(_parse_whole)
_parse_long_double = lru_cache(maxsize=_LONG_TEXTS_KEPT)(_parse_double)


def parse_double_for_constant(text: str) -> float:
    """`parse_double`, to be ordered by `<` and `>` against a finite number other than 0: NaN is above them all."""
    value = parse_double(text)
    return math.inf if value != value else value


def double_order(value: float) -> tuple[bool, float, float]:
    """A key that sorts doubles as `Double.compareTo` does."""
    if value != value:
        return True, 0.0, 0.0
    return False, value, math.copysign(1.0, value)
