"""Heartbeats, leaving and who is connected, over real sockets."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.control_broker import Client, ControlBroker, control_broker
from tests.waiting import until
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.bodies import (
    CONSUME_ACTIVELY,
    CheckClientRequestBody,
    ConsumerConnection,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    ProducerConnection,
    ProducerData,
    QueryConsumeQueueResponseBody,
    SubscriptionData,
)
from thermocline.remoting.clients.client import ClientConnection


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        yield broker


def heartbeat(client_id: str, *topics: str, group: str = "G", fingerprint: int = 0, **more: Any) -> HeartbeatData:
    without_sub = more.pop("without_sub", False)
    return HeartbeatData(
        client_id=client_id,
        heartbeat_fingerprint=fingerprint,
        without_sub=without_sub,
        consumer_data_set=[
            ConsumerData(
                group_name=group,
                subscription_data_set=[SubscriptionData(topic=topic, sub_version=1) for topic in topics],
                **more,
            )
        ],
        producer_data_set=[ProducerData(group_name="P")],
    )


async def beat(broker: ControlBroker, connection: ClientConnection, data: HeartbeatData) -> dict[str, str]:
    answer = await broker.ask(34, body=data.encode(), connection=connection)
    assert answer.code == 0, answer.remark
    return answer.ext_fields or {}


async def test_a_heartbeat_registers_a_client_and_creates_its_group_and_retry_topic(broker: ControlBroker) -> None:
    client = Client()
    connection = await broker.connect(client)
    fields = await beat(broker, connection, heartbeat("c1", "T", "%RETRY%G"))
    assert fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    retry = broker.parts.tables.topics.get("%RETRY%G")
    assert retry is not None
    assert (retry.write_queue_nums, retry.perm) == (1, 6)
    assert "G" in broker.parts.tables.groups
    ids = GetConsumerListByGroupResponseBody.decode((await broker.ask(38, {"consumerGroup": "G"})).body)
    assert ids.consumer_id_list == ["c1"]
    shown = ConsumerConnection.decode((await broker.ask(203, {"consumerGroup": "G"})).body)
    assert shown.connection_set[0].client_id == "c1"
    assert shown.subscription_table.keys() == {"T", "%RETRY%G"}
    producers = ProducerConnection.decode((await broker.ask(204, {"producerGroup": "P"})).body)
    assert [producer.client_id for producer in producers.connection_set] == ["c1"]
    await until(lambda: [command.code for command in client.requests] == [40])


async def test_the_first_member_is_notified_of_a_second(broker: ControlBroker) -> None:
    one, two = Client(), Client()
    first = await broker.connect(one)
    second = await broker.connect(two)
    await beat(broker, first, heartbeat("c1", "T"))
    await beat(broker, second, heartbeat("c2", "T"))
    await until(lambda: len(one.requests) == 2)
    await broker.ask(35, {"clientID": "c2", "consumerGroup": "G", "producerGroup": "P"}, connection=second)
    await until(lambda: len(one.requests) == 3)
    assert len(two.requests) == 1


async def test_a_group_may_forbid_notices_to_its_members(broker: ControlBroker) -> None:
    """`notifyConsumerIdsChangedEnable`: the others hear neither of members that come nor of those that leave."""
    group = b'{"groupName":"G","notifyConsumerIdsChangedEnable":false}'
    assert (await broker.ask(200, body=group)).code == 0
    one = Client()
    first = await broker.connect(one)
    second = await broker.connect(Client())
    await beat(broker, first, heartbeat("c1", "T"))
    await beat(broker, second, heartbeat("c2", "T"))
    await broker.ask(35, {"clientID": "c2", "consumerGroup": "G"}, connection=second)
    await broker.ask(34, body=heartbeat("c1", "T").encode(), connection=first)  # what was to come has come
    assert one.requests == []


async def test_a_connection_that_closes_takes_its_client_along(broker: ControlBroker) -> None:
    one = Client()
    first = await broker.connect(one)
    second = await broker.connect(Client())
    await beat(broker, first, heartbeat("c1", "T"))
    await beat(broker, second, heartbeat("c2", "T"))
    second.close()
    await until(lambda: len(one.requests) == 3)
    group = broker.parts.tables.clients.consumer_group("G")
    assert group is not None
    assert group.client_ids() == ["c1"]


async def test_the_second_version_of_heartbeats(broker: ControlBroker) -> None:
    connection = await broker.connect(Client())
    # The broker holds no subscription of the client yet: it requests all of them.
    fields = await beat(broker, connection, heartbeat("c1", fingerprint=5, without_sub=True))
    assert fields["IS_SUB_CHANGE"] == "true"
    fields = await beat(broker, connection, heartbeat("c1", "T", fingerprint=5))
    assert fields["IS_SUB_CHANGE"] == "false"
    fields = await beat(broker, connection, heartbeat("c1", fingerprint=5, without_sub=True))
    assert fields["IS_SUB_CHANGE"] == "false"
    assert broker.parts.tables.clients.subscription("G", "T") is not None
    fields = await beat(broker, connection, heartbeat("c1", fingerprint=6, without_sub=True))
    assert fields["IS_SUB_CHANGE"] == "true"


async def test_retry_topics_of_ordered_groups_are_ordered(broker: ControlBroker) -> None:
    await broker.create_topic("T")
    await broker.parts.tables.topics.set_order(["T"])
    connection = await broker.connect(Client())
    await beat(broker, connection, heartbeat("c1", "T"))
    assert broker.parts.tables.topics.is_order_topic("%RETRY%G")


async def test_a_heartbeat_as_the_cpp_client_writes_it(broker: ControlBroker) -> None:
    """Constants as ordinals, numbers and flags as text."""
    subscription = (
        b'{"classFilterMode":"false","codeSet":["3"],"subString":"a","subVersion":"1795497553178","topic":"T"}'
    )
    consumer = b'{"consumeFromWhere":0,"consumeType":1,"groupName":"G","messageModel":1,"subscriptionDataSet":[%s]}'
    body = b'{"clientID":"cpp","consumerDataSet":[%s],"producerDataSet":[{"groupName":"P"}]}' % (
        consumer % subscription
    )
    connection = await broker.connect(Client())
    assert (await broker.ask(34, body=body, connection=connection)).code == 0
    shown = ConsumerConnection.decode((await broker.ask(203, {"consumerGroup": "G"})).body)
    assert (shown.consume_from_where, shown.consume_type) == ("CONSUME_FROM_LAST_OFFSET", "CONSUME_PASSIVELY")
    assert shown.message_model == "CLUSTERING"
    assert shown.subscription_table["T"].sub_version == 1_795_497_553_178
    assert shown.subscription_table["T"].code_set == {3}


async def test_of_subscriptions_without_a_version_the_latest_counts(broker: ControlBroker) -> None:
    connection = await broker.connect(Client())
    for expression in (b"a", b"b"):
        subscription_text = b'{"topic":"T","subString":"%s"}' % expression
        consumer = b'{"groupName":"G","subscriptionDataSet":[%s]}' % subscription_text
        body = b'{"clientID":"c","consumerDataSet":[%s]}' % consumer
        assert (await broker.ask(34, body=body, connection=connection)).code == 0
        shown = ConsumerConnection.decode((await broker.ask(203, {"consumerGroup": "G"})).body)
        subscription = shown.subscription_table["T"]
        assert (subscription.sub_string, subscription.sub_version > 0) == (expression.decode(), True)
        broker.clock.now_ms += 1


async def test_groups_that_may_not_be_made_are_passed_over(broker: ControlBroker) -> None:
    await broker.ask(25, body=b"autoCreateSubscriptionGroup=false\nrejectPullConsumerEnable=true\n")
    connection = await broker.connect(Client())
    await beat(broker, connection, heartbeat("c1", "T", group="NotMade"))
    assert broker.parts.tables.clients.consumer_group("NotMade") is None
    await beat(broker, connection, heartbeat("c1", "T", group="TOOLS_CONSUMER", consume_type=CONSUME_ACTIVELY))
    assert broker.parts.tables.clients.consumer_group("TOOLS_CONSUMER") is None
    await beat(broker, connection, heartbeat("c1", "T", group="TOOLS_CONSUMER"))
    assert broker.parts.tables.clients.consumer_group("TOOLS_CONSUMER") is not None


async def test_offline_groups_have_their_own_answers(broker: ControlBroker) -> None:
    answer = await broker.ask(38, {"consumerGroup": "G"})
    assert (answer.code, answer.remark) == (1, "no consumer for this group, G")
    answer = await broker.ask(204, {"producerGroup": "P"})
    assert (answer.code, answer.remark) == (1, "the producer group[P] not exist")


async def test_silent_clients_are_let_go_by_housekeeping(broker: ControlBroker) -> None:
    connection = await broker.connect(Client())
    await beat(broker, connection, heartbeat("c1", "T"))
    broker.clock.now_ms += 120_001
    await broker.housekeeping.step()
    assert broker.parts.tables.clients.consumer_group("G") is None
    await until(lambda: connection.is_closed)


def check_request(expression: str, expression_type: str = "SQL92") -> bytes:
    subscription = SubscriptionData(topic="T", sub_string=expression, expression_type=expression_type)
    return CheckClientRequestBody(client_id="c", group="G", subscription_data=subscription).encode()


async def test_filtering_by_sql_is_refused_unless_it_is_switched_on(broker: ControlBroker) -> None:
    """RocketMQ's default. Switched on while the broker runs, it counts at once."""
    for expression in ("a > 1", "a >"):
        answer = await broker.ask(46, body=check_request(expression))
        assert (answer.code, answer.remark) == (1, "The broker does not support consumer to filter message by SQL92")
    assert (await broker.ask(46, body=check_request("a > 1", "TAG"))).code == 0
    assert (await broker.ask(46, body=check_request("a || b", ""))).code == 0
    assert (await broker.ask(25, body=b"enablePropertyFilter=true\n")).code == 0
    assert (await broker.ask(46, body=check_request("a > 1"))).code == 0
    assert (await broker.ask(25, body=b"enablePropertyFilter=false\n")).code == 0
    assert (await broker.ask(46, body=check_request("a > 1"))).code == 1


