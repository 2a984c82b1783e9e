"""Bodies: recorded ones decode and encode to the same bytes; the registration in both of its forms.

Covers `remoting/bodies/body.py`.
"""

import base64
import struct
import zlib
from typing import Any

import pytest

from tests.remoting.compressed_registration import encode_compressed, encode_inflated
from tests.remoting.recorded_rows import COMMANDS, body_bytes, command_name
from thermocline.remoting import bodies
from thermocline.remoting.bodies import (
    Body,
    BrokerData,
    ConsumerData,
    ConsumeStats,
    DataVersion,
    HeartbeatData,
    MessageQueue,
    OffsetWrapper,
    ProducerData,
    QueueData,
    RegisterBrokerBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigTableBody,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.json_dialect import DIALECT_BYTES_MAX, loads

ANSWER_BODIES: dict[str, type[Body]] = {
    "CONSUME_MESSAGE_DIRECTLY": bodies.ConsumeMessageDirectlyResult,
    "GET_ALL_PRODUCER_INFO": bodies.ProducerTableInfo,
    "GET_ALL_TOPIC_LIST_FROM_NAMESERVER": bodies.TopicList,
    "GET_BROKER_CLUSTER_INFO": bodies.ClusterInfo,
    "GET_BROKER_RUNTIME_INFO": bodies.KVTable,
    "GET_CONSUMER_CONNECTION_LIST": bodies.ConsumerConnection,
    "GET_CONSUMER_LIST_BY_GROUP": bodies.GetConsumerListByGroupResponseBody,
    "GET_CONSUME_STATS": bodies.ConsumeStats,
    "GET_PRODUCER_CONNECTION_LIST": bodies.ProducerConnection,
    "GET_ROUTEINFO_BY_TOPIC": bodies.TopicRouteData,
    "GET_SYSTEM_TOPIC_LIST_FROM_BROKER": bodies.TopicList,
    "GET_TOPIC_CONFIG": bodies.TopicConfigAndMapping,
    "GET_TOPIC_STATS_INFO": bodies.TopicStatsTable,
    "INVOKE_BROKER_TO_RESET_OFFSET": bodies.ResetOffsetBody,
    "LOCK_BATCH_MQ": bodies.LockBatchResponseBody,
    "QUERY_ASSIGNMENT": bodies.QueryAssignmentResponseBody,
    "QUERY_CONSUME_QUEUE": bodies.QueryConsumeQueueResponseBody,
    "QUERY_TOPIC_CONSUME_BY_WHO": bodies.GroupList,
    "VIEW_BROKER_STATS_DATA": bodies.BrokerStatsData,
}

REQUEST_BODIES: dict[str, type[Body]] = {
    "CHECK_CLIENT_CONFIG": bodies.CheckClientRequestBody,
    "HEART_BEAT": bodies.HeartbeatData,
    "LOCK_BATCH_MQ": bodies.LockBatchRequestBody,
    "QUERY_ASSIGNMENT": bodies.QueryAssignmentRequestBody,
    "REGISTER_BROKER": bodies.RegisterBrokerBody,
    "UNLOCK_BATCH_MQ": bodies.LockBatchRequestBody,
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP": bodies.SubscriptionGroupConfig,
}


def body_type(row: dict[str, Any]) -> type[Body] | None:
    if "body_text" not in row:
        return None
    return ANSWER_BODIES.get(row["answers"]) if row["kind"] == "response" else REQUEST_BODIES.get(row["name"])


def unordered(value: Any) -> Any:
    """Java's hash maps and sets have no order worth keeping."""
    if isinstance(value, dict):
        return {key: unordered(member) for key, member in value.items()}
    if isinstance(value, list):
        return sorted((unordered(item) for item in value), key=repr)
    return value


@pytest.mark.parametrize("row", [row for row in COMMANDS if body_type(row)], ids=command_name)
def test_recorded_body(row: dict[str, Any]) -> None:
    recorded = body_bytes(row)
    body_class = body_type(row)
    assert body_class is not None
    body = body_class.decode(recorded)
    written = body.encode_standard() if isinstance(body, TopicRouteData) else body.encode()
    assert unordered(loads(written)) == unordered(loads(recorded))
    assert len(written) == len(recorded)
    assert body_class.decode(written) == body


def test_route_in_both_forms() -> None:
    route = TopicRouteData(
        broker_datas=[BrokerData(broker_addrs={0: "127.0.0.1:10911"}, broker_name="broker-ä", cluster="C")],
        queue_datas=[QueueData(broker_name="broker-ä", perm=6, read_queue_nums=4, write_queue_nums=4)],
    )
    assert (
        route.encode()
        == (
            '{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"broker-ä","cluster":"C",'
            '"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-ä","perm":6,'
            '"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
        ).encode()
    )
    assert route.encode_standard() == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-\\u00e4","cluster":"C",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-\\u00e4","perm":6,'
        b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert TopicRouteData.decode(route.encode()) == TopicRouteData.decode(route.encode_standard()) == route


def test_queues_as_keys() -> None:
    queue = MessageQueue(topic="t", broker_name="b", queue_id=1)
    stats = ConsumeStats(offset_table={queue: OffsetWrapper(broker_offset=7)}, consume_tps=0.5)
    assert stats.encode() == (
        b'{"consumeTps":0.5,"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:'
        b'{"brokerOffset":7,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}'
    )
    assert ConsumeStats.decode(stats.encode()) == stats


def test_mapping_details_have_quoted_keys() -> None:
    """New tools refuse unquoted ones there, though the Java broker writes them."""
    detail = TopicQueueMappingDetail(topic="t", broker_name="b", hosted_queues={0: []}, curr_id_map={0: 0})
    table = TopicConfigTableBody(topic_queue_mapping_detail_map={"t": detail})
    assert b'"hostedQueues":{"0":[]}' in table.encode()
    assert b'"currIdMap":{"0":0}' in detail.encode()
    assert TopicQueueMappingDetail.decode(b'{"hostedQueues":{0:[{"bname":"b"}]},"topic":"t"}').hosted_queues[0]
    assert TopicQueueMappingInfo(curr_id_map={0: 1}).encode().startswith(b'{"currIdMap":{0:1}')


SIZE = struct.Struct(">i")


def registration() -> RegisterBrokerBody:
    body = RegisterBrokerBody(filter_server_list=["f:1"])
    wrapper = body.topic_config_serialize_wrapper
    wrapper.data_version = DataVersion(counter=3, timestamp=1_795_248_470_869)
    wrapper.topic_config_table = {
        "TBW102": TopicConfig(topic_name="TBW102", read_queue_nums=8, write_queue_nums=8, perm=7),
        "T": TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=2, attributes={"+k": "a b"}),
    }
    wrapper.topic_queue_mapping_info_map = {"S": TopicQueueMappingInfo(topic="S", curr_id_map={0: 0}, total_queues=1)}
    return body


