"""The text behind GET /metrics of one proxy, made on request of figures that are counted anyway."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from thermocline.proxy.metrics.families import FAMILIES
from thermocline.proxy.metrics.rpc_latency import BOUNDS_MS, RpcLatency
from thermocline.proxy.metrics.traffic import Traffic
from thermocline.remoting.health import Exposition, show_refusals

__all__ = ["ProxyFigures", "metrics_text"]


class ProxyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a proxy as of one moment. `clients`: by what they are."""

    cluster_name: str
    proxy_name: str
    mode: str = "cluster"
    """RocketMQ's proxyMode: "local" beside a broker."""
    connections: int
    open_rpcs: int
    clients: Mapping[str, int]
    long_polls: int
    receipt_handles: int
    receiving_bytes: int
    limits: Mapping[str, int]
    quotas: Mapping[tuple[str, str], int]
    denials: Mapping[str, int]


def metrics_text(
    figures: ProxyFigures, latency: RpcLatency, traffic: Traffic, *, clusters: Mapping[str, bool]
) -> bytes:
    """Return the whole page. `clusters`: which of them are reachable."""
    page = Exposition(FAMILIES)
    # The labels that RocketMQ puts on every figure of a proxy.
    node = {
        "node_type": "proxy",
        "cluster": figures.cluster_name,
        "node_id": figures.proxy_name,
        "proxy_mode": figures.mode,
    }
    page.add("rocketmq_proxy_up", 1, node)
    for labels, series in latency.series():
        page.add_histogram("rocketmq_rpc_latency", BOUNDS_MS, series.counts, series.total_ms, {**node, **labels})
    for direction, counts in (("in", traffic.series_in()), ("out", traffic.series_out())):
        for labels, passed in counts:
            page.add(f"rocketmq_messages_{direction}_total", passed.messages, {**node, **labels})
            page.add(f"rocketmq_throughput_{direction}_total", passed.size_bytes, {**node, **labels})
    for cluster, is_reachable in clusters.items():
        page.add("thermocline_proxy_cluster_reachable", int(is_reachable), {"cluster": cluster})
    page.add("thermocline_proxy_connections", figures.connections)
    page.add("thermocline_proxy_open_rpcs", figures.open_rpcs)
    for kind, count in figures.clients.items():
        page.add("thermocline_proxy_clients", count, {"kind": kind})
    page.add("thermocline_proxy_long_polls", figures.long_polls)
    page.add("thermocline_proxy_receipt_handles", figures.receipt_handles)
    page.add("thermocline_proxy_receiving_bytes", figures.receiving_bytes)
    show_refusals(page, limits=figures.limits, quotas=figures.quotas, denials=figures.denials)
    return page.text()
