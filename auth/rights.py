"""Rights: what a request needs, and how the names of its resources are read from it.

    Need    an action on the resources that one field of the request names
    Rule    all needs of a request code; each must be allowed. Without needs every user may send the request.

A field that is missing names every resource of its type, for which only `Topic:*` or `*` counts, unless the need says
otherwise. A retry topic counts as its group. Which code has which rule: rights_table.py.

Consumers send to the retry topic of their group: Java's do when a message of an ordered group was tried often enough,
and when a send-back fails. So Sub on the group is enough there (`retry_actions`).

A client acknowledges what POP has delivered again by the name of the retry topic of group and topic
(`%RETRY%group_topic`, `%RETRY%group+topic`). There the topic counts, beside the group that the request names; never the
group alone: `%RETRY%orders_eu` is also the retry topic of another group, `orders_eu`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from thermocline.auth.actions import Action
from thermocline.auth.resources import (
    RETRY_PREFIX,
    Resource,
    ResourcePattern,
    ResourceType,
    cluster_resource,
    group_resource,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.handles import normal_topic
from thermocline.remoting.topic_validation import REPLY_TOPIC_SUFFIX

Names = Callable[[RemotingCommand], Iterable[str]]


class Missing(StrEnum):
    """What a field that is missing or blank means."""

    EVERY = "every one"
    NOTHING = "nothing"
    CLUSTER = "cluster"


class Right(msgspec.Struct, frozen=True):
    """One of `actions` on `resource`, which a user must be allowed."""

    resource: Resource
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """See the module. `field`: the ext field with the name; empty for the broker's cluster. `names`: reads the names
    from the body, which `field` then describes. `separator`: between several names in the field."""

    type: ResourceType
    actions: tuple[Action, ...]
    field: str = ""
    names: Names | None = None
    separator: str = ""
    missing: Missing = Missing.EVERY
    group_field: str = ""
    """Of a topic that may be a retry topic of POP: the ext field with the group."""
    is_reply: bool = False
    """Of a topic: for that of the cluster's replies no right is needed."""
    retry_actions: tuple[Action, ...] = ()
    """Of a topic: the actions instead, one of which a retry topic needs on its group; none: the same."""

    def rights(self, command: RemotingCommand, cluster_name: str) -> Iterable[Right]:
        """The rights that this request needs."""
        if self.names is not None:
            found = [name for name in self.names(command) if name]
        else:
            text = (command.ext_fields or {}).get(self.field, "") if self.field else ""
            found = [name for name in text.split(self.separator) if name] if self.separator else [text]
        if any(name.strip() for name in found):
            group = (command.ext_fields or {}).get(self.group_field, "") if self.group_field else ""
            for name in found:
                if not (self.is_reply and name == f"{cluster_name}{REPLY_TOPIC_SUFFIX}"):
                    resource = self._resource(normal_topic(name, group) if group else name)
                    is_retry = self.type is ResourceType.TOPIC and resource.type is ResourceType.GROUP
                    yield Right(resource, self.retry_actions if is_retry and self.retry_actions else self.actions)
        elif self.type is ResourceType.CLUSTER or self.missing is Missing.CLUSTER:
            yield Right(cluster_resource(cluster_name), self.actions)
        elif self.missing is Missing.EVERY:
            yield Right(Resource(self.type, "", ResourcePattern.LITERAL), self.actions)

    def _resource(self, name: str) -> Resource:
        if self.type is ResourceType.GROUP or (self.type is ResourceType.TOPIC and name.startswith(RETRY_PREFIX)):
            return group_resource(name)
        return Resource(self.type, name, ResourcePattern.LITERAL)

    def __str__(self) -> str:
        actions = " or ".join(action.title for action in self.actions)
        kind = self.type.name.lower()
        if self.type is ResourceType.CLUSTER:
            return f"{actions} on the cluster" + (f" `{self.field}`" if self.field else "")
        if not self.field:
            return f"{actions} on every {kind}"
        each = "each " if self.separator or self.names is not None else ""
        text = f"{actions} on {each}{kind} `{self.field}`"
        if self.is_reply:
            return f"{text}, unless that is `{{cluster}}{REPLY_TOPIC_SUFFIX}`"
        if self.retry_actions:
            retry_actions = " or ".join(action.title for action in self.retry_actions)
            return f"{text}; of a retry topic {retry_actions} on its group"
        if self.missing is Missing.CLUSTER:
            return f"{text}; without it {actions} on the cluster"
        return f"{text}, if it is there" if self.missing is Missing.NOTHING else text


@dataclass(frozen=True, slots=True)
class Rule:
    """The needs of one request code."""

    needs: tuple[Need, ...]
    fields: tuple[str, ...] | None = field(init=False, compare=False)
    """All ext fields that the rights depend on; None when they depend on the body."""

    def __post_init__(self) -> None:
        named = [name for need in self.needs for name in (need.field, need.group_field) if name]
        is_in_header = all(need.names is None for need in self.needs)
        object.__setattr__(self, "fields", tuple(named) if is_in_header else None)

    def rights(self, command: RemotingCommand, cluster_name: str) -> tuple[Right, ...]:
        """All rights that this request needs, each once.

        Raises:
            InvalidRequestError: The body, which names the resources, cannot be read.
        """
        return tuple(dict.fromkeys(right for need in self.needs for right in need.rights(command, cluster_name)))

    def __str__(self) -> str:
        return "; ".join(map(str, self.needs)) if self.needs else "any user"
