"""Budgets: settings of the cold tier, and how many bytes it holds at a time."""

from thermocline.tiered.budgets.tier_budgets import TierBudgets
from thermocline.tiered.budgets.tier_config import FullPolicy, TierConfig, property_name

__all__ = ["FullPolicy", "TierBudgets", "TierConfig", "property_name"]
