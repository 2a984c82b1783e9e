"""A sealed JSON object: no flipped bit in it passes, wherever it is; what was never sealed does."""

from __future__ import annotations

import json
import zlib

import pytest

from thermocline.tiered.objects.checked_json import check_json, is_sealed, seal_json
from thermocline.tiered.objects.errors import LedgerCorruptError

TEXT = b'{"version":7,"nonce":"abc"}'


def test_the_checksum_is_the_last_member() -> None:
    data = seal_json(TEXT)
    assert data == TEXT[:-1] + b',"crc32":"%08x"}' % zlib.crc32(TEXT[:-1])
    assert json.loads(data) == {"version": 7, "nonce": "abc", "crc32": f"{zlib.crc32(TEXT[:-1]):08x}"}
    check_json(data, key="k")
    assert is_sealed(data)


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    data = seal_json(TEXT)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(LedgerCorruptError):
            check_json(bytes(damaged), key="k")
    for size_bytes in range(len(data)):
        try:
            check_json(data[:size_bytes], key="k")
            with pytest.raises(json.JSONDecodeError):
                json.loads(data[:size_bytes])
        except LedgerCorruptError:
            continue


@pytest.mark.parametrize("text", [b"", b"{}", TEXT, b'{"a":"' + b"x" * 40 + b'"}'])
def test_documents_of_earlier_versions_are_accepted_unchecked(text: bytes) -> None:
    check_json(text, key="k")
    assert not is_sealed(text)
