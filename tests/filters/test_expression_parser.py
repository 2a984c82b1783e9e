"""Texts become the trees that RocketMQ's grammar gives, or an error that names the place."""

from __future__ import annotations

import pytest

from tests.filters.parsing import parse_expression
from tests.filters.tree_text import tree_text
from thermocline.filters.expression_error import ExpressionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", "(= a 1)"),
        ("a <> 1", "(not (= a 1))"),
        ("a = 1 OR b = 2 AND c = 3", "(or (= a 1) (and (= b 2) (= c 3)))"),
        ("(a = 1 OR b = 2) AND c = 3", "(and (or (= a 1) (= b 2)) (= c 3))"),
        ("a > 1 OR a < 0 OR a = 5", "(or (> a 1) (< a 0) (= a 5))"),
        ("a = b = c", "(= (= a b) c)"),
        ("a = b > 1", "(= a (> b 1))"),
        ("a > 1 IS NULL", "(null (> a 1))"),
        ("a IS NOT NULL", "(not (null a))"),
        ("NOT a = 1", "(= (not (true a)) 1)"),
        ("NOT (a = 1)", "(not (= a 1))"),
        ("NOT NOT a", "(not (not (true a)))"),
        ("NOT a IS NULL", "(null (not (true a)))"),
        ("a", "(true a)"),
        ("TRUE", "TRUE"),
        ("NULL", "NULL"),
        ("a BETWEEN 1 AND 2 AND b = 3", "(and (between a 1 2) (= b 3))"),
        ("a NOT BETWEEN -1 AND +b", "(not-between a (- 1) b)"),
        ("a IN ('x','y') AND b NOT IN ('z')", "(and (in a 'x' 'y') (not-in b 'z'))"),
        ("a CONTAINS 'x' = TRUE", "(= (contains a 'x') TRUE)"),
        ("a NOT STARTSWITH 'x'", "(not-startswith a 'x')"),
        ("a ENDSWITH 'x' CONTAINS 'y'", "(contains (endswith a 'x') 'y')"),
        ("- - a = 1", "(= (- (- a)) 1)"),
        ("((a)) IN ('x')", "(in a 'x')"),
        ("+a IN ('x')", "(in a 'x')"),
        ("a/**/=/* * ** */1", "(= a 1)"),
        ("a -- = 2\n = 1", "(= a 1)"),
        ("a\t=\r\n\f1", "(= a 1)"),
        ("Not TRUE oR faLSE", "(or (not TRUE) FALSE)"),
        ("$a_1 = _b$", "(= $a_1 _b$)"),
        ("inn = 1", "(= inn 1)"),
        ("a IN('x')AND(b)IN('y')", "(and (in a 'x') (in b 'y'))"),
        ("a = 'it''s'", "(= a 'it's')"),
        ("a = ''", "(= a '')"),
        ("a = '--'", "(= a '--')"),
        ("a = '你好 \U0001f600\n'", "(= a '你好 \U0001f600\n')"),
    ],
)
def test_trees(text: str, expected: str) -> None:
    parsed = parse_expression(text)
    assert tree_text(parsed.root) == expected
    assert parsed.ignored_position is None


