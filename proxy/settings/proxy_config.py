"""ProxyConfig: the settings of a proxy, by RocketMQ's names where it has them, and its own limits.

Values are checked when a configuration is made. Where the settings come from: setting_sources.py; what each name of
RocketMQ means here: official_settings.py.
Source: ProxyConfig.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from thermocline.auth.quota_texts import USER, parse_quotas
from thermocline.proxy.http2 import Balancers, Http2Limits
from thermocline.proxy.settings.listener_texts import REMOTING, Listeners, parse_access_address, parse_listeners
from thermocline.remoting.connections import LOOPBACK
from thermocline.remoting.errors import InvalidParameterError, SettingError
from thermocline.remoting.settings import TlsConfig
from thermocline.remoting.socket_address import Host

__all__ = ["FIELDS_BY_NAME", "OWN_FIELDS", "QUOTAS", "ProxyConfig"]

QUOTAS = "quotas"


def _setting(
    default: Any, name: str, *, least: int | None = None, most: int | None = None, is_secret: bool = False
) -> Any:
    metadata = {"name": name, "least": least, "most": most, "is_secret": is_secret}
    return field(default=default, repr=not is_secret, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """Settings of one proxy; checked when made.

    Raises:
        SettingError: A value is outside its range.
    """

    # -- where it is, and what is behind it
    bind_address: str = _setting(LOOPBACK, "bindAddress")
    """The address that the port is opened on."""
    grpc_port: int = _setting(8081, "grpcServerPort", least=0, most=65_535)
    """0 takes a free one."""
    remoting_port: int = _setting(8080, "remotingListenPort", least=-1, most=65_535)
    """0 takes a free one; -1: no port for remoting clients."""
    remoting_access_address: str = _setting("", "remotingAccessAddr")
    """The host that routes of remoting clients name; empty: the one that each client is connected to."""
    grpc_access_address: str = _setting("", "grpcAccessAddr")
    """The address, HOST:PORT, that routes of gRPC clients name; empty: the host that the client names, at
    `grpcServerPort`."""
    more_listeners: str = _setting("", "moreListeners")
    """Further addresses to listen on (listener_texts.py)."""
    trusted_balancers: str = _setting("", "trustedBalancers")
    """Addresses and networks of balancers whose x-forwarded-for says who a client is."""
    cluster_name: str = _setting("DefaultCluster", "rocketMQClusterName")
    """The cluster whose brokers configure the groups."""
    proxy_name: str = _setting("", "proxyName")
    """Part of the client id by which brokers know this proxy; empty: the host's name."""
    namesrv: str = _setting("127.0.0.1:9876", "namesrvAddr")
    routing_clusters: str = _setting("", "routingClusters", is_secret=True)
    """JSON: the clusters behind this proxy beside that of `namesrvAddr`; empty: none."""
    routing_rules_path: str = _setting("", "routingRulesPath")
    """File of the rules by which requests go to clusters; empty: all go to the one of `namesrvAddr`."""
    use_endpoint_port: bool = _setting(False, "useEndpointPortFromRequest")
    """Routes name the port that a client was configured with, instead of `grpcServerPort`."""

    # -- messages
    message_bytes_max: int = _setting(4 << 20, "maxMessageSize")
    """0 or less: no limit of the proxy's own."""
    checks_empty_body: bool = _setting(True, "enableMessageBodyEmptyCheck")
    properties_bytes_max: int = _setting(16 << 10, "maxUserPropertySize")
    """0 or less: no limit."""
    properties_max: int = _setting(128, "userPropertyMaxNum", least=0)
    message_group_bytes_max: int = _setting(64, "maxMessageGroupSize")
    """A message group is shorter than this; 0 or less: any length."""
    delay_ms_max: int = _setting(86_400_000, "maxDelayTimeMills")
    """0 or less: no limit of the proxy's own."""
    transaction_recovery_s_max: int = _setting(3_600, "maxTransactionRecoverySecond")
    """0 or less: no limit."""
    checks_message_type: bool = _setting(True, "enableTopicMessageTypeCheck")

    # -- settings for clients, and waiting for theirs
    producer_attempts: int = _setting(3, "grpcClientProducerMaxAttempts", least=1)
    producer_backoff_initial_ms: int = _setting(10, "grpcClientProducerBackoffInitialMillis", least=1)
    producer_backoff_max_ms: int = _setting(1_000, "grpcClientProducerBackoffMaxMillis", least=1)
    producer_backoff_multiplier: int = _setting(2, "grpcClientProducerBackoffMultiplier", least=1)
    polling_ms_min: int = _setting(5_000, "grpcClientConsumerMinLongPollingTimeoutMillis", least=0)
    polling_ms_max: int = _setting(20_000, "grpcClientConsumerMaxLongPollingTimeoutMillis", least=1)
    receive_batch: int = _setting(32, "grpcClientConsumerLongPollingBatchSize", least=1, most=32)
    invisible_ms_default: int = _setting(60_000, "defaultInvisibleTimeMills", least=1_000)
    """Of messages whose handles are renewed."""
    invisible_ms_min: int = _setting(10_000, "minInvisibleTimeMillsForRecv", least=0)
    invisible_ms_max: int = _setting(43_200_000, "maxInvisibleTimeMills")
    """0 or less: no limit."""

    # -- renewal of receipt handles
    renews: bool = _setting(True, "enableProxyAutoRenew")
    renew_tries: int = _setting(3, "maxRenewRetryTimes", least=1)
    renew_ahead_ms: int = _setting(10_000, "renewAheadTimeMillis", least=1)
    renew_ms_max: int = _setting(10_800_000, "renewMaxTimeMillis", least=1)
    renew_period_ms: int = _setting(5_000, "renewSchedulePeriodMillis", least=10)
    invisible_ms_when_clear: int = _setting(1_000, "invisibleTimeMillisWhenClear", least=0)

    # -- connections and clients
    idle_ms: int = _setting(120_000, "grpcClientIdleTimeMills", least=1_000)
    client_expiry_ms: int = _setting(120_000, "channelExpiredTimeout", least=1_000)
    """Silence after which a client is forgotten."""
    inbound_bytes_max: int = _setting(130 << 20, "grpcMaxInboundMessageSize", least=1 << 20, most=1 << 30)
    relay_timeout_s: int = _setting(5, "grpcProxyRelayRequestTimeoutInSeconds", least=1)
    """How long a client has for a question that an administrator asks it through a broker."""
    report_interval_ms: int = _setting(3_000, "clientReportIntervalMillis", least=0)
    """Between reports of the clients to brokers; 0: none are made."""
    shutdown_s: int = _setting(30, "grpcShutdownTimeSeconds", least=0)

    # -- what is kept of the cluster
    refresh_s: int = _setting(20, "topicRouteServiceCacheRefreshSeconds", least=1)
    expiry_s: int = _setting(300, "topicRouteServiceCacheExpiredSeconds", least=1)
    topics_max: int = _setting(20_000, "topicRouteServiceCacheMaxNum", least=1)
    groups_max: int = _setting(20_000, "subscriptionGroupConfigCacheMaxNum", least=1)
    transaction_period_s: int = _setting(20, "transactionHeartbeatPeriodSecond", least=1)
    transaction_groups: int = _setting(100, "transactionHeartbeatBatchNum", least=1)

    # -- limits that RocketMQ does not have
    connections_max: int = _setting(20_000, "grpcConnectionsMax", least=1)
    address_connections_max: int = _setting(20_000, "serverConnectionsPerAddressMax", least=1)
    streams_max: int = _setting(4_096, "grpcStreamsPerConnectionMax", least=1)
    metadata_bytes_max: int = _setting(16_384, "grpcMetadataBytesMax", least=4_096, most=65_536)
    receiving_bytes_max: int = _setting(256 << 20, "grpcReceivingBytesMax", least=32 << 20)
    """Bytes of requests that are received in part, over all connections."""
    unsent_bytes_max: int = _setting(8 << 20, "grpcUnsentBytesPerConnectionMax", least=1 << 20)
    all_unsent_bytes_max: int = _setting(1 << 30, "grpcUnsentBytesMax", least=16 << 20)
    clients_max: int = _setting(50_000, "grpcClientsMax", least=1)
    client_names_max: int = _setting(1_024, "grpcTopicsPerClientMax", least=1)
    client_settings_bytes_max: int = _setting(128 << 20, "grpcSettingsBytesMax", least=1)
    """Of all clients."""
    """Topics that a producer publishes to, or subscriptions of a consumer."""
    polls_max: int = _setting(20_000, "grpcLongPollsMax", least=1)
    client_polls_max: int = _setting(512, "grpcLongPollsPerClientMax", least=1)
    handles_max: int = _setting(1_000_000, "grpcReceiptHandlesMax", least=1)
    client_handles_max: int = _setting(20_000, "grpcReceiptHandlesPerClientMax", least=1)
    remoting_connections_max: int = _setting(20_000, "remotingConnectionsMax", least=1)
    remoting_client_requests_max: int = _setting(4_096, "remotingRequestsPerConnectionMax", least=1)
    """Requests of one client that are being answered."""
    remoting_requests_max: int = _setting(100_000, "remotingRequestsMax", least=1)
    remoting_broker_connections_max: int = _setting(60_000, "remotingBrokerConnectionsMax", least=1)
    remoting_heartbeat_bytes_max: int = _setting(64 << 20, "remotingHeartbeatBytesMax", least=1 << 20)
    """Bytes of the last heartbeats of all remoting clients."""
    remoting_push_by_pop: bool = _setting(True, "remotingPushByPop")
    """Serve push consumers of clustering groups by POP."""
    remoting_pop_invisible_ms: int = _setting(60_000, "remotingPopInvisibleTimeMillis", least=1_000)
    remoting_pop_queue_handles_max: int = _setting(96, "remotingPopHandlesPerQueueMax", least=1)
    remoting_pop_handles_max: int = _setting(1_000_000, "remotingPopHandlesMax", least=1)
    remoting_pop_queues_max: int = _setting(4_096, "remotingPopQueuesPerClientMax", least=1)

    # -- access control
    authentication_enabled: bool = _setting(False, "authenticationEnabled")
    """Whether clients sign their requests."""
    authentication_whitelist: str = _setting("", "authenticationWhitelist")
    """Names of request messages, separated by commas, that need no signature."""
    authorization_enabled: bool = _setting(False, "authorizationEnabled")
    """Whether users need rights."""
    authorization_whitelist: str = _setting("", "authorizationWhitelist")
    """Names of request messages, separated by commas, that need no right."""
    inner_credentials: str = _setting("", "innerClientAuthenticationCredentials", is_secret=True)
    """JSON, {"accessKey": ..., "secretKey": ...}: the proxy's own user; empty: the environment's."""
    access_stale_ms_max: int = _setting(1_000, "accessStaleMillisMax", least=100)
    """Age of users and policies by which a request is decided."""
    users_max: int = _setting(20_000, "userCacheMaxNum", least=1)
    """Users that are kept with their policies."""
    address_look_ups_max: int = _setting(100, "accessLookUpsPerAddressSecondMax", least=1)
    """Look-ups a second that an address may cause by names that no user has."""
    writes_traces: bool = _setting(False, "traceOn")
    """Whether traces of what gRPC clients do are sent to the trace topic."""
    quotas: str = _setting("", QUOTAS)
    """Bytes and requests a second of topics, groups, addresses and users, of what passes this proxy."""
    health_host: str = _setting(LOOPBACK, "healthBindAddress")
    health_port: int = _setting(-1, "healthPort", least=-1, most=65_535)
    """The HTTP port with health, figures and clients; 0 takes a free one, -1: none."""
    metrics_topics_max: int = _setting(200, "metricsTopicsMax", least=0, most=10_000)
    """Topics that have labels of their own in figures of sent messages."""
    metrics_pairs_max: int = _setting(1_000, "metricsTopicGroupPairsMax", least=0, most=100_000)
    """Pairs of topic and group that have labels of their own in figures of received messages."""
    audit_path: str = _setting("", "auditLogPath")
    """The audit log; empty: none."""
    audit_file_bytes: int = _setting(64 << 20, "auditLogFileBytes", least=4096)
    audit_file_count: int = _setting(8, "auditLogFileCount", least=1)
    audit_accesses: bool = _setting(False, "auditLogAccesses")

    quotas_file: str = ""
    """The configuration file whose quotas are followed, no setting itself; empty: none."""
    tls: TlsConfig = field(default_factory=TlsConfig)
    """Of the port, and of connections to NameServers and brokers."""

    def __post_init__(self) -> None:
        for item in OWN_FIELDS:
            name, least, most = (item.metadata[key] for key in ("name", "least", "most"))
            value = getattr(self, item.name)
            if least is not None and value < least:
                raise SettingError(f"{name} must be at least {least}", setting=name, value=value)
            if most is not None and value > most:
                raise SettingError(f"{name} must be at most {most}", setting=name, value=value)
        if self.polling_ms_min > self.polling_ms_max:
            raise SettingError(
                "the shortest long poll is longer than the longest",
                setting="grpcClientConsumerMinLongPollingTimeoutMillis",
                value=self.polling_ms_min,
            )
        if self.authorization_enabled and not self.authentication_enabled:
            text = "authorizationEnabled needs authenticationEnabled: without signatures it is not known who asks"
            raise SettingError(text, setting="authorizationEnabled")
        self._check_quotas()
        self._check_listeners()

    def _check_quotas(self) -> None:
        try:
            quotas = parse_quotas(self.quotas)
        except InvalidParameterError as error:
            raise SettingError(f"quotas: {error.message}", **{**error.context, "setting": "quotas"}) from error
        if not self.authentication_enabled and any(kind == USER for kind, _ in quotas):
            raise SettingError(
                "a quota of a user needs authenticationEnabled: without signatures it is not known who sends",
                setting="quotas",
            )

    def _check_listeners(self) -> None:
        parsed: tuple[tuple[str, Callable[[], object]], ...] = (
            ("moreListeners", self.listeners),
            ("grpcAccessAddr", self.grpc_access),
            ("trustedBalancers", self.balancers),
        )
        for name, parse in parsed:
            try:
                parse()
            except InvalidParameterError as error:
                raise SettingError(f"{name}: {error.message}", **{**error.context, "setting": name}) from error

    def listeners(self) -> Listeners:
        """The listeners beside the main ones."""
        main = [(self.bind_address, port) for port in (self.grpc_port, self.remoting_port) if port > 0]
        found = parse_listeners(self.more_listeners, main=main)
        if self.remoting_port < 0 and any(listener.protocol == REMOTING for listener in found):
            raise InvalidParameterError("remotingListenPort=-1 leaves no listener for remoting clients")
        return Listeners(found)

    def balancers(self) -> Balancers:
        """The balancers whose word about a client's address is taken."""
        return Balancers.parse(self.trusted_balancers)

    def grpc_access(self) -> Host | None:
        """What routes name for gRPC clients of the main listener; None: nothing is set."""
        return parse_access_address(self.grpc_access_address) if self.grpc_access_address else None

    @property
    def http2_limits(self) -> Http2Limits:
        """The limits of the port."""
        return Http2Limits(
            connections_max=self.connections_max,
            address_connections_max=self.address_connections_max,
            streams_max=self.streams_max,
            header_list_bytes_max=self.metadata_bytes_max,
            header_block_bytes_max=2 * self.metadata_bytes_max,
            unsent_bytes_max=self.unsent_bytes_max,
            all_unsent_bytes_max=self.all_unsent_bytes_max,
            idle_ms=self.idle_ms,
        )


OWN_FIELDS = tuple(item for item in fields(ProxyConfig) if item.metadata)
"""The settings that are no TLS settings."""
FIELDS_BY_NAME = {item.metadata["name"]: item for item in (*OWN_FIELDS, *fields(TlsConfig))}
"""The settings by property name."""
