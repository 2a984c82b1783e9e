"""Accounts of RocketMQ's older access control become users and policies, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auth.broker_with_users import auth_config, broker_with_users
from thermocline.auth.plain_acl import read_accounts
from thermocline.remoting.errors import SettingError

OFFICIAL = """
# Licensed to the Apache Software Foundation (ASF) under one or more
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB

  - accessKey: "rocketmq2"
    secretKey: '87654321'
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""


def shown(text: str) -> list[tuple[str, bool, list[str]]]:
    return [
        (
            account.texts["accessKey"],
            account.is_admin,
            [f"{policy.type.title}: {entry}" for policy in account.policies() for entry in policy.entries],
        )
        for account in read_accounts(text, "plain_acl.yml")
    ]


def test_the_official_example() -> None:
    assert shown(OFFICIAL) == [
        (
            "RocketMQ",
            False,
            [
                "Custom: Deny All on Topic:topicA",
                "Custom: Allow Pub,Sub on Topic:topicB",
                "Custom: Allow Sub on Topic:topicC",
                "Custom: Deny All on Group:groupA",
                "Custom: Allow Pub,Sub on Group:groupB",
                "Default: Deny All on Topic:*",
                "Default: Allow Sub on Group:*",
            ],
        ),
        ("rocketmq2", True, []),
    ]


def test_lists_without_indentation() -> None:
    text = "accounts:\n- accessKey: a\n  secretKey: b\n  topicPerms:\n  - t=PUB\n- accessKey: c\n  secretKey: d\n"
    assert [(name, entries) for name, _, entries in shown(text)] == [("a", ["Custom: Allow Pub on Topic:t"]), ("c", [])]


@pytest.mark.parametrize(
    "text",
    [
        "accounts: [a, b]\n",
        "accounts:\n  - accessKey: &anchor a\n",
        "accounts:\n  - accessKey: a\n    secretKey: s3cret\n    noSuchKey: s3cret\n",
        "accounts:\n  - secretKey: s3cret\n",
        "accounts:\n\t- accessKey: a\n",
        "others:\n  - accessKey: a\n",
    ],
)
def test_what_cannot_be_read_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(SettingError) as refused:
        read_accounts(text, "plain_acl.yml")
    assert "s3cret" not in str(refused.value)


def test_an_unknown_permission_is_refused() -> None:
    (account,) = read_accounts("accounts:\n- accessKey: a\n  secretKey: b\n  defaultTopicPerm: PERHAPS\n", "f")
    with pytest.raises(SettingError):
        account.policies()


async def test_a_start_makes_them_unless_they_exist(tmp_path: Path) -> None:
    folder = tmp_path / "conf"
    (folder / "acl").mkdir(parents=True)
    (folder / "plain_acl.yml").write_text(OFFICIAL)
    (folder / "acl" / "more.yml").write_text("accounts:\n- accessKey: more\n  secretKey: key-of-more\n")
    config = auth_config(migrate_v1=True, v1_file=str(folder / "plain_acl.yml"))
    async with broker_with_users(tmp_path, auth=config) as broker:
        assert broker.store.now.users.keys() == {"root", "RocketMQ", "rocketmq2", "more"}
        assert broker.store.now.users["rocketmq2"].is_super
        assert broker.store.now.acls.keys() == {"User:RocketMQ"}
        await broker.store.update_user("more", "changed", None, None)
    async with broker_with_users(tmp_path, auth=config) as broker:
        assert broker.store.now.users["more"].password == "changed"
