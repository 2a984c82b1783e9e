"""A whole broker in this process with access control on, and ways to ask it as one user or another."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.broker.control_broker import HalfFullDisk
from thermocline.auth.actions import Action
from thermocline.auth.auth_config import AuthConfig
from thermocline.auth.auth_store import AuthStore
from thermocline.auth.policies import Acl, Decision, Policy, PolicyEntry, PolicyType
from thermocline.auth.resources import parse_resource
from thermocline.auth.users import UserStatus, subject_of
from thermocline.broker.hot_process import HotProcess
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.broker_settings import BrokerSettings
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.request_signature import Credentials
from thermocline.store.config.store_config import StoreConfig
from thermocline.tiered.budgets.tier_config import TierConfig

ROOT = Credentials(access_key="root", secret_key="the-key-of-root")
ALICE = Credentials(access_key="alice", secret_key="the-key-of-alice")
BOB = Credentials(access_key="bob", secret_key="the-key-of-bob", security_token="a-token")
INNER = Credentials(access_key="inner", secret_key="the-key-of-brokers")
SECRETS = (ROOT.secret_key, ALICE.secret_key, BOB.secret_key, INNER.secret_key)
TIMEOUT_MS = 20_000


def first_user(credentials: Credentials) -> str:
    """The value of `initAuthenticationUser`."""
    return json.dumps({"username": credentials.access_key, "password": credentials.secret_key})


def inner_credentials(credentials: Credentials) -> str:
    """The value of `innerClientAuthenticationCredentials`."""
    return json.dumps({"accessKey": credentials.access_key, "secretKey": credentials.secret_key})


def auth_config(**settings: Any) -> AuthConfig:
    """Access control with a super user."""
    values = {"authentication_enabled": True, "authorization_enabled": True, "init_user": first_user(ROOT)}
    return AuthConfig(**{**values, **settings})


def entry(
    resource: str, *actions: Action, sources: Sequence[str] = (), decision: Decision = Decision.ALLOW
) -> PolicyEntry:
    """An entry of a policy."""
    parsed = parse_resource(resource)
    assert parsed is not None
    return PolicyEntry(resource=parsed, actions=actions, sources=tuple(sources), decision=decision)


@dataclass(slots=True, kw_only=True)
class BrokerWithUsers:
    """A running broker."""

    process: HotProcess
    folder: Path
    connections: list[ClientConnection] = field(default_factory=list)

    @property
    def store(self) -> AuthStore:
        access = self.process._parts.access
        assert access is not None
        return access.store

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.process._listener.port}"

    async def connect(self) -> ClientConnection:
        connection = await ClientConnection.open(self.address)
        self.connections.append(connection)
        return connection

    async def ask(
        self,
        code: int,
        *,
        user: Credentials | None = None,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        connection: ClientConnection | None = None,
    ) -> RemotingCommand:
        """The answer to a request that `user` signs."""
        if connection is None:
            connection = self.connections[0] if self.connections else await self.connect()
        command = RemotingCommand.request(code, ext_fields=fields or {}, body=body)
        if user is not None:
            user.sign(command)
        return await connection.call(command, timeout_ms=TIMEOUT_MS)

    async def add_user(self, credentials: Credentials, *entries: PolicyEntry) -> None:
        await self.store.create_user(credentials.access_key, credentials.secret_key, None, None)
        if entries:
            await self.set_policy(credentials, *entries)

    async def set_policy(self, credentials: Credentials, *entries: PolicyEntry) -> None:
        """Give a user these entries and no other."""
        subject = subject_of(credentials.access_key)
        if subject in self.store.now.acls:
            await self.store.delete_acl(subject, None, None)
        if entries:
            await self.store.update_acl(subject, (Policy(type=PolicyType.CUSTOM, entries=entries),))

    async def disable(self, credentials: Credentials) -> None:
        await self.store.update_user(credentials.access_key, None, None, UserStatus.DISABLE)

    def audit_text(self) -> str:
        """What the audit log has; the broker has to be closed before."""
        return (self.folder / "store" / "thermocline" / "audit.log").read_text()

    def acl(self, credentials: Credentials) -> Acl | None:
        return self.store.now.acls.get(subject_of(credentials.access_key))


@asynccontextmanager
async def broker_with_users(
    folder: Path, *, auth: AuthConfig | None = None, store: StoreConfig | None = None, **broker_settings: Any
) -> AsyncIterator[BrokerWithUsers]:
    """Start it with a super user ROOT, and stop it cleanly."""
    settings = BrokerSettings(
        # On a busy machine no send is refused for having waited.
        broker=BrokerConfig(**{"listen_host": "127.0.0.1", "listen_port": 0, "fast_failure": False, **broker_settings}),
        store=store or StoreConfig(root_path=str(folder / "store"), log_file_bytes=1 << 20, queue_file_bytes=20_000),
        tier=TierConfig(),
        auth=auth or auth_config(),
        clock=lambda: time.time_ns() // 1_000_000,
    )
    process = HotProcess(settings, environment=dict(os.environ), single_process=True, disk=HalfFullDisk())
    await process.start()
    broker = BrokerWithUsers(process=process, folder=folder)
    try:
        yield broker
    finally:
        for connection in broker.connections:
            connection.close()
        await process.close()
