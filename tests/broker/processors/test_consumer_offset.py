"""Consumer offsets over real sockets: where groups continue, where a new group starts, and resets.

Covers `broker/queues/first_message.py`.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.control_broker import Client, ControlBroker, control_broker
from tests.broker.slave_config import slave_config
from tests.clock import Clock
from thermocline.broker.cluster import StandIn
from thermocline.broker.cold.cold_reads import ColdBounds, ColdPull, ColdPullResult, ColdTimeSearch, NoColdTier
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    MessageQueue,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    SubscriptionData,
)
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.json_dialect import loads
from thermocline.remoting.language_code import LanguageCode

GROUP = {"consumerGroup": "G", "topic": "T", "queueId": "0"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=2)
        broker.parts.tables.groups.find_or_create("G")
        yield broker


class ColdQueue(NoColdTier):
    """A tier that holds `[0, end)` of every queue, one message a second from `first_ms` on."""

    def __init__(self, end: int, first_ms: int) -> None:
        self.end = end
        self.first_ms = first_ms
        self.is_away = False

    def bounds(self, topic: str, queue_id: int) -> ColdBounds | None:  # type: ignore[override]
        return None if self.is_away else ColdBounds(min_offset=0, end_offset=self.end)

    async def min_offset(self, topic: str, queue_id: int, *, expired_before_ms: int) -> int | None:
        self._check()
        return 0

    async def offset_by_time(self, search: ColdTimeSearch) -> int | None:
        self._check()
        offset = max(0, -(-(search.timestamp_ms - self.first_ms) // 1_000))
        return offset if offset < self.end else None

    async def pull(self, pull: ColdPull) -> ColdPullResult:
        self._check()
        return await super().pull(pull)

    def _check(self) -> None:
        if self.is_away:
            raise UnavailableError("the cold tier is away")


# -- consumers ---------------------------------------------------------------------------------------------------------


async def test_a_committed_offset_is_given_back(broker: ControlBroker) -> None:
    broker.parts.tables.groups.find_or_create("G")
    answer = await broker.ask(15, {**GROUP, "commitOffset": "7"})
    assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {})
    answer = await broker.ask(14, GROUP)
    assert (answer.code, answer.ext_fields) == (0, {"offset": "7"})
    await broker.ask(15, {**GROUP, "commitOffset": "3"})
    assert (await broker.ask(14, GROUP)).ext_fields == {"offset": "3"}


async def test_offsets_survive_a_clean_stop(tmp_path: Path) -> None:
    clock = Clock()
    async with control_broker(tmp_path, clock=clock) as broker:
        await broker.create_topic("T")
        broker.parts.tables.groups.find_or_create("G")
        await broker.ask(15, {**GROUP, "commitOffset": "7"})
    async with control_broker(tmp_path, clock=clock) as broker:
        assert (await broker.ask(14, GROUP)).ext_fields == {"offset": "7"}


async def test_offsets_are_written_every_five_seconds(broker: ControlBroker) -> None:
    path = f"{broker.parts.base.store.config.config_path}/consumerOffset.json"
    await broker.housekeeping.step()
    broker.parts.tables.groups.find_or_create("G")
    await broker.ask(15, {**GROUP, "commitOffset": "7"})
    await broker.housekeeping.step()
    assert not broker.parts.base.disk.exists(path)
    broker.clock.now_ms += 5_000
    await broker.housekeeping.step()
    assert loads(broker.parts.base.disk.read(path))["offsetTable"] == {"T@G": {0: 7}}


async def test_missing_topics_and_queues_are_refused(broker: ControlBroker) -> None:
    broker.parts.tables.groups.find_or_create("G")
    answer = await broker.ask(15, {**GROUP, "topic": "U", "commitOffset": "7"})
    assert (answer.code, answer.remark) == (17, "Topic U not exist!")
    # A commit makes no group, whether or not groups are made by their use.
    answer = await broker.ask(15, {**GROUP, "consumerGroup": "NotMade", "commitOffset": "7"})
    assert (answer.code, answer.remark) == (26, "Group NotMade not exist!")
    assert "NotMade" not in broker.parts.tables.groups
    assert (await broker.ask(15, GROUP)).code == 1
    assert (await broker.ask(15, {**GROUP, "consumerGroup": "H", "commitOffset": "7", "queueId": "2"})).code == 26
    for queue_id in ("2", "-1"):
        assert (await broker.ask(15, {**GROUP, "commitOffset": "7", "queueId": queue_id})).code == 29
    assert (await broker.ask(15, {**GROUP, "commitOffset": "-1"})).code == 0
    assert (await broker.ask(14, GROUP)).code == 22


async def test_a_new_group_starts_at_zero_while_the_first_message_is_in_memory(broker: ControlBroker) -> None:
    assert (await broker.ask(14, GROUP)).code == 22  # the queue never had a message
    broker.put("T")
    assert (await broker.ask(14, GROUP)).ext_fields == {"offset": "0"}
    answer = await broker.ask(14, {**GROUP, "setZeroIfNotFound": "false"})
    assert (answer.code, answer.ext_fields) == (22, {})
    assert (await broker.ask(14, {**GROUP, "queueId": "1"})).code == 22


async def test_a_first_message_far_behind_the_end_is_not_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.broker.queues.first_message.total_memory_bytes", lambda: 10_000)
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T")
        broker.put("T")
        assert (await broker.ask(14, GROUP)).code == 0
        broker.put("T", 1, body=b"x" * 4_000)  # 40 % of memory
        assert (await broker.ask(14, GROUP)).code == 22


async def test_an_expired_first_message_is_not_there(broker: ControlBroker) -> None:
    broker.put("T")
    await broker.create_topic("T", queues=2, attributes="+thermocline.ttl.ms=1000")
    assert (await broker.ask(14, GROUP)).code == 0
    broker.clock.now_ms += 1_001
    assert (await broker.ask(14, GROUP)).code == 22


async def test_a_new_group_does_not_start_at_messages_of_the_cold_tier(tmp_path: Path) -> None:
    async with control_broker(tmp_path, cold=ColdQueue(end=3, first_ms=0)) as broker:
        await broker.create_topic("T")
        broker.parts.base.store.queues.create("T", 0, next_offset=3, min_offset=3)
        for _ in range(2):
            broker.put("T")
        assert await broker.parts.reads.lookup.minimum("T", 0) == 0
        assert (await broker.ask(14, GROUP)).code == 22


# -- reset -------------------------------------------------------------------------------------------------------------


async def reset(broker: ControlBroker, **fields: str) -> Any:
    header = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true", "queueId": "-1", "offset": "-1"}
    return await broker.ask(222, {**header, **fields})


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(topic="T", broker_name="broker-a", queue_id=queue_id)


async def test_a_group_is_moved_to_a_time(broker: ControlBroker) -> None:
    broker.parts.tables.groups.find_or_create("G")
    for _ in range(5):
        broker.put("T", 0)
        broker.clock.now_ms += 1_000
    at_ms = broker.clock.now_ms - 2_500
    answer = await reset(broker, timestamp=str(at_ms))
    assert ResetOffsetBody.decode(answer.body).offset_table == {queue(0): 3, queue(1): 0}
    assert broker.parts.tables.offsets.has_reset("T", "G", 0)
    # Until the group pulls, its commits come from before the reset.
    answer = await broker.ask(15, {**GROUP, "commitOffset": "5"})
    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    assert (await broker.ask(14, GROUP)).ext_fields == {"offset": "3"}
    assert broker.parts.tables.offsets.take_reset("T", "G", 0) == 3
    await broker.ask(15, {**GROUP, "commitOffset": "5"})
    assert (await broker.ask(14, GROUP)).ext_fields == {"offset": "5"}


async def test_a_group_is_moved_to_the_end(broker: ControlBroker) -> None:
    broker.parts.tables.groups.find_or_create("G")
    for _ in range(5):
        broker.put("T", 1)
    answer = await reset(broker)
    assert ResetOffsetBody.decode(answer.body).offset_table == {queue(0): 0, queue(1): 5}


async def test_one_queue_is_moved_to_an_offset_in_its_range(broker: ControlBroker) -> None:
    broker.parts.tables.groups.find_or_create("G")
    for _ in range(5):
        broker.put("T", 0)
    answer = await reset(broker, queueId="0", offset="2")
    assert ResetOffsetBody.decode(answer.body).offset_table == {queue(0): 2}
    assert (await reset(broker, queueId="0", offset="6")).code == 0
    answer = await reset(broker, queueId="0", offset="7")
    assert (answer.code, answer.remark) == (1, "Target offset 7 not in consume queue range [0-5]")
    answer = await reset(broker, queueId="0", timestamp="0")
    assert ResetOffsetBody.decode(answer.body).offset_table == {queue(0): 0}


async def test_a_queue_that_the_topic_does_not_have_is_not_moved(broker: ControlBroker) -> None:
    fields = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true", "queueId": "2", "offset": "0"}
    assert (await broker.ask(222, fields)).code == 29
    assert not broker.parts.tables.offsets.of_group("T", "G")


async def test_a_reset_needs_topic_and_group(broker: ControlBroker) -> None:
    assert (await reset(broker, topic="U")).code == 17
    await broker.parts.tables.groups.delete("G")
    assert (await reset(broker)).code == 26


async def test_a_slave_moves_no_group_but_in_its_masters_place(tmp_path: Path) -> None:
    """Its master's next offsets would undo it. With the master away, tools ask the slave."""
    async with control_broker(tmp_path, config=slave_config(slave_acting_master=True)) as broker:
        tables = broker.parts.tables
        await tables.topics.ensure("T", queue_count=2)
        tables.groups.find_or_create("G")
        answer = await reset(broker)
        assert (answer.code, answer.remark) == (1, "Can not reset offset in slave broker")
        assert not tables.offsets.has_reset("T", "G", 0)
        assert broker.parts.cluster.members is not None
        broker.parts.cluster.members.state = StandIn.ACTING
        assert (await reset(broker)).code == 0


