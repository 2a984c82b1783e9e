"""Errors of helper processes: permanent errors differ from those that a retry may solve."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from thermocline.broker.helpers.helper_answers import RefusingHandler, check_answer
from thermocline.remoting import errors
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.connections.server import RemotingServer
from thermocline.remoting.error_table import RESPONSE_CODES, response_code
from thermocline.remoting.response_code import ResponseCode
from thermocline.tiered.objects.errors import QuarantinedError, UnfitStoreError

REFUSALS = [
    error
    for error in RESPONSE_CODES
    if issubclass(error, errors.InvalidRequestError) and error is not errors.ObjectNotFoundError
]
OTHERS = [
    *(
        errors.UnavailableError,
        errors.BrokerBusyError,
        errors.ObjectStoreUnavailableError,
        errors.ServiceUnavailableError,
    ),
    *(errors.ClosedError, errors.CorruptDataError, errors.ObjectNotFoundError, QuarantinedError, ValueError),
]


class Failing:
    """A helper that answers to everything with one error; at once, or later."""

    def __init__(self, error: Exception, *, is_late: bool) -> None:
        self._error = error
        self._is_late = is_late

    def handle(self, connection: Connection, command: RemotingCommand) -> Awaitable[RemotingCommand | None]:
        """See RequestHandler."""
        if not self._is_late:
            raise self._error
        return self._fail()

    async def _fail(self) -> RemotingCommand | None:
        await asyncio.sleep(0)
        raise self._error

    def connection_opened(self, connection: Connection) -> None:
        """See RequestHandler."""

    def connection_closed(self, connection: Connection) -> None:
        """See RequestHandler."""


async def seen_by_who_asked(error: Exception, *, is_late: bool = True) -> errors.MQError:
    """What becomes of an error of a helper, over a socket."""
    server = RemotingServer(RefusingHandler(Failing(error, is_late=is_late)))
    port = await server.start("127.0.0.1", 0)
    connection = await ClientConnection.open(f"127.0.0.1:{port}")
    try:
        response = await connection.call(RemotingCommand.request(90013), timeout_ms=10_000)
        with pytest.raises(errors.MQError) as caught:
            check_answer(response, role="tier")
        return caught.value
    finally:
        connection.close()
        await server.close()


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("error_class", [*REFUSALS, UnfitStoreError])
async def test_permanent_errors_are_refused_with_their_own_code(
    error_class: type[errors.InvalidRequestError], is_late: bool
) -> None:
    error = error_class("not like this", topic="orders")
    seen = await seen_by_who_asked(error, is_late=is_late)
    assert isinstance(seen, errors.InvalidRequestError)
    assert response_code(seen) == response_code(error)
    assert response_code(seen) != ResponseCode.SYSTEM_BUSY
    assert str(seen) == "not like this topic=orders"


@pytest.mark.parametrize("error_class", OTHERS)
async def test_everything_else_may_be_asked_again(error_class: type[Exception]) -> None:
    seen = await seen_by_who_asked(error_class("not now"))
    assert isinstance(seen, errors.UnavailableError)
    assert response_code(seen) == ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize(
    ("error", "goes_on"), [(AssertionError("bug"), False), (errors.UnavailableError("away"), True)]
)
async def test_a_message_that_was_taken_in_by_half_is_the_last(error: Exception, goes_on: bool) -> None:
    """A table of queues of which half is reported would let local files go that hold the other half."""
    server = RemotingServer(RefusingHandler(Failing(error, is_late=False)))
    port = await server.start("127.0.0.1", 0)
    connection = await ClientConnection.open(f"127.0.0.1:{port}")
    try:
        connection.send_oneway(RemotingCommand.request(90002, oneway=True))
        if goes_on:
            response = await connection.call(RemotingCommand.request(90013), timeout_ms=10_000)
            assert response.code != ResponseCode.SUCCESS
        else:
            async with asyncio.timeout(10):
                await connection.wait_closed()
    finally:
        connection.close()
        await server.close()
