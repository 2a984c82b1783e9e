"""Policies: what the users of a cluster are allowed.

    Acl     of one subject           CUSTOM is asked first, DEFAULT only when no entry of CUSTOM counts
    Policy  CUSTOM or DEFAULT        a list of entries
    Entry   resource, actions, source addresses, ALLOW or DENY

A change replaces the entry of the same resource in the policy of the same type, and adds the others.
Values are immutable; a change gives a new Acl.
Source: auth/authorization/model/{Acl,Policy,PolicyEntry,Environment}.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

import msgspec

from thermocline.auth.actions import Action
from thermocline.auth.resources import Resource


class PolicyType(IntEnum):
    """The two types."""

    CUSTOM = 1
    DEFAULT = 2

    @property
    def title(self) -> str:
        """The name in texts."""
        return self.name.capitalize()


class Decision(IntEnum):
    """What an entry decides."""

    ALLOW = 1
    DENY = 2

    @property
    def title(self) -> str:
        """The name in texts."""
        return self.name.capitalize()


_POLICY_TYPES = {kind.title.lower(): kind for kind in PolicyType}
_DECISIONS = {decision.title.lower(): decision for decision in Decision}


def parse_policy_type(text: str | None) -> PolicyType | None:
    """The type of a name in any case; None for an unknown one."""
    return _POLICY_TYPES.get((text or "").lower())


def parse_decision(text: str | None) -> Decision | None:
    """The decision of a name in any case; None for an unknown one."""
    return _DECISIONS.get((text or "").lower())


class PolicyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry. Without `sources` it counts from every address."""

    resource: Resource
    actions: tuple[Action, ...]
    sources: tuple[str, ...] = ()
    decision: Decision

    def __str__(self) -> str:
        actions = ",".join(action.title for action in self.actions)
        sources = f" from {','.join(self.sources)}" if self.sources else ""
        return f"{self.decision.title} {actions} on {self.resource.key}{sources}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The entries of one type."""

    type: PolicyType
    entries: tuple[PolicyEntry, ...]

    def updated(self, changes: Iterable[PolicyEntry]) -> Policy:
        """The policy after a change, see the module."""
        entries = list(self.entries)
        for change in changes:
            place = next((index for index, entry in enumerate(entries) if entry.resource == change.resource), None)
            if place is None:
                entries.append(change)
            else:
                entries[place] = change
        return replace(self, entries=tuple(entries))

    def without(self, resource: Resource) -> Policy:
        """The policy without its first entry of a resource."""
        entries = list(self.entries)
        for entry in self.entries:
            if entry.resource == resource:
                entries.remove(entry)
                break
        return replace(self, entries=tuple(entries))


SOURCES_PER_ENTRY = 16
"""For the limits on entries: a long list of addresses counts as several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """All policies of a subject."""

    subject: str
    policies: tuple[Policy, ...]

    @property
    def entry_count(self) -> int:
        """Entries of all policies; one counts once more for each SOURCES_PER_ENTRY addresses."""
        return sum(1 + len(entry.sources) // SOURCES_PER_ENTRY for policy in self.policies for entry in policy.entries)

    def policy(self, kind: PolicyType) -> Policy | None:
        """The policy of a type."""
        return next((policy for policy in self.policies if policy.type is kind), None)

    def updated(self, changes: Iterable[Policy]) -> Acl:
        """The list after a change, see the module."""
        policies = list(self.policies)
        for change in changes:
            place = next((index for index, policy in enumerate(policies) if policy.type is change.type), None)
            if place is None:
                policies.append(change)
            else:
                policies[place] = policies[place].updated(change.entries)
        return replace(self, policies=tuple(policies))

    def without(self, kind: PolicyType, resource: Resource) -> Acl:
        """The list without the entry of a resource; a policy without entries goes with its last one."""
        policies = [policy.without(resource) if policy.type is kind else policy for policy in self.policies]
        return replace(self, policies=tuple(policy for policy in policies if policy.entries))
