"""The seam over a cluster: see cluster_messaging.py."""

from thermocline.proxy.cluster.cluster_messaging import ClusterMessaging, ClusterOptions

__all__ = ["ClusterMessaging", "ClusterOptions"]