async def test_a_reset_reaches_into_the_cold_tier(tmp_path: Path) -> None:
    clock = Clock()
    cold = ColdQueue(end=100, first_ms=clock.now_ms - 100_000)
    async with control_broker(tmp_path, clock=clock, cold=cold) as broker:
        await broker.create_topic("T", queues=1)
        broker.parts.tables.groups.find_or_create("G")
        broker.parts.base.store.queues.create("T", 0, next_offset=100, min_offset=100)
        for _ in range(5):
            broker.put("T")
            clock.now_ms += 1_000
        answer = await reset(broker, timestamp=str(cold.first_ms + 41_500))
        assert ResetOffsetBody.decode(answer.body).offset_table == {queue(0): 42}
        answer = await reset(broker, timestamp=str(clock.now_ms - 1_000))
        assert ResetOffsetBody.decode(answer.body).offset_table == {queue(0): 104}
        cold.is_away = True
        answer = await reset(broker, timestamp=str(cold.first_ms))
        assert answer.code == 2  # try again later, never a wrong offset
        assert (await reset(broker, timestamp=str(clock.now_ms - 1_000))).code == 0


async def join(broker: ControlBroker, client: Client, *, version: int = 513) -> None:
    data = HeartbeatData(
        client_id="c1",
        consumer_data_set=[
            ConsumerData(group_name="G", subscription_data_set=[SubscriptionData(topic="T", sub_version=1)])
        ],
    )
    await broker.ask(34, body=data.encode(), version=version, connection=await broker.connect(client))


