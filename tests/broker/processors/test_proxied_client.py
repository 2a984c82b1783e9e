"""Clients that proxies report: who is shown where, what is forgotten and when, bounds, and questions through a proxy.

Covers `broker/processors/proxied_client.py`, `broker/processors/client_lists.py`, `broker/tables/proxied_clients.py`.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.broker.control_broker import STORE_HOST, Client, ControlBroker, control_broker
from tests.waiting import until
from thermocline.remoting.bodies import (
    ConsumerConnection,
    ConsumerData,
    GroupList,
    HeartbeatData,
    ProducerConnection,
    ProducerTableInfo,
    SubscriptionData,
)
from thermocline.remoting.bodies.proxied_client import (
    PRODUCER,
    PUSH_CONSUMER,
    SIMPLE_CONSUMER,
    ProxiedClient,
    ProxiedClientsAnswer,
    ProxiedClientsList,
    ProxiedClientsReport,
    ProxiedSubscription,
)
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.message_record import decode_record


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        await broker.create_topic("T")
        yield broker


def consumer(client_id: str, group: str = "G", *, kind: str = PUSH_CONSUMER, **more: Any) -> ProxiedClient:
    fields: dict[str, Any] = {
        "language": "JAVA",
        "version": "5.2.0",
        "address": "10.0.0.7:4711",
        "started_ms": 1_000,
        "subscriptions": (ProxiedSubscription("T", "a||b", "TAG"),),
    }
    return ProxiedClient(client_id=client_id, kind=kind, groups=(group,), **(fields | more))


def producer(client_id: str, *topics: str) -> ProxiedClient:
    return ProxiedClient(
        client_id=client_id,
        kind=PRODUCER,
        groups=topics,
        language="HTTP",
        version="1.0.8",
        address="10.0.0.8:4712",
        started_ms=1_000,
    )


async def report(
    broker: ControlBroker,
    connection: ClientConnection,
    *clients: ProxiedClient,
    instance: str = "one",
    is_first: bool = False,
    gone: tuple[str, ...] = (),
) -> ProxiedClientsAnswer:
    body = ProxiedClientsReport(
        proxy=f"proxy-{instance}", instance=instance, is_first=is_first, clients=clients, gone=gone
    )
    answer = await broker.ask(
        PrivateRequestCode.PROXIED_CLIENTS_REPORT, body=msgspec.json.encode(body), connection=connection
    )
    assert answer.code == 0, answer.remark
    return msgspec.json.decode(answer.body, type=ProxiedClientsAnswer)


async def consumers(broker: ControlBroker, group: str = "G") -> ConsumerConnection | None:
    answer = await broker.ask(203, {"consumerGroup": group})
    if answer.code == 206:
        return None
    assert answer.code == 0, answer.remark
    return ConsumerConnection.decode(answer.body)


async def consumer_ids(broker: ControlBroker, group: str = "G") -> list[str]:
    found = await consumers(broker, group)
    return [] if found is None else sorted(each.client_id for each in found.connection_set)


async def listed(broker: ControlBroker, group: str | None = None) -> ProxiedClientsList:
    fields = {} if group is None else {"group": group}
    answer = await broker.ask(PrivateRequestCode.PROXIED_CLIENTS_LIST, fields)
    return msgspec.json.decode(answer.body, type=ProxiedClientsList)


async def test_consumers_are_shown_as_their_clients_are(broker: ControlBroker) -> None:
    proxy = await broker.connect()
    await report(broker, proxy, consumer("c-1"), is_first=True)
    found = await consumers(broker)
    assert found is not None
    (shown,) = found.connection_set
    assert (shown.client_id, shown.client_addr, shown.language, shown.version) == (
        "c-1",
        "10.0.0.7:4711",
        "JAVA",
        453,  # V5_2_0
    )
    assert (found.consume_type, found.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert found.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
    assert found.subscription_table["T"].tags_set == {"a", "b"}
    assert GroupList.decode((await broker.ask(300, {"topic": "T"})).body).group_list == ["G"]


async def test_a_report_makes_the_group_and_its_retry_topic_by_which_tools_find_it(broker: ControlBroker) -> None:
    await report(broker, await broker.connect(), consumer("c-1"), is_first=True)
    assert "G" in broker.parts.tables.groups
    retry = broker.parts.tables.topics.get("%RETRY%G")
    assert retry is not None
    assert retry.write_queue_nums == 1


async def test_the_manner_of_consuming_is_the_latest_members(broker: ControlBroker) -> None:
    proxy = await broker.connect()
    latest = consumer("c-2", kind=SIMPLE_CONSUMER, started_ms=2_000)
    await report(broker, proxy, consumer("c-1"), latest, is_first=True)
    found = await consumers(broker)
    assert found is not None
    assert found.consume_type == "CONSUME_ACTIVELY"


async def test_queues_are_shared_out_among_classic_members_alone(broker: ControlBroker) -> None:
    proxy, member = await broker.connect(), Client()
    await report(
        broker, proxy, consumer("grpc", subscriptions=(ProxiedSubscription("Other", "*", "TAG"),)), is_first=True
    )
    assert (await broker.ask(38, {"consumerGroup": "G"})).code == 1  # as without any member
    classic = await broker.connect(member)
    data = HeartbeatData(
        client_id="classic",
        consumer_data_set=[
            ConsumerData(
                group_name="G",
                consume_from_where="CONSUME_FROM_FIRST_OFFSET",
                subscription_data_set=[SubscriptionData(topic="T", sub_version=1)],
            )
        ],
    )
    await broker.ask(34, body=data.encode(), connection=classic)
    assert b"grpc" not in (await broker.ask(38, {"consumerGroup": "G"})).body
    await until(lambda: [command.code for command in member.requests] == [40])
    await report(broker, proxy, consumer("grpc-2"), gone=("grpc",))
    found = await consumers(broker)
    assert found is not None
    assert [each.client_id for each in found.connection_set] == ["classic", "grpc-2"]
    assert found.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert found.subscription_table["T"].sub_string == "*"  # what the classic member wants
    await broker.ask(38, {"consumerGroup": "G"}, connection=classic)
    assert [command.code for command in member.requests] == [40]  # no other notice


async def test_producers_are_shown_by_their_topics(broker: ControlBroker) -> None:
    await report(broker, await broker.connect(), producer("p-1", "T", "U"), is_first=True)
    for topic in ("T", "U"):
        (shown,) = ProducerConnection.decode((await broker.ask(204, {"producerGroup": topic})).body).connection_set
        assert (shown.client_id, shown.language, shown.version) == ("p-1", "HTTP", 513)
    infos = ProducerTableInfo.decode((await broker.ask(328)).body).data
    assert {group: [(each.client_id, each.remote_ip) for each in found] for group, found in infos.items()} == {
        "T": [("p-1", "/10.0.0.8:4712")],
        "U": [("p-1", "/10.0.0.8:4712")],
    }


async def test_changes_replace_what_was_reported(broker: ControlBroker) -> None:
    proxy = await broker.connect()
    await report(broker, proxy, consumer("c-1"), consumer("c-2"), is_first=True)
    await report(broker, proxy, consumer("c-1", "H"), gone=("c-2", "unknown"))
    assert await consumer_ids(broker) == []
    assert await consumer_ids(broker, "H") == ["c-1"]
    await report(broker, proxy, consumer("c-3"), is_first=True)
    assert await consumer_ids(broker, "H") == []
    assert await consumer_ids(broker) == ["c-3"]


async def test_a_connection_without_a_first_report_is_not_known(broker: ControlBroker) -> None:
    answer = await report(broker, await broker.connect(), consumer("c-1"))
    assert not answer.is_known
    assert await consumer_ids(broker) == []


async def test_a_proxy_that_connects_again_replaces_itself_and_no_other(broker: ControlBroker) -> None:
    await report(broker, await broker.connect(), consumer("c-1"), is_first=True)
    await report(broker, await broker.connect(), consumer("c-2"), instance="two", is_first=True)
    await report(broker, await broker.connect(), consumer("c-3"), is_first=True)
    assert await consumer_ids(broker) == ["c-2", "c-3"]


async def test_clients_go_with_their_proxys_connection(broker: ControlBroker) -> None:
    proxy = await broker.connect()
    await report(broker, await broker.connect(), consumer("c-2"), instance="two", is_first=True)
    await report(broker, proxy, consumer("c-1"), producer("p-1", "T"), is_first=True)
    proxy.close()
    await until(lambda: not broker.parts.tables.proxied.producers("T"))
    assert await consumer_ids(broker) == ["c-2"]


async def test_clients_of_a_silent_proxy_expire(broker: ControlBroker) -> None:
    silent, living = await broker.connect(), await broker.connect()
    await report(broker, silent, consumer("c-1"), is_first=True)
    await report(broker, living, consumer("c-2"), instance="two", is_first=True)
    broker.clock.now_ms += 29_000
    await report(broker, living, instance="two")
    await broker.housekeeping.step()
    assert await consumer_ids(broker) == ["c-1", "c-2"]
    broker.clock.now_ms += 11_000
    await broker.housekeeping.step()
    assert await consumer_ids(broker) == ["c-2"]
    assert not (await report(broker, silent)).is_known


async def test_entries_are_bounded_by_connection_and_in_all(broker: ControlBroker) -> None:
    limits = b"proxiedClientEntriesPerConnectionMax=6\nproxiedClientEntriesMax=9\n"
    assert (await broker.ask(25, body=limits)).code == 0
    one, two = await broker.connect(), await broker.connect()
    answer = await report(broker, one, consumer("c-1"), consumer("c-2"), consumer("c-3"), is_first=True)
    assert answer == ProxiedClientsAnswer(is_known=True, refused=("c-3",))
    answer = await report(broker, two, consumer("c-4"), consumer("c-5"), instance="two", is_first=True)
    assert answer.refused == ("c-5",)
    assert await consumer_ids(broker) == ["c-1", "c-2", "c-4"]
    totals = broker.parts.base.limits.totals
    assert (totals["proxiedClientEntriesPerConnectionMax"], totals["proxiedClientEntriesMax"]) == (1, 1)
    # What goes makes room again.
    assert (await report(broker, two, consumer("c-5"), instance="two", gone=("c-4",))).refused == ()


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"[]",
        b'{"proxy": 1}',
        b'{"proxy": "\xff"}',
        b'{"x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        msgspec.json.encode({"proxy": "p", "instance": "i" * 129}),
        msgspec.json.encode(
            ProxiedClientsReport(proxy="p", instance="i", clients=(consumer("c", started_ms=1 << 60),))
        ),
        msgspec.json.encode({"proxy": "p", "instance": "i", "gone": ["c" * 1_025]}),
    ],
    ids=lambda wrong: repr(wrong[:32]),
)
async def test_what_is_no_report_is_refused(broker: ControlBroker, wrong: bytes) -> None:
    answer = await broker.ask(PrivateRequestCode.PROXIED_CLIENTS_REPORT, body=wrong)
    assert answer.code == 1
    assert "report of a proxy cannot be read" in (answer.remark or "")


async def test_tools_list_the_clients_of_all_proxies(broker: ControlBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await report(broker, await broker.connect(), consumer("c-1"), producer("p-1", "T"), is_first=True)
    await report(broker, await broker.connect(), consumer("c-2"), instance="two", is_first=True)
    found = await listed(broker)
    assert [(each.proxy, each.client.client_id) for each in found.clients] == [
        ("proxy-one", "p-1"),
        ("proxy-one", "c-1"),
        ("proxy-two", "c-2"),
    ]
    assert [each.client.client_id for each in (await listed(broker, "T")).clients] == ["p-1"]
    monkeypatch.setattr("thermocline.broker.tables.proxied_clients.LISTED_MAX", 1)
    found = await listed(broker, "G")
    assert (found.total, len(found.clients)) == (2, 1)


# -- questions ---------------------------------------------------------------------------------------------------------


class AskedProxy(Client):
    """A proxy that answers questions about its clients with a code, and its name as the remark."""

    def __init__(self, name: str, code: int = 0) -> None:
        super().__init__(lambda _, command: RemotingCommand.response(command, code, remark=name, body=b"{}"))


FIELDS = {"consumerGroup": "G", "clientId": "c-1", "jstackEnable": "true"}


async def test_a_question_goes_through_the_proxy(broker: ControlBroker) -> None:
    proxy = AskedProxy("asked")
    await report(broker, await broker.connect(proxy), consumer("c-1"), is_first=True)
    answer = await broker.ask(307, FIELDS)
    assert (answer.code, answer.remark, answer.body) == (0, "asked", b"{}")
    (asked,) = proxy.requests
    assert (asked.code, asked.ext_fields) == (307, FIELDS)
    sent = broker.put("T", body=b"again")
    message_id = encode_message_id(STORE_HOST, sent.physical_offset)
    answer = await broker.ask(309, {"consumerGroup": "G", "clientId": "c-1", "msgId": message_id, "topic": "T"})
    assert answer.code == 0
    assert decode_record(proxy.requests[1].body).body == b"again"
    answer = await broker.ask(307, FIELDS | {"clientId": "other"})
    assert (answer.code, answer.remark) == (1, "The Consumer <G> <other> not online")


async def test_a_client_that_changed_its_proxy_is_asked_there(broker: ControlBroker) -> None:
    former, present = AskedProxy("former", code=206), AskedProxy("present")
    connection = await broker.connect(present)
    await report(broker, connection, consumer("c-1", started_ms=1), is_first=True)
    await report(broker, await broker.connect(former), consumer("c-1", started_ms=2), instance="two", is_first=True)
    assert (await broker.ask(307, FIELDS)).remark == "present"
    assert len(former.requests) == 1
    await report(broker, connection, gone=("c-1",))
    answer = await broker.ask(307, FIELDS)
    assert (answer.code, answer.remark) == (1, "The Consumer <G> <c-1> not online")


async def test_a_proxy_that_does_not_answer_or_is_lost(broker: ControlBroker) -> None:
    await broker.ask(25, body=b"consumerCallTimeoutMills=100\n")
    await report(broker, await broker.connect(Client()), consumer("c-1"), is_first=True)
    answer = await broker.ask(307, FIELDS)
    assert answer.code == 207

    def leave(connection: Connection, command: RemotingCommand) -> None:
        connection.abort()

    await report(broker, await broker.connect(Client(leave)), consumer("c-1"), is_first=True)
    assert (await broker.ask(307, FIELDS)).code == 1
