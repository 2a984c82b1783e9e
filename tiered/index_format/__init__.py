"""Index format: the layout of index objects, written and read."""

from thermocline.tiered.index_format.chapters import CHAPTER_RECORDS, Life, PlaceRows
from thermocline.tiered.index_format.index_directory import directory_of
from thermocline.tiered.index_format.index_entry import PLACES, IndexEntry, IndexGap, encode_checksums, encode_topics
from thermocline.tiered.index_format.index_object import IndexedPlace, IndexObject, QueuePlace
from thermocline.tiered.index_format.index_writer import (
    FinishedIndex,
    IndexDescription,
    IndexWriter,
    decode_index_footer,
)
from thermocline.tiered.index_format.key_pages import (
    BLOOM_BITS_PER_KEY,
    FRAME_ENTRIES,
    KeyEntries,
    PageShape,
    index_hash,
    salt_of,
    salted,
)

__all__ = [
    "BLOOM_BITS_PER_KEY",
    "CHAPTER_RECORDS",
    "FRAME_ENTRIES",
    "PLACES",
    "FinishedIndex",
    "IndexDescription",
    "IndexEntry",
    "IndexGap",
    "IndexObject",
    "IndexWriter",
    "IndexedPlace",
    "KeyEntries",
    "Life",
    "PageShape",
    "PlaceRows",
    "QueuePlace",
    "decode_index_footer",
    "directory_of",
    "encode_checksums",
    "encode_topics",
    "index_hash",
    "salt_of",
    "salted",
]
