"""org.apache.rocketmq.auth.config.AuthConfig, release 5.5.0: what each of its settings means here."""

from __future__ import annotations

from thermocline.remoting.settings import OfficialSetting, refused, without_effect

__all__ = ["AUTH_CONFIG"]

_ADVICE = "bindAddress and a firewall say who reaches the port"

AUTH_CONFIG: tuple[OfficialSetting, ...] = (
    *refused(
        "that clients prove who they are",
        {
            "authenticationEnabled": "false",
            "authenticationMetadataProvider": "",
            "authenticationProvider": "",
            "authenticationStrategy": "",
            "authenticationWhitelist": "",
        },
        advice=_ADVICE,
    ),
    *refused(
        "that clients without the right to do so are turned away",
        {
            "authorizationEnabled": "false",
            "authorizationMetadataProvider": "",
            "authorizationProvider": "",
            "authorizationStrategy": "",
            "authorizationWhitelist": "",
            "migrateAuthFromV1Enabled": "false",
        },
        advice=_ADVICE,
    ),
    *refused(
        "a user with a password",
        {"initAuthenticationUser": "", "innerClientAuthenticationCredentials": ""},
        advice=_ADVICE,
        is_secret=True,
    ),
    *without_effect(
        "counts only with access control, which is refused",
        {
            "aclCacheExpiredSecond": "600",
            "aclCacheMaxNum": "1000",
            "aclCacheRefreshSecond": "60",
            "authConfigPath": "",
            "clusterName": "",
            "configName": "",
            "statefulAuthenticationCacheExpiredSecond": "60",
            "statefulAuthenticationCacheMaxNum": "10000",
            "statefulAuthorizationCacheExpiredSecond": "60",
            "statefulAuthorizationCacheMaxNum": "10000",
            "userCacheExpiredSecond": "600",
            "userCacheMaxNum": "1000",
            "userCacheRefreshSecond": "60",
        },
    ),
)
