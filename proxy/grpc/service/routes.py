"""QueryRoute and QueryAssignment: where a topic's queues are, as clients of this proxy see it.

Every broker is named with the proxy's address. That is the one that is set for the listener that the client connected
to; without it the one that the client says it was configured with, at that listener's port, so that a client behind a
name or a translated address comes back by the way it came.

What a client says of itself is in the answer once for each queue: its size has a bound.

    queues of a route      read-only ones, then write-only ones, then both, numbered through from 0
    assignment             one "any queue" (-1) a broker; for an ordered group, every read queue
Source: RouteActivity.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from thermocline.proxy.clients import ClientKind
from thermocline.proxy.grpc.calls import RpcCall
from thermocline.proxy.grpc.messages import Code, enums, messages
from thermocline.proxy.grpc.service.application import Application
from thermocline.proxy.grpc.service.context import RequestContext
from thermocline.proxy.grpc.service.statuses import CodeError, status
from thermocline.proxy.grpc.service.validation import check_group_name, check_topic_name
from thermocline.proxy.messaging import BrokerQueues, TopicType
from thermocline.remoting.bodies import PERM_READ, PERM_WRITE

__all__ = ["ACCEPTED_TYPES", "Routes", "queue_permissions"]

ENDPOINTS_BYTES_MAX = 4_096
TOPIC_BYTES_MAX = 2_048
ANY_QUEUE = -1
MASTER_ID = 0
ACCEPTED_TYPES: dict[TopicType, tuple[str, ...]] = {
    TopicType.NORMAL: ("NORMAL",),
    TopicType.FIFO: ("FIFO",),
    TopicType.DELAY: ("DELAY",),
    TopicType.TRANSACTION: ("TRANSACTION",),
    TopicType.LITE: ("LITE",),
    TopicType.PRIORITY: ("PRIORITY",),
    TopicType.MIXED: ("NORMAL", "FIFO", "DELAY", "TRANSACTION"),
    TopicType.UNSPECIFIED: ("MESSAGE_TYPE_UNSPECIFIED",),
}
"""What producers may send to a topic of each type."""


class Routes:
    """See the module."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._access = app.config.grpc_access()

    async def query_route(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """QueryRoute."""
        topic = request.topic.name
        check_topic_name(topic)
        _check_sizes(request)
        group = self._group_of(context)
        queues = await self._app.messaging.topic_queues(topic, group=group)
        topic_type = await self._app.messaging.topic_type(topic, group=group)
        endpoints = self._endpoints(request.endpoints, call)
        types = [enums.MessageType[name] for name in ACCEPTED_TYPES[topic_type]]
        answer = messages.QueryRouteResponse(status=status(Code.OK))
        for broker in queues.brokers:
            permissions = queue_permissions(broker)
            for broker_id in broker.addresses:
                for number, permission in enumerate(permissions):
                    queue = answer.message_queues.add(
                        id=number, permission=permission, accept_message_types=types, topic=request.topic
                    )
                    _name_broker(queue.broker, broker.broker_name, broker_id, endpoints)
        return answer

    async def query_assignment(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """QueryAssignment."""
        topic, group = request.topic.name, request.group.name
        check_topic_name(topic)
        check_group_name(group)
        _check_sizes(request)
        queues = await self._app.messaging.topic_queues(topic, group=group)
        config = await self._app.messaging.group_config(group, topic=topic)
        is_ordered = config is not None and config.consume_message_orderly
        endpoints = self._endpoints(request.endpoints, call)
        answer = messages.QueryAssignmentResponse()
        for broker in queues.readable_brokers:
            permission = _permission(broker.permission)
            for number in range(broker.read_count) if is_ordered else (ANY_QUEUE,):
                queue = answer.assignments.add().message_queue
                queue.topic.CopyFrom(request.topic)
                queue.id, queue.permission = number, permission
                _name_broker(queue.broker, broker.broker_name, MASTER_ID, endpoints)
        found = status(Code.OK) if answer.assignments else status(Code.FORBIDDEN, "no readable queue")
        answer.status.CopyFrom(found)
        return answer

    def _group_of(self, context: RequestContext) -> str | None:
        """The consumer group of a client, "" of a producer; None before it has registered."""
        client = self._app.clients.find(context.client_id)
        if client is None:
            return None
        return "" if client.kind == ClientKind.PRODUCER else client.names[0]

    def _endpoints(self, asked: Any, call: RpcCall) -> Any:
        """The proxy's addresses for a client."""
        listener = self._app.listeners.of(call.local_host)
        access = self._access if listener is None else listener.access
        if access is None and asked.addresses:
            endpoints = messages.Endpoints()
            endpoints.CopyFrom(asked)
            if not self._app.config.use_endpoint_port:
                port = self._app.grpc_port if listener is None else listener.place[1]
                for address in endpoints.addresses:
                    address.port = port
            return endpoints
        host, port = access or call.local_host
        return messages.Endpoints(scheme=_scheme(host), addresses=[messages.Address(host=host, port=port)])


def _check_sizes(request: Any) -> None:
    """Pass what an answer repeats for each queue.

    Raises:
        CodeError: It is too large.
    """
    if request.endpoints.ByteSize() > ENDPOINTS_BYTES_MAX:
        raise CodeError(Code.ILLEGAL_ACCESS_POINT, f"endpoints have at most {ENDPOINTS_BYTES_MAX} bytes")
    if request.topic.ByteSize() > TOPIC_BYTES_MAX:
        raise CodeError(Code.ILLEGAL_TOPIC, f"a topic and its namespace have at most {TOPIC_BYTES_MAX} bytes")


def _scheme(host: str) -> int:
    scheme = enums.AddressScheme
    try:
        found: int = scheme.IPv6 if ipaddress.ip_address(host).version == 6 else scheme.IPv4
    except ValueError:
        found = scheme.DOMAIN_NAME
    return found


def queue_permissions(broker: BrokerQueues) -> list[int]:
    """The permissions of a broker's queues, in the order of their numbers."""
    return list(_permissions(broker))


def _permissions(broker: BrokerQueues) -> Iterator[int]:
    permission = enums.Permission
    reads = broker.read_count if broker.permission & PERM_READ else 0
    writes = broker.write_count if broker.permission & PERM_WRITE else 0
    if not broker.permission & (PERM_READ | PERM_WRITE):
        for _ in range(max(1, broker.read_count, broker.write_count)):
            yield permission.NONE
        return
    both = min(reads, writes)
    for count, value in (
        (reads - both, permission.READ),
        (writes - both, permission.WRITE),
        (both, permission.READ_WRITE),
    ):
        for _ in range(count):
            yield value


def _permission(permission: int) -> int:
    value: int = enums.Permission.READ_WRITE if permission & PERM_WRITE else enums.Permission.READ
    return value


def _name_broker(broker: Any, name: str, broker_id: int, endpoints: Any) -> None:
    broker.name, broker.id = name, broker_id
    broker.endpoints.CopyFrom(endpoints)
