"""Statistics: sums and rates over windows, and what is shown before a window has passed.

Covers `broker/stats/stats_meter.py`, `broker/stats/store_rates.py`.
"""

import time

import pytest

from thermocline.broker.stats.broker_stats import BrokerStats
from thermocline.broker.stats.stats_meter import MeterSet, Window
from thermocline.broker.stats.store_rates import StoreRates

START_MS = 1_700_000_000_000


def test_a_rate_is_the_sum_over_the_window() -> None:
    meters = MeterSet(now_ms=START_MS)
    meters.add("T", 100, 5_000)
    meters.sample(START_MS + 5_000)  # not due yet
    meter = meters.get("T")
    assert meter is not None
    assert meter.count_sum(Window.MINUTE).sum == 0
    meters.sample(START_MS + 10_000)
    assert meter.count_sum(Window.MINUTE).sum == 100
    assert meter.count_sum(Window.MINUTE).per_second == 10.0
    assert meter.bytes_sum(Window.MINUTE).per_second == 500.0
    assert meter.count_sum(Window.MINUTE).per_time == 100.0
    for step in range(2, 9):
        meters.sample(START_MS + step * 10_000)
    assert meter.count_sum(Window.MINUTE).sum == 0
    assert meter.count_sum(Window.HOUR).sum == 0
    meters.sample(START_MS + 600_000)
    assert meter.count_sum(Window.HOUR).sum == 100
    meters.sample(START_MS + 3_600_000)
    assert meter.count_sum(Window.DAY).sum == 100


def test_idle_meters_are_not_sampled() -> None:
    meters = MeterSet(now_ms=START_MS)
    for number in range(1_000):
        meters.add(f"T{number}", 1)
    for step in range(1, 10):
        meters.sample(START_MS + step * 10_000)
    assert len(meters._active[Window.MINUTE]) == 0
    meters.add("T7", 3)
    meters.sample(START_MS + 100_000)
    meter = meters.get("T7")
    assert meter is not None
    assert meter.count_sum(Window.MINUTE).sum == 3  # what came before the rest does not count
    meters.remove("T7")
    assert meters.get("T7") is None
    meters.sample(START_MS + 110_000)


def test_the_statistics_have_their_names() -> None:
    stats = BrokerStats(cluster_name="C", now_ms=START_MS)
    stats.add_put("T", 10, 1_000)
    stats.add_get("T", "G", 4, 400)
    stats.add_send_back("T", "G")
    stats.add_dead_letter("T", "G")
    stats.sample(START_MS + 10_000)
    assert stats.topic_put_per_second("T") == 1.0
    assert stats.group_get_per_second("T", "G") == 0.4
    assert stats.topic_put_per_second("unknown") == 0.0
    shown = {
        name: view.minute.sum
        for name, key in [
            ("TOPIC_PUT_NUMS", "T"),
            ("TOPIC_PUT_SIZE", "T"),
            ("GROUP_GET_NUMS", "T@G"),
            ("GROUP_GET_SIZE", "T@G"),
            ("SNDBCK_PUT_NUMS", "T@G"),
            ("DLQ_PUT_NUMS", "T@G"),
            ("BROKER_PUT_NUMS", "C"),
            ("BROKER_GET_NUMS", "C"),
        ]
        if (view := stats.view(name, key)) is not None
    }
    assert shown == {
        "TOPIC_PUT_NUMS": 10,
        "TOPIC_PUT_SIZE": 1_000,
        "GROUP_GET_NUMS": 4,
        "GROUP_GET_SIZE": 400,
        "SNDBCK_PUT_NUMS": 1,
        "DLQ_PUT_NUMS": 1,
        "BROKER_PUT_NUMS": 10,
        "BROKER_GET_NUMS": 4,
    }
    assert stats.view("TOPIC_PUT_NUMS", "unknown") is None
    assert stats.view("NO_SUCH_STATISTIC", "T") is None
    stats.remove_topic("T")
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    assert stats.view("GROUP_GET_NUMS", "T@G") is None


def test_totals_are_noted_at_midnight() -> None:
    stats = BrokerStats(cluster_name="C", now_ms=START_MS)
    day_ms = 24 * 3_600_000
    stats.add_put("T", 10, 1)
    stats.sample(START_MS + day_ms)
    stats.add_put("T", 5, 1)
    stats.sample(START_MS + 2 * day_ms)
    assert stats.put_day_totals.yesterday_morning == 10
    assert stats.put_day_totals.today_morning == 15


