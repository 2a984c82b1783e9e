"""The seam over one cluster and several (cluster_messaging.py, routed_messaging.py); reports of clients to brokers."""

from thermocline.proxy.cluster.client_reports import ClientReports
from thermocline.proxy.cluster.cluster_messaging import ClusterMessaging
from thermocline.proxy.cluster.cluster_options import ClusterOptions
from thermocline.proxy.cluster.loading_cache import LoadingCache
from thermocline.proxy.cluster.own_broker import OwnBroker
from thermocline.proxy.cluster.routed_messaging import RoutedMessaging

__all__ = ["ClientReports", "ClusterMessaging", "ClusterOptions", "LoadingCache", "OwnBroker", "RoutedMessaging"]
