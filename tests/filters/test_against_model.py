"""Compiled filters and the independent model agree on every expression, valid or not, and on every message.

Covers `filters/expression_nodes.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters import expression_model as model
from thermocline.filters import EvaluationError, ExpressionError, compile_expression

Answer = bool | str | None


def our_answer(text: str, properties: dict[str, str]) -> Answer:
    try:
        return compile_expression(text).evaluate(properties)
    except ExpressionError:
        return "rejected"
    except EvaluationError:
        return "failed"


def model_answer(tree: model.Tree, properties: dict[str, str]) -> Answer:
    try:
        model.check(tree)
        value = model.evaluate(tree, properties)
    except model.RejectedError:
        return "rejected"
    except model.FailedError:
        return "failed"
    if value is None:
        return None
    kind, truth = value
    return bool(truth) if kind == "Boolean" else False


def test_filters_and_model_agree(case_count: Callable[..., int]) -> None:
    property_sets = st.lists(model.property_maps, min_size=1, max_size=4)

    @settings(max_examples=case_count(quick=500, soak=50_000), deadline=None)
    @given(tree=model.trees, property_sets=property_sets, style=st.integers(0, 2**32))
    def agree(tree: model.Tree, property_sets: list[dict[str, str]], style: int) -> None:
        text = model.expression_text(tree, style)
        for properties in property_sets:
            expected = model_answer(tree, properties)
            assert our_answer(text, properties) == expected, text
            if expected != "rejected":
                compiled = compile_expression(text)
                assert compiled.matches(properties) is model.matches(tree, properties) is (expected is True)
                assert compiled.ignored_position is None

    agree()
