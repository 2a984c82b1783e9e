"""How a proxy reaches its cluster, and what of it is kept."""

from __future__ import annotations

from dataclasses import dataclass

from thermocline.proxy.cluster.own_broker import OwnBroker
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.tls import TlsOptions

__all__ = ["ClusterOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How the cluster is reached, and what of it is kept."""

    namesrv: tuple[str, ...]
    cluster_name: str
    is_one_of_several: bool = False
    """Whether the NameServers may have brokers of other clusters, which are no part of this one."""
    client_id: str
    """By which brokers know this proxy."""
    credentials: Credentials | None = None
    own_broker: OwnBroker | None = None
    """The broker in whose process group this proxy runs; None: it runs by itself."""
    tls: TlsOptions | None = None
    """How connections to NameServers and brokers are encrypted; None: not at all."""
    refresh_ms: int = 20_000
    expiry_ms: int = 300_000
    topics_max: int = 20_000
    groups_max: int = 20_000
    transaction_period_s: float = 20.0
    transaction_groups_per_heartbeat: int = 100
