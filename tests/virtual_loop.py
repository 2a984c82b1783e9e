"""An event loop on which nothing takes time: when all tasks wait, its clock jumps to the next timer.

Calls for helper threads are carried out at once, on the loop. So a run with this loop depends on nothing but its seed,
and an hour of waiting costs nothing. It reads no socket.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


TURNS_MAX = 100_000
"""How many turns of the loop may go by without time passing."""


class Stuck(AssertionError):  # noqa: N818 - a finding of the test
    """Every task waits, and nothing will ever happen again; or one never waits."""


class _Jump(selectors.SelectSelector):
    """In place of waiting, time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Nothing ever arrives."""
        if timeout is None:
            raise Stuck("every task waits for ever")
        if timeout > 0:
            self.now_s += timeout
            self._turns = 0
        elif (turns := self._turns + 1) < TURNS_MAX:
            self._turns = turns
        else:
            raise Stuck("time stands still")
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module's header."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jump.now_s

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call it now."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            result = func(*args)
        except BaseException as error:  # noqa: BLE001 - a thread would hand it on too
            future.set_exception(error)
        else:
            future.set_result(result)
        return future


def run_virtually(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run `main` on a loop of its own, and end whatever tasks it leaves."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        # What a process that has died leaves behind is of no interest.
        runner.get_loop().set_exception_handler(lambda _loop, _context: None)
        return runner.run(main())
