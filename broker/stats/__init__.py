"""Stats: the broker's counters, the metrics page and the health port."""

from thermocline.broker.stats.broker_stats import BrokerStats, StatsView
from thermocline.broker.stats.health import HealthServer, ReaderCheck
from thermocline.broker.stats.metrics_page import MetricsPage
from thermocline.broker.stats.stats_meter import WindowSum
from thermocline.broker.stats.store_rates import StoreRates

__all__ = ["BrokerStats", "HealthServer", "MetricsPage", "ReaderCheck", "StatsView", "StoreRates", "WindowSum"]
