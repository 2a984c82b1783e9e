"""A proxy in front of two brokers of which one is frozen by SIGSTOP, under the official Python client for gRPC."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_driver import GrpcDriver
from tests.interop.grpc_python_agent import grpc_python_agent
from tests.interop.killable_broker import KillableBroker, name_server
from tests.interop.proxy_daemons import BROKER_SETTINGS, running_proxy
from tests.waiting import wait_until
from thermocline.client import AdminClient
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON

pytestmark = pytest.mark.xdist_group("interop-grpc")

FROZEN_S = 12.0
BETWEEN_SENDS_S = 0.05


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[ForeignAgent]:
    with grpc_python_agent(have(ROCKETMQ_GRPC_PYTHON.find), tmp_path / "agent") as running:
        yield running


def test_a_frozen_broker_gets_no_sends_until_it_answers(agent: ForeignAgent, tmp_path: Path) -> None:
    with (
        name_server(tmp_path) as namesrv,
        KillableBroker(tmp_path / "a", namesrv, name="broker-a", settings=BROKER_SETTINGS) as first,
        KillableBroker(tmp_path / "b", namesrv, name="broker-b", settings=BROKER_SETTINGS) as second,
        running_proxy(tmp_path / "proxy", namesrv=namesrv) as (endpoint, _),
        AdminClient(namesrv=namesrv) as admin,
    ):
        wait_until(lambda: len(admin.cluster_info()) == 2, what="both brokers are registered")
        driver = GrpcDriver(agent, admin, endpoint)
        driver.make_topic("NORMAL", queues=4)
        producer = driver.start("producer")

        def send(number: int) -> float:
            started = time.monotonic()
            driver.call("send", name=producer, topic=driver.topic, messages=[{"body": str(number)}])
            return time.monotonic() - started

        def count(broker_name: str) -> int:
            return sum(
                each.max_offset
                for each in driver.admin.topic_stats(driver.topic)
                if each.queue.broker_name == broker_name
            )

        for number in range(8):
            send(number)
        assert (count("broker-a"), count("broker-b")) == (4, 4)
        group = os.getpgid(second.process_id)
        os.killpg(group, signal.SIGSTOP)
        try:
            times, until = [], time.monotonic() + FROZEN_S
            while time.monotonic() < until:
                times.append(send(len(times)))
                time.sleep(BETWEEN_SENDS_S)
        finally:
            os.killpg(group, signal.SIGCONT)
        # One waited for the frozen broker, until its client sent it again; no later one did.
        assert sum(seconds > 1 for seconds in times) == 1, times
        before = count("broker-b")
        wait_until(lambda: send(0) < 1 and count("broker-b") > before + 1, what="the broker gets sends again")
        driver.stop_all()
        first.check_log()
        second.check_log()
