"""HPACK: the examples of RFC 7541, appendix C, and what a decoder must refuse.

Covers `proxy/http2/huffman.py`.
"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.proxy.http2.hpack import HeaderDecoder, HeadersTooLargeError, encode_field
from thermocline.proxy.http2.huffman import LENGTHS, decode_huffman
from thermocline.remoting.errors import ProtocolError

BYTES = st.characters(max_codepoint=255)


def decoder(*, list_bytes_max: int = 16_384) -> HeaderDecoder:
    return HeaderDecoder(list_bytes_max=list_bytes_max)


REQUESTS = [
    ("828684410f7777772e6578616d706c652e636f6d", [":authority www.example.com"]),
    ("828684be58086e6f2d6361636865", [":authority www.example.com", "cache-control no-cache"]),
    (
        "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        [":scheme https", ":path /index.html", "custom-key custom-value"],
    ),
]
"""C.3: three requests on one connection, without Huffman."""
HUFFMAN_REQUESTS = [
    ("828684418cf1e3c2e5f23a6ba0ab90f4ff", [":authority www.example.com"]),
    ("828684be5886a8eb10649cbf", [":authority www.example.com", "cache-control no-cache"]),
    (
        "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        [":scheme https", ":path /index.html", "custom-key custom-value"],
    ),
]
"""C.4: the same with Huffman."""


@pytest.mark.parametrize("requests", [REQUESTS, HUFFMAN_REQUESTS])
def test_the_requests_of_the_specification(requests: list[tuple[str, list[str]]]) -> None:
    connection = decoder()
    for block, wanted in requests:
        fields = [f"{name} {value}" for name, value in connection.decode(bytes.fromhex(block))]
        assert fields[0] == ":method GET"
        assert set(wanted) <= set(fields)


def test_entries_leave_a_full_table_oldest_first() -> None:
    connection = decoder()
    connection.decode(b"\x3f\x21")  # a table of 64 bytes holds one entry of 42
    connection.decode(b"\x40\x04key1\x06value1")
    connection.decode(b"\x40\x04key2\x06value2")
    assert connection.decode(b"\xbe") == [("key2", "value2")]
    with pytest.raises(ProtocolError):
        connection.decode(b"\xbf")


@given(name=st.text(BYTES, min_size=1, max_size=200), value=st.text(BYTES, max_size=20_000))
def test_what_is_encoded_is_decoded(name: str, value: str) -> None:
    assert decoder(list_bytes_max=1 << 20).decode(encode_field(name, value)) == [(name, value)]


@pytest.mark.parametrize(
    "block",
    [
        "80",  # index 0
        "be",  # beyond the tables
        "40",  # cut short
        "400568656c",  # a string that is cut short
        "7fffffffffffff0f",  # an integer that is too large
        "823f21",  # the table's size behind a field
        "3fe2ff03",  # a table larger than allowed
        "0084ffffffff0161",  # the end symbol in a Huffman text
        "00811800",  # a Huffman text that is cut in a symbol
    ],
)
def test_a_broken_block_is_refused(block: str) -> None:
    with pytest.raises(ProtocolError):
        decoder().decode(bytes.fromhex(block))


@given(block=st.binary(max_size=300))
def test_any_block_is_decoded_or_refused(block: bytes) -> None:
    with contextlib.suppress(ProtocolError, HeadersTooLargeError):
        decoder().decode(block)


def test_fields_over_the_limit_leave_the_tables_in_step() -> None:
    connection = decoder(list_bytes_max=200)
    with pytest.raises(HeadersTooLargeError):
        connection.decode(b"\x40\x03big\x7f\x81\x01" + b"x" * 256 + b"\x40\x01k\x01v")
    assert connection.decode(b"\xbe") == [("k", "v")]


def test_a_small_block_cannot_grow_to_a_large_one() -> None:
    """One entry of 4 KB, named 10 000 times by one byte each: refused, and never held."""
    connection = decoder()
    connection.decode(b"\x40\x03big\x7f\xd1\x1e" + b"x" * 4_048)
    with pytest.raises(HeadersTooLargeError):
        connection.decode(b"\xbe" * 10_000)


def test_the_huffman_code_is_that_of_the_specification() -> None:
    assert (LENGTHS[ord("a")], LENGTHS[ord("0")], LENGTHS[0], LENGTHS[256]) == (5, 5, 13, 30)
    assert decode_huffman(bytes.fromhex("aec3771a4b")) == b"private"
    assert decode_huffman(bytes.fromhex("9d29ad171863c78f0b97c8e9ae82ae43d3")) == b"https://www.example.com"
