"""The port for remoting clients, request by request: a client of the protocol, the proxy, and a broker behind.

Covers `proxy/remoting/client_session.py`, `proxy/remoting/relay.py`, `proxy/remoting/message_types.py`,
`proxy/remoting/request_codes.py`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.proxy.http2_peer import GrpcPeer
from tests.proxy.proxy_under_test import make_topics, message, proxy_before, send_request
from tests.proxy.remoting.remoting_peer import GROUP, Client, client_of, send_fields
from tests.waiting import TIMEOUT_S, until
from thermocline.client.testing import FakeBroker
from thermocline.proxy.grpc.messages import Code
from thermocline.proxy.remoting.relay import LOOK_UPS_MAX
from thermocline.proxy.remoting.request_codes import (
    ANY_BROKER,
    BEYOND_OFFICIAL,
    BY_BROKER_NAME,
    BY_LOCKED_QUEUES,
    EVERY_BROKER,
    NAME_SERVER,
)
from thermocline.remoting.bodies import (
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    MessageQueue,
    SubscriptionData,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.settings import TlsConfig
from thermocline.remoting.tls import ClientTls, TlsOptions


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


@pytest.fixture
def brokers() -> Iterator[FakeBroker]:
    with FakeBroker(auto_create_topics=False, broker_names=("broker-a", "broker-b")) as running:
        make_topics(running)
        yield running


# -- routes ------------------------------------------------------------------------------------------------------------


async def test_a_route_names_the_proxy_for_every_broker(brokers: FakeBroker) -> None:
    async with proxy_before(brokers) as proxy, client_of(proxy) as client:
        route = await client.route()
        assert {broker.broker_name: broker.broker_addrs for broker in route.broker_datas} == {
            "broker-a": {0: client.address},
            "broker-b": {0: client.address},
        }
        assert {queues.broker_name for queues in route.queue_datas} == {"broker-a", "broker-b"}


async def test_a_route_names_the_access_address(broker: FakeBroker) -> None:
    async with proxy_before(broker, remoting_access_address="proxy.example.com") as proxy, client_of(proxy) as client:
        port = proxy.server.remoting_port
        assert (await client.route()).broker_datas[0].broker_addrs == {0: f"proxy.example.com:{port}"}


async def test_a_refusal_of_the_name_server_passes(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Absent")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


# -- requests to brokers -----------------------------------------------------------------------------------------------


async def test_requests_pass_as_they_came(broker: FakeBroker) -> None:
    """Each code that names its broker: fields and body unchanged, to the byte; the broker's answer comes back."""
    codes = sorted(BY_BROKER_NAME | BEYOND_OFFICIAL)
    async with proxy_before(broker, checks_message_type=False, remoting_push_by_pop=False) as proxy:
        for code in codes:
            broker.refuse(code, response_code=4_711, remark="read")
            async with client_of(proxy) as client:
                fields = send_fields(n="broker-a", bname="broker-a", topic="Normal", odd="ö\x01")
                answer = await client.ask(code, b"body", **fields)
            assert (answer.code, answer.remark) == (4_711, "read"), RequestCode(code).name
            (received,) = broker.requests(code)
            assert received.fields == {name: str(text) for name, text in fields.items()}
            assert received.body == b"body"


async def test_other_codes_are_not_supported(broker: FakeBroker) -> None:
    served = NAME_SERVER | BY_BROKER_NAME | BY_LOCKED_QUEUES | ANY_BROKER | EVERY_BROKER
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        for code in RequestCode:
            if code not in served:
                answer = await client.ask(code, bname="broker-a")
                assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, code.name
                assert answer.remark == f" request type {code.value} not supported"
        assert not broker.requests(RequestCode.UPDATE_BROKER_CONFIG)


