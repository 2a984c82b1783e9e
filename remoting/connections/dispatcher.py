"""Dispatcher: from a request code to the method that serves it. The broker and the NameServer each have one.

    processor.routes() -> {request code: method}      joined here; one code has one method
    method(connection, command) -> the answer, an awaitable of it, or None (answered later, or one-way)

With a guard (access control) every request passes it first, whatever its code.

A code without a method is answered as Apache RocketMQ answers it. Errors leave a method as exceptions and become
answers where the server writes them (remoting/error_table.py).
Owner: the server's event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.response_code import ResponseCode

Answer: TypeAlias = RemotingCommand | Awaitable[RemotingCommand | None] | None
Handler: TypeAlias = Callable[[Connection, RemotingCommand], Answer]
Guard: TypeAlias = Callable[[Connection, RemotingCommand], None]
"""Raises PermissionDeniedError for a request that is not allowed."""


class Processor(Protocol):
    """A family of requests."""

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> the method that serves it."""


class Dispatcher:
    """Serves the requests of all processors; what the server is given as its handler."""

    def __init__(
        self,
        processors: Iterable[Processor],
        *,
        on_closed: Iterable[Callable[[Connection], None]] = (),
        before: Iterable[Processor] = (),
        guard: Guard | None = None,
    ) -> None:
        """`on_closed`: called with each connection that ended. `before`: their methods replace the others'."""
        self._handlers: dict[int, Handler] = {}
        for processor in processors:
            for code, handler in processor.routes().items():
                assert code not in self._handlers, f"two processors serve request code {code}"
                self._handlers[int(code)] = handler
        for processor in before:
            self._handlers.update({int(code): handler for code, handler in processor.routes().items()})
        self._on_closed = tuple(on_closed)
        self._guard = guard

    @property
    def codes(self) -> frozenset[int]:
        """The request codes that are served."""
        return frozenset(self._handlers)

    def handle(self, connection: Connection, command: RemotingCommand) -> Answer:
        """Serve one request.

        Raises:
            PermissionDeniedError: The guard does not allow it.
        """
        if self._guard is not None:
            self._guard(connection, command)
        handler = self._handlers.get(command.code)
        if handler is None:
            return RemotingCommand.response(
                command,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f" request type {command.code} not supported",
            )
        return handler(connection, command)

    def connection_opened(self, connection: Connection) -> None:
        """Do nothing: a connection belongs to no client and no broker before its first request."""

    def connection_closed(self, connection: Connection) -> None:
        """Call the listeners, which forget what they keep of the connection."""
        for listener in self._on_closed:
            listener(connection)
