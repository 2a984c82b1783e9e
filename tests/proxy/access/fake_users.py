"""Users and policies in memory, in place of brokers, for tests of time and failure; and requests of users."""

from __future__ import annotations

import asyncio

from tests.auth.broker_with_users import entry
from thermocline.auth.actions import Action
from thermocline.auth.audit import AuditLog, whole_line
from thermocline.auth.policies import Acl, Policy, PolicyEntry, PolicyType
from thermocline.auth.users import User, UserStatus, UserType, subject_of
from thermocline.proxy.access import AccessCheck, AccessRules, Account, Proof, UserDirectory
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import MQError
from thermocline.remoting.request_signature import SigningKey

STALE_MS_MAX = 1_000
ADDRESS = "10.0.0.7"
CONTENT = b"20240101T000000Z"


class FakeUsers:
    """A `UserSource`. `error` is raised; `gate` is waited for."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.asked: list[str] = []
        self.accounts: dict[str, Account] = {}
        self.error: MQError | None = None
        self.current_version: str | None = "1"
        self.versions_asked = 0
        self.gate: asyncio.Future[None] | None = None

    async def account(self, username: str) -> Account | None:
        self.asked.append(username)
        found = self.accounts.get(username)
        if self.gate is not None:
            await self.gate
        if self.error is not None:
            raise self.error
        return found

    async def version(self) -> str | None:
        self.versions_asked += 1
        if self.error is not None:
            raise self.error
        return self.current_version

    def put(
        self,
        username: str,
        *entries: PolicyEntry,
        password: str = "secret",
        kind: UserType = UserType.NORMAL,
        status: UserStatus = UserStatus.ENABLE,
    ) -> None:
        """Make a user, or change it."""
        acl = None
        if entries:
            acl = Acl(subject=subject_of(username), policies=(Policy(type=PolicyType.CUSTOM, entries=entries),))
        self.accounts[username] = Account(User(username=username, password=password, type=kind, status=status), acl)


class Checked:
    """A check over users in memory, and its audit lines."""

    def __init__(self, *, look_ups_max: int = 100, users_max: int = 100, **rules: object) -> None:
        self.users = FakeUsers()
        self.counts = LimitCounts(clock=lambda: 0.0)
        self.directory = UserDirectory(
            self.users,
            stale_ms_max=STALE_MS_MAX,
            users_max=users_max,
            address_look_ups_max=look_ups_max,
            clock_ms=lambda: self.users.now_ms,
            counts=self.counts,
        )
        self.lines: list[str] = []
        self.wants_accesses = False
        audit = AuditLog(self, clock=lambda: 0, is_access_wanted=lambda: self.wants_accesses)
        self.check = AccessCheck(self.directory, AccessRules(**rules), audit=audit)  # type: ignore[arg-type]

    def write(self, time_ms: int, rest: bytes) -> None:
        self.lines.append(whole_line(time_ms, rest).decode())


def proof_of(username: str, password: str = "secret", content: bytes = CONTENT) -> Proof:
    """What a user shows."""
    signature = SigningKey(password.encode()).signature(content).decode()
    return Proof(username=username, content=content, signature=signature)


PUB_ORDERS = entry("Topic:orders", Action.PUB)
