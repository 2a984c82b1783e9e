"""What operators ask about cold reads: codes 2001 to 2004.

Covers `broker/assembly/messages.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from thermocline.remoting.command import RemotingCommand


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, start=False) as broker:
        yield broker


async def ask(broker: DataBroker, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
    return await broker.ask(RemotingCommand.request(code, ext_fields=fields or None, body=body))


async def test_thresholds_are_set_shown_and_removed(broker: DataBroker) -> None:
    assert (await ask(broker, 2001, b"GroupA=1000\nGroupB=not a number\nGroupC=%b\n" % (b"9" * 30))).code == 0
    shown = json.loads((await ask(broker, 2003)).body)
    assert shown == {
        "runtimeTable": {},
        "configTable": {"GroupA": 1000},
        "cgColdReadThreshold": 3_145_728,
        "globalColdReadThreshold": 104_857_600,
        "globalAcc": 0,
    }
    assert (await ask(broker, 2002, b"GroupA")).code == 0
    assert json.loads((await ask(broker, 2003)).body)["configTable"] == {}


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"READ_AHEAD_MODE": "1"}, 0, "set commitlog readahead mode success, mode: 1"),
        ({"READ_AHEAD_MODE": "7"}, 29, "set commitlog readahead mode param value error"),
        ({"READ_AHEAD_MODE": "x"}, 1, "set commitlog readahead mode failed"),
        ({}, 1, "set commitlog readahead mode param error"),
    ],
)
async def test_a_read_mode_is_one_of_two(broker: DataBroker, fields: dict[str, str], code: int, remark: str) -> None:
    answer = await ask(broker, 2004, **fields)
    assert (answer.code, answer.remark) == (code, remark)
