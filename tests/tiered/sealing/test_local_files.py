"""Local files as the tier process reads them: what sealing has read does not stay in its memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.store.files.test_disk import mapped_bytes_in_memory
from thermocline.store.files.disk import RealDisk
from thermocline.tiered.sealing.local_files import FAULT_BYTES, LEAVE_FAULTS, LocalLog

MIB = 1 << 20
FILE_BYTES = 16 * MIB
FILE_COUNT = 5
RECORD_BYTES = 1_000
FOLIO_BYTES_MAX = 2 * MIB
"""Where the page cache keeps a file in large pieces, touching a page maps one."""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell what is mapped")
def test_a_log_that_is_read_through_does_not_stay_in_memory(tmp_path: Path) -> None:
    for number in range(FILE_COUNT):
        (tmp_path / f"{number * FILE_BYTES:020}").write_bytes(bytes([number + 1]) * FILE_BYTES)
    log, most = LocalLog(RealDisk(), path=str(tmp_path), file_bytes=FILE_BYTES), 0
    first = log.record(0, RECORD_BYTES)
    for physical_offset in range(0, FILE_COUNT * FILE_BYTES - RECORD_BYTES, RECORD_BYTES):
        if physical_offset % FILE_BYTES + RECORD_BYTES > FILE_BYTES:
            continue
        record = log.record(physical_offset, RECORD_BYTES)
        assert record[0] == record[-1] == physical_offset // FILE_BYTES + 1
        if physical_offset % (MIB // 2) < RECORD_BYTES:
            most = max(most, mapped_bytes_in_memory(str(tmp_path)))
    assert 0 < most <= LEAVE_FAULTS * FAULT_BYTES + 2 * FOLIO_BYTES_MAX
    assert bytes(first) == bytes([1]) * RECORD_BYTES, "a slice stays what it was"
    log.close()