def test_the_day_is_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """As RocketMQ has it: `clusterList -m` shows what came since midnight of the operator's day."""
    monkeypatch.setenv("TZ", "UTC-8")  # the zone of Shanghai, 8 hours ahead
    time.tzset()
    try:
        stats = BrokerStats(cluster_name="C", now_ms=START_MS)  # 2023-11-15 06:13:20 there
        stats.add_put("T", 10, 1)
        before_midnight_ms = START_MS + 17 * 3_600_000
        stats.sample(before_midnight_ms)
        assert stats.put_day_totals.today_morning == 0
        stats.sample(before_midnight_ms + 3_600_000)
        assert stats.put_day_totals.today_morning == 10
    finally:
        monkeypatch.undo()
        time.tzset()


def test_totals_leave_system_topics_out() -> None:
    """A delayed message is stored twice, and counts once. Traces do not count."""
    stats = BrokerStats(
        cluster_name="C", now_ms=START_MS, is_system_topic=lambda topic: topic.startswith(("rmq_sys_", "Trace"))
    )
    meter = stats.put_meter("rmq_sys_wheel_timer")
    meter.add(3)
    stats.add_stored(3, 30)
    stats.add_put("Trace", 5, 50)
    stats.add_put("T", 2, 20)
    assert (stats.rates.put_count, stats.clients_put_count) == (10, 2)
    stats.remove_topic("Trace")
    assert stats.clients_put_count == 2
    stats.add_put("Trace", 1, 10)
    assert (stats.rates.put_count, stats.clients_put_count) == (11, 2)
    stats.add_get("Trace", "G", 4, 40)
    stats.add_get("T", "G", 1, 10)
    assert (stats.rates.transferred_count, stats.clients_got_count) == (5, 1)
    stats.sample(START_MS + 24 * 3_600_000)
    assert (stats.put_day_totals.today_morning, stats.get_day_totals.today_morning) == (2, 1)


def test_rates_are_empty_until_their_span_has_passed() -> None:
    rates = StoreRates(now_ms=START_MS)
    for second in range(1, 61):
        rates.put_count += 20
        rates.found_times += 1
        rates.sample(START_MS + second * 1_000)
    info = rates.runtime_info()
    assert info["putTps"] == "20.0 20.0 "
    assert info["getTotalTps"] == "1.0 1.0 0.0"
    assert info["putMessageTimesTotal"] == "1200"


@pytest.mark.parametrize(("elapsed_ms", "bucket"), [(0, 0), (1, 1), (9, 1), (10, 2), (9_999, 11), (10_000, 12)])
def test_put_times_fall_into_buckets(elapsed_ms: int, bucket: int) -> None:
    rates = StoreRates(now_ms=START_MS)
    rates.add_put_time(elapsed_ms, 3)
    rates.sample(START_MS + 60_000)
    counts = [int(part.partition(":")[2]) for part in rates.runtime_info()["putMessageDistributeTime"].split()]
    assert counts == [3 if index == bucket else 0 for index in range(13)]
    assert rates.runtime_info()["putMessageEntireTimeMax"] == str(elapsed_ms)


def test_percentiles_of_put_times() -> None:
    """Interpolated as by Apache RocketMQ's findPutMessageEntireTimePX; beyond the last bucket it is 10 s."""
    rates = StoreRates(now_ms=START_MS)
    for elapsed_ms in range(1, 1_001):
        rates.add_put_time(elapsed_ms, 1)
    assert rates.runtime_info()["putLatency99"] == "0.00", "the minute is not over"
    rates.sample(START_MS + 60_000)
    info = rates.runtime_info()
    assert (info["putLatency99"], info["putLatency999"]) == ("990.00", "999.00")
    rates.add_put_time(60_000, 1)
    rates.add_put_time(-5, 98)
    rates.sample(START_MS + 120_000)
    info = rates.runtime_info()
    assert (info["putLatency99"], info["putLatency999"]) == ("1.00", "1.00")
    rates.add_put_time(60_000, 3)
    rates.sample(START_MS + 180_000)
    assert rates.runtime_info()["putLatency99"] == "10000.00"