async def pushed(client: Client) -> Any:
    async with asyncio.timeout(5):
        while not any(command.code == 220 for command in client.requests):  # noqa: ASYNC110 - behind a socket
            await asyncio.sleep(0.002)
    return next(command for command in client.requests if command.code == 220)


@pytest.fixture
async def pushing_broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    config = BrokerConfig(listen_host="127.0.0.1", server_side_reset=False)
    async with control_broker(tmp_path, config=config) as broker:
        await broker.create_topic("T", queues=1)
        for _ in range(5):
            broker.put("T")
        yield broker


async def test_a_reset_is_pushed_to_members_when_they_apply_it(pushing_broker: ControlBroker) -> None:
    broker = pushing_broker
    client = Client()
    assert (await reset(broker)).code == 1  # the group has no offset
    broker.parts.tables.offsets.commit("T", "G", 0, 3)
    assert (await reset(broker)).code == 206  # no member is online
    await join(broker, client)
    answer = await reset(broker)
    assert ResetOffsetBody.decode(answer.body).offset_table == {queue(0): 5}
    push = await pushed(client)
    assert push.is_oneway
    assert (push.ext_fields["topic"], push.ext_fields["group"]) == ("T", "G")
    assert ResetOffsetBody.decode(push.body).offset_table == {queue(0): 5}
    assert not broker.parts.tables.offsets.has_reset("T", "G", 0)
    answer = await reset(broker, isForce="false")  # never forward without force
    assert ResetOffsetBody.decode(answer.body).offset_table == {queue(0): 3}


async def test_cpp_clients_get_a_list(pushing_broker: ControlBroker) -> None:
    broker = pushing_broker
    client = Client()
    broker.parts.tables.offsets.commit("T", "G", 0, 3)
    await join(broker, client)
    header = {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}
    assert (await broker.ask(222, header, language=LanguageCode.CPP)).code == 0
    listed = ResetOffsetBodyForC.decode((await pushed(client)).body).offset_table
    assert [(item.topic, item.queue_id, item.offset) for item in listed] == [("T", 0, 5)]


