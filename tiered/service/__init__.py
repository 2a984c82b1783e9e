"""Service: what a tier process does in the background, round by round."""

from thermocline.tiered.service.indexing import Change, Indexing
from thermocline.tiered.service.tier_service import TierService

__all__ = ["Change", "Indexing", "TierService"]
