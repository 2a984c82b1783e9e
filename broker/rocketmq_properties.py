"""Property names of Apache RocketMQ's broker that have no setting here, so that its configuration files are understood.

A `broker.conf` that was written for RocketMQ starts this broker too. Three kinds of names stand in it:

  - names that a setting here carries (broker_settings.py);
  - names in `WITHOUT_EFFECT`: thread pools, queues between them, engines that do not exist here. They are accepted and
    named in one warning at start;
  - names in `REQUIRED`: settings that promise something that is not built. Another value than the one that is true
    here is an error, as a broker that silently left out access control or replication would be worse than one that
    does not start.

Any other name is a mistake, and an error. The names are those that `mqadmin getBrokerConfig` of release 5.5.0 shows.
"""

from collections.abc import Mapping

REQUIRED: Mapping[str, frozenset[str]] = {
    "aclEnable": frozenset({"false"}),
    "authenticationEnabled": frozenset({"false"}),
    "authorizationEnabled": frozenset({"false"}),
    "brokerRole": frozenset({"async_master", "sync_master"}),
    "duplicationEnable": frozenset({"false"}),
    "enableConsumeQueueExt": frozenset({"false"}),
    "enableControllerMode": frozenset({"false"}),
    "enableDLegerCommitLog": frozenset({"false"}),
    "enableLmq": frozenset({"false"}),
    "enableMultiDispatch": frozenset({"false"}),
    "enableSlaveActingMaster": frozenset({"false"}),
    "enabledAppendPropCRC": frozenset({"false"}),
    "messageStorePlugIn": frozenset({""}),
    "storeType": frozenset({"default"}),
    "useTLS": frozenset({"false"}),
}
"""Values in lower case that are true of this broker."""

