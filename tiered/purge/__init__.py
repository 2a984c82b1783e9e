"""Purge: expired records are deleted from the bucket on demand."""

from thermocline.tiered.purge.purger import Purger
from thermocline.tiered.purge.segment_rewriter import SegmentRewriter

__all__ = ["Purger", "SegmentRewriter"]
