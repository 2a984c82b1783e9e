"""Where the frames of large pieces lie: by docs/cold-format.md alone, and by our own reader.

Covers `tiered/packs/pack_format.py`.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import replace

import msgspec
import pytest
import zstandard

from benchmarks.lookup_history import CONFIG, MIB, NAMES, QUEUES, History, Sent, tier_of
from examples.cold_reader import columns, unzip
from thermocline.remoting.errors import CorruptDataError
from thermocline.tiered.catalog.pack_pieces import PackPieces
from thermocline.tiered.objects.errors import LedgerCorruptError, SegmentFormatError
from thermocline.tiered.packs.pack_entry import PackEntry
from thermocline.tiered.packs.piece_groups import (
    FrameGroup,
    encode_piece_groups,
    group_in_pack,
    piece_groups_of,
    record_in_group,
)
from thermocline.tiered.packs.piece_logs import PART_BYTES_MAX
from thermocline.tiered.scrub.pack_check import check_extents
from thermocline.tiered.stores.memory import MemoryObjectStore

LARGE, SMALL = NAMES[:2]


async def large_pack() -> tuple[MemoryObjectStore, PackEntry, list[Sent]]:
    """A pack of a large piece and a small one; one record is larger than a group may be."""
    history = History()
    config = replace(CONFIG, segment_bytes=64 * MIB, frame_bytes=MIB // 4, pack_bytes=64 * MIB)
    async with tier_of(history, config) as tier:
        for number in range(90):
            history.send(LARGE, number % QUEUES, body_bytes=history.random.randint(MIB // 16, MIB // 4))
            history.send(SMALL, 0, body_bytes=50)
        history.send(LARGE, 1, body_bytes=2 * MIB)
        await history.pack(tier)
        (pack,) = tier.catalog.packs.values()
    return history.store, pack, [each for each in history.sent if each.topic == LARGE]


async def test_the_page_finds_the_frames_of_a_large_piece() -> None:
    store, pack, sent = await large_pack()
    content = unzip(pack.groups)
    (piece_count,) = struct.unpack_from("<I", content)
    which, (count,) = columns(content, 4, (piece_count, 4), (piece_count, 4))
    stored, records = columns(content, 4 + 8 * piece_count, (count, 4), (count, 4))
    assert len(content) == 4 + 8 * piece_count + 8 * count
    assert [pack.topics[index] for index in which] == [LARGE]
    (sizes,) = columns(unzip(pack.logs), 0, (len(pack.topics), 8))
    assert [size > PART_BYTES_MAX for size in sizes] == [topic == LARGE for topic in pack.topics]
    start = 8 + sum(sizes[: which[0]])
    data = store.objects[pack.key]
    by_queue = sorted(sent, key=lambda each: (each.queue_id, each.offset))
    position, expected = start + 8, iter(by_queue)
    for size, record_count in zip(stored, records, strict=True):
        group, frames = data[position : position + size], 0
        joined = b""
        while group:
            walker = zstandard.ZstdDecompressor().decompressobj()
            joined += walker.decompress(group)
            group, frames = walker.unused_data, frames + 1
        assert size <= MIB or frames == 1
        own = list(itertools.islice(expected, record_count))
        assert joined == b"".join(each.record for each in own)
        assert len({each.queue_id for each in own}) == 1
        position += size
    assert next(expected, None) is None
    assert max(stored) > MIB


async def test_each_record_of_a_large_piece_is_read_by_its_group() -> None:
    store, pack, sent = await large_pack()
    (index,) = pack.indexes_of(LARGE)
    piece = pack.table().piece(index)
    for each in sent:
        group = group_in_pack(pack, index, piece, queue_id=each.queue_id, offset=each.offset)
        assert group is not None
        found = await record_in_group(store, pack, group, topic=LARGE, queue_id=each.queue_id, queue_offset=each.offset)
        assert bytes(found) == each.record
    (small,) = pack.indexes_of(SMALL)
    assert group_in_pack(pack, small, pack.table().piece(small), queue_id=0, offset=0) is None
    assert group_in_pack(pack, index, piece, queue_id=QUEUES, offset=0) is None
    with pytest.raises(SegmentFormatError):
        await record_in_group(store, pack, group, topic=SMALL, queue_id=each.queue_id, queue_offset=each.offset)
    shifted = FrameGroup(group.start + 1, group.end, group.start_offset)
    with pytest.raises(CorruptDataError):
        await record_in_group(store, pack, shifted, topic=LARGE, queue_id=each.queue_id, queue_offset=each.offset)


async def test_damaged_groups_are_refused_and_found() -> None:
    store, pack, _ = await large_pack()
    groups = pack.groups
    content = zstandard.ZstdDecompressor().decompress(groups)
    for damaged in (
        groups[:-1],
        groups[:12] + bytes([groups[12] ^ 1]) + groups[13:],
        b"",
        zstandard.compress(content[:-1]),
        zstandard.compress(content[:4]),
        zstandard.compress(struct.pack("<I", 2) + content[4:]),
    ):
        with pytest.raises(LedgerCorruptError):
            piece_groups_of(damaged)
    pieces = await PackPieces(store).all_of(pack)
    check_extents(pack, pieces)
    assert encode_piece_groups(pieces) == groups
    another = bytearray(content)
    another[-1] ^= 1  # the last group has other records
    with pytest.raises(SegmentFormatError):
        check_extents(msgspec.structs.replace(pack, groups=zstandard.compress(bytes(another))), pieces)
