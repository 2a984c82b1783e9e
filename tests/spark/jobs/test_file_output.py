"""Which files in a folder that Spark wrote hold rows."""

from __future__ import annotations

import pytest

from thermocline.spark.jobs.file_output import is_data


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("part-00000-9b2.snappy.parquet", True),
        ("day=2026-01-31/tag=_odd.name/part-00000.json", True),
        ("_SUCCESS", False),
        ("day=2026-01-31/.part-00000.json.crc", False),
        # Of an attempt that speculation, or an executor that was cut off, has left behind: it may still be writing.
        ("_temporary/0/_temporary/attempt_2_m_000001_7/part-00000.parquet", False),
        ("_temporary/0/_temporary/attempt_2_m_000001_7/day=2026-01-31/part-00000.parquet", False),
    ],
)
def test_files_of_unfinished_attempts_hold_no_rows(name: str, is_one: bool) -> None:
    assert is_data(name) is is_one
