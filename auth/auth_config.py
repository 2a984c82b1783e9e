"""Settings of access control, by RocketMQ's names; those about the audit log are ours.

The broker reads them with its other settings (broker/settings), a NameServer with its own. None but
`auditLogAccesses` can be changed over the wire: who may change settings must not switch off access control.
Source: auth/config/AuthConfig.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.request_signature import Credentials


def _setting(default: Any, name: str, *, least: int | None = None, live: bool = False, secret: bool = False) -> Any:
    metadata = {"name": name, "least": least, "most": None, "live": live, "is_secret": secret}
    return field(default=default, repr=not secret, metadata=metadata)


class _InitUser(msgspec.Struct):
    username: str
    password: str


class _InnerCredentials(msgspec.Struct):
    access_key: str = msgspec.field(name="accessKey")
    secret_key: str = msgspec.field(name="secretKey")
    security_token: str = msgspec.field(default="", name="securityToken")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """Settings of access control; checked when made.

    Raises:
        InvalidParameterError: A value cannot be one, or they contradict each other; no secret is in the error.
    """

    authentication_enabled: bool = _setting(False, "authenticationEnabled")
    """Whether every request must be signed by a user."""
    authentication_whitelist: str = _setting("", "authenticationWhitelist")
    """Request codes, separated by commas, that need no signature."""
    init_user: str = _setting("", "initAuthenticationUser", secret=True)
    """JSON, {"username": ..., "password": ...}: a super user that a start makes if there is none of the name."""
    inner_credentials: str = _setting("", "innerClientAuthenticationCredentials", secret=True)
    """JSON, {"accessKey": ..., "secretKey": ...}: what brokers sign their own requests with; a super user, too."""
    authorization_enabled: bool = _setting(False, "authorizationEnabled")
    """Whether users need rights."""
    authorization_whitelist: str = _setting("", "authorizationWhitelist")
    """Request codes, separated by commas, that need no right."""
    migrate_v1: bool = _setting(False, "migrateAuthFromV1Enabled")
    """Whether a start makes the users and policies of the older file `aclFile`, unless there are users of the names."""
    v1_file: str = _setting("", "aclFile")
    """The older file, plain_acl.yml; files *.yml of the folder `acl` beside it are read, too."""
    audit_path: str = _setting("", "auditLogPath")
    """The audit log; empty: audit.log in the folder of the store (of a NameServer: none)."""
    audit_file_bytes: int = _setting(64 << 20, "auditLogFileBytes", least=4096)
    """A file of the audit log as large as this is set aside."""
    audit_file_count: int = _setting(8, "auditLogFileCount", least=1)
    """Files set aside that are kept."""
    audit_accesses: bool = _setting(False, "auditLogAccesses", live=True)
    """Whether allowed requests are in the audit log, too."""

    def __post_init__(self) -> None:
        if self.authorization_enabled and not self.authentication_enabled:
            raise InvalidParameterError(
                "authorizationEnabled needs authenticationEnabled: without signatures anyone can say to be any user"
            )
        if self.migrate_v1 and not self.v1_file:
            raise InvalidParameterError("migrateAuthFromV1Enabled needs aclFile, the path of plain_acl.yml")
        for name, least, value in (
            ("auditLogFileBytes", 4096, self.audit_file_bytes),
            ("auditLogFileCount", 1, self.audit_file_count),
        ):
            if value < least:
                raise InvalidParameterError(f"{name} must be at least {least}", setting=name, value=value)
        self.whitelists()
        self.first_users()

    def whitelists(self) -> tuple[frozenset[int], frozenset[int]]:
        """Codes that need no signature, and codes that need no right."""
        return (
            _codes("authenticationWhitelist", self.authentication_whitelist),
            _codes("authorizationWhitelist", self.authorization_whitelist),
        )

    def credentials(self) -> Credentials | None:
        """What this process signs its own requests with."""
        if not self.inner_credentials.strip():
            return None
        found = _decode("innerClientAuthenticationCredentials", self.inner_credentials, _InnerCredentials)
        if not found.access_key or not found.secret_key:
            name = "innerClientAuthenticationCredentials"
            raise InvalidParameterError(f"{name} needs accessKey and secretKey", setting=name)
        return Credentials(
            access_key=found.access_key, secret_key=found.secret_key, security_token=found.security_token
        )

    def first_users(self) -> tuple[tuple[str, str], ...]:
        """Names and passwords of the super users that a start makes."""
        users = []
        if self.init_user.strip():
            user = _decode("initAuthenticationUser", self.init_user, _InitUser)
            if not user.username.strip() or not user.password.strip():
                name = "initAuthenticationUser"
                raise InvalidParameterError(f"{name} needs username and password", setting=name)
            users.append((user.username, user.password))
        credentials = self.credentials()
        if credentials is not None:
            users.append((credentials.access_key, credentials.secret_key))
        return tuple(users)


def _codes(name: str, text: str) -> frozenset[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InvalidParameterError(f"{name} is a list of request codes, separated by commas", setting=name, value=text)
    return frozenset(map(int, words))


def _decode(name: str, text: str, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError:
        members = ", ".join(f'"{item.encode_name}": "..."' for item in msgspec.structs.fields(kind) if item.required)
        raise InvalidParameterError(f"{name} is a JSON object {{{members}}}", setting=name) from None
