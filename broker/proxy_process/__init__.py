"""The proxy process: a proxy for gRPC clients in the broker's process group."""

from thermocline.broker.proxy_process.merged_settings import merged_config

__all__ = ["merged_config"]
