"""Runtime information and cleaning up over real sockets; settings: test_broker_settings.py."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker, recorded
from thermocline.broker.runtime_info import human_bytes
from thermocline.remoting.bodies import KVTable


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=2)
        yield broker


async def test_runtime_information_has_the_recorded_names(broker: ControlBroker) -> None:
    for level in (1, 2, 3):
        broker.context.delays._offsets[level] = 0
    recorded_names = KVTable.decode(recorded(28)["answer"]["body"].encode()).table.keys()
    table = KVTable.decode((await broker.ask(28)).body).table
    log_path = broker.context.store.config.commit_log_path
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


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (270_582_939_648, "252.0 GiB"), (1 << 60, "1.0 EiB")],
)
def test_sizes_are_written_for_people(count: int, text: str) -> None:
    assert human_bytes(count) == text


async def test_retention_is_run_when_asked_for(broker: ControlBroker) -> None:
    assert (await broker.ask(306)).code == 0
    assert (await broker.ask(329)).code == 0
    assert len(broker.retention_runs) == 2


async def test_delay_progress_is_shown_as_the_file_has_it(broker: ControlBroker) -> None:
    answer = await broker.ask(45)
    assert answer.code == 0
    assert bytes(answer.body).startswith(b'{"dataVersion":')
