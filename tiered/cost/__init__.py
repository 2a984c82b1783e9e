"""Cost: requests and bytes counted, kept to a budget, and priced."""

from thermocline.tiered.cost.cost_meter import HOUR_MS, OTHER_TOPICS, TOPICS_MAX, CostMeter, Purpose, Recent
from thermocline.tiered.cost.price_table import HOURS_PER_MONTH, PriceTable
from thermocline.tiered.cost.request_budget import (
    RequestBudget,
    counted_requests,
    requests_per_hour_min,
    state_requests_per_hour,
)
from thermocline.tiered.cost.request_kind import RequestKind, requests_by_kind

__all__ = [
    "HOURS_PER_MONTH",
    "HOUR_MS",
    "OTHER_TOPICS",
    "TOPICS_MAX",
    "CostMeter",
    "PriceTable",
    "Purpose",
    "Recent",
    "RequestBudget",
    "RequestKind",
    "counted_requests",
    "requests_by_kind",
    "requests_per_hour_min",
    "state_requests_per_hour",
]
