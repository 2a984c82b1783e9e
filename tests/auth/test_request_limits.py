"""Limits on what administrators make by requests: reached, refused with a sentence, and counted.

Covers `broker/processors/topic.py`, `broker/processors/group.py`, `auth/administration.py`, `namesrv/access.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.auth.broker_with_users import ROOT, BrokerWithUsers, broker_with_users, first_user
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

DONE, REFUSED, INVALID = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerWithUsers]:
    async with broker_with_users(tmp_path) as running:
        yield running


async def ask(broker: BrokerWithUsers, code: int, fields: dict[str, str], body: object = b"") -> RemotingCommand:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await broker.ask(code, user=ROOT, fields=fields, body=data)


async def limit(broker: BrokerWithUsers, **settings: int) -> None:
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    assert (await ask(broker, RequestCode.UPDATE_BROKER_CONFIG, {}, text.encode())).code == DONE


def totals(broker: BrokerWithUsers) -> dict[str, int]:
    return dict(broker.process._parts.base.limits.totals)


def topic(name: str) -> dict[str, str]:
    return {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


async def test_topics(broker: BrokerWithUsers) -> None:
    topics = broker.process._parts.tables.topics
    present = len(topics)
    await limit(broker, createTopicsMax=present + 2)
    make = RequestCode.UPDATE_AND_CREATE_TOPIC
    assert (await ask(broker, make, topic("One"))).code == DONE
    two = {"topicConfigList": [{"topicName": name, "readQueueNums": 1, "writeQueueNums": 1} for name in ("Two", "Six")]}
    refused = await ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, two)
    sentence = f"there are {present + 1} topics, and createTopicsMax allows {present + 2}"
    assert (refused.code, refused.remark) == (REFUSED, sentence)
    assert "Two" not in topics, "of a list that does not fit none is made"
    assert (await ask(broker, make, topic("Two"))).code == DONE
    assert (await ask(broker, make, topic("Six"))).code == REFUSED
    assert (await ask(broker, make, topic("One"))).code == DONE, "one that is there can be changed"
    assert totals(broker) == {"createTopicsMax": 2}
    mapping = {"topic": "Static", "bname": "broker-a", "totalQueues": 1, "scope": "__global__", "epoch": 1}
    refused = await ask(
        broker, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, {**topic("Static"), "force": "true"}, mapping
    )
    assert refused.code == REFUSED
    assert "Static" not in topics
    assert (await ask(broker, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "One"})).code == DONE
    assert (await ask(broker, make, topic("Six"))).code == DONE


async def test_groups(broker: BrokerWithUsers) -> None:
    groups = broker.process._parts.tables.groups
    present = len(groups)
    await limit(broker, createGroupsMax=present + 1)
    make, make_all = (
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    )
    both = {"groupConfigList": [{"groupName": "One"}, {"groupName": "Two"}]}
    refused = await ask(broker, make_all, {}, both)
    sentence = f"there are {present} groups, and createGroupsMax allows {present + 1}"
    assert (refused.code, refused.remark) == (REFUSED, sentence)
    assert (await ask(broker, make, {}, {"groupName": "One"})).code == DONE
    assert (await ask(broker, make, {}, {"groupName": "Two"})).code == REFUSED
    assert (await ask(broker, make, {}, {"groupName": "One", "retryQueueNums": 2})).code == DONE
    assert "Two" not in groups
    assert totals(broker) == {"createGroupsMax": 2}

    async def forbid(topic: str, *, readable: bool) -> int:
        fields = {"group": "One", "topic": topic, "readable": "true" if readable else "false"}
        return (await ask(broker, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, fields)).code

    await limit(broker, createGroupsMax=1)
    assert [await forbid(topic, readable=False) for topic in ("A", "A", "B")] == [DONE, DONE, REFUSED]
    assert [await forbid("A", readable=True), await forbid("B", readable=False)] == [DONE, DONE]


def entries(user: str, count: int, *, first: int = 0, sources: int = 1) -> dict[str, object]:
    addresses = [f"10.0.{number // 256}.{number % 256}" for number in range(sources)]
    return {
        "subject": f"User:{user}",
        "policies": [
            {
                "policyType": "Custom",
                "entries": [
                    {"resource": f"Topic:T{number}", "actions": ["Pub"], "sourceIps": addresses, "decision": "Allow"}
                    for number in range(first, first + count)
                ],
            }
        ],
    }


async def test_users_and_entries(broker: BrokerWithUsers) -> None:
    await limit(broker, usersMax=3, aclEntriesPerUserMax=4, aclEntriesMax=6)
    make, give = RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_CREATE_ACL
    for user in ("alice", "bob"):
        assert (await ask(broker, make, {"username": user}, {"password": "key"})).code == DONE
    refused = await ask(broker, make, {"username": "carol"}, {"password": "key"})
    assert (refused.code, refused.remark) == (REFUSED, "there are 3 users, and usersMax allows 3")
    assert (await ask(broker, RequestCode.AUTH_UPDATE_USER, {"username": "bob"}, {"password": "other"})).code == DONE

    async def give_entries(user: str, count: int, *, first: int = 0, sources: int = 1) -> RemotingCommand:
        body = entries(user, count, first=first, sources=sources)
        return await ask(broker, give, {"subject": f"User:{user}"}, body)

    assert (await give_entries("alice", 4)).code == DONE
    assert (await give_entries("alice", 4)).code == DONE, "the same ones again"
    refused = await give_entries("alice", 1, first=9)
    sentence = "there are 4 entries in the policies of User:alice, and aclEntriesPerUserMax allows 4"
    assert (refused.code, refused.remark) == (REFUSED, sentence)
    assert (await give_entries("bob", 1, sources=200)).code == REFUSED, "many addresses count as several entries"
    refused = await give_entries("bob", 3)
    assert (refused.code, refused.remark) == (
        REFUSED,
        "there are 4 entries in all policies, and aclEntriesMax allows 6",
    )
    assert (await give_entries("bob", 2)).code == DONE
    assert totals(broker) == {"usersMax": 1, "aclEntriesPerUserMax": 2, "aclEntriesMax": 1}


async def test_texts_that_are_too_long(broker: BrokerWithUsers) -> None:
    long, make = "x" * 1_025, RequestCode.AUTH_CREATE_USER
    await ask(broker, make, {"username": "alice"}, {"password": "key"})
    for fields, body in (({"username": long}, {"password": "key"}), ({"username": "bob"}, {"password": long})):
        refused = await ask(broker, make, fields, body)
        assert refused.code == INVALID
        assert long not in (refused.remark or "")
    assert (await ask(broker, RequestCode.AUTH_UPDATE_USER, {"username": "alice"}, {"password": long})).code == INVALID
    body = entries("alice", 1)
    body["policies"][0]["entries"][0]["resource"] = f"Topic:{long}"  # type: ignore[index]
    assert (await ask(broker, RequestCode.AUTH_CREATE_ACL, {"subject": "User:alice"}, body)).code == INVALID


async def test_a_start_makes_its_users_beyond_the_limit(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path, users_max=0) as broker:
        assert "root" in broker.store.now.users
        refused = await ask(broker, RequestCode.AUTH_CREATE_USER, {"username": "bob"}, {"password": "key"})
        assert refused.code == REFUSED


async def test_users_of_a_name_server() -> None:
    config = NameServerConfig(
        listen_host="127.0.0.1", listen_port=0, authentication_enabled=True, init_user=first_user(ROOT), users_max=1
    )
    server = NameServer(config)
    connection = await ClientConnection.open(f"127.0.0.1:{await server.start()}")
    command = RemotingCommand.request(
        RequestCode.AUTH_CREATE_USER, ext_fields={"username": "bob"}, body=b'{"password":"key"}'
    )
    ROOT.sign(command)
    answer = await connection.call(command, timeout_ms=20_000)
    assert (answer.code, answer.remark) == (REFUSED, "there are 1 users, and usersMax allows 1")
    assert dict(server.limits.totals) == {"usersMax": 1}
    connection.close()
    await server.close()
