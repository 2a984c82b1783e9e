"""Checked JSON: small objects that carry a checksum of themselves, so that no flipped bit in them is ever acted upon.

    {"version":7, ... ,"crc32":"89abcdef"}

The last member is the CRC-32 of every byte in front of its comma, as eight lower-case hex digits. A reader that does
not know it sees one more member, which it ignores. Objects that were written before it existed have none, and are taken
as they are. What nearly ends so is not taken for one of those: the damage may lie in the member's name.
"""

from __future__ import annotations

import zlib

from thermocline.tiered.objects.errors import LedgerCorruptError

_NAME = b',"crc32":"'
_TAIL_BYTES = len(_NAME) + len(b'89abcdef"}')
_NAME_BYTES_ALIKE = len(_NAME) // 2


def seal_json(text: bytes) -> bytes:
    """A JSON object that has members, with its checksum as one more."""
    assert text.endswith(b"}")
    assert len(text) > len(b"{}")
    return text[:-1] + _tail(text[:-1])


def check_json(data: bytes, *, key: str) -> None:
    """LedgerCorruptError when `data` carries a checksum that is not its own; `key` says in the error what it is."""
    body, tail = data[:-_TAIL_BYTES], data[-_TAIL_BYTES:]
    if tail == _tail(body):
        return
    alike = sum(found == expected for found, expected in zip(tail, _NAME, strict=False))
    if alike > _NAME_BYTES_ALIKE:
        raise LedgerCorruptError("the object's checksum does not match", key=key)


def is_sealed(data: bytes) -> bool:
    """Whether `data` carries a checksum, and it is right."""
    return data[-_TAIL_BYTES:] == _tail(data[:-_TAIL_BYTES])


def _tail(body: bytes) -> bytes:
    return _NAME + f'{zlib.crc32(body):08x}"}}'.encode()
