"""Resources: what a right is about, and which of them an entry of a policy covers.

    text            type     pattern
    *               ANY      ANY
    Topic:*         TOPIC    ANY
    Topic:orders*   TOPIC    PREFIXED, name `orders`
    Topic:orders    TOPIC    LITERAL

Types are Topic, Group, Cluster, Namespace; their names are read in any case. The retry topic of a group is its group.
Source: auth/authorization/model/Resource.java, common/resource/ResourceType.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

ANYTHING = "*"
RETRY_PREFIX = "%RETRY%"


class ResourceType(IntEnum):
    """The types, by RocketMQ's numbers."""

    UNKNOWN = 0
    ANY = 1
    CLUSTER = 2
    NAMESPACE = 3
    TOPIC = 4
    GROUP = 5

    @property
    def title(self) -> str:
        """The name in texts: `Topic`."""
        return self.name.capitalize()


class ResourcePattern(IntEnum):
    """How an entry's name is compared, the most specific first."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


TYPES_BY_NAME = {kind.title.lower(): kind for kind in ResourceType}


class Resource(msgspec.Struct, frozen=True):
    """One resource, or a set of them. `name` is None for the pattern ANY."""

    type: ResourceType
    name: str | None
    pattern: ResourcePattern

    @property
    def key(self) -> str:
        """The text, see the module."""
        if self.type is ResourceType.ANY:
            return ANYTHING
        if self.pattern is ResourcePattern.ANY:
            return f"{self.type.title}:{ANYTHING}"
        return f"{self.type.title}:{self.name}{ANYTHING if self.pattern is ResourcePattern.PREFIXED else ''}"

    def covers(self, resource: Resource) -> bool:
        """Whether an entry of this resource counts for a request about `resource`, a literal one."""
        if self.type is ResourceType.ANY:
            return True
        if self.type is not resource.type:
            return False
        if self.pattern is ResourcePattern.ANY:
            return True
        if self.name is None or resource.name is None:
            return self.name is resource.name
        if self.pattern is ResourcePattern.PREFIXED:
            return resource.name.startswith(self.name)
        return resource.name == self.name


def parse_resource(text: str | None) -> Resource | None:
    """The resource of a text; None for a blank text or an unknown type."""
    if text is None or not text.strip():
        return None
    if text == ANYTHING:
        return Resource(ResourceType.ANY, None, ResourcePattern.ANY)
    type_name, _, name = text.partition(":")
    kind = TYPES_BY_NAME.get(type_name.lower())
    if kind is None:
        return None
    if name == ANYTHING:
        return Resource(kind, None, ResourcePattern.ANY)
    if name.endswith(ANYTHING):
        return Resource(kind, name.partition(ANYTHING)[0], ResourcePattern.PREFIXED)
    return Resource(kind, name, ResourcePattern.LITERAL)


def topic_resource(name: str) -> Resource:
    """A topic; a retry topic counts as its group."""
    if name.startswith(RETRY_PREFIX):
        return group_resource(name)
    return Resource(ResourceType.TOPIC, name, ResourcePattern.LITERAL)


def group_resource(name: str) -> Resource:
    """A group, by its name or that of its retry topic."""
    return Resource(ResourceType.GROUP, name.removeprefix(RETRY_PREFIX), ResourcePattern.LITERAL)


def cluster_resource(name: str) -> Resource:
    """A cluster."""
    return Resource(ResourceType.CLUSTER, name, ResourcePattern.LITERAL)
