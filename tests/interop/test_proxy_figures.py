"""Figures of a proxy against what official clients sent and received: Java by remoting, Python by gRPC.

Covers `proxy/metrics/traffic.py` and `proxy/remoting/request_meter.py`.
"""

from __future__ import annotations

import re
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.interop import test_grpc_python
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_driver import bodies
from tests.interop.java_agent import JavaAgent
from tests.interop.proxy_daemons import DEPLOYMENTS, MERGED, SEPARATE, ProxyDaemons, proxy_daemons
from tests.interop.test_proxy_protocols import Both, texts
from tests.waiting import wait_until
from thermocline.client import AdminClient
from thermocline.localstack.loopback_port import free_port

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("interop-grpc")]

SAMPLE = re.compile(r"^(?P<name>\w+)\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')

agent = test_grpc_python.agent
admin = test_grpc_python.admin


Read = Callable[..., Counter[tuple[str, ...]]]


@pytest.fixture(scope="module")
def health_port() -> int:
    return free_port()


@pytest.fixture(scope="module", params=DEPLOYMENTS)
def daemons(
    request: pytest.FixtureRequest, health_port: int, new_module_folder: Callable[[str], Path]
) -> Iterator[ProxyDaemons]:
    settings = {"healthPort": str(health_port)}
    with proxy_daemons(new_module_folder("figures"), request.param, settings=settings) as running:
        yield running


@pytest.fixture
def both(
    agent: ForeignAgent, admin: AdminClient, daemons: ProxyDaemons, java_agent_process: JavaAgent
) -> Iterator[Both]:
    running = Both(agent, admin, daemons, java_agent_process)
    yield running
    running.stop_all()


@pytest.fixture
def figures(request: pytest.FixtureRequest, health_port: int) -> Read:
    mode = {SEPARATE: "cluster", MERGED: "local"}[request.node.callspec.params["daemons"]]
    return partial(read_figures, health_port, mode)


def read_figures(health_port: int, mode: str, name: str, *shown: str, **wanted: str) -> Counter[tuple[str, ...]]:
    """The samples of a name with these labels, summed up by the labels `shown`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{health_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: Counter[tuple[str, ...]] = Counter()
    for sample in SAMPLE.finditer(text):
        labels = dict(LABEL.findall(sample["labels"]))
        if sample["name"] == name and wanted.items() <= labels.items():
            assert (labels["node_type"], labels["proxy_mode"]) == ("proxy", mode)
            found[tuple(labels[label] for label in shown)] += int(float(sample["value"]))
    return found


def test_messages_and_bytes_are_those_of_clients_of_both_protocols(both: Both, figures: Read) -> None:
    both.make_topic("NORMAL")
    other_group = f"{both.topic}-others"
    by_grpc = [f"{number}" for number in range(12)]
    both.send(*({"body": body} for body in by_grpc))
    by_remoting = both.remoting_send(9)
    consumer = both.remoting_consumer()
    everything = sorted(by_grpc + by_remoting)
    assert texts(both.remoting_received(consumer, len(everything))) == everything
    both.group = other_group
    assert sorted(bodies(both.receive(both.start("simple"), count=len(everything)))) == everything

    place = {"topic": both.topic}
    assert figures("rocketmq_messages_in_total", "protocol_type", "message_type", **place) == {
        ("grpc", "normal"): len(by_grpc),
        ("remoting", "normal"): len(by_remoting),
    }
    sizes = {"grpc": sum(map(len, by_grpc)), "remoting": sum(map(len, by_remoting))}
    assert figures("rocketmq_throughput_in_total", "protocol_type", **place) == {
        (protocol,): size for protocol, size in sizes.items()
    }
    shown = ("protocol_type", "consumer_group", "is_retry")
    groups = {("remoting", f"{both.topic}-group", "false"), ("grpc", other_group, "false")}
    assert figures("rocketmq_messages_out_total", *shown, **place) == dict.fromkeys(groups, len(everything))
    assert figures("rocketmq_throughput_out_total", *shown, **place) == dict.fromkeys(groups, sum(sizes.values()))


def test_messages_are_counted_by_their_type(both: Both, figures: Read) -> None:
    both.make_topic("FIFO")
    both.send(*({"body": str(number), "group": "one"} for number in range(4)))
    both.remoting_send(3, kind="ordered", shards=1, properties={"__SHARDINGKEY": "one"})
    fifo, both.topic = both.topic, f"{both.topic}Delay"
    both.make_topic("DELAY")
    both.send({"body": "later", "delay_s": 1})
    both.remoting_send(2, delay_level=1)
    shown = ("protocol_type", "message_type")
    assert figures("rocketmq_messages_in_total", *shown, topic=fifo) == {("grpc", "fifo"): 4, ("remoting", "fifo"): 3}
    assert figures("rocketmq_messages_in_total", *shown, topic=both.topic) == {
        ("grpc", "delay"): 1,
        ("remoting", "delay"): 2,
    }


def test_retries_are_counted_apart(both: Both, figures: Read) -> None:
    both.make_topic("NORMAL", queues=1)
    both.make_group(delays_ms=(500, 500, 500))
    both.send({"body": "again"})
    consumer = both.start("push", fails_below=1)
    assert bodies(both.pushed(consumer, count=2)) == ["again", "again"]
    wanted = {("false",): 1, ("true",): 1}
    wait_until(lambda: figures("rocketmq_messages_out_total", "is_retry", topic=both.topic) == wanted, what="both")


def test_requests_of_both_protocols_are_measured(both: Both, figures: Read) -> None:
    def counts() -> Counter[tuple[str, ...]]:
        shown = ("protocol_type", "request_code", "response_code")
        return figures("rocketmq_rpc_latency_count", *shown, result="success")

    both.make_topic("NORMAL")
    before = counts()
    both.send(*({"body": str(number)} for number in range(5)))
    both.remoting_send(7)
    more = counts() - before
    assert more[("grpc", "SendMessage", "ok")] == 5
    assert more[("remoting", "send_message_v2", "success")] == 7
    assert more[("remoting", "get_routeinfo_by_topic", "success")] >= 1
