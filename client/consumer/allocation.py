"""Allocation: which of a topic's queues one member of a consumer group works on.

There is no leader. Every member sorts all queues and all client ids, runs the same pure function with its own id, and
takes what comes out; as long as all members see the same lists and use the same strategy, each queue has one owner.
Hence the rules
  - a strategy is a pure function of (its own id, sorted queues, sorted ids); it reads no clock and no random source;
  - members written in other languages share the group, so results and hashes equal the official ones to the bit.
A member that is not (yet) in the list of ids owns nothing.
Source: client/consumer/rebalance/*.java, common/consistenthash/*.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.errors import InvalidRequestError

__all__ = [
    "AllocateAveragely",
    "AllocateAveragelyByCircle",
    "AllocateByConfig",
    "AllocateByConsistentHash",
    "AllocateByMachineRoom",
    "AllocateMachineRoomNearby",
    "AllocationStrategy",
]

T = TypeVar("T")


@runtime_checkable
class AllocationStrategy(Protocol):
    """Picks one member's share of the queues. Own strategies need a name that the whole group agrees on."""

    @property
    def name(self) -> str:
        """The strategy's name in requests to a broker, such as `AVG`."""

    def allocate(
        self, *, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of `client_id`, given all queues and all client ids of the group, both sorted."""


@dataclass(frozen=True, slots=True)
class AllocateAveragely:
    """Neighbouring queues in equal runs; the first members take one more when it does not divide. The default."""

    name: str = field(default="AVG", init=False)

    def allocate(
        self, *, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return a run of `len(queues) / len(client_ids)` queues, rounded up for the first members."""
        if client_id not in client_ids:
            return []
        index = client_ids.index(client_id)
        share, remainder = divmod(len(queues), len(client_ids))
        start = index * share + min(index, remainder)
        end = start + share + (1 if index < remainder else 0)
        return list(queues[start:end])


@dataclass(frozen=True, slots=True)
class AllocateAveragelyByCircle:
    """Queues dealt out one by one, so that each member works on every broker."""

    name: str = field(default="AVG_BY_CIRCLE", init=False)

    def allocate(
        self, *, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return every queue whose place in the list is `index` modulo the number of members."""
        if client_id not in client_ids:
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


@dataclass(frozen=True, slots=True)
class AllocateByConfig:
    """The queues configured for this member, whatever the others do.

    A topic with no configured queue, such as the group's retry topic, is shared averagely.
    """

    queues: tuple[MessageQueue, ...]
    name: str = field(default="CONFIG", init=False)

    def allocate(
        self, *, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the configured queues of the topic at hand, also those that the route does not show (yet)."""
        topics = {queue.topic for queue in queues}
        configured = [queue for queue in self.queues if queue.topic in topics]
        return configured or AllocateAveragely().allocate(client_id=client_id, queues=queues, client_ids=client_ids)


@dataclass(frozen=True, slots=True)
class AllocateByConsistentHash:
    """Each queue goes to the next member on a hash ring: one that comes or goes moves only its neighbours' queues."""

    virtual_node_count: int = 10
    name: str = field(default="CONSISTENT_HASH", init=False)

    def __post_init__(self) -> None:
        if self.virtual_node_count < 1:
            raise InvalidRequestError("a member needs a place on the ring", virtual_node_count=self.virtual_node_count)

    def allocate(
        self, *, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues whose successor on the ring is one of `client_id`'s virtual nodes."""
        if client_id not in client_ids:
            return []
        # A later virtual node replaces an earlier one with the same hash, as in the official ring.
        owners: dict[int, str] = {}
        for member in client_ids:
            for replica in range(self.virtual_node_count):
                owners[ring_hash(f"{member}-{replica}")] = member
        ring = sorted(owners)
        mine = []
        for queue in queues:
            place = bisect_left(ring, ring_hash(official_text(queue)))
            if owners[ring[place % len(ring)]] == client_id:
                mine.append(queue)
        return mine


@dataclass(frozen=True, slots=True)
class AllocateByMachineRoom:
    """Only queues of brokers named `room@name` in the given rooms, shared averagely among all members."""

    rooms: frozenset[str]
    name: str = field(default="MACHINE_ROOM", init=False)

    def allocate(
        self, *, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return this member's run of the rooms' queues, and one of those left over when there are any."""
        if client_id not in client_ids:
            return []
        in_rooms = [queue for queue in queues if self._room(queue) in self.rooms]
        index = client_ids.index(client_id)
        share, remainder = divmod(len(in_rooms), len(client_ids))
        mine = in_rooms[index * share : (index + 1) * share]
        if index < remainder:
            mine.append(in_rooms[share * len(client_ids) + index])
        return mine

    @staticmethod
    def _room(queue: MessageQueue) -> str | None:
        room, separator, rest = queue.broker_name.partition("@")
        return room if separator and "@" not in rest else None


@dataclass(frozen=True, slots=True)
class AllocateMachineRoomNearby:
    """Queues of a room go to the members of that room; a room without members is shared by all of them.

    `broker_room` and `client_room` name the room of a queue's broker and of a client id; neither may return "".
    """

    broker_room: Callable[[MessageQueue], str]
    client_room: Callable[[str], str]
    inner: AllocationStrategy = field(default_factory=AllocateAveragely)

    @property
    def name(self) -> str:
        """The inner strategy's name behind `MACHINE_ROOM_NEARBY-`."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, *, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return this member's share of its own room, then of every room without a member.

        Raises:
            InvalidRequestError: A room is unnamed.
        """
        if client_id not in client_ids:
            return []
        queues_by_room = _grouped(queues, self.broker_room)
        clients_by_room = _grouped(client_ids, self.client_room)
        own_room = self.client_room(client_id)
        mine = []
        for room, room_queues in [(own_room, queues_by_room.pop(own_room, [])), *sorted(queues_by_room.items())]:
            members: Sequence[str] = client_ids
            if room == own_room:
                members = clients_by_room[own_room]
            elif room in clients_by_room:
                continue
            mine += self.inner.allocate(client_id=client_id, queues=room_queues, client_ids=members)
        return mine


def ring_hash(key: str) -> int:
    """Return the place of `key` on the ring: the first four bytes of its MD5, big-endian (a spread, not a secret)."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


def official_text(queue: MessageQueue) -> str:
    """Return the text under which the official clients hash a queue."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _grouped(items: Collection[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise InvalidRequestError("the machine room has no name", item=str(item))
        rooms.setdefault(room, []).append(item)
    return rooms
