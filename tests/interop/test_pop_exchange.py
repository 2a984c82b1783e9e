"""Messages in consumers' hands when a store changes brokers: at the other one, what was acknowledged stays so, and the
rest comes back when its time is up. Queues that are popped in order go on where they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.cluster import Cluster, broker_config, official_cluster, store_directory_of, thermocline_cluster
from tests.interop.java_agent import JavaAgent, ReceivedMessage
from tests.interop.popping import OK, Popping, indexes, produce
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("pop-exchange")]

TOPIC = "PopExchange"
ORDERED_TOPIC = "PopExchangeOrdered"
GROUP, ORDERED_GROUP = "pop-exchange", "pop-exchange-ordered"
SENT = 12
INVISIBLE_MS, SHORT_INVISIBLE_MS = 45_000, 15_000
"""The other broker has that long to start, a JVM or ours; on a slow machine twice that, and twice that again."""
TRIES = 3
COME_BACK_S = 120.0


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class TooSlowError(Exception):
    """What was popped is visible before the other broker serves."""


def with_time_to_start(check: Callable[[Path, int], None], folder: Path, *, invisible_ms: int) -> None:
    """`check(folder, invisible_ms)` with a time in which the other broker does start."""
    for number in range(TRIES):
        try:
            check(folder / str(number), invisible_ms << number)
        except TooSlowError:
            continue
        return
    raise AssertionError("no broker starts that late")


def leave_in_flight(cluster: Cluster, *, popped_ms: int, invisible_ms: int) -> None:
    """Pop two topics, one of them in order, and acknowledge the messages of even number.

    Raises:
        TooSlowError: They were visible again before that was done.
    """
    cluster.make_topic(TOPIC)
    cluster.make_topic(ORDERED_TOPIC, queue_count=1)
    for topic, group, in_order in ((TOPIC, GROUP, False), (ORDERED_TOPIC, ORDERED_GROUP, True)):
        produce(cluster, topic, SENT)
        popping = Popping(cluster, topic, group)
        count = SENT // 2 if in_order else SENT
        for message in popping.pop_all(count, invisible_ms=invisible_ms, order=in_order):
            if int(message.properties["index"]) % 2 == 0:
                answer = popping.ack(message)
                if wall_clock_ms() >= popped_ms + invisible_ms:
                    raise TooSlowError
                assert answer == OK


def check_in_flight(cluster: Cluster, *, popped_ms: int, acked_come_again: bool, invisible_ms: int) -> None:
    """Everything that was not acknowledged comes, not before its time; what was does not.

    Raises:
        TooSlowError: Its time had come already.
    """
    popping = Popping(cluster, TOPIC, GROUP)
    ordered = Popping(cluster, ORDERED_TOPIC, ORDERED_GROUP)
    early = popping.pop() + ordered.pop(order=True)
    if wall_clock_ms() >= popped_ms + invisible_ms:
        raise TooSlowError
    assert early == []
    again = popping.pop_all(SENT // 2, timeout_s=COME_BACK_S)
    assert indexes(again) == list(range(1, SENT, 2))
    assert {message.reconsume_times for message in again} == {1}
    assert all(message.store_timestamp_ms >= popped_ms + invisible_ms for message in again)
    assert popping.batch_ack(again) == OK
    assert popping.pop(poll_ms=2_000) == []
    in_order: list[ReceivedMessage] = []
    while len(indexes(in_order)) < (11 if acked_come_again else 9):
        messages = ordered.pop_all(1, timeout_s=COME_BACK_S, order=True)
        in_order += messages
        assert {ordered.ack(message) for message in messages} == {OK}
    expected = list(range(1, SENT)) if acked_come_again else [1, 3, 5, *range(6, SENT)]
    assert [int(message.properties["index"]) for message in in_order] == expected


@pytest.mark.parametrize("ending", [pytest.param("stopped", marks=pytest.mark.full), "killed"])
def test_the_official_broker_goes_on_where_our_broker_ended(
    ending: str, official_software: OfficialSoftware, java_agent_process: JavaAgent, tmp_path: Path
) -> None:
    def check(folder: Path, invisible_ms: int) -> None:
        with thermocline_cluster(java_agent_process, folder / "ours") as cluster:
            popped_ms = wall_clock_ms()
            leave_in_flight(cluster, popped_ms=popped_ms, invisible_ms=invisible_ms)
            store_directory, sizes = store_directory_of(cluster)
            if ending == "killed":
                interval_ms = int(broker_config(cluster)["flushConsumerOffsetInterval"])
                time.sleep(2 * interval_ms / 1_000)  # the official broker has nothing but the files, written so often
                cluster.process.kill()
        with official_cluster(
            official_software,
            java_agent_process,
            folder / "official",
            store_directory=store_directory,
            properties=sizes,
        ) as cluster:
            check_in_flight(cluster, popped_ms=popped_ms, acked_come_again=True, invisible_ms=invisible_ms)

    with_time_to_start(check, tmp_path, invisible_ms=INVISIBLE_MS)


@pytest.mark.full
@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_our_broker_goes_on_where_it_ended(ending: str, java_agent_process: JavaAgent, tmp_path: Path) -> None:
    def check(folder: Path, invisible_ms: int) -> None:
        with thermocline_cluster(java_agent_process, folder) as cluster:
            popped_ms = wall_clock_ms()
            leave_in_flight(cluster, popped_ms=popped_ms, invisible_ms=invisible_ms)
            if ending == "killed":
                cluster.process.kill()
        with thermocline_cluster(java_agent_process, folder) as cluster:
            check_in_flight(cluster, popped_ms=popped_ms, acked_come_again=False, invisible_ms=invisible_ms)

    with_time_to_start(check, tmp_path, invisible_ms=SHORT_INVISIBLE_MS)


def test_our_broker_goes_on_where_the_official_one_ended(
    official_software: OfficialSoftware, java_agent_process: JavaAgent, tmp_path: Path
) -> None:
    """Its check points and acknowledgements wait in its timer wheel."""
    sizes = {"mappedFileSizeCommitLog": str(4 << 20), "mappedFileSizeTimerLog": str(1 << 20)}

    def check(folder: Path, invisible_ms: int) -> None:
        with official_cluster(
            official_software,
            java_agent_process,
            folder / "official",
            store_directory=folder / "ours" / "data" / "store",
            properties=sizes,
            ends_cleanly=True,
        ) as cluster:
            popped_ms = wall_clock_ms()
            leave_in_flight(cluster, popped_ms=popped_ms, invisible_ms=invisible_ms)
        with thermocline_cluster(java_agent_process, folder / "ours", settings=sizes) as cluster:
            check_in_flight(cluster, popped_ms=popped_ms, acked_come_again=False, invisible_ms=invisible_ms)

    with_time_to_start(check, tmp_path, invisible_ms=INVISIBLE_MS)
