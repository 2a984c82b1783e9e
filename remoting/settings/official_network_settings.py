"""Network settings of RocketMQ's daemons: NettyServerConfig, NettyClientConfig and the TLS names, release 5.5.0.

`tls.*` names are system properties of the JVM and lines of tls.properties. RocketMQ does not read them from a
`broker.conf`; here they are settings as all others (tls_config.py), and tls.properties is one more configuration file.
Source: remoting/netty/NettyServerConfig.java, NettyClientConfig.java, TlsSystemConfig.java, TlsHelper.java.
"""

from __future__ import annotations

from thermocline.remoting.settings.official_settings import (
    MACHINE,
    OfficialSetting,
    carried,
    honoured,
    refused,
    without_effect,
)

__all__ = ["NETTY_CLIENT_CONFIG", "NETTY_SERVER_CONFIG", "TLS_PROPERTIES"]

_NETTY = "thread, buffer or socket option of Netty, which is not used"

NETTY_SERVER_CONFIG: tuple[OfficialSetting, ...] = (
    *honoured({"bindAddress": "0.0.0.0"}, "default: 127.0.0.1; of a broker 0.0.0.0 when brokerIP1 is not loopback"),
    *honoured({"listenPort": "0"}, "default: 10911 for a broker, 9876 for a NameServer"),
    carried("serverChannelMaxIdleTimeSeconds", "120", carrier="serverChannelMaxIdleTimeMills", factor=1_000),
    *refused(
        "that clients are asked to reconnect elsewhere before a stop",
        {"enableShutdownGracefully": "false"},
        advice="requests in flight are answered before a stop",
    ),
    *without_effect("counts only with enableShutdownGracefully, which is refused", {"shutdownWaitTimeSeconds": "30"}),
    *without_effect(
        _NETTY,
        {
            "serverAsyncSemaphoreValue": "64",
            "serverCallbackExecutorThreads": "0",
            "serverNettyWorkerGroupEnable": "true",
            "serverOnewaySemaphoreValue": "256",
            "serverPooledByteBufAllocatorEnable": "true",
            "serverSelectorThreads": "3",
            "serverSocketBacklog": "1024",
            "serverSocketRcvBufSize": "0",
            "serverSocketSndBufSize": "0",
            "serverWorkerThreads": "8",
            "useEpollNativeSelector": "false",
            "writeBufferHighWaterMark": "0",
            "writeBufferLowWaterMark": "0",
        },
    ),
)

NETTY_CLIENT_CONFIG: tuple[OfficialSetting, ...] = (
    carried("useTLS", "false", carrier="tls.enable"),
    *refused("connections through a SOCKS proxy", {"socksProxyConfig": "{}"}, also=("",), is_secret=True),
    *without_effect(
        "connections to NameServers and other brokers have time limits of their own",
        {
            "channelNotActiveInterval": "60000",
            "clientChannelMaxIdleTimeSeconds": "120",
            "clientCloseSocketIfTimeout": "true",
            "connectTimeoutMillis": "3000",
            "enableReconnectForGoAway": "true",
            "isScanAvailableNameSrv": "true",
            "maxReconnectIntervalTimeSeconds": "60",
            "scanAvailableNameSrv": "",
        },
    ),
    *without_effect(
        _NETTY,
        {
            "clientAsyncSemaphoreValue": "65535",
            "clientCallbackExecutorThreads": MACHINE,
            "clientOnewaySemaphoreValue": "65535",
            "clientPooledByteBufAllocatorEnable": "false",
            "clientSocketRcvBufSize": "0",
            "clientSocketSndBufSize": "0",
            "clientWorkerThreads": "4",
            "disableCallbackExecutor": "false",
            "disableNettyWorkerGroup": "false",
            "writeBufferHighWaterMark": "0",
            "writeBufferLowWaterMark": "0",
        },
    ),
)

TLS_PROPERTIES: tuple[OfficialSetting, ...] = (
    *honoured(
        {
            "tls.client.authServer": "false",
            "tls.client.certPath": "",
            "tls.client.keyPassword": "",
            "tls.client.keyPath": "",
            "tls.client.trustCertPath": "",
            "tls.config.file": "/etc/rocketmq/tls.properties",
            "tls.enable": "false",
            "tls.protocols": "",
            "tls.server.certPath": "",
            "tls.server.keyPassword": "",
            "tls.server.keyPath": "",
        }
    ),
    *honoured({"tls.server.mode": "permissive"}, "another word is an error"),
    *honoured(
        {"tls.server.authClient": "false", "tls.server.need.client.auth": "none", "tls.server.trustCertPath": ""},
        "a requested certificate is always checked",
    ),
    *honoured({"tls.test.mode.enable": "true"}, "key and certificate count as soon as they are named"),
    *refused(
        "a choice of cipher suites", {"tls.ciphers": ""}, advice="OpenSSL's own choice for TLS 1.2 and 1.3 is used"
    ),
)
