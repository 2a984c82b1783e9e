"""Users: who a client says it is, and the key by which it proves that.

The access key of a client is the name of its user, the secret key is the password. A signature can only be checked with
the secret itself, so it is kept as it is, in a file of mode 0600 (auth_store.py), and never shown by `repr`.
Source: auth/authentication/model/User.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class UserType(IntEnum):
    """SUPER may do everything; NORMAL what policies allow."""

    SUPER = 1
    NORMAL = 2

    @property
    def title(self) -> str:
        """The name in texts."""
        return self.name.capitalize()


class UserStatus(IntEnum):
    """Whether requests of the user are served."""

    ENABLE = 1
    DISABLE = 2

    @property
    def title(self) -> str:
        """The name in texts."""
        return self.name.lower()


_TYPES = {kind.title.lower(): kind for kind in UserType}
_STATES = {status.title: status for status in UserStatus}


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One user."""

    username: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def subject(self) -> str:
        """The user as the subject of policies."""
        return subject_of(self.username)

    @property
    def is_super(self) -> bool:
        """Whether no policy is needed."""
        return self.type is UserType.SUPER


SUBJECT_TYPE = "User"


def subject_of(username: str) -> str:
    """The subject of a user's policies."""
    return f"{SUBJECT_TYPE}:{username}"


def username_of(subject: str | None) -> str | None:
    """The user of a subject; None when the subject is none."""
    kind, _, username = (subject or "").partition(":")
    return username if kind.lower() == SUBJECT_TYPE.lower() else None


def parse_user_type(text: str | None) -> UserType | None:
    """The type of a name in any case; None for an unknown one."""
    return _TYPES.get((text or "").lower())


def parse_user_status(text: str | None) -> UserStatus | None:
    """The status of a name in any case; None for an unknown one."""
    return _STATES.get((text or "").lower())
