"""Quotas of users: reached by one user while another one is served, on the message path and in ordinary code.

Covers `auth/quota_buckets.py`, `broker/settings/broker_settings.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.auth.broker_with_users import ALICE, BOB, ROOT, BrokerWithUsers, auth_config, broker_with_users, entry
from tests.auth.test_effects import PULL, SEND, pop_fields
from thermocline.auth.actions import Action
from thermocline.auth.auth_config import AuthConfig
from thermocline.broker.settings import BrokerConfig
from thermocline.broker.settings.broker_settings import BrokerSettings
from thermocline.broker.settings.setting_sources import load_settings
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidParameterError, SettingError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.settings import PropertySource
from thermocline.store.config.store_config import StoreConfig
from thermocline.tiered.budgets.tier_config import TierConfig

Read = Callable[[BrokerWithUsers, Credentials], Awaitable[RemotingCommand]]

DONE, BUSY = ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY
BUSY_TEXT = "[QUOTA]system busy, the quota of user {} is used up"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerWithUsers]:
    async with broker_with_users(tmp_path) as running:
        await running.process._parts.tables.topics.ensure("TopicA", queue_count=1)
        rights = (entry("Topic:TopicA", Action.PUB, Action.SUB), entry("Group:GroupA", Action.SUB))
        for user in (ALICE, BOB):
            await running.add_user(user, *rights)
        yield running


async def set_quotas(broker: BrokerWithUsers, text: str) -> RemotingCommand:
    """As `thermocline quota` and the SDK do it."""
    return await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, user=ROOT, body=f"quotas={text}\n".encode())


async def send(broker: BrokerWithUsers, user: Credentials, *, is_common: bool = True) -> RemotingCommand:
    fields = dict(SEND) if is_common else {**SEND, "i": "DELAY\x013\x02"}
    return await broker.ask(RequestCode.SEND_MESSAGE_V2, user=user, fields=fields, body=b"x" * 1_000)


async def pull(broker: BrokerWithUsers, user: Credentials) -> RemotingCommand:
    fields = {**PULL, "sysFlag": "4", "suspendTimeoutMillis": "0"}
    return await broker.ask(RequestCode.PULL_MESSAGE, user=user, fields=fields)


async def pop(broker: BrokerWithUsers, user: Credentials) -> RemotingCommand:
    return await broker.ask(RequestCode.POP_MESSAGE, user=user, fields=pop_fields())


@pytest.mark.parametrize("is_common", [True, False], ids=["message path", "ordinary code"])
async def test_a_limited_user_is_busy_and_another_is_served(broker: BrokerWithUsers, is_common: bool) -> None:
    await send(broker, ROOT)
    # A body takes a thousand seconds' worth: the next send would pass after them.
    assert (await set_quotas(broker, "user alice sendBytes=1")).code == DONE
    assert (await send(broker, ALICE, is_common=is_common)).code == DONE
    busy = await send(broker, ALICE, is_common=is_common)
    assert (busy.code, busy.remark) == (BUSY, BUSY_TEXT.format("alice"))
    for _ in range(5):
        assert (await send(broker, BOB, is_common=is_common)).code == DONE
    assert broker.process._parts.tables.quotas.refusals == {("user", "alice"): 1}
    assert (await set_quotas(broker, "")).code == DONE
    assert (await send(broker, ALICE, is_common=is_common)).code == DONE


async def test_a_reply_counts_as_a_send(broker: BrokerWithUsers) -> None:
    """It is stored in the topic that it names."""
    await set_quotas(broker, "user alice sendBytes=1")

    async def reply() -> RemotingCommand:
        return await broker.ask(RequestCode.SEND_REPLY_MESSAGE_V2, user=ALICE, fields=dict(SEND), body=b"x" * 1_000)

    assert "REPLY_TO_CLIENT" in ((await reply()).remark or "")  # it was counted before
    for busy in (await reply(), await send(broker, ALICE)):
        assert (busy.code, busy.remark) == (BUSY, BUSY_TEXT.format("alice"))


async def peek(broker: BrokerWithUsers, user: Credentials) -> RemotingCommand:
    return await broker.ask(RequestCode.PEEK_MESSAGE, user=user, fields=pop_fields())


@pytest.mark.parametrize("read", [pull, pop, peek], ids=["pull", "pop", "peek"])
async def test_reads_of_a_limited_user_are_busy(broker: BrokerWithUsers, read: Read) -> None:
    for _ in range(4):
        await send(broker, ROOT)
    await set_quotas(broker, "user * readBytes=1")
    for user in (ALICE, BOB):
        assert (await read(broker, user)).code == DONE
        busy = await read(broker, user)
        assert (busy.code, busy.remark) == (BUSY, BUSY_TEXT.format("*"))
    await set_quotas(broker, "user alice readBytes=1")
    assert (await read(broker, BOB)).code in (DONE, ResponseCode.PULL_OFFSET_MOVED, ResponseCode.POLLING_TIMEOUT)


async def test_a_claimed_name_takes_nothing_from_a_user(tmp_path: Path) -> None:
    """With sends on `authenticationWhitelist`, a client may name any user; only a signature makes it one."""
    auth = auth_config(authorization_enabled=False, authentication_whitelist="310")
    async with broker_with_users(tmp_path, auth=auth) as broker:
        await broker.process._parts.tables.topics.ensure("TopicA", queue_count=1)
        await broker.add_user(ALICE)
        await set_quotas(broker, "user alice sendBytes=1")
        forged = Credentials(access_key="alice", secret_key="not-the-key")
        for _ in range(3):
            assert (await send(broker, forged)).code == DONE
        assert (await send(broker, ALICE)).code == DONE
        assert (await send(broker, ALICE)).code == BUSY


REFUSAL = "a quota of a user needs authenticationEnabled"


def test_a_broker_without_authentication_refuses_a_quota_of_a_user(tmp_path: Path) -> None:
    source = PropertySource(
        place="broker.conf", values={"storePathRootDir": str(tmp_path), "quotas": "user alice sendBytes=1"}
    )
    with pytest.raises(SettingError, match=REFUSAL):
        load_settings([source])
    with pytest.raises(InvalidParameterError, match=REFUSAL):
        BrokerSettings(
            broker=BrokerConfig(quotas="user * sendBytes=1"),
            store=StoreConfig(root_path=str(tmp_path)),
            tier=TierConfig(),
            clock=lambda: 0,
        )


async def test_a_change_to_a_quota_of_a_user_is_refused_without_authentication(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path, auth=AuthConfig()) as broker:
        answer = await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"quotas=user alice sendBytes=1\n")
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert (answer.remark or "").startswith(REFUSAL)
        answer = await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"quotas=topic TopicA sendBytes=1\n")
        assert answer.code == DONE
