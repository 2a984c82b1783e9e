"""Listener runners: bounds, outcomes, closing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from thermocline.client.consumer.dispatch.listener_runner import (
    ListenerJob,
    ListenerNotRunError,
    ListenerRunner,
    TaskRunner,
    ThreadRunner,
    run_directly,
)

Wrap = Callable[[Callable[[], Any]], Callable[[], Any]]


def as_coroutine(function: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    async def call() -> Any:
        await asyncio.sleep(0)
        return function()

    return call


@pytest.fixture(params=["threads", "tasks"])
async def kind(request: pytest.FixtureRequest) -> tuple[ListenerRunner, Wrap]:
    if request.param == "threads":
        return ThreadRunner(count_max=3, name="test"), lambda function: function
    return TaskRunner(count_max=3), as_coroutine


async def test_results_and_exceptions_come_back_on_the_loop(kind: tuple[ListenerRunner, Wrap]) -> None:
    runner, wrap = kind
    outcomes: list[object] = []
    done = asyncio.Event()
    loop_thread = threading.current_thread()

    def fail() -> None:
        raise KeyError("x")

    def record(job: ListenerJob, outcome: object) -> None:
        assert threading.current_thread() is loop_thread
        assert job.started_at is not None
        outcomes.append(outcome)
        if len(outcomes) == 2:
            done.set()

    runner.submit(ListenerJob(wrap(lambda: 7), record))
    runner.submit(ListenerJob(wrap(fail), record))
    await asyncio.wait_for(done.wait(), 10)
    assert 7 in outcomes
    assert any(isinstance(outcome, KeyError) for outcome in outcomes)
    assert await runner.close(timeout_ms=1_000)


async def test_at_most_so_many_run_at_once(kind: tuple[ListenerRunner, Wrap]) -> None:
    runner, wrap = kind
    lock = threading.Lock()
    running = most = 0
    done = asyncio.Event()
    finished: list[object] = []

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1

    def record(job: ListenerJob, outcome: object) -> None:
        finished.append(outcome)
        if len(finished) == 100:
            done.set()

    for _ in range(100):
        runner.submit(ListenerJob(wrap(work), record))
    await asyncio.wait_for(done.wait(), 10)
    assert 1 <= most <= 3
    await runner.close(timeout_ms=1_000)


async def test_a_cancelled_job_is_left_out(kind: tuple[ListenerRunner, Wrap]) -> None:
    runner, wrap = kind
    called: list[int] = []
    outcome: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    job = ListenerJob(wrap(lambda: called.append(1)), lambda job, result: outcome.set_result(result))
    job.is_cancelled = True
    runner.submit(job)
    assert isinstance(await outcome, ListenerNotRunError)
    assert not called
    await runner.close(timeout_ms=1_000)


async def test_closing_waits_for_running_calls_and_drops_waiting_ones() -> None:
    runner = ThreadRunner(count_max=1, name="test")
    begun, release = threading.Event(), threading.Event()
    outcomes: list[object] = []

    def wait() -> str:
        begun.set()
        assert release.wait(10)
        return "done"

    for _ in range(3):
        runner.submit(ListenerJob(wait, lambda job, outcome: outcomes.append(outcome)))
    await asyncio.to_thread(begun.wait, 10)
    closing = asyncio.create_task(runner.close(timeout_ms=10_000))
    await asyncio.sleep(0)
    assert [type(outcome) for outcome in outcomes] == [ListenerNotRunError] * 2
    release.set()
    assert await closing
    assert outcomes[2] == "done"


async def test_closing_gives_up_on_a_listener_that_does_not_end() -> None:
    runner = ThreadRunner(count_max=1, name="test")
    begun, release = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        release.wait(10)

    runner.submit(ListenerJob(wait, lambda job, outcome: None))
    await asyncio.to_thread(begun.wait, 10)
    assert not await runner.close(timeout_ms=1)
    release.set()


async def test_tasks_that_do_not_end_are_cancelled() -> None:
    runner = TaskRunner(count_max=1)
    runner.submit(ListenerJob(asyncio.Event().wait, lambda job, outcome: None))
    await asyncio.sleep(0)
    assert not await runner.close(timeout_ms=1)


async def test_a_direct_call_waits_its_turn_and_returns(kind: tuple[ListenerRunner, Wrap]) -> None:
    runner, wrap = kind
    assert await run_directly(runner, wrap(lambda: "answer")) == "answer"
    with pytest.raises(ZeroDivisionError):
        await run_directly(runner, wrap(lambda: 1 // 0))
    await runner.close(timeout_ms=1_000)
