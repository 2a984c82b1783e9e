"""The HTTP port of a daemon: its state for load balancers, its figures as Prometheus reads them."""

from thermocline.remoting.health.exposition import Exposition, Families, MetricType
from thermocline.remoting.health.health_server import HealthServer, ReaderCheck
from thermocline.remoting.health.refusal_families import REFUSAL_FAMILIES, show_refusals

__all__ = [
    "REFUSAL_FAMILIES",
    "Exposition",
    "Families",
    "HealthServer",
    "MetricType",
    "ReaderCheck",
    "show_refusals",
]
