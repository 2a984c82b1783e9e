"""Reading: records of the bucket by offset, time and key."""

from thermocline.tiered.reading.cold_pull import ColdPull, ColdPullResult, ColdPullStatus
from thermocline.tiered.reading.cold_reader import Boundary, ColdReader
from thermocline.tiered.reading.frame_cache import FrameCache
from thermocline.tiered.reading.history_reader import catalog_reader

__all__ = ["Boundary", "ColdPull", "ColdPullResult", "ColdPullStatus", "ColdReader", "FrameCache", "catalog_reader"]
