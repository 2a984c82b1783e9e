"""BrokerSlots: so many requests at a time at each broker.

A broker that does not answer keeps each of its slots until the time of the request is over, and holds up no request to
another broker.

Bound: one counter for each broker that was named, which are those that gave messages. Owner: the proxy's event loop.
"""

from __future__ import annotations

import asyncio

__all__ = ["BrokerSlots"]


class BrokerSlots:
    """See the module."""

    def __init__(self, count: int) -> None:
        """`count`: requests at a time at each broker."""
        self._count = count
        self._slots: dict[str, asyncio.Semaphore] = {}

    def at(self, broker_name: str) -> asyncio.Semaphore:
        """The slots of a broker: `async with` takes one, and waits until one is free."""
        slots = self._slots.get(broker_name)
        if slots is None:
            slots = self._slots[broker_name] = asyncio.Semaphore(self._count)
        return slots
