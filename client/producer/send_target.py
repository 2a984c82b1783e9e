"""Send targets: a topic's writable queues as lanes, each with its broker's address and its frame templates.

Made once a route, so that choosing a queue and writing its frame costs nothing that could have been done before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.producer.send_frame import SendTemplate
from thermocline.client.topic_route import TopicRoute
from thermocline.remoting.errors import UnavailableError

__all__ = ["Lane", "SendTarget"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Lane:
    """One writable queue."""

    queue: MessageQueue
    broker_name: str
    """The broker that stores its messages; a logic queue's own broker name is virtual."""
    address: str
    single: SendTemplate
    batch: SendTemplate


class SendTarget:
    """One topic's lanes and the place of the next message in their round."""

    __slots__ = ("_by_queue", "_next", "broker_count", "lanes", "queues")

    def __init__(self, route: TopicRoute, options: ProducerOptions, *, start: int) -> None:
        lanes = []
        for queue in route.publish_queues:
            broker_name = route.broker_of(queue)
            address = route.addresses.get(broker_name, {}).get(0)
            if address is None:
                continue  # an ordered topic keeps the queues of a broker that is away
            render = functools.partial(
                SendTemplate.render,
                group=options.group,
                topic=route.topic,
                broker_name=broker_name,
                queue_id=queue.queue_id,
                default_topic=options.create_topic_key,
                default_topic_queue_nums=options.default_topic_queue_nums,
                credentials=options.credentials,
            )
            lanes.append(
                Lane(queue=queue, broker_name=broker_name, address=address, single=render(), batch=render(batch=True))
            )
        self.lanes = lanes
        self.queues = route.publish_queues
        self.broker_count = len({lane.broker_name for lane in lanes})
        self._by_queue = {lane.queue: lane for lane in lanes}
        self._next = start

    def next_lane(self, *, avoid_broker: str | None = None) -> Lane:
        """Return the next lane of the round, on another broker if there is one.

        Raises:
            UnavailableError: No broker takes messages for this topic now.
        """
        lanes = self.lanes
        if not lanes:
            raise UnavailableError("no broker takes messages for this topic now")
        self._next += 1
        lane = lanes[self._next % len(lanes)]
        if avoid_broker is not None and self.broker_count > 1:
            while lane.broker_name == avoid_broker:
                self._next += 1
                lane = lanes[self._next % len(lanes)]
        return lane

    def next_fit_lane(self, is_fit: Callable[[str], bool], *, avoid_broker: str | None) -> Lane | None:
        """Return the next lane of the round whose broker is fit, and not the one to avoid; None when there is none."""
        lanes = self.lanes
        for _ in lanes:
            self._next += 1
            lane = lanes[self._next % len(lanes)]
            if lane.broker_name != avoid_broker and is_fit(lane.broker_name):
                return lane
        return None

    def lane_of(self, queue: MessageQueue) -> Lane:
        """Return a chosen queue's lane.

        Raises:
            UnavailableError: Its broker is away, or it is no writable queue of the topic.
        """
        lane = self._by_queue.get(queue)
        if lane is None:
            raise UnavailableError("no broker takes messages for this queue now", queue=str(queue))
        return lane
