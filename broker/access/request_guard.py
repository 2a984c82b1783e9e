"""Request guard: checks each request before the dispatcher serves it, and ends reads that are no longer allowed.

A consumer's request may wait for messages for half a minute. When users or policies change, connections whose waiting
reads are not allowed any more are closed; their clients connect again and get a refusal. Connections that stay allowed
stay open. So of each connection what it was allowed to read is kept, KEPT_MAX of it. A connection that read more, or
under names that are too long to be kept, is closed when its user or the policies of its user change.
Owner: the hot process's event loop.
"""

from __future__ import annotations

import logging

from thermocline.auth.access_control import AccessControl, pull_rights
from thermocline.auth.actions import Action
from thermocline.auth.auth_store import AuthSnapshot, AuthStore
from thermocline.auth.resources import topic_resource
from thermocline.auth.rights import Right
from thermocline.auth.users import User, subject_of
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.request_code import RequestCode

logger = logging.getLogger(__name__)

KEPT_MAX = 1_024
KEPT_CHARACTERS_MAX = 1_000
"""Of the names in a read that is kept."""
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
        self._before = access.snapshot
        self._reads: dict[Connection, dict[Read, None]] = {}
        self._pulls: dict[Connection, set[tuple[str, str, str]]] = {}
        self._users_beyond: dict[Connection, set[str]] = {}
        """Whose reads are not all kept."""
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

    def may_send(self, connection: Connection, username: str, topic: str) -> bool:
        """Whether the user of a producer's heartbeat may send to a topic. Where heartbeats need no signature, none is
        known, and every producer may."""
        right = Right(topic_resource(topic), (Action.PUB,))
        return not username or self._access.may(username, right, connection.remote_host[0])

    def keep_pull(self, connection: Connection, user: User, topic: str, group: str) -> None:
        """A pull was allowed on the message path."""
        pulls = self._pulls.setdefault(connection, set())
        key = (user.username, topic, group)
        if key not in pulls:
            if len(pulls) < KEPT_MAX and len(topic) + len(group) <= KEPT_CHARACTERS_MAX:
                pulls.add(key)
            self._keep(connection, (user, pull_rights(topic, group)))

    def connection_closed(self, connection: Connection) -> None:
        """Forget what it read."""
        self._reads.pop(connection, None)
        self._pulls.pop(connection, None)
        self._users_beyond.pop(connection, None)

    def _keep(self, connection: Connection, read: Read) -> None:
        reads = self._reads.setdefault(connection, {})
        if read in reads:
            return
        characters = sum(len(right.resource.name or "") for right in read[1])
        if len(reads) < KEPT_MAX and characters <= KEPT_CHARACTERS_MAX:
            reads[read] = None
        else:
            self._users_beyond.setdefault(connection, set()).add(read[0].username)

    def _end_forbidden_reads(self) -> None:
        self._pulls.clear()
        before, self._before = self._before, self._access.snapshot
        for connection, reads in list(self._reads.items()):
            address = connection.remote_host[0]
            beyond = self._users_beyond.get(connection, ())
            if any(_has_changed(name, before, self._before) for name in beyond) or not all(
                self._access.is_still_allowed(user, rights, address) for user, rights in reads
            ):
                logger.info("connection closed, a read of it is not allowed any more remote=%s", address)
                connection.close()


def _has_changed(username: str, before: AuthSnapshot, now: AuthSnapshot) -> bool:
    """Whether a change was about this user, or its policies."""
    subject = subject_of(username)
    return before.users.get(username) != now.users.get(username) or before.acls.get(subject) != now.acls.get(subject)
