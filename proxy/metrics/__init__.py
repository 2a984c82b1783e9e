"""Figures of a proxy: times and results of RPCs, clients, what is open and held, refusals."""

from thermocline.proxy.metrics.families import FAMILIES
from thermocline.proxy.metrics.metrics_page import ProxyFigures, metrics_text
from thermocline.proxy.metrics.rpc_latency import RpcLatency, RpcResult

__all__ = ["FAMILIES", "ProxyFigures", "RpcLatency", "RpcResult", "metrics_text"]
