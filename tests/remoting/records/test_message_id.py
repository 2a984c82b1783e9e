"""Both message ids, against those that official clients and brokers made."""

import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.records.message_id import (
    UniqueIdGenerator,
    decode_message_id,
    encode_message_id,
    month_bounds_ms,
    unique_id_time_ms,
)

NOW_MS = 1_795_247_847_083

ADDRESSES = st.binary(min_size=4, max_size=4).map(lambda data: socket.inet_ntop(socket.AF_INET, data)) | st.binary(
    min_size=16, max_size=16
).map(lambda data: socket.inet_ntop(socket.AF_INET6, data))


@given(address=ADDRESSES, port=st.integers(0, 65_535), physical_offset=st.integers(0, 2**63 - 1))
def test_offset_id_round_trip(address: str, port: int, physical_offset: int) -> None:
    text = encode_message_id((address, port), physical_offset)
    decoded = decode_message_id(text)
    assert (decoded.host, decoded.physical_offset) == ((address, port), physical_offset)
    assert len(text) == (56 if ":" in address else 32)
    assert decode_message_id(text.lower()) == decoded


def test_recorded_offset_id() -> None:
    assert encode_message_id(("127.0.0.1", 10_911), 0x112) == "7F00000100002A9F0000000000000112"


@pytest.mark.parametrize(
    "text", ["", "7F", "7F00000100002A9F000000000000011G", "7F00000100002A9F00000000000001 2", "x" * 56, "0" * 40]
)
def test_invalid_offset_ids_are_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError):
        decode_message_id(text)


def test_unique_ids() -> None:
    now_ms = NOW_MS
    generator = UniqueIdGenerator(address="10.7.0.1", process_id=0x1683A, number=0x4E0E2F2A, clock_ms=lambda: now_ms)
    first, second = generator.next(), generator.next()
    assert first.startswith("0A070001683A4E0E2F2A")
    assert first[-4:] == "0000"
    assert second[-4:] == "0001"
    assert first != second
    assert unique_id_time_ms(first, now_ms) == now_ms
    assert unique_id_time_ms(first, now_ms + 5_000) == now_ms


def test_unique_ids_of_an_ipv6_client() -> None:
    generator = UniqueIdGenerator(address="2001:db8::1", process_id=1, number=0xFFFF_FFFF, clock_ms=lambda: NOW_MS)
    unique_id = generator.next()
    assert len(unique_id) == 56
    assert unique_id_time_ms(unique_id, NOW_MS) == NOW_MS


def test_counter_wraps_and_month_turns() -> None:
    now_ms = NOW_MS
    generator = UniqueIdGenerator(address="10.0.0.1", process_id=1, number=2, clock_ms=lambda: now_ms)
    assert len({generator.next() for _ in range(65_536)}) == 65_536
    assert generator.next()[-4:] == "0000"
    _, now_ms = month_bounds_ms(now_ms)
    assert unique_id_time_ms(generator.next(), now_ms) == now_ms


def test_a_clock_that_is_set_back_over_the_start_of_the_month() -> None:
    """All ids had one time then, so that every 65536th message had the id of an earlier one."""
    _, now_ms = month_bounds_ms(NOW_MS)
    generator = UniqueIdGenerator(address="10.0.0.1", process_id=1, number=2, clock_ms=lambda: now_ms)
    generator.next()
    now_ms -= 3 * 24 * 3_600_000
    first = generator.next()
    assert unique_id_time_ms(first, now_ms) == now_ms
    for _ in range(65_535):
        generator.next()
    now_ms += 1
    assert generator.next() != first


def test_id_of_last_month() -> None:
    month_start_ms, _ = month_bounds_ms(NOW_MS)
    last_month_ms = month_start_ms - 3_600_000
    generator = UniqueIdGenerator(address="10.0.0.1", process_id=1, number=2, clock_ms=lambda: last_month_ms)
    assert unique_id_time_ms(generator.next(), month_start_ms + 1_000) == last_month_ms


def test_month_bounds() -> None:
    start_ms, end_ms = month_bounds_ms(NOW_MS)
    assert start_ms <= NOW_MS < end_ms
    assert time.localtime(start_ms / 1000)[2:6] == (1, 0, 0, 0)
    assert time.localtime(end_ms / 1000)[2:6] == (1, 0, 0, 0)


@pytest.mark.parametrize("text", ["", "0A07", "0A070001683A4E0E2F2AZZZZZZZZ0000"])
def test_invalid_unique_ids_are_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError):
        unique_id_time_ms(text, NOW_MS)


def test_the_time_of_an_id_that_a_grpc_client_made() -> None:
    unique_id = "0102FC00000001534C0B1977CD00000000"  # by rocketmq-python-client 5.1.2, on 2026-11-26 at 07:20:45 UTC
    assert unique_id_time_ms(unique_id, 1_800_000_000_000) == 1_795_677_645_000
    assert unique_id_time_ms(unique_id, 1_700_000_000_000) == 1_700_000_000_000  # its clock is ahead of ours
    with pytest.raises(InvalidParameterError):
        unique_id_time_ms("01" * 8 + "xyzwxyzw" * 2 + "00", 0)