async def test_a_heartbeat_with_many_topics_looks_up_some_of_them(broker: FakeBroker) -> None:
    """Each client may send one, and as large as a frame."""
    subscriptions = [SubscriptionData(topic=f"Topic{number}") for number in range(3_000)]
    consumer = ConsumerData(group_name="many", subscription_data_set=subscriptions)
    body = HeartbeatData(client_id="one", consumer_data_set=[consumer]).encode()
    before = len(broker.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC, broker_name="namesrv"))
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        answer = await client.ask(RequestCode.HEART_BEAT, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        asked = len(broker.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC, broker_name="namesrv")) - before
        assert asked == LOOK_UPS_MAX


async def test_the_clients_signature_passes(broker: FakeBroker) -> None:
    credentials = Credentials(access_key="key", secret_key="secret")
    command = RemotingCommand.request(
        RequestCode.GET_MAX_OFFSET, ext_fields={"topic": "Normal", "queueId": "0", "bname": "broker-a"}
    )
    credentials.sign(command)
    signed = dict(command.ext_fields or {})
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        assert (await client.ask(command.code, **signed)).code == ResponseCode.SUCCESS
    (received,) = broker.requests(RequestCode.GET_MAX_OFFSET)
    assert received.fields == signed


async def test_a_request_without_a_broker_goes_to_the_one_there_is(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"body", **send_fields())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await client.route()
        answer = await client.ask(RequestCode.END_TRANSACTION)
        assert answer.remark != "Request doesn't have field bname"


async def test_a_request_goes_to_the_broker_that_it_names(brokers: FakeBroker) -> None:
    async with proxy_before(brokers) as proxy, client_of(proxy) as client:
        for name in ("broker-b", "broker-a", "broker-b"):
            answer = await client.ask(RequestCode.SEND_MESSAGE_V2, name.encode(), **send_fields(n=name))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        counts = {
            name: len(brokers.requests(RequestCode.SEND_MESSAGE_V2, broker_name=name))
            for name in ("broker-a", "broker-b")
        }
        assert counts == {"broker-a": 1, "broker-b": 2}


async def test_a_request_without_a_broker_is_refused_where_there_are_two(brokers: FakeBroker) -> None:
    async with proxy_before(brokers) as proxy, client_of(proxy) as client:
        await client.ask(RequestCode.GET_MAX_OFFSET, topic="Normal", queueId=0, bname="broker-a")
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"body", **send_fields())
        assert answer.code == ResponseCode.VERSION_NOT_SUPPORTED, "also when this client has used one of them alone"
        await client.route()
        for code, fields in ((RequestCode.SEND_MESSAGE_V2, send_fields()), (RequestCode.GET_MAX_OFFSET, {})):
            answer = await client.ask(code, **fields)
            assert (answer.code, answer.remark) == (
                ResponseCode.VERSION_NOT_SUPPORTED,
                "Request doesn't have field bname",
            )


async def test_a_broker_that_is_not_there_is_no_service(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"body", **send_fields(n="broker-z"))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_message_has_the_type_of_its_topic(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        for topic, properties, is_taken in (
            ("Normal", "", True),
            ("Normal", "DELAY\x013\x02", False),
            ("Fifo", "__SHARDINGKEY\x01a\x02", True),
            ("Fifo", "", False),
            ("Transaction", "TRAN_MSG\x01true\x02", True),
            ("Delay", "TIMER_DELAY_SEC\x015\x02", True),
            ("Mixed", "DELAY\x013\x02", True),
            ("%RETRY%group", "DELAY\x013\x02", True),
        ):
            fields = send_fields(b=topic, i=properties, n="broker-a")
            answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"body", **fields)
            assert (answer.code != ResponseCode.MESSAGE_ILLEGAL) == is_taken, (topic, properties, answer.remark)


# -- clients and groups ------------------------------------------------------------------------------------------------


async def test_every_broker_knows_each_client_by_itself(brokers: FakeBroker) -> None:
    async with proxy_before(brokers) as proxy, client_of(proxy) as one:
        async with client_of(proxy) as two:
            for client, client_id in ((one, "one"), (two, "two")):
                assert (await client.heartbeat(client_id=client_id)).code == ResponseCode.SUCCESS
            for name in ("broker-a", "broker-b"):
                assert sorted(brokers.group_members(GROUP, broker_name=name)) == ["one", "two"]
            answer = await one.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=GROUP)
            assert sorted(GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list) == ["one", "two"]
        await until(lambda: brokers.group_members(GROUP, broker_name="broker-b") == ["one"])


