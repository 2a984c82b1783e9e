"""Reports of a proxy's clients to brokers, and brokers' questions to the clients, by gRPC and remoting on real sockets.

Covers `proxy/cluster/client_reports.py`, `proxy/grpc/service/broker_questions.py` and
`proxy/grpc/service/client_commands.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.control_broker import STORE_HOST, ControlBroker, control_broker
from tests.proxy.http2_peer import CLIENT_ID, RpcAnswer
from tests.proxy.proxy_under_test import (
    GROUP,
    ProxyUnderTest,
    consumer_settings,
    make_topics,
    producer_settings,
    proxy_before,
)
from tests.waiting import until
from thermocline.broker.tables import ProxiedClients
from thermocline.client.testing import FakeBroker
from thermocline.proxy.cluster.client_reports import ClientReports
from thermocline.proxy.grpc.messages import Code, messages
from thermocline.proxy.grpc.service.broker_questions import BrokerQuestions
from thermocline.proxy.grpc.service.client_settings import reported_client
from thermocline.remoting.bodies import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from thermocline.remoting.bodies.proxied_client import ListedClient
from thermocline.remoting.errors import UnsupportedRequestError
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.request_signature import Credentials

PROXY_NAME = "proxy-" + "a" * 200
REPORT = PrivateRequestCode.PROXIED_CLIENTS_REPORT


@pytest.fixture
def cluster() -> Iterator[FakeBroker]:
    """What the proxy serves its clients from; it takes no reports, as a broker of RocketMQ."""
    with FakeBroker(auto_create_topics=False) as running:
        make_topics(running)
        yield running


@pytest.fixture
async def proxy(cluster: FakeBroker) -> AsyncIterator[ProxyUnderTest]:
    async with proxy_before(cluster, report_interval_ms=20, relay_timeout_s=1) as running:
        yield running


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    """The broker that gets the reports."""
    async with control_broker(tmp_path) as running:
        await running.create_topic("Normal")
        yield running


def reports_to(proxy: ProxyUnderTest, *addresses: str, credentials: Credentials | None = None) -> ClientReports:
    async def brokers() -> tuple[str, ...]:
        return addresses

    return ClientReports(
        proxy.server.clients,
        proxy_name=PROXY_NAME,
        brokers=brokers,
        describe=lambda client: reported_client(client, started_ms=1_000),
        handler=BrokerQuestions(proxy.server.app),
        interval_ms=20,
        credentials=credentials,
        tls=None,
    )


@pytest.fixture
async def reports(proxy: ProxyUnderTest, broker: ControlBroker) -> AsyncIterator[ClientReports]:
    running = reports_to(proxy, broker.address)
    running.start()
    yield running
    await running.close()


def seen(broker: ControlBroker, group: str | None = None) -> list[ListedClient]:
    return list(broker.parts.tables.proxied.listed(group).clients)


def seen_ids(broker: ControlBroker, group: str | None = None) -> list[str]:
    return [each.client.client_id for each in seen(broker, group)]


async def join(proxy: ProxyUnderTest, settings: Any, client_id: str = CLIENT_ID) -> tuple[int, RpcAnswer]:
    """Connect a client; its Telemetry stream."""
    stream_id, answer = await proxy.connect(settings, metadata={"x-mq-client-id": client_id})
    await proxy.peer.answers(answer, 1)
    return stream_id, answer


@pytest.mark.usefixtures("reports")
async def test_a_broker_is_told_who_comes_changes_and_goes(proxy: ProxyUnderTest, broker: ControlBroker) -> None:
    await join(proxy, consumer_settings(), "c-1")
    await join(proxy, producer_settings("Normal", "Fifo"), "p-1")
    await until(lambda: seen_ids(broker) == ["p-1", "c-1"])
    ((consumer,), (producer,)) = seen(broker, GROUP), seen(broker, "Fifo")
    assert (consumer.proxy, consumer.client.kind, consumer.client.language, consumer.client.version) == (
        PROXY_NAME[:128],
        "push consumer",
        "PYTHON",
        "5.1.2",
    )
    assert consumer.client.address.startswith("127.0.0.1:")
    assert consumer.client.request_timeout_ms == 3_000
    assert [(each.topic, each.expression, each.kind) for each in consumer.client.subscriptions] == [
        ("Normal", "*", "TAG")
    ]
    assert producer.client.groups == ("Normal", "Fifo")
    await join(proxy, consumer_settings(topic="Fifo"), "c-1")
    await until(lambda: [each.topic for each in seen(broker, GROUP)[0].client.subscriptions] == ["Fifo"])
    proxy.server.clients.remove("c-1")
    await until(lambda: seen_ids(broker) == ["p-1"])


@pytest.mark.usefixtures("reports")
async def test_a_broker_that_lost_the_connection_is_told_everything_again(
    proxy: ProxyUnderTest, broker: ControlBroker
) -> None:
    await join(proxy, consumer_settings(), "c-1")
    await until(lambda: seen_ids(broker) == ["c-1"])
    table = broker.parts.tables.proxied
    for connection in list(table._proxies):
        table.connection_closed(connection)  # as after its expiry
    await until(lambda: seen_ids(broker) == ["c-1"])
    for connection in list(table._proxies):
        connection.abort()
    await until(lambda: not seen_ids(broker))
    await until(lambda: seen_ids(broker) == ["c-1"])


async def test_many_clients_come_in_parts_and_refused_ones_are_offered_again(
    proxy: ProxyUnderTest, broker: ControlBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.proxy.cluster.client_reports.ENTRIES_PER_PART", 5)
    await broker.ask(25, body=b"proxiedClientEntriesMax=9\n")
    names = [f"c-{number}" for number in range(5)]
    for name in names:
        await join(proxy, consumer_settings(), name)
    reports = reports_to(proxy, broker.address)
    reports.start()
    try:
        await until(lambda: len(seen_ids(broker)) == 3)  # three entries each
        await broker.ask(25, body=b"proxiedClientEntriesMax=900\n")
        await until(lambda: seen_ids(broker) == names)
    finally:
        await reports.close()
    await until(lambda: not seen_ids(broker))  # they go with the connection


@pytest.mark.usefixtures("reports")
async def test_no_client_can_spoil_the_reports_of_others(proxy: ProxyUnderTest, broker: ControlBroker) -> None:
    settings = consumer_settings(topic="T" * 10_000)
    settings.subscription.subscriptions[0].expression.expression = "tag||" * 10_000
    for number in range(1_000):
        settings.subscription.subscriptions.add().topic.name = f"topic-{number}"
    settings.request_timeout.seconds = (1 << 63) - 1
    await join(proxy, settings, "c-" + "\N{LATIN SMALL LETTER E WITH ACUTE}" * 200)
    await join(proxy, consumer_settings("other"), "c-2")
    await until(lambda: len(seen_ids(broker)) == 2)
    (long,) = seen(broker, GROUP)
    (first, *more) = long.client.subscriptions
    assert (first.topic, len(first.expression), len(more)) == ("T" * 255, 1_024, 127)
    assert long.client.request_timeout_ms == (1 << 31) - 1
    assert (await broker.ask(203, {"consumerGroup": GROUP})).code == 0


async def test_a_broker_without_the_request_is_left_alone(
    cluster: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with proxy_before(cluster, report_interval_ms=5) as proxy:
            await join(proxy, consumer_settings())
            await until(lambda: cluster.requests(REPORT))
            for _ in range(20):
                await proxy.call("Heartbeat", messages.HeartbeatRequest(group=consumer_settings().subscription.group))
    assert len(cluster.requests(REPORT)) == 1
    assert caplog.text.count("takes no reports of clients") == 1


async def test_a_broker_that_takes_reports_later_is_told_everything(
    proxy: ProxyUnderTest, broker: ControlBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.proxy.cluster.client_reports.PAUSE_MS", 20)
    served = broker.parts.tables.proxied
    taking = [False]

    def apply(connection: Any, report: Any) -> Any:
        if not taking[0]:
            raise UnsupportedRequestError(" request type not supported")
        return ProxiedClients.apply_report(served, connection, report)

    monkeypatch.setattr(served, "apply_report", apply)
    await join(proxy, consumer_settings(), "c-1")
    reports = reports_to(proxy, broker.address)
    reports.start()
    try:
        await join(proxy, consumer_settings(), "c-2")
        proxy.server.clients.remove("c-1")
        taking[0] = True
        await until(lambda: seen_ids(broker) == ["c-2"])
    finally:
        await reports.close()


async def test_no_reports_are_made_where_none_are_wanted(cluster: FakeBroker) -> None:
    async with proxy_before(cluster, report_interval_ms=0) as proxy:
        await join(proxy, consumer_settings())
        await proxy.call("Heartbeat", messages.HeartbeatRequest(group=consumer_settings().subscription.group))
    assert not cluster.requests(REPORT)


# -- questions ---------------------------------------------------------------------------------------------------------

FIELDS = {"consumerGroup": GROUP, "clientId": CLIENT_ID, "jstackEnable": "true"}


async def asked_with(
    proxy: ProxyUnderTest, broker: ControlBroker, code: int, fields: dict[str, str], reply: Any, *, by: str = CLIENT_ID
) -> tuple[Any, Any]:
    """Ask a client through broker and proxy, and answer as it; the broker's answer, and the command that came."""
    stream_id, answer = await join(proxy, consumer_settings())
    other_id, _ = await join(proxy, consumer_settings(), "other") if by == "other" else (stream_id, answer)
    await until(lambda: CLIENT_ID in seen_ids(broker))
    asking = asyncio.create_task(broker.ask(code, fields))
    payload = (await proxy.peer.answers(answer, 2))[1]
    command = messages.TelemetryCommand.FromString(payload)
    replied = reply(command)
    if replied is not None:
        proxy.peer.write(other_id, replied.SerializeToString())
    return await asking, command


