"""Log columns: thousands of consecutive records of one log file, a field at a time.

What follows the log behind the watermark of another process (the index) asks the same of each record, so it reads each
field of all of them at once (remoting/records/record_heads.py): half a microsecond a record, two if read one by one.

    files, [start, end) -> LogColumns: the requested number of records, none of the next file

Only sound records are in it, in the sense of log_scan.py; what is behind the flush offset was checksummed when it was
made and is not checksummed again. A blank leads to the next file.
Source: CommitLog.checkMessageAndReturnSize, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.records.message_record import BLANK, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from thermocline.remoting.records.record_heads import Bytes, Integers, RecordHeads, read_heads_at
from thermocline.store.files import MappedFile, MappedFileQueue
from thermocline.store.log.log_scan import is_whole_blank


@dataclass(frozen=True, slots=True, kw_only=True)
class LogColumns:
    """Positions in `heads` count from the start of the log file, which is `heads.data`."""

    heads: RecordHeads
    end_offset: PhysicalOffset
    """Behind the last record; with no record, how far blanks led."""

    def __len__(self) -> int:
        return len(self.heads)


def read_columns(
    files: MappedFileQueue, start_offset: PhysicalOffset, *, end_offset: PhysicalOffset, count_max: int
) -> LogColumns:
    """The next records from `start_offset` (a record's border, or a file's) on, none that ends behind `end_offset`.

    Without a record the log is not sound at `LogColumns.end_offset`, or that is at `end_offset`.

    Raises:
        OffsetOutOfRangeError: No file has `start_offset`.
    """
    while True:
        file = files.find(start_offset)
        columns = _of_file(file, start_offset, end_offset=min(end_offset, file.end_offset), count_max=count_max)
        stop = columns.end_offset
        if len(columns) or end_offset < file.end_offset or not is_whole_blank(file.view, stop - file.base_offset):
            return columns
        start_offset = file.end_offset
        if start_offset >= min(end_offset, files.end_offset):
            return replace(columns, end_offset=start_offset)


def _of_file(
    file: MappedFile, start_offset: PhysicalOffset, *, end_offset: PhysicalOffset, count_max: int
) -> LogColumns:
    """Records of one file."""
    base_offset = file.base_offset
    positions = _walk(file.view, start_offset - base_offset, end_offset - base_offset, count_max)
    heads = _whole(np.frombuffer(file.view, np.uint8), positions[:-1], np.diff(positions))
    is_sound = heads.integers("physical_offset") == heads.starts + base_offset
    is_sound &= (heads.head["queue_id"] >= 0) & (heads.head["queue_offset"] >= 0) & (heads.topic_bytes > 0)
    if not is_sound.all():
        heads = heads.select(np.arange(int(np.argmin(is_sound))))
    return LogColumns(heads=heads, end_offset=base_offset + int(positions[len(heads)]))


def _whole(data: Bytes, starts: Integers, sizes: Integers) -> RecordHeads:
    """The heads of the records in front of the first whose parts do not add up."""
    try:
        return read_heads_at(data, starts, sizes)
    except CorruptDataError as error:
        count = int(np.searchsorted(starts, int(str(error.context["position"]))))
    return _whole(data, starts[:count], sizes[:count])


def _walk(view: memoryview, position: int, stop: int, count_max: int) -> Integers:
    """Where the next records start, by their sizes; and, last, where the one behind them would."""
    positions = [position]
    unpack_from = BLANK.unpack_from
    while position + RECORD_BYTES_MIN <= stop and len(positions) <= count_max:
        size_bytes, magic = unpack_from(view, position)
        position += size_bytes
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size_bytes < RECORD_BYTES_MIN or position > stop:
            break
        positions.append(position)
    return np.array(positions, np.int64)