async def test_a_broker_that_was_away_knows_the_client_with_its_next_request(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        await client.heartbeat()
        broker.drop_connections()
        await until(lambda: broker.group_members(GROUP) == [])
        await until_answered(client)
        assert broker.group_members(GROUP) == ["one"]


async def until_answered(client: Client) -> None:
    while True:
        answer = await client.ask(RequestCode.GET_MIN_OFFSET, topic="Normal", queueId=0, bname="broker-a")
        if answer.code == ResponseCode.SUCCESS:
            return


async def test_what_a_broker_asks_comes_to_the_client(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as one, client_of(proxy) as two:
        await one.heartbeat(client_id="one")
        await two.heartbeat(client_id="two")
        await until(lambda: any(command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED for command in one.asked))


async def test_locks_are_the_brokers(broker: FakeBroker) -> None:
    place = MessageQueue(topic="Normal", broker_name="broker-a", queue_id=1)
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        for client_id, is_locked in (("one", True), ("two", False)):
            body = LockBatchRequestBody(client_id=client_id, consumer_group=GROUP, mq_set=[place]).encode()
            answer = await client.ask(RequestCode.LOCK_BATCH_MQ, body)
            assert (b'"queueId":1' in bytes(answer.body)) == is_locked
        answer = await client.ask(RequestCode.UNLOCK_BATCH_MQ, LockBatchRequestBody().encode())
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "MessageQueue set is empty")


# -- the port ----------------------------------------------------------------------------------------------------------


async def test_the_port_takes_grpc_and_tls_too(broker: FakeBroker, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("s.pem", "s.key", subject="proxy", addresses=["127.0.0.1"])
    tls = TlsConfig(server_mode="permissive", server_certificate_path=str(certificate), server_key_path=str(key))
    context = ssl.create_default_context(cafile=str(authority.path))
    context.set_alpn_protocols(["h2"])
    async with proxy_before(broker, tls=tls) as proxy:
        address = f"127.0.0.1:{proxy.server.remoting_port}"
        large = send_request(message(body=b"x" * (1 << 20)))
        for more in ({}, {"tls": context}):
            async with GrpcPeer(address, **more) as peer:
                assert (await peer.call("SendMessage", large)).status.code == Code.OK
        options = TlsOptions(ca_file=str(authority.path))
        async with client_of(proxy, tls=ClientTls(options)) as client:
            assert (await client.route()).broker_datas
            answer = await client.ask(RequestCode.SEND_MESSAGE_V2, b"y" * (1 << 20), **send_fields(n="broker-a"))
            assert answer.code == ResponseCode.SUCCESS
    assert len(broker.messages("Normal")) == 3


async def test_limits_refuse_with_a_code_that_clients_retry(broker: FakeBroker) -> None:
    limits = {"remoting_heartbeat_bytes_max": 1 << 20, "remoting_broker_connections_max": 1}
    async with proxy_before(broker, **limits) as proxy, client_of(proxy) as one, client_of(proxy) as two:
        large = HeartbeatData(
            client_id="one", consumer_data_set=[ConsumerData(group_name=f"{number:0>200}") for number in range(6_000)]
        )
        assert (await one.ask(RequestCode.HEART_BEAT, large.encode())).code == ResponseCode.SYSTEM_BUSY
        fields = {"topic": "Normal", "queueId": 0, "bname": "broker-a"}
        assert (await one.ask(RequestCode.GET_MAX_OFFSET, **fields)).code == ResponseCode.SUCCESS
        assert (await two.ask(RequestCode.GET_MAX_OFFSET, **fields)).code == ResponseCode.SYSTEM_BUSY
        assert proxy.server.counts.totals == {"remotingHeartbeatBytesMax": 1, "remotingBrokerConnectionsMax": 1}


def beat_of_most() -> bytes:
    """A heartbeat of more than half of 1 MiB, by a push consumer of GROUP and of other groups."""
    names = [GROUP, *(f"{number:0>200}" for number in range(2_000))]
    consumers = [
        ConsumerData(group_name=name, consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING") for name in names
    ]
    beat = HeartbeatData(client_id="one", consumer_data_set=consumers).encode()
    assert 1 << 19 < len(beat) < 1 << 20
    return beat


async def test_a_heartbeat_that_is_refused_leaves_nothing(broker: FakeBroker) -> None:
    beat = beat_of_most()
    async with (
        proxy_before(broker, remoting_heartbeat_bytes_max=1 << 20) as proxy,
        client_of(proxy) as one,
        client_of(proxy) as two,
    ):
        assert (await one.ask(RequestCode.HEART_BEAT, beat)).code == ResponseCode.SUCCESS
        await one.ask(RequestCode.UNREGISTER_CLIENT, clientID="one", consumerGroup="another")
        assert (await two.ask(RequestCode.HEART_BEAT, beat)).code == ResponseCode.SYSTEM_BUSY
        remoting = proxy.server.remoting
        assert remoting is not None
        assert remoting.pops is not None
        assert sorted(client.has_named(GROUP) for client in remoting.pops._clients.values()) == [False, True]
        assert (await one.ask(RequestCode.HEART_BEAT, beat)).code == ResponseCode.SUCCESS


async def test_the_heartbeat_of_a_client_that_goes_makes_room(broker: FakeBroker) -> None:
    beat = beat_of_most()
    async with proxy_before(broker, remoting_heartbeat_bytes_max=1 << 20) as proxy:
        remoting = proxy.server.remoting
        assert remoting is not None
        for _ in range(2):
            async with client_of(proxy) as client:
                assert (await client.ask(RequestCode.HEART_BEAT, beat)).code == ResponseCode.SUCCESS
            await until(lambda: remoting.session_count == 0)


async def test_after_a_broker_failed_requests_go_to_its_new_master(broker: FakeBroker) -> None:
    with FakeBroker(auto_create_topics=False) as new:
        make_topics(new)
        async with proxy_before(broker, refresh_s=300, expiry_s=600) as proxy, client_of(proxy) as client:
            body, fields = b"y", send_fields(n="broker-a")
            assert (await client.ask(RequestCode.SEND_MESSAGE_V2, body, **fields)).code == ResponseCode.SUCCESS
            code, refused = RequestCode.SEND_MESSAGE_V2, ResponseCode.NO_PERMISSION
            await asyncio.to_thread(broker.refuse, code, response_code=refused, times=1_000)
            await asyncio.to_thread(broker.move_broker, "broker-a", new.broker_addresses["broker-a"])
            answer = await client.ask(code, body, **fields)
            assert answer.code == refused
            async with asyncio.timeout(TIMEOUT_S):
                while answer.code == refused:
                    answer = await client.ask(code, body, **fields)
            assert answer.code == ResponseCode.SUCCESS
            assert len(new.messages("Normal")) == 1


async def test_a_stop_answers_what_is_begun_and_cuts_long_polls_off(broker: FakeBroker) -> None:
    async with proxy_before(broker) as proxy, client_of(proxy) as client:
        fields = {"consumerGroup": GROUP, "topic": "Normal", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1}
        more = {"sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 15_000, "subscription": "*", "subVersion": 0}
        poll = asyncio.ensure_future(client.ask(RequestCode.LITE_PULL_MESSAGE, bname="broker-a", **fields, **more))
        await until(lambda: broker.requests(RequestCode.LITE_PULL_MESSAGE))
        started_s = asyncio.get_running_loop().time()
        await proxy.server.close()
        assert asyncio.get_running_loop().time() - started_s < 4
        answer = (await asyncio.gather(poll, return_exceptions=True))[0]
        assert isinstance(answer, BaseException) or answer.code != ResponseCode.SUCCESS


async def test_there_may_be_no_such_port(broker: FakeBroker) -> None:
    async with proxy_before(broker, remoting_port=-1) as proxy:
        assert proxy.server.remoting_port == -1
