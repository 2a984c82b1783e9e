"""Cases of RocketMQ's end-to-end suite that no other test has, by RocketMQ's official Python client.

The suite is apache/rocketmq-e2e; docs/grpc-cases.md says which test has which case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.full_cases import full
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_driver import GrpcDriver, bodies
from tests.interop.grpc_python_agent import grpc_python_agent
from tests.interop.java_agent import JavaAgentError
from tests.interop.proxy_daemons import ProxyDaemons, proxy_daemons
from tests.waiting import wait_until
from thermocline.client import EARLIEST, LATEST, AdminClient
from thermocline.remoting.bodies import SubscriptionGroupConfig
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON

pytestmark = pytest.mark.xdist_group("interop-grpc")

INVISIBLE_S = 1
SETTINGS = {"minInvisibleTimeMillsForRecv": str(INVISIBLE_S * 1_000)}
"""The suite waits for ten seconds each time."""


@pytest.fixture(scope="module")
def daemons(new_module_folder: Callable[[str], Path]) -> Iterator[ProxyDaemons]:
    """A NameServer, a broker and a proxy."""
    with proxy_daemons(new_module_folder("cases"), settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def admin(daemons: ProxyDaemons) -> Iterator[AdminClient]:
    with AdminClient(namesrv=daemons.namesrv) as running:
        yield running


@pytest.fixture(scope="module")
def agent(new_module_folder: Callable[[str], Path]) -> Iterator[ForeignAgent]:
    with grpc_python_agent(have(ROCKETMQ_GRPC_PYTHON.find), new_module_folder("grpc-python")) as running:
        yield running


@pytest.fixture
def driver(agent: ForeignAgent, admin: AdminClient, daemons: ProxyDaemons) -> Iterator[GrpcDriver]:
    running = GrpcDriver(agent, admin, daemons.endpoint)
    yield running
    running.stop_all()


def drained(driver: GrpcDriver, name: str, *, count: int) -> list[str]:
    """The bodies of `count` messages in their order, and of those that a further receive finds."""
    return sorted(bodies(driver.receive(name, count=count)) + bodies(driver.call("receive", name=name)))


# -- what is in a message ----------------------------------------------------------------------------------------------


def test_bodies_of_any_text_arrive_as_they_were_sent(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    texts = [" ", "中国字", "😀🚀"]
    driver.send(*({"body": text} for text in texts))
    assert drained(driver, driver.start("simple"), count=3) == sorted(texts)


# -- filters -----------------------------------------------------------------------------------------------------------

TAGS = {
    "one of two": ("tagA || tagB", {"tagA", "tagB"}),
    "blanks around": ("  tagA  ||   tagB  ", {"tagA", "tagB"}),
    "one": ("tagA", {"tagA"}),
    "none that was sent": ("tagC", set()),
    "another case": ("TAGA", {"TAGA"}),
    "special characters": ("*.?+&^%$#@!", {"*.?+&^%$#@!"}),
    "a blank inside": ("tag A", {"tag A"}),
    "a long one": ("t" * 1_000, {"t" * 1_000}),
    "Chinese": ("标签", {"标签"}),
}
SENT_TAGS = ["tagA", "tagB", "TAGA", "*.?+&^%$#@!", "tag A", "t" * 1_000, "标签"]


def test_tag_expressions_choose_by_the_whole_tag(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL", queues=1)
    driver.send(*({"body": tag, "tag": tag} for tag in SENT_TAGS))
    found = {}
    for name, (expression, wanted) in TAGS.items():
        driver.group = f"{driver.topic}-{list(TAGS).index(name)}"
        # A group that is new would begin behind what is stored.
        driver.admin.create_group(SubscriptionGroupConfig(group_name=driver.group))
        driver.admin.reset_offsets(driver.group, driver.topic, timestamp_ms=EARLIEST)
        found[name] = set(drained(driver, driver.start("simple", tag=expression), count=len(wanted)))
    assert found == {name: wanted for name, (_, wanted) in TAGS.items()}


SQL = {
    "no filter": ("", {"1", "2", "3"}),
    "one of two properties": ("regionId = 'hangzhou' AND price IS NOT NULL", {"2"}),
    "between": ("price BETWEEN 10 AND 20", {"2"}),
    "a property that no message has": ("unknown > 1", set()),
    "a property and the tag": ("TAGS = 'tagA' AND price < 10", {"1"}),
}


@pytest.mark.parametrize("message_type", ["NORMAL", *full("FIFO")])
def test_sql_expressions_choose_by_properties(driver: GrpcDriver, message_type: str) -> None:
    driver.make_topic(message_type, queues=1)
    shard = {"group": "one"} if message_type == "FIFO" else {}
    driver.send(
        {"body": "1", "tag": "tagA", "properties": {"price": "5"}, **shard},
        {"body": "2", "tag": "tagB", "properties": {"price": "15", "regionId": "hangzhou"}, **shard},
        {"body": "3", "tag": "tagC", "properties": {"regionId": "shanghai"}, **shard},
    )
    found = {}
    for number, (name, (expression, wanted)) in enumerate(SQL.items()):
        driver.group = f"{driver.topic}-{number}"
        driver.make_group(is_ordered=message_type == "FIFO")
        driver.admin.reset_offsets(driver.group, driver.topic, timestamp_ms=EARLIEST)
        found[name] = set(drained(driver, driver.start("simple", sql=expression), count=len(wanted)))
    assert found == {name: wanted for name, (_, wanted) in SQL.items()}


# -- groups ------------------------------------------------------------------------------------------------------------


def test_each_group_gets_every_message(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    groups = [driver.start("push", group=f"{driver.topic}-{number}") for number in range(2)]
    driver.send(*({"body": str(number)} for number in range(10)))
    for name in groups:
        assert sorted(bodies(driver.pushed(name, count=10))) == [str(number) for number in range(10)]


def test_a_group_that_is_moved_to_the_beginning_gets_everything_again(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL", queues=1)
    driver.send({"body": "0"}, {"body": "1"})
    consumer = driver.start("simple")
    driver.call("receive", name=consumer)  # the group begins with it
    driver.admin.reset_offsets(driver.group, driver.topic, timestamp_ms=EARLIEST)
    assert set(bodies(driver.receive(consumer, count=2))) == {"0", "1"}


def test_a_group_that_is_moved_to_the_end_gets_nothing_old(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL", queues=1)
    driver.send({"body": "0"})
    consumer = driver.start("simple")
    driver.receive(consumer, count=1)
    driver.send({"body": "1"}, {"body": "2"})
    driver.admin.reset_offsets(driver.group, driver.topic, timestamp_ms=LATEST)
    driver.send({"body": "3"})
    assert drained(driver, consumer, count=1) == ["3"]


def test_a_group_whose_tries_are_changed_has_the_new_ones(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    driver.make_group(retry_max_times=5)
    consumer = driver.start("push", fails_below=99)
    driver.make_group(retry_max_times=1)
    driver.send({"body": "bad"})
    assert [message["attempt"] for message in driver.pushed(consumer, count=2)] == [1, 2]
    wait_until(lambda: f"%DLQ%{driver.group}" in driver.admin.list_topics(include_system=True), what="dead letters")
    assert driver.call("received", name=consumer, count=1, timeout_ms=2_000) == []


def is_ordered(driver: GrpcDriver) -> bool:
    """Whether the settings that the proxy gives a member of the group say so."""
    subscription = {"group": {"name": driver.group}, "subscriptions": [{"topic": {"name": driver.topic}}]}
    settings = {"clientType": "SIMPLE_CONSUMER", "subscription": subscription}
    (answer,) = driver.call("telemetry", endpoint=driver.endpoint, settings=settings)["answers"]
    return bool(answer["settings"]["subscription"].get("fifo"))


def test_a_group_that_is_changed_to_order_gets_its_messages_in_order(driver: GrpcDriver) -> None:
    driver.make_topic("FIFO", queues=1)
    driver.make_group()
    consumer = driver.start("simple")
    driver.send({"body": "before", "group": "one"})
    driver.receive(consumer, count=1)
    driver.make_group(is_ordered=True)
    wait_until(lambda: is_ordered(driver), what="the proxy has the group's new configuration")
    driver.send(*({"body": str(number), "group": "one"} for number in range(3)))
    wait_until(lambda: driver.call("receive", name=consumer, count=1) != [], what="the first message")
    assert driver.call("receive", name=consumer, count=1) == []  # it waits for the acknowledgement


# -- simple consumers --------------------------------------------------------------------------------------------------


def test_an_empty_receive_takes_as_long_as_it_is_to(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    consumer = driver.start("simple", await_s=1)
    driver.call("receive", name=consumer)
    begun = time.monotonic()
    assert driver.call("receive", name=consumer) == []
    assert 0.9 < time.monotonic() - begun < 10


def test_a_handle_is_void_after_its_invisible_time(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    driver.send({"body": "late"})
    first, second = driver.start("simple"), driver.start("simple")
    wait_until(
        lambda: driver.call("receive", name=first, invisible_s=INVISIBLE_S) != [], what="the message", interval_s=0
    )
    again = driver.receive(second, count=1, acks=False)
    assert [message["attempt"] for message in again] == [2]
    with pytest.raises(JavaAgentError, match=r"(?i)receipt"):
        driver.call("ack", name=first, message_id=again[0]["message_id"])
    driver.call("ack", name=second, message_id=again[0]["message_id"])
    assert driver.call("receive", name=second) == []


def test_a_message_that_is_never_acknowledged_comes_as_often_as_the_group_says(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    driver.make_group(retry_max_times=1)
    driver.send({"body": "bad"})
    consumer = driver.start("simple")
    found = []
    for attempt in (1, 2):
        wait_until(
            lambda: found.extend(driver.call("receive", name=consumer, invisible_s=INVISIBLE_S)) or found,
            what=f"attempt {attempt}",
        )
        assert [message["attempt"] for message in found] == [attempt]
        found.clear()
    wait_until(lambda: f"%DLQ%{driver.group}" in driver.admin.list_topics(include_system=True), what="dead letters")
    assert driver.call("receive", name=consumer) == []


def test_messages_in_order_that_are_given_back_come_again_in_order(driver: GrpcDriver) -> None:
    driver.make_topic("FIFO", queues=1)
    driver.make_group(is_ordered=True)
    driver.send(*({"body": str(number), "group": "one"} for number in range(3)))
    consumer = driver.start("simple")
    held = driver.receive(consumer, count=3, acks=False)
    assert bodies(held) == ["0", "1", "2"]
    driver.call("ack", name=consumer, message_id=held[0]["message_id"])
    for message in held[1:]:
        driver.call("change", name=consumer, message_id=message["message_id"], invisible_s=INVISIBLE_S)
    assert bodies(driver.receive(consumer, count=2)) == ["1", "2"]


def test_a_time_that_has_passed_is_no_delay_and_one_beyond_a_day_is_refused(driver: GrpcDriver) -> None:
    driver.make_topic("DELAY")
    driver.send({"body": "passed", "delay_s": -15})
    assert drained(driver, driver.start("simple"), count=1) == ["passed"]
    with pytest.raises(JavaAgentError, match=r"(?i)delay"):
        driver.send({"body": "too late", "delay_s": 86_500})
