"""FakeBroker: a whole RocketMQ cluster for tests, in one object: a NameServer and brokers on free loopback ports.

    with FakeBroker() as broker, Producer(group="tests", namesrv=broker.namesrv_address) as producer:
        producer.send(Message("orders", b"hello"))
        assert [message.body for message in broker.messages("orders")] == [b"hello"]

It speaks the real protocol on real sockets, to these clients and to others, and keeps everything in memory. It serves
sending (single, batch, one-way, in a transaction), replies, recall, pulling with long polling, POP, consumer offsets,
heartbeats, group membership, queue locks, retries and dead letters, lookups, and what the admin client asks. Delayed
and retried messages come at once, unless `delays_messages=True`; producers are asked about transactions by
`ask_producers`. Messages can be chosen by SQL92 expressions with `property_filter=True`.

Tests also look behind: `messages`, `committed_offset`, `requests`; make things go wrong: `refuse`, `stay_silent`,
`drop_connections`, `hide_broker`, `move_broker`; and wait for what happens elsewhere: `wait_until`. All methods may be
called from any thread. Source of the behaviour: recorded dialogues with Apache RocketMQ 5.5.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Self, TypeVar

from thermocline.client.blocking import BackgroundLoop
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage, decode_messages
from thermocline.client.testing.fake_name_server import FakeNameServer
from thermocline.client.testing.fake_node import FakeNode
from thermocline.client.testing.fault_plan import FaultPlan, ReceivedRequest
from thermocline.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import InvalidParameterError, RequestTimeoutError
from thermocline.remoting.response_code import ResponseCode

__all__ = ["FakeBroker"]

T = TypeVar("T")

POLL_INTERVAL_S = 0.005


class FakeBroker:
    """See the module. `with` starts and closes it; it starts once."""

    def __init__(
        self,
        *,
        broker_names: Sequence[str] = ("broker-a",),
        cluster: str = "DefaultCluster",
        host: str = "127.0.0.1",
        auto_create_topics: bool = True,
        default_topic_queue_nums: int = 8,
        delays_messages: bool = False,
        property_filter: bool = False,
        zones: Mapping[str, str] = MappingProxyType({}),
        clock_ms: Callable[[], int] = wall_clock_ms,
        seed: int = 0,
    ) -> None:
        """`zones`: broker name -> the zone that it is in."""
        self._host = host
        self._zones = zones
        self._loop = BackgroundLoop(name="fake broker")
        self._nodes: list[FakeNode] = []
        self._make_node: Callable[[str], FakeNode] = lambda name: FakeNode(
            name,
            cluster=cluster,
            auto_create_topics=auto_create_topics,
            default_topic_queue_nums=default_topic_queue_nums,
            delays_messages=delays_messages,
            has_property_filter=property_filter,
            clock_ms=clock_ms,
            random_source=random.Random(seed),
        )
        self._broker_names = list(broker_names)
        self._name_server: FakeNameServer | None = None

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen on free ports."""
        self._loop.start()
        self._loop.run(self._start())

    def close(self) -> None:
        """Drop every connection and stop; idempotent."""
        if self._name_server is not None:
            self._loop.run(self._close())
            self._name_server = None
        self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def namesrv_address(self) -> str:
        """What clients are given as `namesrv`."""
        return self._running().address

    @property
    def broker_addresses(self) -> dict[str, str]:
        """Broker name -> address."""
        return {node.name: node.address for node in self._nodes}

    # -- setting up --------------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, *, queue_nums: int = 4, perm: int = 6) -> None:
        """Create a topic on every broker."""

        def create() -> None:
            for node in self._nodes:
                node.store.create_topic(
                    TopicConfig(topic_name=topic, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm)
                )

        self._on_loop(create)

    def create_group(self, group: str, *, retry_max_times: int = 16) -> None:
        """Create a consumer group on every broker; groups that were not created are made with defaults."""

        def create() -> None:
            for node in self._nodes:
                node.group_configs[group] = SubscriptionGroupConfig(group_name=group, retry_max_times=retry_max_times)

        self._on_loop(create)

    def set_min_offset(self, topic: str, queue_id: int, offset: int, *, broker_name: str | None = None) -> None:
        """Pretend that a queue's messages below `offset` are gone."""

        def change() -> None:
            self._node(broker_name).store.topic(topic).min_offsets[queue_id] = offset

        self._on_loop(change)

    # -- looking behind ----------------------------------------------------------------------------------------------

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return everything a topic holds, by broker, queue and offset; nothing for an unknown topic."""

        def read() -> list[ReceivedMessage]:
            found: list[ReceivedMessage] = []
            for node in self._nodes:
                stored = node.store.topics.get(topic)
                for queue_id, records in enumerate([] if stored is None else stored.queues):
                    queue = MessageQueue(topic=topic, broker_name=node.name, queue_id=queue_id)
                    found += decode_messages(b"".join(one.record for one in records), queue=queue)
            return found

        return self._on_loop(read)

    def committed_offset(self, group: str, topic: str, queue_id: int, *, broker_name: str | None = None) -> int | None:
        """Return a group's offset in a queue, None when it has none."""
        return self._on_loop(lambda: self._node(broker_name).store.consumer_offsets.get((group, topic, queue_id)))

    def committed_total(self, group: str, topic: str) -> int:
        """Return the sum of a group's offsets in all queues of a topic."""

        def read() -> int:
            tables = [node.store.consumer_offsets for node in self._nodes]
            return sum(value for table in tables for key, value in table.items() if key[:2] == (group, topic))

        return self._on_loop(read)

    def group_members(self, group: str, *, broker_name: str | None = None) -> list[str]:
        """Return the client ids of a consumer group's members."""

        def read() -> list[str]:
            found = self._node(broker_name).groups.consumers.get(group)
            return [] if found is None else sorted(found.members)

        return self._on_loop(read)

    def open_transactions(self, topic: str) -> int:
        """Return how many messages of a topic wait for the end of their transaction."""
        return self._on_loop(lambda: sum(node.transactions.count(topic) for node in self._nodes))

    def requests(self, code: int, *, broker_name: str | None = None) -> list[ReceivedRequest]:
        """Return the requests with this code that a broker (or "namesrv") received, oldest first."""
        return self._on_loop(
            lambda: [request for request in self._faults(broker_name).requests if request.code == code]
        )

    def wait_until(self, condition: Callable[[], bool], *, timeout_s: float = 10.0, what: str = "") -> None:
        """Return as soon as `condition` holds; it is asked again and again, in the calling thread.

        Raises:
            RequestTimeoutError: It did not come to hold in time.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise RequestTimeoutError("what the test waits for did not happen", what=what, timeout_s=timeout_s)
            time.sleep(POLL_INTERVAL_S)

    def ask_producers(self) -> int:
        """Ask a producer of its group about each open transaction, once; return for how many there was one.

        A real broker does so by itself after some seconds; this one only when the test calls this method.
        """
        return self._on_loop(lambda: sum(node.transactions.ask() for node in self._nodes))

    # -- making things go wrong --------------------------------------------------------------------------------------

    def refuse(
        self,
        code: int,
        *,
        response_code: int = ResponseCode.SYSTEM_ERROR,
        remark: str = "refused by the test",
        times: int = 1,
        broker_name: str | None = None,
    ) -> None:
        """Answer the next `times` requests with this code by `response_code`; "namesrv" names the NameServer."""
        self._on_loop(
            lambda: self._faults(broker_name).add(code, response_code=response_code, remark=remark, times=times)
        )

    def stay_silent(self, code: int, *, times: int = 1, broker_name: str | None = None) -> None:
        """Do not answer the next `times` requests with this code."""
        self._on_loop(lambda: self._faults(broker_name).add(code, response_code=None, remark="", times=times))

    def answer_sends_with(self, response_code: int, *, broker_name: str | None = None) -> None:
        """Store messages, but answer with this code from now on: FLUSH_DISK_TIMEOUT and the like, or SUCCESS."""

        def change() -> None:
            self._node(broker_name).send_status = response_code

        self._on_loop(change)

    def drop_connections(self, *, broker_name: str | None = None) -> None:
        """Break every connection to a broker; clients may come again."""

        def drop() -> None:
            for connection in self._node(broker_name).server.connections:
                connection.abort()

        self._on_loop(drop)

    def hide_broker(self, broker_name: str, *, hidden: bool = True) -> None:
        """Have the NameServer forget a broker, or know it again; the broker itself serves on."""

        def change() -> None:
            names = self._running().hidden_brokers
            names.add(broker_name) if hidden else names.discard(broker_name)

        self._on_loop(change)

    def move_broker(self, broker_name: str, address: str) -> None:
        """Have the NameServer name another address for a broker, as after a change of its master; "": only a slave."""
        self._on_loop(lambda: self._running().moved_brokers.update({broker_name: address}))

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        for name in self._broker_names:
            node = self._make_node(name)
            await node.start(self._host)
            self._nodes.append(node)
        self._name_server = FakeNameServer(self._nodes, zones=self._zones)
        await self._name_server.start(self._host)

    async def _close(self) -> None:
        for node in self._nodes:
            await node.close()
        await self._running().close()

    def _running(self) -> FakeNameServer:
        assert self._name_server is not None, "the fake broker is not started"
        return self._name_server

    def _node(self, broker_name: str | None) -> FakeNode:
        for node in self._nodes:
            if broker_name in (None, node.name):
                return node
        raise InvalidParameterError("there is no such fake broker", broker_name=broker_name)

    def _faults(self, broker_name: str | None) -> FaultPlan:
        return self._running().faults if broker_name == "namesrv" else self._node(broker_name).faults

    def _on_loop(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._loop.run(call())
