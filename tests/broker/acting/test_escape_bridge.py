"""Where a message goes that a slave may not store, and what is left of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clock import Clock
from thermocline.broker.acting.escape_bridge import ROUTE_MS, EscapeBridge
from thermocline.broker.pops import RecordPlace
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.pop.ack_record import AckRecord
from thermocline.remoting.bodies import BrokerData, QueueData, TopicRouteData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError, ResponseError, ServiceUnavailableError
from thermocline.remoting.headers.namesrv import GetRouteInfoRequestHeader
from thermocline.remoting.headers.send import SendMessageRequestHeader, decode_send_header
from thermocline.remoting.records.properties import decode_properties, encode_properties
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.log import MessageDraft

READ, WRITE = 4, 2


class Cluster:
    """Stands for the NameServers and the other masters."""

    def __init__(self) -> None:
        self.route: TopicRouteData | None = None
        self.looked_up = 0
        self.sent: list[tuple[str, SendMessageRequestHeader, bytes]] = []
        self.code = ResponseCode.SUCCESS

    def has(self, name: str, queues: int, *, perm: int = READ | WRITE, cluster: str = "DefaultCluster") -> None:
        route = self.route or TopicRouteData()
        self.route = TopicRouteData(
            queue_datas=[*route.queue_datas, QueueData(broker_name=name, write_queue_nums=queues, perm=perm)],
            broker_datas=[*route.broker_datas, BrokerData(cluster=cluster, broker_name=name, broker_addrs={0: name})],
        )

    async def call(self, target: Any, command: RemotingCommand | None = None, *, timeout_ms: int) -> RemotingCommand:
        """A NameServer's answer without a `command`; else that of the broker of this name."""
        if command is not None:
            header = decode_send_header(command.code, command.ext_fields)
            self.sent.append((target, header, bytes(command.body)))
            return RemotingCommand.response(command, self.code)
        self.looked_up += 1
        assert target.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        if self.route is None:
            return RemotingCommand.response(target, ResponseCode.TOPIC_NOT_EXIST)
        return RemotingCommand.response(target, body=self.route.encode())


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def clock() -> Clock:
    return Clock(0)


@pytest.fixture
def bridge(cluster: Any, clock: Clock) -> EscapeBridge:
    return EscapeBridge(cluster, cluster, config=lambda: BrokerConfig(listen_host="127.0.0.1"), clock=clock)


def draft(**properties: str) -> MessageDraft:
    return MessageDraft(
        topic="orders",
        queue_id=7,
        body=b"body",
        properties_text=encode_properties(properties),
        born_timestamp_ms=123,
        born_host=("10.0.0.7", 4711),
        flag=9,
        sys_flag=0x10 | 0x1 | 0x200,
        reconsume_times=2,
    )


async def test_a_message_keeps_what_its_consumers_see(bridge: EscapeBridge, cluster: Cluster) -> None:
    cluster.has("broker-b", 1)
    waited = {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "7", "TIMER_OUT_MS": "5", "TIMER_DELAY_SEC": "1"}
    await bridge.send(draft(UNIQ_KEY="1", TAGS="paid", **waited))
    ((name, header, body),) = cluster.sent
    assert (name, header.topic, header.queue_id, body) == ("broker-b", "orders", 0, b"body")
    assert (header.born_timestamp, header.flag, header.reconsume_times, header.sys_flag) == (123, 9, 2, 0x201)
    assert decode_properties(header.properties or "") == {"UNIQ_KEY": "1", "TAGS": "paid"}
    assert header.producer_group == "InnerProducerGroup_broker-a_0"


async def test_a_message_that_is_not_due_waits_there(bridge: EscapeBridge, cluster: Cluster) -> None:
    cluster.has("broker-b", 1)
    await bridge.send(draft(TIMER_DELAY_SEC="9", PGROUP="shop"), topic="bills", due_ms=9_000)
    ((_, header, _),) = cluster.sent
    assert (header.topic, header.producer_group) == ("bills", "shop")
    assert decode_properties(header.properties or "") == {"TIMER_DELIVER_MS": "9000", "PGROUP": "shop"}


async def test_only_other_writable_masters_of_the_cluster_get_messages(bridge: EscapeBridge, cluster: Cluster) -> None:
    cluster.has("broker-a", 4)
    cluster.has("acting", 4, perm=READ)
    cluster.has("far", 4, cluster="Other")
    with pytest.raises(ServiceUnavailableError):
        await bridge.send(draft())
    assert cluster.sent == []


async def test_a_topic_that_no_broker_has_waits(bridge: EscapeBridge, cluster: Cluster, clock: Clock) -> None:
    with pytest.raises(ServiceUnavailableError):
        await bridge.send(draft())
    cluster.has("broker-b", 1)
    clock.now_ms += ROUTE_MS
    await bridge.send(draft())
    assert len(cluster.sent) == 1


async def test_masters_take_turns_and_a_route_is_remembered(bridge: EscapeBridge, cluster: Cluster) -> None:
    cluster.has("broker-b", 2)
    cluster.has("broker-c", 2)
    for _ in range(4):
        await bridge.send(draft())
    assert sorted({name for name, _, _ in cluster.sent}) == ["broker-b", "broker-c"]
    assert cluster.looked_up == 1


