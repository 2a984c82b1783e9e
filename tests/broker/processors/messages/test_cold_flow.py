"""What operators ask about cold reads: codes 2001 to 2004.

Covers `broker/assembly/messages.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from thermocline.broker.pulls import cold_read_quota
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


@pytest.mark.parametrize("text", [b"9223372036854775808", b"-9223372036854775808", b"9" * 5_000])
async def test_a_threshold_of_more_than_64_bits_is_no_number(broker: DataBroker, text: bytes) -> None:
    """It could not be shown to tools, and so none could any more."""
    assert (await ask(broker, 2001, b"GroupA=9223372036854775807\nGroupB=" + text)).code == 0
    assert json.loads((await ask(broker, 2003)).body)["configTable"] == {"GroupA": 9_223_372_036_854_775_807}


async def test_groups_with_a_threshold_are_bounded(broker: DataBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_read_quota, "THRESHOLDS_MAX", 2)
    assert (await ask(broker, 2001, b"GroupA=1\nGroupB=1\n")).code == 0
    for body, code in ((b"GroupA=2\nGroupC=1\n", 2), (b"G" * 256 + b"=1\n", 29)):
        assert (await ask(broker, 2001, body)).code == code
    assert (await ask(broker, 2001, b"GroupA=2\nGroupB=2\n")).code == 0
    assert json.loads((await ask(broker, 2003)).body)["configTable"] == {"GroupA": 2, "GroupB": 2}


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
