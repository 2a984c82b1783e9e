"""Sends that would take the loop long: they are refused before they are read.

Covers `broker/processors/messages/send.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.data_broker import DataBroker, data_broker
from tests.broker.wire import Wire
from thermocline.broker.processors.messages import reply, send
from thermocline.broker.processors.messages.send import SENT_PROPERTIES_MAX
from thermocline.remoting.command import RemotingCommand, SerializeType

TOPIC = "TopicA"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[DataBroker]:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as broker:
        yield broker


async def ask(broker: DataBroker, code: int, serialize_type: SerializeType, properties: str) -> RemotingCommand:
    fields = {"a": "p", "b": TOPIC, "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "5", "h": "3", "i": properties}
    fields |= {"m": "true"} if code == 320 else {}
    wire = Wire(broker.dispatcher, broker.hot)
    command = RemotingCommand(code=code, opaque=1, ext_fields=fields, body=b"x", serialize_type=serialize_type)
    wire.receive(command.encode())
    (answer,) = await wire.wait_commands()
    return answer


@pytest.mark.parametrize("serialize_type", SerializeType)
@pytest.mark.parametrize("code", [310, 320, 325])
async def test_megabytes_of_properties_are_not_read(
    broker: DataBroker, monkeypatch: pytest.MonkeyPatch, code: int, serialize_type: SerializeType
) -> None:
    def read(text: object) -> dict[str, str]:
        raise AssertionError("they are read")

    for module in (send, reply):
        monkeypatch.setattr(module, "decode_properties", read)
    properties = "a\x01b\x02" * (SENT_PROPERTIES_MAX // 4 + 1)
    assert (await ask(broker, code, serialize_type, properties)).code == 13


async def test_a_text_that_is_short_enough_without_what_the_broker_removes_is_stored(broker: DataBroker) -> None:
    properties = "KEYS\x01k\x02POP_CK\x01" + "x" * 40_000 + "\x02"
    assert len(properties) < SENT_PROPERTIES_MAX
    assert (await ask(broker, 310, SerializeType.JSON, properties)).code == 0
