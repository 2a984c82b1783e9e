"""A changed policy, a disabled user and a rotated key count at once, on a whole broker; allowed connections stay open.

Covers `auth/access_control.py`, `auth/administration.py`, `broker/access/request_guard.py`,
`broker/assembly/access.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.auth.broker_with_users import (
    ALICE,
    BOB,
    INNER,
    ROOT,
    BrokerWithUsers,
    auth_config,
    broker_with_users,
    entry,
    inner_credentials,
)
from tests.waiting import until
from thermocline.auth.actions import Action
from thermocline.auth.policies import Decision
from thermocline.remoting.bodies.auth import UserInfo
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.json_dialect import loads_as
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode

NO_PERMISSION, SUCCESS = ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS
SEND = {
    "a": "P",
    "b": "TopicA",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "",
    "j": "0",
    "k": "false",
    "m": "false",
}
PULL = {
    "consumerGroup": "GroupA",
    "topic": "TopicA",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "6",
    "commitOffset": "0",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
    "suspendTimeoutMillis": "15000",
}


def pop_fields() -> dict[str, str]:
    """Of a POP for one message, now."""
    return {
        "consumerGroup": "GroupA",
        "topic": "TopicA",
        "queueId": "-1",
        "maxMsgNums": "1",
        "invisibleTime": "60000",
        "pollTime": "0",
        "bornTime": str(wall_clock_ms()),
        "initMode": "0",
        "exp": "*",
        "expType": "TAG",
    }


MAY_SEND, MAY_READ = entry("Topic:TopicA", Action.PUB), entry("Topic:TopicA", Action.SUB)
MAY_CONSUME = (MAY_READ, entry("Group:GroupA", Action.SUB))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerWithUsers]:
    async with broker_with_users(tmp_path) as running:
        yield running


async def send(broker: BrokerWithUsers, user: Credentials) -> RemotingCommand:
    return await broker.ask(RequestCode.SEND_MESSAGE_V2, user=user, fields=dict(SEND), body=b"body")


async def make_topic(broker: BrokerWithUsers) -> None:
    await broker.process._parts.tables.topics.ensure("TopicA", queue_count=1)


async def test_a_policy_counts_for_the_next_request(broker: BrokerWithUsers) -> None:
    await make_topic(broker)
    await broker.add_user(ALICE)
    assert (await send(broker, ALICE)).remark == (
        "User:alice has no permission to access Topic:TopicA from 127.0.0.1, no matched policies."
    )
    await broker.set_policy(ALICE, MAY_SEND)
    assert (await send(broker, ALICE)).code == SUCCESS
    await broker.set_policy(ALICE, MAY_SEND, entry("Topic:TopicA", Action.PUB, decision=Decision.DENY))
    assert (await send(broker, ALICE)).remark == (
        "User:alice has no permission to access Topic:TopicA from 127.0.0.1, the decision is deny."
    )
    await broker.set_policy(ALICE, entry("Topic:Topic*", Action.ALL, sources=["10.0.0.0/8"]))
    assert (await send(broker, ALICE)).code == NO_PERMISSION
    await broker.set_policy(ALICE, entry("Topic:Topic*", Action.ALL, sources=["10.0.0.0/8", "127.0.0.1"]))
    assert (await send(broker, ALICE)).code == SUCCESS


async def test_a_key_and_a_user_count_for_the_next_request(broker: BrokerWithUsers) -> None:
    await make_topic(broker)
    await broker.add_user(BOB, MAY_SEND)
    assert (await send(broker, BOB)).code == SUCCESS
    await broker.store.update_user("bob", "a-new-key", None, None)
    assert (await send(broker, BOB)).remark == "check signature failed."
    new = Credentials(access_key="bob", secret_key="a-new-key")
    assert (await send(broker, new)).code == SUCCESS
    await broker.disable(BOB)
    assert (await send(broker, new)).remark == "User:bob is disabled."
    assert (await send(broker, BOB)).remark == "check signature failed."
    await broker.store.delete_user("bob")
    assert (await send(broker, new)).remark == "check signature failed."


async def test_a_stranger_is_not_told_which_users_exist(broker: BrokerWithUsers) -> None:
    stranger = Credentials(access_key="no-such-user", secret_key="key")
    wrong = Credentials(access_key="root", secret_key="not-the-key")
    one, other = await send(broker, stranger), await send(broker, wrong)
    assert (one.code, one.remark) == (other.code, other.remark) == (NO_PERMISSION, "check signature failed.")


@pytest.mark.parametrize("change", ["policy", "key", "status", "user"])
async def test_a_waiting_pull_ends_when_it_is_no_longer_allowed(broker: BrokerWithUsers, change: str) -> None:
    await make_topic(broker)
    for user in (ALICE, BOB):
        await broker.add_user(user, *MAY_CONSUME)
    of_alice, of_bob = await broker.connect(), await broker.connect()
    pulls = []
    for user, connection in ((ALICE, of_alice), (BOB, of_bob)):
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, ext_fields=dict(PULL))
        user.sign(command)
        pulls.append(connection.start_call(command, timeout_ms=60_000))
    access = broker.process._parts.access
    assert access is not None
    await until(lambda: len(access.guard._reads) == 2, what="both pulls wait")
    if change == "policy":
        await broker.set_policy(ALICE, MAY_READ)
    elif change == "key":
        await broker.store.update_user("alice", "a-new-key", None, None)
    elif change == "status":
        await broker.disable(ALICE)
    else:
        await broker.store.delete_user("alice")
    await of_alice.wait_closed()
    assert pulls[0].exception() is not None
    assert not of_bob.is_closed
    message = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext_fields=dict(SEND), body=b"x")
    ROOT.sign(message)
    assert (await of_bob.call(message, timeout_ms=60_000)).code == SUCCESS
    assert (await pulls[1]).code == SUCCESS


async def test_a_white_list_lets_the_unsigned_in_where_no_right_is_needed(tmp_path: Path) -> None:
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    config = auth_config(authentication_whitelist=f"{int(code)}, 10", authorization_whitelist=str(int(code)))
    async with broker_with_users(tmp_path, auth=config) as broker:
        assert (await broker.ask(code)).code == SUCCESS
        # a code on the first list alone: a client that signs nothing is no user, and has no right
        unsigned = await broker.ask(RequestCode.SEND_MESSAGE, fields={"topic": "TopicA", "AccessKey": "root"})
        assert unsigned.code == NO_PERMISSION
        assert unsigned.remark == "Authorization failed. Please verify your access rights and try again."


async def test_passwords_are_for_super_users_alone(broker: BrokerWithUsers) -> None:
    await broker.add_user(ALICE, entry("Cluster:*", Action.GET, Action.UPDATE))
    as_root = await broker.ask(RequestCode.AUTH_GET_USER, user=ROOT, fields={"username": "alice"})
    as_alice = await broker.ask(RequestCode.AUTH_GET_USER, user=ALICE, fields={"username": "alice"})
    assert UserInfo.decode(as_root.body).password == ALICE.secret_key
    assert UserInfo.decode(as_alice.body).password is None
    listed = loads_as((await broker.ask(RequestCode.AUTH_LIST_USER, user=ALICE)).body, list[UserInfo])
    assert [(one.username, one.password) for one in listed] == [("alice", None), ("root", None)]


@pytest.mark.parametrize("code", [RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER])
async def test_super_users_are_made_by_super_users_alone(broker: BrokerWithUsers, code: RequestCode) -> None:
    await broker.add_user(ALICE, entry("Cluster:*", Action.UPDATE))
    body = UserInfo(password="key", user_type="Super").encode()
    refused = await broker.ask(code, user=ALICE, fields={"username": "alice"}, body=body)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "The super user can only be" in (refused.remark or "")
    for change in (RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_DELETE_USER):
        answer = await broker.ask(change, user=ALICE, fields={"username": "root"}, body=UserInfo().encode())
        assert answer.code == NO_PERMISSION
    assert broker.store.now.users["root"].password == ROOT.secret_key


async def test_access_control_cannot_be_switched_off_over_the_wire(broker: BrokerWithUsers) -> None:
    for change in ("authenticationEnabled=false", "authorizationWhitelist=25", "initAuthenticationUser={}"):
        answer = await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, user=ROOT, body=change.encode())
        assert (answer.code, answer.remark) == (NO_PERMISSION, "Can not update config in black list.")
    shown = bytes((await broker.ask(RequestCode.GET_BROKER_CONFIG, user=ROOT)).body).decode()
    assert ROOT.secret_key not in shown
    assert "initAuthenticationUser=***" in shown


async def test_accesses_are_in_the_audit_log_on_request(tmp_path: Path) -> None:
    config = auth_config(inner_credentials=inner_credentials(INNER))
    async with broker_with_users(tmp_path, auth=config) as broker:
        await make_topic(broker)
        await broker.add_user(ALICE, MAY_SEND)
        assert (await send(broker, ALICE)).code == SUCCESS
        on = await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, user=ROOT, body=b"auditLogAccesses=true")
        assert on.code == SUCCESS
        assert (await send(broker, ALICE)).code == SUCCESS
        assert (await send(broker, BOB)).code == NO_PERMISSION
    lines = [json.loads(line) for line in broker.audit_text().splitlines()]
    about_sends = [line for line in lines if line["request"] == "SEND_MESSAGE_V2"]
    assert [(line["event"], line["user"]) for line in about_sends] == [("accessed", "alice"), ("denied", "bob")]
    assert about_sends[0]["action"] == "Pub"
    assert about_sends[0]["resource"] == "Topic:TopicA"
    assert about_sends[0]["entry"] == "Custom: Allow Pub on Topic:TopicA"
    assert about_sends[1]["reason"] == "User:bob is not found."
    assert any(line["event"] == "changed" and line["request"] == "UPDATE_BROKER_CONFIG" for line in lines)
