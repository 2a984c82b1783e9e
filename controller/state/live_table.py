"""Live table: which brokers send heartbeats, and what their last one said. Each controller has its own.

It is not replicated: brokers send heartbeats to all controllers. A broker is alive until its own timeout has passed
since the last heartbeat, or until the connection of that heartbeat closes. Epoch and offset move back with another
connection alone: a broker may have lost the end of its log in a power cut, after which its old connection stays open
for a while. RocketMQ's never move back while an entry exists, and the longest log of an election may be that one.
Bound: `entries_max` entries; a heartbeat of a further broker is refused.
Times are milliseconds of the clock that the caller passes in. Owner: the controller's event loop.
Source: controller/impl/heartbeat/DefaultBrokerHeartbeatManager.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

TIMEOUT_MS_DEFAULT = 10_000
TIMEOUT_MS_MAX = 10 * 60_000
PRIORITY_DEFAULT = 2**31 - 1


class BrokerKey(NamedTuple):
    """One replica of one broker name."""

    cluster: str
    broker_name: str
    broker_id: int


class LiveBroker(msgspec.Struct, kw_only=True):
    """What is known from heartbeats. `owner`: the connection of the last one."""

    address: str
    seen_ms: int
    timeout_ms: int
    epoch: int
    max_offset: int
    confirm_offset: int
    priority: int
    owner: object


class Liveness(Protocol):
    """What checks and elections ask."""

    def get(self, key: BrokerKey) -> LiveBroker | None:
        """The broker, if it is alive."""
        ...


class LiveTable:
    """See the module."""

    def __init__(self) -> None:
        self._brokers: dict[BrokerKey, LiveBroker] = {}
        self._by_owner: dict[object, set[BrokerKey]] = {}

    def __len__(self) -> int:
        return len(self._brokers)

    def has(self, key: BrokerKey) -> bool:
        """Whether there is an entry, alive or not yet scanned."""
        return key in self._brokers

    def beat(
        self,
        key: BrokerKey,
        *,
        now_ms: int,
        owner: object,
        address: str,
        timeout_ms: int | None = None,
        epoch: int | None = None,
        max_offset: int | None = None,
        confirm_offset: int | None = None,
        priority: int | None = None,
    ) -> None:
        """A heartbeat."""
        timeout_ms = TIMEOUT_MS_DEFAULT if timeout_ms is None else min(max(timeout_ms, 0), TIMEOUT_MS_MAX)
        offsets = (-1 if epoch is None else epoch, -1 if max_offset is None else max_offset)
        present = self._brokers.get(key)
        if present is None:
            present = self._brokers[key] = LiveBroker(
                address=address,
                seen_ms=now_ms,
                timeout_ms=timeout_ms,
                epoch=offsets[0],
                max_offset=offsets[1],
                confirm_offset=-1 if confirm_offset is None else confirm_offset,
                priority=PRIORITY_DEFAULT if priority is None else priority,
                owner=owner,
            )
        elif present.owner is not owner or offsets > (present.epoch, present.max_offset):
            present.epoch, present.max_offset = offsets
            present.confirm_offset = -1 if confirm_offset is None else confirm_offset
        if present.owner is not owner:
            self._disown(key, present.owner)
        present.address, present.seen_ms, present.timeout_ms, present.owner = address, now_ms, timeout_ms, owner
        present.priority = PRIORITY_DEFAULT if priority is None else priority
        self._by_owner.setdefault(owner, set()).add(key)

    def at(self, now_ms: int) -> Liveness:
        """Who is alive at this time."""
        return _Moment(self._brokers, now_ms)

    def owner_gone(self, owner: object) -> list[BrokerKey]:
        """Forget the brokers of a connection that closed; those that sent over another since then stay."""
        keys = sorted(self._by_owner.pop(owner, ()))
        for key in keys:
            del self._brokers[key]
        return keys

    def next_expiry_ms(self) -> int | None:
        """When the first broker expires, unless it sends a heartbeat before; None when there is no broker."""
        return min((live.seen_ms + live.timeout_ms + 1 for live in self._brokers.values()), default=None)

    def expire(self, now_ms: int) -> list[tuple[BrokerKey, object]]:
        """Forget brokers whose time has passed; with the connections of their last heartbeats."""
        expired = [(key, live) for key, live in self._brokers.items() if now_ms - live.seen_ms > live.timeout_ms]
        for key, live in expired:
            del self._brokers[key]
            self._disown(key, live.owner)
        return [(key, live.owner) for key, live in expired]

    def _disown(self, key: BrokerKey, owner: object) -> None:
        keys = self._by_owner[owner]
        keys.discard(key)
        if not keys:
            del self._by_owner[owner]


class _Moment:
    def __init__(self, brokers: dict[BrokerKey, LiveBroker], now_ms: int) -> None:
        self._brokers = brokers
        self._now_ms = now_ms

    def get(self, key: BrokerKey) -> LiveBroker | None:
        live = self._brokers.get(key)
        return live if live is not None and live.seen_ms + live.timeout_ms >= self._now_ms else None
