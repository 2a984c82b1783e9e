"""Access: users, policies and what checks requests by them; made only when access control is on.

made     users and policies from their file; the guards
boot     the first users, and those of an older file, exist, durably
close    the audit log is written
"""

import logging
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from thermocline.auth import auth_store
from thermocline.auth.access_control import AccessControl
from thermocline.auth.actions import Action
from thermocline.auth.administration import Administration
from thermocline.auth.audit import AuditLog
from thermocline.auth.audit_file import AuditFile
from thermocline.auth.auth_store import AuthLimits, AuthStore
from thermocline.auth.plain_acl import Account, read_accounts
from thermocline.broker.access import MessageGuard, RequestGuard
from thermocline.broker.assembly.base import Base
from thermocline.broker.processors.messages import TopicCheck
from thermocline.broker.state_files import ConfigPersister, load_file
from thermocline.broker.tables import Client
from thermocline.remoting.connections import Processor
from thermocline.remoting.errors import SettingError
from thermocline.store.files import replace_file

logger = logging.getLogger(__name__)


class AccessParts:
    """See the module's header. On the loop."""

    def __init__(self, base: Base, persister: ConfigPersister) -> None:
        """
        Raises:
            CorruptDataError: The file cannot be read.
            OSError: The audit log cannot be opened.
        """
        settings = base.settings
        path = f"{base.store.config.own_path}/{auth_store.FILE_NAME}"
        self.store = AuthStore(
            partial(persister.save, auth_store.FILE_NAME),
            limits=lambda: AuthLimits(
                users_max=settings.broker.users_max,
                user_entries_max=settings.broker.user_entries_max,
                entries_max=settings.broker.entries_max,
            ),
        )
        # Without a backup: it would keep passwords that were changed.
        persister.register(
            auth_store.FILE_NAME,
            path,
            self.store.encode,
            write=lambda data: replace_file(base.disk, path, data, keep_backup=False),
        )
        self.store.load(load_file(base.disk, path))
        self._config = config = settings.auth
        self._audit_file = AuditFile(
            config.audit_path or f"{base.store.config.own_path}/audit.log",
            file_bytes=config.audit_file_bytes,
            file_count=config.audit_file_count,
            clock=base.clock,
        )
        self.audit = AuditLog(self._audit_file, clock=base.clock, is_access_wanted=lambda: settings.auth.audit_accesses)
        self.control = AccessControl(self.store, config, audit=self.audit, cluster_name=settings.broker.cluster_name)
        self.guard = RequestGuard(self.control, self.store)
        self.message_guard = MessageGuard(self.control, keep_pull=self.guard.keep_pull)
        self.processors: tuple[Processor, ...] = (
            Administration(
                self.store,
                self.control,
                on_limit=lambda connection, error: base.limits.refused(
                    error.limit, address=connection.remote_address, detail=error.message
                ),
            ),
        )

    async def boot(self) -> None:
        """Make the first users.

        Raises:
            SettingError: An older file cannot be read.
            UnavailableError: The file could not be written.
        """
        await self.store.create_first_users(self._config.first_users())
        if self._config.migrate_v1:
            await self.store.create_accounts(self._older_accounts())
        if not self.store.now.users:
            logger.warning(
                "access control is on and there is no user: every request is refused; set initAuthenticationUser"
            )

    def _older_accounts(self) -> list[Account]:
        """The accounts of `aclFile` and of the files acl/*.yml beside it."""
        first = Path(self._config.v1_file)
        accounts: list[Account] = []
        for path in (first, *sorted((first.parent / "acl").glob("*.yml"))):
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise SettingError("an older file of access control cannot be read", source=str(path)) from error
            accounts += read_accounts(text, str(path))
        return accounts

    def topic_check(self, action: Action) -> TopicCheck:
        """What checks this action on the topic of a message that a request names by its place."""
        return lambda connection, command, topic: self.guard.check_topic(connection, command, topic, action)

    def may_send(self, client: Client, topic: str) -> bool:
        """Whether the user of a connected producer may send to a topic."""
        return self.guard.may_send(client.connection, client.user, topic)

    def close_with(self, resources: AsyncExitStack) -> None:
        """Write the audit log to its end when `resources` close."""
        resources.callback(self._audit_file.close)
