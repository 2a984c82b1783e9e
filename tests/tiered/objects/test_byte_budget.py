"""Byte budgets: bounded, in order, never stuck, and released when a waiting or holding task is cancelled."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from thermocline.tiered.objects.byte_budget import ByteBudget


async def hold(budget: ByteBudget, size_bytes: int, order: list[int], release: asyncio.Event) -> None:
    async with budget.hold(size_bytes):
        order.append(size_bytes)
        await release.wait()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_large_share_is_not_overtaken_by_small_ones() -> None:
    budget, order, release = ByteBudget(10), [], asyncio.Event()
    tasks = [asyncio.create_task(hold(budget, size, order, release)) for size in (6, 8, 1)]
    await turns()
    assert order == [6]
    assert (budget.used_bytes, budget.waiting_count) == (6, 2)
    release.set()
    await asyncio.gather(*tasks)
    assert order == [6, 8, 1]
    assert budget.used_bytes == 0


async def test_more_than_the_whole_budget_passes_alone() -> None:
    budget, order = ByteBudget(10), []
    first, second = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(hold(budget, 25, order, first)), asyncio.create_task(hold(budget, 1, order, second))]
    await turns()
    assert order == [25]
    first.set()
    await turns()
    assert order == [25, 1]
    second.set()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("used_by_others", [0, 3])
async def test_a_second_share_goes_before_one_that_waits_for_the_first(used_by_others: int) -> None:
    """As a segment of many small records waits while a merge goes on: neither could end."""
    budget, order = ByteBudget(10), []
    other, release = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(hold(budget, used_by_others, order, other))]
    async with budget.hold(5):
        tasks.append(asyncio.create_task(hold(budget, 8, order, release)))
        await turns()
        more = asyncio.create_task(use_more(budget, 4, own_bytes=5))
        await turns()
        other.set()
        await asyncio.wait_for(more, timeout=1)
        assert order == [used_by_others]
    await turns()
    assert order == [used_by_others, 8]
    release.set()
    await asyncio.gather(*tasks)
    assert (budget.used_bytes, budget.waiting_count) == (0, 0)


async def use_more(budget: ByteBudget, size_bytes: int, *, own_bytes: int) -> None:
    async with budget.hold(size_bytes, own_bytes=own_bytes):
        assert budget.used_bytes <= budget.bytes_max


async def test_a_holder_gives_way_to_those_that_wait() -> None:
    budget, order, release = ByteBudget(10), [], asyncio.Event()
    async with budget.hold(5):
        await budget.give_way(5)  # nothing waits: it goes on
        tasks = [asyncio.create_task(hold(budget, size, order, release)) for size in (8, 1)]
        await turns()
        assert order == []
        giving = asyncio.create_task(budget.give_way(5))
        await turns()
        assert order == [8, 1]
        assert not giving.done()
        release.set()
        await giving
        assert budget.used_bytes == 5
    await asyncio.gather(*tasks)
    assert (budget.used_bytes, budget.waiting_count) == (0, 0)


async def test_a_holder_that_gives_way_comes_behind_all_that_wait() -> None:
    budget, order, release = ByteBudget(10), [], asyncio.Event()
    async with budget.hold(5):
        tasks = [asyncio.create_task(hold(budget, size, order, release)) for size in (8, 9)]
        await turns()
        giving = asyncio.create_task(budget.give_way(5))
        giving.add_done_callback(lambda _: order.append(5))
        await turns()
        release.set()
        await giving
    await asyncio.gather(*tasks)
    assert order == [8, 9, 5]


async def test_who_is_cancelled_while_it_gives_way_holds_its_share_to_the_end() -> None:
    budget, order, release = ByteBudget(10), [], asyncio.Event()
    async with budget.hold(5):
        task = asyncio.create_task(hold(budget, 8, order, release))
        await turns()
        giving = asyncio.create_task(budget.give_way(5))
        await turns()
        giving.cancel()
        await asyncio.gather(giving, return_exceptions=True)
        assert budget.used_bytes == 13
    assert budget.used_bytes == 8
    release.set()
    await task
    assert (budget.used_bytes, budget.waiting_count) == (0, 0)


async def test_who_is_cancelled_leaves_its_place_and_its_share() -> None:
    budget, order, release = ByteBudget(10), [], asyncio.Event()
    tasks = [asyncio.create_task(hold(budget, size, order, release)) for size in (10, 9, 3)]
    await turns()
    tasks[1].cancel()
    await turns()
    assert budget.waiting_count == 1
    tasks[0].cancel()
    await turns()
    assert (order, budget.used_bytes, budget.waiting_count) == ([10, 3], 3, 0)
    release.set()
    await tasks[2]


async def test_a_turn_that_comes_with_the_cancellation_is_given_on() -> None:
    budget, order, release = ByteBudget(10), [], asyncio.Event()
    tasks = [asyncio.create_task(hold(budget, size, order, release)) for size in (10, 10, 10)]
    await turns()
    release.set()
    await asyncio.sleep(0)  # the first lets go now, the second's turn comes
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    await tasks[2]
    assert order[0] == order[-1] == 10
    assert budget.used_bytes == 0


async def test_another_size_counts_at_once() -> None:
    budget, order, release = ByteBudget(10), [], asyncio.Event()
    tasks = [asyncio.create_task(hold(budget, 8, order, release)) for _ in range(3)]
    await turns()
    assert len(order) == 1
    budget.resize(24)
    await turns()
    assert len(order) == 3
    release.set()
    await asyncio.gather(*tasks)


async def test_random_users_never_hold_more_than_the_budget() -> None:
    random = Random(3)
    budget = ByteBudget(100)

    async def use(size_bytes: int, rest: int, leaves: bool) -> None:
        task = asyncio.current_task()
        assert task is not None
        async with budget.hold(size_bytes):
            assert budget.used_bytes <= max(100, size_bytes)
            for _ in range(rest):
                await asyncio.sleep(0)
            if leaves:
                task.cancel()
                await asyncio.sleep(0)

    tasks = [
        asyncio.create_task(use(random.randint(1, 130), random.randint(0, 5), random.random() < 0.2))
        for _ in range(300)
    ]
    for task in random.sample(tasks, 40):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (budget.used_bytes, budget.waiting_count) == (0, 0)
