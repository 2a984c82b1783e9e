"""Traces that a proxy writes for RocketMQ's official Python client for gRPC, read as any client's traces.

Covers `proxy/flow/traces.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop.cluster import thermocline_daemons
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_driver import GrpcDriver
from tests.interop.grpc_python_agent import grpc_python_agent
from tests.interop.proxy_daemons import BROKER_SETTINGS, running_proxy
from tests.waiting import wait_until
from thermocline.client import AdminClient
from thermocline.client.trace.trace_records import (
    ConsumeOutcome,
    MessageKind,
    PublishTrace,
    SubscribeAfterTrace,
    SubscribeBeforeTrace,
    TraceRecord,
)
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON

pytestmark = pytest.mark.xdist_group("interop-grpc")


@pytest.fixture(scope="module")
def place(new_module_folder: Callable[[str], Path]) -> Iterator[tuple[str, str]]:
    """Where the NameServer and the proxy serve."""
    directory = new_module_folder("traces")
    with (
        thermocline_daemons(directory, settings={**BROKER_SETTINGS, "traceTopicEnable": "true"}) as daemons,
        running_proxy(directory / "proxy", namesrv=daemons.namesrv, settings={"traceOn": "true"}) as (endpoint, _),
    ):
        yield daemons.namesrv, endpoint


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[ForeignAgent]:
    with grpc_python_agent(have(ROCKETMQ_GRPC_PYTHON.find), tmp_path) as running:
        yield running


@pytest.fixture
def admin(place: tuple[str, str]) -> Iterator[AdminClient]:
    with AdminClient(namesrv=place[0]) as running:
        yield running


def records_of(admin: AdminClient, message_id: str, count: int) -> list[TraceRecord]:
    """The records of a message, once there are so many; traces follow what they tell of."""
    found: list[TraceRecord] = []

    def are_there() -> bool:
        found[:] = [step.record for step in admin.message_trace(message_id)]
        return len(found) >= count

    wait_until(are_there, what=f"{count} trace records", interval_s=0.2)
    return found


def test_a_message_is_traced_from_its_send_to_its_acknowledgement(
    agent: ForeignAgent, admin: AdminClient, place: tuple[str, str]
) -> None:
    driver = GrpcDriver(agent, admin, place[1])
    driver.make_topic("NORMAL")
    (receipt,) = driver.send({"body": "traced", "tag": "TagA", "keys": ["order-1"]})
    driver.receive(driver.start("simple"), count=1)
    published, before, after = records_of(admin, receipt["message_id"], 3)
    assert isinstance(published, PublishTrace)
    assert (published.group, published.topic, published.tags, published.keys) == (
        *(driver.topic, driver.topic),
        *("TagA", "order-1"),
    )
    assert (published.body_bytes, published.kind, published.succeeded) == (6, MessageKind.NORMAL, True)
    assert published.region == "DefaultRegion"
    assert isinstance(before, SubscribeBeforeTrace)
    assert isinstance(after, SubscribeAfterTrace)
    assert before.request_id == after.request_id
    assert (before.group, before.keys, before.retry_times) == (driver.group, "order-1", 0)
    assert (after.group, after.outcome, after.succeeded) == (driver.group, ConsumeOutcome.SUCCESS, True)
    assert published.timestamp_ms <= before.timestamp_ms
    driver.stop_all()
