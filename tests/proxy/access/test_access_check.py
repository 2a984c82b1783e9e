"""Decisions on requests of a proxy's clients, which are a broker's; their lines in the audit log.

Covers `proxy/access/account.py`, `proxy/access/proof.py`.
"""

from __future__ import annotations

import json
from itertools import product

import pytest

from tests.auth.broker_with_users import auth_config, entry
from tests.proxy.access.fake_users import ADDRESS, PUB_ORDERS, STALE_MS_MAX, Checked, proof_of
from thermocline.auth.access_control import AccessControl
from thermocline.auth.actions import Action
from thermocline.auth.audit import AuditLog
from thermocline.auth.auth_store import AuthSnapshot, AuthStore
from thermocline.auth.policies import Decision, PolicyEntry
from thermocline.auth.resources import group_resource, topic_resource
from thermocline.auth.rights import Right
from thermocline.auth.users import UserStatus, UserType, subject_of
from thermocline.proxy.access import Proof, RequestName, access_check
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import PermissionDeniedError, UnavailableError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import Credentials, signed_content

SEND = RequestName("apache.rocketmq.v2.SendMessageRequest", "SendMessage")
ORDERS = Right(topic_resource("orders"), (Action.PUB,))
OTHER = Right(topic_resource("other"), (Action.PUB,))


async def refusal(
    checked: Checked, proof: Proof, right: Right = ORDERS, *, request: RequestName = SEND, address: str = ADDRESS
) -> str:
    """The answer to a request; "" when it is allowed."""
    try:
        await checked.check.check(request, proof, [right], address)
    except PermissionDeniedError as error:
        return error.message
    return ""


async def test_what_a_policy_allows_passes_and_the_rest_is_refused_in_rocketmqs_words() -> None:
    checked = Checked()
    checked.users.put("carol", PUB_ORDERS)
    permit = await checked.check.check(SEND, proof_of("carol"), [ORDERS], ADDRESS)
    assert permit.username == "carol"
    assert checked.lines == []
    text = "User:carol has no permission to access Topic:other from 10.0.0.7, no matched policies."
    assert await refusal(checked, proof_of("carol"), OTHER) == text
    line = json.loads(checked.lines[-1])
    assert line == {
        "time": "1970-01-01T00:00:00.000Z",
        "event": "denied",
        "user": "carol",
        "address": ADDRESS,
        "request": "SendMessage",
        "action": "Pub",
        "resource": "Topic:other",
        "reason": "no matched policies.",
    }
    assert checked.check.audit.denials == {"authentication": 0, "authorization": 1}