@pytest.mark.parametrize("code", [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SYSTEM_BUSY])
async def test_any_answer_but_ok_is_a_failure(bridge: EscapeBridge, cluster: Cluster, code: ResponseCode) -> None:
    cluster.has("broker-b", 1)
    cluster.code = code
    with pytest.raises(ResponseError) as failure:
        await bridge.send(draft())
    assert failure.value.code == code
    assert isinstance(failure.value, MQError)
    cluster.code = ResponseCode.SUCCESS
    await bridge.send(draft())
    assert cluster.looked_up == 2  # the route may have changed


# -- records of POP ----------------------------------------------------------------------------------------------------


class Topics(Cluster):
    """Another route for each topic."""

    def __init__(self) -> None:
        super().__init__()
        self.routes: dict[str, TopicRouteData] = {}

    def has_topic(self, topic: str, *names: str, queues: int = 8) -> None:
        self.route = None
        for name in names:
            self.has(name, queues)
        assert self.route is not None
        self.routes[topic] = self.route

    async def call(self, target: Any, command: RemotingCommand | None = None, *, timeout_ms: int) -> RemotingCommand:
        if command is None:
            self.route = self.routes.get(target.header(GetRouteInfoRequestHeader).topic)
        return await super().call(target, command, timeout_ms=timeout_ms)


@pytest.fixture
def topics() -> Topics:
    return Topics()


@pytest.fixture
def to_topics(topics: Any, clock: Clock) -> EscapeBridge:
    return EscapeBridge(topics, topics, config=lambda: BrokerConfig(listen_host="127.0.0.1"), clock=clock)


REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
ACK = AckRecord(
    topic="%RETRY%group_orders",
    group="group",
    queue_id=0,
    start_offset=1,
    pop_time_ms=2,
    broker_name="broker-a",
    offsets=(1,),
)


async def test_records_about_a_topic_go_to_one_queue_of_one_master_that_has_it(
    to_topics: EscapeBridge, topics: Topics
) -> None:
    topics.has_topic(REVIVE_TOPIC, "broker-b", "broker-c", "broker-d")
    topics.has_topic("orders", "broker-c", "broker-d", "broker-e")
    place = await to_topics.record_place("orders")
    assert place.broker_name in ("broker-c", "broker-d")
    assert 0 <= place.queue_id < 8
    topics.has_topic("orders", "broker-e", "broker-d", "broker-c")
    fresh = EscapeBridge(topics, topics, config=lambda: BrokerConfig(listen_host="127.0.0.1"), clock=Clock(0))  # type: ignore[arg-type]
    assert await fresh.record_place("orders") == place, "also after a restart"
    # A timed record of RocketMQ's master says itself what it is about.
    record = MessageDraft(
        topic=REVIVE_TOPIC,
        queue_id=1,
        body=ACK.body(),
        properties_text=b"",
        born_timestamp_ms=1,
        born_host=("10.0.0.7", 4711),
    )
    for _ in range(2):
        await to_topics.send(record)
    assert [(name, header.queue_id) for name, header, _ in topics.sent] == [(place.broker_name, place.queue_id)] * 2
    await to_topics.send(record, place=RecordPlace(broker_name="broker-x", queue_id=3), due_ms=99)
    name, header, _ = topics.sent[-1]
    assert (name, header.queue_id) == ("broker-x", 3)
    assert decode_properties(header.properties or "") == {"TIMER_DELIVER_MS": "99"}


async def test_a_master_that_fails_is_looked_up_anew(to_topics: EscapeBridge, topics: Topics) -> None:
    topics.has_topic(REVIVE_TOPIC, "broker-b")
    topics.has_topic("orders", "broker-b")
    place = await to_topics.record_place("orders")
    topics.code = ResponseCode.SYSTEM_BUSY
    with pytest.raises(ResponseError):
        await to_topics.send(draft(), topic=REVIVE_TOPIC, place=place)
    topics.has_topic("orders", "broker-c")
    topics.has_topic(REVIVE_TOPIC, "broker-c")
    assert (await to_topics.record_place("orders")).broker_name == "broker-c"


@pytest.mark.parametrize("has_topic", [True, False])
async def test_without_a_master_that_has_the_topic_there_is_no_place(
    to_topics: EscapeBridge, topics: Topics, has_topic: bool
) -> None:
    topics.has_topic(REVIVE_TOPIC, "broker-b")
    if has_topic:
        topics.has_topic("orders", "broker-a")
    with pytest.raises(ServiceUnavailableError):
        await to_topics.record_place("orders")


async def test_only_what_is_open_is_a_half_message_elsewhere(bridge: EscapeBridge, cluster: Cluster) -> None:
    """A committed message keeps TRAN_MSG, and so does a retry of it that waits."""
    cluster.has("broker-b", 1)
    await bridge.send(draft(TRAN_MSG="true", PGROUP="shop"))
    await bridge.send(draft(TRAN_MSG="true", PGROUP="shop"), is_half=True)
    found = [decode_properties(header.properties or "") for _, header, _ in cluster.sent]
    assert found == [{"PGROUP": "shop"}, {"TRAN_MSG": "true", "PGROUP": "shop"}]
