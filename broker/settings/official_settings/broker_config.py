"""org.apache.rocketmq.common.BrokerConfig, release 5.5.0: what each of its settings means here."""

from __future__ import annotations

from thermocline.remoting.settings import MACHINE, OfficialSetting, honoured, refused, without_effect

__all__ = ["BROKER_CONFIG"]

_POOL = "thread pool: there is none"
_POOL_QUEUE = "queue before a thread pool: there is none"
_LITE = "lite topics are not built: their requests are refused"
_ROCKSDB = "tuning of a RocksDB engine; the settings that choose one are refused"
_METRICS_TUNING = "counts only with metricsExporterType, which is refused"
_POP_TUNING = "tuning of RocketMQ's check point buffer; pending messages are kept in memory and in the log"
_BROADCAST = "broadcasting consumers keep their offsets themselves, behind a proxy, too"
_UNREAD = "release 5.5.0 does not read it"

_METRICS_ADVICE = (
    "healthPort opens GET /metrics for Prometheus, with names that begin with thermocline_ instead of rocketmq_"
)
_LOG_ADVICE = "--log-level says how much is logged"

BROKER_CONFIG: tuple[OfficialSetting, ...] = (
    # -- identity, addresses, registration
    *honoured({"brokerClusterName": "DefaultCluster"}),
    *honoured({"brokerName": MACHINE}, "default: broker-a; RocketMQ takes the host's name"),
    *honoured({"brokerId": "0"}, "another one needs brokerRole=SLAVE, or is -1 under a controller"),
    *honoured({"brokerIP1": MACHINE}),
    *honoured({"listenPort": "6888"}, "default: 10911, as a broker of RocketMQ listens on when it is started"),
    *honoured({"namesrvAddr": MACHINE, "regionId": "DefaultRegion"}),
    *honoured({"registerNameServerPeriod": "30000", "registerBrokerTimeoutMills": "24000"}),
    *honoured({"enableSingleTopicRegister": "false"}),
    *honoured({"loadBalancePollNameServerInterval": "30000", "forwardTimeout": "3000"}),
    *without_effect("slaves connect to brokerIP1, as clients do", {"brokerIP2": MACHINE}),
    *without_effect("the file is named by --config", {"brokerConfigPath": ""}),
    *without_effect("folder of RocketMQ's installation", {"rocketmqHome": MACHINE}),
    *honoured({"configBlackList": "configBlackList;brokerConfigPath"}, "default: rocketmqHome, storePathRootDir too"),
    *honoured({"fetchNameSrvAddrByDnsLookup": "false", "fetchNamesrvAddrByAddressServer": "false"}),
    *honoured({"fetchNamesrvAddrInterval": "10000"}),
    *honoured(
        {"updateNameServerAddrPeriod": "120000"}, "default: 30000, so that a NameServer that is added serves soon"
    ),
    *without_effect(
        "form of a registration: one request with all topics, or with those that changed, not compressed",
        {
            "compatibleWithOldNameSrv": "true",
            "compressedRegister": "false",
            "enableSplitRegistration": "false",
            "forceRegister": "true",
            "splitRegistrationSize": "800",
        },
    ),
    *without_effect("routes of other brokers that went away", {"cleanOfflineBrokerInterval": "30000"}),
    *without_effect(
        "set by RocketMQ's broker container",
        {"inBrokerContainer": "", "isBrokerContainer": "false", "isInBrokerContainer": "false"},
    ),
    *without_effect("each daemon logs to its own stderr", {"isolateLogEnable": "false"}),
    # -- replicas and controller
    *honoured({"enableControllerMode": "false", "controllerAddr": "", "brokerElectionPriority": "2147483647"}),
    *honoured(
        {
            "controllerHeartBeatTimeoutMills": "10000",
            "syncBrokerMetadataPeriod": "5000",
        },
        "counts under a controller",
    ),
    *honoured({"brokerHeartbeatInterval": "1000"}, "counts under a controller, or with enableSlaveActingMaster"),
    *refused(
        "controllers that a DNS name stands for",
        {"fetchControllerAddrByDnsLookup": "false"},
        advice="controllerAddr names each of them",
    ),
    *honoured(
        {"enableSlaveActingMaster": "false"},
        "needs brokerRole; a master that comes back asks its slaves first, whatever totalReplicas is; nothing is popped"
        " at a slave that stands in while no other master has the topic",
    ),
    *honoured({"enableRemoteEscape": "false"}, "needs enableSlaveActingMaster"),
    *honoured({"slaveReadEnable": "false"}, "reads of the cold tier stay at the master: they do not slow it down"),
    *without_effect("the SyncStateSet is looked at five times a second", {"checkSyncStateSetPeriod": "5000"}),
    *without_effect(
        "the controller that leads is looked for when the one before does not answer, or does not lead",
        {"syncControllerMetadataPeriod": "10000"},
    ),
    *honoured(
        {
            "brokerNotActiveTimeoutMillis": "10000",
            "skipPreOnline": "false",
            "syncBrokerMemberGroupPeriod": "1000",
        },
        "counts only with enableSlaveActingMaster",
    ),
    *without_effect("a heartbeat has no answer", {"sendHeartbeatTimeoutMillis": "1000"}),
    *refused(
        "locks of queues that most brokers of a set have to give",
        {"lockInStrictMode": "false"},
        advice="a slave of ours passes requests for locks on to its master",
    ),
    # -- access control, storage engines
    *refused("that clients without the right to do so are turned away", {"aclEnable": "false"}),
    *refused("a message store of that plug-in", {"messageStorePlugIn": ""}, advice="coldUrl names the cold tier"),
    *refused(
        "topics, groups and offsets in RocksDB files",
        {"configManagerVersion": "v1", "useSingleRocksDBForAllConfigs": "false"},
    ),
    *refused(
        "popped messages that are kept in RocksDB, and taken over from there",
        {"popConsumerKVServiceEnable": "false", "popConsumerKVServiceInit": "false"},
    ),
    *without_effect(
        _ROCKSDB,
        {
            "persistConsumerOffsetIncrementally": "false",
            "popConsumerFSServiceInit": "true",
            "popConsumerKVServiceLog": "false",
            "popReviveMaxAttemptTimes": "16",
            "popReviveMaxReturnSizePerRead": "16384",
            "transactionCheckRocksdbCoreThreads": "2",
            "transactionCheckRocksdbMaxThreads": "5",
            "transactionCheckRocksdbQueueCapacity": "2000",
        },
    ),
    # -- topics and groups
    *honoured(
        {
            "autoCreateSubscriptionGroup": "true",
            "autoCreateTopicEnable": "true",
            "brokerPermission": "6",
            "brokerTopicEnable": "true",
            "clearRetryTopicWhenDeleteTopic": "true",
            "clusterTopicEnable": "true",
            "defaultTopicQueueNums": "8",
            "enableCreateSysGroup": "true",
            "enableMixedMessageType": "false",
            "enableSplitMetadata": "true",
            "splitMetadataSize": "2000",
            "validateSystemTopicWhenUpdateTopic": "true",
        }
    ),
    *refused("groups whose subscriptions are fixed by their configuration", {"useStaticSubscription": "false"}),
    *refused(
        "messages that are handed out by priority",
        {"popFromRetryProbabilityForPriority": "0", "priorityOrderAsc": "true", "useSeparateRetryQueue": "false"},
    ),
    *without_effect(
        _LITE,
        {
            "enableLiteEventMode": "true",
            "enableLitePopLog": "false",
            "liteEventCheckInterval": "10000",
            "liteEventFullDispatchDelayTime": "10000",
            "liteEventFullDispatchDelayTimeForWildcardGroup": "10000",
            "liteLagCountMetricsEnable": "false",
            "liteLagLatencyCollectEnable": "false",
            "liteLagLatencyMetricsEnable": "false",
            "liteLagLatencyTopK": "50",
            "liteSubscriptionCheckInterval": "120000",
            "liteSubscriptionCheckTimeoutMills": "180000",
            "liteTtlCheckInterval": "120000",
            "maxClientEventCount": "100",
            "maxLiteSubscriptionCount": "100000",
            "minLiteTTl": "900000",
        },
    ),
    *without_effect("light message queues are refused: there is nothing to count", {"enableLmqStats": "false"}),
    # -- clients
    *honoured(
        {
            "channelExpiredTimeout": "120000",
            "enablePropertyFilter": "false",
            "litePullMessageEnable": "true",
            "longPollingEnable": "true",
            "notifyConsumerIdsChangedEnable": "true",
            "rejectPullConsumerEnable": "false",
            "shortPollingTimeMills": "1000",
            "useServerSideResetOffset": "true",
        }
    ),
    *without_effect("members of a group are notified at once", {"realTimeNotifyConsumerChange": "true"}),
    *without_effect("producers are always registered", {"enableRegisterProducer": "true"}),
    *without_effect(
        "a group without members has no subscriptions; its offsets stay",
        {"subscriptionExpiredTimeout": "600000"},
    ),
    *without_effect("answers to a slow connection are always bounded", {"enableNetWorkFlowControl": "false"}),
    *without_effect("how closed connections are handled inside RocketMQ", {"enableFastChannelEventProcess": "false"}),
    *without_effect(
        _BROADCAST,
        {
            "broadcastOffsetExpireMaxSecond": "300",
            "broadcastOffsetExpireSecond": "120",
            "enableBroadcastOffsetStore": "true",
        },
    ),
    *refused("that messages of retry topics are filtered again", {"filterSupportRetry": "false"}),
    *refused(
        "that groups which read slowly are disabled",
        {"disableConsumeIfConsumerReadSlowly": "false"},
        advice="coldDataFlowControlEnable limits reads of history",
    ),
    *without_effect(
        "counts only with disableConsumeIfConsumerReadSlowly, which is refused",
        {"consumerFallbehindThreshold": "17179869184"},
    ),
    *without_effect(
        "prefilter of message filters: results are the same without it",
        {
            "enableCalcFilterBitMap": "false",
            "expectConsumerNumUseFilter": "32",
            "filterDataCleanTimeSpan": "86400000",
            "maxErrorRateOfBloomFilter": "20",
            "maxMessageFilterNumForNotification": "64",
            "useMessageFilterForNotification": "true",
        },
    ),
    # -- offsets, sends, pulls
    *honoured(
        {
            "brokerFastFailureEnable": "true",
            "consumerOffsetUpdateVersionStep": "500",
            "delayOffsetUpdateVersionStep": "200",
            "flushConsumerOffsetInterval": "5000",
            "sendThreadPoolQueueCapacity": "10000",
            "startAcceptSendRequestTimeStamp": "0",
            "storeReplyMessageEnable": "true",
            "waitTimeMillsInSendQueue": "200",
        }
    ),
    *without_effect(
        "requests do not wait in a queue of their own kind",
        {
            "waitTimeMillsInAckQueue": "3000",
            "waitTimeMillsInAdminBrokerQueue": "5000",
            "waitTimeMillsInHeartbeatQueue": "31000",
            "waitTimeMillsInLitePullQueue": "5000",
            "waitTimeMillsInPullQueue": "5000",
            "waitTimeMillsInTransactionQueue": "3000",
        },
    ),
    *without_effect("sends are never held up by an append", {"asyncSendEnable": "true"}),
    *without_effect("how bytes are copied into an answer", {"transferMsgByHeap": "true"}),
    *without_effect(
        _UNREAD,
        {"flushConsumerOffsetHistoryInterval": "60000", "highSpeedMode": "false"},
    ),
    *honoured({"cgColdReadThreshold": "3145728", "globalColdReadThreshold": "104857600"}),
    *refused("limits on cold reads that adapt themselves", {"coldCtrStrategyEnable": "false"}),
    *without_effect("counts only with coldCtrStrategyEnable, which is refused", {"usePIDColdCtrStrategy": "true"}),
    # -- transactions, recall
    *honoured(
        {
            "allowRecallWhenBrokerNotWriteable": "true",
            "recallMessageEnable": "false",
            "rejectTransactionMessage": "false",
            "transactionCheckInterval": "30000",
            "transactionCheckMax": "15",
            "transactionMetricFlushInterval": "10000",
            "transactionOpBatchInterval": "3000",
            "transactionOpMsgMaxSize": "4096",
            "transactionTimeOut": "6000",
        }
    ),
    # -- POP
    *honoured(
        {
            "defaultMessageRequestMode": "PULL",
            "defaultPopShareQueueNum": "-1",
            "enableNotifyAfterPopOrderLockRelease": "true",
            "enablePopMessageThreshold": "false",
            "enableRetryTopicV2": "false",
            "initPopOffsetByCheckMsgInMem": "true",
            "maxPopPollingSize": "100000",
            "popFromRetryProbability": "20",
            "popInflightMessageThreshold": "10000",
            "popPollingSize": "1024",
            "popResponseReturnActualRetryTopic": "false",
            "retrieveMessageFromPopRetryTopicV1": "true",
            "reviveQueueNum": "8",
            "serverLoadBalancerEnable": "true",
        }
    ),
    *refused(
        "that a message which cannot be put back is given up",
        {"skipWhenCKRePutReachMaxTimes": "false"},
        advice="it is tried again until it can be",
    ),
    *refused("that messages of a deleted group are put back", {"popReviveSkipIfGroupAbsent": "true"}),
    *refused("a log of every POP", {"enablePopLog": "false"}, advice=_LOG_ADVICE),
    *without_effect(
        _POP_TUNING,
        {
            "appendAckAsync": "false",
            "appendCkAsync": "false",
            "enablePopBatchAck": "false",
            "enablePopBufferMerge": "false",
            "popCkMaxBufferSize": "200000",
            "popCkOffsetMaxQueueSize": "20000",
            "popCkStayBufferTime": "10000",
            "popCkStayBufferTimeOut": "3000",
        },
    ),
    *without_effect(
        "messages come back at their time, without scans of a revive topic",
        {
            "enableSkipLongAwaitingAck": "false",
            "popReviveConcurrency": "32",
            "reviveAckWaitMs": "180000",
            "reviveInterval": "1000",
            "reviveMaxSlow": "3",
            "reviveScanTime": "10000",
        },
    ),
    *without_effect(
        "waiting POPs are woken by the message; popPollingSize and maxPopPollingSize bound them",
        {
            "popLongPollingForceNotifyInterval": "800",
            "popPollingMapExpireTimeSeconds": "600",
            "popPollingMapSize": "100000",
        },
    ),
    # -- trace, metrics, statistics, logs
    *honoured({"msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC", "traceOn": "true", "traceTopicEnable": "false"}),
    *refused(
        "that metrics are exported under RocketMQ's names",
        {"metricsExporterType": "DISABLE"},
        also=("0",),
        advice=_METRICS_ADVICE,
    ),
    *refused("an address that metrics are pushed to", {"metricsGrpcExporterTarget": ""}, advice=_METRICS_ADVICE),
    *refused("labels in exported metrics", {"metricsLabel": ""}, advice=_METRICS_ADVICE),
    *refused(
        "a Prometheus endpoint at that place",
        {"metricsPromExporterHost": "", "metricsPromExporterPort": "5557"},
        advice=_METRICS_ADVICE,
    ),
    *refused("metrics as differences", {"metricsInDelta": "false"}, advice=_METRICS_ADVICE),
    *refused(
        "credentials in the export of metrics",
        {"metricsGrpcExporterHeader": ""},
        advice=_METRICS_ADVICE,
        is_secret=True,
    ),
    *without_effect(
        _METRICS_TUNING,
        {
            "enableConnectionMetrics": "true",
            "enableLagAndDlqMetrics": "true",
            "enableMessageStoreMetrics": "true",
            "enablePopMetrics": "true",
            "enableRemotingMetrics": "true",
            "enableRequestMetrics": "true",
            "enableStatsMetrics": "true",
            "enableTransactionMetrics": "true",
            "metricGrpcExporterIntervalInMills": "60000",
            "metricGrpcExporterTimeOutInMills": "3000",
            "metricLoggingExporterIntervalInMills": "10000",
            "metricsExportBatchMaxDataPoints": "1000",
            "metricsOtelCardinalityLimit": "50000",
        },
    ),
    *without_effect(
        "lag is the distance of two offsets, whatever a group filters or waits for",
        {"enableNotifyBeforePopCalculateLag": "true", "estimateAccumulation": "true"},
    ),
    *without_effect(
        "statistics for a bill by account: they are in no answer to a client or tool",
        {
            "accountStatsEnable": "true",
            "accountStatsPrintZeroValues": "true",
            "commercialBaseCount": "1",
            "commercialSizePerMsg": "4096",
        },
    ),
    *without_effect(
        "statistics by topic and group are kept for what exists",
        {"autoDeleteUnusedStats": "true", "enableDetailStat": "true", "maxStatsIdleTimeInMinutes": "-1"},
    ),
    *refused("a log of client connections by group", {"printChannelGroups": "false"}, advice=_LOG_ADVICE),
    *without_effect("counts only with printChannelGroups, which is refused", {"printChannelGroupsMinNum": "5"}),
    # -- threads
    *without_effect(
        "how many threads recover queues: recovery is one pass over the log", {"recoverConcurrently": "false"}
    ),
    *without_effect(
        _POOL,
        {
            "ackMessageThreadPoolNums": "16",
            "adminBrokerThreadPoolNums": "16",
            "clientManageThreadPoolNums": "32",
            "consumerManageThreadPoolNums": "32",
            "endTransactionThreadPoolNums": MACHINE,
            "heartbeatThreadPoolNums": MACHINE,
            "litePullMessageThreadPoolNums": MACHINE,
            "loadBalanceProcessorThreadPoolNums": "32",
            "processReplyMessageThreadPoolNums": MACHINE,
            "pullMessageThreadPoolNums": MACHINE,
            "putMessageFutureThreadPoolNums": MACHINE,
            "queryMessageThreadPoolNums": MACHINE,
            "recoverThreadPoolNums": "32",
            "sendMessageThreadPoolNums": MACHINE,
        },
    ),
    *without_effect(
        _POOL_QUEUE,
        {
            "ackThreadPoolQueueCapacity": "100000",
            "adminBrokerThreadPoolQueueCapacity": "10000",
            "clientManagerThreadPoolQueueCapacity": "1000000",
            "consumerManagerThreadPoolQueueCapacity": "1000000",
            "endTransactionPoolQueueCapacity": "100000",
            "heartbeatThreadPoolQueueCapacity": "50000",
            "litePullThreadPoolQueueCapacity": "100000",
            "loadBalanceThreadPoolQueueCapacity": "100000",
            "pullThreadPoolQueueCapacity": "100000",
            "putThreadPoolQueueCapacity": "10000",
            "queryThreadPoolQueueCapacity": "20000",
            "replyThreadPoolQueueCapacity": "10000",
        },
    ),
)
