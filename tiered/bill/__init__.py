"""Bill: the forecast of a bill, and the shares of topics in it."""

from thermocline.tiered.bill.service_forecast import forecast_requests, forecast_storage, loads_of, requests_besides
from thermocline.tiered.bill.topic_shares import ERRORS, RECEIVED, SENT, TopicRow, TopicShares

__all__ = [
    "ERRORS",
    "RECEIVED",
    "SENT",
    "TopicRow",
    "TopicShares",
    "forecast_requests",
    "forecast_storage",
    "loads_of",
    "requests_besides",
]
