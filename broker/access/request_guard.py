"""Request guard: checks each request before the dispatcher serves it, and ends reads that are no longer allowed.

A consumer's request may wait for messages for half a minute. When users or policies change, connections whose waiting
reads are not allowed any more are closed; their clients connect again and get a refusal. Connections that stay allowed
stay open. So of each connection what it was allowed to read is kept, KEPT_MAX of it; of a connection that read more the
whole is closed at a change that takes anything from its user.
Owner: the hot process's event loop.
"""

from __future__ import annotations

import logging

from thermocline.auth.access_control import AccessControl, pull_rights
from thermocline.auth.actions import Action
from thermocline.auth.auth_store import AuthStore
from thermocline.auth.resources import topic_resource
from thermocline.auth.rights import Right
from thermocline.auth.users import User
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.request_code import RequestCode

logger = logging.getLogger(__name__)

KEPT_MAX = 1_024
WAITING_CODES = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
    }
)
"""Requests that may wait for messages."""

Read = tuple[User, tuple[Right, ...]]


class RequestGuard:
    """See the module."""

    def __init__(self, access: AccessControl, store: AuthStore) -> None:
        self._access = access
        self._reads: dict[Connection, dict[Read, None]] = {}
        self._pulls: dict[Connection, set[tuple[str, str, str]]] = {}
        store.add_listener(self._end_forbidden_reads)

    def check(self, connection: Connection, command: RemotingCommand) -> None:
        """Pass if the request is allowed.

        Raises:
            PermissionDeniedError: It is not.
        """
        user, rights = self._access.check(command, connection.remote_host[0])
        if user is not None:
            command.user = user.username
        if user is not None and command.code in WAITING_CODES:
            self._keep(connection, (user, rights))

    def check_topic(self, connection: Connection, command: RemotingCommand, topic: str, action: Action) -> None:
        """Pass if the user of a request may do that with the topic of the message that it is about.

        A request that names a message by its place in the log may say anything of its topic.

        Raises:
            PermissionDeniedError: It may not.
        """
        self._access.check_right(command, connection.remote_host[0], Right(topic_resource(topic), (action,)))

    def keep_pull(self, connection: Connection, user: User, topic: str, group: str) -> None:
        """A pull was allowed on the message path."""
        pulls = self._pulls.setdefault(connection, set())
        key = (user.username, topic, group)
        if key not in pulls and len(pulls) < KEPT_MAX:
            pulls.add(key)
            self._keep(connection, (user, pull_rights(topic, group)))

    def connection_closed(self, connection: Connection) -> None:
        """Forget what it read."""
        self._reads.pop(connection, None)
        self._pulls.pop(connection, None)

    def _keep(self, connection: Connection, read: Read) -> None:
        reads = self._reads.setdefault(connection, {})
        if read not in reads and len(reads) < KEPT_MAX:
            reads[read] = None

    def _end_forbidden_reads(self) -> None:
        self._pulls.clear()
        for connection, reads in list(self._reads.items()):
            address = connection.remote_host[0]
            if not all(self._access.is_still_allowed(user, rights, address) for user, rights in reads):
                logger.info("connection closed, a read of it is not allowed any more remote=%s", address)
                connection.close()
