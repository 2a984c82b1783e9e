"""Actions: what a right allows to do with a resource.

An entry with ALL allows every action. A request that needs ANY is allowed by an entry of any action; no entry may
have ANY.
Source: common/action/Action.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum


class Action(IntEnum):
    """The actions, by RocketMQ's numbers."""

    UNKNOWN = 0
    ALL = 1
    ANY = 2
    PUB = 3
    SUB = 4
    CREATE = 5
    UPDATE = 6
    DELETE = 7
    GET = 8
    LIST = 9

    @property
    def title(self) -> str:
        """The name in texts: `Pub`."""
        return self.name.capitalize()


ACTIONS_BY_NAME = {action.title.lower(): action for action in Action}


def parse_action(text: str | None) -> Action | None:
    """The action of a name in any case; None for an unknown one."""
    return ACTIONS_BY_NAME.get((text or "").lower())


def is_action_allowed(*, allowed: Collection[Action], wanted: Collection[Action]) -> bool:
    """Whether an entry with the actions `allowed` counts for a request that needs one of `wanted`."""
    if not allowed:
        return False
    if Action.ANY in wanted:
        return True
    return bool(wanted) and (Action.ALL in allowed or any(action in allowed for action in wanted))
