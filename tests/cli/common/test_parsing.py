"""Durations and times as people write them."""

from __future__ import annotations

import importlib.util

import click
import pytest

from thermocline.cli.common import parsing
from thermocline.cli.common.output import bytes_text, for_people, heading
from thermocline.cli.common.parsing import DURATION, MOMENT, SIZE, TIME, duration_text


@pytest.mark.parametrize(
    ("text", "duration_ms"), [("90s", 90_000), ("12h", 43_200_000), ("1d 12h", 129_600_000), ("5ms", 5), ("0s", 0)]
)
def test_durations(text: str, duration_ms: int) -> None:
    assert DURATION.convert(text, None, None) == duration_ms


@pytest.mark.parametrize("text", ["", "90", "1x", "h", "1h30", "-1h"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        DURATION.convert(text, None, None)


def test_types_before_click_8_4(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take no parameters: no command began."""

    class ParamType:
        """As it was."""

    monkeypatch.setattr(click, "ParamType", ParamType)
    spec = importlib.util.spec_from_file_location("parsing_again", parsing.__file__)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert again.DURATION.convert("90s", None, None) == 90_000


def test_durations_are_written_back() -> None:
    assert duration_text(129_600_000) == "1d12h"
    assert duration_text(0) == "0s"
    assert duration_text(None) == "for ever"


def test_a_duration_is_at_most_a_long() -> None:
    for text in ("9" * 18 + "d", "9" * 5_000 + "s"):
        assert DURATION.convert(text, None, None) == 2**63 - 1


def test_times() -> None:
    assert TIME.convert("earliest", None, None) == 0
    assert TIME.convert("latest", None, None) == -1
    assert TIME.convert("1795275620696", None, None) == 1795275620696
    assert TIME.convert("2026-05-01T12:00:00+00:00", None, None) == 1777636800000
    assert TIME.convert("now", None, None) > 1_700_000_000_000
    for text in ("1969-12-31T23:59:59.999+00:00", "1960-01-01"):  # brokers take what is negative for the end
        assert TIME.convert(text, None, None) == MOMENT.convert(text, None, None) == 0
    for text in ("tomorrow", "9" * 19, "9" * 5_000):
        with pytest.raises(click.BadParameter):
            TIME.convert(text, None, None)


def test_sizes() -> None:
    assert SIZE.convert("512MiB", None, None) == 512 << 20
    for text in ("0", "5 PiB", "9" * 5_000, "9" * 18 + "TiB"):
        with pytest.raises(click.BadParameter):
            SIZE.convert(text, None, None)


def test_a_moment_is_no_end_of_a_queue() -> None:
    assert MOMENT.convert("earliest", None, None) == 0
    assert MOMENT.convert("1795275620696", None, None) == 1795275620696
    with pytest.raises(click.BadParameter, match="latest"):
        MOMENT.convert("latest", None, None)


def test_values_for_people() -> None:
    assert for_people("x", None) == "-"
    assert for_people("x", True) == "yes"
    assert for_people("store_timestamp_ms", 0) == "-"
    assert for_people("store_timestamp_ms", 1_795_275_620_696).startswith("2026-")
    assert for_people("stored_bytes", 1536) == "1.5 KiB"
    assert for_people("attributes", {"a": 1}) == "a=1"
    assert for_people("names", ["a", "b"]) == "a b"
    assert for_people("names", []) == "-"
    assert for_people("body", "a\x1b[2Jb\nc") == "a\\x1b[2Jb\\nc"
    assert for_people("body", "grün 消息") == "grün 消息"
    assert bytes_text(5 * 1024**6) == "5120.0 PiB"
    assert heading("store_timestamp_ms") == "store"
    assert heading("max_offset") == "max offset"