@pytest.mark.parametrize(
    ("expression", "expression_type", "remark"),
    [
        ("a >", "SQL92", "the expression is not complete position=3"),
        ("", "SQL92", "the expression is not complete position=0"),
        ("a > 'b'", "SQL92", "a number or a property is wanted here, not a string position=4"),
        ("a > 1", "sql92", "no type of expression: sql92"),
    ],
)
async def test_an_invalid_expression_is_answered_to_a_client_that_starts(
    tmp_path: Path, expression: str, expression_type: str, remark: str
) -> None:
    config = BrokerConfig(listen_host="127.0.0.1", property_filter=True)
    async with control_broker(tmp_path, config=config) as broker:
        for _ in range(2):
            answer = await broker.ask(46, body=check_request(expression, expression_type))
            assert (answer.code, answer.remark) == (23, remark)
        assert (await broker.ask(46, body=check_request("a > 1"))).code == 0


async def test_a_heartbeat_takes_any_expression(tmp_path: Path) -> None:
    """The client gets the error when it starts and when it pulls; its other subscriptions must still be registered."""
    config = BrokerConfig(listen_host="127.0.0.1", property_filter=True)
    async with control_broker(tmp_path, config=config) as broker:
        data = heartbeat("c1", "T")
        wanted = SubscriptionData(topic="Broken", sub_string="a >", expression_type="SQL92", sub_version=1)
        data.consumer_data_set[0].subscription_data_set.append(wanted)
        await beat(broker, await broker.connect(Client()), data)
        shown = ConsumerConnection.decode((await broker.ask(203, {"consumerGroup": "G"})).body)
        assert shown.subscription_table.keys() == {"T", "Broken"}
        assert shown.subscription_table["Broken"] == wanted


