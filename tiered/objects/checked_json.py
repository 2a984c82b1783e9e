"""Checked JSON: small JSON objects that end in their own checksum, so that readers reject damaged ones.

    {"version":7, ... ,"crc32":"89abcdef"}

The last member is the CRC-32 of all bytes before its comma, as eight lower-case hex digits. Readers that do not know
the member ignore it. Older versions wrote objects without a checksum; `check_json` accepts these. An object counts as
one with a checksum if more than half of the bytes `,"crc32":"` are in place: the damage may be in the member's name.
"""

from __future__ import annotations

import zlib

from thermocline.tiered.objects.errors import LedgerCorruptError

_NAME = b',"crc32":"'
_TAIL_BYTES = len(_NAME) + len(b'89abcdef"}')
_UNSEALED_MATCHES_MAX = len(_NAME) // 2  # bytes of _NAME that an object without a checksum may match by chance


def seal_json(text: bytes) -> bytes:
    """Return the JSON object `text` with its checksum appended as the last member; `text` has at least one member."""
    assert text.endswith(b"}")
    assert len(text) > len(b"{}")
    return text[:-1] + _tail(text[:-1])


def check_json(data: bytes, *, key: str) -> None:
    """Accept an object with the right checksum, or with none.

    Raises:
        LedgerCorruptError: The checksum does not match `data`; the error names the object by `key`.
    """
    body, tail = data[:-_TAIL_BYTES], data[-_TAIL_BYTES:]
    if tail == _tail(body):
        return
    matches = sum(found == expected for found, expected in zip(tail, _NAME, strict=False))
    if matches > _UNSEALED_MATCHES_MAX:
        raise LedgerCorruptError("the object's checksum does not match", key=key)


def is_sealed(data: bytes) -> bool:
    """Whether `data` ends in a checksum that matches."""
    return data[-_TAIL_BYTES:] == _tail(data[:-_TAIL_BYTES])


def _tail(body: bytes) -> bytes:
    return _NAME + f'{zlib.crc32(body):08x}"}}'.encode()
