"""DirectHub: hot and tier process of one broker tied together without a socket, for runs that repeat exactly.

It stands in for `HelperHub` on one side and `HelperLink` on the other. Messages are encoded and decoded as on the
socket, pass through the loop, and keep their order. A tier process that has ended is away.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

import msgspec

from thermocline.broker.helpers.helper_answers import check_answer, refusal
from thermocline.broker.helpers.helper_hub import HelperRole
from thermocline.broker.helpers.helper_protocol import HelloReply, HelperRequestCode
from thermocline.broker.helpers.shared_page import SharedPage
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.error_table import error_response
from thermocline.remoting.errors import InvalidRequestError, MQError, UnavailableError


class Handler(Protocol):
    """A helper's end."""

    async def handle(self, connection: object, command: RemotingCommand) -> RemotingCommand | None:
        """One request."""


class DirectHub:
    """The hot process's end, for one helper."""

    def __init__(self, settings: HelloReply, page: SharedPage) -> None:
        self._settings = settings
        self._page = page
        self._roles: dict[str, HelperRole] = {}
        self._handlers: dict[str, Handler] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._gone: dict[str, asyncio.Event] = {}

    def add_role(self, name: str, role: HelperRole) -> None:
        """Expect helpers of this role."""
        self._roles[name] = role

    def is_connected(self, role: str) -> bool:
        """True while a helper of the role is there."""
        return role in self._handlers

    def connect(self, role: str, handler: Handler) -> DirectLink:
        """A helper is there; gives its end."""
        self._handlers[role] = handler
        self._gone[role] = asyncio.Event()
        asyncio.get_running_loop().call_soon(self._roles[role].helper_connected)
        return DirectLink(self, role, handler, self._page, self._settings)

    def disconnect(self, role: str) -> None:
        """It has gone; who waits for it need not."""
        self._handlers.pop(role, None)
        self._gone[role].set()

    def tell(self, role: str, code: HelperRequestCode, body: msgspec.Struct) -> bool:
        """As HelperHub."""
        handler = self._handlers.get(role)
        if handler is None:
            return False
        self._begin(handler.handle(None, _request(code, body)))
        return True

    async def ask(
        self, role: str, code: HelperRequestCode, body: msgspec.Struct, *, timeout_ms: int
    ) -> RemotingCommand:
        """As HelperHub."""
        handler = self._handlers.get(role)
        if handler is None:
            raise UnavailableError("the helper process is away", role=role)
        command = _request(code, body)
        answering = self._begin(handler.handle(None, command))
        leaving = self._begin(self._gone[role].wait())
        try:
            await asyncio.wait((answering, leaving), timeout=timeout_ms / 1_000, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise UnavailableError("the helper process went away, or does not answer", role=role)
            response = answering.result()
        except MQError as error:
            if not answering.done():
                raise
            is_refused = isinstance(error, InvalidRequestError)
            response = refusal(command, error) if is_refused else error_response(command, error)
        finally:
            answering.cancel()
            leaving.cancel()
        assert isinstance(response, RemotingCommand)
        check_answer(response, role=role)
        return response

    def deliver_notice(self, role: str, handler: Handler, code: HelperRequestCode, body: bytes) -> None:
        """A helper tells something, unless it is another one's turn by now."""
        if self._handlers.get(role) is handler:
            self._roles[role].helper_told(code, body)

    def _begin(self, work: object) -> asyncio.Task[object]:
        task = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


@dataclass(frozen=True, slots=True)
class DirectLink:
    """A helper's end, as HelperLink."""

    hub: DirectHub
    role: str
    handler: Handler
    page: SharedPage
    settings: HelloReply

    def tell(self, code: HelperRequestCode, body: msgspec.Struct) -> None:
        """Send something that needs no answer."""
        data = msgspec.msgpack.encode(body)
        asyncio.get_running_loop().call_soon(self.hub.deliver_notice, self.role, self.handler, code, data)


def _request(code: HelperRequestCode, body: msgspec.Struct) -> RemotingCommand:
    return RemotingCommand.request(code, body=msgspec.msgpack.encode(body))
