"""ProxyAccess: access control of one proxy, put together from its settings: users, decisions, audit log.

It is off without `authenticationEnabled`. The proxy's own user reads the users of the brokers, so it has to be a super
user there; its keys are `innerClientAuthenticationCredentials`, or those of the environment.
"""

from __future__ import annotations

from collections.abc import Callable

from thermocline.auth.audit import AuditLog
from thermocline.auth.audit_file import AuditFile
from thermocline.auth.auth_config import AuthConfig
from thermocline.client.credentials import environment_credentials
from thermocline.proxy.access import AccessCheck, AccessRules, UserDirectory, UserSource
from thermocline.proxy.settings import ProxyConfig
from thermocline.remoting.clocks import monotonic_ms
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import InvalidParameterError, SettingError
from thermocline.remoting.request_signature import Credentials

__all__ = ["ProxyAccess", "own_credentials"]


def own_credentials(config: ProxyConfig, of_broker: Credentials | None = None) -> Credentials | None:
    """Return the keys of the proxy's own user, by which it signs what it asks of NameServers and brokers.

    `of_broker`: those of the broker in whose process group it runs; they count unless the setting names others.

    Raises:
        SettingError: The setting is none; or clients have to sign, and the proxy has no keys.
    """
    try:
        found = AuthConfig(inner_credentials=config.inner_credentials).credentials()
    except InvalidParameterError as error:
        raise SettingError(error.message) from error
    found = found or of_broker or environment_credentials()
    if config.authentication_enabled and found is None:
        raise SettingError(
            "authenticationEnabled needs the keys of a super user of the brokers, whose users the proxy reads: set"
            " innerClientAuthenticationCredentials, or THERMOCLINE_ACCESS_KEY and THERMOCLINE_SECRET_KEY"
        )
    return found


class ProxyAccess:
    """See the module. Belongs to one event loop."""

    def __init__(
        self, config: ProxyConfig, users: UserSource, *, counts: LimitCounts, clock_ms: Callable[[], int]
    ) -> None:
        """`clock_ms`: milliseconds since 1970.

        Raises:
            SettingError: The audit log cannot be opened.
        """
        self._audit_file: AuditFile | None = None
        self.check: AccessCheck | None = None
        """None while access control is off."""
        if not config.authentication_enabled:
            return
        if config.audit_path:
            try:
                self._audit_file = AuditFile(
                    config.audit_path,
                    file_bytes=config.audit_file_bytes,
                    file_count=config.audit_file_count,
                    clock=clock_ms,
                )
            except OSError as error:
                text = f"the audit log cannot be opened: {error.strerror}"
                raise SettingError(text, path=config.audit_path) from error
        directory = UserDirectory(
            users,
            stale_ms_max=config.access_stale_ms_max,
            users_max=config.users_max,
            address_look_ups_max=config.address_look_ups_max,
            clock_ms=monotonic_ms,
            counts=counts,
        )
        rules = AccessRules(
            authorizes=config.authorization_enabled,
            unsigned=_names(config.authentication_whitelist),
            free=_names(config.authorization_whitelist),
        )
        audit = AuditLog(self._audit_file, clock=clock_ms, is_access_wanted=lambda: config.audit_accesses)
        self.check = AccessCheck(directory, rules, audit=audit)

    def start(self) -> None:
        """Follow the brokers' users and policies."""
        if self.check is not None:
            self.check.start()

    async def close(self) -> None:
        """Ask no broker any more, and write the audit log to its end. Idempotent."""
        if self.check is not None:
            await self.check.close()
        if self._audit_file is not None:
            self._audit_file.close()


def _names(text: str) -> frozenset[str]:
    return frozenset(word.strip() for word in text.split(",") if word.strip())
