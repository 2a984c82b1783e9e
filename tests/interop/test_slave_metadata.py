"""What slaves take from masters over remoting: our slave from an official master, an official slave from ours.

No log is copied here: our slave is put together in this process without one, and the official slave finds nothing that
listens on our master's port for replicas.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.broker.replicas.following import following
from tests.interop.cluster import BROKER_NAME, official_cluster, store_directory_of, thermocline_daemons
from tests.interop.java_agent import JavaAgent
from tests.interop.replica_brokers import log_end, log_files
from tests.waiting import PAUSE_S, TIMEOUT_S, until
from thermocline import Message, Producer
from thermocline.remoting.bodies import SetMessageRequestModeRequestBody, SubscriptionGroupConfig
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.json_dialect import loads_dialect
from thermocline.remoting.offsets import LOG_START
from thermocline.remoting.request_code import RequestCode
from thermocline.replication import LogCopy
from thermocline.timers.timer_checkpoint import SHARED
from tooling.official_rocketmq import OfficialSoftware, free_broker_port, official_broker

pytestmark = pytest.mark.java

TOPIC, GROUP = "Followed", "FollowedGroup"
DAY_MS = 86_400_000
OFFICIAL_PERIOD_S = 60
"""How often an official slave without a controller asks for most tables."""


async def ask(address: str, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
    """The successful answer."""
    connection = await ClientConnection.open(address)
    try:
        return await connection.request(RemotingCommand.request(code, ext_fields=fields, body=body), timeout_ms=20_000)
    finally:
        connection.close()


async def fill(namesrv: str, address: str) -> None:
    """Put something into every table of a master."""
    for name, attributes in ((TOPIC, "+message.type=DELAY"), (f"{TOPIC}Plain", "")):
        fields = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "2", "perm": "6"}
        fields |= {"topicFilterType": "SINGLE_TAG", "attributes": attributes, "order": "false", "topicSysFlag": "0"}
        await ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    group = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=3, consume_broadcast_enable=False)
    await ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode())
    mode = SetMessageRequestModeRequestBody(topic=TOPIC, consumer_group=GROUP, mode="POP", pop_share_queue_num=1)
    await ask(address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.encode())
    for queue_id in range(2):
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id), "commitOffset": str(queue_id)}
        await ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    with Producer(group="FollowedProducers", namesrv=namesrv) as producer:
        for _ in range(3):
            producer.send(Message(TOPIC, b"soon", delay_level=1))
            producer.send(Message(TOPIC, b"tomorrow", deliver_at_ms=wall_clock_ms() + DAY_MS))


async def body_of(address: str, code: int) -> Any:
    return loads_dialect((await ask(address, code)).body)


SERVED = (
    (RequestCode.GET_ALL_TOPIC_CONFIG, "topics.json", ("dataVersion", "topicConfigTable")),
    (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroup.json", ("dataVersion", "subscriptionGroupTable")),
    (RequestCode.GET_ALL_CONSUMER_OFFSET, "consumerOffset.json", ("dataVersion", "offsetTable")),
    (RequestCode.GET_ALL_DELAY_OFFSET, "delayOffset.json", ("dataVersion", "offsetTable")),
    (RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, "messageRequestMode.json", ("messageRequestModeMap",)),
    (RequestCode.GET_TIMER_METRICS, "timermetrics", ("dataVersion", "timingCount")),
)
"""A request to the master, the file of the slave, and the members that both have."""


async def differences(config: Path, master: str) -> list[tuple[str, str]]:
    """File and member that the slave has otherwise than the master serves it."""
    found: list[tuple[str, str]] = []
    for code, name, members in SERVED:
        served, path = await body_of(master, code), config / name
        kept = loads_dialect(path.read_bytes()) if path.exists() else {}
        found += [(name, member) for member in members if kept.get(member) != served[member]]
    return found


async def until_settled(master: str) -> None:
    """Return when the messages have been delivered or enqueued, and the checkpoints tell so."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            delays = await body_of(master, RequestCode.GET_ALL_DELAY_OFFSET)
            timer = await ask(master, RequestCode.GET_TIMER_CHECK_POINT)
            _, log_position, queue_offset, *_ = SHARED.unpack(timer.body)
            if delays["offsetTable"].get(1) == 3 and queue_offset == 3 and log_position > 0:
                return
            await asyncio.sleep(PAUSE_S)


async def test_our_slave_has_what_its_official_master_has(
    official_software: OfficialSoftware, java_agent_process: JavaAgent, tmp_path: Path
) -> None:
    with official_cluster(official_software, java_agent_process, tmp_path / "official") as official:
        master = official.broker_address
        await fill(official.namesrv, master)
        await until_settled(master)
        config = tmp_path / "slave" / "config"
        async with following(tmp_path / "slave", master_address=master) as slave:
            with pytest.raises(UnavailableError, match="consumer offsets,delay offsets,timer checkpoint"):
                await slave.follower.follow_all()  # they count when the slave's log is as long as the master's
            folder = store_directory_of(official)[0] / "commitlog"
            log = log_files(folder)[0].read_bytes()[: log_end(folder)]
            LogCopy(slave.slave.parts.base.store).receive(LOG_START, memoryview(log))
            await slave.follower.follow_all()
            assert not slave.errors
            assert await differences(config, master) == []
            assert SHARED.unpack_from((config / "timercheck").read_bytes())[2:4] == (3, 3)
            groups = await body_of(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            tables = slave.slave.parts.tables
            assert set(tables.groups.configs()) == set(groups["subscriptionGroupTable"])
            followed = tables.groups.get(GROUP)
            assert followed is not None
            assert (followed.retry_max_times, followed.consume_broadcast_enable) == (3, False)
            assert tables.offsets.of_group(TOPIC, GROUP) == {0: 0, 1: 1}
            before = slave.changes

            await ask(master, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": f"{TOPIC}Plain"})
            await slave.follower.follow_all()
            assert f"{TOPIC}Plain" not in tables.topics
            assert TOPIC in tables.topics
            assert slave.changes["groups"] == before["groups"]


@pytest.mark.full
async def test_an_official_slave_has_what_its_master_of_ours_has(
    official_software: OfficialSoftware, tmp_path: Path
) -> None:
    # A named port, so that the VIP port is open, which the slave derives from it.
    with thermocline_daemons(tmp_path / "ours", listen=f"127.0.0.1:{free_broker_port()}") as daemons:
        master = daemons.broker_address
        await fill(daemons.namesrv, master)
        await until_settled(master)
        store = tmp_path / "slave-store"
        properties = {"brokerName": BROKER_NAME, "brokerId": "1", "brokerRole": "SLAVE"}
        with official_broker(
            official_software,
            tmp_path / "slave",
            namesrv_address=daemons.namesrv,
            store_directory=store,
            properties=properties,
        ):
            config = store / "config"
            await until(
                lambda: (config / "messageRequestMode.json").exists(),
                what="the slave has requested almost all tables",
                timeout_s=3 * OFFICIAL_PERIOD_S,
                pause_s=0.2,
            )
            found = [("", "")]
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    while found:
                        await asyncio.sleep(PAUSE_S)
                        found = await differences(config, master)
            except TimeoutError:
                pytest.fail(f"the slave has not followed {found}")
            checkpoint = config / "timercheck"
            await until(
                lambda: checkpoint.exists() and SHARED.unpack_from(checkpoint.read_bytes())[3] == 3,
                what="the slave has its master's timer checkpoint",
            )
