"""Users that give name and key themselves: who may read, and what the audit log has of it. Covers `auth/readers.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.auth.broker_with_users import ALICE, BOB, ROOT, BrokerWithUsers, auth_config, broker_with_users, entry
from thermocline.auth.actions import Action
from thermocline.auth.readers import is_reader
from thermocline.auth.resources import cluster_resource
from thermocline.auth.rights import Right

NEEDED = Right(cluster_resource("DefaultCluster"), (Action.GET,))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerWithUsers]:
    async with broker_with_users(tmp_path, auth=auth_config(audit_accesses=True)) as running:
        await running.add_user(ALICE, entry("Cluster:DefaultCluster", Action.GET, sources=["10.0.0.0/8"]))
        await running.add_user(BOB)
        yield running


def may(
    broker: BrokerWithUsers, username: str, key: str, *, address: str = "10.0.0.9", authorizes: bool = True
) -> bool:
    access = broker.process._parts.access
    assert access is not None
    return is_reader(
        access.control,
        username=username,
        key=key,
        right=NEEDED,
        address=address,
        request="GET /metrics",
        authorizes=authorizes,
    )


async def test_a_right_a_key_and_an_address_are_needed(broker: BrokerWithUsers) -> None:
    assert may(broker, ROOT.access_key, ROOT.secret_key)
    assert may(broker, ALICE.access_key, ALICE.secret_key)
    assert not may(broker, ALICE.access_key, ALICE.secret_key, address="127.0.0.1")
    assert not may(broker, BOB.access_key, BOB.secret_key)
    assert may(broker, BOB.access_key, BOB.secret_key, authorizes=False)
    for username, key in (("", ""), (ROOT.access_key, ""), (ROOT.access_key, "not-the-key"), ("stranger", "key")):
        assert not may(broker, username, key)
        assert not may(broker, username, key, authorizes=False)
    await broker.disable(ALICE)
    assert not may(broker, ALICE.access_key, ALICE.secret_key)


async def test_a_changed_key_counts_at_once(broker: BrokerWithUsers) -> None:
    await broker.store.update_user(ALICE.access_key, "a-new-key", None, None)
    assert may(broker, ALICE.access_key, "a-new-key")
    assert not may(broker, ALICE.access_key, ALICE.secret_key)


async def test_the_audit_log_has_denials_and_accesses(tmp_path: Path) -> None:
    async with broker_with_users(tmp_path, auth=auth_config(audit_accesses=True)) as broker:
        assert may(broker, ROOT.access_key, ROOT.secret_key)
        assert not may(broker, ROOT.access_key, "not-the-key")
        assert not may(broker, "", "")
    lines = [line for line in broker.audit_text().splitlines() if '"request":"GET /metrics"' in line]
    assert ['"event":"accessed"' in line for line in lines] == [True, False, False]
    assert '"user":"root","unproved":true' in lines[1]
    assert "the name or the key is wrong" in lines[1]
    assert "not-the-key" not in "".join(lines)
