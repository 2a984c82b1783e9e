"""Runtime information and cleaning up over real sockets; settings: test_broker_settings.py.

Covers `broker/processors/runtime_info.py`.
"""

import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker, recorded
from tests.broker.slave_config import slave_config
from tests.broker.timing import deliver_all, open_timers, put_timed, timer_service
from thermocline.broker.cluster import StandIn
from thermocline.broker.processors.runtime_info import human_bytes
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.bodies import KVTable
from thermocline.remoting.json_dialect import loads


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=2)
        yield broker


async def test_runtime_information_has_the_recorded_names(broker: ControlBroker) -> None:
    for level in (1, 2, 3):
        broker.parts.due.delays._offsets[level] = 0
    recorded_names = KVTable.decode(recorded(28)["answer"]["body"].encode()).table.keys()
    table = KVTable.decode((await broker.ask(28)).body).table
    log_path = broker.parts.base.store.config.commit_log_path
    assert {name.replace(log_path, "") for name in table} == {
        name.replace("/opt/rocketmq/store/commitlog", "") for name in recorded_names
    }
    assert table["brokerVersionDesc"] == "V5_5_0"
    assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"
    # What clusterList parses.
    for name in ("sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "earliestMessageTimeStamp", "timerCongestNum"):
        assert int(table[name]) >= -1
    assert 0.0 <= float(table["commitLogDiskRatio"]) <= 1.0
    broker.clock.now_ms += 90_061_000
    sent_ms = broker.clock.now_ms
    broker.put("T")
    table = KVTable.decode((await broker.ask(28)).body).table
    assert table["runtime"] == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert table["earliestMessageTimeStamp"] == str(sent_ms)


async def test_a_slave_is_active_in_its_masters_place_only(tmp_path: Path) -> None:
    """The column `ACTIVATED` of `clusterList`: which broker delivers delayed messages and the like."""
    async with control_broker(tmp_path, config=slave_config(slave_acting_master=True)) as broker:
        members = broker.parts.cluster.members
        assert members is not None
        for state, shown in ((StandIn.FOLLOWING, "false"), (StandIn.ACTING, "true")):
            members.state = state
            assert KVTable.decode((await broker.ask(28)).body).table["brokerActive"] == shown


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (270_582_939_648, "252.0 GiB"), (1 << 60, "1.0 EiB")],
)
def test_sizes_are_written_for_people(count: int, text: str) -> None:
    assert human_bytes(count) == text


async def test_retention_runs_on_request(broker: ControlBroker) -> None:
    assert (await broker.ask(306)).code == 0
    assert (await broker.ask(329)).code == 0
    assert broker.retention_runs == ["round", "expired files"]


async def test_timers_are_shown(broker: ControlBroker) -> None:
    """In the form of RocketMQ's own files: tools and replicas ask for them."""
    service = timer_service(broker.parts)
    now_ms = broker.clock()
    for number in range(3):
        put_timed(broker.parts, b"%d" % number, 5_000)
    table = KVTable.decode((await broker.ask(28)).body).table
    assert (table["timerOffsetBehind"], table["timerCongestNum"]) == ("3", "0")
    deliver_all(service)
    open_timers(broker.parts).run_round()
    table = KVTable.decode((await broker.ask(28)).body).table
    assert (table["timerReadBehind"], table["timerOffsetBehind"], table["timerCongestNum"]) == ("0", "0", "3")
    metrics = loads((await broker.ask(61)).body)
    assert metrics["timingCount"]["T"]["count"] == 3
    assert metrics["dataVersion"].keys() == {"counter", "stateVersion", "timestamp"}
    checkpoint = bytes((await broker.ask(60)).body)
    read_time_ms, _, queue_offset, master_queue_offset, *_ = struct.unpack(">7q", checkpoint)
    assert (read_time_ms, queue_offset, master_queue_offset) == (now_ms // 1_000 * 1_000, 3, 3)
    broker.clock.now_ms += 7_300
    table = KVTable.decode((await broker.ask(28)).body).table
    assert table["timerReadBehind"] == "7"


async def test_rates_of_timers_are_those_of_the_last_ten_seconds(broker: ControlBroker) -> None:
    service = timer_service(broker.parts)
    for number in range(20):
        put_timed(broker.parts, b"%d" % number, 5_000)
    for _ in range(10):
        deliver_all(service)
        broker.clock.now_ms += 1_000
        broker.parts.base.stats.sample(broker.clock())
    table = KVTable.decode((await broker.ask(28)).body).table
    assert (table["timerEnqueueTps"], table["timerDequeueTps"]) == ("2.0", "2.0")


async def test_timers_that_are_switched_off_are_shown_as_such(tmp_path: Path) -> None:
    config = BrokerConfig(listen_host="127.0.0.1", timer_wheel=False)
    async with control_broker(tmp_path, config=config) as broker:
        for code, remark in ((60, "The checkpoint is null"), (61, "The timer message store is null")):
            answer = await broker.ask(code)
            assert (answer.code, answer.remark) == (1, remark)
        table = KVTable.decode((await broker.ask(28)).body).table
        assert (table["timerReadBehind"], table["timerOffsetBehind"], table["timerCongestNum"]) == ("0", "0", "0")
        assert (table["timerEnqueueTps"], table["timerDequeueTps"]) == ("0.0", "0.0")


async def test_delay_progress_is_shown_as_the_file_has_it(broker: ControlBroker) -> None:
    answer = await broker.ask(45)
    assert answer.code == 0
    assert bytes(answer.body).startswith(b'{"dataVersion":')
