"""Hostile expressions are refused, each with an error that says where, and in bounded work."""

from __future__ import annotations

import time

import pytest

from tests.filters.parsing import parse_expression
from thermocline.filters import (
    DEFAULT_LIMITS,
    ExpressionError,
    ExpressionLimits,
    ExpressionTooLargeError,
    compile_expression,
)

# Far more than any of them takes, far less than what grows faster than its text would.
WORK_S_MAX = 2.0
LIMITS = DEFAULT_LIMITS


def one_of(entry_count: int) -> str:
    """`a IN (...)`, true for "1"."""
    return "a IN (" + ", ".join([f"'{number}'" for number in range(entry_count)]) + ")"


TOO_LARGE = {
    "a long text": "a = 1" + " " * LIMITS.expression_chars_max,
    "a long comment": f"/*{'*' * LIMITS.expression_chars_max}*/ a = 1",
    "a long name": "a" * (LIMITS.expression_chars_max + 1),
    "a long number": "a = 1" + "0" * LIMITS.expression_chars_max,
    "a long string": f"a = '{'x' * LIMITS.string_chars_max}'",
    "a long string of quotes": f"a = '{chr(39) * LIMITS.string_chars_max}'",
    "a long list": one_of(LIMITS.list_entries_max + 1),
    "many lists": " OR ".join([one_of(500)] * 5),
    "many alternatives": " OR ".join(["a = 1"] * 400),
    "many conditions": " AND ".join(["a IS NULL"] * 600),
    "many searches": " OR ".join(["a CONTAINS 'x'"] * 61),
    "many signs": "a = " + "-" * 5_000 + "1",
    "open parentheses": "(" * 10_000,
    "parentheses": f"{'(' * 5_000}a = 1{')' * 5_000}",
    "NOT of NOT": "NOT " * 200 + "TRUE",
    "minus of minus": "a = " + "- " * 200 + "1",
    "plus of minus": "a = " + "+ - " * 200 + "1",
    "a chain of equals": "a" + " = a" * 200,
    "a chain of IS NULL": "a" + " IS NULL" * 200,
    "a chain of CONTAINS": "a" + " CONTAINS 'x'" * 200,
    "nested conditions": "(a = 1 OR " * 200 + "TRUE" + ")" * 200,
    "doubling BETWEEN": f"{'-(' * 150}a{' BETWEEN 1 AND 2)' * 150} BETWEEN 1 AND 2",
}
NO_EXPRESSION = {
    "an open string": "a = '" + "x" * 30_000,
    "an open string of quotes": "a = '" + "''" * 15_000,
    "an open comment": "/*" + "*" * 30_000,
    "an open comment of stars and slashes": "/*" + "/*" * 15_000,
    "control characters": "\x00\x01\x02",
    "a lone surrogate": "a = 1 \ud800",
    "a byte order mark": "\ufeffa = 1",
    "a right-to-left override": "a \u202e= 1",
    "letters that look like others": "\u0430 = 1",
    "an emoji": "\U0001f600 = 1",
    "quotes of another kind": "a = \u2018x\u2019",
    "a full-width digit": "a = \uff11",
    "only operators": "= = = =" * 100,
    "only commas": "," * 3_000,
    "a number too large": "a = " + "9" * 20_000,
    "an exponent too large": "a = 1E" + "9" * 20_000,
    "an exponent too small": "a = 1E-" + "9" * 20_000,
}


def took_too_long(started_s: float) -> bool:
    return time.perf_counter() - started_s > WORK_S_MAX


@pytest.mark.parametrize("kind", TOO_LARGE)
def test_expressions_above_the_limits_are_refused(kind: str) -> None:
    started_s = time.perf_counter()
    with pytest.raises(ExpressionTooLargeError) as caught:
        compile_expression(TOO_LARGE[kind])
    assert not took_too_long(started_s)
    assert 0 <= caught.value.position <= len(TOO_LARGE[kind])
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("kind", NO_EXPRESSION)
def test_invalid_expressions_are_refused(kind: str) -> None:
    started_s = time.perf_counter()
    with pytest.raises(ExpressionError) as caught:
        compile_expression(NO_EXPRESSION[kind])
    assert not took_too_long(started_s)
    assert 0 <= caught.value.position <= len(NO_EXPRESSION[kind])
    assert len(str(caught.value)) < 200


