"""Truth tables, and what values become when they are compared."""

from __future__ import annotations

import itertools

import pytest

from thermocline.filters import EvaluationError, compile_expression

# Conditions over two properties, by what they are to be.
_TRUTHS: dict[bool | None, str] = {True: "(TRUE)", False: "(FALSE)", None: "(NULL)"}
_OVER_PROPERTIES: dict[bool | None, str] = {True: "{0} > 1", False: "{0} < 1", None: "no{0} > 1"}
PROPERTIES = {"a": "5", "b": "5", "text": "hello", "yes": "true", "empty": ""}


def answer(expression: str, **properties: str) -> bool | str | None:
    try:
        return compile_expression(expression).evaluate(properties or PROPERTIES)
    except EvaluationError:
        return "failed"


AND = {
    (True, True): True,
    (True, False): False,
    (True, None): None,
    (False, True): False,
    (False, False): False,
    (False, None): False,
    (None, True): None,
    (None, False): False,
    (None, None): None,
}
OR = {
    (True, True): True,
    (True, False): True,
    (True, None): True,
    (False, True): True,
    (False, False): False,
    (False, None): None,
    (None, True): True,
    (None, False): None,
    (None, None): None,
}


@pytest.mark.parametrize(("left_value", "right_value"), AND)
@pytest.mark.parametrize(("word", "table"), [("AND", AND), ("OR", OR)])
def test_and_or(
    word: str, table: dict[tuple[bool | None, bool | None], bool | None], left_value: bool, right_value: bool
) -> None:
    expected = table[left_value, right_value]
    assert answer(f"{_TRUTHS[left_value]} {word} {_TRUTHS[right_value]}") is expected
    assert answer(f"{_OVER_PROPERTIES[left_value]} {word} {_OVER_PROPERTIES[right_value]}".format("a")) is expected
    assert answer(f"NOT ({_TRUTHS[left_value]} {word} {_TRUTHS[right_value]})") is (
        None if expected is None else not expected
    )


@pytest.mark.parametrize("truths", list(itertools.product((True, False, None), repeat=3)))
@pytest.mark.parametrize(("word", "table"), [("AND", AND), ("OR", OR)])
def test_chains_are_the_same_in_any_grouping(
    word: str, table: dict[tuple[bool | None, bool | None], bool | None], truths: tuple[bool | None, ...]
) -> None:
    first, second, third = (_TRUTHS[truth] for truth in truths)
    expected = table[table[truths[0], truths[1]], truths[2]]
    assert answer(f"{first} {word} {second} {word} {third}") is expected
    assert answer(f"({first} {word} {second}) {word} {third}") is expected
    assert answer(f"{first} {word} ({second} {word} {third})") is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a = missing", False),
        ("missing = a", None),
        ("a <> missing", True),
        ("missing <> a", None),
        ("missing = other", True),
        ("missing <> other", False),
        ("missing = 5", None),
        ("missing <> 5", None),
        ("5 = missing", False),
        ("missing = 'x'", None),
        ("'x' <> missing", True),
        ("missing = TRUE", None),
        ("TRUE = missing", False),
        ("missing > 5", None),
        ("5 > missing", None),
        ("missing > a", None),
        ("missing BETWEEN 1 AND 9", None),
        ("missing NOT BETWEEN 1 AND 9", None),
        ("a BETWEEN 1 AND missing", None),
        ("a BETWEEN 9 AND missing", False),
        ("a NOT BETWEEN missing AND 9", None),
        ("a NOT BETWEEN missing AND 1", True),
        ("missing IN ('x')", None),
        ("missing NOT IN ('x')", None),
        ("missing CONTAINS 'x'", False),
        ("missing NOT CONTAINS 'x'", False),
        ("missing IS NULL", True),
        ("missing IS NOT NULL", False),
        ("a IS NULL", False),
        ("empty IS NULL", False),
        ("NULL IS NULL", True),
        ("1 IS NULL", False),
        ("missing > 1 IS NULL", True),
        ("NOT missing", None),
        ("missing", None),
    ],
)
def test_null(expression: str, expected: bool | None) -> None:
    assert answer(expression) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # A property has no truth of its own.
        ("yes", False),
        ("NOT yes", True),
        ("yes = TRUE", True),
        ("text = TRUE", False),
        ("text = FALSE", True),
        # NOT takes what stands next to it.
        ("NOT a = 5", False),
        ("NOT (a = 5)", False),
        ("NOT a = 6", False),
        ("NOT (a = 6)", True),
        ("NOT a IS NULL", False),
        ("NOT missing IS NULL", True),
        ("NOT text CONTAINS 'x'", False),
        # Minus makes null of all but literals.
        ("-a = -5", None),
        ("-a IS NULL", True),
        ("-(-5) = a", True),
        ("a > -5", True),
        # Two strings are equal as texts, and ordered as doubles.
        ("a = b", True),
        ("a = '5'", True),
        ("a = '5.0'", False),
        ("a = 5", True),
        ("a = 5.0", True),
        ("a >= b", True),
        ("'5' = 5", True),
        ("5 = 5.0", True),
        ("1 = TRUE", False),
        ("'x' = 'x'", True),
        ("TRUE = FALSE", False),
        ("9007199254740993 = 9007199254740992.0", True),
        # Conditions are values too.
        ("(a = 5) = TRUE", True),
        ("(a = 5) = (b = 6)", False),
        ("yes = (a = 5)", True),
        ("(a = 5) = 1", False),
        ("(a = 5) CONTAINS 'T'", False),
        # Parts of strings.
        ("text CONTAINS 'ell'", True),
        ("text STARTSWITH 'hel'", True),
        ("text ENDSWITH 'lo'", True),
        ("text NOT ENDSWITH 'lo'", False),
        ("text NOT STARTSWITH 'lo'", True),
        ("text CONTAINS ''", False),
        ("text NOT CONTAINS ''", False),
        ("5 CONTAINS '5'", False),
        ("5 NOT CONTAINS '5'", False),
        ("a IN ('5', 'x')", True),
        ("a NOT IN ('5', 'x')", False),
        ("a IN ('05')", False),
    ],
)
def test_values(expression: str, expected: bool | None) -> None:
    assert answer(expression) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "text > 1",
        "text = 1",
        "1 < text",
        "1 = text",
        "text BETWEEN 1 AND 2",
        "text > a",
        "a > text",
        "empty > 1",
        "'x' = 1",
        "TRUE = yes",
        "(a = 5) = yes",
        "a > 1 AND text > 1",
        "NULL OR text > 1",
        "NULL AND text > 1",
        "text > 1 OR TRUE",
        "-(text > 1) IS NULL",
        "-(text > 1) BETWEEN 1 AND 2",
        "text > 1 CONTAINS 'x'",
        "NOT (text > 1)",
        "a = (text > 1)",
    ],
)
def test_incomparable_values_end_the_evaluation(expression: str) -> None:
    assert answer(expression) == "failed"
    assert compile_expression(expression).matches(PROPERTIES) is False


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("TRUE OR text > 1", True),
        ("FALSE AND text > 1", False),
        ("NOT (a = 6 AND text > 1)", True),
        ("missing > -(text > 1)", None),
        ("-(a = 5) BETWEEN -(text > 1) AND 1", None),
        ("text > 1 CONTAINS ''", False),
    ],
)
def test_errors_in_skipped_operands_are_ignored(expression: str, expected: bool | None) -> None:
    assert answer(expression) is expected


