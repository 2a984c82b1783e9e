"""Proxies that stop, are killed, or are one of several, under RocketMQ's official Python client for gRPC.

What is acknowledged to a producer reaches a consumer, whichever proxy is there; what a client held comes back.
"""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.fixtures_tools import have
from tests.interop.cluster import Daemons, thermocline_daemons
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_python_agent import grpc_python_agent
from tests.interop.java_agent import JavaAgentError
from tests.interop.proxy_daemons import BROKER_SETTINGS, running_proxy
from tests.waiting import wait_until
from thermocline.client import AdminClient
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON

pytestmark = pytest.mark.xdist_group("interop-grpc")

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def daemons(new_module_folder: Callable[[str], Path]) -> Iterator[Daemons]:
    """A NameServer and a broker."""
    with thermocline_daemons(new_module_folder("outages"), settings=BROKER_SETTINGS) as running:
        yield running


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[ForeignAgent]:
    """One for each test: some leave clients behind whose proxy is gone."""
    with grpc_python_agent(have(ROCKETMQ_GRPC_PYTHON.find), tmp_path / "agent") as running:
        yield running


@pytest.fixture
def topic(daemons: Daemons) -> str:
    return make_topic(daemons, "NORMAL")


def make_topic(daemons: Daemons, message_type: str) -> str:
    name = f"Outage{next(_numbers)}"
    with AdminClient(namesrv=daemons.namesrv) as admin:
        admin.create_topic(name, queue_nums=2, attributes={"message.type": message_type})
    return name


def receive_until(agent: ForeignAgent, name: str, wanted: set[str], *, timeout_s: float = 60.0) -> list[str]:
    """Receive and acknowledge until every wanted body was there; all that came."""
    found: list[str] = []
    deadline = time.monotonic() + timeout_s
    while not wanted <= set(found):
        assert time.monotonic() < deadline, f"missing: {wanted - set(found)}"
        try:
            messages: list[dict[str, Any]] = agent.call("receive", name=name)
        except JavaAgentError:
            continue  # the proxy is not there at the moment
        for message in messages:
            found.append(message["body"])
            agent.call("ack", name=name, message_id=message["message_id"])
    return found