def test_dashes_without_line_end_are_looked_at_in_bounded_work() -> None:
    # Each pair could begin a comment, and none does, which shows at the text's end only.
    text = "a = --1 OR " * 200 + "a = 1 " + " " * 29_000
    started_s = time.perf_counter()
    assert compile_expression(text).matches({"a": "1"})
    assert not took_too_long(started_s)


LARGEST = {
    "parentheses": "(" * LIMITS.nesting_depth_max + "a = 1" + ")" * LIMITS.nesting_depth_max,
    "a list": one_of(LIMITS.list_entries_max),
    "a string": f"a <> '{'x' * (LIMITS.string_chars_max - 2)}'",
    "alternatives": " OR ".join(["a = 2"] * 340 + ["a = 1"]),
    "searches": " OR ".join(["a CONTAINS '0'"] * 59 + ["a CONTAINS '1'"]),
    "prefixes": " OR ".join(["a STARTSWITH '0'"] * 340 + ["a STARTSWITH '1'"]),
    "NOT of NOT": "NOT " * 98 + "(a = 1)",
    "nested conditions": "(a = 2 OR " * 99 + "a = 1" + ")" * 99,
    "doubling BETWEEN": f"{'-(' * 49}a{' BETWEEN 1 AND 2)' * 49} IS NULL",
}


@pytest.mark.parametrize("kind", LARGEST)
def test_expressions_just_within_the_limits_are_accepted(kind: str) -> None:
    started_s = time.perf_counter()
    compiled = compile_expression(LARGEST[kind])
    assert compiled.matches({"a": "1"})
    assert not took_too_long(started_s)


def test_limits_are_the_caller_s_to_choose() -> None:
    text = "a = 1 OR (b IN ('x', 'y') AND NOT (c = 'long'))"
    tight = {
        "expression_chars_max": len(text),
        "token_count_max": 20,
        "term_count_max": 11,
        "nesting_depth_max": 4,
        "list_entries_max": 2,
        "string_chars_max": 6,
    }
    assert parse_expression(text, limits=ExpressionLimits(**tight)).root.term_count == 11
    for name, limit in tight.items():
        with pytest.raises(ExpressionTooLargeError, match=f"more than {limit - 1} "):
            compile_expression(text, limits=ExpressionLimits(**{**tight, name: limit - 1}))


def test_work_grows_with_the_terms_and_no_faster() -> None:
    # Each level looks at the one below twice, were it not kept from it.
    depth = 40
    text = f"{'-(' * depth}a{' BETWEEN 1 AND 2)' * depth} IS NULL"
    looked_up = 0

    class Counted(dict[str, str]):
        def get(self, name: str, default: object = None) -> str | None:  # type: ignore[override] # one kind of default
            nonlocal looked_up
            looked_up += 1
            return super().get(name)

    assert compile_expression(text).matches(Counted(a="1"))
    assert looked_up == 1


@pytest.mark.parametrize(("piece", "part"), [("x", "x" * 50 + "y"), ("x", "y" + "x" * 50), ("xy", "xy" * 25 + "z")])
def test_searches_in_the_longest_values_are_bounded(piece: str, part: str) -> None:
    """Parts that agree with the value at every place for long; no property text holds more."""
    compiled = compile_expression(" OR ".join([f"a CONTAINS '{part}'"] * 60))
    started_s = time.perf_counter()
    assert not compiled.matches({"a": piece * (32_000 // len(piece))})
    assert not took_too_long(started_s)


def test_long_values_are_read_once_a_message() -> None:
    number = "0" * 32_000 + "1"
    compiled = compile_expression(" OR ".join(["a = 2"] * 300))
    started_s = time.perf_counter()
    assert not compiled.matches({"a": number})
    assert not took_too_long(started_s)
