"""Tasks that outlive their RPC: what the proxy's stop waits for."""

from __future__ import annotations

import asyncio

from tests.virtual_loop import run_virtually
from thermocline.proxy.grpc.service import Background


def test_a_stop_waits_for_tasks_that_tasks_start_as_they_end() -> None:
    """A long poll that has messages for a client that is gone gives them back by a further task."""

    async def stop() -> list[str]:
        background, done = Background(), []

        async def give_back() -> None:
            await asyncio.sleep(0.1)
            done.append("given back")

        poll = background.start(asyncio.sleep(1))
        poll.add_done_callback(lambda _: background.start(give_back()))
        await background.close(timeout_ms=5_000)
        assert not len(background)
        return done

    assert run_virtually(stop) == ["given back"]


def test_a_stop_ends_at_its_deadline_though_tasks_go_on_starting_others() -> None:
    async def stop() -> float:
        background, loop = Background(), asyncio.get_running_loop()

        def again(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                background.start(asyncio.sleep(0.3)).add_done_callback(again)

        background.start(asyncio.sleep(0.3)).add_done_callback(again)
        started = loop.time()
        await background.close(timeout_ms=1_000)
        return loop.time() - started

    assert run_virtually(stop) == 1.0
