"""Several awaitables at once: results in order, one error, nothing left behind."""

from __future__ import annotations

import asyncio

import pytest

from thermocline.remoting.errors import ObjectNotFoundError
from thermocline.tiered.objects.parallel import run_all
from thermocline.tiered.wrappers import ProcessCrash


async def test_results_come_in_order_and_few_run_at_once() -> None:
    running = most = 0

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(number % 3):
            await asyncio.sleep(0)
        running -= 1
        return number

    assert await run_all([work(number) for number in range(20)], concurrency_max=4) == list(range(20))
    assert most == 4
    assert await run_all([]) == []


@pytest.mark.parametrize("error_class", [ObjectNotFoundError, ProcessCrash])
async def test_the_first_failure_is_raised_as_it_is(error_class: type[BaseException]) -> None:
    begun: list[str] = []
    ended: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise error_class

    async def wait() -> None:
        begun.append("waiting")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waiting")

    with pytest.raises(error_class):
        await run_all([wait(), fail(), wait(), wait()], concurrency_max=2)
    assert ended == begun
