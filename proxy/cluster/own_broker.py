"""OwnBroker: the broker in whose process group a proxy runs; it is asked over its unix socket, not over its port.

    a topic's route -> the address of its master is replaced by the socket -> everything else as for any broker

So a request, an error, a transaction check is the same for it as for the others; only the way there is shorter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from thermocline.proxy.messaging import BrokerQueues, TopicQueues

__all__ = ["OwnBroker"]

MASTER_ID = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBroker:
    """The broker beside this proxy."""

    name: str
    socket_path: str

    def in_queues(self, queues: TopicQueues) -> TopicQueues:
        """A topic's queues with the socket as this broker's address, where a NameServer names its master."""
        return replace(queues, brokers=tuple(map(self._with_socket, queues.brokers)))

    def _with_socket(self, broker: BrokerQueues) -> BrokerQueues:
        if broker.broker_name != self.name or MASTER_ID not in broker.addresses:
            return broker
        return replace(broker, addresses={**broker.addresses, MASTER_ID: self.socket_path})
