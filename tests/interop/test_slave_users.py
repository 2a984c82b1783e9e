"""Users and policies of an official master, as our slave takes them over."""

from __future__ import annotations

import pytest

from tests.interop.fixtures_access_pair import ROOT, ROOT_KEY, AccessPair, run
from thermocline.auth.auth_store import AuthStore
from thermocline.auth.users import UserStatus
from thermocline.broker.replicas.master_metadata import MasterMetadata
from thermocline.broker.replicas.table_followers import UsersFollower
from thermocline.remoting.clients.client import RemotingClient
from thermocline.remoting.request_signature import Credentials

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("mqadmin-users")]

NAME, KEY = "followed", "the-key-of-followed"


async def saved() -> None:
    """There is no file."""


async def test_our_slave_has_the_users_and_policies_of_an_official_master(access_pair: AccessPair) -> None:
    official = access_pair.official
    run(official, f"createUser -b {{broker}} -u {NAME} -p {KEY} -t Normal")
    run(official, f"updateUser -b {{broker}} -u {NAME} -s disable")
    run(official, f"createAcl -b {{broker}} -s User:{NAME} -r Topic:orders* -a Pub,Sub -i 10.0.0.0/8 -d Allow")
    try:
        store = AuthStore(saved)
        follower = UsersFollower(store)
        async with RemotingClient(credentials=Credentials(access_key=ROOT, secret_key=ROOT_KEY)) as client:
            master = MasterMetadata(client, official.broker_address)
            assert await follower.follow(master)
            user = store.now.users[NAME]
            assert (user.password, user.status) == (KEY, UserStatus.DISABLE)
            assert store.now.users[ROOT].is_super
            (policy,) = store.now.acls[f"User:{NAME}"].policies
            (entry,) = policy.entries
            assert (entry.resource.key, entry.sources) == ("Topic:orders*", ("10.0.0.0/8",))
            assert not await follower.follow(master)
    finally:  # other tests compare what the two brokers of the pair have
        run(official, f"deleteUser -b {{broker}} -u {NAME}")
