"""`user copy` and `acl copy`: names that the first broker does not have.

Covers `cli/access/holders.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import Mock, call

import pytest

from thermocline.cli.common.application import Application
from thermocline.cli.main import run
from thermocline.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Of a cluster in which each broker has the user alice, with a policy."""
    admin = Mock()
    alice = UserInfo(username="alice", password="key", user_type="Normal", user_status="enable")
    admin.users.return_value = {"broker-a": [alice]}
    admin.acls.return_value = {"broker-a": [AclInfo(subject="User:alice", policies=[])]}

    @contextmanager
    def open_admin(app: Application) -> Iterator[Mock]:
        yield admin

    monkeypatch.setattr(Application, "open_admin", open_admin)
    return admin


@pytest.mark.parametrize(("command", "what"), [("user", "user bob"), ("acl", "policy of User:bob")])
def test_a_name_that_is_not_there_is_an_error_and_nothing_is_copied(
    admin: Mock, capsys: pytest.CaptureFixture[str], command: str, what: str
) -> None:
    at = ["--from", "broker-a", "--to", "broker-b"]
    assert run([command, "copy", "alice", "bob", *at]) == 1
    assert f"broker-a has no {what}; nothing is copied" in capsys.readouterr().err
    assert {name for name, _, _ in admin.method_calls} <= {"users", "acls"}
    assert run([command, "copy", "alice", *at]) == 0
    assert "alice to broker-b" in capsys.readouterr().out


def test_a_disabled_user_is_disabled_from_its_first_moment(admin: Mock) -> None:
    """Its key may have leaked: a copy that ends half-way must not leave it enabled."""
    bob = UserInfo(username="bob", password="key", user_type="Normal", user_status="disable")
    admin.users.side_effect = lambda broker: {broker: [bob] if broker == "broker-a" else []}
    assert run(["user", "copy", "--from", "broker-a", "--to", "broker-b"]) == 0
    (made,) = [each for each in admin.method_calls if each[0] != "users"]
    assert made == call.create_user("bob", "key", user_type="Normal", user_status="disable", broker="broker-b")


def test_policies_are_copied_at_once(admin: Mock) -> None:
    """An allowed prefix must not count without the names that are denied."""
    entries = [
        PolicyEntryInfo(resource="Topic:orders*", actions=["Pub"], decision="Allow"),
        PolicyEntryInfo(resource="Topic:orders-secret", actions=["All"], decision="Deny"),
    ]
    alice = AclInfo(subject="User:alice", policies=[PolicyInfo(policy_type="Custom", entries=entries)])
    admin.acls.return_value = {"broker-a": [alice]}
    assert run(["acl", "copy", "--from", "broker-a", "--to", "broker-b"]) == 0
    (made,) = [each for each in admin.method_calls if each[0] != "acls"]
    assert made == call.copy_acl(alice, broker="broker-b")
