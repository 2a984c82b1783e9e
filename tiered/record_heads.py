"""The fixed heads of many records at once, as NumPy rows: what sealing needs to know of a record without decoding it.

Layout of a record: remoting/message_record.py. Rows are right for IPv4 hosts and topics of at most 127 bytes, nearly
all there is; the functions here look at the others one by one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.message_record import (
    MAGIC_V1,
    MAGIC_V2,
    POSITION_BODY,
    POSITION_BODY_SIZE,
    POSITION_MAGIC,
    POSITION_PHYSICAL_OFFSET,
    POSITION_QUEUE_ID,
    POSITION_QUEUE_OFFSET,
    POSITION_SIZE,
    POSITION_STORE_TIMESTAMP,
    POSITION_SYS_FLAG,
    RECORD_BYTES_MIN,
    decode_record,
)
from thermocline.remoting.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from thermocline.tiered.frame import record_store_timestamp_ms

RECORD_HEAD = np.dtype(
    {
        "names": ["size", "magic", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_ms", "body_bytes"],
        "formats": [">i4", ">i4", ">i4", ">i8", ">i8", ">i4", ">i8", ">i4"],
        "offsets": [
            POSITION_SIZE,
            POSITION_MAGIC,
            POSITION_QUEUE_ID,
            POSITION_QUEUE_OFFSET,
            POSITION_PHYSICAL_OFFSET,
            POSITION_SYS_FLAG,
            POSITION_STORE_TIMESTAMP,
            POSITION_BODY_SIZE,
        ],
        "itemsize": POSITION_BODY,
    }
)
_HOSTS_V6 = BORN_HOST_V6 | STORE_HOST_V6


def read_heads(raw: bytes, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    """The fixed heads of the records at `positions`, one RECORD_HEAD row each."""
    if int(sizes.min()) < RECORD_BYTES_MIN:
        raise CorruptDataError("a record is smaller than its head", size_bytes=int(sizes.min()))
    # One row at every byte, without copying; indexing then copies just the rows that start a record.
    windows: npt.NDArray[np.void] = np.ndarray((len(raw) - POSITION_BODY + 1,), RECORD_HEAD, raw, strides=(1,))
    heads: npt.NDArray[np.void] = windows[positions]
    return heads


def check_heads(heads: npt.NDArray[np.void], sizes: npt.NDArray[np.int64], *, queue_id: int, start_offset: int) -> None:
    """CorruptDataError unless each record is the whole one that the queue should hold at its offset."""
    expected = np.arange(start_offset, start_offset + len(sizes))
    right = (heads["size"] == sizes) & ((heads["magic"] == MAGIC_V1) | (heads["magic"] == MAGIC_V2))
    right &= (heads["queue_id"] == queue_id) & (heads["queue_offset"] == expected) & (heads["body_bytes"] >= 0)
    if not right.all():
        offset = start_offset + int(np.argmin(right))
        raise CorruptDataError("not the record that the queue should hold", queue_id=queue_id, queue_offset=offset)


def store_timestamps_ms(
    raw: bytes, positions: npt.NDArray[np.int64], heads: npt.NDArray[np.void]
) -> npt.NDArray[np.int64]:
    """The records' store times; read one by one only where the born host is IPv6."""
    store_ms = heads["store_ms"].astype(np.int64)
    for index in np.flatnonzero(heads["sys_flag"] & BORN_HOST_V6).tolist():
        store_ms[index] = record_store_timestamp_ms(raw, int(positions[index]))
    return store_ms


def properties_positions(
    raw: bytes, positions: npt.NDArray[np.int64], heads: npt.NDArray[np.void]
) -> npt.NDArray[np.int64]:
    """Where each record's properties start; found field by field only for what is not IPv4 with a short topic."""
    topic_starts = positions + POSITION_BODY + heads["body_bytes"]
    data = np.frombuffer(raw, np.uint8)
    topic_bytes = data[np.minimum(topic_starts, len(raw) - 1)].astype(np.int64)
    starts: npt.NDArray[np.int64] = topic_starts + 1 + topic_bytes + 2
    unusual = (heads["magic"] != MAGIC_V1) | ((heads["sys_flag"] & _HOSTS_V6) != 0)
    for index in np.flatnonzero(unusual).tolist():
        record = decode_record(raw, int(positions[index]), check_crc=False)
        starts[index] = positions[index] + record.size_bytes - len(record.properties_text)
    return starts
