"""ProxyServer: one proxy, put together: ports for gRPC and remoting in front, the cluster behind, or a broker beside.

Stop: no new connection and no new RPC or request; streams and long polls end (UNAVAILABLE, so that clients go to
another proxy); RPCs and requests that are being answered may end within `grpcShutdownTimeSeconds`; what clients hold
becomes visible soon; then the connections to the cluster close.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections import Counter

from thermocline.client.producer.async_producer import AsyncProducer
from thermocline.client.trace.trace_dispatcher import TraceDispatcher, trace_group
from thermocline.proxy.access import ClusterUsers, QuotaCheck
from thermocline.proxy.clients import ClientRegistry, ProxyClient
from thermocline.proxy.cluster import ClientReports, ClusterMessaging, ClusterOptions, OwnBroker, RoutedMessaging
from thermocline.proxy.flow import Consumption, HeldHandles, Production, RenewalRules, Traces, retry_delay_ms
from thermocline.proxy.grpc.calls import (
    GrpcStatus,
    MethodKind,
    ReceivedBytes,
    RpcService,
    health_methods,
    refusal_block,
)
from thermocline.proxy.grpc.messages import SERVICE
from thermocline.proxy.grpc.service import (
    Application,
    Background,
    BrokerQuestions,
    ClientCommands,
    Transactions,
    reported_client,
    service_methods,
)
from thermocline.proxy.http2 import Http2Server
from thermocline.proxy.live_quotas import LiveQuotas
from thermocline.proxy.messaging import TransactionCheck
from thermocline.proxy.metrics import ProxyFigures, Traffic
from thermocline.proxy.more_listeners import MoreListeners
from thermocline.proxy.proxy_access import ProxyAccess, own_credentials
from thermocline.proxy.proxy_health import ProxyHealth
from thermocline.proxy.remoting import PopLimits, PopOptions, RemotingOptions, RemotingPort, SessionLimits
from thermocline.proxy.routing import DEFAULT_CLUSTER, Routing
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.bodies import SubscriptionGroupConfig
from thermocline.remoting.clients import split_addresses
from thermocline.remoting.clocks import monotonic_ms, wall_clock_ms
from thermocline.remoting.connections import LimitCounts, warn_if_exposed
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.socket_address import format_address
from thermocline.remoting.tls import ClientTls, TlsGate, TlsOptions, outgoing_options
from thermocline.remoting.topic_validation import TRACE_TOPIC

__all__ = ["ProxyServer"]

logger = logging.getLogger(__name__)

STREAMS = frozenset({MethodKind.SERVER_STREAM, MethodKind.BIDIRECTIONAL})


class ProxyServer:
    """See the module. `start` once, `close` as often as wanted; both on one event loop."""

    def __init__(
        self, config: ProxyConfig, *, own_broker: OwnBroker | None = None, credentials: Credentials | None = None
    ) -> None:
        """Put it together. `own_broker`: in whose process group it runs, and `credentials` that one's own.

        Raises:
            SettingError: A TLS file cannot be used, the audit log not opened, the proxy's own keys are missing, or
                clusters or routing rules cannot be used.
        """
        self.config = config
        self.remoting_port = -1
        """The port for remoting clients once it is open; -1: none."""
        self.counts = LimitCounts()
        self._name = config.proxy_name or socket.gethostname()
        options = _cluster_options(config, self._name, own_credentials(config, credentials), own_broker)
        self._mode = "cluster" if own_broker is None else "local"
        self.routing = Routing(
            clusters=config.routing_clusters,
            rules_path=config.routing_rules_path,
            has_users=config.authentication_enabled,
        )
        self._has_credentials = any((options.credentials, *(each.credentials for each in self.routing.clusters)))
        self._messaging: ClusterMessaging | RoutedMessaging
        if self.routing.has_clusters:
            self._messaging = RoutedMessaging(options, self.routing, self)
            clusters = self._messaging.clusters
        else:
            self._messaging = ClusterMessaging(options, self)
            clusters = {DEFAULT_CLUSTER: self._messaging}
        users = ClusterUsers(
            self._messaging.ask_cluster, stale_ms_max=config.access_stale_ms_max, clock_ms=monotonic_ms
        )
        self.access = ProxyAccess(config, users, counts=self.counts, clock_ms=wall_clock_ms)
        self.clients = ClientRegistry(
            clients_max=config.clients_max,
            names_max=config.client_names_max,
            settings_bytes_max=config.client_settings_bytes_max,
            expiry_ms=config.client_expiry_ms,
            clock_ms=monotonic_ms,
            on_removed=[self._client_removed],
            on_group_gone=self._messaging.unwatch_transactions,
        )
        self.handles = HeldHandles(
            self._messaging,
            _renewal_rules(config),
            is_listening=self.clients.is_listening,
            retry_delay_ms=self._retry_delay_ms,
            clock_ms=monotonic_ms,
        )
        self._trace_dispatcher = _trace_dispatcher(config, options)
        traffic = Traffic(topics_max=config.metrics_topics_max, pairs_max=config.metrics_pairs_max)
        self.app = self._application(traffic)
        self._live_quotas = LiveQuotas(config, self.app.quotas)
        self._transactions = Transactions(self.app)
        self._reports = [self._client_reports(cluster) for cluster in clusters.values()]
        received = ReceivedBytes(message_bytes_max=config.inbound_bytes_max, bytes_max=config.receiving_bytes_max)
        self.health = ProxyHealth(
            config,
            clusters={name: cluster.is_reachable for name, cluster in clusters.items()},
            routing=self.routing.shown,
            figures=lambda: self._figures(received),
            clients=self.clients.clients,
            access=self.access.check,
            counts=self.counts,
            traffic=traffic,
        )
        methods = service_methods(self.app, self._transactions) | health_methods(SERVICE, self.health.is_reachable)
        self.service = RpcService(methods, received, on_done=self.health.rpc_done, balancers=config.balancers())
        self._gate = TlsGate(config.tls, self.counts, alpn=("h2",))
        self._more = MoreListeners(self.app.listeners, self._gate, tls=config.tls, counts=self.counts)
        self._server = Http2Server(
            self.service.open,
            limits=config.http2_limits,
            counts=self.counts,
            too_large_block=refusal_block(GrpcStatus.RESOURCE_EXHAUSTED, "the metadata are too large"),
            gate=self._gate,
        )
        self.remoting = None if config.remoting_port < 0 else self._remoting_port(options.tls)

    def _application(self, traffic: Traffic) -> Application:
        config = self.config
        return Application(
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
            access=self.access.check,
            commands=ClientCommands(timeout_ms=config.relay_timeout_s * 1000),
            quotas=QuotaCheck(config.quotas, clock_s=time.monotonic),
            traffic=traffic,
            traces=None if self._trace_dispatcher is None else Traces(self._trace_dispatcher, clock_ms=wall_clock_ms),
            listeners=config.listeners(),
        )

    def _client_reports(self, cluster: ClusterMessaging) -> ClientReports:
        return ClientReports(
            self.clients,
            proxy_name=self._name,
            brokers=cluster.brokers.master_addresses,
            describe=lambda client: reported_client(client, started_ms=wall_clock_ms() - self.clients.age_ms(client)),
            handler=BrokerQuestions(self.app),
            interval_ms=self.config.report_interval_ms,
            credentials=cluster.options.credentials,
            tls=cluster.options.tls,
        )

    def _remoting_port(self, tls: TlsOptions | None) -> RemotingPort:
        config = self.config
        return RemotingPort(
            RemotingOptions(
                host=config.bind_address,
                port=config.remoting_port,
                access_address=config.remoting_access_address,
                access_of=self._more.access_of,
                namesrv=tuple(split_addresses(config.namesrv)),
                connections_max=config.remoting_connections_max,
                address_connections_max=config.address_connections_max,
                client_requests_max=config.remoting_client_requests_max,
                session_limits=SessionLimits(
                    requests_max=config.remoting_requests_max,
                    broker_connections_max=config.remoting_broker_connections_max,
                    heartbeat_bytes_max=config.remoting_heartbeat_bytes_max,
                ),
                pop=self._pop_options(),
            ),
            self._messaging,
            production=self.app.production if config.checks_message_type else None,
            routing=self.routing,
            tls=None if tls is None else ClientTls(tls),
            gate=self._gate,
            grpc=self._server,
            counts=self.counts,
            latency=self.health.latency,
            traffic=self.app.traffic,
            quotas=self.app.quotas,
        )

    def _pop_options(self) -> PopOptions | None:
        config = self.config
        if not config.remoting_push_by_pop:
            return None
        if self._has_credentials:
            logger.warning(
                "push consumers of the remoting port are not served by POP: the proxy would acknowledge and begin for "
                "clients that do not sign, with the rights of its own credentials"
            )
            return None
        return PopOptions(
            invisible_ms=config.remoting_pop_invisible_ms,
            clear_ms=config.invisible_ms_when_clear,
            limits=PopLimits(
                queues_max=config.remoting_pop_queues_max,
                queue_handles_max=config.remoting_pop_queue_handles_max,
                handles_max=config.remoting_pop_handles_max,
            ),
        )

    async def start(self) -> int:
        """Listen; returns the port for gRPC. `remoting_port` says the other one.

        Raises:
            OSError: A port is taken.
            UnavailableError: Where the NameServers are to be looked up, none was found.
        """
        config = self.config
        await self._messaging.start()
        self.access.start()
        if self._trace_dispatcher is not None:
            await self._trace_dispatcher.start()
        port = self.app.grpc_port = await self._server.start(config.bind_address, config.grpc_port)
        ports = [port]
        if self.remoting is not None:
            self.remoting_port = await self.remoting.start()
            ports.append(self.remoting_port)
        self._gate.open()
        self._live_quotas.start()
        self.clients.start()
        for reports in self._reports:
            reports.start()
        self.handles.start()
        addresses = [format_address(config.bind_address, each) for each in ports]
        addresses += await self._more.start(self._server, self.remoting)
        self.health.is_serving = True
        health_port = await self.health.start()
        if health_port is not None:
            addresses.append(format_address(config.health_host, health_port))
        warn_if_exposed(addresses, authentication_enabled=config.authentication_enabled)
        logger.info(
            "proxy started host=%s port=%d remoting_port=%d namesrv=%s",
            config.bind_address,
            port,
            self.remoting_port,
            config.namesrv,
        )
        return port

    async def close(self) -> None:
        """See the module. Idempotent."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.shutdown_s
        self.health.is_serving = False
        self._live_quotas.close()
        if self.remoting is not None:
            await self.remoting.close(timeout_ms=self.config.shutdown_s * 1000)
        await self._server.stop_accepting()
        self.service.cancel_all(STREAMS)
        await self.service.wait_done(timeout_ms=self.config.shutdown_s * 1000)
        await self._server.close()
        self._gate.close()
        self._more.close()
        self.clients.close()
        await asyncio.gather(*(reports.close() for reports in self._reports))
        await self.handles.close()
        await self.app.production.close()
        # Long polls that clients gave up: brokers still answer them, and what comes is given back.
        await self.app.background.close(timeout_ms=max(0, int((deadline - loop.time()) * 1000)))
        if self._trace_dispatcher is not None:
            await self._trace_dispatcher.close()
        await self.health.close()
        await self.access.close()
        await self._messaging.close()

    def transaction_checked(self, check: TransactionCheck) -> None:
        """Take a broker's question about a transaction."""
        self._transactions.transaction_checked(check)

    def _figures(self, received: ReceivedBytes) -> ProxyFigures:
        access = self.access.check
        return ProxyFigures(
            cluster_name=self.config.cluster_name,
            proxy_name=self._name,
            mode=self._mode,
            connections=self._server.connection_count,
            open_rpcs=self.service.call_count,
            clients=Counter(client.kind for client in self.clients.clients()),
            long_polls=self.app.polls,
            receipt_handles=len(self.handles),
            receiving_bytes=received.total_bytes,
            limits=self.counts.totals,
            quotas=self.app.quotas.refusals,
            denials={} if access is None else access.audit.denials,
        )

    def _client_removed(self, client: ProxyClient) -> None:
        self.handles.release_client(client.client_id)

    async def _retry_delay_ms(self, group: str, broker_name: str, reconsume_times: int) -> int:
        config = await self._messaging.group_config(group, broker_name=broker_name) or SubscriptionGroupConfig()
        return retry_delay_ms(config, reconsume_times)


