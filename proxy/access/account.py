"""Account: a user with its policies, as a broker has them; and where accounts come from."""

from __future__ import annotations

from typing import Protocol

from thermocline.auth.policies import Acl
from thermocline.auth.users import User
from thermocline.remoting.request_signature import SigningKey

__all__ = ["Account", "UserSource"]


class Account:
    """One user; `key` checks its signatures. `acl` is None for a user without policies, and for a super user."""

    __slots__ = ("acl", "key", "user")

    def __init__(self, user: User, acl: Acl | None) -> None:
        self.user = user
        self.acl = acl
        self.key = SigningKey(user.password.encode())

    def is_same(self, other: Account) -> bool:
        """Whether nothing of the user and its policies differs."""
        return self.user == other.user and self.acl == other.acl


class UserSource(Protocol):
    """Where users and policies are: the brokers of a cluster, or the broker beside this process."""

    async def account(self, username: str) -> Account | None:
        """Return a user with its policies as they are now; None where there is no such user.

        Raises:
            UnavailableError: That cannot be found out now. It never means that a user does not exist.
        """

    async def version(self) -> str | None:
        """Return a text that changes with users and policies; None where the source has none.

        Raises:
            UnavailableError: It cannot be found out now.
        """
