"""org.apache.rocketmq.auth.config.AuthConfig, release 5.5.0: what each of its settings means here."""

from __future__ import annotations

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
    *refused(
        "another way to check signatures",
        {"authenticationProvider": ""},
        also=(f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",),
    ),
    *refused(
        "another way to check rights",
        {"authorizationProvider": ""},
        also=(f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",),
    ),
    *refused(
        "another strategy; here every request is checked",
        {"authenticationStrategy": "", "authorizationStrategy": ""},
        also=tuple(
            f"{_AUTH}.{stage.lower()}.strategy.{kind}{stage}Strategy"
            for stage in ("Authentication", "Authorization")
            for kind in ("Stateless", "Stateful")
        ),
    ),
    *without_effect(
        "all users and policies are in memory; a change counts at once",
        {
            "aclCacheExpiredSecond": "600",
            "aclCacheMaxNum": "1000",
            "aclCacheRefreshSecond": "60",
            "statefulAuthenticationCacheExpiredSecond": "60",
            "statefulAuthenticationCacheMaxNum": "10000",
            "statefulAuthorizationCacheExpiredSecond": "60",
            "statefulAuthorizationCacheMaxNum": "10000",
            "userCacheExpiredSecond": "600",
            "userCacheMaxNum": "1000",
            "userCacheRefreshSecond": "60",
        },
    ),
    *without_effect("users and policies are in the store: thermocline/auth.json", {"authConfigPath": ""}),
    *without_effect(
        "set by RocketMQ itself: the cluster is `brokerClusterName`", {"clusterName": "", "configName": ""}
    ),
)
