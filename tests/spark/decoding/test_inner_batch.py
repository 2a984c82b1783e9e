"""One stored record that stands for several messages, taken apart as the official clients do."""

from __future__ import annotations

import pytest

from tests.spark.sample_records import ALL_COLUMNS, HOST_V6, compressed_record, record
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.records import sys_flag as flags
from thermocline.remoting.records.batch import BatchMessage, encode_batch
from thermocline.remoting.records.message_record import decode_record
from thermocline.remoting.records.record_heads import read_heads
from thermocline.remoting.records.sys_flag import CompressionType
from thermocline.spark.decoding.arrow_decoder import ArrowDecoder, RowSelection
from thermocline.spark.decoding.inner_batch import inner_batches, unwrap_records

BATCH_FLAGS = flags.NEED_UNWRAP | flags.INNER_BATCH
BATCH = encode_batch([BatchMessage(b"one", b"TAGS\x01A\x02", 7), BatchMessage(b"", b"", 0), BatchMessage(b"three")])


def test_each_message_gets_its_own_offset_flag_body_and_properties() -> None:
    records = record(4) + record(5, BATCH, b"INNER_NUM\x013\x02", sys_flag=BATCH_FLAGS, reconsume_times=2) + record(8)
    rows = ArrowDecoder(ALL_COLUMNS).decode(records).to_pylist()
    seen = [(row["queueOffset"], row["value"], row["flag"], row["tag"], row["reconsumeTimes"]) for row in rows]
    assert seen == [
        (4, b"body", 0, None, 0),
        (5, b"one", 7, "A", 0),
        (6, b"", 0, None, 0),
        (7, b"three", 0, None, 0),
        (8, b"body", 0, None, 0),
    ]
    assert {row["topic"] for row in rows} == {"orders"}
    assert [row["properties"] for row in rows[1:4]] == [[("TAGS", "A")], [], []]


def test_a_compressed_batch_with_ipv6_hosts_is_taken_apart_too() -> None:
    stored = compressed_record(
        5, BATCH, CompressionType.LZ4, sys_flag=BATCH_FLAGS, born_host=HOST_V6, store_host=HOST_V6
    )
    unwrapped = unwrap_records(read_heads(stored))
    first = decode_record(unwrapped, check_crc=False)
    assert (first.queue_offset, first.body, first.born_host) == (5, b"one", HOST_V6)
    assert first.sys_flag & flags.COMPRESSED == 0
    assert first.sys_flag & BATCH_FLAGS == BATCH_FLAGS


def test_rows_of_a_batch_are_selected_one_by_one() -> None:
    stored = record(5, BATCH, sys_flag=BATCH_FLAGS)
    batch = ArrowDecoder(("queueOffset",)).decode(stored, RowSelection(start_offset=6, end_offset=7))
    assert batch.column(0).to_pylist() == [6]


def test_one_flag_alone_makes_no_batch() -> None:
    heads = read_heads(record(0, BATCH, sys_flag=flags.INNER_BATCH) + record(1, BATCH, sys_flag=flags.NEED_UNWRAP))
    assert inner_batches(heads).tolist() == [False, False]


def test_a_batch_that_ends_early_names_its_offset() -> None:
    with pytest.raises(CorruptDataError, match="queue_offset=5"):
        ArrowDecoder().decode(record(5, BATCH[:-3], sys_flag=BATCH_FLAGS))
