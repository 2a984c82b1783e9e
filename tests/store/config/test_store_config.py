"""Settings of the store."""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.remoting.errors import InvalidParameterError
from thermocline.store.config.store_config import StoreConfig, parse_delay_levels


def test_defaults_are_apache_rocketmqs() -> None:
    config = StoreConfig(root_path="/store")
    assert config.log_file_bytes == 1_073_741_824
    assert config.queue_file_bytes == 6_000_000
    assert (config.index_slot_count, config.index_entry_count) == (5_000_000, 20_000_000)
    assert config.commit_log_path == "/store/commitlog"
    assert len(config.delay_levels_ms) == 18


@pytest.mark.parametrize(
    "changes",
    [
        {"log_file_bytes": 100},
        {"queue_file_bytes": 30},
        {"queue_file_bytes": 0},
        {"index_slot_count": 0},
        {"index_entry_count": 1},
        {"disk_used_ratio_max": 0.9, "disk_used_ratio_force": 0.8},
        {"open_queue_files_max": 0},
        {"message_delay_level": "5x"},
        {"message_delay_level": ""},
        {"message_delay_level": "\u00b2s"},
        {"message_delay_level": "99999999999d"},
        {"flush_interval_ms": 0},
        {"sync_flush_timeout_ms": -1},
        {"derived_sync_interval_ms": 0},
        {"message_bytes_max": 0},
        {"delete_files_max": 0},
    ],
)
def test_impossible_settings_are_named(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        StoreConfig(root_path="/store", **changes)


def test_delay_levels() -> None:
    assert parse_delay_levels("1s 2m  3h 4d") == (1_000, 120_000, 10_800_000, 345_600_000)
