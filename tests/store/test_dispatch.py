"""Dispatch: which unit a record stands for."""

from __future__ import annotations

import pytest

from thermocline.remoting.string_hash import tags_code
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.dispatch import SCHEDULE_TOPIC, delay_of_level_ms, has_unit, unit_tags_code

LEVELS_MS = StoreConfig(root_path="/").delay_levels_ms


def code_of(topic: str, properties: bytes) -> int:
    return unit_tags_code(topic, properties, store_timestamp_ms=1_000_000, delay_levels_ms=LEVELS_MS)


def test_tags_code_is_the_tags_hash() -> None:
    assert code_of("t", b"KEYS\x01k\x02TAGS\x01TagA\x02") == tags_code("TagA") == 2598919
    assert code_of("t", "TAGS\x01Größe".encode()) == tags_code("Größe")
    assert code_of("t", b"") == 0


def test_a_delayed_message_has_the_time_of_its_delivery() -> None:
    assert code_of(SCHEDULE_TOPIC, b"DELAY\x013\x02TAGS\x01a\x02") == 1_010_000
    assert code_of(SCHEDULE_TOPIC, b"DELAY\x0118\x02") == 1_000_000 + 2 * 3_600_000
    assert code_of(SCHEDULE_TOPIC, b"DELAY\x0199\x02") == 1_000_000 + 2 * 3_600_000
    for odd in (b"DELAY\x010\x02TAGS\x01a\x02", b"DELAY\x01x\x02TAGS\x01a\x02", b"TAGS\x01a\x02"):
        assert code_of(SCHEDULE_TOPIC, odd) == tags_code("a")
    assert code_of("t", b"DELAY\x013\x02TAGS\x01a\x02") == tags_code("a")


def test_levels() -> None:
    assert len(LEVELS_MS) == 18
    assert [delay_of_level_ms(level, LEVELS_MS) for level in (1, 4, 18, 19)] == [1_000, 30_000, 7_200_000, 7_200_000]
    assert delay_of_level_ms(1, ()) == 1_000


@pytest.mark.parametrize("sys_flag", [0, 8, 0x701])
def test_records_with_a_unit(sys_flag: int) -> None:
    assert has_unit(sys_flag)


@pytest.mark.parametrize("sys_flag", [4, 12, 0x80, 0xC0])
def test_records_without_a_unit(sys_flag: int) -> None:
    assert not has_unit(sys_flag)
