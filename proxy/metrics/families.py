"""Families of metrics: every name that a proxy shows at GET /metrics, with its type and what it says.

Names that begin with `rocketmq_` are RocketMQ's, with its labels. Its proxy measures `rocketmq_rpc_latency` of remoting
requests alone; here it has RPCs of gRPC too, under `protocol_type="grpc"`. Messages and throughput are figures of its
brokers; here they are those of what passed the proxy, with `protocol_type` beside the broker's labels.
Source: proxy/metrics/ProxyMetricsConstant.java, remoting/metrics/RemotingMetricsManager.java,
broker/metrics/BrokerMetricsConstant.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.remoting.health import REFUSAL_FAMILIES, Families, MetricType

__all__ = ["FAMILIES"]

FAMILIES: Families = {
    "rocketmq_proxy_up": (MetricType.GAUGE, "Always 1; labels name the proxy and its cluster."),
    "rocketmq_rpc_latency": (
        MetricType.HISTOGRAM,
        "Milliseconds that an RPC or a request took.",
    ),
    "rocketmq_messages_in_total": (MetricType.COUNTER, "Messages stored for clients, by topic, type and protocol."),
    "rocketmq_messages_out_total": (MetricType.COUNTER, "Messages given to clients, by topic, group and protocol."),
    "rocketmq_throughput_in_total": (MetricType.COUNTER, "Bytes of the bodies of messages stored for clients."),
    "rocketmq_throughput_out_total": (MetricType.COUNTER, "Bytes of the bodies of messages given to clients."),
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
