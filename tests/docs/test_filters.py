"""docs/filters.md is true of the expressions that it shows, and of the limits that it names."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from tests.docs.pages import DOCS, TableRow, code_blocks, table_rows
from tests.filters.parsing import parse_expression
from thermocline.filters import DEFAULT_LIMITS, ExpressionError
from thermocline.filters.expression_evaluator import EvaluateCondition, Verdict, compile_condition
from thermocline.filters.java_numbers import EvaluationError

PAGE = DOCS / "filters.md"
TEXT = PAGE.read_text()
VERDICTS: dict[str, Verdict] = {"null": None, "false": False, "true": True}
NULL_ROWS = [row for row in table_rows(PAGE) if row.headings[-1] == "Null"]


def condition(expression: str) -> EvaluateCondition:
    return compile_condition(parse_expression(expression).root)


def test_the_example_at_the_top_is_an_expression() -> None:
    (block,) = code_blocks(PAGE, "sql")
    matches = condition(block.text)
    assert matches({"TAGS": "red", "price": "12", "region": "us"}) is True
    assert matches({"TAGS": "red", "price": "12", "region": "eu"}) is False


@pytest.mark.parametrize("row", NULL_ROWS, ids=lambda row: str(row.line))
def test_a_row_about_null_is_true(row: TableRow) -> None:
    cells = list(row.cells.values())
    verdict = re.match(r"null|false|true", cells[1])
    assert verdict is not None
    expressions = re.findall(r"`([^`]+)`", cells[0])
    assert expressions
    for expression in expressions:
        assert condition(expression)({"a": "x"}) is VERDICTS[verdict[0]], expression
    for expression, verdict in re.findall(r"`([^`]+)` is (null|false|true)", cells[1]):
        assert condition(expression)({"a": "x"}) is VERDICTS[verdict], expression


def compared(expression: str, **properties: str) -> Verdict | str:
    try:
        return condition(expression)(properties)
    except EvaluationError:
        return "cannot be compared"


def test_comparable_types_are_as_documented() -> None:
    """The table's rows, one after the other."""
    assert compared("a = '5'", a="5.0") is False
    assert [compared("a = 5", a=text) for text in ("5", "5.0", " 5", "3000000000")] == [
        True,
        *["cannot be compared"] * 3,
    ]
    assert compared("a = 3000000000", a="3000000000") is True
    assert [compared("a = 5.0", a=text) for text in ("5", " 5f", "0x1.4p2")] == [True, True, True]
    assert compared("a > 1E300", a="NaN") is True
    assert [compared("a = TRUE", a=text) for text in ("TrUe", "yes")] == [True, False]
    assert compared("TRUE = a", a="true") == "cannot be compared"
    assert compared("a < b", a="9", b="10.5") is True
    assert compared("a = b", a="1", b="1.0") is False
    assert [compared(f"a {word}CONTAINS ''", a="x") for word in ("", "NOT ")] == [False, False]
    for refused in ("'x' < a", "a < 'x'", "TRUE < a", "(a = 1) < 2"):
        with pytest.raises(ExpressionError):
            condition(refused)


def test_the_surprises() -> None:
    assert [compared("NOT a = 1", a=text) for text in ("1", "2")] == [False, False]
    assert compared("a", a="true") is False
    assert compared("NOT a", a="true") is True
    assert compared("-a IS NULL", a="1") is True
    assert compared("a = 1 b = 2", a="1", b="3") is True
    assert compared("a = 007", a="0") is True
    with pytest.raises(ExpressionError):
        condition("a = 0.0")
    with pytest.raises(ExpressionError):
        condition("5 IN ('5')")


def test_the_limits() -> None:
    (paragraph,) = re.findall(r"A larger expression is refused.*", TEXT, re.DOTALL)
    numbers = {int(number.replace(" ", "")) for number in re.findall(r"\b\d+(?: \d{3})*\b", paragraph)}
    assert {getattr(DEFAULT_LIMITS, item.name) for item in fields(DEFAULT_LIMITS)} == numbers - {23, 16}
    longest = "x" * (DEFAULT_LIMITS.string_chars_max - len("''"))
    assert condition(f"a = '{longest}'")({"a": longest}) is True
    with pytest.raises(ExpressionError):
        condition(f"a = '{longest}x'")
