"""JSON bodies about users and policies (codes 3001 to 3010).

Source: remoting/protocol/body/{UserInfo,AclInfo}.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import msgspec

from thermocline.remoting.bodies.body import Body


class UserInfo(Body, kw_only=True):
    """A user. `user_type`: Super or Normal; `user_status`: enable or disable. The password is not in `repr`."""

    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo(username={self.username!r}, user_type={self.user_type!r}, user_status={self.user_status!r})"


class PolicyEntryInfo(Body, kw_only=True):
    """An entry: `resource` such as `Topic:orders*`, names of actions, addresses or ranges, Allow or Deny."""

    actions: list[str] | None = None
    decision: str | None = None
    resource: str | None = None
    source_ips: list[str] | None = None


class PolicyInfo(Body, kw_only=True):
    """The entries of one type, Custom or Default."""

    entries: list[PolicyEntryInfo] | None = None
    policy_type: str | None = None


class AclInfo(Body, kw_only=True):
    """All policies of a subject such as `User:alice`."""

    policies: list[PolicyInfo] | None = None
    subject: str | None = None


class AuthState(Body, kw_only=True):
    """All users and policies: the file in which a broker or a NameServer keeps them. Its own, not RocketMQ's."""

    users: list[UserInfo] = msgspec.field(default_factory=list)
    acls: list[AclInfo] = msgspec.field(default_factory=list)
