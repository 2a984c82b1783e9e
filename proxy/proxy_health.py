"""ProxyHealth: the HTTP port of a proxy, for load balancers, Prometheus and operators.

    GET /health    200 while RPCs are taken and a NameServer of a cluster answers that has a broker, else 503; which
                   clusters do
    GET /metrics   figures (proxy/metrics/)
    GET /rules     the clusters beside the default one, and the routing rules in force: see `Routing.shown`
    GET /clients   the clients that are connected here: {"total": number, "clients": [...]}, see `client_row`; with
                   `?group=NAME` those of a group, or producers of a topic. At most CLIENTS_SHOWN_MAX

With access control, details are for users with Get on the cluster, who give name and key by HTTP's Basic
authentication, as at a broker (remoting/health/health_server.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from thermocline.auth.actions import Action
from thermocline.auth.resources import cluster_resource
from thermocline.auth.rights import Right
from thermocline.proxy.access import AccessCheck, Proof, RequestName
from thermocline.proxy.clients import ProxyClient
from thermocline.proxy.grpc.calls import MethodKind, RpcCall
from thermocline.proxy.grpc.messages import CODE_LABELS
from thermocline.proxy.grpc.service import REQUEST_NAMES, shown_settings
from thermocline.proxy.metrics import Protocol, ProxyFigures, RpcLatency, RpcResult, Traffic, metrics_text
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.clocks import monotonic_ms
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import PermissionDeniedError, UnavailableError
from thermocline.remoting.health import HealthServer
from thermocline.remoting.request_signature import SigningKey
from thermocline.remoting.tls import TlsGate

__all__ = ["ProxyHealth"]

logger = logging.getLogger(__name__)

REQUEST_CHARACTERS_MAX = 64
"""Of a request, in the audit log."""
PROBE_AGE_S = 1.0
PROBE_TIMEOUT_S = 3.0
CLIENTS_SHOWN_MAX = 2_000
NAMES_SHOWN_MAX = 32
"""Topics of a producer that are shown."""


class ProxyHealth:
    """See the module. Belongs to the proxy's event loop."""

    def __init__(
        self,
        config: ProxyConfig,
        *,
        clusters: Mapping[str, Callable[[], Awaitable[bool]]],
        routing: Callable[[], dict[str, Any]],
        figures: Callable[[], ProxyFigures],
        clients: Callable[[], Iterable[ProxyClient]],
        access: AccessCheck | None,
        counts: LimitCounts,
        traffic: Traffic,
    ) -> None:
        """`clusters`: by name, whether each is reachable. `routing`: the rules in force, for people. `access`: None:
        every client may read.

        Raises:
            SettingError: A TLS file cannot be used.
        """
        self.latency = RpcLatency()
        self._traffic = traffic
        self.is_serving = False
        """Whether RPCs are taken; set by the proxy."""
        self._config = config
        self._clusters = clusters
        self._probed_ms = float("-inf")
        self._were_reachable: dict[str, bool] = dict.fromkeys(clusters, False)
        self._asking: asyncio.Task[None] | None = None
        self._figures = figures
        self._access = access
        self._right = Right(cluster_resource(config.cluster_name), (Action.GET,))
        # A gate of its own: this port speaks HTTP/1.1, and must not agree on HTTP/2 as the RPCs' port does.
        self._gate = TlsGate(config.tls, counts) if config.health_port >= 0 else None
        self._server = HealthServer(
            self._probe,
            self._metrics,
            documents={
                "/clients": lambda query: _clients_text(clients(), query),
                "/rules": lambda _query: json.dumps(routing()).encode(),
            },
            may_read=None if access is None else self._may_read,
            gate=self._gate,
        )

    async def start(self) -> int | None:
        """Listen, where a port is wanted; returns it.

        Raises:
            OSError: The port is taken.
        """
        if self._gate is None:
            return None
        self._gate.open()
        port = await self._server.start(self._config.health_host, self._config.health_port)
        logger.info("health endpoint host=%s port=%d", self._config.health_host, port)
        return port

    async def close(self) -> None:
        """End it. Idempotent."""
        await self._server.close()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        if self._gate is not None:
            self._gate.close()

    def rpc_done(self, call: RpcCall) -> None:
        """Measure an RPC that has ended. Telemetry streams, which last as long as their clients, are not."""
        if call.kind is MethodKind.BIDIRECTIONAL or call.name not in REQUEST_NAMES:
            return
        if call.is_canceled:
            result = RpcResult.CANCELED
        else:
            result = RpcResult.SUCCESS if call.code else RpcResult.FAILED
        self.latency.add(
            call.name,
            CODE_LABELS[call.code],
            result,
            protocol=Protocol.GRPC,
            is_long_polling=call.kind is MethodKind.SERVER_STREAM,
            ms=(call.stream.connection.loop.time() - call.stream.opened) * 1000,
        )

    async def _probe(self) -> tuple[bool, Mapping[str, object]]:
        reachable = await self._reachable()
        is_reachable = any(reachable.values())
        figures = self._figures()
        details = {
            "isServing": self.is_serving,
            "isClusterReachable": is_reachable,
            "clusters": reachable,
            "connections": figures.connections,
            "clients": sum(figures.clients.values()),
        }
        return self.is_serving and is_reachable, details

    async def is_reachable(self) -> bool:
        """Whether one cluster was reachable at most PROBE_AGE_S ago."""
        return any((await self._reachable()).values())

    async def _reachable(self) -> dict[str, bool]:
        """Which clusters were reachable at most PROBE_AGE_S ago: every client may ask, as often as it likes."""
        if monotonic_ms() - self._probed_ms >= PROBE_AGE_S * 1000:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.get_running_loop().create_task(self._ask_clusters())
            await asyncio.shield(self._asking)
        return self._were_reachable

    async def _ask_clusters(self) -> None:
        asked_ms = monotonic_ms()
        found = await asyncio.gather(*map(_answers, self._clusters.values()))
        self._were_reachable = dict(zip(self._clusters, found, strict=True))
        self._probed_ms = asked_ms

    async def _metrics(self) -> bytes:
        return metrics_text(self._figures(), self.latency, self._traffic, clusters=await self._reachable())

    async def _may_read(self, username: str, key: str, address: str, request: str) -> bool:
        assert self._access is not None
        shown = request[:REQUEST_CHARACTERS_MAX]
        # Two keys are equal when they sign alike.
        proof = Proof(username=username, signature=SigningKey(key.encode()).signature(b"").decode())
        try:
            await self._access.check(RequestName(shown, shown), proof, [self._right], address)
        except (PermissionDeniedError, UnavailableError):
            return False
        return True


async def _answers(is_reachable: Callable[[], Awaitable[bool]]) -> bool:
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            return await is_reachable()
    except TimeoutError:
        return False


def client_row(client: ProxyClient) -> dict[str, Any]:
    """Return a client for people. Its groups: the topics of a producer, the group of a consumer."""
    return {
        "kind": client.kind,
        "groups": list(client.names[:NAMES_SHOWN_MAX]),
        "groupCount": len(client.names),
        "clientId": client.client_id,
        "language": client.language,
        "version": client.version,
        "address": client.remote_address,
        "user": client.username,
        "hasStream": client.channel is not None,
        "longPolls": client.polls,
        "settings": shown_settings(client.settings),
    }


def _clients_text(clients: Iterable[ProxyClient], query: str) -> bytes:
    wanted = urllib.parse.parse_qs(query).get("group", [""])[0]
    found = [client for client in clients if not wanted or wanted in client.names]
    found.sort(key=lambda client: (client.kind, client.names, client.client_id))
    shown = [client_row(client) for client in found[:CLIENTS_SHOWN_MAX]]
    return json.dumps({"total": len(found), "clients": shown}).encode()
