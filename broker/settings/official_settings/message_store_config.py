"""org.apache.rocketmq.store.config.MessageStoreConfig, release 5.5.0: what each of its settings means here."""

from __future__ import annotations

from thermocline.remoting.settings import MACHINE, OfficialSetting, honoured, refused, without_effect

__all__ = ["MESSAGE_STORE_CONFIG"]

_DLEDGER = "counts only with a DLedger group, which is refused"
_UNDER_CONTROLLER = "counts under a controller"
_ROCKSDB = "tuning of a RocksDB engine; the settings that choose one are refused"
_COMPACTION = "compacted topics are not built: creating one is refused"
_SWAP = "mapped files are given back to the system by the kernel"
_POOL = "thread pool: there is none"
_UNREAD = "release 5.5.0 does not read it"
_LOCK = "lock between threads: one thread appends"
_TRANSIENT_POOL = "buffer in front of the log: messages are written to the log itself"

_REPLICAS_ADVICE = (
    "replicas keep messages on several brokers: enableControllerMode with controllers, or brokerRole=SYNC_MASTER with"
    " inSyncReplicas"
)
_LOG_ADVICE = "--log-level says how much is logged"

MESSAGE_STORE_CONFIG: tuple[OfficialSetting, ...] = (
    # -- replicas
    *honoured(
        {"brokerRole": "ASYNC_MASTER"},
        "default: no port is open for slaves; with brokerRole=ASYNC_MASTER it is, as with SYNC_MASTER",
    ),
    *honoured(
        {"inSyncReplicas": "1"},
        "2 or more needs brokerRole=SYNC_MASTER or a controller, or it promises what is not kept",
    ),
    *without_effect("information about a replica set", {"totalReplicas": "1"}),
    *honoured({"minInSyncReplicas": "1", "allAckInSyncStateSet": "false"}, _UNDER_CONTROLLER),
    *refused("a count of replicas that adapts itself", {"enableAutoInSyncReplicas": "false"}, advice=_REPLICAS_ADVICE),
    *refused(
        "a log that a DLedger group of brokers agrees on",
        {
            "enableDLegerCommitLog": "false",
            "dLegerGroup": "",
            "dLegerPeers": "",
            "dLegerSelfId": "",
            "preferredLeaderId": "",
        },
        advice=_REPLICAS_ADVICE,
    ),
    *honoured({"haMasterAddress": ""}),
    *honoured(
        {"asyncLearner": "false", "haMaxTimeSlaveNotCatchup": "15000", "syncFromLastFile": "false"}, _UNDER_CONTROLLER
    ),
    *honoured(
        {"storePathBrokerIdentity": ""}, "default: brokerIdentity in storePathRootDir; counts under a controller"
    ),
    *honoured({"storePathEpochFile": ""}, "only the file epochFileCheckpoint of storePathRootDir is accepted"),
    *refused("a log that is written twice", {"duplicationEnable": "false"}, advice=_REPLICAS_ADVICE),
    *honoured({"haListenPort": "10912"}, "default: listenPort + 1, as a broker of RocketMQ sets it"),
    *honoured(
        {
            "haFlowControlEnable": "false",
            "haHousekeepingInterval": "20000",
            "haMaxGapNotInSync": "268435456",
            "haSendHeartbeatInterval": "5000",
            "haTransferBatchSize": "32768",
            "maxHaTransferByteInSecond": "104857600",
            "slaveTimeout": "3000",
        }
    ),
    *without_effect("a slave of RocketMQ chooses its form of replication", {"enableBatchPush": "false"}),
    *without_effect(
        "what a slave has is compared with its master by epochs",
        {"maxChecksumRange": "1073741824", "offsetCheckInSlave": "false"},
    ),
    *without_effect(_DLEDGER, {"storePathDLedgerCommitLog": ""}),
    *without_effect(
        "a slave makes its log durable before its first report", {"syncMasterFlushOffsetWhenStartup": "false"}
    ),
    # -- folders and formats
    *honoured({"storePathRootDir": MACHINE}),
    *honoured({"storePathCommitLog": ""}, "only the folder commitlog of storePathRootDir is accepted"),
    *refused("messages in further folders that are read", {"readOnlyCommitLogStorePaths": ""}),
    *refused("consume queues in RocksDB", {"storeType": "default", "rocksdbCQDoubleWriteEnable": "false"}),
    *refused("a key index in RocksDB", {"indexRocksDBEnable": "false"}),
    *refused("transactions that are kept in RocksDB", {"transRocksDBEnable": "false"}),
    *refused("timed messages that are kept in RocksDB", {"timerRocksDBEnable": "false"}),
    *refused("consume queues with extension files", {"enableConsumeQueueExt": "false"}),
    *refused("light message queues", {"enableLmq": "false", "enableMultiDispatch": "false"}),
    *refused(
        "a checksum over the properties of each message",
        {"enabledAppendPropCRC": "false", "forceVerifyPropCRC": "false"},
    ),
    *refused("that no message is stored in version 2 of the format", {"autoMessageVersionOnTopicLen": "true"}),
    *honoured(
        {
            "mappedFileSizeCommitLog": "1073741824",
            "mappedFileSizeConsumeQueue": "6000000",
            "mappedFileSizeTimerLog": "104857600",
            "maxHashSlotNum": "5000000",
            "maxIndexNum": "20000000",
        }
    ),
    *honoured({"maxMessageSize": "4194304"}, "at most 16777216, as no request is larger"),
    *without_effect("queues with extension files are refused", {"mappedFileSizeConsumeQueueExt": "50331648"}),
    *without_effect(
        "prefilter of message filters: results are the same without it", {"bitMapLengthConsumeQueueExt": "64"}
    ),
    *without_effect(
        "batch queues are not built: creating one is refused", {"mapperFileSizeBatchConsumeQueue": "13800000"}
    ),
    *without_effect("batch queues are not built: creating one is refused", {"searchBcqByCacheEnable": "true"}),
    *without_effect("light message queues are refused", {"enableLmqQuota": "false", "maxLmqConsumeQueueNum": "20000"}),
    *without_effect(
        _COMPACTION,
        {
            "compactionCqMappedFileSize": "10485760",
            "compactionMappedFileSize": "104857600",
            "compactionScheduleInternal": "900000",
            "compactionThreadNum": "6",
            "enableCompaction": "true",
            "maxOffsetMapSize": "104857600",
        },
    ),
    *without_effect(
        _ROCKSDB,
        {
            "bottomMostCompressionTypeForConsumeQueueStore": "zstd",
            "cleanRocksDBDirtyCQIntervalMin": "60",
            "combineAssignOffsetCQType": "default",
            "combineCQEnableCheckSelf": "false",
            "combineCQLoadingCQTypes": "default;defaultRocksDB",
            "combineCQMaxExtraSearchCommitLogFiles": "3",
            "combineCQPreferCQType": "default",
            "combineCQUseRocksdbForLmq": "false",
            "enableAcceleratedRecovery": "false",
            "enableRocksDBLog": "false",
            "iteratorWhenUseRocksdbConsumeQueue": "true",
            "maxRocksDBIndexQueryDays": "7",
            "memTableFlushIntervalMs": "3600000",
            "realTimePersistRocksDBConfig": "true",
            "rocksdbCompressionType": "lz4",
            "rocksdbFlushWalFrequency": "1024",
            "rocksdbWalFileRollingThreshold": "1073741824",
            "statRocksDBCQIntervalSec": "10",
            "timerRecallToTimeWheelEnable": "true",
            "timerRecallToTimelineEnable": "true",
            "timerReputServiceCorePoolSize": "6",
            "timerReputServiceMaxPoolSize": "6",
            "timerReputServiceQueueCapacity": "10000",
            "timerRocksDBPrecisionMs": "1000",
            "timerRocksDBRollIntervalHours": "1",
            "timerRocksDBRollMaxTps": "8000.0",
            "timerRocksDBRollRangeHours": "2",
            "timerRocksDBStopScan": "false",
            "timerRocksDBTimeExpiredMaxTps": "200000.0",
            "transWriteOriginTransHalfEnable": "true",
            "useSeparateStorePathForRocksdbCQ": "false",
        },
    ),
    # -- durability
    *honoured({"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "500", "syncFlushTimeout": "5000"}),
    *refused(
        "that the log is flushed right after each append",
        {"wakeFlushWhenPutMessage": "false"},
        advice="flushDiskType=SYNC_FLUSH does it; flushIntervalCommitLog bounds what a power cut costs",
    ),
    *without_effect(
        "each flush takes all that was appended, every flushIntervalCommitLog",
        {"flushCommitLogLeastPages": "4", "flushCommitLogThoroughInterval": "10000", "flushCommitLogTimed": "true"},
    ),
    *without_effect(
        "queue files are made durable every derivedSyncIntervalMs, and rebuilt from the log",
        {
            "flushConsumeQueueLeastPages": "2",
            "flushConsumeQueueThoroughInterval": "60000",
            "flushIntervalConsumeQueue": "1000",
        },
    ),
    *without_effect(
        _TRANSIENT_POOL,
        {
            "commitCommitLogLeastPages": "4",
            "commitCommitLogThoroughInterval": "200",
            "commitIntervalCommitLog": "200",
            "fastFailIfNoBufferInStorePool": "false",
            "sharedByteBufferNum": "16",
            "transientStorePoolEnable": "false",
            "transientStorePoolSize": "5",
            "wakeCommitWhenPutMessage": "true",
            "writeWithoutMmap": "false",
        },
    ),
    *without_effect(
        "log files are prepared ahead", {"flushLeastPagesWhenWarmMapedFile": "4096", "warmMapedFileEnable": "false"}
    ),
    *without_effect("sends are refused while the disk is full", {"enableRunningFlagsInFlush": "false"}),
    *without_effect("syncFlushTimeout bounds the wait for a flush", {"putMessageTimeout": "8000"}),
    *without_effect("consumers read what the log holds", {"readUnCommitted": "false"}),
    # -- recovery
    *without_effect(
        "recovery checks offset and checksum of every record that it scans",
        {"checkCRCOnRecover": "true", "checkCommitLogOffsetOnRecover": "false"},
    ),
    *without_effect(
        "recovery begins at the checkpoint, however many files that are",
        {"commitLogRecoverMaxNum": "10", "recheckReputOffsetFromCq": "false"},
    ),
    *without_effect("the key index goes on in the log where it ended before a crash", {"messageIndexSafe": "false"}),
    *without_effect(
        "keys are always indexed",
        {"indexFileReadEnable": "true", "indexFileWriteEnable": "true", "messageIndexEnable": "true"},
    ),
    *refused(
        "a log of queue entries that recovery built again",
        {"enableLogConsumeQueueRepeatedlyBuildWhenRecover": "false"},
        advice=_LOG_ADVICE,
    ),
    *refused("that nothing is registered for that long after a start", {"disappearTimeAfterStart": "-1"}, also=("0",)),
    # -- retention
    *honoured(
        {
            "cleanFileForciblyEnable": "true",
            "deleteFileBatchMax": "10",
            "deleteWhen": "04",
            "diskMaxUsedSpaceRatio": "75",
            "diskSpaceCleanForciblyRatio": "85",
            "diskSpaceWarningLevelRatio": "90",
            "fileReservedTime": "72",
        }
    ),
    *refused(
        "that a disk is shared out among that many brokers",
        {"replicasPerDiskPartition": "1"},
        advice="diskSpaceCleanForciblyRatio and diskSpaceWarningLevelRatio count the whole disk",
    ),
    *without_effect("counts only with replicasPerDiskPartition", {"logicalDiskSpaceCleanForciblyThreshold": "0.8"}),
    *without_effect(
        "pauses between deletions: deleteFileBatchMax files a second at most",
        {
            "cleanResourceInterval": "10000",
            "deleteCommitLogFilesInterval": "100",
            "deleteConsumeQueueFilesInterval": "100",
            "destroyMapedFileIntervalForcibly": "120000",
            "redeleteHangedFileInterval": "120000",
        },
    ),
    *without_effect(
        "the first offset of a queue follows each deletion",
        {"correctLogicMinOffsetForceInterval": "300000", "correctLogicMinOffsetSleepInterval": "1"},
    ),
    *without_effect(_UNREAD, {"enableCleanExpiredOffset": "false", "maxBatchDeleteFilesNum": "50"}),
    # -- reads
    *honoured(
        {
            "accessMessageInMemoryMaxRatio": "40",
            "coldDataFlowControlEnable": "false",
            "defaultQueryMaxNum": "32",
            "maxMsgsNumBatch": "64",
            "maxTransferBytesOnMessageInDisk": "65536",
            "maxTransferBytesOnMessageInMemory": "262144",
            "maxTransferCountOnMessageInDisk": "8",
            "maxTransferCountOnMessageInMemory": "32",
        }
    ),
    *without_effect(
        "what is cold is known from the ledger",
        {"accessMessageInMemoryHotRatio": "26", "coldDataScanEnable": "false", "timerColdDataCheckIntervalMs": "60000"},
    ),
    *without_effect("how the kernel reads ahead", {"dataReadAheadEnable": "true"}),
    *without_effect("lag is reported in messages, not in bytes on disk", {"diskFallRecorded": "true"}),
    *without_effect(
        "how many queue entries one look takes: a filtered pull goes on from there",
        {"maxFilterMessageSize": "16000", "travelCqFileNumWhenGetMessage": "1"},
    ),
    *without_effect(
        "lag is the distance of two offsets, whatever a group filters",
        {"maxConsumeQueueScan": "20000", "sampleCountThreshold": "5000", "sampleSteps": "32"},
    ),
    # -- delays and timers
    *honoured(
        {
            "appendTopicForTimerDeleteKey": "false",
            "flushDelayOffsetInterval": "10000",
            "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
            "timerCongestNumEachSlot": "2147483647",
            "timerFlushIntervalMs": "1000",
            "timerMaxDelaySec": "259200",
            "timerPrecisionMs": "1000",
            "timerRollWindowSlot": "172800",
            "timerWheelEnable": "true",
        }
    ),
    *refused(
        "that timed messages are not taken, or not delivered, for now",
        {"timerStopDequeue": "false", "timerStopEnqueue": "false"},
        advice="timerWheelEnable=false refuses timed messages and holds back those that wait",
    ),
    *refused("that a timed message which cannot be delivered is given up", {"timerSkipUnknownError": "false"}),
    *without_effect("a message that is due is tried until it is stored", {"timerEnableRetryUntilSuccess": "false"}),
    *without_effect(
        "threads and buffers of RocketMQ's timer",
        {
            "timerEnableDisruptor": "false",
            "timerGetMessageThreadNum": "3",
            "timerPutMessageThreadNum": "3",
            "timerWarmEnable": "false",
            "timerWheelSnapshotFlush": "false",
            "timerWheelSnapshotIntervalMs": "10000",
        },
    ),
    *without_effect(
        "counts of waiting messages follow each message",
        {"timerCheckMetricsWhen": "05", "timerEnableCheckMetrics": "true", "timerMetricSmallThreshold": "1000000"},
    ),
    *without_effect("progress is in the broker's figures", {"timerProgressLogIntervalMs": "10000"}),
    *without_effect(_UNREAD, {"timerInterceptDelayLevel": "false"}),
    *without_effect(
        "delayed messages are delivered in order, in batches",
        {
            "enableScheduleAsyncDeliver": "false",
            "scheduleAsyncDeliverMaxPendingLimit": "2000",
            "scheduleAsyncDeliverMaxResendNum2Blocked": "3",
        },
    ),
    *without_effect("delayed messages are in the statistics of their topics", {"enableScheduleMessageStats": "true"}),
    # -- threads, locks, flow control inside RocketMQ
    *without_effect(
        "sends that would wait for the store are refused by waitTimeMillsInSendQueue",
        {"osPageCacheBusyTimeOutMills": "1000", "maxAsyncPutMessageRequests": "5000"},
    ),
    *refused("a dump of threads when an append is slow", {"debugLockEnable": "false"}, advice=_LOG_ADVICE),
    *without_effect(
        _LOCK,
        {
            "spinLockCollisionRetreatOptimalDegree": "1000",
            "topicQueueLockNum": "32",
            "useABSLock": "false",
            "useReentrantLockWhenPutMessage": "true",
        },
    ),
    *without_effect(
        _POOL, {"batchDispatchRequestThreadPoolNums": "16", "enableBuildConsumeQueueConcurrently": "false"}
    ),
    *without_effect("how queue files are written", {"putConsumeQueueDataByFileChannel": "true"}),
    *without_effect(
        _SWAP,
        {
            "cleanSwapedMapInterval": "300000",
            "commitLogForceSwapMapInterval": "43200000",
            "commitLogSwapMapInterval": "3600000",
            "commitLogSwapMapReserveFileNum": "100",
            "logicQueueForceSwapMapInterval": "43200000",
            "logicQueueSwapMapInterval": "3600000",
            "logicQueueSwapMapReserveFileNum": "20",
            "mappedFileSwapEnable": "true",
        },
    ),
    *without_effect(
        _UNREAD,
        {
            "dispatchCqCacheNum": "4096",
            "dispatchCqThreads": "10",
            "dispatchFromSenderThread": "false",
            "enableAsyncReput": "true",
            "maxRecoveryCommitlogFiles": "30",
            "maxSlaveResendLength": "268435456",
            "maxTopicLength": "127",
            "pullBatchMaxMessageCount": "160",
            "putMsgIndexHightWater": "600000",
        },
    ),
)
