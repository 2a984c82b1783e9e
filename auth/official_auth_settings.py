"""RocketMQ's settings of access control that mean the same to each daemon of ours; the rest stands with each daemon.

Source: auth/config/AuthConfig.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from thermocline.remoting.settings import OfficialSetting, refused

__all__ = ["AUTH_CACHES", "AUTH_CHECKS"]

_AUTH = "org.apache.rocketmq.auth"

AUTH_CHECKS: tuple[OfficialSetting, ...] = (
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
)
"""Which classes check requests."""

AUTH_CACHES = {
    "aclCacheExpiredSecond": "600",
    "aclCacheRefreshSecond": "60",
    "statefulAuthenticationCacheExpiredSecond": "60",
    "statefulAuthenticationCacheMaxNum": "10000",
    "statefulAuthorizationCacheExpiredSecond": "60",
    "statefulAuthorizationCacheMaxNum": "10000",
    "userCacheExpiredSecond": "600",
    "userCacheRefreshSecond": "60",
}
"""Settings of caches with their defaults, but for `userCacheMaxNum` and `aclCacheMaxNum`, which a proxy has too."""
