"""`thermocline broker --proxy`: what differs from a proxy by itself, under RocketMQ's official Python client for gRPC.

The client has the address of one of two merged brokers. What every deployment must do is in test_grpc_python.py and
test_grpc_java.py, which run on this one, too.

Covers `broker/proxy_process/proxy_process.py` and `broker/assembly/merged_proxy.py`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop.cluster import FREE_PORT, READY_TIMEOUT_S
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_driver import GrpcDriver, bodies
from tests.interop.grpc_python_agent import grpc_python_agent
from tests.interop.java_agent import JavaAgentError
from tests.interop.killable_broker import SIGNS_OF_BUGS, KillableBroker, daemon, name_server
from tests.interop.merged_broker import merged_words
from tests.interop.proxy_daemons import BROKER_SETTINGS
from tests.interop.secured import denials_in
from tests.process_groups import processes_of
from tests.waiting import wait_until
from thermocline.client import AdminClient, Credentials, Message, Producer
from thermocline.remoting.records.message_id import decode_message_id
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON

pytestmark = pytest.mark.xdist_group("interop-grpc")

PROXY_MODULE = b"thermocline.broker.proxy_process"
COLD_SETTINGS = {
    "mappedFileSizeCommitLog": str(256 * 1024),
    "fileReservedTime": "0",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "coldSealAgeMs": "500",
}
HISTORY_COUNT = 300


@pytest.fixture(scope="module")
def brokers(new_module_folder: Callable[[str], Path]) -> Iterator[tuple[str, KillableBroker, KillableBroker]]:
    """A NameServer, and two brokers of which each has a proxy."""
    directory = new_module_folder("merged")
    settings = {**BROKER_SETTINGS, **COLD_SETTINGS}
    with (
        name_server(directory) as namesrv,
        KillableBroker(directory / "a", namesrv, name="broker-a", settings=settings, has_proxy=True) as first,
        KillableBroker(directory / "b", namesrv, name="broker-b", settings=settings, has_proxy=True) as second,
    ):
        yield namesrv, first, second
        first.check_log()
        second.check_log()


@pytest.fixture(scope="module")
def admin(brokers: tuple[str, KillableBroker, KillableBroker]) -> Iterator[AdminClient]:
    with AdminClient(namesrv=brokers[0]) as running:
        wait_until(lambda: len(running.cluster_info()) == 2, what="both brokers are registered")
        yield running


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[ForeignAgent]:
    with grpc_python_agent(have(ROCKETMQ_GRPC_PYTHON.find), tmp_path) as running:
        yield running


@pytest.fixture
def driver(agent: ForeignAgent, admin: AdminClient, brokers: tuple[str, KillableBroker, KillableBroker]) -> GrpcDriver:
    """Its clients know the first broker's proxy alone."""
    return GrpcDriver(agent, admin, brokers[1].proxy_address)


def proxy_process(broker: KillableBroker) -> int:
    """The process of a broker's proxy."""
    (process_id,) = [
        each
        for each in processes_of(os.getpgid(broker.process_id))
        if PROXY_MODULE in Path(f"/proc/{each}/cmdline").read_bytes()
    ]
    return process_id