@pytest.mark.parametrize(
    ("literal", "expected"),
    [
        ("0", "INTEGER 0"),
        ("5L", "INTEGER 5"),
        ("2147483647", "INTEGER 2147483647"),
        ("2147483648", "LONG 2147483648"),
        ("9223372036854775807l", "LONG 9223372036854775807"),
        ("5.", "DOUBLE 5.0"),
        (".5", "DOUBLE 0.5"),
        ("05.5", "DOUBLE 5.5"),
        ("5E2", "DOUBLE 500.0"),
        ("5.e-1", "DOUBLE 0.5"),
        ("4.9E-324", "DOUBLE 5e-324"),
        ("1.7976931348623157E308", "DOUBLE 1.7976931348623157e+308"),
    ],
)
def test_numbers(literal: str, expected: str) -> None:
    assert tree_text(parse_expression(f"a = {literal}").root, with_kinds=True) == f"(= a {expected})"


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 0, "not complete"),
        (" \n", 2, "not complete"),
        ("a =", 3, "not complete"),
        ("a = 1 AND", 9, "not complete"),
        ("(a = 1", 6, "not complete"),
        ("a IN ('x'", 9, "not complete"),
        ("a NOT", 5, "not complete"),
        ("-- all comment\n", 15, "not complete"),
        ("AND a = 1", 0, "AND cannot stand here"),
        ("a = = 1", 4, "= cannot stand here"),
        ("a IN (1)", 6, "1 cannot stand here"),
        ("a IN ()", 6, ") cannot stand here"),
        ("a CONTAINS b", 11, "b cannot stand here"),
        ("a NOT = 1", 6, "= cannot stand here"),
        ("a IS 1", 5, "1 cannot stand here"),
        ("between = 1", 0, "between cannot stand here"),
        ("a BETWEEN 1 OR 2", 12, "OR cannot stand here"),
        ("(a = 1 b)", 7, "b cannot stand here"),
        ("x" * 50 + " NOT " + "y" * 50, 55, "y" * 32 + "... cannot stand here"),
        ("a == 1", 3, "= cannot stand here"),
        ("a != 1", 2, "no token begins with '!'"),
        ("a = 1 ; b", 6, "no token begins with ';'"),
        ('a = "x"', 4, "no token begins with '\"'"),
        ("é = 1", 0, "no token begins with '\\xe9'"),
        ("a\xa0= 1", 1, "no token begins with '\\xa0'"),
        ("\u017ftartswith = 1", 0, "no token begins with '\\u017f'"),
        ("a = 'x", 4, "the string has no end"),
        ("a = 'x''", 7, "the string has no end"),
        ("a = 1 /* x", 6, "the comment has no end"),
        ("a = 9223372036854775808", 4, "does not fit 64 bits"),
        ("a = 1" + "0" * 2_000, 4, "does not fit 64 bits"),
        ("a > 0.0", 4, "floating point number"),
        ("a > 1e-400", 4, "floating point number"),
        ("a > 1e400", 4, "floating point number"),
        ("a > " + "1" * 400 + ".0", 4, "floating point number"),
        ("a > 'x'", 4, "not a string"),
        ("TRUE < a", 0, "not a truth value"),
        ("a >= (b = 1)", 6, "not a condition"),
        ("NOT a > 1", 0, "not a condition"),
        ("a > 1 > 2", 0, "not a condition"),
        ("a BETWEEN 'x' AND 'y'", 10, "not a string"),
        ("a BETWEEN 5 AND 1", 10, "lower end first"),
        ("a BETWEEN 5 AND 4.5", 10, "lower end first"),
        ("a BETWEEN (5) AND +1", 11, "lower end first"),
        ("a = NULL", 4, "IS NULL"),
        ("NULL <> a", 0, "IS NULL"),
        ("TRUE = 1", 7, "TRUE and FALSE"),
        ("5", 0, "a condition is wanted"),
        ("a = 1 AND 'x'", 10, "a condition is wanted"),
        ("NOT -a", 4, "a condition is wanted"),
        ("-a", 0, "a condition is wanted"),
        ("'x' IN ('x')", 0, "a property on its left"),
        ("a IN ('x') IN ('y')", 0, "a property on its left"),
        ("NOT a IN ('x')", 0, "a property on its left"),
    ],
)
def test_invalid_expressions_are_refused(text: str, position: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    assert caught.value.position == position
    assert message in caught.value.message
    assert type(caught.value) is ExpressionError


@pytest.mark.parametrize(
    "text", ["a NOT BETWEEN 5 AND 1", "a BETWEEN 5 AND -1", "a BETWEEN b AND 1", "1 = TRUE", "-'x' > a", "a > -TRUE"]
)
def test_unusual_expressions_are_accepted(text: str) -> None:
    assert parse_expression(text).ignored_position is None


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("a = 1 b", "b"),
        ("a = 1) OR b = 2", ") OR b = 2"),
        ("a = 007", "07"),
        ("a = 5d", "d"),
        ("a = 0L", "L"),
        ("a = 1 + 1", "+ 1"),
        ("a = 1 * 2", None),
        ("a = 1 b ; 'no token any more", "b ; 'no token any more"),
        ("a = 1 -- to the end", ""),
        ("a = 1 --1\nAND b = 2", ""),
        ("a = 1 - 1", "- 1"),
    ],
)
def test_the_text_behind_a_complete_expression_is_not_looked_at(text: str, ignored: str | None) -> None:
    if ignored is None:
        # The next token is read, though not used, and has to be one.
        with pytest.raises(ExpressionError):
            parse_expression(text)
        return
    position = parse_expression(text).ignored_position
    assert ("" if position is None else text[position:]) == ignored


def test_two_signs_are_a_comment_only_before_a_line_end() -> None:
    assert tree_text(parse_expression("a = --1").root) == "(= a (- (- 1)))"
    with pytest.raises(ExpressionError, match="not complete"):
        parse_expression("a = --1\n")


def test_names_are_those_of_the_expression() -> None:
    parsed = parse_expression("a = 1 AND (b IN ('x') OR -c > 2 OR A IS NULL) d")
    assert parsed.property_names == {"a", "b", "c", "A"}