def _cluster_options(
    config: ProxyConfig, name: str, credentials: Credentials | None, own_broker: OwnBroker | None
) -> ClusterOptions:
    return ClusterOptions(
        namesrv=tuple(split_addresses(config.namesrv)),
        cluster_name=config.cluster_name,
        client_id=f"rmq-proxy-producer-client@{name}@{os.getpid()}",
        credentials=credentials,
        own_broker=own_broker,
        tls=outgoing_options(config.tls),
        refresh_ms=config.refresh_s * 1000,
        expiry_ms=config.expiry_s * 1000,
        topics_max=config.topics_max,
        groups_max=config.groups_max,
        transaction_period_s=config.transaction_period_s,
        transaction_groups_per_heartbeat=config.transaction_groups,
    )


def _renewal_rules(config: ProxyConfig) -> RenewalRules:
    return RenewalRules(
        period_ms=config.renew_period_ms,
        ahead_ms=config.renew_ahead_ms,
        ms_max=config.renew_ms_max,
        tries=config.renew_tries,
        clear_ms=config.invisible_ms_when_clear,
        handles_max=config.handles_max,
        client_handles_max=config.client_handles_max,
    )


def _trace_dispatcher(config: ProxyConfig, options: ClusterOptions) -> TraceDispatcher | None:
    """What sends traces to the trace topic; None: none are written."""
    if not config.writes_traces:
        return None
    sender = AsyncProducer(
        group=trace_group(config.cluster_name, kind="PROXY"),
        namesrv=config.namesrv,
        tls=options.tls,
        credentials=options.credentials,
    )
    return TraceDispatcher(sender, topic=TRACE_TOPIC)
