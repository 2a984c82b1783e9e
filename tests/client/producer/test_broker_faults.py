"""Which brokers are left alone, and until when: the table of the official client."""

from __future__ import annotations

import pytest

from tests.clock import Clock
from thermocline.client.producer.broker_faults import BrokerFaults
from thermocline.client.producer.options import ProducerOptions
from thermocline.remoting.errors import InvalidRequestError


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000)


@pytest.fixture
def faults(clock: Clock) -> BrokerFaults:
    options = ProducerOptions()
    return BrokerFaults(
        latency_max_ms=options.latency_max_ms,
        not_available_duration_ms=options.not_available_duration_ms,
        clock=lambda: clock.now_ms / 1_000,
    )


@pytest.mark.parametrize(
    ("latency_ms", "seconds"),
    [(0, 0), (549, 0), (550, 2), (1_799, 2), (1_800, 5), (3_000, 6), (5_000, 10), (14_999, 10), (15_000, 30)],
)
def test_the_slower_a_send_the_longer_its_broker_is_left_alone(
    faults: BrokerFaults, clock: Clock, latency_ms: int, seconds: int
) -> None:
    faults.succeeded("slow", latency_ms=latency_ms)
    assert faults.is_available("slow") == (seconds == 0)
    assert bool(faults) == (seconds > 0)
    clock.now_ms += seconds * 1_000 - 1
    assert faults.is_available("slow") == (seconds == 0)
    clock.now_ms += 1
    assert faults.is_available("slow")
    assert faults.is_reachable("slow")
    assert faults.is_available("other")


def test_a_failure_counts_as_a_send_of_ten_seconds(faults: BrokerFaults, clock: Clock) -> None:
    faults.failed("gone", is_reachable=False)
    clock.now_ms += 9_999
    assert not faults.is_available("gone")
    assert not faults.is_reachable("gone")
    clock.now_ms += 1
    assert faults.is_available("gone")
    assert not faults.is_reachable("gone"), "time alone does not bring it back"


def test_a_faster_send_does_not_shorten_the_time(faults: BrokerFaults, clock: Clock) -> None:
    faults.failed("b", is_reachable=False)
    faults.succeeded("b", latency_ms=600)
    faults.succeeded("b", latency_ms=1)
    assert faults.is_reachable("b")
    clock.now_ms += 9_999
    assert not faults.is_available("b")
    faults.succeeded("b", latency_ms=600)
    clock.now_ms += 1_999
    assert not faults.is_available("b"), "a slow send makes it longer"


def test_a_probe_says_that_it_is_there_and_no_more(faults: BrokerFaults) -> None:
    faults.failed("b", is_reachable=False)
    faults.reached("b")
    assert faults.is_reachable("b")
    assert not faults.is_available("b")
    faults.reached("unknown")
    faults.forget("b")
    assert not faults


def test_tables_that_do_not_match_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="belong together"):
        ProducerOptions(latency_max_ms=(1, 2), not_available_duration_ms=(1,))
    with pytest.raises(InvalidRequestError, match="rises"):
        ProducerOptions(latency_max_ms=(2, 1), not_available_duration_ms=(1, 2))
