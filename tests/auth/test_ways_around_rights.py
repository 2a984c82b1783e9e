"""Ways to reach by another request what a user has no right to: each is refused, or leads nowhere.

Covers `auth/rights.py`, `auth/rights_table.py`, `broker/processors/messages/reply.py`,
`broker/access/request_guard.py`, `namesrv/access.py`, `broker/due/transaction_service.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from pathlib import Path

import pytest

from tests.auth.broker_with_users import ALICE, BOB, ROOT, auth_config, broker_with_users, entry, first_user
from tests.auth.test_effects import PULL, SEND, pop_fields
from tests.waiting import until
from thermocline.auth.actions import Action
from thermocline.auth.policies import Policy, PolicyType
from thermocline.auth.rights_table import RULES
from thermocline.broker.access import request_guard
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.bodies import HeartbeatData, ProducerData
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode

CLUSTER = "DefaultCluster"
NO_PERMISSION = ResponseCode.NO_PERMISSION
LONG_FIELDS = {"producerGroup": "P", "defaultTopic": "TBW102", "queueId": "0"}


def needed(code: RequestCode, **fields: str) -> list[str]:
    rights = RULES[code].rights(RemotingCommand.request(code, ext_fields=fields), CLUSTER)
    return [f"{right.actions[0].title} {right.resource.key}" for right in rights]


# -- replies -----------------------------------------------------------------------------------------------------------


async def test_a_reply_cannot_be_stored_in_a_topic_without_the_right_to_send_there(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker:
        await broker.process._parts.tables.topics.ensure("TopicA", queue_count=1)
        await broker.add_user(ALICE)

        async def reply(topic: str) -> list[RemotingCommand]:
            asked = (
                (RequestCode.SEND_REPLY_MESSAGE, {**LONG_FIELDS, "topic": topic}),
                (RequestCode.SEND_REPLY_MESSAGE_V2, {**SEND, "b": topic}),
            )
            return [await broker.ask(code, user=ALICE, fields=fields, body=b"x") for code, fields in asked]

        async def stored() -> int:
            asked = {"topic": "TopicA", "queueId": "0"}
            answer = await broker.ask(RequestCode.GET_MAX_OFFSET, user=ROOT, fields=asked)
            return int((answer.ext_fields or {})["offset"])

        for refused in await reply("TopicA"):
            assert refused.code == NO_PERMISSION
            assert "Topic:TopicA" in (refused.remark or "")
        assert await stored() == 0
        # What the broker says of a reply that names no requester: it has passed access control.
        for passed in await reply(f"{CLUSTER}_REPLY_TOPIC"):
            assert "REPLY_TO_CLIENT" in (passed.remark or "")
        await broker.set_policy(ALICE, entry("Topic:TopicA", Action.PUB))
        for passed in await reply("TopicA"):
            assert "REPLY_TO_CLIENT" in (passed.remark or "")
        assert await stored() == 2


# -- retry topics of POP -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", [RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE, RequestCode.NOTIFICATION, RequestCode.PULL_MESSAGE]
)
def test_a_retry_topic_is_read_with_the_right_to_its_own_group(code: RequestCode) -> None:
    """`%RETRY%orders_eu` is that of the group `orders_eu`, also for a user of the group `orders`."""
    rights = needed(code, consumerGroup="orders", topic="%RETRY%orders_eu")
    assert sorted(rights) == ["Sub Group:orders", "Sub Group:orders_eu"]


@pytest.mark.parametrize("code", [RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME])
@pytest.mark.parametrize(
    ("topic", "right"),
    [
        ("%RETRY%orders_eu", "Sub Topic:eu"),
        ("%RETRY%orders+eu", "Sub Topic:eu"),
        ("%RETRY%orders", "Sub Group:orders"),
        ("%RETRY%orders_%RETRY%other", "Sub Group:other"),
        ("%RETRY%other_eu", "Sub Group:other_eu"),
        ("eu", "Sub Topic:eu"),
    ],
)
def test_what_pop_delivered_again_is_acknowledged_with_the_rights_to_group_and_topic(
    code: RequestCode, topic: str, right: str
) -> None:
    rights = needed(code, consumerGroup="orders", topic=topic)
    assert rights == list(dict.fromkeys(["Sub Group:orders", right]))


async def test_a_group_does_not_pop_what_comes_back_to_another_one(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker:
        await broker.process._parts.tables.topics.ensure("%RETRY%GroupA_B", queue_count=1)
        await broker.add_user(ALICE, entry("Group:GroupA", Action.SUB), entry("Topic:TopicA", Action.SUB))
        sent = await broker.ask(
            RequestCode.SEND_MESSAGE_V2, user=ROOT, fields={**SEND, "b": "%RETRY%GroupA_B"}, body=b"of another group"
        )
        assert sent.code == ResponseCode.SUCCESS
        popped = await broker.ask(
            RequestCode.POP_MESSAGE, user=ALICE, fields={**pop_fields(), "topic": "%RETRY%GroupA_B"}
        )
        assert popped.code == NO_PERMISSION
        assert not popped.body


@pytest.mark.parametrize(
    ("code", "field"),
    [
        (RequestCode.SEND_MESSAGE, "topic"),
        (RequestCode.SEND_MESSAGE_V2, "b"),
        (RequestCode.SEND_BATCH_MESSAGE, "b"),
    ],
)
def test_a_send_to_a_retry_topic_needs_a_right_to_its_group_alone(code: RequestCode, field: str) -> None:
    command = RemotingCommand.request(code, ext_fields={field: "%RETRY%orders"})
    (right,) = RULES[code].rights(command, CLUSTER)
    assert (right.resource.key, right.actions) == ("Group:orders", (Action.PUB, Action.SUB))
    assert needed(code, **{field: "orders"}) == ["Pub Topic:orders"]


async def test_a_consumer_sends_to_the_retry_topic_of_its_own_group(tmp_path: Path) -> None:
    """As Java's does: a message of an ordered group that was tried often enough, else it is tried for ever."""
    async with broker_with_users(tmp_path) as broker:
        await broker.add_user(ALICE, entry("Group:GroupA", Action.SUB), entry("Topic:TopicA", Action.SUB))
        for group, code in (("GroupA", ResponseCode.SUCCESS), ("GroupB", NO_PERMISSION)):
            await broker.process._parts.tables.topics.ensure(f"%RETRY%{group}", queue_count=1)
            sent = await broker.ask(
                RequestCode.SEND_MESSAGE_V2, user=ALICE, fields={**SEND, "b": f"%RETRY%{group}"}, body=b"again"
            )
            assert sent.code == code, sent.remark


