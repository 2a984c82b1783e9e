"""How much the helper processes of a real broker give way to what else runs on the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import HELPER_NICE
from tests.crash.broker_process import HELPERS, BrokerProcess
from tests.crash.wire import until_true


@pytest.mark.crash
@pytest.mark.parametrize(("setting", "expected"), [({}, int(HELPER_NICE)), ({"helperNice": "7"}, 7)])
async def test_helpers_give_way_as_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: dict[str, str], expected: int
) -> None:
    if setting:
        monkeypatch.delenv("THERMOCLINE_HELPER_NICE")  # it would win over the file
    own = os.getpriority(os.PRIO_PROCESS, 0)
    broker = BrokerProcess(tmp_path, {"coldUrl": (tmp_path / "cold").as_uri(), **setting})
    await broker.start()
    try:
        for role in HELPERS:

            async def has_configured_priority(role: str = role) -> bool:
                pid = broker.helper_pid(role)
                return pid is not None and os.getpriority(os.PRIO_PROCESS, pid) == min(19, own + expected)

            await until_true(has_configured_priority)
        assert os.getpriority(os.PRIO_PROCESS, broker.pid) == own
        assert await broker.stop() == 0
    finally:
        if broker.is_running:
            await broker.kill()
