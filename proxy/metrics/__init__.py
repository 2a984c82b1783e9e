"""Figures of a proxy: times and results of RPCs and requests, messages, clients, what is open and held, refusals."""

from thermocline.proxy.metrics.families import FAMILIES
from thermocline.proxy.metrics.metrics_page import ProxyFigures, metrics_text
from thermocline.proxy.metrics.rpc_latency import RpcLatency, RpcResult
from thermocline.proxy.metrics.traffic import Protocol, Traffic

__all__ = ["FAMILIES", "Protocol", "ProxyFigures", "RpcLatency", "RpcResult", "Traffic", "metrics_text"]
