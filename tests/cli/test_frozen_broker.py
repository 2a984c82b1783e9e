"""One of two brokers frozen and a third one down: every command shows what the others answered, and names both.

Real NameServers and brokers (two_brokers.py); every command that talks to a cluster stands in one of the tables below.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.two_brokers import (
    Outcome,
    TwoBrokers,
    queue_of,
    register_down_broker,
    run_all,
    two_brokers,
    wait_for,
)
from tests.docs.test_commands import COMMANDS, options
from thermocline.client import (
    AdminClient,
    AsyncAdminClient,
    ConsumeFromWhere,
    ConsumeResult,
    Credentials,
    Message,
    MQError,
    PartialResultError,
    Producer,
    PushConsumer,
    UnavailableError,
)
from thermocline.remoting.bodies.hand_off import QueueTarget, TopicTarget
from thermocline.remoting.topic_validation import TRACE_TOPIC

pytestmark = [pytest.mark.xdist_group("frozen-broker"), pytest.mark.timeout(300)]

TIMEOUT_MS = "4000"
SDK_TIMEOUT_MS = 3_000
FAILED = {"broker-b", "broker-c"}
ROOT = Credentials(access_key="root", secret_key="the-key-of-root")
ACCESS = (
    "authenticationEnabled=true",
    f'initAuthenticationUser={{"username":"{ROOT.access_key}","password":"{ROOT.secret_key}"}}',
    'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"the-key-of-brokers"}',
)
"""Users, for the commands about them; everything here signs with the keys in the environment."""
TOPICS = ("orders", "doomed")

EACH: dict[str, str] = {
    "cluster list": "",
    "topic create": "fresh",
    "topic update": "orders --read-queues 1",
    "topic delete": "doomed --yes",
    "topic status": "orders",
    "topic route": "orders",
    "topic consumers": "orders",
    "topic static show": "ledger",
    "group list": "",
    "group progress": "billing",
    "group set-mode": "billing --topic orders --mode pull",
    "group delete": "doomed --yes",
    "group create": "fresh",
    "group update": "other --retry-max 3",
    "group show": "other",
    "group connections": "billing",
    "group members": "billing",
    "group reset-offset": "other --topic orders --to latest --yes",
    "group skip": "other --topic orders --yes",
    "group clone-offsets": "other copy --topic orders",
    "producer list": "",
    "proxy clients": "",
    "producer connections": "shop",
    "message pull": "orders",
    "message query": "orders --key first",
    "message trace": "first",
    "message consume-directly": "only-a $ID_A --group billing",
    "ttl set": "orders 30d",
    "ttl clear": "orders",
    "ttl show": "orders",
    "ttl prove": "orders",
    "tier scrub": "",
    "tier cost": "orders",
    "tier status": "orders",
    "tier seal": "",
    "tier explain": "orders",
    "tier purge": "orders --now --yes",
    "user list": "",
    "user create": "fresh --password x",
    "user update": "alice --status disable",
    "user delete": "doomed --yes",
    "acl list": "",
    "acl set": "carol Pub Topic:orders",
    "acl delete": "bob --yes",
    "acl check": "carol Pub Topic:orders",
}
"""Ask every broker, of the cluster or of a topic: what `broker-a` answered is shown, the others are named."""

ALL_OR_NONE: dict[str, str] = {
    "topic static create": "fresh-static --queues 2",
    "topic static grow": "ledger --queues 4",
    "topic static remap": "ledger --broker broker-a",
    "topic static apply": "$PLAN",
}
"""A part of the answers is of no use: nothing is shown but who did not answer."""

ONE: dict[str, str] = {
    "broker config get": "$BROKER",
    "broker config set": "$BROKER fileReservedTime=48",
    "broker runtime": "$BROKER",
    "broker stats": "$BROKER",
    "broker clean": "$BROKER expired-queues",
    "tier reads": "$BROKER",
    "tier set-read-limit": "$BROKER billing 1000000",
    "tier clear-read-limit": "$BROKER shipping",
    "quota set": "$BROKER topic orders sendBytes=1000000000",
    "quota list": "$BROKER",
    "quota remove": "$BROKER topic orders",
}
"""Ask the broker that is named."""

OF_BROKER_A: dict[str, str] = {
    "message send": "only-a --body x",
    "message recall": "$HANDLE_A",
    "message resend": "only-a $ID_A",
    "user copy": "carol --from broker-a --to broker-a",
    "acl copy": "carol --from broker-a --to broker-a",
}
"""Ask one broker, which works."""

OF_NAME_SERVERS: dict[str, str] = {
    "topic list": "",
    "namesrv config get": "",
    "namesrv config set": "orderMessageEnable=true",
    "namesrv kv list": "letters",
    "namesrv kv put": "letters b 2",
    "namesrv kv delete": "letters c",
    "namesrv wipe-write-perm": "broker-b",
    "namesrv add-write-perm": "broker-b",
}
"""Ask NameServers alone, which all work."""

ELSEWHERE = {
    "message resume-check": "a message id names one address: test_an_id_of_a_frozen_broker",
    "spark hand-off": "test_a_hand_off_is_refused_whole; the command needs the receipt of a Spark job",
}


class Frozen:
    """The cluster once `broker-b` is frozen, and what was in it before."""

    def __init__(self, cluster: TwoBrokers, folder: Path) -> None:
        self.cluster = cluster
        self.ids: dict[str, str] = {}
        self.handle = ""
        self.plan = str(folder / "ledger.plan")

    def prepare(self, held: contextlib.ExitStack) -> None:
        """Messages at both brokers; groups, a consumer, a producer; a static topic."""
        namesrv = self.cluster.namesrv
        with AdminClient(namesrv=namesrv, request_timeout_ms=60_000) as admin:
            admin.create_topic("only-a", queue_nums=1, broker="broker-a")
            for group in ("billing", "other", "doomed"):
                admin.create_group(group)
            for broker in ("broker-a", "broker-b"):
                admin.set_consumer_offset("other", queue_of(broker, "orders"), 0)
                admin.set_consumer_offset("billing", queue_of(broker, "orders"), 0)
            for user in ("alice", "bob", "carol", "doomed"):
                admin.create_user(user, "key")
            for user in ("bob", "carol"):
                admin.set_acl(f"User:{user}", ["Topic:letters"], ["Pub"])
            admin.put_kv("letters", "a", "1")
            admin.put_kv("letters", "c", "3")
            plan = admin.plan_static_topic("ledger", queue_nums=2, brokers=("broker-a", "broker-b"))
            Path(self.plan).write_bytes(plan.encode())
            admin.apply_static_plan(plan)
            wait_for(lambda: len(admin.topic_route("only-a").brokers) == 1)
            shop = Producer(group="shop", namesrv=namesrv, send_timeout_ms=60_000, enable_trace=True)
            held.enter_context(shop)
            for broker in ("broker-a", "broker-b"):
                message = Message("orders", b"x", keys="first")
                self.ids[broker] = shop.send(message, queue=queue_of(broker, "orders")).offset_message_id
            self.ids["only-a"] = shop.send(Message("only-a", b"x")).message_id
            self.handle = shop.send(Message("only-a", b"x", delay_ms=3_600_000)).recall_handle or ""
            billing = PushConsumer(
                group="billing",
                namesrv=namesrv,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            )
            billing.subscribe("orders")
            billing.register_listener(lambda messages, context: ConsumeResult.SUCCESS)
            held.enter_context(billing)
            traces = queue_of("broker-a", TRACE_TOPIC)  # a producer's traces go to either broker
            wait_for(lambda: shop.send(Message("only-a", b"x", keys="first")) and admin.max_offset(traces) > 0)
            wait_for(lambda: admin.message_trace("first"))
            wait_for(lambda: len(admin.producer_connections("shop")) == 1)
            wait_for(lambda: len(admin.consumer_connections("billing").connection_set) == 1)
            wait_for(lambda: all(row.lag == 0 for row in admin.group_progress("billing", topic="orders")))
            wait_for(lambda: not any("error" in tier for tier in admin.tier_status("orders").values()))
            wait_for(lambda: len(admin.tier_seal("orders")) == 2)

    def words(self, name: str, arguments: str, *, broker: str = "broker-a") -> list[str]:
        """The command line."""
        places = {
            "$BROKER": broker,
            "$ID_A": self.ids["only-a"],
            "$HANDLE_A": self.handle,
            "$PLAN": self.plan,
        }
        words = [places.get(word, word) for word in arguments.split()]
        common = ["--namesrv", self.cluster.namesrv, "--timeout-ms", TIMEOUT_MS, "--json"]
        return [*name.split(), *words, *common]


@pytest.fixture(scope="module")
def frozen(module_folder: Path) -> Iterator[Frozen]:
    with contextlib.ExitStack() as held:
        patch = held.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("THERMOCLINE_ACCESS_KEY", ROOT.access_key)
        patch.setenv("THERMOCLINE_SECRET_KEY", ROOT.secret_key)
        cluster = held.enter_context(two_brokers(module_folder, topics=TOPICS, settings=ACCESS))
        here = Frozen(cluster, module_folder)
        here.prepare(held)
        register_down_broker(cluster, (*TOPICS, TRACE_TOPIC))
        with cluster.frozen(cluster.brokers[1]):
            yield here


@pytest.fixture(scope="module")
def outcomes(frozen: Frozen) -> dict[str, Outcome]:
    """Every command's, in the order of tables; those that name a broker once with each."""
    commands = {
        name: frozen.words(name, arguments)
        for table in (EACH, ALL_OR_NONE, OF_BROKER_A, OF_NAME_SERVERS)
        for name, arguments in table.items()
    }
    commands |= {
        f"{name} {broker}": frozen.words(name, arguments, broker=broker)
        for name, arguments in ONE.items()
        for broker in ("broker-a", "broker-b", "broker-c", "broker-x")
    }
    commands |= {f"text {name}": frozen.words(name, EACH[name])[:-1] for name in TEXTS}
    return run_all(commands)