def stacks(command: Any) -> Any:
    nonce = command.print_thread_stack_trace_command.nonce
    trace = messages.ThreadStackTrace(nonce=nonce, thread_stack_trace="main at work")
    return messages.TelemetryCommand(status=messages.Status(code=Code.OK), thread_stack_trace=trace)


def verified(code: int, sentence: str = "") -> Any:
    def reply(command: Any) -> Any:
        result = messages.VerifyMessageResult(nonce=command.verify_message_command.nonce)
        return messages.TelemetryCommand(
            status=messages.Status(code=code, message=sentence), verify_message_result=result
        )

    return reply


@pytest.mark.usefixtures("reports")
async def test_running_info_has_the_clients_stacks(proxy: ProxyUnderTest, broker: ControlBroker) -> None:
    answer, _ = await asked_with(proxy, broker, 307, FIELDS, stacks)
    assert answer.code == 0, answer.remark
    info = ConsumerRunningInfo.decode(answer.body)
    assert info.jstack == "main at work"
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_CLIENT_VERSION"] == "5.1.2"
    assert info.properties["PROP_CONSUMER_START_TIMESTAMP"].isdecimal()
    assert [each.topic for each in info.subscription_set] == ["Normal"]


@pytest.mark.usefixtures("reports")
async def test_running_info_without_stacks_asks_no_client(proxy: ProxyUnderTest, broker: ControlBroker) -> None:
    _, answer = await join(proxy, consumer_settings(kind="SIMPLE_CONSUMER"))
    await until(lambda: seen_ids(broker) == [CLIENT_ID])
    found = await broker.ask(307, FIELDS | {"jstackEnable": "false"})
    info = ConsumerRunningInfo.decode(found.body)
    assert (info.properties["PROP_CONSUME_TYPE"], info.jstack) == ("CONSUME_ACTIVELY", None)
    assert len(answer.payloads()) == 1


