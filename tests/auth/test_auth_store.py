"""Users and policies are durable, change as RocketMQ changes them, and what cannot be written is taken back.

Covers `auth/auth_store.py`, `auth/info.py`, `auth/policies.py`, `auth/users.py`, `auth/validation.py`.
"""

from __future__ import annotations

import pytest

from tests.auth.broker_with_users import entry
from thermocline.auth.actions import Action
from thermocline.auth.auth_store import AuthStore
from thermocline.auth.plain_acl import Account
from thermocline.auth.policies import Decision, Policy, PolicyType
from thermocline.auth.resources import parse_resource
from thermocline.auth.users import UserStatus, UserType
from thermocline.remoting.errors import CorruptDataError, PermissionDeniedError, UnavailableError


class File:
    """The file of a store."""

    def __init__(self) -> None:
        self.store = AuthStore(self.save)
        self.data = b""
        self.is_full = False

    async def save(self) -> None:
        if self.is_full:
            raise UnavailableError("no room")
        self.data = self.store.encode()

    def reopened(self) -> AuthStore:
        store = AuthStore(self.save)
        store.load(self.data)
        return store


def custom(*entries: object) -> tuple[Policy, ...]:
    return (Policy(type=PolicyType.CUSTOM, entries=tuple(entries)),)  # type: ignore[arg-type]


async def test_what_is_stored_comes_back() -> None:
    file = File()
    await file.store.create_user("alice", "key", None, None)
    await file.store.create_user("root", "key of root", UserType.SUPER, UserStatus.DISABLE)
    await file.store.update_acl("user:alice", custom(entry("Topic:a*", Action.PUB, Action.SUB, sources=["10.0.0.0/8"])))
    await file.store.update_acl(
        "User:alice", (Policy(type=PolicyType.DEFAULT, entries=(entry("*", Action.ALL, decision=Decision.DENY),)),)
    )
    assert file.reopened().now == file.store.now
    assert file.store.now.acls.keys() == {"User:alice"}


async def test_a_change_replaces_the_entry_of_the_same_resource() -> None:
    file = File()
    await file.store.create_user("alice", "key", None, None)
    await file.store.update_acl("User:alice", custom(entry("Topic:a", Action.PUB), entry("Topic:b", Action.PUB)))
    await file.store.update_acl("User:alice", custom(entry("Topic:b", Action.SUB), entry("Topic:c", Action.GET)))
    acl = file.store.acl_of("User:alice")
    assert acl is not None
    assert [str(one) for one in acl.policies[0].entries] == [
        "Allow Pub on Topic:a",
        "Allow Sub on Topic:b",
        "Allow Get on Topic:c",
    ]
    for resource in ("Topic:a", "Topic:nothing", "Topic:b"):
        await file.store.delete_acl("User:alice", None, parse_resource(resource))
    await file.store.delete_acl("User:alice", None, parse_resource("Topic:c"))
    assert file.store.acl_of("User:alice") is None


async def test_a_user_goes_with_its_policies() -> None:
    file = File()
    await file.store.create_user("alice", "key", None, None)
    await file.store.update_acl("User:alice", custom(entry("*", Action.ALL)))
    await file.store.delete_user("alice")
    await file.store.delete_user("alice")
    assert (file.store.now.users, file.store.now.acls) == ({}, {})
    assert file.reopened().now.users == {}


async def test_what_cannot_be_written_is_taken_back() -> None:
    file = File()
    await file.store.create_user("alice", "key", None, None)
    before = file.store.now
    file.is_full = True
    with pytest.raises(UnavailableError):
        await file.store.update_user("alice", "other", None, None)
    with pytest.raises(UnavailableError):
        await file.store.create_user("bob", "key", None, None)
    with pytest.raises(UnavailableError):
        await file.store.delete_user("alice")
    assert file.store.now == before == file.reopened().now


async def test_a_user_of_an_older_file_is_never_there_without_its_policies() -> None:
    """A start that ends between the two would leave it so for ever: the next one passes over users that exist."""
    file = File()
    saved: list[dict[str, bool]] = []

    async def save() -> None:
        state = file.store.now
        saved.append({user.username: user.subject in state.acls for user in state.users.values()})

    file.store = AuthStore(save)
    accounts = [
        Account(texts={"accessKey": name, "secretKey": "12345678"}, lists={"topicPerms": ["orders=PUB"]})
        for name in ("alice", "bob")
    ]
    await file.store.create_accounts(accounts)
    assert saved == [{"alice": True}, {"alice": True, "bob": True}]


async def test_what_is_not_valid_is_refused_in_the_official_words() -> None:
    file = File()
    await file.store.create_user("alice", "key", None, None)
    cases = {
        "The user is existed": file.store.create_user("alice", "key", None, None),
        "username can not be blank": file.store.create_user(" ", "key", None, None),
        "password can not be blank": file.store.create_user("bob", " ", None, None),
        "The user is not exist": file.store.update_user("bob", "key", None, None),
        "The subject of User:bob is not exist.": file.store.update_acl("User:bob", custom(entry("*", Action.ALL))),
        "The policies is empty.": file.store.update_acl("User:alice", ()),
        "The actions can not be Any.": file.store.update_acl("User:alice", custom(entry("*", Action.ANY))),
        "The source ip is invalid.": file.store.update_acl(
            "User:alice", custom(entry("*", Action.ALL, sources=["10.0.0.0/33"]))
        ),
        "The acl is not exist.": file.store.delete_acl("User:alice", None, None),
        "The subject is not exist.": file.store.delete_acl("User:bob", None, None),
    }
    for text, change in cases.items():
        with pytest.raises(PermissionDeniedError) as refused:
            await change
        assert str(refused.value) == text


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b'{"users":[{"username":"a"}]}',
        b'{"users":[],"acls":[{"subject":"User:a","policies":[{"policyType":"Custom","entries":[{"resource":"?"}]}]}]}',
        b'{"users":[],"acls":[{"subject":"Robot:a","policies":[]}]}',
    ],
)
def test_a_damaged_file_ends_the_start(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        File().store.load(data)


async def test_no_secret_is_shown() -> None:
    file = File()
    await file.store.create_user("alice", "a-secret-key", None, None)
    assert "a-secret-key" not in repr(file.store.now)
    assert b"a-secret-key" in file.data
