"""Consumer group requests over real sockets: refusals, and durability of changes at the time of the answer.

Covers `broker/tables/group_table.py`.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.broker.data_broker import data_broker
from tests.broker.popping import GROUP, INVISIBLE_MS, TOPIC, PopClient
from tests.broker.processors.pops.test_pop import RETRY_TOPIC
from tests.clock import Clock
from thermocline.broker.tables import consumer_offsets
from thermocline.remoting.bodies import GroupForbidden, SubscriptionGroupConfig, SubscriptionGroupListBody
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.json_dialect import loads
from thermocline.remoting.response_code import ResponseCode


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        yield broker


async def test_a_group_is_set_up_and_survives_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    config = SubscriptionGroupConfig(group_name="G", retry_max_times=5, consume_broadcast_enable=False)
    async with control_broker(tmp_path, clock=clock) as broker:
        assert (await broker.ask(200, body=config.encode())).code == 0
    async with control_broker(tmp_path, clock=clock) as broker:
        assert broker.parts.tables.groups.get("G") == config
        answer = await broker.ask(352, {"group": "G"})
        assert SubscriptionGroupConfig.decode(answer.body) == config


async def test_a_wrong_group_is_refused(broker: ControlBroker) -> None:
    for name in ("", "bad group", "x" * 121):
        answer = await broker.ask(200, body=SubscriptionGroupConfig(group_name=name).encode())
        assert answer.code == 29
    unknown_attribute = SubscriptionGroupConfig(group_name="G", attributes={"+no.such": "1"})
    assert (await broker.ask(200, body=unknown_attribute.encode())).code == 1
    both = SubscriptionGroupListBody(
        group_config_list=[SubscriptionGroupConfig(group_name="G"), SubscriptionGroupConfig(group_name="bad group")]
    )
    assert (await broker.ask(225, body=both.encode())).code == 29
    assert "G" not in broker.parts.tables.groups


async def test_groups_are_made_by_use_unless_switched_off(broker: ControlBroker) -> None:
    assert (await broker.ask(352, {"group": "Made"})).code == 0
    await broker.ask(25, body=b"autoCreateSubscriptionGroup=false\n")
    answer = await broker.ask(352, {"group": "NotMade"})
    assert (answer.code, answer.remark) == (26, "No group in this broker")
    assert (await broker.ask(352, {"group": "CID_RMQ_SYS_made"})).code == 0
    await broker.ask(25, body=b"enableCreateSysGroup=false\n")
    assert (await broker.ask(352, {"group": "CID_RMQ_SYS_not_made"})).code == 26
    assert (await broker.ask(352, {"group": "Made"})).code == 0


async def test_a_deleted_group_loses_its_offsets_when_asked_to(broker: ControlBroker) -> None:
    parts = broker.parts
    for group in ("G", "H"):
        parts.tables.groups.find_or_create(group)
        parts.tables.offsets.commit("T", group, 0, 1)
    await parts.tables.persister.save(consumer_offsets.FILE_NAME)
    assert (await broker.ask(207, {"groupName": "G", "cleanOffset": "true"})).code == 0
    table = loads(parts.base.disk.read(f"{parts.base.store.config.config_path}/{consumer_offsets.FILE_NAME}"))
    assert table["offsetTable"].keys() == {"T@H"}, "durable with the answer"
    assert (await broker.ask(207, {"groupName": "H", "cleanOffset": "false"})).code == 0
    assert "G" not in parts.tables.groups
    assert "H" not in parts.tables.groups
    assert parts.tables.offsets.query("T", "G", 0) is None
    assert parts.tables.offsets.query("T", "H", 0) == 1


async def test_what_a_deleted_group_has_popped_does_not_make_it_anew(tmp_path: Path) -> None:
    async with data_broker(tmp_path, topics=[TOPIC], start=False) as data:
        client = PopClient(data)
        client.send(b"a", b"b")
        client.send(b"c", queue_id=1)
        assert len(client.pop(queueId=0)) == 2
        assert len(client.pop(queueId=1, order=True)) == 1
        fields = {"groupName": GROUP, "cleanOffset": "true"}
        assert (await data.ask(RemotingCommand.request(207, ext_fields=fields))).code == 0
        data.clock.now_ms += INVISIBLE_MS
        await data.pop.reviver.step()
        assert GROUP not in data.parts.tables.groups
        assert RETRY_TOPIC not in data.parts.tables.topics
        assert len(data.parts.pops.store.orders) == 0
        path = f"{data.store.config.config_path}/consumerOffset.json"
        assert f"@{GROUP}".encode() not in data.parts.base.disk.read(path)


async def test_a_deleted_group_loses_its_statistics(broker: ControlBroker) -> None:
    stats = broker.parts.base.stats
    for group in ("G", "H"):
        broker.parts.tables.groups.find_or_create(group)
        stats.add_get("T", group, 10, 100)
    assert (await broker.ask(207, {"groupName": "G", "cleanOffset": "false"})).code == 0
    assert stats.view("GROUP_GET_NUMS", "T@G") is None
    assert stats.view("GROUP_GET_NUMS", "T@H") is not None


async def test_a_group_can_be_kept_from_reading_a_topic(tmp_path: Path) -> None:
    async with control_broker(tmp_path) as broker:
        fields = {"group": "G", "topic": "T"}
        answer = await broker.ask(353, {**fields, "readable": "false"})
        assert not GroupForbidden.decode(answer.body).readable
        assert broker.parts.tables.groups.is_read_forbidden("G", "T")
    async with control_broker(tmp_path) as broker:
        assert not GroupForbidden.decode((await broker.ask(353, fields)).body).readable
        assert GroupForbidden.decode((await broker.ask(353, {**fields, "readable": "true"})).body).readable
        assert not broker.parts.tables.groups.is_read_forbidden("G", "T")


@pytest.mark.parametrize("fields", [{"group": "g" * 300, "topic": "T"}, {"group": "G", "topic": "t" * 300}])
async def test_names_too_long_are_not_kept(broker: ControlBroker, fields: dict[str, str]) -> None:
    assert (await broker.ask(353, {**fields, "readable": "false"})).code == ResponseCode.INVALID_PARAMETER
    assert broker.parts.tables.groups.forbidden_count == 0


async def test_groups_come_in_pages(broker: ControlBroker) -> None:
    names = sorted(broker.parts.tables.groups.configs())
    answer = await broker.ask(201, {"groupSeq": "0", "dataVersion": "", "maxGroupNum": "3"})
    assert answer.ext_fields == {"totalGroupNum": str(len(names))}
    assert list(loads(answer.body)["subscriptionGroupTable"]) == names[:3]
