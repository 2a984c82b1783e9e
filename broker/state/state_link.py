"""State link: the hot process's part in state snapshots. It supplies state that is only in memory, and receives the
saved log ceiling.

Before it answers, files that are written late, such as offsets, are written: a snapshot is as new as its request.

Belongs to the hot process's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from thermocline.broker.helpers import (
    TIER_ROLE,
    HelperHub,
    HelperRequestCode,
    StateAnswer,
    StateAsk,
    StateSaved,
    decode_body,
)
from thermocline.broker.state.log_reservation import LogReservation
from thermocline.broker.state.popped_offsets import popped_offsets
from thermocline.pop.in_flight import InFlight
from thermocline.remoting.errors import ClosedError, UnavailableError

logger = logging.getLogger(__name__)


class StateLink:
    """Answers the tier process. `close` before the loop ends."""

    def __init__(
        self,
        hub: HelperHub,
        *,
        in_flight: InFlight,
        reservation: LogReservation,
        save_files: Callable[[], Awaitable[None]],
    ) -> None:
        """`save_files`: see Housekeeping.save."""
        self._hub = hub
        self._save_files = save_files
        self._in_flight = in_flight
        self._reservation = reservation
        self._answering: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def handle(self, code: int, body: bytes | memoryview) -> None:
        """Handle a message of the tier process: it asks for state, or reports a snapshot in the bucket."""
        if self._is_closed:
            return  # the broker stops: it reads the saved state when it starts
        if code == HelperRequestCode.STATE_SAVED:
            self._reservation.saved(decode_body(body, StateSaved).log_ceiling)
            return
        assert code == HelperRequestCode.STATE_ASK
        task = asyncio.get_running_loop().create_task(self._answer(decode_body(body, StateAsk)))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def close(self) -> None:
        """Stop answering; idempotent."""
        self._is_closed = True
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _answer(self, ask: StateAsk) -> None:
        try:
            await self._save_files()  # before reading the pops in flight, so that later pops are included
        except (UnavailableError, ClosedError) as error:
            logger.debug("state files not written, the snapshot has those before: %s", error)
        popped = await popped_offsets(self._in_flight)
        self._hub.tell(TIER_ROLE, HelperRequestCode.STATE_ANSWER, StateAnswer(number=ask.number, popped=popped))