async def shown_filter(broker: ControlBroker) -> Any:
    """Return group G's filter as a tool shows it."""
    answer = await broker.ask(321, {"topic": "T", "queueId": "0", "index": "0", "count": "1", "consumerGroup": "G"})
    text = QueryConsumeQueueResponseBody.decode(answer.body).filter_data
    assert text is not None
    return json.loads(text)


async def test_a_group_s_filter_outlives_a_restart(tmp_path: Path) -> None:
    """As in RocketMQ: alive while the group is online, dead afterwards, alive again with its next heartbeat."""
    config = BrokerConfig(listen_host="127.0.0.1", property_filter=True)
    async with control_broker(tmp_path, config=config) as broker:
        await broker.create_topic("T")
        broker.put("T")
        data = heartbeat("c1", "T")
        connection = await broker.connect(Client())
        await beat(broker, connection, data)
        assert await shown_filter(broker) is None
        data.consumer_data_set[0].subscription_data_set[0] = SubscriptionData(
            topic="T", sub_string="a > 1", expression_type="SQL92", sub_version=2
        )
        await beat(broker, connection, data)
        await until(lambda: broker.parts.tables.consumer_filters.get("T", "G"))
        shown = await shown_filter(broker)
        assert (shown["expression"], shown["dead"], shown["clientVersion"]) == ("a > 1", False, 2)
        born_ms = shown["bornTime"]
        assert born_ms == broker.clock.now_ms
        broker.clock.now_ms += 10_000
        await broker.housekeeping.step()
        path = f"{broker.parts.base.store.config.config_path}/consumerFilter.json"
        written = json.loads(broker.parts.base.disk.read(path))["filterDataByTopic"]["T"]["groupFilterData"]["G"]
        assert written == shown
        connection.close()
        await until(lambda: broker.parts.tables.clients.consumer_group("G") is None)
        await broker.housekeeping.save()
    async with control_broker(tmp_path, config=config) as broker:
        read = broker.parts.tables.consumer_filters.get("T", "G")
        assert read is not None
        assert (read.dead, read.dead_time) == (True, born_ms + 10_000)
        await beat(broker, await broker.connect(Client()), data)
        shown = await shown_filter(broker)
        assert (shown["dead"], shown["deadTime"], shown["bornTime"]) == (False, 0, born_ms)


@pytest.mark.parametrize("code", [34, 41, 42, 46, 18, 200, 225])
async def test_a_broken_body_gets_an_answer(broker: ControlBroker, code: int) -> None:
    assert (await broker.ask(code, body=b"{not json")).code == 1


async def test_an_unknown_code_is_not_supported(broker: ControlBroker) -> None:
    answer = await broker.ask(200050)
    assert (answer.code, answer.remark) == (3, " request type 200050 not supported")


async def test_a_client_that_leaves_with_names_of_its_own_gets_an_answer(broker: ControlBroker) -> None:
    """As the client NewLife.RocketMQ does it in C#; RocketMQ answers 0, too."""
    answer = await broker.ask(35, {"ClientId": "c", "ProducerGroup": "P", "ConsumerGroup": "P"})
    assert (answer.code, answer.remark) == (0, None)
