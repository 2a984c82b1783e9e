"""Tier process: seals, serves cold reads, saves state and deletes what has expired."""

from thermocline.broker.tier_process.state_capture import StateCapture, queue_ends
from thermocline.broker.tier_process.state_rounds import StateRounds
from thermocline.broker.tier_process.tier_reads import TierReads

__all__ = ["StateCapture", "StateRounds", "TierReads", "queue_ends"]
