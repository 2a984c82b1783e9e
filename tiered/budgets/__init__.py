"""Budgets: settings of the cold tier, and the requests and bytes that may be spent."""

from thermocline.tiered.budgets.cost_meter import HOUR_MS, OTHER_TOPICS, TOPICS_MAX, CostMeter, Purpose, Recent
from thermocline.tiered.budgets.request_budget import RequestBudget, counted_requests, state_requests_per_hour
from thermocline.tiered.budgets.request_kind import RequestKind, requests_by_kind
from thermocline.tiered.budgets.tier_budgets import TierBudgets
from thermocline.tiered.budgets.tier_config import FullPolicy, TierConfig

__all__ = [
    "HOUR_MS",
    "OTHER_TOPICS",
    "TOPICS_MAX",
    "CostMeter",
    "FullPolicy",
    "Purpose",
    "Recent",
    "RequestBudget",
    "RequestKind",
    "TierBudgets",
    "TierConfig",
    "counted_requests",
    "requests_by_kind",
    "state_requests_per_hour",
]
