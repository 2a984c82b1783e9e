"""AsyncPullConsumer: the application asks for messages. `PullConsumer` is its blocking half.

    async with AsyncPullConsumer(group="audit", namesrv="127.0.0.1:9876") as consumer:
        await consumer.subscribe("orders")
        while True:
            for message in await consumer.poll():
                handle(message)

Either `subscribe`, and the group's members share the queues; or `assign` queues, which ignores other members. Messages
are fetched ahead, within the flow control bounds, while the application works on those that it has.

Commits: with `auto_commit` a message is committed once the application asks for more, so that a crash repeats messages
but never loses one; closing commits what was polled last, leaving the `with` block by an exception does not. Without
it, call `commit`. Source: client/impl/consumer/DefaultLitePullConsumerImpl.java, Apache RocketMQ 5.3 (whose automatic
commit may run ahead of the application).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from thermocline.client.busy_retry import BusyPauses
from thermocline.client.close_once import CloseOnce
from thermocline.client.consumer.consumer_calls import ConsumerCalls, PullResult, PullStatus
from thermocline.client.consumer.consumer_owner import ConsumerOwner
from thermocline.client.consumer.flow_control import FlowControl, FlowLimits
from thermocline.client.consumer.offset_store import LocalOffsetStore, OffsetStore, RemoteOffsetStore
from thermocline.client.consumer.options import MIB, MessageModel, PullConsumerOptions
from thermocline.client.consumer.pulled_queue import PulledQueue
from thermocline.client.consumer.rebalancer import RETRY_PAUSE_S, Rebalancer
from thermocline.client.consumer.running_info import answer_running_info
from thermocline.client.consumer.start_offset import begin_timestamp_ms, find_start_offset
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.session import ClientSession
from thermocline.remoting.bodies import CONSUME_ACTIVELY, ConsumerData, SubscriptionData
from thermocline.remoting.bodies.subscription import parse_subscription
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import (
    BrokerBusyError,
    ClosedError,
    InvalidRequestError,
    MQError,
    ObjectNotFoundError,
    UnavailableError,
    UnsupportedRequestError,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.topic_validation import check_topic

__all__ = ["AsyncPullConsumer"]

logger = logging.getLogger(__name__)

FLOW_CONTROL_PAUSE_S = 0.02
UNSUBSCRIBED_PAUSE_S = 0.1
PULL_BYTES_MAX = 2**31 - 1


class AsyncPullConsumer(PullConsumerOptions):
    """See the module. Belongs to one event loop; every method must be called on it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._assigned: dict[MessageQueue, SubscriptionData] = {}
        self._table: dict[MessageQueue, PulledQueue] = {}
        self._loops: dict[PulledQueue, asyncio.Task[Any]] = {}
        self._parts: _Parts | None = None
        self._arrived = asyncio.Event()
        self._changed = asyncio.Event()
        self._closed = False
        self._close = CloseOnce()
        self._start_timestamp_ms = 0

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to work.

        Raises:
            InvalidRequestError: A broker cannot read an SQL92 expression.
            ResponseError: A broker does not choose messages by such expressions; it needs `enablePropertyFilter`.
            ClosedError: It was started or closed before.
        """
        if self._parts is not None or self._closed:
            raise ClosedError("a consumer starts once")
        session = ClientSession(self, ConsumerOwner(self), zone_name=self.zone_name)
        calls = ConsumerCalls(session, group=self.group)
        store: OffsetStore = RemoteOffsetStore(calls)
        if self.message_model is MessageModel.BROADCASTING:
            store = LocalOffsetStore(
                directory=self.local_offset_directory, client_id=session.client_id, group=self.group
            )
        flow = FlowControl(
            FlowLimits(
                queue_messages_max=self.pull_threshold_for_queue,
                queue_bytes_max=self.pull_threshold_size_for_queue_mib * MIB,
                queue_span_max=self.consume_max_span,
                total_messages_max=self.pull_threshold_for_all,
                total_bytes_max=self.pull_threshold_size_for_all_mib * MIB,
            )
        )
        rebalancer = Rebalancer(
            self,
            session=session,
            calls=calls,
            subscriptions=self._subscriptions,
            allocation=self.allocation,
            message_model=self.message_model,
            interval_ms=self.rebalance_interval_ms,
        )
        self._parts = parts = _Parts(session, calls, store, flow, rebalancer)
        self._start_timestamp_ms = wall_clock_ms()
        for topic in {*self._subscriptions, *(queue.topic for queue in self._assigned)}:
            session.routes.watch(topic)
        try:
            await session.start()
            assigned = {one.topic: one for one in self._assigned.values()}
            for subscription in (*self._subscriptions.values(), *assigned.values()):
                await calls.check_subscription(subscription)
        except BaseException:
            await self.close_after(has_consumed=False)
            raise
        parts.tasks.append(session.start_task(self._keep_assigned()))
        if self._subscriptions:
            parts.start_rebalancing()
        if self.auto_commit:
            parts.tasks.append(session.start_task(self._commit_by_itself()))

    async def close(self) -> None:
        """Commit what was polled (with `auto_commit`), leave the group; idempotent.

        Cancelling stops only the waiting.
        """
        await self.close_after(has_consumed=True)

    async def close_after(self, *, has_consumed: bool) -> None:
        """As `close`; `has_consumed` says whether the messages of the last poll were dealt with."""
        self._closed = True
        self._arrived.set()
        await self._close.run(lambda: self._finish(has_consumed=has_consumed))

    async def _finish(self, *, has_consumed: bool) -> None:
        parts = self._parts
        if parts is None:
            return
        for task in (*parts.tasks, *self._loops.values()):
            task.cancel()
        await asyncio.gather(*parts.tasks, *self._loops.values(), return_exceptions=True)
        if self.auto_commit:
            if has_consumed:
                self._mark_consumed()
            await parts.store.persist(self._committable(), is_confirmed=True)
        await parts.session.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close_after(has_consumed=exc_type is None)

    # -- what to consume ---------------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, expression: str = "*", *, expression_type: str = "TAG") -> None:
        """Share the messages of a topic with the group: all, or those with one of the tags in `a || b || c`.

        With `expression_type="SQL92"` those whose properties fulfil a condition, `price > 5 AND region = 'eu'`.

        Raises:
            InvalidRequestError: Queues are assigned already, or topic or expression are impossible.
            ResponseError: A broker does not choose messages by such expressions; it needs `enablePropertyFilter`.
        """
        check_topic(topic)
        if self._assigned:
            raise InvalidRequestError("either subscribe or assign", group=self.group)
        subscription = parse_subscription(topic, expression, expression_type=expression_type, version=wall_clock_ms())
        if self._parts is not None:
            await self._parts.calls.check_subscription(subscription)
        self._subscriptions[topic] = subscription
        if self._parts is not None:
            self._parts.session.routes.watch(topic)
            await self._parts.session.routes.refresh_all()
            await self._parts.session.send_heartbeats()
            self._parts.start_rebalancing()

    async def unsubscribe(self, topic: str) -> None:
        """Consume the topic no longer; its queues are given up at the next rebalance."""
        self._subscriptions.pop(topic, None)
        if self._parts is not None:
            self._parts.session.routes.unwatch(topic)
            self._parts.session.heartbeat_soon()
            self._parts.rebalancer.soon()

    async def assign(
        self, queues: Iterable[MessageQueue], *, expression: str = "*", expression_type: str = "TAG"
    ) -> None:
        """Consume exactly these queues, whatever the group's other members do; replaces an earlier assignment.

        Raises:
            InvalidRequestError: Topics are subscribed already, or the expression is impossible.
            ResponseError: A broker does not choose messages by such expressions; it needs `enablePropertyFilter`.
        """
        if self._subscriptions:
            raise InvalidRequestError("either subscribe or assign", group=self.group)
        assigned = {
            queue: parse_subscription(queue.topic, expression, expression_type=expression_type) for queue in queues
        }
        if self._parts is not None:
            for subscription in {one.topic: one for one in assigned.values()}.values():
                await self._parts.calls.check_subscription(subscription)
        self._assigned = assigned
        for queue in [queue for queue in self._table if queue not in self._assigned]:
            await self.give_up(queue)
        if self._parts is not None:
            for queue in self._assigned:
                self._parts.session.routes.watch(queue.topic)
            await self._parts.session.routes.refresh_all()
            await self._parts.session.send_heartbeats()
            await self._take_up_assigned()
        self._changed.set()

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that are consumed now, sorted."""
        return sorted(self._table)

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """Return all queues of a topic, sorted.

        Raises:
            TopicNotFoundError: There is no such topic.
            UnavailableError: No NameServer answers.
        """
        return list((await self._running().session.routes.get(topic)).subscribe_queues)

    # -- consuming ---------------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int | None = None, *, count_max: int | None = None) -> list[ReceivedMessage]:
        """Return messages as soon as there are any, at most `count_max`; nothing after `timeout_ms`.

        With `auto_commit` this says that the messages of earlier polls are consumed. Cancelling is safe.

        Raises:
            ClosedError: The consumer is not started, or closed.
        """
        self._running()
        if self.auto_commit:
            self._mark_consumed()
        deadline = time.monotonic() + (self.poll_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        while True:
            messages = self._take_arrived(count_max or self.pull_batch_size)
            if messages:
                return messages
            self._arrived.clear()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._arrived.wait()
            except TimeoutError:
                return []
            self._running()

    def take_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Give the messages of one poll again: its caller has gone without them."""
        pulled = self._table.get(messages[0].queue) if messages else None
        if pulled is not None:
            pulled.take_back(messages)
            self._arrived.set()

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Give message after message, until the consumer is closed. Each is polled alone: see `poll` for commits."""
        if not self._closed:
            self._running()
        while True:
            try:
                messages = await self.poll(count_max=1)
            except ClosedError:
                return
            for message in messages:
                yield message

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store offsets: those given, or the places behind everything polled.

        Raises:
            UnavailableError: A broker did not take its offset, or the file of broadcast offsets cannot be written.
            ClosedError: The consumer is not started, or closed.
        """
        parts = self._running()
        if offsets is None:
            self._mark_consumed()
            offsets = self._committable()
        if self.message_model is MessageModel.BROADCASTING:
            await parts.store.persist(offsets, is_confirmed=True)
            if any([await parts.store.read(queue) != offset for queue, offset in offsets.items()]):
                raise UnavailableError("the file of broadcast offsets cannot be written", group=self.group)
            return
        for queue, offset in offsets.items():
            await parts.calls.commit_offset(queue, offset, is_confirmed=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset in a queue, or None; UnavailableError when no broker can answer."""
        return await self._running().store.read(queue)

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that `poll` gives from a queue; ObjectNotFoundError: not consumed."""
        return self._pulled(queue).position

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset` in a queue; ObjectNotFoundError when it is not consumed here."""
        if offset < 0:
            raise InvalidRequestError("an offset is not negative", offset=offset)
        pulled = self._pulled(queue)
        pulled.seek(offset)
        self._restart_loop(pulled)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that a queue still holds; errors of `seek` and UnavailableError."""
        self._pulled(queue)
        self.seek(queue, await self._running().calls.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the last message of a queue; errors of `seek` and UnavailableError."""
        self._pulled(queue)
        self.seek(queue, await self._running().calls.max_offset(queue))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the first offset stored at that time or later; UnavailableError when no broker can answer."""
        return await self._running().calls.offset_by_time(queue, timestamp_ms)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Give no messages from these queues until `resume`; ObjectNotFoundError when one is not consumed here."""
        for queue in queues:
            self._pulled(queue).is_paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Give messages from these queues again; ObjectNotFoundError when one is not consumed here."""
        for queue in queues:
            self._pulled(queue).is_paused = False
        self._arrived.set()

    @property
    def client_id(self) -> str:
        """The client id of this consumer; ClosedError before `start`."""
        return self._running().session.client_id

    # -- queues coming and going -------------------------------------------------------------------------------------

    def queues(self) -> set[MessageQueue]:
        """What this member works on; see `RebalanceOwner`."""
        return set(self._table)

    async def take_up(self, queue: MessageQueue) -> None:
        """Begin to work on a queue; see `RebalanceOwner`."""
        parts = self._running()
        offset = await find_start_offset(
            queue,
            store=parts.store,
            calls=parts.calls,
            consume_from_where=self.consume_from_where,
            consume_timestamp_ms=begin_timestamp_ms(self, start_timestamp_ms=self._start_timestamp_ms),
        )
        if queue in self._table or self.subscription_of(queue) is None:
            return
        pulled = self._table[queue] = PulledQueue(queue, start_offset=offset)
        parts.flow.add(pulled)
        self._restart_loop(pulled)

    async def give_up(self, queue: MessageQueue) -> None:
        """Stop working on a queue; see `RebalanceOwner`."""
        pulled = self._table.pop(queue, None)
        if pulled is None:
            return  # another caller has given it up
        pulled.dropped = True
        loop = self._loops.pop(pulled, None)
        if loop is not None:
            loop.cancel()
        parts = self._parts
        if parts is not None:
            parts.flow.remove(pulled)
            parts.calls.forget(queue)
            if self.auto_commit:
                await parts.store.persist({queue: pulled.committable}, is_confirmed=False)

    def subscription_of(self, queue: MessageQueue) -> SubscriptionData | None:
        """Return which messages of a queue are wanted."""
        return self._subscriptions.get(queue.topic) or self._assigned.get(queue)

    def consumer_data(self) -> list[ConsumerData]:
        """Return what heartbeats say of this consumer."""
        return [
            ConsumerData(
                group_name=self.group,
                consume_type=CONSUME_ACTIVELY,
                message_model=self.message_model.value,
                consume_from_where=self.consume_from_where.value,
                subscription_data_set=list(self._subscriptions.values()),
            )
        ]

    def rebalance_soon(self) -> None:
        """The group's members changed."""
        if self._parts is not None:
            self._parts.rebalancer.soon()

    async def _take_up_assigned(self) -> bool:
        is_complete = True
        for queue in [queue for queue in self._assigned if queue not in self._table]:
            try:
                await self.take_up(queue)
            except MQError as error:
                logger.warning("queue not taken up queue=%s error=%s", queue, error)
                if self._parts is not None:
                    self._parts.session.routes.refresh_soon(queue.topic)
                is_complete = False
        return is_complete

    async def _keep_assigned(self) -> None:
        while True:
            self._changed.clear()
            is_complete = await self._take_up_assigned()
            try:
                async with asyncio.timeout(None if is_complete else RETRY_PAUSE_S):
                    await self._changed.wait()
            except TimeoutError:
                pass

    # -- pulling -----------------------------------------------------------------------------------------------------

    def _restart_loop(self, pulled: PulledQueue) -> None:
        loop = self._loops.pop(pulled, None)
        if loop is not None:
            loop.cancel()
        parts = self._running()
        parts.flow.changed()
        self._loops[pulled] = parts.session.start_task(self._pull_loop(parts, pulled))

    async def _pull_loop(self, parts: _Parts, pulled: PulledQueue) -> None:
        queue = pulled.queue
        pauses = BusyPauses(self.pull_time_delay_ms_when_exception / 1000)
        while self._table.get(queue) is pulled:
            await parts.flow.wait_for_room(pulled)
            subscription = self.subscription_of(queue)
            if subscription is None:
                # Unsubscribed: the next rebalance gives the queue up, unless the topic is subscribed again by then.
                await asyncio.sleep(UNSUBSCRIBED_PAUSE_S)
                continue
            generation = pulled.generation
            try:
                result = await parts.calls.pull(
                    queue,
                    offset=pulled.next_pull_offset,
                    subscription=subscription,
                    count_max=self.pull_batch_size,
                    bytes_max=PULL_BYTES_MAX,
                    suspend_ms=self.broker_suspend_max_time_ms,
                    timeout_ms=self.consumer_timeout_ms_when_suspend,
                    is_lite=True,
                    tells_subscription=True,
                )
            except MQError as error:
                if error.context.get("code") == ResponseCode.FLOW_CONTROL:
                    await asyncio.sleep(FLOW_CONTROL_PAUSE_S)
                else:
                    logger.warning("pull failed queue=%s error=%s", queue, error)
                    parts.session.routes.refresh_soon(queue.topic)  # another broker may be the master since
                    is_busy = isinstance(error, BrokerBusyError)
                    await asyncio.sleep(pauses.next_s() if is_busy else self.pull_time_delay_ms_when_exception / 1000)
                continue
            pauses.reset()
            if generation != pulled.generation:
                continue
            if result.status is PullStatus.OFFSET_ILLEGAL:
                _correct_offset(pulled, result)
                parts.flow.changed()
                continue
            pulled.put(result.messages, next_offset=result.next_begin_offset)
            if result.messages:
                self._arrived.set()

    def _take_arrived(self, count_max: int) -> list[ReceivedMessage]:
        """Take waiting messages of one queue; the queues take turns."""
        for queue, pulled in list(self._table.items()):
            if pulled.is_paused or not pulled.held.cached_count:
                continue
            before = pulled.held.cached_count
            messages = pulled.hand_out(count_max)
            self._table[queue] = self._table.pop(queue)  # to the end of the round
            # Waiting pull loops look for room once a pull's worth of messages, not for each one of a loop over them.
            left = pulled.held.cached_count
            if not left or before // self.pull_batch_size != left // self.pull_batch_size:
                self._running().flow.changed()
            return messages
        return []

    async def _commit_by_itself(self) -> None:
        while True:
            await asyncio.sleep(self.auto_commit_interval_ms / 1000)
            await self._running().store.persist(self._committable(), is_confirmed=False)

    def _mark_consumed(self) -> None:
        for pulled in self._table.values():
            pulled.mark_consumed()

    def answer(self, command: RemotingCommand) -> RemotingCommand | None:
        """Take note of changes in the group, and tell how the consumer is doing."""
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self.rebalance_soon()
            return None
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return self.running_info(command)
        raise UnsupportedRequestError(code=command.code)

    def running_info(self, command: RemotingCommand) -> RemotingCommand:
        """Answer a broker that asks how this consumer is doing."""
        return answer_running_info(
            command,
            self,
            group=self.group,
            consume_type=CONSUME_ACTIVELY,
            start_timestamp_ms=self._start_timestamp_ms,
            subscriptions=[*self._subscriptions.values(), *self._assigned.values()],
            queues={queue: pulled.info() for queue, pulled in self._table.items()},
        )

    def _committable(self) -> dict[MessageQueue, int]:
        return {queue: pulled.committable for queue, pulled in self._table.items()}

    def _pulled(self, queue: MessageQueue) -> PulledQueue:
        pulled = self._table.get(queue)
        if pulled is None:
            raise ObjectNotFoundError("this consumer does not consume that queue", queue=str(queue))
        return pulled

    def _running(self) -> _Parts:
        if self._parts is None or self._closed:
            raise ClosedError("the consumer is not started, or is closed")
        return self._parts


def _correct_offset(pulled: PulledQueue, result: PullResult) -> None:
    """Go on where the broker says; what waits is given all the same, unless an operator has reset the group."""
    asked, offset = pulled.next_pull_offset, result.next_begin_offset
    logger.warning("offset corrected by the broker queue=%s asked=%d next=%d", pulled.queue, asked, offset)
    if result.has_expired(asked):
        pulled.skip_to(offset)
    elif result.is_past_end(asked):
        pulled.cut(offset)
    else:
        pulled.seek(offset)


class _Parts:
    """What a started consumer consists of."""

    def __init__(
        self,
        session: ClientSession,
        calls: ConsumerCalls,
        store: OffsetStore,
        flow: FlowControl,
        rebalancer: Rebalancer,
    ) -> None:
        self.session = session
        self.calls = calls
        self.store = store
        self.flow = flow
        self.rebalancer = rebalancer
        self.tasks: list[asyncio.Task[Any]] = []
        self._is_rebalancing = False

    def start_rebalancing(self) -> None:
        """Keep the share of the subscribed topics, from now on; at once when it is kept already."""
        if self._is_rebalancing:
            self.rebalancer.soon()
            return
        self._is_rebalancing = True
        self.tasks.append(self.session.start_task(self.rebalancer.run()))
