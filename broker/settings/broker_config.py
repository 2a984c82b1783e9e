"""Settings of the broker itself (the store's and the cold tier's have classes of their own).

Every field names its property in Apache RocketMQ, in `setting(..., name)`, so that a `broker.conf` written for RocketMQ
works; settings that only exist here have names of the same form. `broker_settings.py` reads them
from files, environment and flags, shows them to `mqadmin getBrokerConfig` and changes them for `updateBrokerConfig`.

`is_live` marks what a running broker follows at once; anything else takes effect at the next start.
Source: common/BrokerConfig.java, Apache RocketMQ 5.3.
"""

import ipaddress
import re
from dataclasses import dataclass, fields
from typing import Any, Protocol

from thermocline.auth.quota_texts import parse_quotas
from thermocline.broker.settings.replica_settings import ReplicaSettings
from thermocline.broker.settings.setting_field import setting
from thermocline.remoting.clients import ADDRESS_SERVER, NameServerSource, address_server_url, split_addresses
from thermocline.remoting.connections import LOOPBACK, is_loopback
from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.socket_address import parse_address

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
INT_MAX = (1 << 31) - 1
"""RocketMQ's value for: no limit."""

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(ReplicaSettings):
    """Settings of one broker process; checked when made.

    Raises:
        InvalidParameterError: A value is outside its range; the error names the property.
    """

    # -- who it is, and where ------------------------------------------------------------------------------------------
    cluster_name: str = setting("DefaultCluster", "brokerClusterName")
    broker_name: str = setting("broker-a", "brokerName")
    listen_host: str = setting("", "bindAddress")
    """Empty: loopback, or all addresses if `advertised_host` is not loopback (see `bound_host`)."""
    listen_port: int = setting(10911, "listenPort", least=0, most=65535)
    """0 takes a free one."""
    vip_port_on: bool = setting(True, "vipPortEnable")
    """Whether the port two below, if it is free, serves the same; slaves of RocketMQ ask for some tables there."""
    advertised_host: str = setting("", "brokerIP1")
    """The address given to clients; empty: this machine's own, or `bound_host` if that is one machine's address."""
    advertised_port: int = setting(0, "brokerPort1", least=0, most=65535)
    """The port given to clients (a container's published one); 0: the bound one."""
    name_server_addresses: str = setting("", "namesrvAddr", live=True)
    """host:port, separated by semicolons; empty: as `address_server_on` says, else registers nowhere."""
    name_server_dns_on: bool = setting(False, "fetchNameSrvAddrByDnsLookup", live=True)
    """Whether every address of the names in `name_server_addresses` is a NameServer."""
    address_server_on: bool = setting(False, "fetchNamesrvAddrByAddressServer", live=True)
    name_server_domain: str = setting("jmenv.tbsite.net", "namesrvDomain", live=True)
    """Host, or host:port, of the address server; RocketMQ's JVM property `rocketmq.namesrv.domain` and its default."""
    name_server_subgroup: str = setting("nsaddr", "namesrvDomainSubgroup", live=True)
    name_server_update_ms: int = setting(30_000, "updateNameServerAddrPeriod", least=10, live=True)
    address_server_interval_ms: int = setting(10_000, "fetchNamesrvAddrInterval", least=10, live=True)
    health_port: int = setting(-1, "healthPort", least=-1, most=65535)
    """HTTP health endpoint; 0 takes a free port, -1 opens none."""
    health_host: str = setting(LOOPBACK, "healthBindAddress")
    metrics_topics_max: int = setting(200, "metricsTopicsMax", least=0, most=10_000)
    """Topics that have a label of their own in `GET /metrics` of that endpoint; the others are summed up."""
    helper_nice: int = setting(19, "helperNice", least=0, most=19)
    """Niceness of the helper processes; 19: they run only when no other process on the machine needs the CPU."""
    merged_proxy: bool = setting(False, "mergedProxyEnable")
    """Whether a proxy for gRPC clients runs in this broker's process group."""
    merged_proxy_config: str = setting("", "mergedProxyConfigPath")
    """The file of its settings, rmq-proxy.json; empty: none."""
    config_black_list: str = setting("configBlackList;brokerConfigPath", "configBlackList")
    """Settings that no remote caller may change, separated by semicolons; some never can be (broker_settings.py)."""
    region_id: str = setting("DefaultRegion", "regionId")
    zone_name: str = setting("", "zoneName")
    """Sent to NameServers, for clients that want brokers of their own zone only; empty: in none."""

    # -- topics and groups ---------------------------------------------------------------------------------------------
    permission: int = setting(PERM_READ | PERM_WRITE, "brokerPermission", least=0, most=7, live=True)
    auto_create_topic: bool = setting(True, "autoCreateTopicEnable", live=True)
    auto_create_group: bool = setting(True, "autoCreateSubscriptionGroup", live=True)
    create_system_groups: bool = setting(True, "enableCreateSysGroup", live=True)
    """Create groups of RocketMQ's own tools by their first use, also without `auto_create_group`."""
    default_topic_queues: int = setting(8, "defaultTopicQueueNums", least=1, most=1024)
    cluster_topic: bool = setting(True, "clusterTopicEnable")
    broker_topic: bool = setting(True, "brokerTopicEnable")
    trace_topic: bool = setting(False, "traceTopicEnable")
    trace_topic_name: str = setting("RMQ_SYS_TRACE_TOPIC", "msgTraceTopicName")
    trace_on: bool = setting(True, "traceOn", live=True)
    revive_queues: int = setting(8, "reviveQueueNum", least=1, most=1024)
    mixed_message_type: bool = setting(False, "enableMixedMessageType", live=True)
    protect_system_topics: bool = setting(True, "validateSystemTopicWhenUpdateTopic", live=True)
    clear_retry_topics: bool = setting(True, "clearRetryTopicWhenDeleteTopic", live=True)
    split_metadata: bool = setting(True, "enableSplitMetadata", live=True)
    split_metadata_size: int = setting(2000, "splitMetadataSize", least=1, live=True)
    message_ttl_ms: int = setting(0, "messageTtlMs", least=0)
    """Time to live of topics without their own; 0 keeps messages for ever."""

    forward_timeout_ms: int = setting(3_000, "forwardTimeout", least=100, live=True)
    """How long another broker may take over a question about a static topic's older part."""

    # -- registration at NameServers -----------------------------------------------------------------------------------
    register_period_ms: int = setting(30_000, "registerNameServerPeriod", least=10, most=60_000, live=True)
    register_timeout_ms: int = setting(24_000, "registerBrokerTimeoutMills", least=100, live=True)
    single_topic_register: bool = setting(False, "enableSingleTopicRegister", live=True)
    """Whether a topic that changed is registered by itself, which leaves the broker's other topics alone."""

    # -- clients -------------------------------------------------------------------------------------------------------
    client_expiry_ms: int = setting(120_000, "channelExpiredTimeout", least=1_000, live=True)
    proxied_client_expiry_ms: int = setting(30_000, "proxiedClientExpiryMillis", least=1_000, live=True)
    """Silence of a proxy after which the clients that it reported are forgotten."""
    notify_group_changes: bool = setting(True, "notifyConsumerIdsChangedEnable", live=True)
    reject_pull_consumers: bool = setting(False, "rejectPullConsumerEnable", live=True)
    lite_pull: bool = setting(True, "litePullMessageEnable", live=True)
    property_filter: bool = setting(False, "enablePropertyFilter", live=True)
    """Whether consumers may choose messages by their properties, with an SQL92 expression."""
    long_polling: bool = setting(True, "longPollingEnable", live=True)
    short_polling_ms: int = setting(1_000, "shortPollingTimeMills", least=1, live=True)
    queue_lock_live_ms: int = setting(60_000, "rebalanceLockMaxLiveTime", least=1_000)
    server_idle_ms: int = setting(120_000, "serverChannelMaxIdleTimeMills", least=1_000)
    client_call_timeout_ms: int = setting(10_000, "consumerCallTimeoutMills", least=100, live=True)
    """How long a client may take over a question that is passed on to it (running info, direct consumption)."""

    # -- consumer offsets, delays --------------------------------------------------------------------------------------
    offset_flush_interval_ms: int = setting(5_000, "flushConsumerOffsetInterval", least=100, live=True)
    offset_version_step: int = setting(500, "consumerOffsetUpdateVersionStep", least=1)
    server_side_reset: bool = setting(True, "useServerSideResetOffset", live=True)
    delay_flush_interval_ms: int = setting(10_000, "flushDelayOffsetInterval", least=100, live=True)
    delay_version_step: int = setting(200, "delayOffsetUpdateVersionStep", least=1)

    # -- messages that wait for a time -------------------------------------------------------------------------------
    timer_wheel: bool = setting(True, "timerWheelEnable")
    """Whether messages with a time of delivery are taken and delivered."""
    timer_delay_s_max: int = setting(3 * 86_400, "timerMaxDelaySec", least=1, most=INT_MAX, live=True)
    timer_slot_count_max: int = setting(INT_MAX, "timerCongestNumEachSlot", least=1, most=INT_MAX, live=True)
    timer_precision_ms: int = setting(1_000, "timerPrecisionMs", least=1, most=INT_MAX)
    """Counts as the next lower of those that RocketMQ has, see `timers.supported_precision_ms`."""
    timer_roll_window_slots: int = setting(2 * 86_400, "timerRollWindowSlot", least=0, most=INT_MAX)
    timer_log_file_bytes: int = setting(100 * 1024 * 1024, "mappedFileSizeTimerLog", least=4_096, most=INT_MAX)
    timer_round_interval_ms: int = setting(1_000, "timerFlushIntervalMs", least=10, most=60_000)
    timer_topic_in_delete_key: bool = setting(False, "appendTopicForTimerDeleteKey", live=True)
    recall: bool = setting(False, "recallMessageEnable", live=True)
    """Whether producers may recall messages that wait."""
    recall_when_not_writable: bool = setting(True, "allowRecallWhenBrokerNotWriteable", live=True)

    # -- transactions --------------------------------------------------------------------------------------------------
    reject_transactions: bool = setting(False, "rejectTransactionMessage", live=True)
    """Whether half messages are refused; decisions of those stored before are taken."""
    transaction_timeout_ms: int = setting(6_000, "transactionTimeOut", least=1, live=True)
    transaction_check_max: int = setting(15, "transactionCheckMax", least=1, live=True)
    transaction_check_interval_ms: int = setting(30_000, "transactionCheckInterval", least=100, live=True)
    transaction_op_bytes_max: int = setting(4_096, "transactionOpMsgMaxSize", least=1, most=1 << 20, live=True)
    transaction_op_interval_ms: int = setting(3_000, "transactionOpBatchInterval", least=1, live=True)
    transaction_counts_interval_ms: int = setting(10_000, "transactionMetricFlushInterval", least=100, live=True)

    # -- POP consumption -----------------------------------------------------------------------------------------------
    pop_from_retry_percent: int = setting(20, "popFromRetryProbability", least=0, most=100, live=True)
    """How many POPs of a hundred read the retry topic first."""
    retry_topic_v2: bool = setting(False, "enableRetryTopicV2", live=True)
    read_retry_topic_v1: bool = setting(True, "retrieveMessageFromPopRetryTopicV1", live=True)
    """With retry topics of version 2: whether those of version 1 are read still."""
    pop_returns_retry_topic: bool = setting(False, "popResponseReturnActualRetryTopic", live=True)
    pop_polling_place_max: int = setting(1_024, "popPollingSize", least=1, live=True)
    pop_polling_max: int = setting(100_000, "maxPopPollingSize", least=1, live=True)
    pop_threshold_on: bool = setting(False, "enablePopMessageThreshold", live=True)
    pop_threshold: int = setting(10_000, "popInflightMessageThreshold", least=1, live=True)
    """Unacknowledged popped messages of one queue and group, beyond which the group gets no more of it."""
    pop_pending_max: int = setting(400_000, "popCheckPointsMax", least=1)
    """Check points in memory, each of up to 32 messages, before POPs are refused."""
    pop_init_in_memory: bool = setting(True, "initPopOffsetByCheckMsgInMem", live=True)
    pop_notify_order_free: bool = setting(True, "enableNotifyAfterPopOrderLockRelease", live=True)
    server_load_balancer: bool = setting(True, "serverLoadBalancerEnable", live=True)
    default_request_mode: str = setting("PULL", "defaultMessageRequestMode", live=True)
    default_pop_share_queues: int = setting(-1, "defaultPopShareQueueNum", live=True)
    route_poll_interval_ms: int = setting(30_000, "loadBalancePollNameServerInterval", least=100, live=True)

    # -- messages ------------------------------------------------------------------------------------------------------
    store_replies: bool = setting(True, "storeReplyMessageEnable", live=True)
    """Keep the replies of request-reply in the cluster's reply topic."""
    accept_sends_from_ms: int = setting(0, "startAcceptSendRequestTimeStamp", least=0, live=True)
    sends_waiting_max: int = setting(10_000, "sendThreadPoolQueueCapacity", least=1, live=True)
    """Sends that wait for the flush before their answers; beyond that the broker is busy."""
    send_wait_ms_max: int = setting(200, "waitTimeMillsInSendQueue", least=1, live=True)
    """Sends that have to wait for longer are refused."""
    fast_failure: bool = setting(True, "brokerFastFailureEnable", live=True)
    """Whether that is so; else sends wait for as long as it takes."""
    default_query_count: int = setting(32, "defaultQueryMaxNum", least=1, live=True)
    query_count_max: int = setting(64, "maxMsgsNumBatch", least=1, most=1_024, live=True)
    """Messages in the answer to a query, whatever the client asks for."""
    slave_read: bool = setting(False, "slaveReadEnable", live=True)
    """Whether slow readers are sent to slaves, and slaves serve them."""
    memory_percent: int = setting(40, "accessMessageInMemoryMaxRatio", least=1, most=95, live=True)
    """The part of the log that counts as in memory, back from its end, as a share of the machine's memory."""
    pull_bytes_max: int = setting(262_144, "maxTransferBytesOnMessageInMemory", least=1, live=True)
    pull_count_max: int = setting(32, "maxTransferCountOnMessageInMemory", least=1, live=True)
    disk_pull_bytes_max: int = setting(65_536, "maxTransferBytesOnMessageInDisk", least=1, live=True)
    disk_pull_count_max: int = setting(8, "maxTransferCountOnMessageInDisk", least=1, live=True)

    # -- reads of history ----------------------------------------------------------------------------------------------
    cold_flow_control: bool = setting(False, "coldDataFlowControlEnable", live=True)
    """Let groups that have read much from the cold tier wait (broker/pulls/cold_read_quota.py)."""
    cold_read_threshold: int = setting(3 << 20, "cgColdReadThreshold", least=1, live=True)
    """Bytes that one group may read from the cold tier in five seconds."""
    cold_read_threshold_global: int = setting(100 << 20, "globalColdReadThreshold", least=1, live=True)
    """The same for all groups together."""

    def __post_init__(self) -> None:
        for item in fields(self):
            check_range(item.metadata, getattr(self, item.name))
        self.check_role()
        self.check_controllers()
        for name, value in (("brokerClusterName", self.cluster_name), ("brokerName", self.broker_name)):
            if not _NAME.fullmatch(value):
                raise InvalidParameterError("a name of letters, digits, _ and - is needed", setting=name, value=value)
        for name, host in (("bindAddress", self.listen_host or LOOPBACK), ("healthBindAddress", self.health_host)):
            try:
                ipaddress.ip_address(host)
            except ValueError:
                raise InvalidParameterError("an IP address to bind to is needed", setting=name, value=host) from None
        try:
            ipaddress.ip_address(self.advertised_host or LOOPBACK)
        except ValueError:
            raise InvalidParameterError(
                "an IP address is needed: it stands in message ids", setting="brokerIP1", value=self.advertised_host
            ) from None
        try:
            parse_quotas(self.quotas)
        except InvalidParameterError as error:
            raise InvalidParameterError(error.message, **{**error.context, "setting": "quotas"}) from error
        if self.default_request_mode not in ("PULL", "POP"):
            raise InvalidParameterError(
                "PULL or POP is needed", setting="defaultMessageRequestMode", value=self.default_request_mode
            )
        try:
            _ = self.name_server_source
        except InvalidParameterError as error:
            raise InvalidParameterError(
                error.message, setting="namesrvAddr", value=self.name_server_addresses
            ) from None

    @property
    def bound_host(self) -> str:
        """The address that the port is bound to.

        Without `bindAddress` a broker is for this machine alone, unless `brokerIP1` says that clients come from others.
        """
        if self.listen_host:
            return self.listen_host
        return LOOPBACK if is_loopback(self.advertised_host or LOOPBACK) else "0.0.0.0"

    @property
    def name_server_source(self) -> NameServerSource | None:
        """The source of the NameServers' addresses; None: this broker registers nowhere."""
        texts = split_addresses(self.name_server_addresses)
        if not texts:
            url = address_server_url(self.name_server_domain, self.name_server_subgroup)
            return NameServerSource.parse([url]) if self.address_server_on else None
        source = NameServerSource.parse(texts)
        return source.by_dns() if self.name_server_dns_on else source

    @property
    def name_servers_elsewhere(self) -> tuple[str, ...]:
        """Those of the NameServers that are not on this machine; also the address server that names them."""
        source = self.name_server_source
        if source is None or source.kind == ADDRESS_SERVER:
            return () if source is None else source.values
        return tuple(value for value in source.values if not is_loopback(parse_address(value)[0]))

    @property
    def name_server_period_ms(self) -> int:
        """How often that is looked up again."""
        source = self.name_server_source
        is_asked = source is not None and source.kind == ADDRESS_SERVER
        return self.address_server_interval_ms if is_asked else self.name_server_update_ms

    @property
    def black_list(self) -> frozenset[str]:
        """The names in `configBlackList`."""
        return frozenset(name.strip() for name in self.config_black_list.split(";") if name.strip())

    @property
    def is_writable(self) -> bool:
        """Whether the broker takes messages at all."""
        return bool(self.permission & PERM_WRITE)

    @property
    def is_readable(self) -> bool:
        """Whether the broker gives messages out at all."""
        return bool(self.permission & PERM_READ)


class CurrentConfig(Protocol):
    """The broker's settings as they are now: between two requests a running broker's settings may change."""

    @property
    def broker(self) -> BrokerConfig:
        """Read it anew for each request."""


def check_range(metadata: Any, value: object) -> None:
    """Check a number against the range in its field's metadata."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    least, most = metadata.get("least"), metadata.get("most")
    if (least is not None and value < least) or (most is not None and value > most):
        raise InvalidParameterError(
            f"{metadata['name']} must be {_range_text(least, most)}", setting=metadata["name"], value=value
        )


def _range_text(least: int | None, most: int | None) -> str:
    if least is None:
        return f"at most {most}"
    if most is None:
        return f"at least {least}"
    return str(least) if least == most else f"from {least} to {most}"
