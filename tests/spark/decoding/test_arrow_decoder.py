"""The decoder against the record codec, on records of every kind, and its selection and schema promises."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.message_rows import expected_rows, normal_rows
from tests.spark.sample_records import ALL_COLUMNS, HOST_V4, HOST_V6, TIME_MS, compressed_record, record
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.records import sys_flag as flags
from thermocline.remoting.records.batch import BatchMessage, encode_batch
from thermocline.remoting.records.compression import compress
from thermocline.remoting.records.sys_flag import CompressionType
from thermocline.spark.decoding import arrow_decoder
from thermocline.spark.decoding.arrow_decoder import ArrowDecoder, BadBodyError, BodiesTooLargeError, RowSelection
from thermocline.spark.decoding.message_columns import DEFAULT_COLUMNS, arrow_schema


def check_equal(records: bytes) -> None:
    batch = ArrowDecoder(ALL_COLUMNS, broker_name="broker-a").decode(records)
    batch.validate(full=True)
    assert batch.schema.equals(arrow_schema(ALL_COLUMNS))
    assert normal_rows(batch.to_pylist(maps_as_pydicts=None)) == expected_rows(records, broker_name="broker-a")


names = st.text(
    st.characters(blacklist_characters="\x00\x01\x02", blacklist_categories=["Cs"]), min_size=1, max_size=20
)
regular_properties = st.lists(
    st.tuples(st.one_of(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "UNIQ_KEYS"]), names), names), max_size=6
).map(lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode())
closed_or_open = st.tuples(regular_properties, st.booleans()).map(lambda drawn: drawn[0][:-1] if drawn[1] else drawn[0])
wild_properties = st.lists(
    st.sampled_from([b"\x00", b"\x01", b"\x02", b"TAGS", b"KEYS", b"a", "é".encode(), b"\xff", b"TAGS\x01x\x02"]),
    max_size=12,
).map(b"".join)
hosts = st.sampled_from([HOST_V4, ("127.0.0.1", 0), HOST_V6, ("::ffff:1.2.3.4", 1)])
magic_bodies = st.sampled_from([record(7), b"\xda\xa3\x20\xa7", b"\x00\x00\x00\x5b\xda\xa3\x20\xa7" + bytes(83)])


@st.composite
def any_record(draw: st.DrawFn, properties: st.SearchStrategy[bytes]) -> bytes:
    fields: dict[str, Any] = {
        "topic": draw(st.sampled_from(["orders", "主题", "t" * 127, "t" * 128, "%RETRY%" + "g" * 200])),
        "queue_id": draw(st.integers(0, 70_000)),
        "flag": draw(st.integers(-(2**31), 2**31 - 1)),
        "born_host": draw(hosts),
        "store_host": draw(hosts),
        "store_timestamp_ms": draw(st.integers(0, 4_102_444_800_000)),
        "reconsume_times": draw(st.integers(0, 16)),
        "sys_flag": draw(st.sampled_from([0, 0, flags.TRANSACTION_COMMIT, flags.MULTI_TAGS, flags.NEED_UNWRAP])),
        "properties": draw(properties),
    }
    queue_offset = draw(st.integers(0, 2**35))
    body = draw(st.one_of(st.binary(max_size=200), magic_bodies))
    kind = draw(st.sampled_from(["plain", "plain", "compressed", "inner batch", "compressed inner batch"]))
    if "inner batch" in kind:
        messages = draw(
            st.lists(st.builds(BatchMessage, st.binary(max_size=50), properties, st.integers(0, 9)), max_size=4)
        )
        body = encode_batch(messages)
        fields["sys_flag"] |= flags.NEED_UNWRAP | flags.INNER_BATCH
    if "compressed" in kind:
        return compressed_record(queue_offset, body, draw(st.sampled_from(CompressionType)), **fields)
    return record(queue_offset, body, **fields)


@given(st.lists(any_record(closed_or_open), max_size=12))
@settings(deadline=None, max_examples=60)
def test_regular_records_decode_as_the_codec_says(records: list[bytes]) -> None:
    check_equal(b"".join(records))


@given(st.lists(any_record(st.one_of(closed_or_open, wild_properties)), max_size=8))
@settings(deadline=None, max_examples=60)
def test_records_with_any_property_text_decode_as_the_codec_says(records: list[bytes]) -> None:
    check_equal(b"".join(records))


@given(st.lists(any_record(closed_or_open), min_size=1, max_size=4), st.data())
@settings(deadline=None, max_examples=60)
def test_damaged_bytes_decode_or_are_refused(records: list[bytes], data: st.DataObject) -> None:
    """Whatever a byte is changed to or wherever the bytes end: rows or CorruptDataError, never another exception."""
    damaged = bytearray(b"".join(records))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.one_of(st.just(len(damaged)), st.integers(0, len(damaged))))
    try:
        batch = ArrowDecoder(ALL_COLUMNS).decode(bytes(damaged[:end]))
    except CorruptDataError:
        return
    batch.validate()


def test_many_plain_records_are_equal_too() -> None:
    generator = random.Random(20_131)
    tags = ["TagA", "TagB", ""]
    records = [
        record(
            offset,
            generator.randbytes(generator.randrange(300)),
            f"UNIQ_KEY\x01id-{offset}\x02KEYS\x01k{offset} half{offset // 2}\x02".encode()
            + (f"TAGS\x01{tag}\x02".encode() if (tag := generator.choice(tags)) else b""),
        )
        for offset in range(3_000)
    ]
    check_equal(b"".join(records))


def test_a_producers_time_that_no_timestamp_has_is_null() -> None:
    """Microseconds for milliseconds, say: times 1000 it was another time, or none that Python has."""
    times = [0, -1, 253_402_300_799_999, 253_402_300_800_000, TIME_MS * 1_000, -(2**63), 2**63 - 1]
    records = b"".join(record(offset, born_timestamp_ms=time) for offset, time in enumerate(times))
    batch = ArrowDecoder(["bornTimestamp", "timestamp"]).decode(records)
    batch.validate(full=True)
    born = batch.column(0).cast(pa.int64()).to_pylist()
    assert born == [0, -1_000, 253_402_300_799_999_000, None, None, None, None]
    assert batch.column(1).null_count == 0


def test_no_records_give_an_empty_batch() -> None:
    batch = ArrowDecoder(ALL_COLUMNS).decode(b"")
    assert batch.num_rows == 0
    assert batch.schema.equals(arrow_schema(ALL_COLUMNS))


def test_columns_come_in_the_requested_order() -> None:
    decoder = ArrowDecoder(("value", "queueOffset"))
    assert decoder.decode(record(5)).to_pylist() == [{"value": b"body", "queueOffset": 5}]
    assert decoder.schema is arrow_schema(("value", "queueOffset"))
    assert ArrowDecoder().schema.names == list(DEFAULT_COLUMNS)


def test_a_compressed_body_can_be_left_as_it_is() -> None:
    stored = compressed_record(0, b"x" * 500, CompressionType.ZSTD)
    row = ArrowDecoder(("value", "sysFlag"), decompress_body=False).decode(stored).to_pylist()[0]
    assert row == {
        "value": compress(b"x" * 500, CompressionType.ZSTD),
        "sysFlag": flags.with_compression(0, CompressionType.ZSTD),
    }


def test_bodies_that_grow_too_large_come_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """All were held at once, up to 64 MiB of each: a few kilobytes of a producer could exhaust a worker's memory."""
    monkeypatch.setattr(arrow_decoder, "BODIES_BYTES_MAX", 100_000)
    monkeypatch.setattr(arrow_decoder, "PART_BYTES_MAX", 20_000)
    records = b"".join(
        record(number, b"plain %d" % number)
        if number % 5 == 0
        else compressed_record(number, b"%d" % number + bytes(3_000), CompressionType.ZLIB)
        for number in range(100)
    )
    decoder = ArrowDecoder(["queueOffset", "sysFlag", "value"])
    with pytest.raises(BodiesTooLargeError):
        decoder.decode(records)
    some = RowSelection(start_offset=7, end_offset=98)
    batches = list(decoder.decode_bounded(records, some))
    assert len(batches) > 5
    assert max(sum(map(len, batch.column(2).to_pylist())) for batch in batches) <= 20_000
    found = [row for batch in batches for row in batch.to_pylist()]
    names = decoder.schema.names
    assert found == [{name: row[name] for name in names} for row in expected_rows(records, broker_name="")[7:98]]
    assert len(list(ArrowDecoder(["queueOffset"]).decode_bounded(records))) == 1, "bodies that are not selected"
    broken = records + record(100, b"no zlib", sys_flag=flags.with_compression(0, CompressionType.ZLIB))
    with pytest.raises(CorruptDataError, match="queue_offset=100"):
        next(decoder.decode_bounded(broken))


