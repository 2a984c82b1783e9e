"""Tier budgets: how many bytes the parts of one tier process hold at a time; `tier_config.py` says how many.

    reads     bytes of parts of objects on their way from the store, for any reader (wrappers/bounding.py)
    uploads   memory of what is written and uploaded: segments, packs, merges (Sealer, PackSealer, PackMerger)
    spool     raw bytes of the same that are on local disk meanwhile

Who takes of both takes of `spool` first. What is decoded and kept is bounded by the frame cache itself, open segments
by SegmentReaders, entries of packs by PackPieces.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.tiered.objects import ByteBudget


def _of_defaults(name: str) -> ByteBudget:
    return ByteBudget(getattr(TierConfig(), name))


@dataclass(frozen=True, slots=True, kw_only=True)
class TierBudgets:
    """See the module's header."""

    reads: ByteBudget = field(default_factory=lambda: _of_defaults("read_budget_bytes"))
    uploads: ByteBudget = field(default_factory=lambda: _of_defaults("upload_budget_bytes"))
    spool: ByteBudget = field(default_factory=lambda: _of_defaults("spool_bytes"))

    def resize(self, config: TierConfig) -> None:
        """As the settings say now."""
        self.reads.resize(config.read_budget_bytes)
        self.uploads.resize(config.upload_budget_bytes)
        self.spool.resize(config.spool_bytes)
