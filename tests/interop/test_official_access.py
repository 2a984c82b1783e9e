"""Decisions, needed rights and signatures beside those of RocketMQ's own `auth` module, whose classes run in a JVM."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.official_access import OfficialAccess, official_access
from thermocline.auth.actions import Action, parse_action
from thermocline.auth.authorization import decide, denial_text
from thermocline.auth.policies import Acl, Decision, Policy, PolicyEntry, PolicyType
from thermocline.auth.resources import parse_resource
from thermocline.auth.users import User, UserType, subject_of
from thermocline.remoting.request_signature import SigningKey, signed_content
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("official-access")]

SEED = 19
REQUESTS_OF_A_SET = 10
NAMES = ("order", "orders", "ordersEU", "o", "pay", "payments", "*", "a*b", "", "%DLQ%order", "x:y")
TYPES = ("Topic", "Group", "Cluster", "Namespace", "topic", "GROUP", "Any")
SOURCES = (
    "10.0.0.1",
    "10.0.0.0/8",
    "10.0.0.0/30",
    "0.0.0.0/0",
    "192.168.1.7",
    "::1",
    "fe80::/10",
    "::/0",
    "2001:db8::5",
)
CLIENTS = ("10.0.0.1", "10.0.0.9", "192.168.1.7", "172.16.0.1", "2001:db8::5", "fe80::3")
ASKED = (Action.PUB, Action.SUB, Action.CREATE, Action.UPDATE, Action.DELETE, Action.GET, Action.LIST, Action.ANY)
GRANTED = (*ASKED[:-1], Action.ALL)


@pytest.fixture(scope="module")
def official(official_software: OfficialSoftware, new_module_folder: Callable[[str], Path]) -> Iterator[OfficialAccess]:
    with official_access(official_software, new_module_folder("official-access")) as running:
        yield running


class PolicyAuthor:
    """Writes random policies and requests that often meet one another."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def resource(self, *, of_entry: bool) -> str:
        chance = self.random.random()
        if of_entry and chance < 0.1:
            return "*"
        name = self.random.choice(NAMES[:-5] if self.random.random() < 0.8 else NAMES)
        if not of_entry:
            return f"{self.random.choice(TYPES[:6])}:{name}"
        kind = self.random.choice(TYPES)
        if chance < 0.25:
            return f"{kind}:*"
        return f"{kind}:{name[: self.random.randint(0, len(name))]}*" if chance < 0.6 else f"{kind}:{name}"

    def actions(self, among: tuple[Action, ...]) -> list[str]:
        return [action.title for action in self.random.sample(among, self.random.choice((1, 1, 2, 3)))]

    def entries(self) -> list[dict[str, Any]]:
        return [
            {
                "resource": self.resource(of_entry=True),
                "actions": self.actions(GRANTED),
                "sourceIps": self.random.sample(SOURCES, self.random.choice((0, 0, 1, 2))),
                "decision": self.random.choice(("Allow", "Deny", "allow")),
            }
            for _ in range(self.random.randint(1, 8))
        ]

    def question(self) -> dict[str, Any]:
        kinds = self.random.choice((["Custom"], ["Default"], ["Custom", "Default"], ["Default", "Custom"], []))
        policies = [{"policyType": kind, "entries": self.entries()} for kind in kinds]
        return {
            "kind": "decide",
            "username": "alice",
            "userType": self.random.choice(("Normal",) * 19 + ("Super",)),
            "acl": {"subject": "User:alice", "policies": policies} if policies else None,
            "requests": [
                {
                    "resource": self.resource(of_entry=False),
                    "actions": self.actions(ASKED),
                    "source": self.random.choice(CLIENTS),
                }
                for _ in range(REQUESTS_OF_A_SET)
            ],
        }


def acl_of(question: dict[str, Any]) -> Acl | None:
    if question["acl"] is None:
        return None
    policies = []
    for policy in question["acl"]["policies"]:
        entries = []
        for entry in policy["entries"]:
            resource = parse_resource(entry["resource"])
            assert resource is not None
            entries.append(
                PolicyEntry(
                    resource=resource,
                    actions=actions_of(entry["actions"]),
                    sources=tuple(entry["sourceIps"]),
                    decision=Decision[entry["decision"].upper()],
                )
            )
        policies.append(Policy(type=PolicyType[policy["policyType"].upper()], entries=tuple(entries)))
    return Acl(subject=question["acl"]["subject"], policies=tuple(policies))


