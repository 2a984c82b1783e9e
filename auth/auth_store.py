"""Auth store: all users and policies of a broker or a NameServer, in memory and in one file.

    {"acls":[AclInfo, ...],"users":[UserInfo, ...]}        JSON as in requests, sorted; mode 0600

Rules
  - A change counts at once: it makes a new snapshot, and with it a new, empty memory of decisions. Its request is
    answered when the file is durable. A change that cannot be written is taken back.
  - Changes come one after another.
  - What a change says is checked, and refused in RocketMQ's words.
  - Passwords are kept as they are, because a signature can be checked in no other way.
No I/O here: `save` makes durable what `encode` gives.
Source: auth/authentication/manager/AuthenticationMetadataManagerImpl.java,
auth/authorization/manager/AuthorizationMetadataManagerImpl.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from thermocline.auth.info import acl_from_info, acl_to_info, user_from_info, user_to_info
from thermocline.auth.plain_acl import Account
from thermocline.auth.policies import Acl, Policy, PolicyType
from thermocline.auth.resources import Resource
from thermocline.auth.users import User, UserStatus, UserType, subject_of, username_of
from thermocline.auth.validation import check_lengths, check_new_user, check_policies
from thermocline.remoting.bodies.auth import AuthState
from thermocline.remoting.errors import (
    CorruptDataError,
    InvalidRequestError,
    LimitReachedError,
    PermissionDeniedError,
)

logger = logging.getLogger(__name__)

FILE_NAME = "auth.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthLimits:
    """How much administrators may make by requests; what a start finds or makes is not limited."""

    users_max: int = 10_000
    user_entries_max: int = 1_000
    """Entries of all policies of a user."""
    entries_max: int = 100_000
    """The same of all users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSnapshot:
    """All users by name and all access lists by subject, as of one change."""

    users: Mapping[str, User] = field(default_factory=dict)
    acls: Mapping[str, Acl] = field(default_factory=dict)


