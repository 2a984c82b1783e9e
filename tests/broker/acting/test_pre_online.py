"""What a master takes back from its slaves before it serves; NameServer and slaves are ports that answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.acting.node import Node, node
from tests.waiting import until
from thermocline.broker.acting.member_requests import AT_REST_FIELD, HISTORY_FIELD, LOG_START_FIELD
from thermocline.broker.acting.pre_online import PreOnline, TakenBack
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.tables.consumer_offsets import ConsumerOffsets
from thermocline.remoting.bodies import BrokerMemberGroup, GetBrokerMemberGroupResponseBody, KVTable
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.handles import REVIVE_GROUP
from thermocline.remoting.handles.pop_topics import revive_topic
from thermocline.remoting.headers.broker import ExchangeHAInfoHeader
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.files import RealDisk
from thermocline.timers.taken_back import DELIVERED_MARGIN_MS
from thermocline.timers.timer_checkpoint import TimerCheckpoint

OWN, OWN_LOG = "127.0.0.1:1", "127.0.0.1:2"
READ_TIME_MS = 1_000_000
REVIVE_TOPIC = revive_topic("DefaultCluster")


def offsets(**of_queues: int) -> ConsumerOffsets:
    """Offsets of the group `g` in the topic `t`: q0=5."""
    table = ConsumerOffsets(clock=lambda: 7)
    for name, offset in of_queues.items():
        table.commit("t", "g", int(name[1:]), offset)
    return table


class Set:
    """A NameServer, a slave, and the master that comes back."""

    def __init__(self, root: Path, name_server: Node, slave: Node) -> None:
        self.root = root
        self.name_server = name_server
        self.slave = slave
        self.members: dict[int, str] = {0: OWN, 1: slave.address}
        self.connected_count = 1
        self.offsets = offsets(q0=5, q1=5)
        self.is_at_rest = True
        self.log_start, self.has_history = 0, False
        self.client = RemotingClient()
        name_server.answers[RequestCode.GET_BROKER_MEMBER_GROUP] = self._members
        slave.answers |= {
            RequestCode.EXCHANGE_BROKER_HA_INFO: self._exchange,
            RequestCode.GET_ALL_CONSUMER_OFFSET: lambda command: RemotingCommand.response(
                command, body=self.offsets.encode()
            ),
            RequestCode.GET_ALL_DELAY_OFFSET: lambda command: RemotingCommand.response(
                command, body=b'{"dataVersion":{},"offsetTable":{1:3,2:3}}'
            ),
            RequestCode.GET_BROKER_RUNTIME_INFO: lambda command: RemotingCommand.response(
                command, body=KVTable(table={"commitLogMinOffset": str(self.log_start)}).encode()
            ),
            RequestCode.GET_TIMER_CHECK_POINT: lambda command: RemotingCommand.response(
                command, body=TimerCheckpoint(read_time_ms=READ_TIME_MS, queue_offset=4).encode_shared()
            ),
        }

    def _members(self, command: RemotingCommand) -> RemotingCommand:
        group = BrokerMemberGroup(broker_addrs=self.members, broker_name="broker-a", cluster="DefaultCluster")
        return RemotingCommand.response(
            command, body=GetBrokerMemberGroupResponseBody(broker_member_group=group).encode()
        )

    def _exchange(self, command: RemotingCommand) -> RemotingCommand:
        own = {
            AT_REST_FIELD: "true",
            LOG_START_FIELD: str(self.log_start),
            HISTORY_FIELD: "true" if self.has_history else "false",
        }
        return RemotingCommand.response(command, ext_fields=own if self.is_at_rest else {"masterFlushOffset": "0"})

    async def go_online(self) -> TakenBack:
        config = BrokerConfig(listen_host="127.0.0.1", name_server_addresses=self.name_server.address)
        return await PreOnline(
            lambda: config,
            self.client,
            disk=RealDisk(),
            folder=str(self.root),
            address=OWN,
            ha_address=OWN_LOG,
            log_end=lambda: PhysicalOffset(77),
            place_of=lambda topic, queue_id, offset: PhysicalOffset(10 * max(0, offset)),
            connected_count=lambda: self.connected_count,
            clock=lambda: 7,
        ).run()

    def write_own(self, table: ConsumerOffsets, delays: bytes) -> None:
        (self.root / "consumerOffset.json").write_bytes(table.encode(pop_log_offset=PhysicalOffset(9)))
        (self.root / "delayOffset.json").write_bytes(delays)

    def own_offsets(self) -> ConsumerOffsets:
        table = ConsumerOffsets(clock=lambda: 7)
        table.load((self.root / "consumerOffset.json").read_bytes())
        return table


@pytest.fixture
async def replica_set(tmp_path: Path) -> AsyncIterator[Set]:
    async with node({}) as name_server, node({}) as slave:
        found = Set(tmp_path, name_server, slave)
        yield found
        await found.client.close()


async def test_the_further_position_counts(replica_set: Set) -> None:
    replica_set.write_own(offsets(q0=9, q1=1), b'{"dataVersion":{},"offsetTable":{1:9,2:1,3:1}}')
    taken = await replica_set.go_online()
    assert (taken.slaves_count, taken.offsets_count, taken.levels_count) == (1, 1, 1)
    own = replica_set.own_offsets()
    assert own.of_group("t", "g") == {0: 9, 1: 5}
    assert own.pop_log_offset == 9
    assert b'"offsetTable":{1:9,2:3,3:1}' in (replica_set.root / "delayOffset.json").read_bytes()
    assert taken.timers is not None
    assert (taken.timers.queue_offset, taken.timers.read_time_ms) == (4, READ_TIME_MS)
    (request,) = [each for each in replica_set.slave.asked if each.code == RequestCode.EXCHANGE_BROKER_HA_INFO]
    header = request.header(ExchangeHAInfoHeader)
    assert (header.master_address, header.master_ha_address, header.master_flush_offset) == (OWN, OWN_LOG, 77)


@pytest.mark.parametrize("is_ours", [True, False])
async def test_positions_before_the_slaves_log_stay(replica_set: Set, is_ours: bool) -> None:
    """It began empty, and went on behind what it lacks: the messages from 10 on. A position n is at 10 * n."""
    replica_set.is_at_rest = is_ours
    replica_set.log_start = 20
    replica_set.write_own(offsets(q0=1, q1=2), b'{"dataVersion":{},"offsetTable":{1:1,2:2}}')
    taken = await replica_set.go_online()
    assert (taken.offsets_count, taken.levels_count) == (1, 1)
    assert replica_set.own_offsets().of_group("t", "g") == {0: 1, 1: 5}
    assert b'"offsetTable":{1:1,2:3}' in (replica_set.root / "delayOffset.json").read_bytes()
    assert taken.timers is not None
    assert taken.timers.log_start == 20


@pytest.mark.parametrize(
    ("done", "taken", "is_ours"), [(None, None, True), (1, 1, True), (2, 9, True), (2, 2, False), (None, None, False)]
)
async def test_popped_messages_that_the_slave_lacks_are_not_passed_over(
    replica_set: Set, done: int | None, taken: int | None, is_ours: bool
) -> None:
    """Nor with a bucket: check points are in none. Without progress the master begins at the queue's start. RocketMQ's
    slave passes over what it could not send."""
    replica_set.is_at_rest = is_ours
    replica_set.log_start, replica_set.has_history = 20, True
    replica_set.offsets.commit(REVIVE_TOPIC, REVIVE_GROUP, 3, QueueOffset(9))
    own = offsets()
    if done is not None:
        own.commit(REVIVE_TOPIC, REVIVE_GROUP, 3, QueueOffset(done))
    replica_set.write_own(own, b'{"dataVersion":{},"offsetTable":{}}')
    await replica_set.go_online()
    assert replica_set.own_offsets().query(REVIVE_TOPIC, REVIVE_GROUP, 3) == taken


async def test_a_slave_that_serves_the_bucket_lacks_nothing_for_consumers(replica_set: Set) -> None:
    replica_set.log_start, replica_set.has_history = 20, True
    replica_set.write_own(offsets(q0=1, q1=2), b'{"dataVersion":{},"offsetTable":{1:1,2:2}}')
    taken = await replica_set.go_online()
    assert (taken.offsets_count, taken.levels_count) == (2, 1)


async def test_a_master_without_files_has_the_slaves_positions(replica_set: Set) -> None:
    taken = await replica_set.go_online()
    assert (taken.offsets_count, taken.levels_count) == (2, 2)
    assert replica_set.own_offsets().of_group("t", "g") == {0: 5, 1: 5}


async def test_what_is_as_far_here_is_not_written(replica_set: Set) -> None:
    replica_set.write_own(offsets(q0=5, q1=5), b'{"dataVersion":{},"offsetTable":{1:3,2:3}}')
    before = (replica_set.root / "consumerOffset.json").read_bytes()
    taken = await replica_set.go_online()
    assert (taken.offsets_count, taken.levels_count) == (0, 0)
    assert (replica_set.root / "consumerOffset.json").read_bytes() == before


async def test_a_slave_of_rocketmq_is_not_taken_to_be_at_rest(replica_set: Set) -> None:
    replica_set.is_at_rest = False
    taken = await replica_set.go_online()
    assert taken.timers is not None
    assert taken.timers.read_time_ms == READ_TIME_MS - DELIVERED_MARGIN_MS


async def test_timers_that_are_off_at_the_slave_change_nothing(replica_set: Set) -> None:
    replica_set.slave.answers[RequestCode.GET_TIMER_CHECK_POINT] = lambda command: RemotingCommand.response(
        command, ResponseCode.SYSTEM_ERROR, remark="The checkpoint is null"
    )
    assert (await replica_set.go_online()).timers is None


async def test_nothing_is_taken_back_where_no_slave_is_alive(replica_set: Set) -> None:
    replica_set.members = {0: OWN}
    assert (await replica_set.go_online()).slaves_count == 0
    assert replica_set.slave.asked == []


async def test_a_slave_that_does_not_connect_keeps_the_master_offline(
    replica_set: Set, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("thermocline.broker.acting.pre_online.CONNECTED_S_MAX", 0.1)
    monkeypatch.setattr("thermocline.broker.acting.pre_online.AGAIN_S", 0.01)
    replica_set.connected_count = 0
    going = asyncio.create_task(replica_set.go_online())
    await until(lambda: "its log was refused" in caplog.text, what="the master says why it waits")
    assert not going.done()
    replica_set.connected_count = 1
    assert (await going).slaves_count == 1


async def test_a_slave_that_never_stands_in_is_not_waited_for(replica_set: Set) -> None:
    code = RequestCode.EXCHANGE_BROKER_HA_INFO
    replica_set.slave.answers[code] = lambda command: RemotingCommand.response(
        command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    )
    assert (await replica_set.go_online()).slaves_count == 0
    assert [command.code for command in replica_set.slave.asked] == [code]


async def test_a_slave_that_refuses_is_asked_again(replica_set: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermocline.broker.acting.pre_online.AGAIN_S", 0.01)
    code = RequestCode.EXCHANGE_BROKER_HA_INFO
    exchange = replica_set.slave.answers[code]
    replica_set.slave.answers[code] = lambda command: (
        RemotingCommand.response(command, ResponseCode.SYSTEM_BUSY)
        if len(replica_set.slave.asked) < 3
        else exchange(command)
    )
    assert (await replica_set.go_online()).slaves_count == 1


async def test_a_broken_file_of_the_master_ends_the_start(replica_set: Set) -> None:
    (replica_set.root / "consumerOffset.json").write_bytes(b"{broken")
    with pytest.raises(CorruptDataError):
        await replica_set.go_online()
