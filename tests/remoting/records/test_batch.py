"""Batch bodies."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.errors import MessageIllegalError, PropertiesTooLargeError
from thermocline.remoting.records.batch import BatchMessage, decode_batch, encode_batch

MESSAGES = st.lists(
    st.builds(BatchMessage, st.binary(max_size=50), st.binary(max_size=50), st.integers(0, 2**31 - 1)), max_size=6
)


@given(messages=MESSAGES)
def test_round_trip(messages: list[BatchMessage]) -> None:
    assert decode_batch(encode_batch(messages)) == messages


def test_bytes_of_a_batch() -> None:
    body = encode_batch([BatchMessage(b"abc", b"k\x01v\x02", 5)])
    assert body == (
        b"\x00\x00\x00\x1d\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x03abc\x00\x04k\x01v\x02"
    )


@given(messages=MESSAGES.filter(bool), data=st.data())
def test_cut_short(messages: list[BatchMessage], data: st.DataObject) -> None:
    body = encode_batch(messages)
    cut = data.draw(st.integers(1, len(body) - 1))
    try:
        assert decode_batch(body[:cut]) == messages[: len(decode_batch(body[:cut]))]
    except MessageIllegalError:
        return


@given(noise=st.binary(max_size=100))
def test_noise(noise: bytes) -> None:
    with contextlib.suppress(MessageIllegalError):
        decode_batch(noise)


@pytest.mark.parametrize("field_position", [16, 23])
def test_negative_sizes(field_position: int) -> None:
    body = bytearray(encode_batch([BatchMessage(b"abc", b"k\x01v\x02")]))
    body[field_position] = 0xFF
    with pytest.raises(MessageIllegalError):
        decode_batch(bytes(body))


def test_properties_too_large() -> None:
    with pytest.raises(PropertiesTooLargeError):
        encode_batch([BatchMessage(b"", b"x" * 32_768)])
