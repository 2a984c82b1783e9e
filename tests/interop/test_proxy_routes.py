"""Two real clusters behind one proxy: routing rules, for the official Python gRPC client, Java 5.5 and this SDK.

Each cluster has a NameServer and a broker, and the brokers have one name. With `--official-peer` the second cluster is
the official one, too.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_tools import have
from tests.interop.cluster import OFFICIAL_PROPERTIES, THERMOCLINE, Daemons, official_daemons, thermocline_daemons
from tests.interop.fixtures_cluster import peer_kinds
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_access import BROKER_ACCESS, INNER_TEXT, secret_of
from tests.interop.grpc_driver import GrpcDriver, bodies
from tests.interop.grpc_python_agent import grpc_python_agent
from tests.interop.java_agent import JavaAgent
from tests.interop.merged_broker import merged_endpoint, merged_words
from tests.interop.proxy_daemons import BROKER_SETTINGS, remoting_address, running_proxy
from tests.interop.secured import ROOT
from tests.interop.transaction_producers import OFFICIAL_NOTES
from tests.proxy.two_clusters import write_rules
from tests.waiting import wait_until
from thermocline.client import (
    AdminClient,
    ConsumeContext,
    Credentials,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from thermocline.localstack.child_process import ChildProcess
from thermocline.remoting.errors import MQError
from tooling.official_rocketmq import OfficialSoftware
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("interop-grpc")]

HERE, THERE = "default", "east"
_numbers = itertools.count(1)


@dataclass(slots=True, kw_only=True)
class Routed:
    """The clusters by name, the proxy before them, and its rules."""

    clusters: dict[str, Daemons]
    admins: dict[str, AdminClient]
    endpoint: str
    process: ChildProcess
    rules_path: Path
    health: str = ""

    @property
    def remoting(self) -> str:
        return remoting_address(self.process)

    def rule(self, *rules: dict[str, Any]) -> None:
        """Put rules in place of those in force."""
        write_rules(self.rules_path, *rules)
        wait_until(lambda: self.shown("/rules")["rules"] == list(rules), what="the rules are in force")

    def shown(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self.health}{path}", timeout=10) as answer:
            return json.loads(answer.read())

    def make_topic(self, message_type: str = "NORMAL") -> str:
        """A topic in both clusters; its name."""
        name = f"Routed{next(_numbers)}"
        for admin in self.admins.values():
            admin.create_topic(name, queue_nums=4, attributes={"message.type": message_type})
        return name

    def stored(self, topic: str) -> dict[str, int]:
        """How many messages each cluster has of a topic."""
        return {name: stored_in(admin, topic) for name, admin in self.admins.items()}


def stored_in(admin: AdminClient, topic: str) -> int:
    return sum(int(queue.max_offset) for queue in admin.topic_stats(topic))


@contextlib.contextmanager
def routed_proxy(
    folder: Path, clusters: dict[str, Daemons], admins: dict[str, AdminClient], **settings: Any
) -> Iterator[Routed]:
    """`thermocline proxy` before these clusters, by a file as an operator writes it."""
    folder.mkdir()
    rules_path, config = folder / "rules.json", folder / "rmq-proxy.json"
    write_rules(rules_path)
    others = [{"name": name, "namesrvAddr": each.namesrv} for name, each in clusters.items() if name != HERE]
    values = {"routingClusters": others, "routingRulesPath": str(rules_path), "healthPort": 0, **settings}
    config.touch(mode=0o600)
    config.write_text(json.dumps(values))
    with running_proxy(folder, namesrv=clusters[HERE].namesrv, config=config) as (endpoint, process):
        routed = Routed(clusters=clusters, admins=admins, endpoint=endpoint, process=process, rules_path=rules_path)
        (line,) = [line for line in process.output().splitlines() if "health endpoint" in line]
        routed.health = f"127.0.0.1:{line.rpartition('port=')[2]}"
        yield routed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "east_kind" in metafunc.fixturenames:
        metafunc.parametrize("east_kind", peer_kinds(metafunc.config), indirect=True, scope="module")


@pytest.fixture(scope="module")
def east_kind(request: pytest.FixtureRequest) -> str:
    """Whose software the second cluster runs."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="module")