async def test_old_clients_cannot_be_pushed_to(pushing_broker: ControlBroker) -> None:
    broker = pushing_broker
    broker.parts.tables.offsets.commit("T", "G", 0, 3)
    await join(broker, Client(), version=20)
    answer = await reset(broker)
    assert (answer.code, answer.remark) == (1, "the client does not support this feature. version=20")


# -- administration ----------------------------------------------------------------------------------------------------


async def test_offsets_are_cloned(broker: ControlBroker) -> None:
    offsets = broker.parts.tables.offsets
    await broker.create_topic("U")
    for topic in ("T", "U", "no such topic"):
        offsets.commit(topic, "G", 0, 7)
    assert (await broker.ask(314, {"srcGroup": "G", "destGroup": "H", "topic": "T"})).code == 0
    assert offsets.topics_of("H") == {"T"}
    assert (await broker.ask(314, {"srcGroup": "G", "destGroup": "H"})).code == 0
    assert offsets.topics_of("H") == {"T", "U"}
    assert offsets.of_group("U", "H") == {0: 7}


async def test_clones_keep_to_the_limits_of_names_and_pairs(tmp_path: Path) -> None:
    async with control_broker(tmp_path, config=BrokerConfig(offset_pairs_max=2)) as broker:
        offsets = broker.parts.tables.offsets
        await broker.create_topic("T")
        offsets.commit("T", "G", 0, 7)
        assert (await broker.ask(314, {"srcGroup": "G", "destGroup": "H", "topic": "T"})).code == 0
        assert (await broker.ask(314, {"srcGroup": "G", "destGroup": "I", "topic": "T"})).code == 2
        assert (await broker.ask(314, {"srcGroup": "G", "destGroup": "H", "topic": "T"})).code == 0, "no new pair"
        assert (await broker.ask(314, {"srcGroup": "G", "destGroup": "x" * 256, "topic": "T"})).code == 29
        assert offsets.groups_of("T") == {"G", "H"}


async def test_the_least_offsets_of_all_groups(broker: ControlBroker) -> None:
    offsets = broker.parts.tables.offsets
    for group, offset in (("A", 5), ("B", 9), ("LeftOut", 1), ("Compared", 7)):
        offsets.commit("T", group, 0, offset)
    answer = await broker.ask(308, {"filterGroups": "LeftOut", "compareGroup": "Compared", "topic": "T"})
    assert QueryCorrectionOffsetBody.decode(answer.body).correction_offsets == {0: 5}
    answer = await broker.ask(308, {"filterGroups": "LeftOut,A,Compared", "compareGroup": "Compared", "topic": "T"})
    assert QueryCorrectionOffsetBody.decode(answer.body).correction_offsets == {0: 2**63 - 1}
    assert offsets.query("T", "LeftOut", 0) == 1


async def test_all_offsets_are_shown_as_the_file_has_them(broker: ControlBroker) -> None:
    broker.parts.tables.offsets.commit("T", "G", 0, 7)
    table = loads((await broker.ask(43)).body)
    assert table["offsetTable"] == {"T@G": {0: 7}}
    assert broker.parts.tables.offsets.changes.is_unsaved  # showing is not saving


@pytest.mark.parametrize(
    ("group", "topic"),
    [
        ("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC"),
        ("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        ("CID_RMQ_SYS_REVIVE_GROUP", "rmq_sys_REVIVE_LOG_DefaultCluster"),
    ],
)
async def test_no_client_moves_the_progress_of_the_broker(broker: ControlBroker, group: str, topic: str) -> None:
    """After a restart, half messages and popped messages before it would have ended."""
    offsets = broker.parts.tables.offsets
    assert (await broker.ask(352, {"group": group})).code == 0, "anyone makes the group by its first use"
    offsets.commit(topic, group, 0, 3)
    offsets.commit(topic, "G", 0, 9)
    place = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    answer = await broker.ask(15, place | {"commitOffset": "1000"})
    assert (answer.code, answer.remark) == (16, f"the offsets of this group are the broker's own group={group}")
    reset = {"topic": topic, "group": group, "timestamp": "-1", "isForce": "true", "queueId": "0", "offset": "0"}
    assert (await broker.ask(222, reset)).code == 16
    clone = {"srcGroup": "G", "destGroup": group, "topic": topic, "offline": "true"}
    assert (await broker.ask(314, clone)).code == 16
    assert (await broker.ask(207, {"groupName": group, "cleanOffset": "true"})).code == 16
    assert offsets.query(topic, group, 0) == 3
