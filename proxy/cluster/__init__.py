"""The seam over a cluster: see cluster_messaging.py."""

from thermocline.proxy.cluster.cluster_messaging import ClusterMessaging
from thermocline.proxy.cluster.cluster_options import ClusterOptions
from thermocline.proxy.cluster.loading_cache import LoadingCache
from thermocline.proxy.cluster.own_broker import OwnBroker

__all__ = ["ClusterMessaging", "ClusterOptions", "LoadingCache", "OwnBroker"]
