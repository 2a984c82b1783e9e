"""Merging: small packs are rewritten to fewer larger ones."""

from thermocline.tiered.merging.merge_policy import MERGE_COUNT_MIN, OWN_PART, MergePlan, MergePolicy, own_bytes_of
from thermocline.tiered.merging.merging import MergeBudget, Merging
from thermocline.tiered.merging.pack_merger import MergeResult, MergeRules, PackMerger, buffer_bytes_of

__all__ = [
    "MERGE_COUNT_MIN",
    "OWN_PART",
    "MergeBudget",
    "MergePlan",
    "MergePolicy",
    "MergeResult",
    "MergeRules",
    "Merging",
    "PackMerger",
    "buffer_bytes_of",
    "own_bytes_of",
]