_NAMES_WITHOUT_EFFECT = """
    accessMessageInMemoryHotRatio accountStatsEnable accountStatsPrintZeroValues ackMessageThreadPoolNums
    ackThreadPoolQueueCapacity adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity allAckInSyncStateSet
    appendAckAsync appendCkAsync asyncLearner
    asyncSendEnable autoDeleteUnusedStats autoMessageVersionOnTopicLen batchDispatchRequestThreadPoolNums
    bitMapLengthConsumeQueueExt bottomMostCompressionTypeForConsumeQueueStore broadcastOffsetExpireMaxSecond
    broadcastOffsetExpireSecond brokerElectionPriority brokerFastFailureEnable brokerHeartbeatInterval brokerIP2
    brokerNotActiveTimeoutMillis channelNotActiveInterval checkCRCOnRecover
    checkCommitLogOffsetOnRecover checkSyncStateSetPeriod cleanFileForciblyEnable cleanOfflineBrokerInterval
    cleanResourceInterval cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval clientAsyncSemaphoreValue
    clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientManageThreadPoolNums
    clientManagerThreadPoolQueueCapacity clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable
    clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads coldCtrStrategyEnable
    coldDataScanEnable combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
    combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType combineCQUseRocksdbForLmq commercialBaseCount
    commercialSizePerMsg commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog
    commitLogForceSwapMapInterval commitLogRecoverMaxNum commitLogSwapMapInterval commitLogSwapMapReserveFileNum
    compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal compactionThreadNum
    compatibleWithOldNameSrv compressedRegister configBlackList configManagerVersion connectTimeoutMillis
    consumerFallbehindThreshold consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity controllerAddr
    controllerHeartBeatTimeoutMills correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval
    dataReadAheadEnable debugLockEnable deleteCommitLogFilesInterval
    deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly disableCallbackExecutor
    disableConsumeIfConsumerReadSlowly disableNettyWorkerGroup disappearTimeAfterStart diskFallRecorded
    dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread enableAcceleratedRecovery enableAsyncReput
    enableAutoInSyncReplicas enableBatchPush enableBroadcastOffsetStore enableBuildConsumeQueueConcurrently
    enableCalcFilterBitMap enableCleanExpiredOffset enableCompaction enableConnectionMetrics enableCreateSysGroup
    enableDetailStat enableFastChannelEventProcess enableLagAndDlqMetrics enableLiteEventMode enableLitePopLog
    enableLmqQuota enableLmqStats enableLogConsumeQueueRepeatedlyBuildWhenRecover enableMessageStoreMetrics
    enableNetWorkFlowControl enableNotifyBeforePopCalculateLag enablePopBatchAck
    enablePopBufferMerge enablePopLog enablePopMetrics enableReconnectForGoAway
    enableRegisterProducer enableRemoteEscape enableRemotingMetrics enableRequestMetrics
    enableRocksDBLog enableRunningFlagsInFlush enableScheduleAsyncDeliver enableScheduleMessageStats
    enableShutdownGracefully enableSingleTopicRegister enableSkipLongAwaitingAck enableSplitRegistration
    enableStatsMetrics enableTransactionMetrics endTransactionPoolQueueCapacity endTransactionThreadPoolNums
    estimateAccumulation expectConsumerNumUseFilter fastFailIfNoBufferInStorePool fetchControllerAddrByDnsLookup
    filterDataCleanTimeSpan
    filterSupportRetry flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
    flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval flushConsumerOffsetHistoryInterval
    flushIntervalConsumeQueue flushLeastPagesWhenWarmMapedFile forceRegister forceVerifyPropCRC
    haFlowControlEnable haHousekeepingInterval haMaxGapNotInSync haMaxTimeSlaveNotCatchup
    haSendHeartbeatInterval haTransferBatchSize heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity highSpeedMode
    inSyncReplicas indexFileReadEnable indexFileWriteEnable indexRocksDBEnable
    isBrokerContainer isInBrokerContainer isScanAvailableNameSrv isolateLogEnable iteratorWhenUseRocksdbConsumeQueue
    liteEventCheckInterval liteEventFullDispatchDelayTime liteEventFullDispatchDelayTimeForWildcardGroup
    liteLagCountMetricsEnable liteLagLatencyCollectEnable liteLagLatencyMetricsEnable liteLagLatencyTopK
    litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity liteSubscriptionCheckInterval
    liteSubscriptionCheckTimeoutMills liteTtlCheckInterval
    loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity lockInStrictMode
    logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
    logicalDiskSpaceCleanForciblyThreshold mappedFileSizeConsumeQueueExt mappedFileSwapEnable
    mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests maxBatchDeleteFilesNum maxChecksumRange
    maxClientEventCount maxConsumeQueueScan maxErrorRateOfBloomFilter maxFilterMessageSize maxHaTransferByteInSecond
    maxLiteSubscriptionCount maxLmqConsumeQueueNum maxMessageFilterNumForNotification maxMsgsNumBatch maxOffsetMapSize
    maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles maxRocksDBIndexQueryDays
    maxSlaveResendLength maxStatsIdleTimeInMinutes maxTopicLength memTableFlushIntervalMs messageIndexSafe
    metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills
    metricsExportBatchMaxDataPoints metricsExporterType metricsGrpcExporterHeader metricsGrpcExporterTarget
    metricsInDelta metricsLabel metricsOtelCardinalityLimit metricsPromExporterHost metricsPromExporterPort
    minInSyncReplicas minLiteTTl offsetCheckInSlave osPageCacheBusyTimeOutMills persistConsumerOffsetIncrementally
    popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut popConsumerFSServiceInit
    popConsumerKVServiceEnable popConsumerKVServiceInit popConsumerKVServiceLog
    popFromRetryProbabilityForPriority popLongPollingForceNotifyInterval
    popPollingMapExpireTimeSeconds popPollingMapSize
    popReviveConcurrency popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead popReviveSkipIfGroupAbsent
    printChannelGroups printChannelGroupsMinNum priorityOrderAsc processReplyMessageThreadPoolNums
    pullBatchMaxMessageCount pullMessageThreadPoolNums pullThreadPoolQueueCapacity putConsumeQueueDataByFileChannel
    putMessageFutureThreadPoolNums putMessageTimeout putMsgIndexHightWater putThreadPoolQueueCapacity
    queryMessageThreadPoolNums queryThreadPoolQueueCapacity readUnCommitted realTimeNotifyConsumerChange
    realTimePersistRocksDBConfig recheckReputOffsetFromCq recoverConcurrently recoverThreadPoolNums
    redeleteHangedFileInterval replicasPerDiskPartition replyThreadPoolQueueCapacity
    reviveAckWaitMs reviveInterval reviveMaxSlow reviveScanTime rocketmqHome rocksdbCQDoubleWriteEnable
    rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked searchBcqByCacheEnable
    sendHeartbeatTimeoutMillis sendMessageThreadPoolNums serverAsyncSemaphoreValue
    serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds serverNettyWorkerGroupEnable
    serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog
    serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads sharedByteBufferNum shutdownWaitTimeSeconds
    skipPreOnline skipWhenCKRePutReachMaxTimes slaveReadEnable slaveTimeout socksProxyConfig
    spinLockCollisionRetreatOptimalDegree splitRegistrationSize statRocksDBCQIntervalSec
    subscriptionExpiredTimeout syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod syncControllerMetadataPeriod
    syncFromLastFile syncMasterFlushOffsetWhenStartup timerCheckMetricsWhen timerColdDataCheckIntervalMs
    timerEnableCheckMetrics timerEnableDisruptor timerEnableRetryUntilSuccess
    timerGetMessageThreadNum timerInterceptDelayLevel timerMetricSmallThreshold
    timerProgressLogIntervalMs timerPutMessageThreadNum timerRecallToTimeWheelEnable
    timerRecallToTimelineEnable timerReputServiceCorePoolSize timerReputServiceMaxPoolSize
    timerReputServiceQueueCapacity timerRocksDBEnable timerRocksDBPrecisionMs timerRocksDBRollIntervalHours
    timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps
    timerSkipUnknownError timerStopDequeue timerStopEnqueue timerWarmEnable timerWheelSnapshotFlush
    timerWheelSnapshotIntervalMs topicQueueLockNum totalReplicas transRocksDBEnable transWriteOriginTransHalfEnable
    transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads
    transactionCheckRocksdbQueueCapacity
    transferMsgByHeap transientStorePoolEnable transientStorePoolSize
    travelCqFileNumWhenGetMessage useABSLock useEpollNativeSelector
    useMessageFilterForNotification usePIDColdCtrStrategy useReentrantLockWhenPutMessage useSeparateRetryQueue
    useSeparateStorePathForRocksdbCQ useSingleRocksDBForAllConfigs useStaticSubscription waitTimeMillsInAckQueue
    waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue
    waitTimeMillsInTransactionQueue wakeCommitWhenPutMessage wakeFlushWhenPutMessage
    warmMapedFileEnable writeBufferHighWaterMark writeBufferLowWaterMark writeWithoutMmap
"""

WITHOUT_EFFECT: frozenset[str] = frozenset(_NAMES_WITHOUT_EFFECT.split())
