"""Authorization: whether a user may do something, and the entry of a policy that decides it.

    SUPER                                                   -> allowed
    entries of CUSTOM that cover resource, action, address  -> the most specific one decides
    none there: the same with DEFAULT
    none there either                                       -> denied

Most specific: an entry of a type before `*`; a literal name before a prefix before `Topic:*`; a longer prefix before a
shorter one; and of two equals, such as the same resource twice, DENY (as in 5.5; releases before let ALLOW win there).
Source: auth/authorization/chain/{UserAuthorizationHandler,AclAuthorizationHandler}.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from thermocline.auth.actions import Action, is_action_allowed
from thermocline.auth.policies import Acl, Decision, PolicyEntry, PolicyType
from thermocline.auth.resources import Resource, ResourcePattern, ResourceType
from thermocline.auth.source_addresses import is_in_sources
from thermocline.auth.users import User

SUPER_USER = "super user"
NO_MATCH = "no matched policies."
DENIED = "the decision is deny."


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A decision: the entry that made it and the type of its policy, or neither for a super user and without a match.
    `reason` is for people."""

    is_allowed: bool
    reason: str
    entry: PolicyEntry | None = None
    policy: PolicyType | None = None

    @property
    def maker(self) -> str:
        """What made the decision, for people."""
        if self.entry is None or self.policy is None:
            return self.reason
        return f"{self.policy.title}: {self.entry}"


def decide(
    user: User, acl: Acl | None, *, resource: Resource, actions: Collection[Action], source_address: str
) -> Verdict:
    """Decide on a request that needs one of `actions` on `resource`."""
    if user.is_super:
        return Verdict(is_allowed=True, reason=SUPER_USER)
    for kind in PolicyType:
        policy = acl.policy(kind) if acl is not None else None
        if policy is None:
            continue
        entry = _most_specific(
            entry
            for entry in policy.entries
            if entry.resource.covers(resource)
            and is_action_allowed(allowed=entry.actions, wanted=actions)
            and is_in_sources(source_address, entry.sources)
        )
        if entry is not None:
            is_allowed = entry.decision is Decision.ALLOW
            reason = "allowed by a policy" if is_allowed else DENIED
            return Verdict(is_allowed=is_allowed, reason=reason, entry=entry, policy=kind)
    return Verdict(is_allowed=False, reason=NO_MATCH)


def denial_text(*, subject: str, resource: Resource, source_address: str, reason: str) -> str:
    """The answer to the client, in RocketMQ's words."""
    return f"{subject} has no permission to access {resource.key} from {source_address}, {reason}"


def _most_specific(entries: Iterable[PolicyEntry]) -> PolicyEntry | None:
    return min(entries, key=_rank, default=None)


def _rank(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    resource = entry.resource
    prefix_length = len(resource.name or "") if resource.pattern is ResourcePattern.PREFIXED else 0
    return (
        resource.type is ResourceType.ANY,
        resource.pattern,
        -prefix_length,
        entry.decision is Decision.ALLOW,
    )
