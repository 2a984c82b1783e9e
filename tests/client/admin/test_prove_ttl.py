"""`prove_ttl` against brokers that lie: what can be reached although it has expired is found, by whichever way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.shell import Shell
from thermocline.client import Message, Producer, ReceivedMessage
from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.testing import FakeBroker
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.records.message_id import encode_message_id

NEVER_MS = 1 << 50
CLEAN: dict[str, Any] = {
    "version": 7,
    "toldCutMs": 0,
    "sweptMs": 1,
    "sweepDueMs": 2,
    "named": [],
    "hidden": [],
    "hiddenCount": 0,
    "hiddenObjects": 0,
    "hiddenBytes": 0,
    "visibleObjects": 3,
    "visibleBytes": 100,
    "cachedBytes": 0,
}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.create_topic("orders", queue_nums=1)
        with Producer(group="p", namesrv=broker.namesrv_address) as producer:
            producer.send_many(Message("orders", b"%d" % number, keys=f"k{number} all") for number in range(3))
        yield broker


@pytest.fixture
def admin(broker: FakeBroker) -> Iterator[AdminClient]:
    with AdminClient(namesrv=broker.namesrv_address) as admin:
        yield admin


def say(broker: FakeBroker, **changes: Any) -> list[ReceivedMessage]:
    """Let the broker claim that everything has expired, with `changes`; its messages, which it serves all the same."""
    messages = broker.messages("orders")
    host, port = next(iter(broker.broker_addresses.values())).split(":")
    evidence = {
        "topic": "orders",
        "ttlMs": 1,
        "cutMs": NEVER_MS,
        "fixedCutMs": 0,
        "nowMs": NEVER_MS,
        "queues": [{"queueId": 0, "minimum": 3, "end": 3}],
        "samples": [
            {
                "queueId": 0,
                "offset": message.queue_offset,
                "storeMs": message.store_timestamp_ms,
                "messageId": encode_message_id((host, int(port)), message.physical_offset),
                "uniqueKey": message.message_id,
                "keys": message.keys.split(),
                "isCold": False,
            }
            for message in messages[:1]
        ],
        "files": [],
        "tier": CLEAN,
        "tierAway": "",
        **changes,
    }

    def answer(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(command, body=json.dumps(evidence).encode())

    node = broker._node(None)
    broker._on_loop(lambda: node._served.__setitem__(PrivateRequestCode.TTL_EVIDENCE, answer))
    return messages


def test_every_way_to_an_expired_message_is_found(broker: FakeBroker, admin: AdminClient) -> None:
    say(broker)
    (proof,) = admin.prove_ttl("orders").values()
    assert not proof["isProven"]
    assert [each["by"] for each in proof["reached"]] == [
        "the queue's minimum",
        "its offset",
        "its time (lower boundary)",
        "its time (upper boundary)",
        "its key k0",
        "its key all",
        "its unique id",
        "its offset message id",
    ]
    assert len(proof["problems"]) == 8
    assert proof["probeCount"] == 2


def test_similar_names_are_not_matched(broker: FakeBroker, admin: AdminClient) -> None:
    """The first message is gone; the others share a key with it, and its time."""
    cut_ms = say(broker)[1].store_timestamp_ms
    sample = {
        "queueId": 0,
        "offset": -1,
        "storeMs": cut_ms - 1,
        "messageId": encode_message_id(("127.0.0.1", 1), 1 << 40),
        "uniqueKey": "no unique id",
        "keys": ["all", "k9"],
        "isCold": True,
    }
    broker.set_min_offset("orders", 0, 1)
    say(broker, cutMs=cut_ms, samples=[])
    (proof,) = admin.prove_ttl("orders").values()
    assert (proof["problems"], proof["isProven"]) == ([], True)
    say(broker, cutMs=cut_ms, samples=[{**sample, "storeMs": cut_ms}])
    (proof,) = admin.prove_ttl("orders").values()
    assert proof["problems"] == ["queue 0, offset -1 has not expired and is hidden"]


@pytest.mark.parametrize(
    ("tier", "away", "problem"),
    [
        (
            {**CLEAN, "named": [{"segmentId": "s", "newestMs": 1, "isOverdue": True, "why": "no sweep"}]},
            "",
            "the catalog names segment or pack s, which has expired: no sweep",
        ),
        (
            {**CLEAN, "named": [{"segmentId": "s", "newestMs": 1, "isOverdue": False, "why": "the next sweep"}]},
            "",
            None,
        ),
        ({**CLEAN, "cachedBytes": 9}, "", "9 bytes of what has left the catalog are kept in memory"),
        (None, "it is away", "the cold tier could not be looked at: it is away"),
        (None, "", None),
    ],
)
def test_the_answer_of_the_tier_process_counts(
    broker: FakeBroker,
    capsys: pytest.CaptureFixture[str],
    tier: dict[str, Any] | None,
    away: str,
    problem: str | None,
) -> None:
    say(broker, cutMs=0, samples=[], tier=tier, tierAway=away)
    shell = Shell(capsys, broker.namesrv_address)
    shell("ttl", "prove", "orders", status=0 if problem is None else 1)
    assert problem is None or problem in shell.err


def test_programs_get_all_of_it(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    say(broker)
    shell = Shell(capsys, broker.namesrv_address)
    proof = json.loads(shell("ttl", "prove", "orders", "--json", status=1))["brokers"][0]
    assert proof["broker"] == "broker-a"
    assert not proof["is_proven"]
    assert proof["samples"][0]["keys"] == ["k0", "all"]
    assert proof["tier"]["visible_objects"] == 3
