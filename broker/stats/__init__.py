"""Stats: the broker's counters, and the metrics page."""

from thermocline.broker.stats.broker_stats import BrokerStats, StatsView
from thermocline.broker.stats.metrics_page import ControlledFigures, MetricsPage
from thermocline.broker.stats.stats_meter import WindowSum
from thermocline.broker.stats.store_rates import StoreRates

__all__ = ["BrokerStats", "ControlledFigures", "MetricsPage", "StatsView", "StoreRates", "WindowSum"]