@pytest.mark.usefixtures("reports")
@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, "CR_SUCCESS"),
        (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (Code.MESSAGE_CORRUPTED, "CR_RETURN_NULL"),
    ],
)
async def test_a_message_is_verified(proxy: ProxyUnderTest, broker: ControlBroker, code: int, result: str) -> None:
    sent = broker.put("Normal", body=b"again", UNIQ_KEY="01" * 17)
    fields = FIELDS | {"msgId": encode_message_id(STORE_HOST, sent.physical_offset), "topic": "Normal"}
    answer, command = await asked_with(proxy, broker, 309, fields, verified(code))
    assert answer.code == 0, answer.remark
    found = ConsumeMessageDirectlyResult.decode(answer.body)
    assert (found.consume_result, found.remark) == (result, "from gRPC client")
    message = command.verify_message_command.message
    assert (message.body, message.topic.name, message.system_properties.message_id) == (b"again", "Normal", "01" * 17)


@pytest.mark.usefixtures("reports")
@pytest.mark.parametrize(
    ("code", "expected", "sentence"),
    [
        (Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED, 16, "forbidden to verify message"),
        (Code.NOT_IMPLEMENTED, 1, "the client answers 50100: no listener"),
    ],
)
async def test_a_client_may_refuse_to_verify(
    proxy: ProxyUnderTest, broker: ControlBroker, code: int, expected: int, sentence: str
) -> None:
    sent = broker.put("Normal")
    fields = FIELDS | {"msgId": encode_message_id(STORE_HOST, sent.physical_offset), "topic": "Normal"}
    answer, _ = await asked_with(proxy, broker, 309, fields, verified(code, "no listener"))
    assert answer.code == expected
    assert sentence in (answer.remark or "")


@pytest.mark.usefixtures("reports")
async def test_a_client_that_does_not_answer_in_time(proxy: ProxyUnderTest, broker: ControlBroker) -> None:
    answer, _ = await asked_with(proxy, broker, 307, FIELDS, lambda command: None)
    assert (answer.code, answer.remark) == (207, "the client does not answer")


@pytest.mark.usefixtures("reports")
async def test_another_client_cannot_answer(proxy: ProxyUnderTest, broker: ControlBroker) -> None:
    answer, _ = await asked_with(proxy, broker, 307, FIELDS, stacks, by="other")
    assert answer.code == 207


@pytest.mark.usefixtures("reports")
async def test_clients_that_are_gone_or_have_no_stream(proxy: ProxyUnderTest, broker: ControlBroker) -> None:
    answer = await broker.ask(307, FIELDS)
    assert (answer.code, answer.remark) == (1, f"The Consumer <{GROUP}> <{CLIENT_ID}> not online")
    await join(proxy, consumer_settings())
    await until(lambda: seen_ids(broker) == [CLIENT_ID])
    client = proxy.server.clients.find(CLIENT_ID)
    assert client is not None
    client.channel = None
    assert (await broker.ask(307, FIELDS)).code == 1
    assert (await broker.ask(307, FIELDS | {"jstackEnable": "false"})).code == 0


@pytest.mark.usefixtures("reports")
async def test_questions_that_wait_are_bounded(
    proxy: ProxyUnderTest, broker: ControlBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.proxy.grpc.service.client_commands.WAITING_MAX", 0)
    await join(proxy, consumer_settings())
    await until(lambda: seen_ids(broker) == [CLIENT_ID])
    answer = await broker.ask(307, FIELDS)
    assert (answer.code, "too many questions" in (answer.remark or "")) == (2, True)
