"""AsyncPushConsumer: gives a group's messages to a coroutine listener. `PushConsumer` is its blocking half.

    async def listener(messages, context):
        for message in messages:
            await handle(message)

    consumer = AsyncPushConsumer(group="billing", namesrv="127.0.0.1:9876")
    consumer.subscribe("orders", "paid || refunded")
    consumer.register_listener(listener)
    async with consumer:
        await asyncio.Event().wait()

The members of a group share the queues of their topics and must all subscribe to the same. A message is delivered at
least once: again after a failure, after a crash, and after its queue moved to another member while a listener was at
work. Closing lets listeners that have begun finish, commits their offsets and leaves the group, so that the others
take over at once. Source: client/impl/consumer/DefaultMQPushConsumerImpl.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from thermocline.client.client_id import address_of_ids
from thermocline.client.close_once import CloseOnce
from thermocline.client.consumer.concurrent_dispatcher import ConcurrentDispatcher
from thermocline.client.consumer.consumer_calls import ConsumerCalls
from thermocline.client.consumer.consumer_owner import ConsumerOwner
from thermocline.client.consumer.dispatch.consumer_stats import ConsumerStats
from thermocline.client.consumer.dispatch.dispatcher import Dispatcher
from thermocline.client.consumer.dispatch.listener_runner import ListenerRunner, TaskRunner
from thermocline.client.consumer.flow_control import FlowControl, FlowLimits
from thermocline.client.consumer.listener import AsyncConcurrentListener, AsyncOrderlyListener
from thermocline.client.consumer.offset_store import LocalOffsetStore, OffsetStore, RemoteOffsetStore
from thermocline.client.consumer.options import MIB, MessageModel, PushConsumerOptions
from thermocline.client.consumer.orderly_dispatcher import OrderlyDispatcher
from thermocline.client.consumer.queue_workers import QueueWorkers
from thermocline.client.consumer.rebalancer import Rebalancer
from thermocline.client.consumer.server_requests import ServerRequests
from thermocline.client.consumer.start_offset import begin_timestamp_ms
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.async_producer import trace_producer
from thermocline.client.session import ClientSession
from thermocline.client.trace.consume_tracer import ConsumeTracer
from thermocline.client.trace.trace_dispatcher import TraceDispatcher
from thermocline.remoting.bodies import CONSUME_PASSIVELY, ConsumerData, SubscriptionData
from thermocline.remoting.bodies.subscription import parse_subscription
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import ClosedError, InvalidRequestError, UnsupportedRequestError
from thermocline.remoting.records.message_id import UniqueIdGenerator
from thermocline.remoting.topic_validation import check_topic, retry_topic

__all__ = ["AsyncPushConsumer"]

EXPIRY_INTERVAL_S = 60.0


class AsyncPushConsumer(PushConsumerOptions):
    """See the module. Belongs to one event loop; every method must be called on it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._listener: Callable[..., Any] | None = None
        self._is_orderly = False
        self._parts: _Parts | None = None
        self._traces: TraceDispatcher | None = None
        self._closed = False
        self._close = CloseOnce()

    # -- setting up --------------------------------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: str = "*", *, expression_type: str = "TAG") -> None:
        """Consume the messages of a topic: all, or those with one of the tags in `a || b || c`.

        With `expression_type="SQL92"` those whose properties fulfil a condition, `price > 5 AND region = 'eu'`. May be
        called again to change the expression, also while the consumer runs.

        Raises:
            InvalidRequestError: The topic's name or the expression is impossible.
        """
        check_topic(topic)
        version = max(wall_clock_ms(), 1 + max((data.sub_version for data in self._subscriptions.values()), default=0))
        self._subscriptions[topic] = parse_subscription(
            topic, expression, expression_type=expression_type, version=version
        )
        if self._parts is not None:
            self._parts.session.routes.watch(topic)
            self._parts.session.heartbeat_soon()
            self._parts.rebalancer.soon()

    def unsubscribe(self, topic: str) -> None:
        """Consume the topic no longer; its queues are given up at the next rebalance."""
        self._subscriptions.pop(topic, None)
        if self._parts is not None:
            self._parts.session.routes.unwatch(topic)
            self._parts.session.heartbeat_soon()
            self._parts.rebalancer.soon()

    def register_listener(self, listener: AsyncConcurrentListener) -> None:
        """Consume concurrently with this listener.

        Raises:
            ClosedError: The consumer has started.
        """
        self.set_listener(listener, is_orderly=False)

    def register_orderly_listener(self, listener: AsyncOrderlyListener) -> None:
        """Consume each queue in order with this listener.

        Raises:
            ClosedError: The consumer has started.
        """
        self.set_listener(listener, is_orderly=True)

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group and begin to consume.

        Raises:
            InvalidRequestError: No listener is registered, or a broker cannot read an SQL92 expression.
            ResponseError: A broker does not choose messages by such expressions; it needs `enablePropertyFilter`.
            ClosedError: It was started or closed before.
        """
        await self.start_with(TaskRunner(count_max=self.consume_threads))

    async def close(self) -> None:
        """Let listeners that have begun finish, commit, leave the group; idempotent.

        Waits at most `await_termination_ms` for listeners; the messages of one that is not done come again elsewhere.
        Cancelling stops only the waiting.
        """
        self._closed = True
        await self._close.run(self._finish)

    async def _finish(self) -> None:
        parts = self._parts
        if parts is None:
            if self._traces is not None:
                await self._traces.close()
            return
        parts.dispatcher.stop()
        for task in parts.tasks:
            task.cancel()
        await asyncio.gather(*parts.tasks, return_exceptions=True)
        await parts.workers.stop()
        if await parts.runner.close(timeout_ms=self.await_termination_ms):
            await parts.dispatcher.settle()
            await parts.workers.settle()
        await parts.workers.commit(is_confirmed=True)
        await parts.workers.unlock_all()
        if self._traces is not None:
            await self._traces.close()
        await parts.session.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # -- while it runs -----------------------------------------------------------------------------------------------

    @property
    def client_id(self) -> str:
        """The client id of this member; ClosedError before `start`."""
        return self._running().session.client_id

    def assigned_queues(self) -> list[MessageQueue]:
        """Return the queues that this member works on now, sorted."""
        return sorted(self._running().workers.table)

    def suspend(self) -> None:
        """Pull nothing until `resume`; what is pulled already is consumed."""
        self._running().workers.suspend()

    def resume(self) -> None:
        """Pull again after `suspend`."""
        self._running().workers.resume()

    async def fetch_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return all queues of a topic, sorted.

        Raises:
            TopicNotFoundError: There is no such topic.
            UnavailableError: No NameServer answers.
        """
        route = await self._running().session.routes.get(topic)
        return list(route.subscribe_queues)

    # -- for the blocking half, and inside ---------------------------------------------------------------------------

    def set_listener(self, listener: Callable[..., Any], *, is_orderly: bool) -> None:
        """Consume with this listener, of the kind that the runner calls."""
        if self._parts is not None:
            raise ClosedError("the listener is registered before the start")
        self._listener = listener
        self._is_orderly = is_orderly

    async def start_with(self, runner: ListenerRunner) -> None:
        """Join the group and run listeners with this runner; see `start`."""
        if self._parts is not None or self._closed:
            raise ClosedError("a consumer starts once")
        if self._listener is None:
            raise InvalidRequestError("register a listener first", group=self.group)
        if self.message_model is MessageModel.CLUSTERING:
            self.subscribe(retry_topic(self.group))
        try:
            if self.enable_trace:
                self._traces = TraceDispatcher(trace_producer(self, self.group, kind="CONSUME"), topic=self.trace_topic)
                await self._traces.start()
            self._parts = parts = self._assemble(runner, self._listener)
            for topic in self._subscriptions:
                parts.session.routes.watch(topic)
            await parts.session.start()
            for subscription in list(self._subscriptions.values()):
                await parts.calls.check_subscription(subscription)
        except BaseException:
            await self.close()
            raise
        parts.tasks += [
            parts.session.start_task(parts.rebalancer.run()),
            parts.session.start_task(
                _every(
                    self.persist_consumer_offset_interval_ms / 1000,
                    lambda: parts.workers.commit(is_confirmed=False),
                )
            ),
            parts.session.start_task(parts.workers.keep_locks()),
            parts.session.start_task(_every(EXPIRY_INTERVAL_S, _as_coroutine(parts.workers.give_back_expired))),
        ]

    def _assemble(self, runner: ListenerRunner, listener: Callable[..., Any]) -> _Parts:
        now_ms = wall_clock_ms()
        session = ClientSession(self, ConsumerOwner(self), zone_name=self.zone_name)
        calls = ConsumerCalls(session, group=self.group)
        store: OffsetStore = RemoteOffsetStore(calls)
        if self.message_model is MessageModel.BROADCASTING:
            store = LocalOffsetStore(
                directory=self.local_offset_directory, client_id=session.client_id, group=self.group
            )
        stats = ConsumerStats()
        flow = FlowControl(
            FlowLimits(
                queue_messages_max=self.pull_threshold_for_queue,
                queue_bytes_max=self.pull_threshold_size_for_queue_mib * MIB,
                queue_span_max=None if self._is_orderly else self.consume_max_span,
                total_messages_max=self.pull_threshold_for_all,
                total_bytes_max=self.pull_threshold_size_for_all_mib * MIB,
            )
        )
        workers = QueueWorkers(
            self,
            session=session,
            calls=calls,
            store=store,
            flow=flow,
            stats=stats,
            subscriptions=self._subscriptions,
            consume_timestamp_ms=begin_timestamp_ms(self, start_timestamp_ms=now_ms),
            rebalance_soon=lambda: rebalancer.soon(),
        )
        rebalancer = Rebalancer(
            workers,
            session=session,
            calls=calls,
            subscriptions=self._subscriptions,
            allocation=self.allocation,
            message_model=self.message_model,
            interval_ms=self.rebalance_interval_ms,
        )
        tracer = None
        if self._traces is not None:
            unique_ids = UniqueIdGenerator(
                address=address_of_ids(session.client_address),
                process_id=os.getpid(),
                number=random.getrandbits(32),
                clock_ms=wall_clock_ms,
            )
            tracer = ConsumeTracer(self._traces, group=self.group, unique_ids=unique_ids)
        kind = OrderlyDispatcher if self._is_orderly else ConcurrentDispatcher
        dispatcher: Dispatcher = kind(
            listener, options=self, runner=runner, calls=calls, host=workers, stats=stats, tracer=tracer
        )
        workers.bind(dispatcher)
        requests = ServerRequests(
            self,
            workers=workers,
            dispatcher=dispatcher,
            stats=stats,
            subscriptions=self._subscriptions,
            rebalance_soon=rebalancer.soon,
            start_timestamp_ms=now_ms,
        )
        return _Parts(session, calls, workers, rebalancer, dispatcher, runner, requests)

    def consumer_data(self) -> list[ConsumerData]:
        """Return what heartbeats say of this consumer."""
        return [
            ConsumerData(
                group_name=self.group,
                consume_type=CONSUME_PASSIVELY,
                message_model=self.message_model.value,
                consume_from_where=self.consume_from_where.value,
                subscription_data_set=list(self._subscriptions.values()),
            )
        ]

    def answer(self, command: RemotingCommand) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Serve a broker's request."""
        if self._parts is None:
            raise UnsupportedRequestError("this client is not ready", code=command.code)
        return self._parts.requests.answer(command)

    def _running(self) -> _Parts:
        if self._parts is None or self._closed:
            raise ClosedError("the consumer is not started, or is closed")
        return self._parts


class _Parts:
    """What a started consumer consists of."""

    def __init__(
        self,
        session: ClientSession,
        calls: ConsumerCalls,
        workers: QueueWorkers,
        rebalancer: Rebalancer,
        dispatcher: Dispatcher,
        runner: ListenerRunner,
        requests: ServerRequests,
    ) -> None:
        self.session = session
        self.calls = calls
        self.workers = workers
        self.rebalancer = rebalancer
        self.dispatcher = dispatcher
        self.runner = runner
        self.requests = requests
        self.tasks: list[asyncio.Task[Any]] = []


async def _every(interval_s: float, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        await asyncio.sleep(interval_s)
        await step()


def _as_coroutine(function: Callable[[], None]) -> Callable[[], Coroutine[Any, Any, None]]:
    async def call() -> None:
        function()

    return call
