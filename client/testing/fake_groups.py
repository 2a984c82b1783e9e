"""FakeGroups: who is connected to a fake broker, and who holds which queue lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from thermocline.remoting.bodies import ConsumerData, HeartbeatData, MessageQueue, SubscriptionData
from thermocline.remoting.connections import Connection
from thermocline.remoting.language_code import LanguageCode

__all__ = ["FakeGroups", "Member"]

LOCK_LIVE_MS = 60_000


@dataclass(slots=True)
class Member:
    """One client of one group."""

    client_id: str
    connection: Connection
    language: LanguageCode
    version: int


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a consumer group and what they want."""

    data: ConsumerData
    members: dict[str, Member] = field(default_factory=dict)

    @property
    def subscriptions(self) -> dict[str, SubscriptionData]:
        """Topic -> subscription."""
        return {subscription.topic: subscription for subscription in self.data.subscription_data_set}


class FakeGroups:
    """Members and locks of one fake broker."""

    def __init__(self, *, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[str, Member]] = {}
        self._locks: dict[tuple[str, MessageQueue], tuple[str, int]] = {}

    def heartbeat(self, heartbeat: HeartbeatData, member: Member) -> list[str]:
        """Take note of a client; return the consumer groups whose membership or subscription changed."""
        for producer in heartbeat.producer_data_set:
            self.producers.setdefault(producer.group_name, {})[heartbeat.client_id] = member
        changed = []
        for data in heartbeat.consumer_data_set:
            group = self.consumers.get(data.group_name)
            if group is None:
                group = self.consumers[data.group_name] = ConsumerGroup(data)
            before = (set(group.members), set(group.subscriptions))
            group.data = data
            group.members[heartbeat.client_id] = member
            if before != (set(group.members), set(group.subscriptions)):
                changed.append(data.group_name)
        return changed

    def remove(self, client_id: str, *, producer_group: str | None, consumer_group: str | None) -> list[str]:
        """Forget a client in the groups named; return the consumer groups whose membership changed."""
        if producer_group is not None:
            self.producers.get(producer_group, {}).pop(client_id, None)
        group = self.consumers.get(consumer_group or "")
        if group is None or group.members.pop(client_id, None) is None:
            return []
        assert consumer_group is not None
        if not group.members:
            del self.consumers[consumer_group]
        return [consumer_group]

    def remove_connection(self, connection: Connection) -> list[str]:
        """Forget every client on a connection; return the consumer groups whose membership changed."""
        for members in self.producers.values():
            for client_id in [key for key, member in members.items() if member.connection is connection]:
                del members[client_id]
        changed: list[str] = []
        for name, group in list(self.consumers.items()):
            for client_id in [key for key, member in group.members.items() if member.connection is connection]:
                changed += self.remove(client_id, producer_group=None, consumer_group=name)
        return changed

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock queues for a client, or renew its locks; return those that it has now."""
        now_ms = self._clock_ms()
        locked = []
        for queue in queues:
            owner, expires_ms = self._locks.get((group, queue), (client_id, 0))
            if owner == client_id or expires_ms <= now_ms:
                self._locks[group, queue] = (client_id, now_ms + LOCK_LIVE_MS)
                locked.append(queue)
        return locked

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release a client's locks."""
        for queue in queues:
            if self._locks.get((group, queue), ("", 0))[0] == client_id:
                del self._locks[group, queue]
