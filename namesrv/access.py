"""Access control of a NameServer or a controller: its users and policies, and what checks each request by them.

RocketMQ's NameServer and controller have no access control: each client that reaches the port may read all routes,
register as a broker, and elect masters. Here `authenticationEnabled` asks for a signature, which official clients and
brokers with keys send to a NameServer and to a controller, too; `authorizationEnabled` asks for a right. Users are this
daemon's own: those of its settings, and those made by the requests that make them at a broker. Brokers sign with
`innerClientAuthenticationCredentials`.

A broker's name has one cluster here. A request that names a cluster, and a broker of another one, needs the right to
both. With the right to one alone a user could else take over, or remove, brokers of another.
Owner: the daemon's event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from thermocline.auth.access_control import AccessControl
from thermocline.auth.actions import Action
from thermocline.auth.administration import Administration
from thermocline.auth.audit import AuditLog
from thermocline.auth.audit_file import AuditFile
from thermocline.auth.auth_store import AuthLimits, AuthStore
from thermocline.auth.readers import is_reader
from thermocline.auth.resources import ResourceType, cluster_resource
from thermocline.auth.rights import Right
from thermocline.auth.rights_table import RULES
from thermocline.namesrv.port_config import PortConfig
from thermocline.namesrv.state_file import StateFile
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, LimitCounts

BROKER_NAME = "brokerName"
REQUEST_CHARACTERS_MAX = 64
"""Of an HTTP request, in the audit log."""


class PortAccess:
    """See the module."""

    def __init__(
        self,
        config: PortConfig,
        *,
        clock: Callable[[], int],
        current: Callable[[], PortConfig],
        counts: LimitCounts,
        cluster_of: Callable[[str], str | None],
    ) -> None:
        """`current`: the settings as they are now, of which some can be changed. `cluster_of`: the cluster of the
        broker of a name; None when there is none."""
        self._cluster_of = cluster_of
        self._config = auth = config.auth
        self._cluster_name = config.cluster_name
        self._file = StateFile(config.auth_file_path)
        self.store = AuthStore(self._save, limits=lambda: _limits(current()))
        self._audit_file = (
            AuditFile(auth.audit_path, file_bytes=auth.audit_file_bytes, file_count=auth.audit_file_count, clock=clock)
            if auth.audit_path
            else None
        )
        audit = AuditLog(self._audit_file, clock=clock, is_access_wanted=lambda: current().audit_accesses)
        self._control = AccessControl(self.store, auth, audit=audit, cluster_name=config.cluster_name)
        self.processor = Administration(
            self.store,
            self._control,
            on_limit=lambda connection, error: counts.refused(
                error.limit, address=connection.remote_address, detail=error.message
            ),
        )

    async def start(self) -> None:
        """Load the users and policies, and make the first users.

        Raises:
            CorruptDataError: The file cannot be read as what it is.
            UnavailableError: The file cannot be read, or not be written, or another daemon has it.
        """
        self._file.lock()
        self._file.close_to_others()
        self.store.load(self._file.load())
        await self.store.create_first_users(self._config.first_users())

    def check(self, connection: Connection, command: RemotingCommand) -> None:
        """Pass if the request is allowed.

        Raises:
            PermissionDeniedError: It is not.
        """
        address = connection.remote_host[0]
        self._control.check(command, address)
        fields, rule = command.ext_fields or {}, RULES.get(command.code)
        for need in rule.needs if rule is not None else ():
            if need.type is ResourceType.CLUSTER and need.field:
                cluster = self._cluster_of(fields.get(BROKER_NAME, ""))
                if cluster is not None and cluster != fields.get(need.field):
                    self._control.check_right(command, address, Right(cluster_resource(cluster), need.actions))

    @property
    def denials(self) -> Mapping[str, int]:
        """Requests that were refused, by stage."""
        return self._control.audit.denials

    async def may_read(self, username: str, key: str, address: str, request: str) -> bool:
        """Whether a user may read health and figures: one that may read the cluster's state."""
        return is_reader(
            self._control,
            username=username,
            key=key,
            right=Right(cluster_resource(self._cluster_name), (Action.GET,)),
            address=address,
            request=request[:REQUEST_CHARACTERS_MAX],
            authorizes=self._config.authorization_enabled,
        )

    def close(self) -> None:
        """Write the audit log to its end, and leave the file to others. Idempotent."""
        self._file.unlock()
        if self._audit_file is not None:
            self._audit_file.close()

    async def _save(self) -> None:
        self._file.save(self.store.encode())


def _limits(config: PortConfig) -> AuthLimits:
    return AuthLimits(
        users_max=config.users_max, user_entries_max=config.user_entries_max, entries_max=config.entries_max
    )
