"""org.apache.rocketmq.tieredstore.MessageStoreConfig, release 5.5.0: RocketMQ's own tiered store.

RocketMQ reads these names only when `messageStorePlugIn` loads its tiered store, which is refused here: the cold tier
is set by `coldUrl`. Names that say where history is, or how long it is kept, are refused, too.
"""

from __future__ import annotations

from thermocline.remoting.settings import MACHINE, OfficialSetting, honoured, refused, without_effect

__all__ = ["TIERED_STORE_CONFIG"]

_ADVICE = "coldUrl names the cold tier"

TIERED_STORE_CONFIG: tuple[OfficialSetting, ...] = (
    *honoured({"brokerClusterName": "DefaultCluster", "brokerName": MACHINE, "storePathRootDir": MACHINE}),
    *refused(
        "history in RocketMQ's tiered store",
        {
            "objectStoreBucket": "",
            "objectStoreEndpoint": "",
            "tieredBackendServiceProvider": "org.apache.rocketmq.tieredstore.provider.MemoryFileSegment",
            "tieredMetadataServiceProvider": "org.apache.rocketmq.tieredstore.metadata.DefaultMetadataStore",
            "tieredStorageLevel": "NOT_IN_DISK",
            "tieredStoreFilePath": "",
        },
        true_here="",
        advice=_ADVICE,
    ),
    *refused(
        "history in RocketMQ's tiered store",
        {"objectStoreAccessKey": "", "objectStoreSecretKey": ""},
        advice=_ADVICE,
        is_secret=True,
    ),
    *refused(
        "history that is kept for that many hours",
        {"tieredStoreFileReservedTime": "72", "tieredStoreDeleteFileEnable": "true"},
        true_here="",
        advice="messageTtlMs and the topic attribute reserve.time say how long history is kept",
    ),
    *without_effect(
        "counts only with messageStorePlugIn, which is refused",
        {
            "commitLogRollingInterval": "24",
            "commitLogRollingMinimumSize": "16777216",
            "messageIndexEnable": "true",
            "readAheadCacheEnable": "true",
            "readAheadCacheExpireDuration": "15000",
            "readAheadCacheSizeThresholdRate": "0.3",
            "readAheadMessageCountThreshold": "4096",
            "readAheadMessageSizeThreshold": "16777216",
            "recordGetMessageResult": "false",
            "tieredStoreCommitLogMaxSize": "1073741824",
            "tieredStoreConsumeQueueMaxSize": "104857600",
            "tieredStoreCrcCheckEnable": "false",
            "tieredStoreDeleteFileInterval": "3600000",
            "tieredStoreGroupCommit": "true",
            "tieredStoreGroupCommitCount": "4096",
            "tieredStoreGroupCommitSize": "4194304",
            "tieredStoreGroupCommitTimeout": "30000",
            "tieredStoreIndexFileMaxHashSlotNum": "5000000",
            "tieredStoreIndexFileMaxIndexNum": "20000000",
            "tieredStoreMaxGroupCommitCount": "10000",
            "tieredStoreMaxPendingLimit": "10000",
            "writeWithoutMmap": "false",
        },
    ),
)