class AuthStore:
    """See the module. Owner: one event loop."""

    def __init__(
        self,
        save: Callable[[], Awaitable[None]],
        *,
        limits: Callable[[], AuthLimits] = AuthLimits,
        incarnation: str | None = None,
    ) -> None:
        """`save` returns when `encode` of then, or of later, is durable; it may raise UnavailableError. `limits`: asked
        again at each change. `incarnation`: a name that no other store has had; without one it is chosen at random."""
        self._incarnation = incarnation or secrets.token_hex(8)
        self._changes = 0
        self._save = save
        self._limits = limits
        self._listeners: list[Callable[[], None]] = []
        self._changing = asyncio.Lock()
        self.now = AuthSnapshot()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change of `now`."""
        self._listeners.append(listener)

    @property
    def version(self) -> str:
        """Another text after each change of `now`; no other store has given it."""
        return f"{self._incarnation}-{self._changes}"

    # -- users -----------------------------------------------------------------------------------------------------

    async def create_user(
        self,
        username: str,
        password: str | None,
        kind: UserType | None,
        status: UserStatus | None,
        *,
        is_limited: bool = True,
    ) -> None:
        """Make a user; durable on return.

        Raises:
            PermissionDeniedError: There is one of the name, or there is no password.
            LimitReachedError: There are too many.
            InvalidParameterError: Name or password is too long.
            UnavailableError: The change could not be written.
        """
        async with self._changing:
            user = check_new_user(username, password, kind, status)
            if username in self.now.users:
                raise PermissionDeniedError("The user is existed")
            if is_limited:
                check_lengths(username=username, password=user.password)
                _check(len(self.now.users), 1, self._limits().users_max, noun="users", limit="usersMax")
            await self._change(users={**self.now.users, username: user})

    async def update_user(
        self, username: str, password: str | None, kind: UserType | None, status: UserStatus | None
    ) -> None:
        """Change what is not None of a user; durable on return.

        Raises:
            PermissionDeniedError: There is no such user.
            UnavailableError: The change could not be written.
        """
        async with self._changing:
            old = self.now.users.get(username)
            if old is None:
                raise PermissionDeniedError("The user is not exist")
            user = replace(
                old,
                password=password if password is not None and password.strip() else old.password,
                type=kind or old.type,
                status=status or old.status,
            )
            check_lengths(password=user.password)
            await self._change(users={**self.now.users, username: user})

    async def delete_user(self, username: str) -> None:
        """Delete a user with its policies; durable on return. Without such a user nothing happens.

        Raises:
            UnavailableError: The change could not be written.
        """
        async with self._changing:
            if username not in self.now.users:
                return
            await self._change(
                users={name: user for name, user in self.now.users.items() if name != username},
                acls={subject: acl for subject, acl in self.now.acls.items() if subject != subject_of(username)},
            )

    async def create_first_users(self, users: Iterable[tuple[str, str]]) -> None:
        """Make those of the super users, by name and password, that do not exist; durable on return.

        Raises:
            UnavailableError: The change could not be written.
        """
        for username, password in users:
            if username not in self.now.users:
                await self.create_user(username, password, UserType.SUPER, None, is_limited=False)
                logger.info("super user created username=%s", username)

    async def create_accounts(self, accounts: Iterable[Account]) -> None:
        """Make the users and policies of an older file, but for users that exist; durable on return.

        Raises:
            SettingError: A permission is none.
            PermissionDeniedError: A name or a key is blank.
            UnavailableError: The change could not be written.
        """
        for account in accounts:
            username, password = account.texts["accessKey"], account.texts["secretKey"]
            if username in self.now.users:
                continue
            policies = account.policies()
            async with self._changing:
                user = check_new_user(username, password, UserType.SUPER if account.is_admin else None, None)
                acls = dict(self.now.acls)
                if policies:
                    subject = check_policies(user.subject, policies)
                    acls[subject] = Acl(subject=subject, policies=policies)
                # Both at once: the next start passes over a user that exists, and would never make its policies.
                await self._change(users={**self.now.users, username: user}, acls=acls)
            logger.info("user of an older file created username=%s policies=%d", username, len(policies))

    # -- policies --------------------------------------------------------------------------------------------------

    async def update_acl(self, subject: str | None, policies: tuple[Policy, ...]) -> None:
        """Add policies to a subject's, or change them; durable on return.

        Raises:
            PermissionDeniedError: There is no such user, or a policy is not valid.
            LimitReachedError: There are too many entries.
            InvalidParameterError: A resource or an address is too long.
            UnavailableError: The change could not be written.
        """
        async with self._changing:
            checked = check_policies(subject, policies)
            if username_of(checked) not in self.now.users:
                raise PermissionDeniedError(f"The subject of {checked} is not exist.")
            old = self.now.acls.get(checked)
            acl = Acl(subject=checked, policies=policies) if old is None else old.updated(policies)
            for entry in (entry for policy in policies for entry in policy.entries):
                check_lengths(resource=entry.resource.key, address=max(entry.sources, key=len, default=""))
            self._check_entries(old, acl)
            await self._change(acls={**self.now.acls, checked: acl})

    def _check_entries(self, old: Acl | None, new: Acl) -> None:
        limits = self._limits()
        before = 0 if old is None else old.entry_count
        added = new.entry_count - before
        noun = f"entries in the policies of {new.subject}"
        _check(before, added, limits.user_entries_max, noun=noun, limit="aclEntriesPerUserMax")
        total = sum(acl.entry_count for acl in self.now.acls.values())
        _check(total, added, limits.entries_max, noun="entries in all policies", limit="aclEntriesMax")

    async def delete_acl(self, subject: str | None, kind: PolicyType | None, resource: Resource | None) -> None:
        """Delete the entry of a resource, or without one all policies of a subject; durable on return.

        Raises:
            PermissionDeniedError: There is no such user, or it has no policies.
            UnavailableError: The change could not be written.
        """
        async with self._changing:
            key, old = self._found_acl(subject)
            if old is None:
                raise PermissionDeniedError("The acl is not exist.")
            acls = {name: acl for name, acl in self.now.acls.items() if name != key}
            if resource is not None:
                rest = old.without(kind or PolicyType.CUSTOM, resource)
                if rest.policies:
                    acls[key] = rest
            await self._change(acls=acls)

    def acl_of(self, subject: str | None) -> Acl | None:
        """The policies of a subject; None when it has none.

        Raises:
            PermissionDeniedError: There is no such user.
        """
        return self._found_acl(subject)[1]

    def _found_acl(self, subject: str | None) -> tuple[str, Acl | None]:
        username = username_of(subject)
        if username is None:
            raise PermissionDeniedError("The subject is null.")
        if username not in self.now.users:
            raise PermissionDeniedError("The subject is not exist.")
        key = subject_of(username)
        return key, self.now.acls.get(key)

    async def replace(self, state: AuthState) -> bool:
        """Take over all users and policies of a master; durable on return. False when they are so already.

        Raises:
            InvalidRequestError: A user has no password, or a policy is not valid.
            UnavailableError: The change could not be written.
        """
        async with self._changing:
            try:
                snapshot = _snapshot_of(state)
            except ValueError as error:
                raise InvalidRequestError("users and policies cannot be read", reason=str(error)) from error
            if snapshot == self.now:
                return False
            await self._change(users=snapshot.users, acls=snapshot.acls)
        return True

    # -- the file --------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The file."""
        now = self.now
        return AuthState(
            users=[user_to_info(user, with_password=True) for _, user in sorted(now.users.items())],
            acls=[acl_to_info(acl) for _, acl in sorted(now.acls.items())],
        ).encode()

    def load(self, data: bytes | None) -> None:
        """Take over the file at the start; None: there is none.

        Raises:
            CorruptDataError: It is not what `encode` gives.
        """
        if data is None:
            return
        try:
            snapshot = _snapshot_of(AuthState.decode(data))
        except (InvalidRequestError, ValueError) as error:
            raise CorruptDataError("users and policies cannot be read", file=FILE_NAME) from error
        self._apply(snapshot)

    async def _change(self, *, users: Mapping[str, User] | None = None, acls: Mapping[str, Acl] | None = None) -> None:
        before = self.now
        self._apply(
            AuthSnapshot(
                users=before.users if users is None else users,
                acls=before.acls if acls is None else acls,
            )
        )
        try:
            await self._save()
        except Exception:
            self._apply(before)
            raise

    def _apply(self, snapshot: AuthSnapshot) -> None:
        self.now = snapshot
        self._changes += 1
        for listener in self._listeners:
            listener()


def _snapshot_of(state: AuthState) -> AuthSnapshot:
    users = [user_from_info(info) for info in state.users]
    acls = [acl_from_info(info) for info in state.acls]
    for acl in acls:
        check_policies(acl.subject, acl.policies)
    return AuthSnapshot(
        users={user.username: user for user in users},
        acls={acl.subject: acl for acl in acls},
    )


def _check(present: int, added: int, most: int, *, noun: str, limit: str) -> None:
    if added > 0 and present + added > most:
        raise LimitReachedError(noun, limit=limit, present=present, most=most)
