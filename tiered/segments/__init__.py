"""Segments: the layout of a cold segment and of its parts, written and read."""

from thermocline.tiered.segments.fetch_plan import plan_fetches
from thermocline.tiered.segments.frame import DecodedFrame, decode_frame, decode_next_frame
from thermocline.tiered.segments.key_index import (
    PROBE_SEED,
    Hashes,
    KeyIndexFooter,
    decode_key_index_footer,
    encode_key_index,
    key_hash,
    mix,
    mix_checksums,
)
from thermocline.tiered.segments.known_frames import body_end
from thermocline.tiered.segments.object_keys import BrokerKeys, escape_name, is_pack_key, keeps_history, segment_id_of
from thermocline.tiered.segments.part_kind import PartKind
from thermocline.tiered.segments.queue_columns import ColumnsFooter, decode_columns_footer, from_planes, to_planes
from thermocline.tiered.segments.segment_block import Longs
from thermocline.tiered.segments.segment_entry import CoarseFrame, CoarseRows, PartLocator, RunRows, SegmentEntry
from thermocline.tiered.segments.segment_format import (
    FOOTER_BYTES_MAX,
    FRAME_RAW_BYTES_MAX,
    LOG_MAGIC,
    MAGIC_BYTES,
    TRAILER,
    TRAILER_CHECKED_BYTES,
    FrameInfo,
    LogFooter,
    QueueRun,
    SegmentId,
    Table,
    decode_footer,
    decode_log_footer,
    decode_trailer,
    decompress,
    encode_footer,
)
from thermocline.tiered.segments.segment_list import (
    NO_SEGMENTS,
    SegmentList,
    decode_catalog_value,
    encode_catalog_value,
)
from thermocline.tiered.segments.segment_reader import SegmentReader, read_segment_id
from thermocline.tiered.segments.segment_readers import SegmentReaders
from thermocline.tiered.segments.segment_writer import FinishedSegment, SegmentOptions, SegmentWriter, coarse_frames

__all__ = [
    "FOOTER_BYTES_MAX",
    "FRAME_RAW_BYTES_MAX",
    "LOG_MAGIC",
    "MAGIC_BYTES",
    "NO_SEGMENTS",
    "PROBE_SEED",
    "TRAILER",
    "TRAILER_CHECKED_BYTES",
    "BrokerKeys",
    "CoarseFrame",
    "CoarseRows",
    "ColumnsFooter",
    "DecodedFrame",
    "FinishedSegment",
    "FrameInfo",
    "Hashes",
    "KeyIndexFooter",
    "LogFooter",
    "Longs",
    "PartKind",
    "PartLocator",
    "QueueRun",
    "RunRows",
    "SegmentEntry",
    "SegmentId",
    "SegmentList",
    "SegmentOptions",
    "SegmentReader",
    "SegmentReaders",
    "SegmentWriter",
    "Table",
    "body_end",
    "coarse_frames",
    "decode_catalog_value",
    "decode_columns_footer",
    "decode_footer",
    "decode_frame",
    "decode_key_index_footer",
    "decode_log_footer",
    "decode_next_frame",
    "decode_trailer",
    "decompress",
    "encode_catalog_value",
    "encode_footer",
    "encode_key_index",
    "escape_name",
    "from_planes",
    "is_pack_key",
    "keeps_history",
    "key_hash",
    "mix",
    "mix_checksums",
    "plan_fetches",
    "read_segment_id",
    "segment_id_of",
    "to_planes",
]
