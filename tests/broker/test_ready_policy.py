"""When a broker says that it is ready although a part is missing, it names the part."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from thermocline.broker.hot_process import HotProcess
from thermocline.broker.main import AT_ONCE, ReadyPolicy, _wait_complete

SOON = ReadyPolicy(helpers_timeout_s=0.01, store_timeout_s=0.01)


@dataclass
class Process:
    """What the policy looks at."""

    missing_parts: list[str] = field(default_factory=list)
    is_waiting_for_store: bool = False

    @property
    def is_complete(self) -> bool:
        return not self.missing_parts


async def warnings_of(process: Process, policy: ReadyPolicy, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    await _wait_complete(cast("HotProcess", process), policy, asyncio.Event())
    return [record.getMessage() for record in caplog.records]


async def test_parts_that_do_not_serve_in_time_are_named(caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = await warnings_of(Process(["key index", "cold tier"]), SOON, caplog)
    assert "missing=key index,cold tier" in warning


async def test_a_store_that_does_not_answer_is_named(caplog: pytest.LogCaptureFixture) -> None:
    policy = ReadyPolicy(helpers_timeout_s=60, store_timeout_s=0)
    (warning,) = await warnings_of(Process(["cold tier"], is_waiting_for_store=True), policy, caplog)
    assert "store has not answered" in warning


async def test_a_complete_broker_and_one_that_waits_for_nothing_do_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    assert not await warnings_of(Process(), SOON, caplog)
    assert not await warnings_of(Process(["cold tier"]), AT_ONCE, caplog)
