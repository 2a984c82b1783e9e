"""Tier processors: requests of the `thermocline` command about the cold tier."""

from thermocline.broker.processors.tier.cost import CostProcessor
from thermocline.broker.processors.tier.flushed_ranges import FlushedRangesProcessor
from thermocline.broker.processors.tier.scrub import ScrubProcessor
from thermocline.broker.processors.tier.tier import TierProcessor
from thermocline.broker.processors.tier.ttl import TtlProcessor

__all__ = ["CostProcessor", "FlushedRangesProcessor", "ScrubProcessor", "TierProcessor", "TtlProcessor"]