WRONG = {
    "wrong secret": (proof_of("carol", "another"), "check signature failed.", "check signature failed."),
    "unknown user": (proof_of("stranger"), "check signature failed.", "User:stranger is not found."),
    "disabled": (proof_of("dave"), "User:dave is disabled.", "User:dave is disabled."),
    "no name": (Proof(content=b"x", signature="x"), "username cannot be null.", "username cannot be null."),
    "no signature": (Proof(username="carol", content=b"x"), "check signature failed.", "check signature failed."),
    "no proof": (Proof(problem="datetime is null"), "datetime is null", "datetime is null"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_who_does_not_prove_to_be_a_user_is_refused(name: str) -> None:
    proof, answer, reason = WRONG[name]
    checked = Checked()
    checked.users.put("carol", PUB_ORDERS)
    checked.users.put("dave", PUB_ORDERS, status=UserStatus.DISABLE)
    assert await refusal(checked, proof) == answer
    line = json.loads(checked.lines[-1])
    assert (line["reason"], line["unproved"], line.get("user")) == (reason, True, proof.username or None)
    assert checked.check.audit.denials == {"authentication": 1, "authorization": 0}


async def test_a_super_user_needs_no_policy_and_without_authorization_none_does() -> None:
    checked = Checked()
    checked.users.put("root", kind=UserType.SUPER)
    assert await refusal(checked, proof_of("root")) == ""
    unguarded = Checked(authorizes=False)
    unguarded.users.put("carol")
    assert await refusal(unguarded, proof_of("carol")) == ""
    assert await refusal(unguarded, proof_of("carol", "another")) == "check signature failed."


async def test_white_lists_name_request_messages() -> None:
    listed = frozenset({SEND.listed})
    unsigned = Checked(unsigned=listed)
    unsigned.users.put("carol", PUB_ORDERS)
    assert "verify your access rights" in await refusal(
        unsigned, Proof(problem="none")
    )  # it needs a right all the same
    assert "verify your access rights" in await refusal(unsigned, proof_of("carol", "another"))
    assert await refusal(unsigned, proof_of("carol")) == ""
    await unsigned.check.check(SEND, Proof(problem="none"), [], ADDRESS)
    both = Checked(unsigned=listed, free=listed)
    assert await refusal(both, Proof(problem="none")) == ""
    another = RequestName("apache.rocketmq.v2.RecallMessageRequest", "RecallMessage")
    assert await refusal(both, Proof(problem="none"), request=another) == "none"
    free = Checked(free=listed)
    free.users.put("carol")
    assert await refusal(free, proof_of("carol")) == ""
    assert await refusal(free, Proof(problem="none")) == "none"


async def test_a_change_counts_within_the_time_that_is_stated() -> None:
    checked = Checked()
    checked.users.put("carol", PUB_ORDERS)
    assert await refusal(checked, proof_of("carol")) == ""
    checked.users.put("carol", entry("Topic:orders", Action.PUB, decision=Decision.DENY))
    checked.users.now_ms = STALE_MS_MAX
    assert "the decision is deny" in await refusal(checked, proof_of("carol"))


async def test_a_broker_that_cannot_be_asked_never_means_that_something_is_allowed() -> None:
    checked = Checked(free=frozenset({SEND.listed}))
    checked.users.put("root", kind=UserType.SUPER)
    checked.users.error = UnavailableError("away")
    with pytest.raises(UnavailableError):
        await checked.check.check(SEND, proof_of("root"), [ORDERS], ADDRESS)


CHANGED = {
    "policy": lambda checked: checked.users.put("carol"),
    "key": lambda checked: checked.users.put("carol", PUB_ORDERS, password="another"),
    "status": lambda checked: checked.users.put("carol", PUB_ORDERS, status=UserStatus.DISABLE),
    "deleted": lambda checked: checked.users.accounts.clear(),
    "no broker": lambda checked: setattr(checked.users, "error", UnavailableError("away")),
}


@pytest.mark.parametrize("name", CHANGED)
async def test_what_waited_is_checked_once_more(name: str) -> None:
    checked = Checked()
    checked.users.put("carol", PUB_ORDERS)
    permit = await checked.check.check(SEND, proof_of("carol"), [ORDERS], ADDRESS)
    checked.users.now_ms = STALE_MS_MAX
    await checked.check.check_again(permit)
    CHANGED[name](checked)
    checked.users.now_ms = 2 * STALE_MS_MAX
    with pytest.raises(UnavailableError if name == "no broker" else PermissionDeniedError):
        await checked.check.check_again(permit)
    assert len(checked.lines) == (0 if name == "no broker" else 1)


async def test_accesses_are_written_where_that_is_wanted() -> None:
    checked = Checked()
    checked.users.put("carol", PUB_ORDERS)
    checked.wants_accesses = True
    permit = await checked.check.check(SEND, proof_of("carol"), [ORDERS], ADDRESS)
    await checked.check.check_again(permit)
    (line,) = map(json.loads, checked.lines)
    assert (line["event"], line["user"], line["resource"]) == ("accessed", "carol", "Topic:orders")
    assert line["entry"] == "Custom: Allow Pub on Topic:orders"


async def test_decisions_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_check, "DECISIONS_MAX", 5)
    checked = Checked()
    checked.users.put("carol", PUB_ORDERS)
    for number in range(20):
        await refusal(checked, proof_of("carol"), Right(topic_resource(f"T{number}"), (Action.PUB,)))
    await refusal(checked, proof_of("carol"), Right(topic_resource("T" * 2_000), (Action.PUB,)))
    assert 0 < len(checked.check._verdicts) <= 5


ENTRIES: tuple[PolicyEntry, ...] = tuple(
    entry(resource, action, sources=sources, decision=decision)
    for resource, action, sources, decision in product(
        ("*", "Topic:*", "Topic:ord*", "Topic:orders", "Group:*", "Group:g"),
        (Action.PUB, Action.SUB, Action.ALL),
        ((), ("10.0.0.0/24",), ("10.0.0.8",)),
        (Decision.ALLOW, Decision.DENY),
    )
)
RIGHTS = (
    ORDERS,
    OTHER,
    Right(topic_resource("orders"), (Action.SUB,)),
    Right(topic_resource("orders"), (Action.PUB, Action.SUB)),
    Right(topic_resource("%RETRY%g"), (Action.PUB,)),
    Right(topic_resource(""), (Action.PUB,)),
    Right(group_resource("g"), (Action.SUB,)),
)


async def test_decisions_are_those_of_a_broker() -> None:
    """Every pair of entries is asked by every right from two addresses, at a broker's access control and here."""

    async def save() -> None: ...

    store = AuthStore(save)
    audit = AuditLog(None, clock=lambda: 0, is_access_wanted=lambda: False)
    control = AccessControl(store, auth_config(), audit=audit, cluster_name="DefaultCluster")
    checked = Checked(users_max=10_000)
    denied = 0
    for number, pair in enumerate(zip(ENTRIES, (*ENTRIES[7:], *ENTRIES[:7]), strict=True)):
        name = f"user{number}"
        checked.users.put(name, *pair)
        account = checked.users.accounts[name]
        assert account.acl is not None
        store._apply(AuthSnapshot(users={name: account.user}, acls={subject_of(name): account.acl}))
        for right, address in product(RIGHTS, ("10.0.0.7", "10.1.0.8")):
            verdict = control.explain(name, right, address)
            found = await refusal(checked, proof_of(name), right, address=address)
            assert (found == "") is verdict.is_allowed, (pair, right, address)
            assert verdict.is_allowed or found.endswith(verdict.reason)
            denied += not verdict.is_allowed
    assert 100 < denied < len(ENTRIES) * len(RIGHTS) * 2 - 100


def test_a_signature_of_a_remoting_client_is_a_proof_of_the_same_form() -> None:
    """The remoting protocol signs with the same keys: base64 of the same hash."""
    command = RemotingCommand.request(RequestCode.HEART_BEAT, ext_fields={"a": "b"}, body=b"body")
    Credentials(access_key="carol", secret_key="secret").sign(command)
    fields = command.ext_fields or {}
    assert fields["Signature"] == proof_of("carol", content=signed_content(fields, b"body")).signature
