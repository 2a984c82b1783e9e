"""Helper hub: the hot process's end of the unix socket on which the helper processes connect.

A helper sends HELLO first; one of another generation or build is refused. From then on it serves its role, and callers
reach it through `ask`. When its connection closes, the helper is away at once: requests in flight fail with
UnavailableError, and so do later ones, until it (or its successor) sends HELLO again. A report that its role cannot
take in closes the connection: the helper ends, and its successor reports everything.

Belongs to the hot process's loop. At most one helper a role: a second HELLO replaces the first, whose connection is
closed, as its process is about to end.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from thermocline.broker.helpers.helper_answers import check_answer
from thermocline.broker.helpers.helper_protocol import Hello, HelloReply, HelperRequestCode
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import InvalidRequestError, UnavailableError
from thermocline.remoting.response_code import ResponseCode
from thermocline.tiered.budgets import TierConfig

logger = logging.getLogger(__name__)

Body = TypeVar("Body", bound=msgspec.Struct)


class HelperRole(Protocol):
    """The hot process's part for one role."""

    def helper_connected(self) -> None:
        """A helper of this role has sent HELLO."""

    def helper_told(self, code: int, body: bytes | memoryview) -> None:
        """The helper sends a report that needs no answer but an acknowledgement."""


class HelperHub:
    """Request handler of the unix socket."""

    def __init__(self, *, generation: int, build_id: int, settings: HelloReply) -> None:
        self._generation = generation
        self._build_id = build_id
        self._settings = settings
        self._roles: dict[str, HelperRole] = {}
        self._own_settings: dict[str, Callable[[], msgspec.Struct]] = {}
        self._connections: dict[str, Connection] = {}
        self._role_of: dict[Connection, str] = {}

    def follow(self, tier: TierConfig) -> None:
        """Set the cold tier's settings for helpers that send HELLO from now on."""
        self._settings = msgspec.structs.replace(self._settings, tier=tier)

    def add_role(self, name: str, role: HelperRole, *, settings: Callable[[], msgspec.Struct] | None = None) -> None:
        """Expect helpers of this role. `settings`: what they get in the answer to HELLO; None: a HelloReply."""
        self._roles[name] = role
        if settings is not None:
            self._own_settings[name] = settings

    def is_connected(self, role: str) -> bool:
        """True while a helper of the role is there."""
        return role in self._connections

    async def ask(
        self, role: str, code: HelperRequestCode, body: msgspec.Struct, *, timeout_ms: int
    ) -> RemotingCommand:
        """Ask the helper of a role.

        Raises:
            UnavailableError: It is away, went away, did not answer in time, or has no answer now.
            InvalidRequestError: It says that the request is wrong.
        """
        connection = self._connections.get(role)
        if connection is None:
            raise UnavailableError("the helper process is away", role=role)
        command = RemotingCommand.request(code, body=msgspec.msgpack.encode(body))
        response = await connection.call(command, timeout_ms=timeout_ms)
        check_answer(response, role=role)
        return response

    def tell(self, role: str, code: HelperRequestCode, body: msgspec.Struct) -> bool:
        """Send without waiting for an answer; False when the helper is away."""
        connection = self._connections.get(role)
        if connection is None:
            return False
        connection.send(RemotingCommand.request(code, body=msgspec.msgpack.encode(body), oneway=True))
        return True

    # -- RequestHandler ------------------------------------------------------------------------------------------------

    def connection_opened(self, connection: Connection) -> None:
        """Nothing is known of it before HELLO."""

    def connection_closed(self, connection: Connection) -> None:
        """The helper behind it is away from now on."""
        role = self._role_of.pop(connection, None)
        if role is not None and self._connections.get(role) is connection:
            del self._connections[role]
            logger.info("helper disconnected role=%s", role)  # why, its supervisor says

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """HELLO, or a report of a helper that has sent HELLO."""
        if command.code == HelperRequestCode.HELLO:
            return self._hello(connection, command)
        role = self._role_of.get(connection)
        if role is None:
            raise InvalidRequestError("HELLO comes first", code=command.code)
        try:
            self._roles[role].helper_told(command.code, command.body)
        except Exception:
            # Half of a report may be taken in, and the next one builds upon the whole.
            logger.exception(
                "report of a helper not taken in, it has to begin anew role=%s code=%d", role, command.code
            )
            connection.abort()
            return None
        return None if command.is_oneway else RemotingCommand.response(command)

    def _hello(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        hello = msgspec.msgpack.decode(command.body, type=Hello)
        if (hello.generation, hello.build_id) != (self._generation, self._build_id) or hello.role not in self._roles:
            logger.error("helper refused role=%s pid=%d: restart the broker", hello.role, hello.pid)
            return RemotingCommand.response(
                command, ResponseCode.NO_PERMISSION, remark="of another build or boot: restart the broker"
            )
        self._disconnect(hello.role)
        self._role_of[connection] = hello.role
        logger.info("helper connected role=%s pid=%d", hello.role, hello.pid)
        # The answer to HELLO goes out first: the role's first messages must reach a helper that has been accepted.
        # Until then it counts as away: no message may reach it before the role has been notified of the new helper.
        asyncio.get_running_loop().call_soon(self._announce, hello.role, connection)
        own = self._own_settings.get(hello.role)
        return RemotingCommand.response(command, body=msgspec.msgpack.encode(self._settings if own is None else own()))

    def _announce(self, role: str, connection: Connection) -> None:
        if connection in self._role_of:  # else it has gone already
            self._disconnect(role)
            self._connections[role] = connection
            self._roles[role].helper_connected()

    def _disconnect(self, role: str) -> None:
        previous = self._connections.pop(role, None)
        if previous is not None:
            previous.close()


def decode_body(body: bytes | memoryview, kind: type[Body]) -> Body:
    """Decode a helper's body; both ends are of one build, so a mismatch is a bug that ends the connection."""
    return msgspec.msgpack.decode(body, type=kind)
