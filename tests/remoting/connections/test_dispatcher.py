"""From a request code to its method."""

from collections.abc import Mapping
from typing import Any

import pytest

from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.connections.dispatcher import Dispatcher, Handler


class Echo:
    """Serves some codes by answering with the code."""

    def __init__(self, *codes: int) -> None:
        self._codes = codes

    def routes(self) -> Mapping[int, Handler]:
        return dict.fromkeys(self._codes, self.answer)

    def answer(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(command, remark=str(command.code))


NOBODY: Any = None


def test_a_request_goes_to_the_processor_that_serves_its_code() -> None:
    dispatcher = Dispatcher([Echo(1, 2), Echo(3)])
    answer = dispatcher.handle(NOBODY, RemotingCommand.request(3))
    assert isinstance(answer, RemotingCommand)
    assert answer.remark == "3"


def test_a_code_without_a_processor_is_not_supported() -> None:
    answer = Dispatcher([Echo(1)]).handle(NOBODY, RemotingCommand.request(-7))
    assert isinstance(answer, RemotingCommand)
    assert (answer.code, answer.remark) == (3, " request type -7 not supported")


def test_one_code_has_one_method() -> None:
    with pytest.raises(AssertionError, match="request code 2"):
        Dispatcher([Echo(1, 2), Echo(2)])


def test_a_processor_before_the_others_serves_their_codes() -> None:
    class Refusal(Echo):
        def answer(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
            return RemotingCommand.response(command, remark="refused")

    dispatcher = Dispatcher([Echo(1, 2)], before=[Refusal(2)])
    answers = [dispatcher.handle(NOBODY, RemotingCommand.request(code)) for code in (1, 2)]
    assert [answer.remark for answer in answers if isinstance(answer, RemotingCommand)] == ["1", "refused"]


def test_all_listeners_are_notified_of_a_closed_connection() -> None:
    closed: list[Any] = []
    dispatcher = Dispatcher([], on_closed=[closed.append, closed.append])
    connection: Any = object()
    dispatcher.connection_opened(connection)
    dispatcher.connection_closed(connection)
    assert closed == [connection, connection]
