"""Message records: the official broker's bytes, any record, and damage at every byte.

Covers `remoting/records/crc32.py`.
"""

import base64
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.remoting.recorded_rows import RECORDS
from thermocline.remoting.errors import (
    CorruptDataError,
    InvalidRequestError,
    MessageTooLargeError,
    PropertiesTooLargeError,
    RecordChecksumError,
    RecordMagicError,
    RecordSizeError,
)
from thermocline.remoting.records import message_record, sys_flag
from thermocline.remoting.records.compression import decompress
from thermocline.remoting.records.message_record import (
    BLANK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MessageRecord,
    body_checksum,
    count_bodies,
    decode_host,
    decode_record,
    encode_host,
    encode_record,
    is_blank,
    iterate_records,
    read_properties_text,
    record_size,
)
from thermocline.remoting.records.properties import encode_properties

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.tuples(st.ip_addresses().map(str), st.integers(0, 65_535))
TOPICS = st.text(st.characters(exclude_categories=("Cs",)), max_size=200)

FIELDS = st.fixed_dictionaries(
    {
        "topic": TOPICS,
        "queue_id": INT,
        "queue_offset": LONG,
        "physical_offset": LONG,
        "body": st.binary(max_size=300),
        "properties_text": st.binary(max_size=300),
        "born_timestamp_ms": LONG,
        "born_host": HOSTS,
        "store_timestamp_ms": LONG,
        "store_host": HOSTS,
        "flag": INT,
        "sys_flag": st.integers(0, 2**12).map(lambda flag: flag & ~0x30),
        "reconsume_times": INT,
        "prepared_transaction_offset": LONG,
    }
)


