"""The timer settings that follow from the broker's settings."""

import pytest

from thermocline.broker.due.timer_settings import timer_config
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.broker_settings import BrokerSettings
from thermocline.broker.settings.setting_sources import load_settings
from thermocline.remoting.settings import PropertySource
from thermocline.store.config.store_config import StoreConfig
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.timers.timer_config import TimerConfig


def settings_of(broker: BrokerConfig) -> BrokerSettings:
    return BrokerSettings(broker=broker, store=StoreConfig(root_path="/store"), tier=TierConfig(), clock=lambda: 0)


def test_defaults_are_rocketmqs() -> None:
    assert timer_config(settings_of(BrokerConfig())) == TimerConfig(root_path="/store")


def test_a_file_written_for_rocketmq_counts() -> None:
    values = {
        "storePathRootDir": "/store",
        "timerPrecisionMs": "300",
        "timerRollWindowSlot": "1000",
        "timerMaxDelaySec": "31536000",
        "mappedFileSizeTimerLog": "1048576",
        "timerFlushIntervalMs": "500",
        "timerCongestNumEachSlot": "10000",
        "appendTopicForTimerDeleteKey": "true",
        "timerWheelEnable": "false",
        "recallMessageEnable": "true",
        "allowRecallWhenBrokerNotWriteable": "false",
    }
    loaded = load_settings([PropertySource(place="broker.conf", values=values)])
    assert not loaded.ignored
    assert timer_config(settings_of(loaded.broker)) == TimerConfig(
        root_path="/store",
        precision_ms=200,  # RocketMQ takes the next lower of those it has
        roll_window_slots=1_000,
        delay_ms_max=31_536_000_000,
        log_file_bytes=1_048_576,
        round_interval_ms=500,
        slot_count_max=10_000,
        topic_in_delete_key=True,
    )
    assert (loaded.broker.timer_wheel, loaded.broker.recall, loaded.broker.recall_when_not_writable) == (
        False,
        True,
        False,
    )


@pytest.mark.parametrize("precision_ms", [1, 99, 100, 101, 200, 499, 500, 999, 1_000, 60_000])
def test_every_precision_is_one_that_the_timers_have(precision_ms: int) -> None:
    config = timer_config(settings_of(BrokerConfig(timer_precision_ms=precision_ms)))
    assert config.precision_ms in (100, 200, 500, 1_000)
    assert config.precision_ms <= max(precision_ms, 100)
