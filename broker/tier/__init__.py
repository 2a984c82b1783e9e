"""Tier: the hot process's link to the tier process, and the conditions of local deletion."""

from thermocline.broker.tier.deletion_gate import DeletionGate, open_drop_oldest
from thermocline.broker.tier.drop_oldest import DropOldest
from thermocline.broker.tier.fence import Fence
from thermocline.broker.tier.hidden_messages import HiddenMessages
from thermocline.broker.tier.store_rounds import TICK_MS, StoreRounds
from thermocline.broker.tier.tier_explanation import (
    QueueExplanation,
    QueueTierState,
    TierCondition,
    TopicTierState,
    explain,
    fenced_by,
)
from thermocline.broker.tier.tier_feed import TierFeed
from thermocline.broker.tier.tier_link import TierLink

__all__ = [
    "TICK_MS",
    "DeletionGate",
    "DropOldest",
    "Fence",
    "HiddenMessages",
    "QueueExplanation",
    "QueueTierState",
    "StoreRounds",
    "TierCondition",
    "TierFeed",
    "TierLink",
    "TopicTierState",
    "explain",
    "fenced_by",
    "open_drop_oldest",
]
