"""Layout of a pack: the three parts of many small segments in one object. Specification: docs/cold-format.md.

    8 bytes   PACK_MAGIC
    logs      the .log parts of its pieces end to end, in the order of `topic_key`
    columns   their .cq parts, in the same order: one request reads all of them
    indexes   their .idx parts
    footer    sections end to end: one zstd frame each, around a JSON array of up to SECTION_PIECES segment entries
    trailer   as every part has it (`segment_format.py`); the content size is that of all sections together

A part of a piece has the same bytes as an object of its own; its locator has its position.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

import msgspec
import zstandard

from thermocline.tiered.objects import FrameChecksumError, SegmentFormatError, dec_hook, enc_hook
from thermocline.tiered.packs.pack_entry import SECTION_PIECES
from thermocline.tiered.segments import (
    FOOTER_BYTES_MAX,
    TRAILER,
    TRAILER_CHECKED_BYTES,
    PartKind,
    SegmentEntry,
    decode_trailer,
    decompress,
)

PACK_MAGIC = b"THERMPAK"

_encoder = msgspec.json.Encoder(enc_hook=enc_hook)
_decoder = msgspec.json.Decoder(list[SegmentEntry], dec_hook=dec_hook)


def encode_sections(entries: Sequence[SegmentEntry]) -> list[bytes]:
    """The footer's sections as stored."""
    compressor = zstandard.ZstdCompressor(level=6, write_checksum=True)
    return [
        compressor.compress(_encoder.encode(entries[start : start + SECTION_PIECES]))
        for start in range(0, len(entries), SECTION_PIECES)
    ]


def encode_trailer(sections: Sequence[bytes], *, body_end: int) -> bytes:
    """The trailer behind the sections of a pack whose magic and parts take up `body_end` bytes."""
    assert sections, "a pack holds pieces"
    footer_bytes = sum(map(len, sections))
    raw_bytes = sum(zstandard.frame_content_size(section) for section in sections)
    pack_bytes = body_end + footer_bytes + TRAILER.size
    checked = TRAILER.pack(pack_bytes, footer_bytes, raw_bytes, PACK.version, 0, 0, PACK_MAGIC)
    checked = checked[:TRAILER_CHECKED_BYTES]
    crc32 = 0
    for section in (*sections, checked):
        crc32 = zlib.crc32(section, crc32)
    return checked + struct.pack("<I", crc32) + PACK_MAGIC


def decode_section(stored: bytes | memoryview, *, version: int) -> list[SegmentEntry]:
    """The entries in one section of a pack of that version.

    Raises:
        FormatTooNewError: Packs of that version are not read.
        SegmentFormatError, FrameChecksumError: It is damaged.
    """
    decode = PACK.decoder(version)
    try:
        raw_bytes = zstandard.frame_content_size(stored)
    except zstandard.ZstdError as error:
        raise FrameChecksumError("a pack's section is no zstd frame", size_bytes=len(stored)) from error
    if not 0 < raw_bytes <= FOOTER_BYTES_MAX:
        raise SegmentFormatError("impossible size of a pack's section", raw_bytes=raw_bytes)
    return decode(decompress(stored, raw_bytes=raw_bytes))


def _decode_section_1(content: bytes) -> list[SegmentEntry]:
    try:
        return _decoder.decode(content)
    except msgspec.DecodeError as error:
        raise SegmentFormatError("a pack's section cannot be decoded") from error


PACK: PartKind[list[SegmentEntry]] = PartKind(name="pack", magic=PACK_MAGIC, version=1, decoders={1: _decode_section_1})
"""Its decoders are those of the content of a section."""


def decode_sections(footer: bytes | memoryview) -> Iterator[list[SegmentEntry]]:
    """The entries in each section of a footer, which its trailer follows. Raises as `decode_section`."""
    version = decode_trailer(footer, magic=PACK_MAGIC).version
    if version not in PACK.decoders:
        check_footer(footer)
    while len(footer) > TRAILER.size:
        try:
            walker = zstandard.ZstdDecompressor().decompressobj()
            walker.decompress(footer)
        except zstandard.ZstdError as error:
            raise FrameChecksumError("a pack's section is no zstd frame", size_bytes=len(footer)) from error
        end = len(footer) - len(walker.unused_data)
        yield decode_section(footer[:end], version=version)
        footer = footer[end:]


def check_footer(tail: bytes | memoryview) -> None:
    """FrameChecksumError unless footer and trailer at the end of a pack, all of them, are as they were written;
    FormatTooNewError when they are, and of a version that is not read."""
    trailer = decode_trailer(tail, magic=PACK_MAGIC)
    start = len(tail) - trailer.tail_bytes
    if start < 0:
        raise SegmentFormatError("the pack's footer is cut off", missing_bytes=-start)
    checked = memoryview(tail)[start : len(tail) - TRAILER.size + TRAILER_CHECKED_BYTES]
    if zlib.crc32(checked) != trailer.crc32:
        raise FrameChecksumError("the pack's footer is damaged")
    PACK.decoder(trailer.version)
