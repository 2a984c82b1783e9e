"""Queue locks: which client of a group may consume a queue in order.

Rules
  - A lock belongs to (group, topic, broker name, queue id) and names one client. It ends `live_ms` after its last
    renewal (RocketMQ: 60 s; clients renew every 20 s and believe for 30 s), so a dead owner does not block others for
    long.
  - Asking again renews. A client that asks for a batch gets what is free, expired or its own; the rest is left out of
    the answer, which is how it learns of the other owner.
  - Bounds: `total_max` locks, and `address_max` of one client address. Beyond them a queue is left out of the answer,
    as one that another client has locked. An expired lock counts until `expire`.
  - Locks are in memory only: after a restart clients lock again within 20 s.
Owner: the hot process's event loop.
Source: broker/client/rebalance/RebalanceLockManager.java, Apache RocketMQ 5.3.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec

from thermocline.remoting.bodies import MessageQueue
from thermocline.remoting.connections import LimitCounts, client_address

logger = logging.getLogger(__name__)


class _Lock(msgspec.Struct):
    client_id: str
    renewed_ms: int
    address: str
    """Of the client that locked it."""


class QueueLocks:
    """The locks of all groups. One entry per locked queue; entries that expired long ago are dropped by `expire`."""

    def __init__(
        self,
        *,
        live_ms: int,
        clock: Callable[[], int],
        address_max: Callable[[], int],
        total_max: Callable[[], int],
        limits: LimitCounts,
    ) -> None:
        """`limits`: where refusals by limits are counted."""
        assert live_ms > 0
        self._address_max = address_max
        self._total_max = total_max
        self._limits = limits
        self._count = 0
        self._by_address: dict[str, int] = {}
        self._live_ms = live_ms
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def __len__(self) -> int:
        return self._count

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, host: str = "") -> list[MessageQueue]:
        """Lock or renew each queue that is free, expired or already this client's; return those.

        `host`: the client's, for the bounds.
        """
        now = self._clock()
        address = client_address(host)
        table = self._groups.setdefault(group, {})
        locked: list[MessageQueue] = []
        for queue in queues:
            lock = table.get(queue)
            if lock is None:
                if not self._has_room(address):
                    continue
                self._put(table, queue, _Lock(client_id, now, address))
            elif lock.client_id == client_id:
                lock.renewed_ms = now
            elif self._is_expired(lock, now):
                logger.info(
                    "queue lock taken over group=%s topic=%s queue_id=%d from=%s to=%s",
                    group,
                    queue.topic,
                    queue.queue_id,
                    lock.client_id,
                    client_id,
                )
                self._remove(table, queue)
                self._put(table, queue, _Lock(client_id, now, address))
            else:
                continue
            locked.append(queue)
        if not table:
            del self._groups[group]
        return locked

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give up this client's locks among `queues`; locks of others stay."""
        table = self._groups.get(group)
        if table is None:
            return
        for queue in queues:
            lock = table.get(queue)
            if lock is not None and lock.client_id == client_id:
                self._remove(table, queue)
        if not table:
            del self._groups[group]

    def is_locked(self, group: str) -> bool:
        """Whether any queue of the group is locked and not expired.

        A message that such a group sends to its own retry topic goes to the dead-letter topic instead: in order means
        that a message is not overtaken by its successors and retried behind them.
        """
        now = self._clock()
        return any(not self._is_expired(lock, now) for lock in self._groups.get(group, {}).values())

    def expire(self) -> None:
        """Drop expired locks, so that groups that went away leave nothing behind. Called now and then."""
        now = self._clock()
        for group in list(self._groups):
            table = self._groups[group]
            gone: Sequence[MessageQueue] = [queue for queue, lock in table.items() if self._is_expired(lock, now)]
            for queue in gone:
                self._remove(table, queue)
            if not table:
                del self._groups[group]

    def _has_room(self, address: str) -> bool:
        limit = None
        if self._count >= self._total_max():
            limit = "queueLocksMax"
        elif self._by_address.get(address, 0) >= self._address_max():
            limit = "queueLocksPerAddressMax"
        if limit is not None:
            self._limits.refused(limit, address=address, detail="queue not locked")
        return limit is None

    def _put(self, table: dict[MessageQueue, _Lock], queue: MessageQueue, lock: _Lock) -> None:
        table[queue] = lock
        self._count += 1
        self._by_address[lock.address] = self._by_address.get(lock.address, 0) + 1

    def _remove(self, table: dict[MessageQueue, _Lock], queue: MessageQueue) -> None:
        lock = table.pop(queue)
        self._count -= 1
        self._by_address[lock.address] -= 1
        if not self._by_address[lock.address]:
            del self._by_address[lock.address]

    def _is_expired(self, lock: _Lock, now: int) -> bool:
        return now - lock.renewed_ms > self._live_ms
