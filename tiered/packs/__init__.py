"""Packs: many small segments in one object: its layout, its table of pieces, and how it is written."""

from thermocline.tiered.packs.pack_entry import SECTION_PIECES, PackedTopic, PackEntry, topic_key
from thermocline.tiered.packs.pack_format import PACK_MAGIC, check_footer, decode_section, decode_sections
from thermocline.tiered.packs.pack_writer import RECORD_MEMORY_BYTES, FinishedObject, PackWriter, extent_of, join_parts
from thermocline.tiered.packs.packed_catalog import PackedChanges, live_topics, packed_record_counts
from thermocline.tiered.packs.piece_groups import frame_groups, group_in_pack, piece_groups_of, record_in_group
from thermocline.tiered.packs.piece_logs import piece_log_starts, record_in_part, small_part
from thermocline.tiered.packs.piece_rewriter import PieceBytes, rewrite, stretches
from thermocline.tiered.packs.piece_stream import BUFFER_BYTES, COLUMNS_BUFFER_BYTES, PiecePlace, PieceStream
from thermocline.tiered.packs.piece_table import PieceExtent, PieceTable, QueueRange, encode_piece_table
from thermocline.tiered.packs.segment_upload import PUTS_PER_SEGMENT, upload_joined, upload_segment
from thermocline.tiered.packs.ttl_classes import FOREVER, SPAN_OF_TTL, longest_ttl_ms, ttl_class

__all__ = [
    "BUFFER_BYTES",
    "COLUMNS_BUFFER_BYTES",
    "FOREVER",
    "PACK_MAGIC",
    "PUTS_PER_SEGMENT",
    "RECORD_MEMORY_BYTES",
    "SECTION_PIECES",
    "SPAN_OF_TTL",
    "FinishedObject",
    "PackEntry",
    "PackWriter",
    "PackedChanges",
    "PackedTopic",
    "PieceBytes",
    "PieceExtent",
    "PiecePlace",
    "PieceStream",
    "PieceTable",
    "QueueRange",
    "check_footer",
    "decode_section",
    "decode_sections",
    "encode_piece_table",
    "extent_of",
    "frame_groups",
    "group_in_pack",
    "join_parts",
    "live_topics",
    "longest_ttl_ms",
    "packed_record_counts",
    "piece_groups_of",
    "piece_log_starts",
    "record_in_group",
    "record_in_part",
    "rewrite",
    "small_part",
    "stretches",
    "topic_key",
    "ttl_class",
    "upload_joined",
    "upload_segment",
]