WITHOUT_ROWS = "proxy clients"
"""No proxy has reported a client to the broker that answers."""
TEXTS = ("topic status", "topic route", "group list", "tier status")


def failed_brokers(outcome: Outcome) -> set[str]:
    return {error["broker"] for error in outcome.json()["errors"]}


def test_every_command_stands_in_a_table() -> None:
    clustered = {
        name.removeprefix("thermocline ")
        for name, command in COMMANDS.items()
        if {"-n --namesrv", "--timeout-ms"} <= options(command).keys()
    }
    tables = [EACH, ALL_OR_NONE, ONE, OF_BROKER_A, OF_NAME_SERVERS, ELSEWHERE]
    assert sorted(name for table in tables for name in table) == sorted(clustered)


@pytest.mark.parametrize("name", EACH)
def test_answers_are_shown_and_silent_brokers_are_named(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert outcome.status == 1, outcome
    assert bool(outcome.json()["result"]) == (name != WITHOUT_ROWS), outcome
    wanted = {"broker-b"} if name == "topic static show" and failed_brokers(outcome) == {"broker-b"} else FAILED
    assert failed_brokers(outcome) == wanted
    lines = outcome.err.splitlines()
    for broker in wanted:
        assert len([line for line in lines if line.startswith(f"thermocline: {broker} (")]) == 1, lines


@pytest.mark.parametrize("name", TEXTS)
def test_people_see_one_line_a_broker(name: str, outcomes: dict[str, Outcome], frozen: Frozen) -> None:
    outcome = outcomes[f"text {name}"]
    addresses = frozen.cluster.addresses
    assert outcome.status == 1
    assert outcome.out.strip()
    warnings = [line for line in outcome.err.splitlines() if line.startswith("thermocline: ")]
    assert [line.partition(":")[2].partition(" gave no answer: ")[0].strip() for line in sorted(warnings)] == [
        f"{broker} ({addresses[broker]})" for broker in sorted(FAILED)
    ]


def test_a_write_says_who_has_it(outcomes: dict[str, Outcome]) -> None:
    for name in ("topic create", "topic update", "topic delete", "group create", "group update", "group delete"):
        assert outcomes[name].json()["result"]["brokers"] == ["broker-a"], name


@pytest.mark.parametrize("name", ALL_OR_NONE)
def test_a_failed_command_without_a_partial_result(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert outcome.status == 1, outcome
    assert outcome.json()["result"] is None
    assert "broker-b" in failed_brokers(outcome)
    assert "thermocline: broker-b (" in outcome.err or "broker=broker-b" in outcome.err


@pytest.mark.parametrize("name", ONE)
def test_a_command_of_one_broker(name: str, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[f"{name} broker-a"].status == 0, outcomes[f"{name} broker-a"]
    for broker in ("broker-b", "broker-c", "broker-x"):
        outcome = outcomes[f"{name} {broker}"]
        assert outcome.status == 1
        assert broker in outcome.err
        assert failed_brokers(outcome) == {broker}
        assert outcome.json()["result"] is None
    assert "no such broker broker=broker-x" in outcomes[f"{name} broker-x"].err


@pytest.mark.parametrize("name", [*OF_BROKER_A, *OF_NAME_SERVERS])
def test_commands_without_the_frozen_broker_work(name: str, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[name].status == 0, outcomes[name]
    outcomes[name].json()


def test_an_id_of_a_frozen_broker(frozen: Frozen) -> None:
    words = frozen.words("message resume-check", frozen.ids["broker-b"])
    outcome = run_all({"one": words})["one"]
    assert outcome.status == 1
    (error,) = outcome.json()["errors"]
    assert error["address"] == frozen.cluster.addresses["broker-b"]


def test_one_of_two_name_servers_frozen(frozen: Frozen) -> None:
    cluster = frozen.cluster
    reads = {name: frozen.words(name, OF_NAME_SERVERS[name]) for name in ("topic list", "namesrv kv list")}
    of_each = ("namesrv config get", "namesrv config set", "namesrv kv put", "namesrv wipe-write-perm")
    writes = {name: frozen.words(name, OF_NAME_SERVERS[name]) for name in of_each}
    with cluster.frozen(cluster.name_servers[1]):
        outcomes = run_all(reads | writes)
    for name in reads:
        assert outcomes[name].status == 0, outcomes[name]
    for name in writes:
        printed = outcomes[name].json()
        assert outcomes[name].status == 1
        assert printed["result"], name
        assert [error["namesrv"] for error in printed["errors"]] == [cluster.namesrv_addresses[1]]
        assert f"thermocline: NameServer {cluster.namesrv_addresses[1]} gave no answer" in outcomes[name].err


# -- the SDK -----------------------------------------------------------------------------------------------------------


def test_the_blocking_sdk_returns_the_answers_that_came(frozen: Frozen) -> None:
    with (
        AdminClient(namesrv=frozen.cluster.namesrv, request_timeout_ms=SDK_TIMEOUT_MS) as admin,
        pytest.raises(PartialResultError) as raised,
    ):
        admin.topic_stats("orders")
    error: PartialResultError = pickle.loads(pickle.dumps(raised.value))
    assert isinstance(error, UnavailableError)
    assert {one.queue.broker_name for one in error.result} == {"broker-a"}
    assert error.answered == ("broker-a",)
    assert {failure.broker_name: failure.address for failure in error.failures} == {
        name: frozen.cluster.addresses[name] for name in FAILED
    }
    assert all(name in str(error) for name in FAILED)


async def test_the_asyncio_sdk_returns_the_answers_that_came(frozen: Frozen) -> None:
    async with AsyncAdminClient(namesrv=frozen.cluster.namesrv, request_timeout_ms=SDK_TIMEOUT_MS) as admin:
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "group_places": lambda: admin.group_places("other", "orders"),
            "request_modes": admin.request_modes,
            "forecast_tier_cost": lambda: admin.forecast_tier_cost("orders", seal_age_ms=60_000),
            "preview_ttl": lambda: admin.preview_ttl("orders", 1_000),
            "query_by_id": lambda: admin.query_by_id("orders", frozen.ids["broker-b"]),
            "query_by_unique_key": lambda: admin.query_by_unique_key("orders", frozen.ids["only-a"]),
            "runtime_infos": admin.runtime_infos,
            "start_tier_scrub": admin.start_tier_scrub,
            "tier_scrub_state": admin.tier_scrub_state,
            "reset_offsets": lambda: admin.reset_offsets("other", "orders", timestamp_ms=0),
        }
        errors = await asyncio.gather(*(call() for call in calls.values()), return_exceptions=True)
    for name, error in zip(calls, errors, strict=True):
        assert isinstance(error, PartialResultError), (name, error)
        assert {failure.broker_name for failure in error.failures} == FAILED, name
        assert error.answered == ("broker-a",), name


@pytest.mark.full
async def test_a_hand_off_is_refused_whole(frozen: Frozen) -> None:
    """It names the broker that could not be prepared, and moves the group nowhere."""
    async with AsyncAdminClient(namesrv=frozen.cluster.namesrv, request_timeout_ms=SDK_TIMEOUT_MS) as admin:
        with pytest.raises(PartialResultError) as looked:
            await admin.group_places("doomed", "orders")
        incarnation = looked.value.result[0].incarnation
        queues = [QueueTarget(queue_id=0, offset=1)]
        target = TopicTarget(topic="orders", incarnation=incarnation, queues=queues)
        with pytest.raises(MQError) as raised:
            await admin.hand_off("other", {"broker-a": [target], "broker-b": [target]}, receipt_id="r", force=True)
        assert "broker-b" in str(raised.value)