@pytest.mark.parametrize(
    ("value", "greater_than_5", "equal_to_5", "greater_than_long", "greater_than_5_0"),
    [
        ("6", True, False, False, True),
        ("5", False, True, False, False),
        ("+5", False, True, False, False),
        ("005", False, True, False, False),
        ("3000000001", "failed", "failed", True, True),
        ("9223372036854775808", "failed", "failed", "failed", True),
        ("5.0", "failed", "failed", "failed", False),
        ("6.5", "failed", "failed", "failed", True),
        (" 6", "failed", "failed", "failed", True),
        ("NaN", "failed", "failed", "failed", True),
        ("-Infinity", "failed", "failed", "failed", False),
        ("six", "failed", "failed", "failed", "failed"),
    ],
)
def test_a_property_is_read_as_the_literal_s_type(
    value: str, greater_than_5: object, equal_to_5: object, greater_than_long: object, greater_than_5_0: object
) -> None:
    assert answer("n > 5", n=value) == greater_than_5
    assert answer("n = 5", n=value) == equal_to_5
    assert answer("n > 3000000000", n=value) == greater_than_long
    assert answer("n > 5.0", n=value) == greater_than_5_0
    assert answer("5.0 < n", n=value) == greater_than_5_0
    assert answer("n BETWEEN 5.5 AND 1E300", n=value) == (False if value == "NaN" else greater_than_5_0)


@pytest.mark.parametrize(
    ("left_value", "right_value", "less", "less_or_equal"),
    [
        ("9", "10", True, True),
        ("-0.0", "0", True, True),
        ("0", "-0", False, False),
        ("NaN", "NaN", False, True),
        ("Infinity", "NaN", True, True),
        ("NaN", "1", False, False),
        ("1e400", "Infinity", False, True),
        ("9007199254740993", "9007199254740992", False, True),
    ],
)
def test_two_properties_are_ordered_as_doubles(
    left_value: str, right_value: str, less: bool, less_or_equal: bool
) -> None:
    assert answer("l < r", l=left_value, r=right_value) is less
    assert answer("l <= r", l=left_value, r=right_value) is less_or_equal
    assert answer("r > l", l=left_value, r=right_value) is less
    assert answer("r >= l", l=left_value, r=right_value) is less_or_equal


def test_the_ends_belong_to_between() -> None:
    for value, within in (("1", False), ("2", True), ("10", True), ("11", False)):
        assert answer("n BETWEEN 2 AND 10", n=value) is within
        assert answer("n NOT BETWEEN 2 AND 10", n=value) is not within
        assert answer("n BETWEEN 2 AND 10.0", n=value) is within
        assert answer("n NOT BETWEEN 1.5 AND 3000000000", n=value) is (value == "1")


def test_ends_are_read_each_as_its_own_type() -> None:
    # 3000000000 is beyond the lower end's 32 bits, which is looked at first.
    assert answer("n BETWEEN 5 AND 4000000000", n="3000000000") == "failed"
    assert answer("n BETWEEN 4000000000 AND 5000000000", n="3000000000") is False
