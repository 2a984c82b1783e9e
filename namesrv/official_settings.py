"""RocketMQ's settings of a NameServer and a controller, release 5.5.0: what each of them means here.

A NameServer of RocketMQ reads NamesrvConfig, NettyServerConfig and NettyClientConfig, and with
`enableControllerInNamesrv` ControllerConfig and JraftConfig from the same file. A controller by itself reads all but
the first.
"""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.remoting.settings import (
    MACHINE,
    NETTY_CLIENT_CONFIG,
    NETTY_SERVER_CONFIG,
    TLS_PROPERTIES,
    OfficialSetting,
    by_name,
    carried,
    fixed_values,
    honoured,
    refused,
    without_effect,
)

__all__ = [
    "CONTROLLER_FIXED",
    "CONTROLLER_SETTINGS",
    "FIXED",
    "NAME_SERVER_CLASSES",
    "NAME_SERVER_SETTINGS",
]

_JRAFT = "counts only with controllerType=jRaft, which is refused"
_METRICS_ADVICE = "brokers and controllers serve GET /metrics on their healthPort"

NAMESRV_CONFIG: tuple[OfficialSetting, ...] = (
    *honoured(
        {
            "configBlackList": "configBlackList;configStorePath;kvConfigPath",
            "deleteTopicWithBrokerRegistration": "false",
            "enableAllTopicList": "true",
            "enableTopicList": "true",
            "needWaitForService": "false",
            "notifyMinBrokerIdChanged": "false",
            "orderMessageEnable": "false",
            "returnOrderTopicConfigToBroker": "true",
            "scanNotActiveBrokerInterval": "5000",
            "supportActingMaster": "false",
            "waitSecondsForService": "45",
        }
    ),
    *honoured({"configStorePath": MACHINE, "kvConfigPath": MACHINE}, "default: none; --data sets both"),
    *honoured({"enableControllerInNamesrv": "false"}),
    *refused("that routes which are not known here are asked of another cluster", {"clusterTest": "false"}),
    *without_effect("counts only with clusterTest, which is refused", {"productEnvName": "center"}),
    *without_effect("folder of RocketMQ's installation", {"rocketmqHome": MACHINE}),
    *without_effect(
        "thread pool and the queue before it: there is none",
        {
            "clientRequestThreadPoolNums": "8",
            "clientRequestThreadPoolQueueCapacity": "50000",
            "defaultThreadPoolNums": "16",
            "defaultThreadPoolQueueCapacity": "10000",
            "unRegisterBrokerQueueCapacity": "3000",
        },
    ),
)

CONTROLLER_CONFIG: tuple[OfficialSetting, ...] = (
    *honoured({"configBlackList": "configBlackList;configStorePath", "configStorePath": MACHINE}),
    *honoured({"scanNotActiveBrokerInterval": "5000"}),
    *honoured(
        {
            "electMasterMaxRetryCount": "3",
            "enableElectUncleanMaster": "false",
            "isProcessReadEvent": "false",
            "notifyBrokerRoleChanged": "true",
            "scanInactiveMasterInterval": "5000",
        }
    ),
    *honoured({"controllerDLegerGroup": ""}, "default: `default`"),
    *honoured({"controllerDLegerPeers": ""}, "one, three or five nodes"),
    *honoured({"controllerDLegerSelfId": ""}),
    *honoured(
        {"controllerStorePath": ""}, "must be set, unless --data does; a folder of RocketMQ's controller is refused"
    ),
    carried("processReadEvent", "", carrier="isProcessReadEvent"),
    *refused("the consensus of SOFAJRaft", {"controllerType": "DLedger"}),
    *refused(
        "that metrics are exported",
        {"metricsExporterType": "DISABLE"},
        also=("0",),
        advice=_METRICS_ADVICE,
    ),
    *refused(
        "metrics at that place, or in that form",
        {
            "metricsGrpcExporterTarget": "",
            "metricsInDelta": "false",
            "metricsLabel": "",
            "metricsPromExporterHost": "",
            "metricsPromExporterPort": "5557",
        },
        advice=_METRICS_ADVICE,
    ),
    *refused(
        "credentials in the export of metrics",
        {"metricsGrpcExporterHeader": ""},
        advice=_METRICS_ADVICE,
        is_secret=True,
    ),
    *without_effect("folder of RocketMQ's installation", {"rocketmqHome": MACHINE}),
    *without_effect(
        "counts only with metricsExporterType, which is refused",
        {
            "metricGrpcExporterIntervalInMills": "60000",
            "metricGrpcExporterTimeOutInMills": "3000",
            "metricLoggingExporterIntervalInMills": "10000",
        },
    ),
    *without_effect(
        "thread pool and the queue before it: there is none",
        {"controllerRequestThreadPoolQueueCapacity": "50000", "controllerThreadPoolNums": "16"},
    ),
    *without_effect("the controller's files grow with what is in them", {"mappedFileSize": "1073741824"}),
    *without_effect(_JRAFT, {"jraftConfig": MACHINE}),
)

JRAFT_CONFIG: tuple[OfficialSetting, ...] = tuple(
    without_effect(
        _JRAFT,
        {
            "jRaftControllerRPCAddr": "localhost:9770,localhost:9771,localhost:9772",
            "jRaftElectionTimeoutMs": "1000",
            "jRaftGroupId": "jRaft-Controller",
            "jRaftInitConf": "localhost:9880,localhost:9881,localhost:9882",
            "jRaftScanWaitTimeoutMs": "1000",
            "jRaftServerId": "localhost:9880",
            "jRaftSnapshotIntervalSecs": "3600",
        },
    )
)

NAME_SERVER_CLASSES: Mapping[str, tuple[OfficialSetting, ...]] = {
    "org.apache.rocketmq.common.namesrv.NamesrvConfig": NAMESRV_CONFIG,
    "org.apache.rocketmq.remoting.netty.NettyServerConfig": NETTY_SERVER_CONFIG,
    "org.apache.rocketmq.remoting.netty.NettyClientConfig": NETTY_CLIENT_CONFIG,
    "org.apache.rocketmq.common.ControllerConfig": CONTROLLER_CONFIG,
    "org.apache.rocketmq.common.JraftConfig": JRAFT_CONFIG,
}
"""By the full name of the official class."""

NAME_SERVER_SETTINGS: Mapping[str, OfficialSetting] = by_name(*NAME_SERVER_CLASSES.values(), TLS_PROPERTIES)
"""Every setting of RocketMQ that a NameServer's configuration file may name, by its name."""

FIXED: Mapping[str, str] = fixed_values(NAMESRV_CONFIG, NETTY_SERVER_CONFIG)
"""What `mqadmin getNamesrvConfig` shows of the refused settings: the value that is true here."""

_OF_CONTROLLER = (
    *without_effect("the port is the one in controllerDLegerPeers", {"listenPort": "0"}),
    *(setting for setting in NETTY_SERVER_CONFIG if setting.name != "listenPort"),
)

CONTROLLER_SETTINGS: Mapping[str, OfficialSetting] = by_name(
    CONTROLLER_CONFIG, JRAFT_CONFIG, _OF_CONTROLLER, NETTY_CLIENT_CONFIG, TLS_PROPERTIES
)
"""Every setting of RocketMQ that a controller's configuration file may name, by its name."""

CONTROLLER_FIXED: Mapping[str, str] = fixed_values(CONTROLLER_CONFIG, NETTY_SERVER_CONFIG)
"""What `mqadmin getControllerConfig` shows of the refused settings: the value that is true here."""
