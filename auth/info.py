"""Users and policies in the form of requests and of the file, and back.

As RocketMQ's converters do it: an unknown action is passed over; an unknown decision or resource is refused.
Source: broker/auth/converter/{UserConverter,AclConverter}.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from thermocline.auth.actions import parse_action
from thermocline.auth.policies import Acl, Policy, PolicyEntry, PolicyType, parse_decision, parse_policy_type
from thermocline.auth.resources import parse_resource
from thermocline.auth.users import User, UserStatus, UserType, parse_user_status, parse_user_type
from thermocline.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from thermocline.remoting.errors import PermissionDeniedError


def user_to_info(user: User, *, with_password: bool) -> UserInfo:
    """A user as requests have it."""
    return UserInfo(
        username=user.username,
        password=user.password if with_password else None,
        user_type=user.type.title,
        user_status=user.status.title,
    )


def user_from_info(info: UserInfo) -> User:
    """A user of the file.

    Raises:
        ValueError: It is none.
    """
    if not info.username or not info.password:
        raise ValueError("a user without name or password")
    return User(
        username=info.username,
        password=info.password,
        type=parse_user_type(info.user_type) or UserType.NORMAL,
        status=parse_user_status(info.user_status) or UserStatus.ENABLE,
    )


def acl_to_info(acl: Acl) -> AclInfo:
    """An access list as requests have it."""
    return AclInfo(
        subject=acl.subject,
        policies=[
            PolicyInfo(
                policy_type=policy.type.title,
                entries=[
                    PolicyEntryInfo(
                        resource=entry.resource.key,
                        actions=[action.title for action in entry.actions],
                        source_ips=list(entry.sources) or None,
                        decision=entry.decision.title,
                    )
                    for entry in policy.entries
                ],
            )
            for policy in acl.policies
        ],
    )


def acl_from_info(info: AclInfo) -> Acl:
    """An access list.

    Raises:
        PermissionDeniedError: A part is missing or none, in RocketMQ's words.
    """
    return Acl(subject=info.subject or "", policies=policies_from_info(info))


def policies_from_info(info: AclInfo) -> tuple[Policy, ...]:
    """The policies of a request; one without entries is passed over.

    Raises:
        PermissionDeniedError: See `acl_from_info`.
    """
    return tuple(
        Policy(
            type=parse_policy_type(policy.policy_type) or PolicyType.CUSTOM,
            entries=tuple(map(_entry, policy.entries)),
        )
        for policy in info.policies or ()
        if policy.entries
    )


def _entry(info: PolicyEntryInfo) -> PolicyEntry:
    resource = parse_resource(info.resource)
    if resource is None:
        raise PermissionDeniedError("The resource is null.")
    found = [parse_action(name) for name in info.actions or ()]
    decision = parse_decision(info.decision)
    entry_actions = tuple(action for action in found if action is not None)
    if not entry_actions:
        raise PermissionDeniedError("The actions is empty.")
    if decision is None:
        raise PermissionDeniedError("The decision is null or illegal.")
    return PolicyEntry(
        resource=resource,
        actions=entry_actions,
        sources=tuple(info.source_ips or ()),
        decision=decision,
    )
