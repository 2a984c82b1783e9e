"""org.apache.rocketmq.auth.config.AuthConfig, release 5.5.0: what each of its settings means here."""

from __future__ import annotations

from thermocline.auth.official_auth_settings import AUTH_CACHES, AUTH_CHECKS
from thermocline.remoting.settings import OfficialSetting, honoured, refused, without_effect

__all__ = ["AUTH_CONFIG"]

_AUTH = "org.apache.rocketmq.auth"

AUTH_CONFIG: tuple[OfficialSetting, ...] = (
    *honoured(
        {
            "authenticationEnabled": "false",
            "authenticationWhitelist": "",
            "authorizationEnabled": "false",
            "authorizationWhitelist": "",
            "initAuthenticationUser": "",
            "innerClientAuthenticationCredentials": "",
        }
    ),
    *honoured({"migrateAuthFromV1Enabled": "false"}, "needs `aclFile`, the path of plain_acl.yml"),
    *refused(
        "users and policies from another place than this broker's own",
        {"authenticationMetadataProvider": "", "authorizationMetadataProvider": ""},
        also=(
            f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
            f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
        ),
    ),
    *AUTH_CHECKS,
    *without_effect(
        "all users and policies are in memory; a change counts at once",
        {**AUTH_CACHES, "userCacheMaxNum": "1000", "aclCacheMaxNum": "1000"},
    ),
    *without_effect("users and policies are in the store: thermocline/auth.json", {"authConfigPath": ""}),
    *without_effect(
        "set by RocketMQ itself: the cluster is `brokerClusterName`", {"clusterName": "", "configName": ""}
    ),
)
