"""Numbers are read and ordered as Java does it."""

from __future__ import annotations

import math

import pytest

from tests.filters.expression_model import NUMBERS_IN_TEXTS
from thermocline.filters.java_numbers import (
    EvaluationError,
    double_order,
    parse_double,
    parse_double_for_constant,
    parse_integer,
    parse_long,
)


@pytest.mark.parametrize("text", NUMBERS_IN_TEXTS)
def test_texts_are_the_numbers_of_the_table(text: str) -> None:
    for parse, expected in zip((parse_integer, parse_long, parse_double), NUMBERS_IN_TEXTS[text], strict=True):
        if expected is None:
            with pytest.raises(EvaluationError):
                parse(text)
        else:
            # By their text: NaN is not equal to itself, and -0.0 is to 0.0.
            assert repr(parse(text)) == repr(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("0" * 5_000 + "12", 12),
        ("+" + "0" * 70, 0),
        ("\u0661\u0662", 12),  # Arabic-Indic digits
        ("-\u0660\u0661", -1),
    ],
)
def test_whole_numbers(text: str, expected: int) -> None:
    assert parse_integer(text) == parse_long(text) == expected


@pytest.mark.parametrize(
    "text", ["2147483648", "-2147483649", "00002147483648", "4294967296", "9" * 30_000, "0" * 100 + "9" * 10]
)
def test_numbers_beyond_32_bits_are_no_integers(text: str) -> None:
    with pytest.raises(EvaluationError):
        parse_integer(text)


def test_a_long_has_64_bits() -> None:
    assert parse_long("9223372036854775807") == 2**63 - 1
    assert parse_long("-9223372036854775808") == -(2**63)
    for text in ("9223372036854775808", "-9223372036854775809", "1" * 20):
        with pytest.raises(EvaluationError):
            parse_long(text)


NO_WHOLE_NUMBERS = ["", "+", "-", "+-1", "--1", " 1", "1 ", "1\n", "1.0", "1_0", "0x1", "1e1", "1L"]
DIGITS_OF_OTHER_KINDS = ["\U0001d7d9", "\u00b2", "\u00bd"]


@pytest.mark.parametrize("text", [*NO_WHOLE_NUMBERS, *DIGITS_OF_OTHER_KINDS])
def test_texts_that_are_no_whole_number_are_refused(text: str) -> None:
    for parse in (parse_integer, parse_long):
        with pytest.raises(EvaluationError):
            parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1.0),
        ("+1.5", 1.5),
        ("-.5", -0.5),
        ("1.e2", 100.0),
        ("1E-2D", 0.01),
        ("\t1.5f\x00\n", 1.5),
        ("1" * 400, math.inf),
        ("-1e400", -math.inf),
        ("1e-400", 0.0),
        ("0x.8p0", 0.5),
        ("-0X1.Fp+1d", -3.875),
        ("0x1p99999", math.inf),
        ("-0x1p99999", -math.inf),
        ("0x1p-99999", 0.0),
        ("+NaN", math.nan),
        ("+Infinity", math.inf),
        (" NaN ", math.nan),
        ("0." + "3" * 1_000, 1 / 3),
    ],
)
def test_doubles(text: str, expected: float) -> None:
    assert repr(parse_double(text)) == repr(expected)


NO_DECIMALS = ["", " ", ".", "e1", "1e", "1e+", "1.5.", "1 f", "1ff", "f", "+", "+ 1", "1-", "1_0", "1" * 99 + "x"]
NO_NAMES = ["nan", "NAN", "inf", "infinity", "NaNf", "Infinityd"]
NO_HEXADECIMALS = ["0x1", "0x1.8", "0xp1", "0x.p1", "0x1p"]
NO_ASCII = ["\uff11", "1\u00a0", "\u00a01"]


@pytest.mark.parametrize("text", [*NO_DECIMALS, *NO_NAMES, *NO_HEXADECIMALS, *NO_ASCII])
def test_texts_that_are_no_double_are_refused(text: str) -> None:
    with pytest.raises(EvaluationError):
        parse_double(text)


def test_long_texts_are_numbers_each_time() -> None:
    for _ in range(2):
        assert parse_double("0" * 100 + "1.5") == 1.5
        assert parse_long("0" * 100 + "15") == 15
        with pytest.raises(EvaluationError):
            parse_double("x" * 100)


def test_doubles_are_in_java_s_order() -> None:
    in_order = [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan]
    keys = [double_order(value) for value in in_order]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert double_order(math.nan) == double_order(-math.nan)


def test_nan_is_above_every_constant() -> None:
    assert parse_double_for_constant("NaN") > 1.7976931348623157e308
