"""RocketMQ's settings of access control in `rmq-proxy.json`: what each field of AuthConfig means to a proxy.

`userCacheMaxNum` and `aclCacheMaxNum`, which are fields of ProxyConfig too, are in official_settings.py.
Source: auth/config/AuthConfig.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from thermocline.auth.official_auth_settings import AUTH_CACHES, AUTH_CHECKS
from thermocline.remoting.settings import OfficialSetting, honoured, refused, without_effect

__all__ = ["PROXY_AUTH_CONFIG"]

_PROVIDERS = "org.apache.rocketmq.proxy.auth"

PROXY_AUTH_CONFIG: tuple[OfficialSetting, ...] = (
    *honoured(
        {
            "authenticationEnabled": "false",
            "authenticationWhitelist": "",
            "authorizationEnabled": "false",
            "authorizationWhitelist": "",
            "innerClientAuthenticationCredentials": "",
        }
    ),
    *refused(
        "users and policies from another place than the brokers",
        {"authenticationMetadataProvider": "", "authorizationMetadataProvider": ""},
        also=(
            f"{_PROVIDERS}.ProxyAuthenticationMetadataProvider",
            f"{_PROVIDERS}.ProxyAuthorizationMetadataProvider",
        ),
    ),
    *AUTH_CHECKS,
    *refused(
        "that the proxy makes users",
        {"initAuthenticationUser": ""},
        advice="the brokers' setting of this name makes the first user",
        is_secret=True,
    ),
    *refused(
        "that the proxy makes users of an older file", {"migrateAuthFromV1Enabled": "false"}, advice="brokers do that"
    ),
    *without_effect("a change counts within accessStaleMillisMax; a user is kept with its policies", AUTH_CACHES),
    *without_effect("users and policies are the brokers'; nothing is kept", {"authConfigPath": ""}),
    *without_effect(
        "set by RocketMQ itself: the cluster is `rocketMQClusterName`", {"clusterName": "", "configName": ""}
    ),
)
"""Every field of AuthConfig, which RocketMQ's proxy reads from its own file."""
