"""Every request code that a broker, a NameServer and a controller serve, on raw frames: without a user, with a wrong
signature, without the right, and with it.

Covers `auth/rights.py`, `auth/rights_table.py`, `broker/access/request_guard.py`, `namesrv/access.py`,
`remoting/bodies/auth.py`, `remoting/headers/auth.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.auth.broker_with_users import ALICE, ROOT, BrokerWithUsers, auth_config, broker_with_users, first_user
from thermocline.auth.access_control import CHANGES
from thermocline.auth.policies import Decision, Policy, PolicyEntry, PolicyType
from thermocline.auth.resources import Resource, ResourcePattern
from thermocline.auth.rights import Right
from thermocline.auth.rights_table import RULES
from thermocline.auth.users import subject_of
from thermocline.controller.controller_config import ControllerConfig
from thermocline.controller.controller_server import ControllerServer
from thermocline.localstack.loopback_port import free_port
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting import bodies
from thermocline.remoting.bodies.hand_off import HandOffBody, TopicTarget
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode

CLUSTER = "DefaultCluster"
WRONG = Credentials(access_key="alice", secret_key="not-the-key-of-alice")
TIMEOUT_MS = 20_000
UNKNOWN_CODE = 77_777

FIELDS = {
    **dict.fromkeys(("topic", "b", "originTopic"), "TopicA"),
    **dict.fromkeys(("consumerGroup", "group", "groupName", "srcGroup", "destGroup", "compareGroup"), "GroupA"),
    **dict.fromkeys(("clusterName", "brokerClusterName"), CLUSTER),
    "filterGroups": "GroupB,GroupC",
    "username": "carol",
    "subject": "User:carol",
}
"""Names of resources; what else a request needs is missing, so that one which passes the guard is refused behind it."""

QUEUE = bodies.MessageQueue(topic="TopicA", broker_name="broker-a", queue_id=0)
LOCKS = bodies.LockBatchRequestBody(client_id="c", consumer_group="GroupA", mq_set=[QUEUE]).encode()
SUBSCRIPTION = bodies.SubscriptionData(topic="TopicA")
BODIES: Mapping[int, bytes] = {
    RequestCode.HEART_BEAT: bodies.HeartbeatData(
        client_id="c",
        consumer_data_set=[bodies.ConsumerData(group_name="GroupA", subscription_data_set=[SUBSCRIPTION])],
    ).encode(),
    RequestCode.CHECK_CLIENT_CONFIG: bodies.CheckClientRequestBody(
        group="GroupA", subscription_data=SUBSCRIPTION
    ).encode(),
    RequestCode.LOCK_BATCH_MQ: LOCKS,
    RequestCode.UNLOCK_BATCH_MQ: LOCKS,
    RequestCode.QUERY_ASSIGNMENT: bodies.QueryAssignmentRequestBody(consumer_group="GroupA", topic="TopicA").encode(),
    RequestCode.SET_MESSAGE_REQUEST_MODE: bodies.SetMessageRequestModeRequestBody(
        consumer_group="GroupA", topic="TopicA"
    ).encode(),
    RequestCode.BATCH_ACK_MESSAGE: bodies.BatchAckMessageRequestBody(
        acks=[bodies.BatchAck(consumer_group="GroupA", topic="TopicA")]
    ).encode(),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: bodies.TopicConfigListBody(
        topic_config_list=[bodies.TopicConfig(topic_name="TopicA"), bodies.TopicConfig(topic_name="TopicB")]
    ).encode(),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: bodies.SubscriptionGroupConfig(group_name="GroupA").encode(),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: bodies.SubscriptionGroupListBody(
        group_config_list=[bodies.SubscriptionGroupConfig(group_name="GroupA")]
    ).encode(),
    PrivateRequestCode.HAND_OFF_PREPARE: HandOffBody(
        group="GroupA", receipt_id="r", topics=[TopicTarget(topic="TopicA")]
    ).encode(),
}


def request_of(code: int, user: Credentials | None) -> RemotingCommand:
    command = RemotingCommand.request(code, ext_fields=FIELDS, body=BODIES.get(code, b""))
    if user is not None:
        user.sign(command)
    return command


def rights_of(code: int) -> tuple[Right, ...]:
    return RULES[code].rights(request_of(code, None), CLUSTER)


def entries_for(rights: tuple[Right, ...]) -> tuple[PolicyEntry, ...]:
    """Exactly these rights, the first of each that several would do for."""
    entries = []
    for right in rights:
        resource = right.resource
        if not resource.name:  # every one of its type
            resource = Resource(resource.type, None, ResourcePattern.ANY)
        entries.append(PolicyEntry(resource=resource, actions=right.actions[:1], decision=Decision.ALLOW))
    return tuple(entries)


async def test_a_broker_serves_no_code_without_a_rule_and_asks_for_each_right(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker:
        await broker.add_user(ALICE)

        async def ask(code: int, user: Credentials | None) -> RemotingCommand:
            # A connection that has read what is not allowed any more is closed: each request has its own.
            connection = await broker.connect()
            answer = await connection.call(request_of(code, user), timeout_ms=TIMEOUT_MS)
            connection.close()
            return answer

        served = broker.process.dispatcher.codes
        assert served <= RULES.keys()
        for code in sorted(served):
            await check_code(code, ask, broker)
        await check_unknown_code(ask)
    check_audit(broker, served)


async def check_server(server: NameServer | ControllerServer) -> None:
    """Start a server with the user ROOT, check each code that it serves, and close it; it then has ALICE, too."""
    connection = await ClientConnection.open(f"127.0.0.1:{await server.start()}")
    access = server._access
    assert access is not None
    await access.store.create_user(ALICE.access_key, ALICE.secret_key, None, None)

    async def ask(code: int, user: Credentials | None) -> RemotingCommand:
        return await connection.call(request_of(code, user), timeout_ms=TIMEOUT_MS)

    assert server.dispatcher.codes <= RULES.keys()
    for code in sorted(server.dispatcher.codes):
        await check_code(code, ask, access)
    await check_unknown_code(ask)
    connection.close()
    await server.close()


async def test_a_name_server_serves_no_code_without_a_rule_and_asks_for_each_right(tmp_path: Path) -> None:
    config = NameServerConfig(
        listen_host="127.0.0.1",
        listen_port=0,
        authentication_enabled=True,
        authorization_enabled=True,
        init_user=first_user(ROOT),
        auth_file_path=str(tmp_path / "auth.json"),
        audit_path=str(tmp_path / "audit.log"),
    )
    server = NameServer(config)
    await check_server(server)
    assert (tmp_path / "auth.json").stat().st_mode & 0o077 == 0
    assert (tmp_path / "audit.log").stat().st_mode & 0o077 == 0
    again = NameServer(config)
    await again.start()
    assert again._access is not None
    assert again._access.store.now.users.keys() == {"root", "alice"}
    await again.close()


async def test_a_controller_serves_no_code_without_a_rule_and_asks_for_each_right(tmp_path: Path) -> None:
    server = ControllerServer(controller_config(tmp_path))
    await check_server(server)


async def test_the_table_has_no_rule_that_none_serves(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker:
        at_brokers = broker.process.dispatcher.codes
    config = NameServerConfig(authentication_enabled=True, init_user=first_user(ROOT))
    at_controllers = ControllerServer(controller_config(tmp_path)).dispatcher.codes
    assert at_brokers | NameServer(config).dispatcher.codes | at_controllers == RULES.keys()


def controller_config(directory: Path) -> ControllerConfig:
    return ControllerConfig(
        peers_text=f"n0-127.0.0.1:{free_port()}",
        node="n0",
        store_path=str(directory / "controller"),
        authentication_enabled=True,
        authorization_enabled=True,
        init_user=first_user(ROOT),
    )


async def check_code(code: int, ask: Any, side: Any) -> None:
    """The four kinds of requests; `side` has the store of users."""
    store = side.store
    subject = subject_of(ALICE.access_key)
    no_user, wrong = await ask(code, None), await ask(code, WRONG)
    assert (no_user.code, no_user.remark) == (ResponseCode.NO_PERMISSION, "username cannot be null."), code
    assert (wrong.code, wrong.remark) == (ResponseCode.NO_PERMISSION, "check signature failed."), code
    rights = rights_of(code)
    if subject in store.now.acls:
        await store.delete_acl(subject, None, None)
    for missing in range(len(rights)):  # all rights but one
        given = entries_for(rights[:missing] + rights[missing + 1 :])
        if given:
            await store.update_acl(subject, (Policy(type=PolicyType.CUSTOM, entries=given),))
        refused = await ask(code, ALICE)
        needed = rights[missing]
        assert refused.code == ResponseCode.NO_PERMISSION, (code, needed)
        assert refused.remark == (
            f"User:alice has no permission to access {needed.resource.key} from 127.0.0.1, no matched policies."
        )
        if given:
            await store.delete_acl(subject, None, None)
    if rights:
        await store.update_acl(subject, (Policy(type=PolicyType.CUSTOM, entries=entries_for(rights)),))
    allowed = await ask(code, ALICE)
    assert "has no permission to access" not in (allowed.remark or ""), (code, allowed.remark)
    assert allowed.remark not in ("username cannot be null.", "check signature failed."), code


async def check_unknown_code(ask: Any) -> None:
    """A client without a user does not learn which codes are served."""
    assert (await ask(UNKNOWN_CODE, None)).remark == "username cannot be null."
    assert (await ask(UNKNOWN_CODE, ROOT)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def check_audit(broker: BrokerWithUsers, served: frozenset[int]) -> None:
    """Every denial and every change is there, and no secret."""
    text = broker.audit_text()
    assert text.count('"event":"denied"') >= 2 * len(served)
    for code in served & CHANGES & set(RequestCode):
        assert f'"event":"changed","user":"alice","address":"127.0.0.1","request":"{RequestCode(code).name}"' in text
    assert ALICE.secret_key not in text
    assert WRONG.secret_key not in text


async def test_a_start_makes_the_first_user_once(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as broker:
        await broker.store.update_user("root", "another-key", None, None)
    async with broker_with_users(tmp_path, auth=auth_config()) as broker:
        assert broker.store.now.users["root"].password == "another-key"
        assert (await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO, user=ROOT)).code == ResponseCode.NO_PERMISSION
