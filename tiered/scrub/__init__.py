"""Scrub: checks whether the bucket holds what the catalog names; `bucket_scrub.py` needs no broker."""

from thermocline.tiered.scrub.bucket_scrub import scrub_bucket
from thermocline.tiered.scrub.index_check import IndexCheck
from thermocline.tiered.scrub.known_damage import broken_now, damage_after, damage_after_reading
from thermocline.tiered.scrub.pack_check import PackCheck, pack_lying_in
from thermocline.tiered.scrub.scrubber import Scrubber, ScrubOptions, ScrubProgress, quarantine_findings
from thermocline.tiered.scrub.segment_check import SegmentCheck, check_records, read_frame
from thermocline.tiered.scrub.state_check import check_states, list_states
from thermocline.tiered.scrub.steady_scrub import READ_WITHIN_DAYS, WAIT_MS_MAX, SteadyScrub, SteadyState, Step
from thermocline.tiered.scrub.view import WriterView

__all__ = [
    "READ_WITHIN_DAYS",
    "WAIT_MS_MAX",
    "IndexCheck",
    "PackCheck",
    "ScrubOptions",
    "ScrubProgress",
    "Scrubber",
    "SegmentCheck",
    "SteadyScrub",
    "SteadyState",
    "Step",
    "WriterView",
    "broken_now",
    "check_records",
    "check_states",
    "damage_after",
    "damage_after_reading",
    "list_states",
    "pack_lying_in",
    "quarantine_findings",
    "read_frame",
    "scrub_bucket",
]
