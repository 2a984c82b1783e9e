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
    ("changes", "name"),
    [
        ({"log_file_bytes": 100}, "mappedFileSizeCommitLog"),
        ({"queue_file_bytes": 30}, "mappedFileSizeConsumeQueue"),
        ({"queue_file_bytes": 0}, "mappedFileSizeConsumeQueue"),
        ({"index_slot_count": 0}, "maxHashSlotNum"),
        ({"index_entry_count": 1}, "maxIndexNum"),
        ({"flush_interval_ms": -1}, "flushIntervalCommitLog"),
        ({"sync_flush_timeout_ms": 0}, "syncFlushTimeout"),
        ({"derived_sync_interval_ms": 0}, "derivedSyncIntervalMs"),
        ({"message_bytes_max": 0}, "maxMessageSize"),
        ({"topic_bytes_max": 0}, "topicBytesMax"),
        ({"system_topic_bytes_max": 256}, "systemTopicBytesMax"),
        ({"delete_files_max": 0}, "deleteFileBatchMax"),
        ({"disk_used_ratio_max": 0.9, "disk_used_ratio_force": 0.8}, "diskMaxUsedSpaceRatio"),
        ({"disk_used_ratio_max": float("nan")}, "diskMaxUsedSpaceRatio"),
        ({"open_queue_files_max": 0}, "openQueueFilesMax"),
        ({"message_delay_level": "5x"}, "messageDelayLevel"),
        ({"message_delay_level": " "}, "messageDelayLevel"),
        ({"message_delay_level": "\u00b2s"}, "messageDelayLevel"),
        ({"message_delay_level": "\u0663s"}, "messageDelayLevel"),
        ({"message_delay_level": "1.5s"}, "messageDelayLevel"),
        ({"message_delay_level": "99999999999d"}, "messageDelayLevel"),
    ],
)
def test_impossible_settings_are_named(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameterError, match=name) as caught:
        StoreConfig(root_path="/store", **changes)
    assert caught.value.context["setting"] == name


def test_delay_levels() -> None:
    assert parse_delay_levels("1s 2m  3h 4d") == (1_000, 120_000, 10_800_000, 345_600_000)
