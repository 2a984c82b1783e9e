"""RocketMQ's settings of a proxy: what each field of ProxyConfig means here.

The names and defaults are those of release 5.5.0; tests/proxy/settings/test_official_proxy_settings.py compares them.
"""

from __future__ import annotations

from thermocline.proxy.settings.official_auth_settings import PROXY_AUTH_CONFIG
from thermocline.remoting.settings import (
    MACHINE,
    TLS_PROPERTIES,
    OfficialSetting,
    by_name,
    carried,
    honoured,
    refused,
    without_effect,
)

__all__ = ["PROXY_CONFIG", "PROXY_SETTINGS"]

_POOL = "thread pool and the queue before it: there is none"
_METRICS = "counts only with metricsExporterType, which is refused"

PROXY_CONFIG: tuple[OfficialSetting, ...] = (
    *honoured({"proxyName": MACHINE, "namesrvAddr": MACHINE}),
    *honoured(
        {
            "rocketMQClusterName": "DefaultCluster",
            "grpcServerPort": "8081",
            "remotingListenPort": "8080",
            "remotingAccessAddr": "",
            "useEndpointPortFromRequest": "false",
            "grpcShutdownTimeSeconds": "30",
            "grpcMaxInboundMessageSize": "136314880",
            "maxMessageSize": "4194304",
            "enableMessageBodyEmptyCheck": "true",
            "maxUserPropertySize": "16384",
            "userPropertyMaxNum": "128",
            "maxMessageGroupSize": "64",
            "defaultInvisibleTimeMills": "60000",
            "minInvisibleTimeMillsForRecv": "10000",
            "maxInvisibleTimeMills": "43200000",
            "maxDelayTimeMills": "86400000",
            "maxTransactionRecoverySecond": "3600",
            "enableTopicMessageTypeCheck": "true",
            "grpcClientProducerMaxAttempts": "3",
            "grpcClientProducerBackoffInitialMillis": "10",
            "grpcClientProducerBackoffMaxMillis": "1000",
            "grpcClientProducerBackoffMultiplier": "2",
            "grpcClientConsumerMinLongPollingTimeoutMillis": "5000",
            "grpcClientConsumerMaxLongPollingTimeoutMillis": "20000",
            "grpcClientConsumerLongPollingBatchSize": "32",
            "grpcClientIdleTimeMills": "120000",
            "topicRouteServiceCacheExpiredSeconds": "300",
            "topicRouteServiceCacheRefreshSeconds": "20",
            "topicRouteServiceCacheMaxNum": "20000",
            "subscriptionGroupConfigCacheMaxNum": "20000",
            "transactionHeartbeatPeriodSecond": "20",
            "transactionHeartbeatBatchNum": "100",
            "invisibleTimeMillisWhenClear": "1000",
            "enableProxyAutoRenew": "true",
            "maxRenewRetryTimes": "3",
            "renewAheadTimeMillis": "10000",
            "renewMaxTimeMillis": "10800000",
            "renewSchedulePeriodMillis": "5000",
            "channelExpiredTimeout": "120000",
            "grpcProxyRelayRequestTimeoutInSeconds": "5",
            "userCacheMaxNum": "20000",
        }
    ),
    *refused(
        "that `thermocline proxy` starts a broker",
        {"proxyMode": "CLUSTER"},
        advice="run `thermocline broker --proxy`, which takes this file by `--proxy-config`",
    ),
    *refused("that delays are given as levels too", {"useDelayLevel": "false"}),
    *refused("that clients send metrics somewhere", {"metricCollectorMode": "off"}),
    *refused(
        "that metrics of the proxy are exported by OpenTelemetry",
        {"metricsExporterType": "DISABLE"},
        also=("0",),
        advice="set healthPort, and let Prometheus read its /metrics",
    ),
    *honoured({"traceOn": "false"}),
    *without_effect(
        "a proxy signs its requests when it has keys: innerClientAuthenticationCredentials or the environment's",
        {"enableAclRpcHookForClusterMode": "false"},
    ),
    *refused(
        "that slow brokers are avoided by their latency", {"sendLatencyEnable": "false", "startDetectorEnable": "false"}
    ),
    *refused(
        "name servers found through a web address",
        {"namesrvDomain": "", "namesrvDomainSubgroup": ""},
        advice="set namesrvAddr, also to an http:// address",
    ),
    *without_effect("acknowledgements that come together always travel as one request", {"enableBatchAck": "false"}),
    carried("tlsTestModeEnable", "true", carrier="tls.test.mode.enable"),
    carried("grpcMaxConcurrentCallsPerConnection", "2147483647", carrier="grpcStreamsPerConnectionMax"),
    carried("tlsKeyPassword", "", carrier="tls.server.keyPassword"),
    carried("tlsKeyPath", MACHINE, carrier="tls.server.keyPath"),
    carried("tlsCertPath", MACHINE, carrier="tls.server.certPath"),
    *without_effect("changed certificate files count within half a second", {"tlsCertWatchIntervalMs": "3600000"}),
    *refused("that the remoting port takes no gRPC", {"enableRemotingLocalProxyGrpc": "true"}),
    *without_effect(
        "gRPC connections of the remoting port are served in place", {"localProxyConnectTimeoutMs": "3000"}
    ),
    *without_effect(
        _POOL,
        {
            "remotingWaitTimeMillsInSendQueue": "3000",
            "remotingWaitTimeMillsInPullQueue": "5000",
            "remotingWaitTimeMillsInHeartbeatQueue": "31000",
            "remotingWaitTimeMillsInUpdateOffsetQueue": "3000",
            "remotingWaitTimeMillsInTopicRouteQueue": "3000",
            "remotingWaitTimeMillsInDefaultQueue": "3000",
        },
    ),
    *without_effect(
        "one cache of the cluster's data with the settings of topicRouteService holds this too",
        {
            "topicConfigCacheExpiredSeconds": "300",
            "topicConfigCacheRefreshSeconds": "20",
            "topicConfigCacheMaxNum": "20000",
            "subscriptionGroupConfigCacheExpiredSeconds": "300",
            "subscriptionGroupConfigCacheRefreshSeconds": "20",
        },
    ),
    *without_effect(
        "a change counts within accessStaleMillisMax; a user is kept with its policies",
        {
            "userCacheExpiredSeconds": "300",
            "userCacheRefreshSeconds": "20",
            "aclCacheExpiredSeconds": "300",
            "aclCacheRefreshSeconds": "20",
            "aclCacheMaxNum": "20000",
        },
    ),
    *without_effect(
        "a transaction id says where its half message is; nothing is kept",
        {
            "transactionDataExpireScanPeriodMillis": "10000",
            "transactionDataMaxWaitClearMillis": "30000",
            "transactionDataExpireMillis": "30000",
            "transactionDataMaxNum": "15",
        },
    ),
    *without_effect(
        "limits of lite topics, of which the proxy serves none",
        {"maxLiteRenewNumPerChannel": "100", "maxLiteTopicSize": "64", "maxSyncLiteSubscriptionRate": "5000"},
    ),
    *without_effect(
        "proxies tell brokers about their clients, and each other nothing",
        {
            "heartbeatSyncerTopicClusterName": "",
            "heartbeatSyncerThreadPoolNums": "4",
            "heartbeatSyncerThreadPoolQueueCapacity": "100",
            "heartbeatSyncerTopicName": "DefaultHeartBeatSyncerTopic",
            "localServeAddr": "",
            "proxyClusterName": "DefaultCluster",
        },
    ),
    *without_effect(
        "RocketMQ does not read it",
        {
            "longPollingReserveTimeInMillis": "100",
            "channelExpiredInSeconds": "60",
            "contextExpiredInSeconds": "30",
            "regionId": "",
            "lockTimeoutMsInHandleGroup": "3000",
        },
    ),
    *without_effect("one connection an address", {"rocketmqMQClientNum": "6"}),
    *without_effect(
        "counts only with useDelayLevel, which is refused",
        {"delayLevelTable": "{}", "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"},
    ),
    *without_effect("`thermocline broker` is given its file itself", {"brokerConfigPath": MACHINE}),
    *without_effect(
        "counts only with startDetectorEnable, which is refused", {"detectTimeout": "200", "detectInterval": "2000"}
    ),
    *without_effect("counts only with metricCollectorMode, which is refused", {"metricCollectorAddress": ""}),
    *without_effect(
        _METRICS,
        {
            "metricsGrpcExporterTarget": "",
            "metricsGrpcExporterHeader": "",
            "metricGrpcExporterTimeOutInMills": "3000",
            "metricGrpcExporterIntervalInMills": "60000",
            "metricLoggingExporterIntervalInMills": "10000",
            "metricsPromExporterPort": "5557",
            "metricsPromExporterHost": "",
            "metricsLabel": "",
            "metricsInDelta": "false",
        },
    ),
    *without_effect(
        "output of the thread pools' monitor",
        {"enablePrintJstack": "true", "printJstackInMillis": "60000", "printThreadPoolStatusInMillis": "3000"},
    ),
    *without_effect(
        _POOL,
        {
            "grpcBossLoopNum": "1",
            "grpcWorkerLoopNum": MACHINE,
            "enableGrpcEpoll": "false",
            "grpcThreadPoolNums": MACHINE,
            "grpcThreadPoolQueueCapacity": "100000",
            "grpcProducerThreadPoolNums": MACHINE,
            "grpcProducerThreadQueueCapacity": "10000",
            "grpcConsumerThreadPoolNums": MACHINE,
            "grpcConsumerThreadQueueCapacity": "10000",
            "grpcRouteThreadPoolNums": MACHINE,
            "grpcRouteThreadQueueCapacity": "10000",
            "grpcClientManagerThreadPoolNums": MACHINE,
            "grpcClientManagerThreadQueueCapacity": "10000",
            "grpcTransactionThreadPoolNums": MACHINE,
            "grpcTransactionThreadQueueCapacity": "10000",
            "producerProcessorThreadPoolNums": MACHINE,
            "producerProcessorThreadPoolQueueCapacity": "10000",
            "consumerProcessorThreadPoolNums": MACHINE,
            "consumerProcessorThreadPoolQueueCapacity": "10000",
            "topicRouteServiceThreadPoolNums": MACHINE,
            "topicRouteServiceThreadPoolQueueCapacity": "5000",
            "metadataThreadPoolNums": "3",
            "metadataThreadPoolQueueCapacity": "100000",
            "transactionHeartbeatThreadPoolNums": "20",
            "transactionHeartbeatThreadPoolQueueCapacity": "200",
            "returnHandleGroupThreadPoolNums": "2",
            "renewThreadPoolNums": "2",
            "renewMaxThreadPoolNums": "4",
            "renewThreadPoolQueueCapacity": "300",
            "remotingHeartbeatThreadPoolNums": MACHINE,
            "remotingTopicRouteThreadPoolNums": MACHINE,
            "remotingSendMessageThreadPoolNums": MACHINE,
            "remotingPullMessageThreadPoolNums": MACHINE,
            "remotingUpdateOffsetThreadPoolNums": MACHINE,
            "remotingDefaultThreadPoolNums": MACHINE,
            "remotingHeartbeatThreadPoolQueueCapacity": "50000",
            "remotingTopicRouteThreadPoolQueueCapacity": "50000",
            "remotingSendThreadPoolQueueCapacity": "10000",
            "remotingPullThreadPoolQueueCapacity": "50000",
            "remotingUpdateOffsetThreadPoolQueueCapacity": "10000",
            "remotingDefaultThreadPoolQueueCapacity": "50000",
        },
    ),
)
"""Every field of ProxyConfig."""

PROXY_SETTINGS = by_name(PROXY_CONFIG, PROXY_AUTH_CONFIG, TLS_PROPERTIES)
"""The same by name, with the TLS properties that each daemon of RocketMQ reads."""
