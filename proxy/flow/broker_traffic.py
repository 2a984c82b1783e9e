"""BrokerTraffic: the sends that brokers have not answered, and which brokers get no further ones for now.

    a send was not answered, or its connection was lost    passed over until a request for an offset is answered
    a send was refused because the broker cannot serve     passed over for PASS_OVER_MS
    the oldest unanswered send is older than SLOW_MS       passed over until it is answered

`Production` passes a broker over only while the topic is on another one, too. So a frozen broker gets the sends of its
first second, and then one request for an offset every PROBE_MS; no further client waits for it.

Bound: one entry for each broker that has an unanswered send or is passed over. Owner: the proxy's event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from thermocline.client.message_queue import MessageQueue
from thermocline.proxy.messaging import Messaging
from thermocline.remoting.errors import ConnectionLostError, MQError, RequestTimeoutError, UnavailableError

__all__ = ["BrokerTraffic"]

logger = logging.getLogger(__name__)

PASS_OVER_MS = 3_000
SLOW_MS = 1_000
PROBE_MS = 1_000
PROBE_TIMEOUT_MS = 1_000


@dataclass(slots=True)
class _Broker:
    unanswered: dict[int, float] = field(default_factory=dict)
    """When each was sent, the oldest one first."""
    passed_over_until_ms: float = 0
    probe: asyncio.Task[None] | None = None
    """While the broker does not answer."""


class BrokerTraffic:
    """See the module."""

    def __init__(self, messaging: Messaging, *, clock_ms: Callable[[], float]) -> None:
        """`clock_ms`: monotonic."""
        self._messaging = messaging
        self._clock_ms = clock_ms
        self._brokers: dict[str, _Broker] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._brokers)

    def is_fit(self, broker_name: str) -> bool:
        """Whether the broker should get further sends while there is another one."""
        broker = self._brokers.get(broker_name)
        if broker is None:
            return True
        now_ms = self._clock_ms()
        if broker.probe is not None or now_ms < broker.passed_over_until_ms:
            return False
        return now_ms - next(iter(broker.unanswered.values()), now_ms) < SLOW_MS

    def sending(self, queue: MessageQueue) -> AbstractContextManager[None]:
        """Note a send to a queue, from its request to its answer or error."""
        broker = self._brokers.get(queue.broker_name)
        if broker is None:
            broker = self._brokers[queue.broker_name] = _Broker()
        number = next(self._numbers)
        broker.unanswered[number] = self._clock_ms()
        return _Send(self, queue, broker, number)

    def _ended(self, queue: MessageQueue, broker: _Broker, number: int, error: BaseException | None) -> None:
        if isinstance(error, RequestTimeoutError | ConnectionLostError):
            if broker.probe is None:
                logger.warning("a broker does not answer, sends pass it over broker_name=%s", queue.broker_name)
                broker.probe = asyncio.get_running_loop().create_task(self._probe(queue, broker))
        elif isinstance(error, UnavailableError):
            broker.passed_over_until_ms = self._clock_ms() + PASS_OVER_MS
        del broker.unanswered[number]
        if not broker.unanswered:
            self._forget_idle(queue.broker_name, broker)

    async def close(self) -> None:
        """Send no further requests for offsets. Idempotent."""
        probes = [broker.probe for broker in self._brokers.values() if broker.probe is not None]
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)

    def _forget_idle(self, broker_name: str, broker: _Broker) -> None:
        is_idle = not broker.unanswered and broker.probe is None and self._clock_ms() >= broker.passed_over_until_ms
        if is_idle:
            self._brokers.pop(broker_name, None)

    async def _probe(self, queue: MessageQueue, broker: _Broker) -> None:
        """Ask a broker until it answers, or until no route names it."""
        try:
            while True:
                await asyncio.sleep(PROBE_MS / 1000)
                try:
                    await self._messaging.queue_offset(
                        queue, timestamp_ms=None, is_end=True, timeout_ms=PROBE_TIMEOUT_MS
                    )
                except UnavailableError:
                    continue
                except MQError as error:
                    logger.info("a broker is asked no more broker_name=%s reason=%s", queue.broker_name, error)
                    return
                logger.info("a broker answers again, it gets sends broker_name=%s", queue.broker_name)
                return
        finally:
            broker.probe = None
            self._forget_idle(queue.broker_name, broker)


class _Send:
    """A send under way; a class of its own, as a generator costs a send a microsecond more."""

    __slots__ = ("_broker", "_number", "_queue", "_traffic")

    def __init__(self, traffic: BrokerTraffic, queue: MessageQueue, broker: _Broker, number: int) -> None:
        self._traffic, self._queue, self._broker, self._number = traffic, queue, broker, number

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._traffic._ended(self._queue, self._broker, self._number, error)
