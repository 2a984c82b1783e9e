"""Families of metrics: every name that a proxy shows at GET /metrics, with its type and what it says.

Names that begin with `rocketmq_` are RocketMQ's, with its labels. Its proxy measures `rocketmq_rpc_latency` of remoting
requests alone; here it has RPCs of gRPC, under `protocol_type="grpc"`.
Source: proxy/metrics/ProxyMetricsConstant.java, remoting/metrics/RemotingMetricsManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.remoting.health import REFUSAL_FAMILIES, Families, MetricType

__all__ = ["FAMILIES"]

FAMILIES: Families = {
    "rocketmq_proxy_up": (MetricType.GAUGE, "Always 1; labels name the proxy and its cluster."),
    "rocketmq_rpc_latency": (MetricType.HISTOGRAM, "Milliseconds from an RPC's beginning to its end."),
    "thermocline_proxy_cluster_reachable": (
        MetricType.GAUGE,
        "1 while a NameServer of this cluster answers that has a broker, else 0.",
    ),
    "thermocline_proxy_connections": (MetricType.GAUGE, "Open connections."),
    "thermocline_proxy_open_rpcs": (MetricType.GAUGE, "RPCs that are open, Telemetry streams among them."),
    "thermocline_proxy_clients": (MetricType.GAUGE, "Registered clients, by what they are."),
    "thermocline_proxy_long_polls": (MetricType.GAUGE, "Long polls under way."),
    "thermocline_proxy_receipt_handles": (MetricType.GAUGE, "Handles that are renewed for clients."),
    "thermocline_proxy_receiving_bytes": (MetricType.GAUGE, "Requests that are received or not answered yet."),
    **REFUSAL_FAMILIES,
}
