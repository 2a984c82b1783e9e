"""Turns: how long one lasts, who comes next, and what happens to jobs that go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from thermocline.broker.process.loop_turns import LoopTurns, job_of


class Loop:
    """A loop that turns on request, and a clock that work moves on."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.called: list[Callable[[], None]] = []

    def turn(self) -> None:
        called, self.called = self.called, []
        for function in called:
            function()

    def turns(self, **settings: int) -> LoopTurns:
        return LoopTurns(call_soon=self.called_soon, clock_s=lambda: self.now_s, turn_s=1.0, **settings)

    def called_soon(self, function: Callable[[], None]) -> None:
        self.called.append(function)

    def job(self, name: str, log: list[str], *, steps: int, step_s: float) -> Callable[[Callable[[], bool]], bool]:
        steps_remaining = steps

        def go_on(is_time_up: Callable[[], bool]) -> bool:
            nonlocal steps_remaining
            while steps_remaining:
                steps_remaining -= 1
                log.append(name)
                self.now_s += step_s
                if is_time_up():
                    break
            return not steps_remaining

        return go_on


def test_nothing_is_called_without_a_job() -> None:
    loop = Loop()
    turns = loop.turns()
    assert loop.called == []
    turns.add(lambda _: True)
    assert len(loop.called) == 1
    loop.turn()
    assert loop.called == []
    assert len(turns) == 0


def test_short_jobs_share_a_turn() -> None:
    loop, log = Loop(), list[str]()
    turns = loop.turns()
    for name in "abc":
        turns.add(loop.job(name, log, steps=1, step_s=0.1))
    assert len(loop.called) == 1
    loop.turn()
    assert (log, len(turns), loop.called) == (["a", "b", "c"], 0, [])


def test_a_long_job_goes_to_the_end_of_the_line() -> None:
    loop, log = Loop(), list[str]()
    turns = loop.turns()
    turns.add(loop.job("long", log, steps=4, step_s=0.5))
    turns.add(loop.job("short", log, steps=1, step_s=0.1))
    loop.turn()
    assert log == ["long", "long"]
    loop.turn()
    assert log == ["long", "long", "short", "long", "long"]
    assert len(turns) == 0


def test_a_turn_ends_though_jobs_wait() -> None:
    loop, log = Loop(), list[str]()
    turns = loop.turns()
    for number in range(7):
        turns.add(loop.job(str(number), log, steps=1, step_s=0.5))
    seen = []
    while loop.called:
        assert len(loop.called) == 1
        loop.turn()
        seen.append(len(log))
    assert seen == [2, 4, 6, 7]


def test_a_job_that_a_job_adds_has_the_next_turn() -> None:
    loop, log = Loop(), list[str]()
    turns = loop.turns()

    def first(_: Callable[[], bool]) -> bool:
        turns.add(loop.job("second", log, steps=1, step_s=0.0))
        return True

    turns.add(first)
    loop.turn()
    assert log == []
    loop.turn()
    assert log == ["second"]


def test_the_line_is_bounded() -> None:
    loop = Loop()
    turns = loop.turns(jobs_max=2)
    assert turns.add(lambda _: True)
    assert turns.add(lambda _: True)
    assert not turns.add(lambda _: True)
    loop.turn()
    assert turns.add(lambda _: True)


def test_a_job_that_raises_takes_no_other_along(caplog: pytest.LogCaptureFixture) -> None:
    loop, log = Loop(), list[str]()
    turns = loop.turns()

    def broken(_: Callable[[], bool]) -> bool:
        raise ZeroDivisionError

    turns.add(broken)
    turns.add(loop.job("other", log, steps=1, step_s=0.0))
    loop.turn()
    assert log == ["other"]
    assert len(turns) == 0
    assert "a bug of ours" in caplog.text


def test_steps_are_taken_one_a_turn_at_least() -> None:
    log: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(4):
            log.append(number)
            yield

    job = job_of(steps())
    assert not job(lambda: True)
    assert log == [0]
    assert not job(lambda: len(log) > 2)
    assert log == [0, 1, 2]
    assert job(lambda: False)
    assert log == [0, 1, 2, 3]


async def test_others_run_between_two_turns() -> None:
    """On a real loop: what is due meanwhile is not kept waiting for the whole job."""
    loop = asyncio.get_running_loop()
    turns = LoopTurns(call_soon=loop.call_soon, clock_s=lambda: 0.0, turn_s=0.0)
    log: list[str] = []
    done = asyncio.Event()

    def go_on(is_time_up: Callable[[], bool]) -> bool:
        log.append("job")
        if len(log) >= 8:
            done.set()
            return True
        return not is_time_up()

    def other() -> None:
        log.append("other")
        if not done.is_set():
            loop.call_soon(other)

    turns.add(go_on)
    loop.call_soon(other)
    await done.wait()
    assert log[:8] == ["job", "other"] * 4 or log[:8] == ["other", "job"] * 4