def test_a_compressed_body_that_does_not_open_names_its_offset() -> None:
    damaged = record(41, b"not zlib", sys_flag=flags.COMPRESSED)
    decoder = ArrowDecoder(("queueOffset", "value"))
    with pytest.raises(BadBodyError, match="queue_offset=41"):
        decoder.decode(record(40) + damaged)
    with pytest.raises(BadBodyError, match="queue_offset=41"):
        list(decoder.decode_bounded(record(40) + damaged))
    left_out: list[int] = []
    batches = decoder.decode_bounded(
        record(40) + damaged + record(42), on_bad_body=lambda offset, error: left_out.append(offset)
    )
    assert [row["queueOffset"] for batch in batches for row in batch.to_pylist()] == [40, 42]
    assert left_out == [41]
    assert [batch.num_rows for batch in ArrowDecoder(("queueOffset",)).decode_bounded(record(40) + damaged)] == [2]


def test_bytes_that_are_no_records_name_the_position() -> None:
    whole = record(0)
    for damaged in (whole[:-1], whole + b"\0", whole + b"\0" * 100, b"x" * 10):
        with pytest.raises(CorruptDataError, match="position="):
            ArrowDecoder().decode(damaged)


@pytest.mark.parametrize(
    ("selection", "offsets"),
    [
        (RowSelection(), [0, 1, 2, 3, 4, 5]),
        (RowSelection(start_offset=2), [2, 3, 4, 5]),
        (RowSelection(start_offset=2, end_offset=4), [2, 3]),
        (RowSelection(end_offset=0), []),
        (RowSelection(start_ms=TIME_MS + 5 + 4), [4, 5]),
        (RowSelection(start_ms=TIME_MS + 5 + 1, end_ms=TIME_MS + 5 + 3), [1, 2]),
        (RowSelection(tags=frozenset({"T0"})), [0, 3]),
        (RowSelection(tags=frozenset({"T0", "T2"}), start_offset=1, end_offset=5), [2, 3]),
        (RowSelection(tags=frozenset({"T"})), []),
        (RowSelection(tags=frozenset()), []),
    ],
)
def test_only_selected_rows_are_given(selection: RowSelection, offsets: list[int]) -> None:
    """Tags T0, T1, T2, T0, T1 and none at all."""
    records = [record(offset, properties=f"TAGS\x01T{offset % 3}\x02".encode()) for offset in range(5)] + [record(5)]
    batch = ArrowDecoder(ALL_COLUMNS).decode(b"".join(records), selection)
    assert batch.column("queueOffset").to_pylist() == offsets
    whole = normal_rows(expected_rows(b"".join(records)))
    assert normal_rows(batch.to_pylist()) == [whole[offset] for offset in offsets]


def test_the_same_tag_column_is_right_without_a_selection() -> None:
    batch = ArrowDecoder(("tag",)).decode(record(0, properties=b"TAGS\x01A\x02") + record(1))
    assert batch.column(0).equals(pa.array(["A", None]))
