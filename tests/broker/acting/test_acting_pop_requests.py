"""Which requests of POP a slave serves, and when."""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.broker.acting.acting_pop_requests import ACKNOWLEDGEMENTS, POPS, ActingPopRequests
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import BrokerBusyError


class Escaped:
    """Stands for what was popped at the slave."""

    def __init__(self, *, is_open: bool, count: int) -> None:
        self.is_open = is_open
        self._count = count

    def __len__(self) -> int:
        return self._count


@pytest.mark.parametrize(
    ("is_open", "count", "served"),
    [(True, 0, {*POPS, *ACKNOWLEDGEMENTS}), (False, 1, {*ACKNOWLEDGEMENTS}), (False, 0, set())],
)
def test_pops_while_it_stands_in_and_acknowledgements_as_long_as_there_are_receipts(
    is_open: bool, count: int, served: set[int]
) -> None:
    escaped: Any = Escaped(is_open=is_open, count=count)
    handlers: Any = dict.fromkeys((*POPS, *ACKNOWLEDGEMENTS), lambda connection, command: command)
    requests: Any = ActingPopRequests(escaped, served_by=handlers).routes()
    found = set()
    for code, handler in requests.items():
        command = RemotingCommand.request(code)
        try:
            assert handler(None, command) is command
            found.add(code)
        except BrokerBusyError:
            continue
    assert found == served
