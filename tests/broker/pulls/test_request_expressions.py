"""Expressions of pulls and POPs: what they select, and their bounds."""

from __future__ import annotations

import pytest

from thermocline.broker.process import LoopTurns
from thermocline.broker.pulls.request_expressions import (
    ALL,
    CHARS_KEPT_MAX,
    EXPRESSIONS_KEPT_MAX,
    TAGS_CHARS_MAX,
    RequestExpressions,
)
from thermocline.broker.tables import MessageFilters
from thermocline.remoting.errors import SubscriptionParseError
from thermocline.remoting.string_hash import tags_code


@pytest.fixture
def expressions() -> RequestExpressions:
    turns = LoopTurns(call_soon=lambda call: call)
    return RequestExpressions(MessageFilters(turns, is_enabled=lambda: False))


def test_tags(expressions: RequestExpressions) -> None:
    for text in ("", "*"):
        assert expressions.read("T", text, None) == ALL
    wanted = expressions.read("T", "a || b", "TAG")
    assert wanted.codes == {tags_code("a"), tags_code("b")}
    assert expressions.read("T", "a || b", "") is wanted, "remembered"


def test_an_expression_that_would_take_the_loop_long_is_refused(expressions: RequestExpressions) -> None:
    longest = "a" * (TAGS_CHARS_MAX - 3) + "||b"
    codes = expressions.read("T", longest, None).codes
    assert codes is not None
    assert len(codes) == 2
    with pytest.raises(SubscriptionParseError):
        expressions.read("T", longest + "c", None)


def test_what_is_remembered_has_bounds(expressions: RequestExpressions) -> None:
    for number in range(EXPRESSIONS_KEPT_MAX + 1):
        expressions.read("T", str(number), None)
    assert len(expressions._tags) == 1
    for number in range(2 * CHARS_KEPT_MAX // TAGS_CHARS_MAX):
        expressions.read("T", str(number).ljust(TAGS_CHARS_MAX, "x"), None)
        assert sum(map(len, expressions._tags)) <= CHARS_KEPT_MAX