# -- producers' groups -------------------------------------------------------------------------------------------------


class Questions:
    """A producer that counts what it is asked, and says nothing."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def handle(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self.bodies.append(bytes(command.body))
        return None

    def connection_opened(self, connection: Connection) -> None: ...

    def connection_closed(self, connection: Connection) -> None: ...


async def test_half_messages_are_shown_to_producers_alone_that_may_send_to_their_topic(tmp_path: Path) -> None:
    auth = auth_config()
    async with broker_with_users(
        tmp_path, auth=auth, transaction_check_interval_ms=100, transaction_timeout_ms=1
    ) as broker:
        await broker.process._parts.tables.topics.ensure("TopicA", queue_count=1)
        await broker.add_user(ALICE, entry("Topic:TopicA", Action.PUB))
        await broker.add_user(BOB)
        heartbeat = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="P")]).encode()

        async def join(user: Credentials) -> Questions:
            questions = Questions()
            connection = await ClientConnection.open(broker.address, handler=questions)
            broker.connections.append(connection)
            joined = await broker.ask(RequestCode.HEART_BEAT, user=user, body=heartbeat, connection=connection)
            assert joined.code == ResponseCode.SUCCESS
            return questions

        of_bob, of_alice = await join(BOB), await join(ALICE)
        half = await broker.ask(
            RequestCode.SEND_MESSAGE_V2,
            user=ALICE,
            fields={**SEND, "f": "4", "i": "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01AC\x02"},
            body=b"a secret",
        )
        assert half.code == ResponseCode.SUCCESS
        await until(lambda: len(of_alice.bodies) >= 3, what="the producer was asked in each of three rounds")
        assert all(b"a secret" in body for body in of_alice.bodies)
        assert of_bob.bodies == []


# -- clusters ----------------------------------------------------------------------------------------------------------


async def test_the_right_to_one_cluster_is_none_to_a_broker_of_another(tmp_path: Path) -> None:
    server = NameServer(
        NameServerConfig(
            listen_host="127.0.0.1",
            listen_port=0,
            authentication_enabled=True,
            authorization_enabled=True,
            init_user=first_user(ROOT),
        )
    )
    connection = await ClientConnection.open(f"127.0.0.1:{await server.start()}")
    access = server._access
    assert access is not None
    await access.store.create_user(ALICE.access_key, ALICE.secret_key, None, None)
    given = Policy(type=PolicyType.CUSTOM, entries=(entry("Cluster:mine", Action.UPDATE, Action.GET),))
    await access.store.update_acl("User:alice", (given,))

    async def ask(code: RequestCode, user: Credentials, cluster: str, broker: str) -> RemotingCommand:
        fields = {
            "clusterName": cluster,
            "brokerName": broker,
            "brokerAddr": f"10.0.0.1:{len(broker)}",
            "brokerId": "0",
            "haServerAddr": "10.0.0.1:1",
        }
        command = RemotingCommand.request(code, ext_fields=fields)
        user.sign(command)
        return await connection.call(command, timeout_ms=20_000)

    register, leave = RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER
    for cluster, broker in (("mine", "near"), ("theirs", "distant")):
        assert (await ask(register, ROOT, cluster, broker)).code == ResponseCode.SUCCESS
    for code in (register, RequestCode.GET_BROKER_MEMBER_GROUP, leave):
        refused = await ask(code, ALICE, "mine", "distant")
        assert refused.code == NO_PERMISSION
        assert "Cluster:theirs" in (refused.remark or "")
        assert server.registry.cluster_of("distant") == "theirs"
        assert (await ask(code, ALICE, "mine", "near")).code == ResponseCode.SUCCESS
    assert server.registry.cluster_of("near") is None
    assert (await ask(register, ALICE, "mine", "new")).code == ResponseCode.SUCCESS
    connection.close()
    await server.close()


# -- reads that wait ---------------------------------------------------------------------------------------------------


def has_beyond(guard: request_guard.RequestGuard, count: int) -> bool:
    """Whether so many connections read more than is kept."""
    return len(guard._users_beyond) == count


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE], ids=["pull", "pop"])
async def test_a_read_beyond_those_that_are_kept_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: RequestCode
) -> None:
    monkeypatch.setattr(request_guard, "KEPT_MAX", 1)
    group, kept = entry("Group:GroupA", Action.SUB), entry("Topic:TopicA", Action.SUB)
    async with broker_with_users(tmp_path) as broker:
        for user in (ALICE, BOB):
            await broker.add_user(user, group, kept, entry("Topic:TopicB", Action.SUB))
        for topic in ("TopicA", "TopicB"):
            await broker.process._parts.tables.topics.ensure(topic, queue_count=1)
        access = broker.process._parts.access
        assert access is not None
        connections = []
        for count, user in enumerate((ALICE, BOB), start=1):
            connection = await broker.connect()
            connections.append(connection)
            for topic in ("TopicA", "TopicB"):
                waits = PULL if code == RequestCode.PULL_MESSAGE else {**pop_fields(), "pollTime": "15000"}
                command = RemotingCommand.request(code, ext_fields={**waits, "topic": topic})
                user.sign(command)
                connection.start_call(command, timeout_ms=60_000).add_done_callback(lambda done: done.exception())
            await until(partial(has_beyond, access.guard, count), what="the second read waits")
        await broker.set_policy(ALICE, group, kept)
        await connections[0].wait_closed()
        assert not connections[1].is_closed