def actions_of(names: list[str]) -> tuple[Action, ...]:
    found = [parse_action(name) for name in names]
    return tuple(action for action in found if action is not None)


def ours(question: dict[str, Any]) -> list[str]:
    """Our answers, in the form of the official ones."""
    user = User(username=question["username"], password="secret", type=UserType[question["userType"].upper()])
    acl = acl_of(question)
    answers = []
    for request in question["requests"]:
        resource = parse_resource(request["resource"])
        assert resource is not None
        verdict = decide(
            user,
            acl,
            resource=resource,
            actions=actions_of(request["actions"]),
            source_address=request["source"],
        )
        answers.append(
            ""
            if verdict.is_allowed
            else denial_text(
                subject=subject_of(user.username),
                resource=resource,
                source_address=request["source"],
                reason=verdict.reason,
            )
        )
    return answers


def test_decisions_and_texts_are_the_official_ones(official: OfficialAccess, case_count: Callable[..., int]) -> None:
    author = PolicyAuthor(SEED)
    count = case_count(quick=3_000, soak=100_000) // REQUESTS_OF_A_SET
    questions = [author.question() for _ in range(count)]
    allowed = denied = 0
    for question, answers in zip(questions, official.ask(questions), strict=True):
        mine = ours(question)
        assert mine == answers, question
        allowed += mine.count("")
        denied += sum(answer.endswith("the decision is deny.") for answer in mine)
    assert allowed > count
    assert denied > count


@pytest.mark.parametrize("decisions", [("Allow", "Deny"), ("Deny", "Allow")])
def test_deny_wins_among_entries_of_one_resource(official: OfficialAccess, decisions: tuple[str, str]) -> None:
    """Releases before 5.5 allowed here, against the comment in their source."""
    entries = [{"resource": "Topic:order", "actions": ["Pub"], "sourceIps": [], "decision": each} for each in decisions]
    question = {
        "kind": "decide",
        "username": "alice",
        "userType": "Normal",
        "acl": {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": entries}]},
        "requests": [{"resource": "Topic:order", "actions": ["Pub"], "source": "10.0.0.1"}],
    }
    refusal = "User:alice has no permission to access Topic:order from 10.0.0.1, the decision is deny."
    assert official.ask([question]) == [ours(question)] == [[refusal]]


def test_signed_bytes_and_signatures_are_the_official_ones(
    official: OfficialAccess, case_count: Callable[..., int]
) -> None:
    dice = random.Random(SEED)
    alphabet = "abcXYZ09_-%é漢\U0001f600\uffee"

    def word(most: int) -> str:
        return "".join(dice.choices(alphabet, k=dice.randint(0, most)))

    questions = []
    for _ in range(case_count(quick=500, soak=20_000)):
        fields = {word(6): word(12) for _ in range(dice.randint(0, 12))}
        fields |= {"AccessKey": word(8), "Signature": word(8)}
        if dice.random() < 0.3:
            fields["SecurityToken"] = word(20)
        if dice.random() < 0.3:
            fields["_UNIQUE_KEY_QUERY"] = "true"
        questions.append(
            {
                "kind": "content",
                "code": 310,
                "version": dice.choice((0, 400, 401, 402, 513)),
                "fields": fields,
                "body": base64.b64encode(dice.randbytes(dice.randint(0, 40))).decode(),
                "secret": word(dice.choice((12, 30, 80))) or "k",
            }
        )
    for question, answer in zip(questions, official.ask(questions), strict=True):
        content = signed_content(question["fields"], base64.b64decode(question["body"]), version=question["version"])
        assert content == base64.b64decode(answer["content"]), question
        key = SigningKey(question["secret"].encode())
        assert key.signature(content).decode() == answer["signature"]
        assert key.has_signed(content, answer["signature"])
        assert not key.has_signed(content, answer["signature"][:-1])