def connected_ports(process_id: int) -> set[int]:
    """The ports that a process is connected to."""
    sockets = set()
    for entry in Path(f"/proc/{process_id}/fd").iterdir():
        target = os.readlink(entry)
        if target.startswith("socket:["):
            sockets.add(target[len("socket:[") : -1])
    rows = [line.split() for line in Path(f"/proc/{process_id}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[2].rpartition(":")[2], 16) for row in rows if row[9] in sockets}


def test_a_client_of_one_proxy_reaches_both_brokers(
    driver: GrpcDriver, brokers: tuple[str, KillableBroker, KillableBroker]
) -> None:
    driver.make_topic("NORMAL", queues=2)
    wanted = [str(number) for number in range(16)]
    driver.send(*({"body": body} for body in wanted))
    stored: Counter[str] = Counter()
    for each in driver.admin.topic_stats(driver.topic):
        stored[each.queue.broker_name] += each.max_offset - each.min_offset
    assert stored == {"broker-a": 8, "broker-b": 8}
    assert Counter(bodies(driver.receive(driver.start("simple"), count=16))) == Counter(wanted)
    # The own broker is asked over its unix socket, the other one by its port.
    own, other = (int(broker.address.rpartition(":")[2]) for broker in brokers[1:])
    assert connected_ports(proxy_process(brokers[1])) & {own, other} == {other}
    driver.stop_all()


def test_both_brokers_ask_the_one_proxy_about_transactions(driver: GrpcDriver) -> None:
    """Left open, they are in turn on each of the brokers; each asks, and the answers reach it."""
    driver.make_topic("TRANSACTION", queues=1)
    producer = driver.start("producer", checks=True)
    wanted = [f"{end} {driver.topic} {number}" for number in range(4) for end in ("commit", "rollback")]
    for body in wanted:
        driver.call("send_half", name=producer, topic=driver.topic, transaction=body, body=body)
    consumer = driver.start("simple")
    committed = [body for body in wanted if body.startswith("commit")]
    assert sorted(bodies(driver.receive(consumer, count=len(committed)))) == sorted(committed)
    assert driver.call("receive", name=consumer) == []
    driver.stop_all()


def test_nothing_is_lost_while_the_proxy_is_killed_and_the_broker_serves_on(
    driver: GrpcDriver, brokers: tuple[str, KillableBroker, KillableBroker]
) -> None:
    namesrv, broker, _ = brokers
    driver.make_topic("NORMAL")
    producer, sent = driver.start("producer"), []
    for life in range(3):
        before = proxy_process(broker)
        for number in range(5):
            sent.append(f"{life}-{number}")
            driver.call("send", name=producer, topic=driver.topic, messages=[{"body": sent[-1]}])
        os.kill(before, signal.SIGKILL)
        with Producer(group="remoting", namesrv=namesrv) as remoting:  # the broker needs no proxy
            remoting.send(Message(driver.topic, f"{life}-remoting".encode()))
        sent.append(f"{life}-remoting")
        wait_until(lambda before=before: has_other_proxy(broker, before), what="the broker starts its proxy again")
        wait_until(lambda: sends(driver, producer), what="the proxy serves where it did")
    assert set(sent) <= set(bodies(receive_all(driver, set(sent))))
    driver.stop_all()


def has_other_proxy(broker: KillableBroker, before: int) -> bool:
    try:
        return proxy_process(broker) != before
    except (ValueError, OSError):  # between two of them, or gone while this looks
        return False


def sends(driver: GrpcDriver, producer: str) -> bool:
    try:
        driver.call("send", name=producer, topic=driver.topic, messages=[{"body": "again"}])
    except JavaAgentError:
        return False
    return True


def receive_all(driver: GrpcDriver, wanted: set[str]) -> list[dict[str, object]]:
    """Receive and acknowledge until all wanted bodies were there."""
    consumer, found = driver.start("simple"), []
    wait_until(
        lambda: found.extend(driver.receive(consumer, count=0)) or wanted <= set(bodies(found)),
        what="all messages are received",
    )
    return found


def test_what_a_client_holds_comes_back_when_the_broker_stops(
    driver: GrpcDriver, brokers: tuple[str, KillableBroker, KillableBroker]
) -> None:
    """At SIGTERM the proxy lets go of it first, while its broker still takes requests."""
    broker = brokers[1]
    driver.make_topic("NORMAL", queues=1)
    holder = driver.start("push", work_s=600.0)
    driver.send({"body": "one"}, {"body": "two"}, {"body": "three"}, {"body": "four"})
    assert len(driver.pushed(holder, count=4)) == 4
    process_id, stops = broker.process_id, broker.log_text().count("helper stopped")
    broker.stop()
    # The signal went to all its processes, as systemd sends it: the tier process went on until the proxy had ended.
    assert broker.log_text().count("helper stopped") == stops
    broker.start()
    assert broker.process_id != process_id
    # It goes to the client again, which runs on. Left alone, it would be invisible for a minute from its delivery.
    handed = driver.pushed(holder, count=4, timeout_s=45)
    assert sorted(bodies(handed)) == ["four", "one", "three", "two"]


def test_a_proxy_ends_with_its_broker(brokers: tuple[str, KillableBroker, KillableBroker]) -> None:
    broker = brokers[2]
    process_id = proxy_process(broker)
    os.kill(broker.process_id, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{process_id}").exists(), what="the proxy is gone")
    broker.kill()  # its other processes
    broker.start()
    assert proxy_process(broker) != process_id


@pytest.mark.full
def test_a_consumer_reads_history_from_the_bucket(
    driver: GrpcDriver, brokers: tuple[str, KillableBroker, KillableBroker]
) -> None:
    namesrv, *pair = brokers
    driver.make_topic("NORMAL", queues=2)
    filler = f"{driver.topic}Filler"
    driver.admin.create_topic(filler, queue_nums=2)
    with Producer(group="history", namesrv=namesrv) as producer:
        results = [
            producer.send(Message(driver.topic, f"{number:04}".encode() + b"x" * 1_000))
            for number in range(HISTORY_COUNT)
        ]
        ends = {
            result.queue.broker_name: decode_message_id(result.offset_message_id).physical_offset for result in results
        }
        assert ends.keys() == {"broker-a", "broker-b"}

        def local_files_are_gone() -> bool:
            for _ in range(100):
                producer.send(Message(filler, b"x" * 4_000))
            return all(broker.first_local_offset() > ends[broker.name] for broker in pair)

        wait_until(local_files_are_gone, what="the messages' local files are deleted", interval_s=0.5)
    # A new group starts at the end of a queue whose first messages are not in memory, as with RocketMQ.
    driver.make_group()
    driver.admin.reset_offsets(driver.group, driver.topic, timestamp_ms=0)
    found = bodies(driver.receive(driver.start("simple"), count=HISTORY_COUNT))
    assert Counter(int(body[:4]) for body in found) == Counter(range(HISTORY_COUNT))
    driver.stop_all()


def test_with_access_control_clients_sign_as_at_the_broker(agent: ForeignAgent, tmp_path: Path) -> None:
    """The proxy has the access control of its broker, and refusals are in an audit log beside the broker's."""
    access_key, secret_key = "inner", "inner-secret"
    credentials = {"accessKey": access_key, "secretKey": secret_key}
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "innerClientAuthenticationCredentials": json.dumps(credentials),
    }
    with (
        name_server(tmp_path) as namesrv,
        KillableBroker(tmp_path / "broker", namesrv, settings=settings, has_proxy=True) as broker,
        AdminClient(namesrv=namesrv, credentials=Credentials(access_key=access_key, secret_key=secret_key)) as admin,
    ):
        wait_until(lambda: len(admin.cluster_info()) == 1, what="the broker is registered")
        user = Credentials(access_key="app", secret_key="app-secret")
        admin.create_user(user.access_key, user.secret_key)
        admin.set_acl("User:app", ["Topic:*", "Group:*"], ["Pub", "Sub"])
        with grpc_python_agent(have(ROCKETMQ_GRPC_PYTHON.find), tmp_path / "signing", credentials=user) as signing:
            driver = GrpcDriver(signing, admin, broker.proxy_address)
            driver.make_topic("NORMAL")
            driver.send({"body": "signed"})
            assert bodies(driver.receive(driver.start("simple"), count=1)) == ["signed"]
            driver.stop_all()
        unsigned = GrpcDriver(agent, admin, broker.proxy_address)
        unsigned.topic = driver.topic
        with pytest.raises(JavaAgentError, match="route"):
            unsigned.send({"body": "forged"})
        audit_log = tmp_path / "broker" / "store" / "thermocline" / "audit.log.proxy"
        wait_until(lambda: denials_in(audit_log, None), what="the refusal is noted")
        assert {line["reason"] for line in denials_in(audit_log, None)} == {"username cannot be null."}
        broker.check_log()


def test_a_broker_whose_proxy_has_no_port_does_not_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = merged_words(str(taken.getsockname()[1]))
        place = ("--data", str(tmp_path / "store"), "--listen", FREE_PORT, "--namesrv", "127.0.0.1:1")
        process = daemon("broker", *place, *words, directory=tmp_path)
        wait_until(lambda: not process.is_running, what="it has ended", timeout_s=READY_TIMEOUT_S)
    assert "the proxy cannot serve" in process.output()
    assert not any(sign in process.output() for sign in ("ready broker", *SIGNS_OF_BUGS))
    assert process.stop() == 1
