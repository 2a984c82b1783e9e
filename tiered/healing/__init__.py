"""Healing: what a scrub found damaged is put right, from the hot tier or from other objects."""

from thermocline.tiered.healing.healer import Healer
from thermocline.tiered.healing.hot_records import HotRecords
from thermocline.tiered.healing.index_healer import IndexHealer
from thermocline.tiered.healing.ledger_healer import restore_damaged
from thermocline.tiered.healing.pack_healer import PackHealer
from thermocline.tiered.healing.segment_recovery import SegmentRecovery
from thermocline.tiered.healing.state_healer import StateHealer

__all__ = ["Healer", "HotRecords", "IndexHealer", "PackHealer", "SegmentRecovery", "StateHealer", "restore_damaged"]