def test_registration_in_both_forms() -> None:
    body = registration()
    assert RegisterBrokerBody.decode(body.encode()) == body
    assert RegisterBrokerBody.decode_compressed(encode_compressed(body)) == body


def test_a_large_registration_with_a_static_topic_is_read() -> None:
    """Of a broker with tens of thousands of topics: one static topic makes keys unquoted in all of it."""
    body = registration()
    assert body.topic_config_serialize_wrapper.topic_queue_mapping_info_map
    table = body.topic_config_serialize_wrapper.topic_config_table
    for number in range(50):
        table[f"T{number}"] = TopicConfig(topic_name=f"T{number}", attributes={"text": "{1:2}" * 20_000})
    data = body.encode()
    assert len(data) > DIALECT_BYTES_MAX
    assert RegisterBrokerBody.decode(data) == body


def test_registration_of_an_old_broker_has_no_static_topics() -> None:
    body = registration()
    body.topic_config_serialize_wrapper.topic_queue_mapping_info_map = {}
    data = zlib.compress(encode_inflated(body)[:-4])
    assert RegisterBrokerBody.decode_compressed(data) == body


def test_recorded_compressed_registration() -> None:
    data = base64.b64decode(
        "eNqNUVFPwjAQbvwDvhsflmk0JqiMDDZ4Y1sHhG3FtU6JMZdJaiAw0G7EGOJ/t8XwgBOk116Tu+++u3yHELJX+mixnBdc6K1qRc+LtOAJF/lk"
        "MV8HiknGZTB701uG1azXTNu0qnaj+YUQOpavEod3QIcUWNyOKHTbgQ+MDHquZkhraLQXdQIMrN3RVqrm0uHz0ThLxZRJXs2o1swfV4aeMOdB"
        "pjRbmlXKmpvGMXH71HMOHaAusnfIP3OIcdJLMASkAx5/TZezwp0tcynEumG58IxiRY0p28t/Rd0u9u5VSKHgUR7NsNUtg2+2O8uZBsFwv36b"
        "8T/GnM9ArUfsgN5ur4YM/hfH+lvUQ0pPX8RiysV1us6X93VBfJ9iBiFJsAc4wRHbwXT+ax1GQ90yo7WRgg4jF5yY9HEMIQ4d+W0NY5RKj56e"
        "pUffUVLTwA=="
    )
    wrapper = RegisterBrokerBody.decode_compressed(data).topic_config_serialize_wrapper
    assert wrapper.data_version == DataVersion(counter=0, timestamp=1_795_248_470_869)
    assert len(wrapper.topic_config_table) == 15
    assert wrapper.topic_config_table["BenchmarkTest"] == TopicConfig(
        topic_name="BenchmarkTest", read_queue_nums=1024, write_queue_nums=1024, perm=6
    )