def a_record(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "topic": "T",
        "queue_id": 1,
        "queue_offset": 2,
        "physical_offset": 3,
        "body": b"body",
        "properties_text": encode_properties({"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "0A"}),
        "born_timestamp_ms": 4,
        "born_host": ("10.0.0.1", 5),
        "store_timestamp_ms": 6,
        "store_host": ("10.0.0.2", 7),
    }
    return encode_record(**{**fields, **changes})


def encode_again(record: MessageRecord) -> bytes:
    return encode_record(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        body=record.body,
        properties_text=record.properties_text,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_timestamp_ms=record.store_timestamp_ms,
        store_host=record.store_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )


@given(fields=FIELDS, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_round_trip(fields: dict[str, Any], before: bytes, after: bytes) -> None:
    data = encode_record(**fields)
    record = decode_record(before + data + after, len(before))
    assert record.size_bytes == len(data)
    assert record.body_crc == body_checksum(fields["body"])
    for name in fields:
        if name not in ("sys_flag", "born_host", "store_host"):
            assert getattr(record, name) == fields[name]
    assert decode_record(memoryview(data)) == record
    assert read_properties_text(before + data + after, len(before)) == fields["properties_text"]
    assert read_properties_text(memoryview(data)) == fields["properties_text"]
    assert count_bodies(data + data) == (2, 2 * len(fields["body"]))
    assert encode_again(record) == data
    assert bool(record.sys_flag & sys_flag.BORN_HOST_V6) == (":" in fields["born_host"][0])
    assert bool(record.sys_flag & sys_flag.STORE_HOST_V6) == (":" in fields["store_host"][0])
    assert record.sys_flag & ~0x30 == fields["sys_flag"]
    topic_bytes = len(fields["topic"].encode())
    (magic,) = struct.unpack_from(">i", data, 4)
    assert magic == (MAGIC_V1 if topic_bytes <= 127 else MAGIC_V2)
    assert len(data) == record_size(
        body_bytes=len(fields["body"]),
        topic_bytes=topic_bytes,
        properties_bytes=len(fields["properties_text"]),
        born_host_v6=":" in fields["born_host"][0],
        store_host_v6=":" in fields["store_host"][0],
    )


@pytest.mark.parametrize("row", RECORDS, ids=lambda row: f"{row['topic']} {row['compression']}".strip())
def test_recorded_record(row: dict[str, Any]) -> None:
    """A record of the official broker's log decodes, and encodes to the same bytes."""
    data = base64.b64decode(row["record_b64"])
    record = decode_record(data)
    assert record.topic == row["topic"]
    assert record.size_bytes == len(data)
    assert record.store_host == ("127.0.0.1", 10_911)
    assert encode_again(record) == data
    if row["compression"]:
        assert sys_flag.is_compressed(record.sys_flag)
        compression = sys_flag.compression_type(record.sys_flag)
        assert compression.name == row["compression"]
        assert len(decompress(record.body, compression)) > 4_000
    assert record.properties == {
        name: value for name, value in record.properties.items() if record.property_text(name) == value
    }


def test_bytes_of_a_record() -> None:
    """Written out by hand from the layout."""
    body_crc = body_checksum(b"body").to_bytes(4, "big")
    properties = b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x010A\x02"
    expected = (
        b"\x00\x00\x00\x7e\xda\xa3\x20\xa7"
        + body_crc
        + b"\x00\x00\x00\x01\x00\x00\x00\x00"
        + b"\x00\x00\x00\x00\x00\x00\x00\x02"
        + b"\x00\x00\x00\x00\x00\x00\x00\x03"
        + b"\x00\x00\x00\x00"
        + b"\x00\x00\x00\x00\x00\x00\x00\x04\x0a\x00\x00\x01\x00\x00\x00\x05"
        + b"\x00\x00\x00\x00\x00\x00\x00\x06\x0a\x00\x00\x02\x00\x00\x00\x07"
        + b"\x00\x00\x00\x00"
        + b"\x00\x00\x00\x00\x00\x00\x00\x00"
        + b"\x00\x00\x00\x04body\x01T\x00\x1e"
        + properties
    )
    assert a_record() == expected


def test_positions_are_those_of_the_layout() -> None:
    data = bytearray(a_record())
    struct.pack_into(">q", data, message_record.POSITION_PHYSICAL_OFFSET, 77)
    struct.pack_into(">q", data, message_record.POSITION_QUEUE_OFFSET, 78)
    struct.pack_into(">q", data, message_record.POSITION_STORE_TIMESTAMP, 79)
    struct.pack_into(">q", data, message_record.POSITION_BORN_TIMESTAMP, 80)
    struct.pack_into(">i", data, message_record.POSITION_QUEUE_ID, 81)
    struct.pack_into(">i", data, message_record.POSITION_RECONSUME_TIMES, 82)
    struct.pack_into(">q", data, message_record.POSITION_PREPARED_TRANSACTION_OFFSET, 83)
    data[message_record.POSITION_STORE_HOST : message_record.POSITION_STORE_HOST + 8] = encode_host(("1.2.3.4", 5))
    record = decode_record(bytes(data))
    assert (record.physical_offset, record.queue_offset, record.store_timestamp_ms) == (77, 78, 79)
    assert (record.born_timestamp_ms, record.queue_id, record.reconsume_times) == (80, 81, 82)
    assert (record.prepared_transaction_offset, record.store_host) == (83, ("1.2.3.4", 5))
    assert data[message_record.POSITION_BODY :][:4] == b"body"


def test_named_properties() -> None:
    record = decode_record(a_record())
    assert (record.tags, record.keys, record.unique_key) == ("a", "k1 k2", "0A")
    assert record.property_text("absent") is None
    assert record.end_offset == record.physical_offset + record.size_bytes


def test_damage_at_every_byte_is_noticed_or_harmless() -> None:
    """A changed byte never gives another size or body, nor an error that is not ours."""
    data = a_record()
    whole = decode_record(data)
    for position in range(len(data)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] = value
            try:
                record = decode_record(bytes(damaged))
            except CorruptDataError:
                continue
            assert (record.size_bytes, record.body) == (whole.size_bytes, whole.body)


@pytest.mark.parametrize("topic", ["T", "t" * 200])
def test_damage_at_every_byte_gives_no_other_properties(topic: str) -> None:
    """Only a changed byte of the text itself, or of what is not looked at, goes unnoticed."""
    data = a_record(topic=topic)
    whole = read_properties_text(data)
    for position in range(len(data)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] = value
            try:
                text = read_properties_text(bytes(damaged))
            except CorruptDataError:
                continue
            assert text == bytes(damaged)[-len(whole) :]


def test_bodies_are_counted_up_to_damage() -> None:
    """Whatever a broker answers, the count ends."""
    data = a_record()
    count, size_bytes = count_bodies(data)
    assert count_bodies(b"") == (0, 0)
    assert count_bodies(data + bytes(200)) == (count, size_bytes)
    for position in range(len(data)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            damaged = bytearray(data + data)
            damaged[position] = value
            assert count_bodies(bytes(damaged))[0] <= len(damaged)
    for length in range(len(data)):
        assert count_bodies(data[:length])[0] <= 1


def test_torn_record_is_noticed_at_every_length() -> None:
    data = a_record()
    for length in range(len(data)):
        with pytest.raises(CorruptDataError):
            decode_record(data[:length])
        with pytest.raises(CorruptDataError):
            read_properties_text(data[:length])


def test_each_damage_has_its_error() -> None:
    data = a_record()
    with pytest.raises(RecordMagicError):
        decode_record(bytes(200))
    with pytest.raises(RecordMagicError):
        read_properties_text(bytes(200))
    with pytest.raises(RecordSizeError):
        decode_record(data[:-1])
    with pytest.raises(RecordChecksumError):
        decode_record(data.replace(b"body", b"bodY"))
    assert decode_record(data.replace(b"body", b"bodY"), check_crc=False).body == b"bodY"


def test_empty_body_has_no_checksum() -> None:
    assert decode_record(a_record(body=b"")).body_crc == 0


def test_iteration_ends_at_the_end_or_at_a_blank() -> None:
    data = a_record(queue_offset=0) + a_record(queue_offset=1)
    assert [record.queue_offset for record in iterate_records(data)] == [0, 1]
    ended = data + BLANK.pack(100, MAGIC_BLANK) + bytes(92)
    assert is_blank(ended, len(data))
    assert not is_blank(ended, 0)
    assert [record.queue_offset for record in iterate_records(ended)] == [0, 1]
    assert [record.queue_offset for record in iterate_records(ended, len(data) // 2)] == [1]
    assert [record.queue_offset for record in iterate_records(memoryview(ended), 0, len(data) // 2)] == [0]
    with pytest.raises(RecordMagicError):
        list(iterate_records(data + bytes(200)))


@pytest.mark.parametrize("host", [("10.0.0.1", 0), ("255.255.255.255", 65_535), ("::1", 9), ("2001:db8::7", 10_911)])
def test_hosts(host: tuple[str, int]) -> None:
    assert decode_host(encode_host(host)) == host
    assert len(encode_host(host)) == (20 if ":" in host[0] else 8)


@pytest.mark.parametrize("host", [("localhost", 1), ("", 1), ("1.2.3", 1), ("1.2.3.4", 2**31)])
def test_invalid_hosts_are_refused(host: tuple[str, int]) -> None:
    with pytest.raises(InvalidRequestError):
        encode_host(host)


def test_limits() -> None:
    decode_record(a_record(topic="t" * 127))
    assert decode_record(a_record(topic="t" * 32_767)).topic == "t" * 32_767
    with pytest.raises(MessageTooLargeError):
        a_record(topic="t" * 32_768)
    decode_record(a_record(properties_text=b"x" * 32_767))
    with pytest.raises(PropertiesTooLargeError):
        a_record(properties_text=b"x" * 32_768)