def test_a_client_that_checks_certificates_sends_by_tls(daemons: Daemons, topic: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.issue("p.pem", "p.key", subject="proxy", addresses=["127.0.0.1"])
    settings = {"tlsCertPath": str(certificate), "tlsKeyPath": str(key), "tls.server.mode": "enforcing"}
    wheels = have(ROCKETMQ_GRPC_PYTHON.find)
    with (
        running_proxy(tmp_path / "proxy", namesrv=daemons.namesrv, settings=settings) as (endpoint, _),
        grpc_python_agent(wheels, tmp_path / "trusting", authority=authority.path) as trusting,
    ):
        trusting.call("start_producer", name="producer", endpoint=endpoint, topics=[topic], tls=True)
        (receipt,) = trusting.call("send", name="producer", topic=topic, messages=[{"body": "sealed"}])
        assert len(receipt["message_id"]) == 34
        trusting.call("stop", name="producer")


def test_a_listener_that_takes_long_gets_its_message_once(
    daemons: Daemons, agent: ForeignAgent, topic: str, tmp_path: Path
) -> None:
    settings = {"defaultInvisibleTimeMills": "2000", "renewAheadTimeMillis": "1500", "renewSchedulePeriodMillis": "100"}
    with running_proxy(tmp_path / "proxy", namesrv=daemons.namesrv, settings=settings) as (endpoint, _):
        place = {"endpoint": endpoint, "topic": topic, "group": f"{topic}-group"}
        agent.call("start_push", name="slow", work_s=5.0, **place)
        agent.call("start_producer", name="producer", endpoint=endpoint, topics=[topic])
        agent.call("send", name="producer", topic=topic, messages=[{"body": "slow"}])
        assert [message["attempt"] for message in agent.taken("slow", count=1)] == [1]
        # Twice the invisible time later the same listener still works; a message behind it shows that the client polls.
        agent.call("send", name="producer", topic=topic, messages=[{"body": "next"}])
        assert [message["body"] for message in agent.taken("slow", count=1)] == ["next"]
        assert agent.call("received", name="slow", count=1, timeout_ms=7_000) == []
        for name in ("slow", "producer"):
            agent.call("stop", name=name)


def test_a_transaction_ends_through_another_proxy(daemons: Daemons, agent: ForeignAgent, tmp_path: Path) -> None:
    topic = make_topic(daemons, "TRANSACTION")
    with running_proxy(tmp_path / "first", namesrv=daemons.namesrv) as (first, _):
        system = {"messageId": "01" * 17, "messageType": "TRANSACTION", "bodyEncoding": "IDENTITY"}
        message = {"topic": {"name": topic}, "body": base64.b64encode(b"half").decode(), "systemProperties": system}
        answer = agent.call("rpc", endpoint=first, method="SendMessage", request={"messages": [message]})
        (entry,) = answer["answers"][0]["entries"]
    with running_proxy(tmp_path / "second", namesrv=daemons.namesrv) as (second, _):
        end = {"topic": {"name": topic}, "messageId": "01" * 17, "transactionId": entry["transactionId"]}
        end["resolution"] = "COMMIT"
        answer = agent.call("rpc", endpoint=second, method="EndTransaction", request=end)
        assert answer["answers"] == [{"status": {"code": "OK", "message": "OK"}}]
        agent.call("start_simple", name="simple", endpoint=second, topic=topic, group=f"{topic}-group")
        assert receive_until(agent, "simple", {"half"}) == ["half"]
        agent.call("stop", name="simple")


def test_brokers_forget_a_transactional_producer_that_leaves(
    daemons: Daemons, agent: ForeignAgent, tmp_path: Path
) -> None:
    """Else they would close the proxy's connection two minutes later, with the requests of all its clients."""
    topic = make_topic(daemons, "TRANSACTION")

    def is_announced() -> bool:
        producers = admin.list_producers().get(topic, [])
        return any(producer.client_id.startswith("rmq-proxy-producer-client") for producer in producers)

    with (
        AdminClient(namesrv=daemons.namesrv) as admin,
        running_proxy(tmp_path / "proxy", namesrv=daemons.namesrv) as (endpoint, _),
    ):
        agent.call("start_producer", name="leaving", endpoint=endpoint, topics=[topic], checks=True)
        wait_until(is_announced, what="the broker has a producer to ask")
        agent.call("stop", name="leaving")
        wait_until(lambda: not is_announced(), what="the broker asks no more", timeout_s=30)


def test_what_a_client_held_comes_back_at_once_when_its_proxy_stops(
    daemons: Daemons, agent: ForeignAgent, topic: str, tmp_path: Path
) -> None:
    group = f"{topic}-group"
    with running_proxy(tmp_path / "second", namesrv=daemons.namesrv) as (second, _):
        with running_proxy(tmp_path / "first", namesrv=daemons.namesrv) as (first, _):
            agent.call("start_producer", name="producer", endpoint=first, topics=[topic])
            agent.call("start_push", name="holder", endpoint=first, topic=topic, group=group, work_s=600.0)
            agent.call("send", name="producer", topic=topic, messages=[{"body": "held"}])
            agent.taken("holder", count=1)
        stopped = time.monotonic()
        agent.call("start_simple", name="simple", endpoint=second, topic=topic, group=group)
        assert receive_until(agent, "simple", {"held"}) == ["held"]
        # Left alone, the message would be invisible for a minute from its delivery.
        assert time.monotonic() - stopped < 45


def test_no_message_is_lost_while_a_proxy_is_killed_again_and_again(
    daemons: Daemons, agent: ForeignAgent, topic: str, tmp_path: Path
) -> None:
    endpoint, sent = "127.0.0.1:0", []
    for life in range(3):
        with running_proxy(tmp_path / "proxy", namesrv=daemons.namesrv, listen=endpoint, is_killed=True) as (
            address,
            _,
        ):
            endpoint = address  # each life has the port of the first one
            if not life:
                agent.call("start_producer", name="producer", endpoint=endpoint, topics=[topic])
                place = {"endpoint": endpoint, "topic": topic, "group": f"{topic}-group"}
                agent.call("start_simple", name="simple", **place)
            for number in range(20):
                body = f"{life}-{number}"
                wait_until(lambda body=body: send_once(agent, topic, body), what=f"{body} is sent")  # type: ignore[misc]
                sent.append(body)
            # Held, and not acknowledged. The consumer's channel may still wait before it connects to the new proxy.
            wait_until(lambda: receive_once(agent), what="the consumer reaches the proxy")
    with running_proxy(tmp_path / "proxy", namesrv=daemons.namesrv, listen=endpoint):
        assert set(receive_until(agent, "simple", set(sent), timeout_s=120)) == set(sent)


def send_once(agent: ForeignAgent, topic: str, body: str) -> bool:
    try:
        agent.call("send", name="producer", topic=topic, messages=[{"body": body}])
    except JavaAgentError:
        return False
    return True


def receive_once(agent: ForeignAgent) -> bool:
    try:
        agent.call("receive", name="simple", count=8, invisible_s=10)
    except JavaAgentError:
        return False
    return True
