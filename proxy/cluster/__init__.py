"""The seam over a cluster (cluster_messaging.py), and over several (routed_messaging.py)."""

from thermocline.proxy.cluster.cluster_messaging import ClusterMessaging
from thermocline.proxy.cluster.cluster_options import ClusterOptions
from thermocline.proxy.cluster.loading_cache import LoadingCache
from thermocline.proxy.cluster.own_broker import OwnBroker
from thermocline.proxy.cluster.routed_messaging import RoutedMessaging

__all__ = ["ClusterMessaging", "ClusterOptions", "LoadingCache", "OwnBroker", "RoutedMessaging"]
