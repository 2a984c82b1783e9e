"""Cost: prices of requests and bytes, the forecast of a bill, the shares of topics."""

from thermocline.tiered.cost.price_table import HOURS_PER_MONTH, PriceTable
from thermocline.tiered.cost.service_forecast import forecast_requests, forecast_storage, loads_of, requests_besides
from thermocline.tiered.cost.topic_shares import ERRORS, RECEIVED, SENT, TopicRow, TopicShares

__all__ = [
    "ERRORS",
    "HOURS_PER_MONTH",
    "RECEIVED",
    "SENT",
    "PriceTable",
    "TopicRow",
    "TopicShares",
    "forecast_requests",
    "forecast_storage",
    "loads_of",
    "requests_besides",
]
