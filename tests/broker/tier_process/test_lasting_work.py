"""Work that is to go on, whatever it fails by."""

from __future__ import annotations

import asyncio
import logging

import pytest

from thermocline.broker.tier_process.lasting_work import keep_working


async def test_work_that_fails_begins_again_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    errors = [OSError(24, "Too many open files"), OSError(24, "Too many open files"), ValueError("a bug")]

    async def work() -> None:
        if errors:
            raise errors.pop(0)

    with caplog.at_level(logging.ERROR):
        await keep_working(work, name="merging", pause_s=0)
    assert not errors
    assert [record.getMessage().split(",")[0] for record in caplog.records] == ["merging has failed"] * 2
    assert all(record.exc_info for record in caplog.records)


async def test_it_pauses_before_it_begins_again() -> None:
    loop, begun_s = asyncio.get_running_loop(), list[float]()

    async def work() -> None:
        begun_s.append(loop.time())
        if len(begun_s) == 1:
            raise OSError(24, "Too many open files")

    await keep_working(work, name="merging", pause_s=0.05)
    assert begun_s[1] - begun_s[0] >= 0.05


async def test_it_ends_when_it_is_cancelled() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(keep_working(work, name="indexing"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
