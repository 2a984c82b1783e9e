"""Bit sets of batch acknowledgements."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.bit_set import BITS_MAX, BYTES_MAX, decode_bit_set, encode_bit_set
from thermocline.remoting.errors import InvalidRequestError

JAVA_BITS_0_9_70 = "AQIAAAAAAABA"


def test_as_java_writes_them() -> None:
    assert encode_bit_set([0, 9, 70]) == JAVA_BITS_0_9_70
    assert decode_bit_set(JAVA_BITS_0_9_70) == [0, 9, 70]


def test_whole_words_are_read_too() -> None:
    assert decode_bit_set(base64.b64encode(bytes([1, 2]) + bytes(6)).decode()) == [0, 9]


def test_so_many_bits_may_be_set() -> None:
    assert decode_bit_set(encode_bit_set(range(BITS_MAX))) == list(range(BITS_MAX))
    with pytest.raises(InvalidRequestError):
        decode_bit_set(encode_bit_set(range(BITS_MAX + 1)))


@given(st.sets(st.integers(0, 2_000), max_size=BITS_MAX))
def test_round_trip(bits: set[int]) -> None:
    assert decode_bit_set(encode_bit_set(bits)) == sorted(bits)


@pytest.mark.parametrize("text", ["*", "AQ", "ä", base64.b64encode(bytes(BYTES_MAX + 1)).decode()])
def test_invalid_bit_sets_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        decode_bit_set(text)
