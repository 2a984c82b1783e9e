"""Which messages a filter takes: RocketMQ's documented examples, from property maps and from property texts.

Covers `filters/expression_error.py`.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.filters import expression_model as model
from thermocline.filters import ExpressionError, ExpressionTooLargeError, compile_expression
from thermocline.remoting.error_table import response_code
from thermocline.remoting.records.properties import encode_properties
from thermocline.remoting.response_code import ResponseCode


@pytest.mark.parametrize(
    ("expression", "properties", "expected"),
    [
        ("a > 5 AND b = 'abc'", {"a": "10", "b": "abc", "c": "true"}, True),
        ("a > 5 AND b = 'abc'", {"a": "1", "b": "abc", "c": "true"}, False),
        ("a between 0 and 3", {"a": "0"}, True),
        ("a between 0 and 3", {"a": "3"}, True),
        ("a between 0 and 3", {"a": "4"}, False),
        ("a between 0 and 3", {}, False),
        (
            "(TAGS is not null and TAGS in ('TagA', 'TagB')) and (a is not null and a between 0 and 3)",
            {"TAGS": "TagB", "a": "1"},
            True,
        ),
        (
            "(TAGS is not null and TAGS in ('TagA', 'TagB')) and (a is not null and a between 0 and 3)",
            {"TAGS": "TagC", "a": "1"},
            False,
        ),
        ("TAGS is not null and TAGS = '''''tag'''''", {"TAGS": "''tag''"}, True),
        ("a IS NULL OR a = 'hello'", {}, True),
        ("a IS NULL OR a = 'hello'", {"a": "abc"}, False),
        ("a = TRUE OR b = FALSE", {"a": "false", "b": "true"}, False),
        ("a > 3.1E10", {"a": "31415000000.0"}, True),
        ("NOT (a = 1)", {}, False),
    ],
)
def test_documented_examples(expression: str, properties: dict[str, str], expected: bool) -> None:
    compiled = compile_expression(expression)
    assert compiled.matches(properties) is expected
    assert compiled.matches_text(encode_properties(properties)) is expected
    assert compiled.matches_text(encode_properties({"other": "x", **properties, "b2": "y"})) is expected


def test_the_properties_of_a_filter_are_listed() -> None:
    compiled = compile_expression("a = 1 AND b IN ('x') tail")
    assert compiled.text == "a = 1 AND b IN ('x') tail"
    assert compiled.property_names == {"a", "b"}
    assert compiled.ignored_position == 21
    assert compiled == compile_expression(compiled.text)


@given(tree=model.conditions, properties=model.property_maps)
def test_property_texts_are_the_same_as_property_maps(tree: model.Tree, properties: dict[str, str]) -> None:
    try:
        compiled = compile_expression(model.expression_text(tree, 0))
    except ExpressionError:
        return
    # In a text, a property without value is none.
    stored = {name: value for name, value in properties.items() if value}
    assert compiled.matches_text(encode_properties(properties)) is compiled.matches(stored)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["", "1", "2", "\xff"])), max_size=8))
def test_pieces_count_the_same_for_one_name_and_for_many(pieces: list[tuple[str, str]]) -> None:
    text = b"".join([f"{name}\x01{value}\x02".encode("latin-1") for name, value in pieces])
    for one_name in ("a = 1", "a IS NULL", "a = '\ufffd'"):
        many_names = f"{one_name} AND (b IS NULL OR b IS NOT NULL)"
        assert compile_expression(one_name).matches_text(text) is compile_expression(many_names).matches_text(text)


def test_a_bad_expression_has_a_response_code_of_its_own() -> None:
    for text, error_class in (("a =", ExpressionError), ("(" * 9_999, ExpressionTooLargeError)):
        with pytest.raises(error_class) as caught:
            compile_expression(text)
        assert response_code(caught.value) == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert str(caught.value).endswith(f"position={caught.value.position}")
