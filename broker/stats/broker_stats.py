"""Broker statistics: messages and bytes put and got by topics and groups, for mqadmin and the runtime information.

The hot path adds to a topic's meter once per run of its messages, calls `add_stored` once per chunk and `add_get` once
per pull; everything else is derived from meters (stats_meter.py) and rates (store_rates.py) on request.

    statistic                            key             shows
    TOPIC_PUT_NUMS, TOPIC_PUT_SIZE       topic           messages, bytes stored
    GROUP_GET_NUMS, GROUP_GET_SIZE       topic@group     messages, bytes handed out
    SNDBCK_PUT_NUMS                      topic@group     messages sent back by consumers
    DLQ_PUT_NUMS                         topic@group     messages that ended in the dead-letter topic
    GROUP_CK_NUMS, GROUP_ACK_NUMS        topic@group     POP check points made, messages acknowledged
    BROKER_PUT_NUMS, BROKER_GET_NUMS     cluster name    all messages
    BROKER_CK_NUMS, BROKER_ACK_NUMS      cluster name    all check points and acknowledgements

What delay levels deliver counts for the group SCHEDULE_CONSUMER of SCHEDULE_TOPIC_XXXX, as with RocketMQ.
`clients_put_count` and `clients_got_count` leave system topics out: a delayed message counts once, in its own topic.

Owner: the hot process's event loop; `sample` is to be called every second.
Source: store/stats/BrokerStatsManager.java, broker/BrokerStats.java, Apache RocketMQ 5.3.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime

import msgspec

from thermocline.broker.stats.stats_meter import KEYS_MAX, Meter, MeterSet, Window, WindowSum
from thermocline.broker.stats.store_rates import StoreRates
from thermocline.remoting.topic_validation import SCHEDULE_TOPIC, is_system_topic

SCHEDULE_GROUP = "SCHEDULE_CONSUMER"
"""RocketMQ's name for what takes messages out of the delay levels."""


class StatsView(msgspec.Struct, frozen=True, kw_only=True):
    """One statistic over its three windows."""

    minute: WindowSum
    hour: WindowSum
    day: WindowSum


class DayTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Messages since start without those of system topics, as they stood at the last two midnights."""

    yesterday_morning: int = 0
    today_morning: int = 0


class BrokerStats:
    """All statistics of one broker."""

    def __init__(
        self,
        *,
        cluster_name: str,
        now_ms: int,
        keys_max: int = KEYS_MAX,
        is_system_topic: Callable[[str], bool] = is_system_topic,
    ) -> None:
        """`is_system_topic`: whether a topic is the broker's own."""
        self._is_system_topic = is_system_topic
        self._system_put: dict[str, Meter] = {}
        self._system_put_removed = 0
        self.clients_got_count = 0
        """Messages that were handed out, but of system topics."""
        self.rates = StoreRates(now_ms=now_ms)
        self.looked_up_bytes = 0
        """Bytes of records that were answered to queries by key and by id: no group's, and in no rate of RocketMQ's."""
        self._cluster_name = cluster_name
        self._topic_put = MeterSet(now_ms=now_ms, keys_max=keys_max, on_created=self._put_meter_created)
        self._group_get = MeterSet(now_ms=now_ms, keys_max=keys_max)
        self._send_back = MeterSet(now_ms=now_ms, keys_max=keys_max)
        self._dead_letter = MeterSet(now_ms=now_ms, keys_max=keys_max)
        self._group_check_points = MeterSet(now_ms=now_ms, keys_max=keys_max)
        self._group_ack = MeterSet(now_ms=now_ms, keys_max=keys_max)
        self._broker_check_points = MeterSet(now_ms=now_ms, keys_max=keys_max)
        self._broker_ack = MeterSet(now_ms=now_ms, keys_max=keys_max)
        self._broker_put = MeterSet(now_ms=now_ms, keys_max=keys_max)
        self._broker_get = MeterSet(now_ms=now_ms, keys_max=keys_max)
        # Statistic name -> its meters, and whether it shows messages or bytes.
        self._named: dict[str, tuple[MeterSet, bool]] = {
            "TOPIC_PUT_NUMS": (self._topic_put, True),
            "TOPIC_PUT_SIZE": (self._topic_put, False),
            "GROUP_GET_NUMS": (self._group_get, True),
            "GROUP_GET_SIZE": (self._group_get, False),
            "SNDBCK_PUT_NUMS": (self._send_back, True),
            "DLQ_PUT_NUMS": (self._dead_letter, True),
            "GROUP_CK_NUMS": (self._group_check_points, True),
            "GROUP_ACK_NUMS": (self._group_ack, True),
            "BROKER_CK_NUMS": (self._broker_check_points, True),
            "BROKER_ACK_NUMS": (self._broker_ack, True),
            "BROKER_PUT_NUMS": (self._broker_put, True),
            "BROKER_GET_NUMS": (self._broker_get, True),
        }
        self._group_meters = (
            self._group_get,
            self._send_back,
            self._dead_letter,
            self._group_check_points,
            self._group_ack,
        )
        self._today = _day(now_ms)
        self.put_day_totals = DayTotals()
        self.get_day_totals = DayTotals()

    def add_put(self, topic: str, count: int, bytes_: int) -> None:
        """`count` messages of `bytes_` record bytes in all were stored in a topic."""
        self._topic_put.add(topic, count, bytes_)
        self.add_stored(count, bytes_)

    def put_meter(self, topic: str) -> Meter:
        """The meter of a topic's puts, until the topic is removed. A caller that adds to it also calls `add_stored`."""
        return self._topic_put.find_or_create(topic)

    def add_stored(self, count: int, bytes_: int) -> None:
        """So much was stored, whatever the topics: once per chunk."""
        self._broker_put.add(self._cluster_name, count, bytes_)
        self.rates.put_count += count
        self.rates.put_bytes += bytes_

    def add_put_failed(self, count: int = 1) -> None:
        """`count` messages were refused by the store."""
        self.rates.put_failed_times += count

    def add_get(self, topic: str, group: str, count: int, bytes_: int) -> None:
        """One pull handed `count` messages of `bytes_` bytes in all to a group."""
        self._group_get.add(f"{topic}@{group}", count, bytes_)
        self._broker_get.add(self._cluster_name, count, bytes_)
        if not self._is_system_topic(topic):
            self.clients_got_count += count
        self.rates.found_times += 1
        self.rates.transferred_count += count
        self.rates.transferred_bytes += bytes_

    def add_scheduled(self, bytes_: int) -> None:
        """One message of a delay level has gone to its topic."""
        self._group_get.add(f"{SCHEDULE_TOPIC}@{SCHEDULE_GROUP}", 1, bytes_)

    @property
    def clients_put_count(self) -> int:
        """Messages that were stored since start, but in system topics."""
        in_system_topics = self._system_put_removed + sum(meter.count for meter in self._system_put.values())
        return self.rates.put_count - in_system_topics

    @property
    def served_bytes(self) -> int:
        """Bytes of records that were sent to clients."""
        return self.rates.transferred_bytes + self.looked_up_bytes

    def add_get_miss(self, count: int = 1) -> None:
        """`count` pulls found nothing."""
        self.rates.missed_times += count

    def add_send_back(self, topic: str, group: str) -> None:
        """A consumer sent one message of a topic back."""
        self._send_back.add(f"{topic}@{group}", 1)

    def add_dead_letter(self, topic: str, group: str) -> None:
        """One message of a topic ended in a group's dead-letter topic."""
        self._dead_letter.add(f"{topic}@{group}", 1)

    def add_check_point(self, topic: str, group: str) -> None:
        """A group got messages of one queue by a POP."""
        self._group_check_points.add(f"{topic}@{group}", 1)
        self._broker_check_points.add(self._cluster_name, 1)

    def add_ack(self, topic: str, group: str, count: int) -> None:
        """A group acknowledged `count` messages."""
        self._group_ack.add(f"{topic}@{group}", count)
        self._broker_ack.add(self._cluster_name, count)

    def topic_put_totals(self) -> dict[str, tuple[int, int]]:
        """Messages and record bytes stored since start, of each topic that any were."""
        return {
            topic: (meter.count, meter.bytes)
            for topic in self._topic_put
            if (meter := self._topic_put.get(topic)) is not None
        }

    def topic_put_per_second(self, topic: str) -> float:
        """Messages per second put into a topic over the last minute."""
        return _per_second(self._topic_put, topic)

    def group_get_per_second(self, topic: str, group: str) -> float:
        """Messages per second handed out to a group from a topic over the last minute."""
        return _per_second(self._group_get, f"{topic}@{group}")

    def view(self, name: str, key: str) -> StatsView | None:
        """One statistic; None when there is none of that name or nothing was ever added for the key."""
        meters, shows_count = self._named.get(name, (None, True))
        meter = None if meters is None else meters.get(key)
        if meter is None:
            return None
        shown = meter.count_sum if shows_count else meter.bytes_sum
        return StatsView(minute=shown(Window.MINUTE), hour=shown(Window.HOUR), day=shown(Window.DAY))

    def remove_topic(self, topic: str) -> None:
        """Forget a deleted topic."""
        self._topic_put.remove(topic)
        for meters in self._group_meters:
            for key in [key for key in meters if key.partition("@")[0] == topic]:
                meters.remove(key)

    def remove_group(self, group: str) -> None:
        """Forget a deleted group."""
        for meters in self._group_meters:
            for key in [key for key in meters if key.partition("@")[2] == group]:
                meters.remove(key)

    def sample(self, now_ms: int) -> None:
        """Take the samples that are due, and note the totals at midnight, local time."""
        self.rates.sample(now_ms)
        for meters in (
            self._topic_put,
            *self._group_meters,
            self._broker_put,
            self._broker_get,
            self._broker_check_points,
            self._broker_ack,
        ):
            meters.sample(now_ms)
        today = _day(now_ms)
        if today != self._today:
            self._today = today
            self.put_day_totals = DayTotals(
                yesterday_morning=self.put_day_totals.today_morning, today_morning=self.clients_put_count
            )
            self.get_day_totals = DayTotals(
                yesterday_morning=self.get_day_totals.today_morning, today_morning=self.clients_got_count
            )

    def _put_meter_created(self, meter: Meter) -> None:
        if self._is_system_topic(meter.key):
            before = self._system_put.get(meter.key)
            self._system_put_removed += 0 if before is None else before.count
            self._system_put[meter.key] = meter


def _per_second(meters: MeterSet, key: str) -> float:
    meter = meters.get(key)
    return 0.0 if meter is None else meter.count_sum(Window.MINUTE).per_second


def _day(now_ms: int) -> date:
    return datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone().date()
