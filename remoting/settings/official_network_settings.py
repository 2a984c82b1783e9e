"""Network settings of RocketMQ's daemons: NettyServerConfig, NettyClientConfig and the TLS names, release 5.5.0.

`tls.*` names are system properties of the JVM and lines of tls.properties. RocketMQ does not read them from a
`broker.conf`; here they are known all the same, because who writes them there expects encryption.
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
_TLS_ADVICE = "a proxy in front, such as stunnel, can encrypt"

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
    *refused("connections that are encrypted", {"useTLS": "false"}, advice=_TLS_ADVICE),
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
    *refused("connections that are encrypted", {"tls.enable": "false"}, advice=_TLS_ADVICE),
    *refused(
        "a port that takes encrypted connections",
        {"tls.server.mode": "permissive"},
        true_here="disabled",
        advice=_TLS_ADVICE,
    ),
    *refused(
        "encrypted connections with these keys and certificates",
        {
            "tls.client.certPath": "",
            "tls.client.keyPath": "",
            "tls.client.trustCertPath": "",
            "tls.config.file": "/etc/rocketmq/tls.properties",
            "tls.server.certPath": "",
            "tls.server.keyPath": "",
            "tls.server.trustCertPath": "",
            "tls.ciphers": "",
            "tls.protocols": "",
        },
        true_here="",
        advice=_TLS_ADVICE,
    ),
    *refused(
        "encrypted connections with a key of that password",
        {"tls.client.keyPassword": "", "tls.server.keyPassword": ""},
        advice=_TLS_ADVICE,
        is_secret=True,
    ),
    *refused(
        "that the certificate of the other side is checked",
        {
            "tls.client.authServer": "false",
            "tls.server.authClient": "false",
            "tls.server.need.client.auth": "none",
        },
        advice=_TLS_ADVICE,
    ),
    *without_effect("certificates for tests: there is no TLS", {"tls.test.mode.enable": "true"}),
)
