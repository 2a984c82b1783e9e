"""An expression means here what it means to the official filter library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.filters import expression_model as model
from tests.filters.official_library import Question, official_answers, our_answer, recorded

PROPERTY_SETS, RECORDED = recorded()


@pytest.mark.parametrize("expression", RECORDED)
def test_answers_are_the_recorded_ones(expression: str) -> None:
    assert our_answer((expression, PROPERTY_SETS)) == RECORDED[expression]


@pytest.mark.java
def test_the_recorded_answers_are_the_official_ones(jdk_home: Path, official_jars: Path) -> None:
    questions: list[Question] = [(expression, PROPERTY_SETS) for expression in RECORDED]
    answers = official_answers(jdk_home, official_jars, questions)
    assert dict(zip(RECORDED, answers, strict=True)) == RECORDED


@pytest.mark.java
@pytest.mark.parametrize("text_of", [model.expression_text, model.damaged_text])
def test_any_text_means_the_same_to_both(
    jdk_home: Path, official_jars: Path, case_count: Callable[..., int], text_of: Callable[[model.Tree, int], str]
) -> None:
    property_sets = st.lists(model.property_maps, min_size=1, max_size=4)
    questions: list[Question] = []

    # Nothing can fail while questions are collected, so nothing is shrunk or kept.
    @settings(
        max_examples=case_count(quick=100, full=500, soak=50_000), deadline=None, database=None, phases=[Phase.generate]
    )
    @given(tree=model.trees, property_sets=property_sets, style=st.integers(0, 2**32))
    def collect(tree: model.Tree, property_sets: list[dict[str, str]], style: int) -> None:
        questions.append((text_of(tree, style), property_sets))

    collect()
    answers = official_answers(jdk_home, official_jars, questions)
    wrong = [
        (question, answer, ours)
        for question, answer in zip(questions, answers, strict=True)
        if (ours := our_answer(question)) != answer
    ]
    assert not wrong
