"""Cold: the protocol of cold reads, and values about the cold tier that the hot process and its helpers exchange."""

from thermocline.broker.cold import cold_reads, dropped_ranges
from thermocline.broker.cold.cold_reads import (
    Boundary,
    ColdBounds,
    ColdKeyQuery,
    ColdPull,
    ColdPullResult,
    ColdReads,
    ColdRecord,
    ColdTimeSearch,
    NoColdTier,
    pull_one,
    record_at,
)
from thermocline.broker.cold.cold_runs import ColdRuns
from thermocline.broker.cold.cold_state import ColdHealth, ColdState
from thermocline.broker.cold.dropped_ranges import DroppedRange, DroppedRanges
from thermocline.broker.cold.key_index import KeyIndex, KeyMatches, KeyQuery
from thermocline.broker.cold.steady_report import SteadyReport
from thermocline.broker.cold.tier_holds import PinHold, PinHolds, QuarantinedRange, quarantined_ranges
from thermocline.broker.cold.tiered_topics import is_tiered_topic

__all__ = [
    "Boundary",
    "ColdBounds",
    "ColdHealth",
    "ColdKeyQuery",
    "ColdPull",
    "ColdPullResult",
    "ColdReads",
    "ColdRecord",
    "ColdRuns",
    "ColdState",
    "ColdTimeSearch",
    "DroppedRange",
    "DroppedRanges",
    "KeyIndex",
    "KeyMatches",
    "KeyQuery",
    "NoColdTier",
    "PinHold",
    "PinHolds",
    "QuarantinedRange",
    "SteadyReport",
    "cold_reads",
    "dropped_ranges",
    "is_tiered_topic",
    "pull_one",
    "quarantined_ranges",
    "record_at",
]
