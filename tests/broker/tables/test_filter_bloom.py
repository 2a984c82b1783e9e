"""Bit positions are those of the official library."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from thermocline.broker.tables.filter_bloom import BIT_COUNT, bloom_of

_PROGRAM = Path(__file__).parent / "java" / "BloomPositions.java"
_ANSWER_TIMEOUT_S = 120.0

# Group and topic, so long that murmur3 meets no block, one, several, and every length of a rest.
RECORDED: dict[tuple[str, str], tuple[int, ...]] = {
    ("", ""): (3, 62, 22),
    ("G", "T"): (24, 26, 83),
    ("billing", "orders"): (31, 20, 9),
    ("a-group", "sixteen!"): (59, 14, 81),
    ("a-group", "a-topic-that-has-more-than-one-block"): (70, 32, 8),
    ("gr\u00fcppe", "\u4e3b\u9898"): (70, 103, 90),
}


def test_positions_are_the_recorded_ones() -> None:
    assert {key: bloom_of(*key).bit_pos for key in RECORDED} == RECORDED
    assert {bloom_of(*key).bit_num for key in RECORDED} == {BIT_COUNT}


@pytest.mark.java
def test_any_name_has_the_official_positions(jdk_home: Path, official_jars: Path) -> None:
    names = [*RECORDED, *[("g" * count, "t" * (count // 3) + "\u00e9\u4e16") for count in range(80)]]
    finished = subprocess.run(
        [str(jdk_home / "bin" / "java"), "-cp", str(official_jars / "*"), str(_PROGRAM)],
        input="".join([f"{group}#{topic}\n" for group, topic in names]),
        capture_output=True,
        timeout=_ANSWER_TIMEOUT_S,
        encoding="utf-8",
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    blooms = [bloom_of(*name) for name in names]
    assert finished.stdout.splitlines() == [f"{bloom.bit_num} {list(bloom.bit_pos)}" for bloom in blooms]