def east(
    east_kind: str, official_software: OfficialSoftware, new_module_folder: Callable[[str], Path]
) -> Iterator[Daemons]:
    """The second cluster's NameServer and broker."""
    folder = new_module_folder("east")
    if east_kind == THERMOCLINE:
        daemons = thermocline_daemons(folder, settings=BROKER_SETTINGS)
    else:
        daemons = official_daemons(
            official_software, folder, properties={**OFFICIAL_PROPERTIES, **BROKER_SETTINGS, **OFFICIAL_NOTES}
        )
    with daemons as running, AdminClient(namesrv=running.namesrv) as admin:
        wait_until(lambda: admin.cluster_info(), what="the broker is registered")
        yield running


@pytest.fixture(scope="module")
def routed(east: Daemons, new_module_folder: Callable[[str], Path]) -> Iterator[Routed]:
    folder = new_module_folder("routed")
    with (
        thermocline_daemons(folder / HERE, settings=BROKER_SETTINGS) as here,
        AdminClient(namesrv=here.namesrv) as admin,
        AdminClient(namesrv=east.namesrv) as east_admin,
        routed_proxy(folder / "proxy", {HERE: here, THERE: east}, {HERE: admin, THERE: east_admin}) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def wheels() -> Path:
    return have(ROCKETMQ_GRPC_PYTHON.find)


@pytest.fixture(scope="module")
def agent(wheels: Path, new_module_folder: Callable[[str], Path]) -> Iterator[ForeignAgent]:
    with grpc_python_agent(wheels, new_module_folder("grpc-python")) as running:
        yield running


@pytest.fixture
def driver(agent: ForeignAgent, routed: Routed) -> Iterator[GrpcDriver]:
    """Clients on a topic that both clusters have."""
    running = GrpcDriver(agent, routed.admins[HERE], routed.endpoint)
    running.topic = routed.make_topic()
    running.group = f"{running.topic}-group"
    yield running
    running.stop_all()


class Pushed:
    """What a push consumer of this SDK, through the proxy, was handed."""

    def __init__(self, routed: Routed, topic: str, group: str) -> None:
        self.bodies: list[str] = []
        self._consumer = PushConsumer(
            group=group, namesrv=routed.remoting, poll_name_server_interval_ms=500, rebalance_interval_ms=500
        )
        self._consumer.subscribe(topic)
        self._consumer.register_listener(self._listen)

    def _listen(self, messages: Sequence[ReceivedMessage], _context: ConsumeContext) -> None:
        self.bodies += [message.body.decode() for message in messages]

    def __enter__(self) -> Pushed:
        self._consumer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


# -- by topic, group, user, address ------------------------------------------------------------------------------------


def test_a_topic_goes_to_its_cluster_for_clients_of_both_protocols(
    routed: Routed, driver: GrpcDriver, java_agent_process: JavaAgent
) -> None:
    topic = driver.topic
    routed.rule({"topic": topic, "cluster": THERE})
    consumer = driver.start("push")
    driver.send(*({"body": f"grpc-{number}"} for number in range(5)))
    with Producer(group=f"{topic}-sdk", namesrv=routed.remoting) as producer:
        for number in range(5):
            producer.send(Message(topic, f"sdk-{number}".encode()))
    java_agent_process.produce(
        kind="sync",
        count=5,
        name=f"{topic}-sender",
        group=f"{topic}-java",
        namesrv=routed.remoting,
        topic=topic,
        prefix="java",
    )
    java_agent_process.call("stop_producers", namesrv=routed.remoting)
    sent = sorted(f"{prefix}-{number}" for prefix in ("grpc", "sdk", "java") for number in range(5))
    assert routed.stored(topic) == {HERE: 0, THERE: 15}
    assert sorted(bodies(driver.pushed(consumer, count=15))) == sent
    name = f"{topic}-java-consumer"
    java_agent_process.call("start_push_consumer", name=name, namesrv=routed.remoting, group=name, topics={topic: "*"})
    assert sorted(each.body.decode() for each in java_agent_process.received(name, count=15)) == sent
    java_agent_process.call("stop_consumer", name=name)
    with Pushed(routed, topic, f"{topic}-sdk-consumer") as pushed:
        wait_until(lambda: len(pushed.bodies) >= 15, what="the SDK's consumer has all")
    assert sorted(pushed.bodies) == sent


def test_a_group_goes_to_its_cluster(routed: Routed, driver: GrpcDriver) -> None:
    topic = driver.topic
    routed.rule({"group": f"{topic}-east*", "cluster": THERE})
    for name, daemons in routed.clusters.items():
        with Producer(group=f"{topic}-direct", namesrv=daemons.namesrv) as producer:
            producer.send(Message(topic, name.encode()))
    for group, name in ((f"{topic}-east", THERE), (f"{topic}-other", HERE)):
        consumer = driver.start("simple", group=group)
        assert bodies(driver.receive(consumer, count=1)) == [name]
        with Pushed(routed, topic, f"{group}-sdk") as pushed:
            wait_until(lambda pushed=pushed: pushed.bodies, what="the SDK's consumer has one")  # type: ignore[misc]
            assert pushed.bodies == [name]


def test_a_clients_address_decides(routed: Routed, driver: GrpcDriver) -> None:
    topic = driver.topic
    routed.rule(
        {"topic": topic, "address": "10.0.0.0/8", "cluster": HERE},
        {"topic": topic, "address": "127.0.0.0/8", "cluster": THERE},
    )
    driver.send({"body": "grpc"})
    with Producer(group=f"{topic}-sdk", namesrv=routed.remoting) as producer:
        producer.send(Message(topic, b"sdk"))
    assert routed.stored(topic) == {HERE: 0, THERE: 2}


def test_a_user_goes_to_its_cluster(routed: Routed, east: Daemons, wheels: Path, tmp_path: Path) -> None:
    """The users are those of the default cluster."""
    settings = {**BROKER_SETTINGS, **BROKER_ACCESS}
    access = {"authenticationEnabled": True, "innerClientAuthenticationCredentials": INNER_TEXT}
    east_admin = routed.admins[THERE]
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(thermocline_daemons(tmp_path / "secured", settings=settings))
        admin = stack.enter_context(AdminClient(namesrv=here.namesrv, credentials=ROOT))
        topic = f"Routed{next(_numbers)}"
        for each in (admin, east_admin):
            each.create_topic(topic, queue_nums=4, attributes={"message.type": "NORMAL"})
        proxy = stack.enter_context(
            routed_proxy(tmp_path / "proxy", {HERE: here, THERE: east}, {HERE: admin, THERE: east_admin}, **access)
        )
        write_rules(proxy.rules_path, {"user": "partner*", "cluster": THERE})
        wait_until(lambda: "routing rules changed" in proxy.process.output(), what="the rules are in force")
        for username in ("partner-one", "worker"):
            keys = Credentials(access_key=username, secret_key=secret_of(username))
            admin.create_user(username, keys.secret_key)
            admin.set_acl(f"User:{username}", ["Topic:*", "Group:*"], ["Pub", "Sub"])
            agent = stack.enter_context(grpc_python_agent(wheels, tmp_path / username, credentials=keys))
            driver = GrpcDriver(agent, admin, proxy.endpoint)
            driver.topic = topic
            driver.send({"body": username})
            with Producer(group=f"{topic}-{username}", namesrv=proxy.remoting, credentials=keys) as producer:
                producer.send(Message(topic, username.encode()))
            driver.stop_all()
        assert proxy.stored(topic) == {HERE: 2, THERE: 2}


# -- transactions, and rules that change -------------------------------------------------------------------------------


def test_transactions_are_checked_and_ended_where_they_began(routed: Routed, driver: GrpcDriver) -> None:
    driver.topic = routed.make_topic("TRANSACTION")
    driver.group = f"{driver.topic}-group"
    producer = driver.start("producer", checks=True)
    place = {"name": producer, "topic": driver.topic}
    routed.rule({"topic": driver.topic, "cluster": THERE})
    driver.call("send_half", transaction="ended", body="ended by its producer", **place)
    driver.call("send_half", transaction="open", body="commit by its check", **place)
    routed.rule()
    driver.call("end", transaction="ended", commits=True)
    wait_until(
        lambda: "commit by its check" in driver.call("checked", count=1, timeout_ms=1_000),
        what="the other is asked about",
    )
    wait_until(lambda: routed.stored(driver.topic) == {HERE: 0, THERE: 2}, what="both are committed")


@pytest.mark.full
def test_a_rule_that_changes_under_load_loses_nothing(routed: Routed, driver: GrpcDriver) -> None:
    """Producers and consumers of both protocols go on; the old cluster is read beside the new one."""
    topic, sent = driver.topic, [list[str](), list[str]()]
    is_over = threading.Event()
    grpc_producer, consumer = driver.start("producer"), driver.start("push")
    failures: list[MQError] = []

    def send_by_remoting() -> None:
        try:
            options: dict[str, Any] = {"namesrv": routed.remoting, "poll_name_server_interval_ms": 500}
            with Producer(group=f"{topic}-sdk", **options) as producer:
                while not is_over.wait(0.01):
                    body = f"sdk-{len(sent[0])}"
                    producer.send(Message(topic, body.encode()))
                    sent[0].append(body)
        except MQError as error:  # the test fails with it
            failures.append(error)

    routed.rule()
    with Pushed(routed, topic, f"{topic}-sdk-consumer") as pushed:
        sender = threading.Thread(target=send_by_remoting)
        sender.start()
        try:
            moved = {"topic": topic, "cluster": THERE, "alsoRead": [HERE]}
            back = {"topic": topic, "cluster": HERE, "alsoRead": [THERE]}
            for target, rule in ((HERE, None), (THERE, moved), (HERE, back)):
                if rule is not None:
                    routed.rule(rule)
                before, sdk_before = routed.stored(topic)[target], len(sent[0])
                for _ in range(10):
                    body = f"grpc-{len(sent[1])}"
                    driver.call("send", name=grpc_producer, topic=topic, messages=[{"body": body}])
                    sent[1].append(body)
                wait_until(
                    lambda target=target, before=before: routed.stored(topic)[target] >= before + 20,  # type: ignore[misc]
                    what="clients of both protocols send there",
                )
                assert len(sent[0]) > sdk_before
        finally:
            is_over.set()
            sender.join()
        assert failures == []
        all_sent = {*sent[0], *sent[1]}
        received: set[str] = set()
        wait_until(
            lambda: received.update(bodies(driver.pushed(consumer, count=1, timeout_s=1))) or received == all_sent,
            what="the gRPC consumer has all",
        )
        try:
            wait_until(lambda: set(pushed.bodies) == all_sent, what="the SDK's consumer has all")
        except AssertionError as error:
            error.add_note(f"missing: {sorted(all_sent - set(pushed.bodies))} of {len(all_sent)}")
            error.add_note(f"{len(pushed.bodies)} were handed out, {routed.stored(topic)} are stored")
            for cluster, admin in routed.admins.items():
                error.add_note(f"{cluster}: {admin.group_progress(f'{topic}-sdk-consumer')}")
            raise
    assert sum(routed.stored(topic).values()) == len(all_sent)


def test_what_was_delivered_before_a_change_is_acknowledged_where_it_is(routed: Routed, driver: GrpcDriver) -> None:
    """Messages of one receive: all but one are acknowledged after the change. When that one comes again the others,
    which would have come with it, do not."""
    topic = driver.topic
    routed.rule({"topic": topic, "cluster": THERE})
    driver.send(*({"body": str(number)} for number in range(8)))
    consumer = driver.start("simple")
    held: list[dict[str, Any]] = []
    while len(held) < 8:
        held += driver.call("receive", name=consumer, invisible_s=10)
    routed.rule()
    driver.send({"body": "here"})
    first, *others = sorted(held, key=lambda message: str(message["body"]))
    for message in others:
        driver.call("ack", name=consumer, message_id=message["message_id"])
    assert bodies(driver.receive(consumer, count=1)) == ["here"]
    routed.rule({"topic": topic, "cluster": THERE})
    again = driver.receive(consumer, count=1)
    assert (bodies(again), again[0]["attempt"]) == ([first["body"]], 2)
    assert driver.call("receive", name=consumer) == []
    assert routed.stored(topic) == {HERE: 1, THERE: 8}


def test_a_proxy_beside_its_broker_routes_too(
    routed: Routed, east: Daemons, agent: ForeignAgent, tmp_path: Path
) -> None:
    """Its own broker is the default cluster; the rules change while it runs."""
    rules_path = tmp_path / "rules.json"
    write_rules(rules_path)
    clusters = json.dumps([{"name": THERE, "namesrvAddr": east.namesrv}])
    words = merged_words(settings={"routingClusters": clusters, "routingRulesPath": str(rules_path)})
    with (
        thermocline_daemons(tmp_path / "merged", settings=BROKER_SETTINGS, words=words) as here,
        AdminClient(namesrv=here.namesrv) as admin,
    ):
        driver = GrpcDriver(agent, admin, merged_endpoint(here.process))
        driver.make_topic("NORMAL")
        routed.admins[THERE].create_topic(driver.topic, queue_nums=4, attributes={"message.type": "NORMAL"})
        driver.send({"body": "here"})
        consumer = driver.start("simple")
        assert bodies(driver.receive(consumer, count=1)) == ["here"]
        write_rules(rules_path, {"topic": driver.topic, "cluster": THERE})
        place = {"name": driver.start("producer"), "topic": driver.topic, "messages": [{"body": "there"}]}

        def is_there() -> bool:
            driver.call("send", **place)
            return stored_in(routed.admins[THERE], driver.topic) > 0

        wait_until(is_there, what="the rules are in force")
        assert bodies(driver.receive(consumer, count=1)) == ["there"]
        driver.stop_all()


# -- a cluster that is gone --------------------------------------------------------------------------------------------


def test_a_cluster_that_stops_leaves_the_other_serving(routed: Routed, east_kind: str, driver: GrpcDriver) -> None:
    """The last test of this file: the cluster stays away."""
    gone, topic = routed.make_topic(), driver.topic
    routed.rule({"topic": gone, "cluster": THERE})
    with Producer(group=f"{topic}-sdk", namesrv=routed.remoting) as producer:
        producer.send(Message(gone, b"before"))
        routed.clusters[THERE].process.stop()
        wait_until(
            lambda: routed.shown("/health")["clusters"] == {HERE: True, THERE: False}, what="the loss is reported"
        )
        with pytest.raises(MQError):
            producer.send(Message(gone, b"after"))
        producer.send(Message(topic, b"sdk"))
    driver.send({"body": "grpc"})
    consumer = driver.start("simple")
    assert sorted(bodies(driver.receive(consumer, count=2))) == ["grpc", "sdk"]
    with Pushed(routed, topic, f"{topic}-sdk-consumer") as pushed:
        wait_until(lambda: len(pushed.bodies) >= 2, what="the SDK's consumer has all")
    failed = driver.call(
        "rpc",
        endpoint=routed.endpoint,
        method="SendMessage",
        request={
            "messages": [
                {
                    "topic": {"name": gone},
                    "body": "YWZ0ZXI=",
                    "systemProperties": {"messageId": "01" * 17, "messageType": "NORMAL", "bodyEncoding": "IDENTITY"},
                }
            ]
        },
    )
    # Of the official cluster the broker alone stopped: its NameServer has seen that the topic is gone.
    code = failed["answers"][0]["status"]["code"]
    assert code == ("INTERNAL_SERVER_ERROR" if east_kind == THERMOCLINE else "TOPIC_NOT_FOUND")
