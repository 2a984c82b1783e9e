"""A watch of the members, which sees what a test gives it."""

from __future__ import annotations

from collections.abc import Callable

from thermocline.broker.cluster import StandIn

MASTER = "127.0.0.1:1"


class Members:
    """Stands for the watch of the members."""

    def __init__(self) -> None:
        self.state = StandIn.FOLLOWING
        self.master_address: str | None = MASTER
        self.asked_count = 0
        self._listeners: list[Callable[[StandIn], None]] = []

    def add_listener(self, listener: Callable[[StandIn], None]) -> None:
        self._listeners.append(listener)

    def become(self, state: StandIn) -> None:
        self.state = state
        for listener in self._listeners:
            listener(state)

    def ask_soon(self) -> None:
        self.asked_count += 1

    def master_returns(self, address: str) -> None:
        assert address == MASTER
        self.become(StandIn.HANDING_OVER)
