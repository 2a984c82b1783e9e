"""ProxyServer: one proxy, put together: the gRPC port in front, the cluster behind, by itself or beside a broker.

Stop: no new connection and no new RPC; streams and long polls end (UNAVAILABLE, so that clients go to another proxy);
RPCs that are being answered may end within `grpcShutdownTimeSeconds`; what clients hold becomes visible soon; then the
connections to the cluster close.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket

from thermocline.client.credentials import environment_credentials
from thermocline.proxy.clients import ClientRegistry, ProxyClient
from thermocline.proxy.cluster import ClusterMessaging, ClusterOptions, OwnBroker
from thermocline.proxy.flow import Consumption, HeldHandles, Production, RenewalRules, retry_delay_ms
from thermocline.proxy.grpc.calls import (
    GrpcStatus,
    MethodKind,
    ReceivedBytes,
    RpcService,
    health_methods,
    refusal_block,
)
from thermocline.proxy.grpc.messages import SERVICE
from thermocline.proxy.grpc.service import Application, Background, Transactions, service_methods
from thermocline.proxy.http2 import Http2Server
from thermocline.proxy.messaging import TransactionCheck
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.bodies import SubscriptionGroupConfig
from thermocline.remoting.clients import split_addresses
from thermocline.remoting.clocks import monotonic_ms, wall_clock_ms
from thermocline.remoting.connections import LimitCounts, warn_if_exposed
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.socket_address import format_address
from thermocline.remoting.tls import TlsGate, outgoing_options

__all__ = ["ProxyServer"]

logger = logging.getLogger(__name__)

STREAMS = frozenset({MethodKind.SERVER_STREAM, MethodKind.BIDIRECTIONAL})


class ProxyServer:
    """See the module. `start` once, `close` as often as wanted; both on one event loop."""

    def __init__(
        self, config: ProxyConfig, *, own_broker: OwnBroker | None = None, credentials: Credentials | None = None
    ) -> None:
        """Put it together. `own_broker`: in whose process group it runs. `credentials`: sign its requests; None: those
        of the environment, if there are any.

        Raises:
            SettingError: A TLS file cannot be used.
        """
        self.config = config
        self.counts = LimitCounts()
        name = config.proxy_name or socket.gethostname()
        options = ClusterOptions(
            namesrv=tuple(split_addresses(config.namesrv)),
            cluster_name=config.cluster_name,
            client_id=f"rmq-proxy-producer-client@{name}@{os.getpid()}",
            credentials=credentials or environment_credentials(),
            own_broker=own_broker,
            tls=outgoing_options(config.tls),
            refresh_ms=config.refresh_s * 1000,
            expiry_ms=config.expiry_s * 1000,
            topics_max=config.topics_max,
            groups_max=config.groups_max,
            transaction_period_s=config.transaction_period_s,
            transaction_groups_per_heartbeat=config.transaction_groups,
        )
        self._messaging = ClusterMessaging(options, self)
        self.clients = ClientRegistry(
            clients_max=config.clients_max,
            names_max=config.client_names_max,
            expiry_ms=config.client_expiry_ms,
            clock_ms=monotonic_ms,
            on_removed=[self._client_removed],
            on_group_gone=self._messaging.unwatch_transactions,
        )
        self.handles = HeldHandles(
            self._messaging,
            RenewalRules(
                period_ms=config.renew_period_ms,
                ahead_ms=config.renew_ahead_ms,
                ms_max=config.renew_ms_max,
                tries=config.renew_tries,
                clear_ms=config.invisible_ms_when_clear,
                handles_max=config.handles_max,
                client_handles_max=config.client_handles_max,
            ),
            is_listening=self.clients.is_listening,
            retry_delay_ms=self._retry_delay_ms,
            clock_ms=wall_clock_ms,
        )
        self.app = Application(
            config=config,
            messaging=self._messaging,
            clients=self.clients,
            production=Production(
                self._messaging, checks_message_type=config.checks_message_type, clock_ms=monotonic_ms
            ),
            consumption=Consumption(self._messaging),
            handles=self.handles,
            background=Background(),
            counts=self.counts,
            clock_ms=wall_clock_ms,
        )
        self._transactions = Transactions(self.app)
        received = ReceivedBytes(message_bytes_max=config.inbound_bytes_max, bytes_max=config.receiving_bytes_max)
        methods = service_methods(self.app, self._transactions) | health_methods(SERVICE, self._messaging.is_reachable)
        self.service = RpcService(methods, received)
        self._gate = TlsGate(config.tls, self.counts, alpn=("h2",))
        self._server = Http2Server(
            self.service.open,
            limits=config.http2_limits,
            counts=self.counts,
            too_large_block=refusal_block(GrpcStatus.RESOURCE_EXHAUSTED, "the metadata are too large"),
            gate=self._gate,
        )

    async def start(self) -> int:
        """Listen; returns the port.

        Raises:
            OSError: The port is taken.
            UnavailableError: Where the NameServers are to be looked up, none was found.
        """
        config = self.config
        await self._messaging.start()
        port = self.app.grpc_port = await self._server.start(config.bind_address, config.grpc_port)
        self._gate.open()
        self.clients.start()
        self.handles.start()
        warn_if_exposed([format_address(config.bind_address, port)], authentication_enabled=False)
        logger.info("proxy started host=%s port=%d namesrv=%s", config.bind_address, port, config.namesrv)
        return port

    async def close(self) -> None:
        """See the module. Idempotent."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.shutdown_s
        await self._server.stop_accepting()
        self.service.cancel_all(STREAMS)
        await self.service.wait_done(timeout_ms=self.config.shutdown_s * 1000)
        await self._server.close()
        self._gate.close()
        self.clients.close()
        await self.handles.close()
        # Long polls that clients gave up: brokers still answer them, and what comes is given back.
        await self.app.background.close(timeout_ms=max(0, int((deadline - loop.time()) * 1000)))
        await self._messaging.close()

    def transaction_checked(self, check: TransactionCheck) -> None:
        """Take a broker's question about a transaction."""
        self._transactions.transaction_checked(check)

    def _client_removed(self, client: ProxyClient) -> None:
        self.handles.release_client(client.client_id)

    async def _retry_delay_ms(self, group: str, reconsume_times: int) -> int:
        config = await self._messaging.group_config(group) or SubscriptionGroupConfig()
        return retry_delay_ms(config, reconsume_times)
