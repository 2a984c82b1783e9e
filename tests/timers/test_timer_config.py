"""Settings of the timers."""

from __future__ import annotations

import pytest

from tests.timers.timer_parts import timer_config
from thermocline.remoting.errors import InvalidParameterError
from thermocline.timers.timer_config import TimerConfig, supported_precision_ms


def test_the_defaults_are_rocketmqs() -> None:
    config = TimerConfig(root_path="/store")
    assert config.wheel_span_ms == 14 * 86_400_000
    assert config.roll_window_ms == 2 * 86_400_000
    assert config.roll_spread_slots == 3_600
    assert (config.delay_ms_max, config.precision_ms, config.log_file_bytes) == (259_200_000, 1_000, 104_857_600)
    assert config.checkpoint_path == "/store/config/timercheck"


@pytest.mark.parametrize("slots", [0, 1, 7 * 86_400 - 59, 10**9])
def test_a_window_that_does_not_suit_the_wheel_is_its_greatest(slots: int) -> None:
    assert TimerConfig(root_path="/store", roll_window_slots=slots).roll_window_ms == (7 * 86_400 - 60) * 1_000


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(1, 100), (100, 100), (199, 100), (200, 200), (499, 200), (500, 500), (999, 500), (1_000, 1_000), (60_000, 1_000)],
)
def test_precisions_as_rocketmq_takes_them(asked: int, expected: int) -> None:
    assert supported_precision_ms(asked) == expected


@pytest.mark.parametrize("name", ["precision_ms", "delay_ms_max", "log_file_bytes", "round_interval_ms", "wheel_slots"])
def test_an_impossible_setting_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameterError):
        timer_config(**{name: 7 if name == "precision_ms" else 0})
