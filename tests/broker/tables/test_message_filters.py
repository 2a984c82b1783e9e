"""Message filters: when an expression is compiled, which are refused, and which stay cached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from thermocline.broker.process.loop_turns import LoopTurns
from thermocline.broker.tables.message_filters import CompileNeeded, MessageFilters, is_tag_type
from thermocline.filters import ExpressionTooLargeError
from thermocline.remoting.errors import BrokerBusyError, MQError, SubscriptionParseError


def filters_with(
    *, is_enabled: bool = True, turn_s: float = 60.0, jobs_max: int = 10, waiting_max: int = 10
) -> tuple[MessageFilters, list[Callable[[], None]]]:
    """Filters, and the turns that they wait for, each long enough for all."""
    called: list[Callable[[], None]] = []
    turns = LoopTurns(call_soon=called.append, turn_s=turn_s, jobs_max=jobs_max)
    return MessageFilters(turns, is_enabled=lambda: is_enabled, waiting_max=waiting_max), called


def test_an_expression_is_compiled_in_its_turn() -> None:
    filters, called = filters_with()
    with pytest.raises(CompileNeeded) as info:
        filters.find("SQL92", "a > 5")
    done: list[int] = []
    assert filters.compile_soon(info.value.text, lambda: done.append(1))
    assert done == []
    called.pop()()
    assert done == [1]
    assert filters.find("SQL92", "a > 5").matches({"a": "6"})
    assert filters.find("SQL92", "a > 5") is filters.find("SQL92", "a > 5")


def test_a_long_expression_takes_many_turns() -> None:
    filters, called = filters_with(turn_s=0)
    done: list[str] = []
    long = " OR ".join(["a = 1"] * 100)
    filters.compile_soon(long, lambda: done.append("long"))
    filters.compile_soon("b = 1", lambda: done.append("short"))
    filters.compile_soon(long, lambda: done.append("long too"))
    turn_count = 0
    while called:
        called.pop()()
        turn_count += 1
    assert turn_count > 300
    assert done == ["long", "long too", "short"]


def test_a_completed_step_may_request_another_one() -> None:
    filters, called = filters_with()
    done: list[int] = []
    filters.compile_soon("a = 1", lambda: filters.compile_soon("a = 2", lambda: done.append(2)))
    called.pop()()
    assert not called
    assert done == [2]
    filters.compile_soon("a = 3", lambda: done.append(3))
    called.pop()()
    assert done == [2, 3]


def test_a_broken_expression_is_remembered(caplog: pytest.LogCaptureFixture) -> None:
    filters, called = filters_with()
    with pytest.raises(CompileNeeded):
        filters.find("SQL92", "a >\n")
    filters.compile_soon("a >\n", lambda: None)
    called.pop()()
    for _ in range(2):
        with pytest.raises(SubscriptionParseError, match="not complete"):
            filters.find("SQL92", "a >\n")
    assert "filter refused expression='a >\\n' reason=the expression is not complete" in caplog.text


def test_an_expression_with_trailing_text_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    filters, called = filters_with()
    filters.compile_soon("a = 1 b = 2", lambda: None)
    called.pop()()
    assert filters.find("SQL92", "a = 1 b = 2").matches({"a": "1"})
    assert "filter is not read to its end position=6" in caplog.text


def test_an_expression_that_is_too_large_needs_no_turn() -> None:
    filters, _ = filters_with()
    with pytest.raises(ExpressionTooLargeError):
        filters.find("SQL92", "x" * 100_000)


@pytest.mark.parametrize("expression_type", ["sql92", "XPATH", "TAG "])
def test_other_types_are_refused(expression_type: str) -> None:
    filters, _ = filters_with()
    with pytest.raises(SubscriptionParseError, match="no type of expression"):
        filters.find(expression_type, "a > 5")


def test_while_the_setting_is_off_nothing_but_tags_is_served() -> None:
    filters, called = filters_with(is_enabled=False)
    with pytest.raises(MQError, match="The broker does not support consumer to filter message by SQL92"):
        filters.find("SQL92", "a > 5")
    assert called == []


async def test_compiling_can_be_waited_for() -> None:
    loop = asyncio.get_running_loop()
    filters = MessageFilters(LoopTurns(call_soon=loop.call_soon), is_enabled=lambda: True)
    await filters.compile_in_turn("a IS NULL")
    assert filters.find("SQL92", "a IS NULL").matches({})
    await filters.compile_in_turn("a IS")
    with pytest.raises(SubscriptionParseError):
        filters.find("SQL92", "a IS")


async def test_too_much_to_compile() -> None:
    filters, called = filters_with(waiting_max=1)
    assert filters.compile_soon("a = 1", lambda: None)
    assert filters.compile_soon("a = 1", lambda: None)
    assert not filters.compile_soon("a = 2", lambda: None)
    with pytest.raises(BrokerBusyError):
        await filters.compile_in_turn("a = 3")
    assert len(called) == 1


def test_no_turn_to_be_had() -> None:
    filters, called = filters_with(jobs_max=0)
    assert not filters.compile_soon("a = 1", lambda: None)
    assert not called


@pytest.mark.parametrize(("expression_type", "expected"), [(None, True), ("", True), ("TAG", True), ("SQL92", False)])
def test_types_of_tags(expression_type: str | None, expected: bool) -> None:
    assert is_tag_type(expression_type) is expected
