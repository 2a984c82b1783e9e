"""TopicRoute: where a topic's queues are, and which of them one may send to or read from.

Derived from a NameServer's answer by rules that all clients share
  - to send: the write queues of brokers whose permission allows it and whose master is there, by broker name;
  - to read: the read queues of brokers whose permission allows it;
  - an order configuration (`broker:count;...`) replaces both: its queues stay even while a broker is away, so that a
    key keeps its queue;
  - a static topic has its logic queues, to send and to read, under the name of a broker that does not exist; `leaders`
    says which broker leads each of them now (remoting/bodies/logic_queue.py);
  - a topic that does not exist yet borrows the route of the topic that it will inherit from, with at most as many
    queues as the producer asks for.
Source: client/impl/factory/MQClientInstance.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.bodies import PERM_READ, PERM_WRITE, QueueData, TopicRouteData
from thermocline.remoting.bodies.logic_queue import leaders
from thermocline.remoting.errors import InvalidRequestError, UnavailableError

__all__ = ["MASTER_ID", "BrokerAddress", "TopicRoute", "borrowed_route", "read_route"]

MASTER_ID = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """One broker process."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRoute:
    """One topic's queues and the brokers that have them."""

    topic: str
    publish_queues: tuple[MessageQueue, ...]
    subscribe_queues: tuple[MessageQueue, ...]
    brokers: tuple[BrokerAddress, ...]
    is_borrowed: bool = False
    """Whether the topic does not exist yet."""
    addresses: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Broker name -> broker id -> address."""
    leaders: Mapping[MessageQueue, str] = field(default_factory=dict)
    """Logic queue -> the broker that leads it; empty unless the topic is static."""

    def broker_of(self, queue: MessageQueue) -> str:
        """Return the broker to ask about a queue: the one it is named after, or a logic queue's leader."""
        return self.leaders.get(queue, queue.broker_name)

    def master(self, broker_name: str) -> str:
        """Return the address of a broker's master.

        Raises:
            UnavailableError: The route has none.
        """
        address = self.addresses.get(broker_name, {}).get(MASTER_ID)
        if address is None:
            raise UnavailableError("the broker has no master now", topic=self.topic, broker_name=broker_name)
        return address

    def reader(self, broker_name: str, broker_id: int = MASTER_ID) -> str:
        """Return the address to read from: the broker with that id, of replicas else the next, else the least id.

        Raises:
            UnavailableError: The route has none.
        """
        by_id = self.addresses.get(broker_name)
        if not by_id:
            raise UnavailableError("the broker is not there now", topic=self.topic, broker_name=broker_name)
        address = by_id.get(broker_id)
        if address is None and broker_id != MASTER_ID:
            address = by_id.get(broker_id + 1)
        return address or by_id[min(by_id)]


def read_route(topic: str, data: TopicRouteData) -> TopicRoute:
    """Return the route in a NameServer's answer.

    Raises:
        InvalidRequestError: The order configuration is not `broker:count;...`.
    """
    addresses = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    brokers = tuple(
        BrokerAddress(cluster=broker.cluster, broker_name=broker.broker_name, broker_id=broker_id, address=address)
        for broker in sorted(data.broker_datas, key=lambda broker: broker.broker_name)
        for broker_id, address in sorted(broker.broker_addrs.items())
    )
    queue_datas = sorted(data.queue_datas, key=lambda queues: queues.broker_name)
    publish_queues: list[MessageQueue] = []
    subscribe_queues: list[MessageQueue] = []
    for queues in queue_datas:
        if queues.perm & PERM_WRITE and MASTER_ID in addresses.get(queues.broker_name, ()):
            publish_queues += _queues(topic, queues.broker_name, queues.write_queue_nums)
        if queues.perm & PERM_READ:
            subscribe_queues += _queues(topic, queues.broker_name, queues.read_queue_nums)
    if data.order_topic_conf:
        publish_queues = _ordered_queues(topic, data.order_topic_conf)
    leader_names = _leaders(topic, data)
    if leader_names:
        subscribe_queues = sorted(leader_names)
        if not data.order_topic_conf:
            publish_queues = subscribe_queues
    return TopicRoute(
        topic=topic,
        publish_queues=tuple(publish_queues),
        subscribe_queues=tuple(subscribe_queues),
        brokers=brokers,
        addresses=addresses,
        leaders=leader_names,
    )


def borrowed_route(topic: str, template: TopicRouteData, *, queue_nums_max: int) -> TopicRoute:
    """Return the route of a topic that its first message will create, from the route of the topic it inherits from."""
    clamped = TopicRouteData(
        broker_datas=template.broker_datas,
        queue_datas=[
            QueueData(
                broker_name=queues.broker_name,
                perm=queues.perm,
                read_queue_nums=min(queues.read_queue_nums, queue_nums_max),
                write_queue_nums=min(queues.read_queue_nums, queue_nums_max),
                topic_sys_flag=queues.topic_sys_flag,
            )
            for queues in template.queue_datas
        ],
    )
    route = read_route(topic, clamped)
    return TopicRoute(
        topic=topic,
        publish_queues=route.publish_queues,
        subscribe_queues=(),
        brokers=route.brokers,
        is_borrowed=True,
        addresses=route.addresses,
    )


def _queues(topic: str, broker_name: str, count: int) -> list[MessageQueue]:
    return [MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id) for queue_id in range(count)]


def _leaders(topic: str, data: TopicRouteData) -> dict[MessageQueue, str]:
    return {
        MessageQueue(topic=topic, broker_name=name, queue_id=queue_id): leader
        for (name, queue_id), leader in leaders(data.topic_queue_mapping_by_broker or {}).items()
    }


def _ordered_queues(topic: str, configuration: str) -> list[MessageQueue]:
    queues: list[MessageQueue] = []
    for part in configuration.split(";"):
        broker_name, separator, count = part.strip().rpartition(":")
        if not part.strip():
            continue
        if not (separator and count.isdecimal()):
            raise InvalidRequestError("order configuration is broker:count;...", topic=topic, part=part)
        queues += _queues(topic, broker_name, int(count))
    return queues
