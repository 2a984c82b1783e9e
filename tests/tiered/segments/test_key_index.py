"""Keys are found, one request rules out other keys, and a key takes few bytes."""

from __future__ import annotations

import zlib
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiered.cold_data import Log, write_segment
from thermocline.tiered.objects.errors import FrameChecksumError, SegmentFormatError
from thermocline.tiered.segments.key_index import (
    BLOCK_ENTRIES,
    BloomShape,
    EncodedKeyIndex,
    decode_key_index_footer,
    encode_key_index,
    key_hash,
    mix_checksums,
)
from thermocline.tiered.segments.segment_format import IDX_MAGIC, SegmentId, decode_trailer

HASH = st.integers(0, 2**32 - 1)


def encode(entries: list[tuple[int, int, int]]) -> EncodedKeyIndex:
    """From (hash, ordinal, physical offset)."""
    return encode_key_index(
        SegmentId(1, 2),
        hashes=np.array([entry[0] for entry in entries], np.uint32),
        ordinals=np.array([entry[1] for entry in entries], np.uint32),
        physical_offsets=np.array([entry[2] for entry in entries], np.int64),
    )


def look_up(index: EncodedKeyIndex, hash_value: int) -> list[int]:
    """As a reader does it, from the bytes alone."""
    if index.bloom.page_count:
        position = index.bloom.page_position(hash_value)
        if not index.bloom.may_hold(index.data[position : position + index.bloom.page_bytes], hash_value):
            return []
    footer = decode_key_index_footer(index.data)
    assert footer.bloom == index.bloom
    blocks = footer.blocks_of(hash_value)
    if not len(blocks):
        return []
    start, end = int(blocks["position"][0]), int(blocks["position"][-1]) + int(blocks["stored_bytes"][-1])
    return footer.find_ordinals(index.data[start:end], blocks, hash_value)


def test_hash_of_known_keys() -> None:
    """Fixed for ever: they are in buckets."""
    assert key_hash(b"") == 0
    assert key_hash(b"N14228") == 541593804
    keys = [b"a", b"b", b"order-17", "schlüssel".encode()]
    checksums = np.array([zlib.crc32(key) for key in keys], np.uint32)
    assert mix_checksums(checksums).tolist() == [key_hash(key) for key in keys]


@given(entries=st.lists(st.tuples(HASH, st.integers(0, 2**32 - 1), st.integers(0, 2**62)), max_size=60))
@settings(deadline=None)
def test_every_entry_is_found_newest_first(entries: list[tuple[int, int, int]]) -> None:
    index = encode(entries)
    for hash_value in {entry[0] for entry in entries}:
        places = {entry[1]: entry[2] for entry in entries if entry[0] == hash_value}
        found = look_up(index, hash_value)
        assert sorted(found) == sorted(entry[1] for entry in entries if entry[0] == hash_value)
        if len(places) == len(found):
            assert [places[ordinal] for ordinal in found] == sorted(places.values(), reverse=True)


def test_a_frequent_key_spans_blocks() -> None:
    count = 3 * BLOCK_ENTRIES + 5
    index = encode([(77, number, number * 10) for number in range(count)] + [(5, 1, 1), (99, 2, 2)])
    assert look_up(index, 77) == list(reversed(range(count)))
    assert look_up(index, 99) == [2]


def test_misses_are_seldom_asked_further() -> None:
    random = Random(3)
    index = encode([(random.getrandbits(32), number, number) for number in range(50_000)])
    footer = decode_key_index_footer(index.data)
    passed = 0
    for _ in range(20_000):
        hash_value = random.getrandbits(32)
        position = footer.bloom.page_position(hash_value)
        passed += footer.bloom.may_hold(index.data[position : position + footer.bloom.page_bytes], hash_value)
    assert passed / 20_000 < 0.02


def test_bloom_pages_fit_the_number_of_keys() -> None:
    assert BloomShape.for_keys(0).size_bytes == 0
    assert BloomShape.for_keys(1) == BloomShape(page_bytes=16, page_count=1)
    assert BloomShape.for_keys(100) == BloomShape(page_bytes=128, page_count=1)
    assert BloomShape.for_keys(1_000_000) == BloomShape(page_bytes=4096, page_count=306)


def test_no_keys_at_all() -> None:
    index = encode([])
    assert index.entry_count == 0
    assert not index.bloom.page_count
    assert look_up(index, 5) == []


def test_damage_is_noticed() -> None:
    index = encode([(number * 1000, number, number) for number in range(500)])
    tail_bytes = decode_trailer(index.data, magic=IDX_MAGIC).tail_bytes
    for position in range(len(index.data) - tail_bytes, len(index.data)):
        broken = bytearray(index.data)
        broken[position] ^= 0x10
        with pytest.raises((SegmentFormatError, FrameChecksumError)):
            decode_key_index_footer(bytes(broken))


def test_a_key_takes_at_most_fourteen_bytes() -> None:
    log = Log("flights", Random(2), queue_count=4)
    log.append_flights(20_000)
    with write_segment(log) as segment:
        assert segment.key_count == 40_000
        assert len(segment.idx) / segment.key_count < 7
