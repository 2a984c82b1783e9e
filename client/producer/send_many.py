"""send_many: one window of sends under way, and the outcome of each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from thermocline.client.producer.sending import SendCallback
from thermocline.client.send_result import SendResult
from thermocline.remoting.errors import MQError

__all__ = ["ManyRun", "SendManyError"]


class SendManyError(MQError):
    """`send_many` could not send everything; `outcomes` says what became of each message, in order.

    A `SendResult` is stored; an error is not stored, or after a time-out may be. Messages behind the last outcome were
    never sent.
    """

    def __init__(self, message: str = "", *, outcomes: Sequence[SendResult | MQError] = (), **context: object) -> None:
        super().__init__(message, **context)
        self.outcomes = list(outcomes)


class ManyRun:
    """One call of `send_many`. Belongs to the producer's loop."""

    def __init__(self, window: int) -> None:
        assert window >= 1
        self._window = window
        self._outcomes: list[SendResult | MQError | None] = []
        self._under_way = 0
        self._failed_count = 0
        self._waiter: asyncio.Future[None] | None = None
        self._wait_until = 0

    @property
    def is_full(self) -> bool:
        """Whether the window has no room."""
        return self._under_way >= self._window

    @property
    def has_failed(self) -> bool:
        """Whether a message failed, so that no more are to be sent."""
        return self._failed_count > 0

    def begin(self) -> SendCallback:
        """Count one more message as under way; returns the callback for its outcome, which may be called at once."""
        place = len(self._outcomes)
        self._outcomes.append(None)
        self._under_way += 1

        def record(outcome: SendResult | MQError) -> None:
            assert self._outcomes[place] is None
            self._outcomes[place] = outcome
            self._under_way -= 1
            if isinstance(outcome, MQError):
                self._failed_count += 1
            waiter = self._waiter
            if waiter is not None and self._under_way <= self._wait_until and not waiter.done():
                waiter.set_result(None)

        return record

    async def wait_for_room(self) -> None:
        """Wait until half the window is free, so that the next messages leave together."""
        await self._wait(self._window // 2)

    async def wait_for_all(self) -> None:
        """Wait for the outcome of everything under way."""
        await self._wait(0)

    def results(self) -> list[SendResult]:
        """Return every result.

        Raises:
            SendManyError: Some message failed.
        """
        outcomes = [outcome for outcome in self._outcomes if outcome is not None]
        assert len(outcomes) == len(self._outcomes)
        if self.has_failed:
            first = next(outcome for outcome in outcomes if isinstance(outcome, MQError))
            raise SendManyError(
                "not everything was sent",
                outcomes=outcomes,
                sent_count=len(outcomes) - self._failed_count,
                failed_count=self._failed_count,
                first_error=str(first),
            ) from first
        return [outcome for outcome in outcomes if isinstance(outcome, SendResult)]

    async def _wait(self, under_way: int) -> None:
        if self._under_way <= under_way:
            return
        self._wait_until = under_way
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
