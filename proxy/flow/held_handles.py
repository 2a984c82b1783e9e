"""HeldHandles: receipt handles that are renewed for clients while they work.

    receive with auto renew -> hold -> every change of the handle stays here -> ack or nack: take the present handle

A client has only the handle that it was given. A delivery is found again by client, group, message id and the place
in that handle (broker, queue, offset), which no renewal changes.

A handle is renewed when no more than `ahead_ms` of it are left, for 1, 3, 5, 10, 30 and then always 60 minutes; after
`ms_max` in all it is given up, and the message comes back after the group's retry delay. A renewal that fails is tried
again at the next look, `tries` times; an answer that the handle is invalid ends it. A client that is not heard of is
renewed nothing; when it is gone, what it holds becomes visible after `clear_ms`.

What is left of a handle is counted from the moment at which it came, by a clock that is never set: a handle says when
it ends by its broker's clock, of which this machine's may differ.

Bounds: `handles_max` in all and `client_handles_max` a client, checked before a receive; RENEWALS_MAX renewals at a
time at each broker, so that one that does not answer holds up no renewal, and no acknowledgement, at another.
Owner: the proxy's event loop.
Source: DefaultReceiptHandleManager.java, RenewStrategyPolicy.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from thermocline.proxy.flow.broker_slots import BrokerSlots
from thermocline.proxy.messaging import HandleExpiredError, Messaging, ProxyHandle
from thermocline.remoting.errors import BrokerBusyError, InvalidRequestError, MQError

__all__ = ["HeldHandles", "RenewalRules", "TakenHandle"]

logger = logging.getLogger(__name__)

RENEWALS_MAX = 64
RENEWAL_TIMEOUT_MS = 2_000
DUE_SPARE_MAX = 1_024
"""Entries of what is due that belong to nothing any more are thrown away beyond so many, and beyond those that do."""
RENEWAL_MS = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalRules:
    """See the module."""

    period_ms: int = 5_000
    ahead_ms: int = 10_000
    ms_max: int = 10_800_000
    tries: int = 3
    clear_ms: int = 1_000
    handles_max: int = 1_000_000
    client_handles_max: int = 20_000


@dataclass(slots=True, kw_only=True, eq=False)
class _Held:
    client_id: str
    group: str
    topic: str
    message_id: str
    handle: ProxyHandle
    ends_ms: float
    """When its time is over, by the clock of `HeldHandles`."""
    since_ms: float
    reconsume_times: int
    renewals: int = 0
    failures: int = 0
    is_taken: bool = False
    is_cleared: bool = False
    """Its client is gone: it is to become visible soon."""
    renewal: asyncio.Task[None] | None = None
    planned: int = -1
    """The number of its entry among what is due; older entries of it do not count."""


@dataclass(frozen=True, slots=True)
class TakenHandle:
    """A delivery that its client ends: the handle that counts at the broker, and the arguments of `put_back`."""

    handle: ProxyHandle
    held: _Held | None = None
    """None where it was not held."""
    is_over: bool = False
    """Of one that was held: whether its time is over."""

    def check_fresh(self, now_ms: int) -> None:
        """Pass a handle whose time is not over. `now_ms`: the time of day, for one that was not held.

        Raises:
            HandleExpiredError: It is.
        """
        if self.is_over:
            raise HandleExpiredError("receipt handle is expired")
        if self.held is None:
            self.handle.check_fresh(now_ms)


_Key = tuple[str, str, tuple[str, int, int]]


class HeldHandles:
    """See the module."""

    def __init__(
        self,
        messaging: Messaging,
        rules: RenewalRules,
        *,
        is_listening: Callable[[str], bool],
        retry_delay_ms: Callable[[str, str, int], Awaitable[int]],
        clock_ms: Callable[[], float],
    ) -> None:
        """`retry_delay_ms(group, broker name, reconsume times)`: how long a message waits that is given up. `clock_ms`:
        never stepping back."""
        self._messaging = messaging
        self._rules = rules
        self._is_listening = is_listening
        self._retry_delay_ms = retry_delay_ms
        self._clock_ms = clock_ms
        self._by_client: dict[str, dict[_Key, _Held]] = {}
        self._count = 0
        self._due: list[tuple[float, int, _Held]] = []
        self._numbers = itertools.count()
        self._slots = BrokerSlots(RENEWALS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self._count

    def held_by(self, client_id: str) -> int:
        """How many handles are held for a client."""
        return len(self._by_client.get(client_id, ()))

    def check_room(self, client_id: str, count: int) -> None:
        """Pass when so many more handles may be held for a client.

        Raises:
            BrokerBusyError: It holds too many, or all clients together do.
        """
        if self.held_by(client_id) + count > self._rules.client_handles_max:
            raise BrokerBusyError("the client holds too many messages", count_max=self._rules.client_handles_max)
        if self._count + count > self._rules.handles_max:
            raise BrokerBusyError("clients of this proxy hold too many messages", count_max=self._rules.handles_max)

    def hold(
        self, client_id: str, group: str, topic: str, message_id: str, handle: ProxyHandle, *, reconsume_times: int
    ) -> None:
        """Renew a handle from now on."""
        now_ms = self._clock_ms()
        held = _Held(
            client_id=client_id,
            group=group,
            topic=topic,
            message_id=message_id,
            handle=handle,
            ends_ms=now_ms + handle.receipt.invisible_ms,
            since_ms=now_ms,
            reconsume_times=reconsume_times,
        )
        table = self._by_client.setdefault(client_id, {})
        key = group, message_id, handle.place
        before = table.get(key)
        if before is not None:
            before.is_taken = True
        else:
            self._count += 1
        table[key] = held
        self._plan(held)

    async def take_handle(self, client_id: str, group: str, message_id: str, handle: ProxyHandle) -> TakenHandle:
        """Renew this delivery no more; its present handle, or the one given where it is not held.

        Waits for a renewal under way, so that the handle returned is the one that counts at the broker.
        """
        held = self._find(client_id, group, message_id, handle)
        if held is not None and held.renewal is not None:
            await asyncio.wait([held.renewal])
        return self._taken(handle, held)

    def take_now(self, client_id: str, group: str, message_id: str, handle: ProxyHandle) -> TakenHandle | None:
        """The same where there is nothing to wait for; None, and nothing is done, while a renewal is under way."""
        held = self._find(client_id, group, message_id, handle)
        if held is not None and held.renewal is not None:
            return None
        return self._taken(handle, held)

    def _find(self, client_id: str, group: str, message_id: str, handle: ProxyHandle) -> _Held | None:
        table = self._by_client.get(client_id)
        return None if table is None else table.get((group, message_id, handle.place))

    def _taken(self, handle: ProxyHandle, held: _Held | None) -> TakenHandle:
        if held is None:
            return TakenHandle(handle)
        self._drop(held)
        return TakenHandle(held.handle, held, is_over=held.ends_ms <= self._clock_ms())

    def put_back(self, taken: TakenHandle) -> None:
        """Renew a delivery again, whose end the broker did not confirm: its client tries again with its old handle."""
        held = taken.held
        if held is None or held.is_cleared or not self._is_listening(held.client_id):
            return
        table = self._by_client.setdefault(held.client_id, {})
        key = held.group, held.message_id, held.handle.place
        if key not in table:
            held.is_taken = False
            table[key] = held
            self._count += 1
            self._plan(held)

    def release_client(self, client_id: str) -> None:
        """The client is gone: what it holds becomes visible soon."""
        for held in list(self._by_client.get(client_id, {}).values()):
            self._drop(held)
            held.is_cleared = True
            if held.renewal is None:
                self._run(self._clear(held))

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for handles to renew from now on, every period."""
        self._timer = asyncio.get_running_loop().call_later(self._rules.period_ms / 1000, self._tick)

    async def close(self) -> None:
        """Let everything that is held become visible soon, and end. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for client_id in list(self._by_client):
            self.release_client(client_id)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=RENEWAL_TIMEOUT_MS / 1000)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def renew_due(self) -> int:
        """Begin to renew what is due; how many. Runs by itself, every period."""
        now_ms, count = self._clock_ms(), 0
        while self._due and self._due[0][0] <= now_ms:
            _, number, held = heapq.heappop(self._due)
            if held.is_taken or number != held.planned:
                continue
            if not self._is_listening(held.client_id):
                self._plan_at(held, now_ms + self._rules.period_ms)
                if held.ends_ms <= now_ms:
                    self._drop(held)
                continue
            count += 1
            held.renewal = self._run(self._renew(held))
        return count

    # -- inside ------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self.renew_due()
        self.start()

    def _run(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _plan(self, held: _Held) -> None:
        self._plan_at(held, held.ends_ms - self._rules.ahead_ms)

    def _plan_at(self, held: _Held, due_ms: float) -> None:
        held.planned = next(self._numbers)
        heapq.heappush(self._due, (due_ms, held.planned, held))
        if len(self._due) > 2 * self._count + DUE_SPARE_MAX:
            self._due = [entry for entry in self._due if not entry[2].is_taken and entry[1] == entry[2].planned]
            heapq.heapify(self._due)

    def _drop(self, held: _Held) -> None:
        if held.is_taken:
            return
        held.is_taken = True
        self._count -= 1
        table = self._by_client[held.client_id]
        del table[held.group, held.message_id, held.handle.place]
        if not table:
            del self._by_client[held.client_id]

    async def _renew(self, held: _Held) -> None:
        try:
            async with self._slots.at(held.handle.receipt.broker_name):
                if self._clock_ms() - held.since_ms >= self._rules.ms_max:
                    broker_name = held.handle.receipt.broker_name
                    delay_ms = await self._retry_delay_ms(held.group, broker_name, held.reconsume_times)
                    await self._change(held, delay_ms)
                    self._drop(held)
                    return
                await self._change(held, RENEWAL_MS[min(held.renewals, len(RENEWAL_MS) - 1)])
            held.renewals += 1
            held.failures = 0
        except (HandleExpiredError, InvalidRequestError) as error:
            logger.info("a handle is renewed no more group=%s error=%s", held.group, error)
            self._drop(held)
        except MQError as error:
            held.failures += 1
            if held.failures >= self._rules.tries:
                logger.warning(
                    "a handle is given up after %d tries group=%s error=%s", held.failures, held.group, error
                )
                self._drop(held)
        finally:
            held.renewal = None
            if held.is_cleared:
                await self._clear(held)
            elif not held.is_taken:
                self._plan_at(held, max(self._next_ms(held), self._clock_ms() + 1))

    def _next_ms(self, held: _Held) -> float:
        if held.failures:
            return self._clock_ms() + self._rules.period_ms
        return held.ends_ms - self._rules.ahead_ms

    async def _change(self, held: _Held, invisible_ms: int) -> None:
        now_ms = self._clock_ms()
        if held.ends_ms <= now_ms:
            raise HandleExpiredError("receipt handle is expired")
        held.handle = await self._messaging.change_invisible(
            held.handle,
            topic=held.topic,
            group=held.group,
            invisible_ms=invisible_ms,
            timeout_ms=RENEWAL_TIMEOUT_MS,
        )
        # From the request on: the broker counted from no earlier moment.
        held.ends_ms = now_ms + invisible_ms

    async def _clear(self, held: _Held) -> None:
        try:
            async with self._slots.at(held.handle.receipt.broker_name):
                await self._change(held, self._rules.clear_ms)
        except MQError as error:
            logger.info("a held message is not released, its time ends by itself group=%s error=%s", held.group, error)
