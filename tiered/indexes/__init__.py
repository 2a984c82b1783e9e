"""Indexes: index objects made of the keys of segments and packs, and merged. Design: ADR 0037."""

from thermocline.tiered.indexes.bloom_cache import BloomCache
from thermocline.tiered.indexes.fresh_index import FreshIndex
from thermocline.tiered.indexes.fresh_records import READ_BYTES, FreshRecords
from thermocline.tiered.indexes.index_builder import IndexBuilder, IndexResult, topic_filter
from thermocline.tiered.indexes.index_merger import IndexMerger
from thermocline.tiered.indexes.index_policy import (
    FAN_IN,
    ITEMS_MIN,
    SLOTS,
    choose_of_class,
    expired_indexes,
    is_range_due,
    next_merge,
)
from thermocline.tiered.indexes.indexed_parts import IndexedPart, part_bytes, stored_parts
from thermocline.tiered.indexes.log_items import END_OF_LOG, Item, LogItems, item_id
from thermocline.tiered.indexes.range_cut import RECORDS_MAX, cut

__all__ = [
    "END_OF_LOG",
    "FAN_IN",
    "ITEMS_MIN",
    "READ_BYTES",
    "RECORDS_MAX",
    "SLOTS",
    "BloomCache",
    "FreshIndex",
    "FreshRecords",
    "IndexBuilder",
    "IndexMerger",
    "IndexResult",
    "IndexedPart",
    "Item",
    "LogItems",
    "choose_of_class",
    "cut",
    "expired_indexes",
    "is_range_due",
    "item_id",
    "next_merge",
    "part_bytes",
    "stored_parts",
    "topic_filter",
]