@pytest.mark.parametrize(
    "inflated",
    [
        b"",
        b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x02{}\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x03a b\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x0fa x 4 6 SINGLE_\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x02xx\x00\x00\x00\x00\x00\x00\x00\x02[]",
    ],
)
def test_broken_registrations(inflated: bytes) -> None:
    for data in (inflated, zlib.compress(inflated), zlib.compress(inflated)[:-1]):
        with pytest.raises(InvalidRequestError):
            RegisterBrokerBody.decode_compressed(data)


def inflated_registration(*lines: bytes, count: int | None = None, filter_servers: bytes = b"[]") -> bytes:
    """Topics by their lines; `count`: how many it says to have."""
    number = len(lines) if count is None else count
    parts = [SIZE.pack(len(text)) + text for text in (b"{}", *lines, filter_servers)]
    return b"".join((parts[0], SIZE.pack(number), *parts[1:]))


def test_a_compressed_registration_has_numbers_that_can_be_written() -> None:
    """A topic with a number beyond 64 bits failed each question about its route, of all brokers."""
    for number in (b"2147483648", b"9" * 30, b"1_0"):
        data = zlib.compress(inflated_registration(b"T 4 %b 6 SINGLE_TAG {}" % number))
        with pytest.raises(InvalidRequestError, match="not a topic's line"):
            RegisterBrokerBody.decode_compressed(data)


def test_what_a_compressed_registration_holds_is_counted_before_it_is_read() -> None:
    """The lines of twenty million topics, in a few hundred kilobytes, would keep a NameServer busy for a minute."""
    line = b"T 4 4 6 SINGLE_TAG {}"
    RegisterBrokerBody.decode_compressed(zlib.compress(inflated_registration(line, line)), topics_max=2)
    many = inflated_registration(b"no line", count=3)
    large = inflated_registration(filter_servers=b"[%b]" % (b" " * 65_536))
    for data in (many, large):
        with pytest.raises(InvalidRequestError, match="too much in a registration"):
            RegisterBrokerBody.decode_compressed(zlib.compress(data), topics_max=2)


def test_defaults_fill_missing_and_null_fields() -> None:
    heartbeat = HeartbeatData.decode(b'{"clientID":"c","consumerDataSet":[{"groupName":"g","messageModel":null}]}')
    assert heartbeat.client_id == "c"
    assert heartbeat.consumer_data_set[0].message_model == "CLUSTERING"
    assert heartbeat.producer_data_set == []


def test_bodies_write_their_members_in_alphabetical_order() -> None:
    """As Java's do; it also keeps the fast path of the encoder a fast path."""
    for name in bodies.__all__:
        value = getattr(bodies, name)
        if isinstance(value, type) and issubclass(value, Body) and value.__struct_fields__:
            members = list(loads(value().encode()))
            assert members == sorted(members), name


def test_a_heartbeat_with_names_in_another_case() -> None:
    """As the client NewLife.RocketMQ writes it in C#; RocketMQ's releases before 5.5.0 read it."""
    text = (
        b'{"ClientID":"c","ConsumerDataSet":[{"ConsumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        b'"ConsumeType":"CONSUME_ACTIVELY","GroupName":"G","MessageModel":"BROADCASTING","SubscriptionDataSet":[{'
        b'"Topic":"T","ExpressionType":"TAG","SubString":"a","ClassFilterMode":false,"SubVersion":638000000000000000}],'
        b'"UnitMode":true}],"ProducerDataSet":[{"GroupName":"P"}]}'
    )
    assert HeartbeatData.decode(text) == HeartbeatData(
        client_id="c",
        consumer_data_set=[
            ConsumerData(
                consume_from_where="CONSUME_FROM_FIRST_OFFSET",
                consume_type="CONSUME_ACTIVELY",
                group_name="G",
                message_model="BROADCASTING",
                subscription_data_set=[
                    SubscriptionData(topic="T", sub_string="a", sub_version=638_000_000_000_000_000)
                ],
                unit_mode=True,
            )
        ],
        producer_data_set=[ProducerData(group_name="P")],
    )


@pytest.mark.parametrize(
    ("text", "client_id", "groups"),
    [
        (b'{"client_id":"c","producer-data-set":[{"group_name":"P"}]}', "c", ["P"]),
        (b'{"clientId":"c","producerDataSet":[{"GroupName":"other","groupName":"P"}]}', "c", ["P"]),
        (b'{"producerDataSet":[{"groupName":"P"}]}', "", ["P"]),
        (b'{"clientID":"c","PRODUCERDATASET":[{"groupName":"P"}]}', "c", []),
        (b'{0:1,"ClientID":7,"ProducerDataSet":null}', "7", []),
    ],
)
def test_names_of_a_heartbeat(text: bytes, client_id: str, groups: list[str]) -> None:
    heartbeat = HeartbeatData.decode(text)
    assert heartbeat.client_id == client_id
    assert [producer.group_name for producer in heartbeat.producer_data_set] == groups
