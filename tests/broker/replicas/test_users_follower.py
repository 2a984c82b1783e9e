"""Users and policies of a master with access control, as its slave takes them over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.auth.broker_with_users import ALICE, BOB, INNER, auth_config, broker_with_users, entry, inner_credentials
from thermocline.auth.actions import Action
from thermocline.auth.auth_store import AuthStore
from thermocline.broker.replicas.master_metadata import MasterMetadata
from thermocline.broker.replicas.table_followers import UsersFollower
from thermocline.remoting.clients.client import RemotingClient
from thermocline.remoting.errors import InvalidRequestError, ResponseError
from thermocline.remoting.request_signature import Credentials


async def saved() -> None:
    """There is no file."""


@asynccontextmanager
async def as_user(address: str, credentials: Credentials | None) -> AsyncIterator[MasterMetadata]:
    async with RemotingClient(credentials=credentials) as client:
        yield MasterMetadata(client, address)


async def test_a_slave_has_the_users_and_policies_of_its_master(tmp_path: Path) -> None:
    auth = auth_config(inner_credentials=inner_credentials(INNER))
    async with broker_with_users(tmp_path, auth=auth) as master:
        await master.add_user(ALICE, entry("Topic:orders*", Action.PUB, sources=["10.0.0.0/8"]))
        await master.add_user(BOB)
        store = AuthStore(saved)
        follower = UsersFollower(store)
        async with as_user(master.address, INNER) as inner:
            assert await follower.follow(inner)
            assert store.now == master.store.now
            assert store.now.users["alice"].password == ALICE.secret_key
            version = store.version
            assert not await follower.follow(inner)
            assert store.version == version  # no decision is forgotten for nothing
            await master.store.delete_user("alice")
            assert await follower.follow(inner)
            assert "alice" not in store.now.users
            assert store.now == master.store.now


async def test_users_are_kept_when_the_master_does_not_show_them_whole(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path) as master:
        await master.add_user(ALICE, entry("Cluster:*", Action.GET, Action.LIST))
        store = AuthStore(saved)
        await store.create_user("carol", "the-key-of-carol", None, None)
        before = store.now
        follower = UsersFollower(store)
        async with as_user(master.address, ALICE) as normal:
            with pytest.raises(InvalidRequestError, match="super user"):
                await follower.follow(normal)
        async with as_user(master.address, None) as unsigned:
            with pytest.raises(ResponseError):
                await follower.follow(unsigned)
        assert store.now is before
