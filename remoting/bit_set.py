"""Bit set: which of a run of offsets are meant, as batch acknowledgements carry it.

Base64 of bytes, lowest bits first: bit i is bit i % 8 of byte i // 8; what follows the last byte is not set. Java's
writer fills the bytes up to a multiple of eight or not, depending on the release: both are read.
Source: BitSetSerializerDeserializer.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from thermocline.remoting.errors import InvalidRequestError

BYTES_MAX = 64 * 1024
BITS_MAX = 1_024
"""A check point holds 32 messages; with a filter they may lie some hundred offsets apart."""


def encode_bit_set(bits: Iterable[int]) -> str:
    """The text of a set of bit numbers."""
    value = 0
    for bit in bits:
        assert bit >= 0
        value |= 1 << bit
    return base64.b64encode(value.to_bytes((value.bit_length() + 7) // 8, "little")).decode()


def decode_bit_set(text: str) -> list[int]:
    """The bit numbers in a text, ascending.

    Raises:
        InvalidRequestError: It is no bit set, or one larger than any use needs.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequestError("not a bit set") from error
    if len(data) > BYTES_MAX:
        raise InvalidRequestError("the bit set is too large", size_bytes=len(data), size_bytes_max=BYTES_MAX)
    bit_count = int.from_bytes(data).bit_count()
    if bit_count > BITS_MAX:
        raise InvalidRequestError("too many bits are set", count=bit_count, count_max=BITS_MAX)
    return [index * 8 + bit for index, byte in enumerate(data) if byte for bit in range(8) if byte >> bit & 1]
