"""Joined acknowledgements: those of one turn of the event loop leave in one request for each broker, topic and group.

A client acknowledges what a receive brought by one RPC of up to 32 entries. One by one they cost the proxy, and more so
the broker's hot process, a request each: a third of all that a received message costs.

A joined request has a bit for each offset between a check point's first message and the acknowledged ones, and a broker
refuses it as a whole. Handles come from clients, which may have forged them: one whose numbers no broker gives out
would cost any amount of memory here, or the others their acknowledgement. It goes alone (`is_joinable`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Protocol

from thermocline.proxy.messaging import ProxyHandle
from thermocline.remoting.errors import MQError, UnavailableError
from thermocline.remoting.handles import ReceiptHandle, RetryFlag

__all__ = ["JoinedAcks", "is_joinable"]

ACKS_MAX = 1_024
"""In one request."""
DISTANCE_MAX = 4_096
"""From the first message of a check point to an acknowledged one. 32 messages that a filter chose lie some hundred
offsets apart at most."""
_FLAGS = frozenset(int(flag) for flag in RetryFlag)
_LONG_END, _INT_END = 1 << 62, 1 << 31


def is_joinable(receipt: ReceiptHandle) -> bool:
    """Whether an acknowledgement with this receipt may be in one request with others."""
    return (
        0 <= receipt.queue_offset - receipt.start_offset < DISTANCE_MAX
        and 0 <= receipt.start_offset < _LONG_END
        and 0 <= receipt.pop_time_ms < _LONG_END
        and 0 <= receipt.invisible_ms < _LONG_END
        and 0 <= receipt.queue_id < _INT_END
        and 0 <= receipt.revive_queue_id < _INT_END
        and receipt.retry_flag in _FLAGS
    )


class SendAcks(Protocol):
    """Acknowledges messages of one broker in one request; raises what the broker answered for all of them."""

    def __call__(
        self, handles: Sequence[ProxyHandle], *, topic: str, group: str, timeout_ms: int
    ) -> Awaitable[None]: ...


class _Batch:
    """Acknowledgements that leave together."""

    __slots__ = ("answered", "handles", "timeout_ms")

    def __init__(self, answered: asyncio.Future[MQError | None]) -> None:
        self.answered = answered
        self.handles: list[ProxyHandle] = []
        self.timeout_ms = 0


class JoinedAcks:
    """See the module. Belongs to one event loop."""

    def __init__(self, send: SendAcks) -> None:
        self._send = send
        self._waiting: dict[tuple[str, str, str], _Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Give up those under way; idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, handle: ProxyHandle, *, topic: str, group: str, timeout_ms: int) -> asyncio.Future[MQError | None]:
        """Acknowledge a message; what the broker answered: None, or why it refused.

        The future is that of all messages of one request: never cancel it.
        """
        receipt = handle.receipt
        if receipt.is_order or not is_joinable(receipt):
            batch = _Batch(asyncio.get_running_loop().create_future())
            batch.handles.append(handle)
            batch.timeout_ms = timeout_ms
            self._begin(batch, topic=topic, group=group)
            return batch.answered
        key = receipt.broker_name, topic, group
        found = self._waiting.get(key)
        if found is None:
            loop = asyncio.get_running_loop()
            if not self._waiting:
                loop.call_soon(self._flush)
            found = self._waiting[key] = _Batch(loop.create_future())
        elif len(found.handles) == ACKS_MAX:
            self._begin(found, topic=topic, group=group)
            found = self._waiting[key] = _Batch(asyncio.get_running_loop().create_future())
        found.handles.append(handle)
        found.timeout_ms = max(found.timeout_ms, timeout_ms)
        return found.answered

    async def add(self, handle: ProxyHandle, *, topic: str, group: str, timeout_ms: int) -> None:
        """Acknowledge a message; returns when the broker has. Cancelling is safe: it is sent all the same."""
        error = await asyncio.shield(self.start(handle, topic=topic, group=group, timeout_ms=timeout_ms))
        if error is not None:
            raise error

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (_broker_name, topic, group), batch in waiting.items():
            self._begin(batch, topic=topic, group=group)

    def _begin(self, batch: _Batch, *, topic: str, group: str) -> None:
        task = asyncio.create_task(self._run(batch, topic=topic, group=group))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, batch: _Batch, *, topic: str, group: str) -> None:
        error: MQError | None = UnavailableError("the proxy stops")
        try:
            await self._send(batch.handles, topic=topic, group=group, timeout_ms=batch.timeout_ms)
            error = None
        except MQError as refusal:
            error = refusal
        finally:
            batch.answered.set_result(error)
