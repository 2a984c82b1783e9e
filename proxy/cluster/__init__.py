"""The seam over a cluster: see cluster_messaging.py; what brokers are told of clients."""

from thermocline.proxy.cluster.client_reports import ClientReports
from thermocline.proxy.cluster.cluster_messaging import ClusterMessaging
from thermocline.proxy.cluster.cluster_options import ClusterOptions
from thermocline.proxy.cluster.loading_cache import LoadingCache
from thermocline.proxy.cluster.own_broker import OwnBroker

__all__ = ["ClientReports", "ClusterMessaging", "ClusterOptions", "LoadingCache", "OwnBroker"]
