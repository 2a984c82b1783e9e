"""PushByPop: serves classic push consumers by POP, so that one that is stuck holds up its own messages only.

    pull                     a POP of that queue; the answer's offsets are positions (pop_queue.py)
    offset update            acknowledges messages below it; also the one that a pull carries. Between a question for
                             the offset and the first pull it acknowledges nothing
    send-back                a change of the invisible time to the delay of the level, or a dead letter
    list of the consumers    the client itself: it takes all queues, and POP shares out the messages
    question for the offset  goes to the broker; the client is about to begin with the queue
    reset of the offsets     becomes the group's offset at the broker before the client hears of it

Pulled as before: broadcasting groups, pull and lite pull consumers, clients that sign their requests, and groups that
consume in order, which lock their queues: before they pull a new queue, through this port; a client that came from
another proxy in the middle of its work is recognised by the lock that the broker holds (`is_queue_locked`).

A client is never moved between the two ways while it counts: positions are not the broker's offsets. Until its
heartbeat has come its pulls are refused, as RocketMQ's proxy refuses them, and its offset updates change nothing.

A POP goes over the client's own connection to the broker, and ends with it: one that waited on with the expression of
a client that is gone would move the group past messages that the next one wants.

At least once: what POP gave is redelivered unless an acknowledgement came, whatever the proxy forgets. The group's
offset moves past a message when it is popped, with its check point in the broker's log.
Owner: the proxy's event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec

from thermocline.client.message_queue import MessageQueue
from thermocline.proxy.flow import BrokerSlots, Consumption
from thermocline.proxy.messaging import Messaging, PopOutcome, PopStatus, pop_outcome, pop_request
from thermocline.proxy.remoting.client_session import ClientSession
from thermocline.proxy.remoting.pop_client import HANDLES_MAX, PopClient, PopLimits, PopTotals, wanted
from thermocline.proxy.remoting.pop_queue import Held, PopQueue
from thermocline.proxy.remoting.pull_answers import found, nothing
from thermocline.proxy.remoting.relay import Relay
from thermocline.remoting.bodies import (
    CustomizedRetryPolicy,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    ResetOffsetBody,
    SubscriptionData,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler, LimitCounts
from thermocline.remoting.errors import InvalidParameterError, MQError, ResponseError
from thermocline.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    GetConsumerListByGroupRequestHeader,
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.sys_flag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import ACCESS_KEY
from thermocline.remoting.response_code import ResponseCode

__all__ = ["PopOptions", "PushByPop"]

logger = logging.getLogger(__name__)

BROKER_TIMEOUT_MS = 3_000
POP_GRACE_MS = 2_000
POP_COUNT_MAX = 32
AWAIT_MS_MAX = 20_000
FULL_WAIT_S = 0.2
"""How long a pull waits that gets nothing, because the client holds as much of the queue as it may, or a message for
longer than its invisible time: a stuck one takes no second share. The next pull says what has been done since."""
REFUSED_WAIT_S = 1.0
"""How long a pull waits whose POP the broker has no room for."""
LAST_UPDATES_S = 1.0
NAME_CHARACTERS_MAX = 512
"""Of a queue's topic and broker."""
ACKS_MAX = 64
"""Acknowledgements and changes of invisible times at a time at each broker."""
ORDER_MARK_MS = 600_000
ORDER_MARKS_MAX = 20_000
FIRST_RETRY_LEVEL = 3
RECONSUME_TIMES_MAX = 16
INIT_MODE_MIN = 0


class PopOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How push consumers are served by POP."""

    invisible_ms: int = 60_000
    """How long a consumer has for a message before another one gets it."""
    clear_ms: int = 1_000
    """How long the messages of a client that is gone stay invisible."""
    limits: PopLimits = PopLimits()


class _End(Protocol):
    """Ends messages at their broker."""

    def __call__(self, *, timeout_ms: int) -> Awaitable[object]: ...


class _Beginning(msgspec.Struct):
    """Clients of a group that begin with one queue at the same time, one after another."""

    lock: asyncio.Lock
    users: int = 0


class PushByPop:
    """See the module: a processor whose methods stand before those of the relay."""

    def __init__(
        self,
        relay: Relay,
        messaging: Messaging,
        options: PopOptions,
        *,
        session_of: Callable[[Connection], ClientSession],
        counts: LimitCounts,
        clock_ms: Callable[[], int],
    ) -> None:
        """`clock_ms`: the time of day, as brokers count it."""
        self._relay = relay
        self._messaging = messaging
        self._options = options
        self._consumption = Consumption(messaging)
        self._session_of = session_of
        self._totals = PopTotals(limits=options.limits, counts=counts)
        self._clock_ms = clock_ms
        self._clients: dict[Connection, PopClient] = {}
        self._order_marks: dict[str, int] = {}
        self._beginnings: dict[tuple[str, MessageQueue], _Beginning] = {}
        self._slots = BrokerSlots(ACKS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def held(self) -> int:
        """Messages that clients hold."""
        return self._totals.handles

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.list_consumers,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back,
        }

    # -- what clients are --------------------------------------------------------------------------------------------

    async def heartbeat(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """34: which groups the client is in, and how.

        Raises:
            BrokerBusyError: Too many bytes of heartbeats are kept.
            InvalidRequestError: It cannot be read.
        """
        client = self._client(connection)
        self._session_of(connection).keep_heartbeat(command)
        data = HeartbeatData.decode(command.body)
        client.heartbeat(data, is_signed=ACCESS_KEY in (command.ext_fields or {}))
        return await self._relay.pass_heartbeat(connection, command, data)

    async def unregister(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """35: the client leaves a group: what it holds is for the others, once its last offset updates have come, which
        some clients send behind this."""
        group = command.header(UnregisterClientRequestHeader).consumer_group
        if group:
            client = self._client(connection)
            client.leave(group)
            asyncio.get_running_loop().call_later(LAST_UPDATES_S, self._release_left, client, group)
        return await self._relay.unregister(connection, command)

    async def lock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """41: the group consumes in order."""
        body = LockBatchRequestBody.decode(command.body)
        if self._client(connection).pushes(body.consumer_group) and self._mark_order(body.consumer_group):
            session = self._session_of(connection)
            session.notify_consumers_changed(body.consumer_group)  # it knew of no other consumer
        return await self._relay.ask_broker_of_queues(connection, command)

    async def list_consumers(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """38: the client itself, where POP shares out the messages."""
        group = command.header(GetConsumerListByGroupRequestHeader).consumer_group
        client = self._client(connection)
        if not client.pushes(group) or self._is_ordered(group):
            return await self._relay.list_consumers(connection, command)
        body = GetConsumerListByGroupResponseBody(consumer_id_list=[client.client_id])
        return RemotingCommand.response(command, body=body.encode())

    def client_gone(self, connection: Connection) -> None:
        """What the client holds is for the others."""
        client = self._clients.pop(connection, None)
        if client is not None:
            self._release(client)

    async def close(self, *, timeout_ms: int) -> None:
        """Give back what is held, as far as the time goes. Idempotent."""
        for connection in tuple(self._clients):
            self.client_gone(connection)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_ms / 1000)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def query_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """14: the client is about to begin with a queue."""
        header = command.header(QueryConsumerOffsetRequestHeader)
        client, group = self._client(connection), header.consumer_group
        if client.pushes(group) and not self._is_ordered(group):
            queue = await self._queue(connection, command, header.topic, header.queue_id)
            pulled = client.queue(group, queue) or self._add(client, group, queue, position=0)
            pulled.begins_anew = True
        return await self._relay.ask_broker(connection, command)

    async def update_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """15: everything below a position is done."""
        header = command.header(UpdateConsumerOffsetRequestHeader)
        client, group = self._client(connection), header.consumer_group
        queue = await self._queue(connection, command, header.topic, header.queue_id)
        pulled = self._popped(client, group, queue)
        if pulled is not None:
            if not pulled.begins_anew:  # else it is the group's offset, and what the client held is given back
                self._acknowledge(group, queue, client.count(pulled.take_below(header.commit_offset)))
        elif self._passes(client, group):
            return await self._relay.ask_broker(connection, command)
        return RemotingCommand.response(command)

    # -- messages ----------------------------------------------------------------------------------------------------

    async def pull(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """11: messages of a queue.

        Raises:
            BrokerBusyError: The client, or all clients together, hold too many messages or queues.
            MQError: See `Messaging`.
        """
        header = command.header(PullMessageRequestHeader)
        client, group = self._client(connection), header.consumer_group
        queue = await self._queue(connection, command, header.topic, header.queue_id)
        self._relay.check_reader(queue.broker_name, command)
        pulled = self._popped(client, group, queue)
        if pulled is None and client.pushes(group) and not self._is_ordered(group):
            if await self._messaging.is_queue_locked(queue, group=group, timeout_ms=BROKER_TIMEOUT_MS):
                self._mark_order(group)
            else:
                position = header.queue_offset
                pulled = client.queue(group, queue) or self._add(client, group, queue, position=position)
        if pulled is None:
            has_commit = bool(header.sys_flag & PULL_COMMIT_OFFSET)
            if not self._passes(client, group) and (has_commit or not header.sys_flag & PULL_SUBSCRIPTION):
                raise ResponseError(
                    code=ResponseCode.SUBSCRIPTION_NOT_LATEST, remark="the consumer's subscription not latest"
                )
            return await self._relay.ask_broker(connection, command)
        if self._is_ordered(group):
            return await self._stop_popping(client, command, group, queue)
        names_subscription = bool(header.sys_flag & PULL_SUBSCRIPTION)
        subscription = wanted(
            client,
            group,
            header.topic,
            subscription=header.subscription if names_subscription else None,
            expression_type=header.expression_type,
        )
        if subscription is None:
            raise ResponseError(
                code=ResponseCode.SUBSCRIPTION_NOT_EXIST, remark="the consumer's subscription not exist"
            )
        return await self._pop(connection, command, header, client, queue, pulled, subscription)

    async def send_back(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """36: a message failed.

        Raises:
            MQError: See `Messaging`; the client then sends the message to the retry topic itself.
        """
        header = command.header(ConsumerSendMsgBackRequestHeader)
        broker_name = await self._relay.broker_name(self._session_of(connection), command)
        taken = self._client(connection).find(header.group, broker_name, int(header.offset))
        if taken is None:
            return await self._relay.ask_broker(connection, command)
        queue, held = taken
        tries_max = RECONSUME_TIMES_MAX if header.max_reconsume_times is None else header.max_reconsume_times
        if header.delay_level < 0 or held.reconsume_times >= tries_max:
            await self._consumption.forward_to_dead_letters(
                held.handle, topic=queue.topic, group=header.group, message_id=held.message_id
            )
        else:
            await self._messaging.change_invisible(
                held.handle,
                topic=queue.topic,
                group=header.group,
                invisible_ms=_delay_ms(header.delay_level, held.reconsume_times),
                timeout_ms=BROKER_TIMEOUT_MS,
            )
        return RemotingCommand.response(command)

    def broker_asks(self, session: ClientSession, command: RemotingCommand) -> Awaitable[None] | None:
        """What is to be done before the client hears of a broker's request; None: nothing."""
        if command.code != RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            return None
        client = self._clients.get(session.client)
        group = command.header(ResetOffsetRequestHeader).group
        if client is None or not client.pushes(group) or self._is_ordered(group):
            return None
        return self._reset(group, ResetOffsetBody.decode(command.body))

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _pop(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        client: PopClient,
        queue: MessageQueue,
        pulled: PopQueue,
        subscription: SubscriptionData,
    ) -> RemotingCommand:
        group, position, limits = header.consumer_group, int(header.queue_offset), self._options.limits
        if header.sys_flag & PULL_COMMIT_OFFSET and not pulled.begins_anew:
            self._acknowledge(group, queue, client.count(pulled.take_below(int(header.commit_offset))))
        is_first = pulled.begins_anew
        self._give_back(group, queue, client.count(pulled.begin(position)))
        turn = pulled.turn
        if is_first:
            try:
                await self._begin_group(group, queue, position)
            except MQError:
                pulled.begins_anew = True
                raise
        if self._totals.handles >= limits.handles_max:
            client.forget_expired(self._clock_ms())
            if self._totals.handles >= limits.handles_max:
                raise self._totals.refuse(HANDLES_MAX, address=connection.remote_address)
        room = limits.queue_handles_max - len(pulled)
        await_ms = min(header.suspend_timeout_millis, AWAIT_MS_MAX) if header.sys_flag & PULL_SUSPEND else 0
        late_at_ms = pulled.late_at_ms()
        if late_at_ms is not None:
            await_ms = min(await_ms, max(0, late_at_ms - self._clock_ms()))
        if room <= 0 or pulled.is_late(self._clock_ms()):
            await asyncio.sleep(FULL_WAIT_S)
            return nothing(command, position=position, code=ResponseCode.PULL_RETRY_IMMEDIATELY)
        request = pop_request(
            queue.broker_name,
            subscription,
            group=group,
            count_max=max(1, min(header.max_msg_nums, room, POP_COUNT_MAX)),
            invisible_ms=self._options.invisible_ms,
            await_ms=await_ms,
            init_mode=INIT_MODE_MIN,
            now_ms=self._clock_ms(),
            queue_id=queue.queue_id,
        )
        session = self._session_of(connection)
        popped = await session.forward(queue.broker_name, request, timeout_ms=await_ms + POP_GRACE_MS)
        assert popped is not None
        outcome = pop_outcome(popped, topic=queue.topic, group=group, broker_name=queue.broker_name)
        return await self._answer(connection, command, client, group, queue, pulled, outcome, turn)

    async def _answer(
        self,
        connection: Connection,
        command: RemotingCommand,
        client: PopClient,
        group: str,
        queue: MessageQueue,
        pulled: PopQueue,
        outcome: PopOutcome,
        turn: int,
    ) -> RemotingCommand:
        position = pulled.next_position
        is_stale = pulled.turn != turn or client.queue(group, queue) is not pulled
        if connection.is_closed or is_stale or pulled.is_late(self._clock_ms()):
            self._give_back(group, queue, [Held.of(message) for message in outcome.messages])
            return nothing(command, position=position, code=ResponseCode.PULL_RETRY_IMMEDIATELY)
        if not outcome.messages:
            if outcome.status is PopStatus.POLLING_FULL:
                await asyncio.sleep(REFUSED_WAIT_S)
            return nothing(command, position=position)
        positions = pulled.place(outcome.messages)
        self._totals.handles += len(positions)
        return found(
            command,
            outcome.messages,
            positions,
            topic=queue.topic,
            queue_id=queue.queue_id,
            next_position=pulled.next_position,
        )

    async def _begin_group(self, group: str, queue: MessageQueue, position: int) -> None:
        """A group without an offset begins where its first client does."""
        key, timeout_ms = (group, queue), BROKER_TIMEOUT_MS
        beginning = self._beginnings.setdefault(key, _Beginning(lock=asyncio.Lock()))
        beginning.users += 1
        try:
            async with beginning.lock:
                if await self._messaging.committed_offset(queue, group=group, timeout_ms=timeout_ms) is None:
                    offset = QueueOffset(position)
                    await self._messaging.commit_offset(queue, group=group, offset=offset, timeout_ms=timeout_ms)
        finally:
            beginning.users -= 1
            if not beginning.users:
                del self._beginnings[key]

    async def _stop_popping(
        self, client: PopClient, command: RemotingCommand, group: str, queue: MessageQueue
    ) -> RemotingCommand:
        """The group turns out to consume in order: the client goes back to the group's offset."""
        offset = await self._messaging.committed_offset(queue, group=group, timeout_ms=BROKER_TIMEOUT_MS)
        self._release(client, group)
        return nothing(command, position=int(offset or 0), code=ResponseCode.PULL_OFFSET_MOVED)

    async def _reset(self, group: str, body: ResetOffsetBody) -> None:
        for place, offset in body.offset_table.items():
            queue = MessageQueue(topic=place.topic, broker_name=place.broker_name, queue_id=place.queue_id)
            try:
                await self._messaging.commit_offset(queue, group=group, offset=offset, timeout_ms=BROKER_TIMEOUT_MS)
            except MQError as error:
                logger.warning("an offset is not reset group=%s queue=%s error=%s", group, queue, error)

    def _client(self, connection: Connection) -> PopClient:
        client = self._clients.get(connection)
        if client is None:
            self._session_of(connection)  # the connection is still open
            client = self._clients[connection] = PopClient(self._totals, address=connection.remote_address)
        return client

    async def _queue(self, connection: Connection, command: RemotingCommand, topic: str, queue_id: int) -> MessageQueue:
        """The queue of a request.

        Raises:
            InvalidParameterError: No topic or broker has such a long name, by which it would be kept.
            ResponseError: See `Relay.broker_name`.
        """
        broker_name = await self._relay.broker_name(self._session_of(connection), command)
        if max(len(topic), len(broker_name)) > NAME_CHARACTERS_MAX:
            raise InvalidParameterError("the name of a queue's topic or broker is too long")
        return MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)

    def _popped(self, client: PopClient, group: str, queue: MessageQueue) -> PopQueue | None:
        """What the client has of a queue by POP. Clients that consume in order may lock a queue after the question for
        its offset, and before their first pull: they have not begun to count."""
        pulled = client.queue(group, queue)
        if pulled is not None and pulled.begins_anew and self._is_ordered(group):
            self._give_back(group, queue, client.drop_queue(group, queue))
            return None
        return pulled

    def _add(self, client: PopClient, group: str, queue: MessageQueue, *, position: int) -> PopQueue:
        return client.add_queue(group, queue, position=position, now_ms=self._clock_ms())

    def _passes(self, client: PopClient, group: str) -> bool:
        """Whether this client's offsets of the group are the broker's."""
        return client.is_signed or (client.has_named(group) and (not client.pushes(group) or self._is_ordered(group)))

    def _mark_order(self, group: str) -> bool:
        """The group consumes in order; whether that is news."""
        is_news = not self._is_ordered(group)
        if len(self._order_marks) >= ORDER_MARKS_MAX:
            del self._order_marks[next(iter(self._order_marks))]
        self._order_marks.pop(group, None)
        self._order_marks[group] = self._clock_ms()
        return is_news

    def _is_ordered(self, group: str) -> bool:
        marked_ms = self._order_marks.get(group)
        return marked_ms is not None and self._clock_ms() - marked_ms < ORDER_MARK_MS

    def _release(self, client: PopClient, group: str | None = None) -> None:
        for name, queue, held in client.drop_queues(group):
            self._give_back(name, queue, held)

    def _release_left(self, client: PopClient, group: str) -> None:
        if not client.has_named(group):  # it may have joined again, and then begins anew
            self._release(client, group)

    def _acknowledge(self, group: str, queue: MessageQueue, messages: Sequence[Held]) -> None:
        if messages:
            handles = [held.handle for held in messages]
            end = partial(self._messaging.ack_all, handles, topic=queue.topic, group=group)
            self._run(self._finish(queue.broker_name, end))

    def _give_back(self, group: str, queue: MessageQueue, messages: Sequence[Held]) -> None:
        change, clear_ms = self._messaging.change_invisible, self._options.clear_ms
        for held in messages:
            end = partial(change, held.handle, topic=queue.topic, group=group, invisible_ms=clear_ms)
            self._run(self._finish(queue.broker_name, end))

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, broker_name: str, end: _End) -> None:
        try:
            async with self._slots.at(broker_name):
                await end(timeout_ms=BROKER_TIMEOUT_MS)
        except MQError as error:
            logger.info("messages are not ended, they come again error=%s", error)


def _delay_ms(level: int, reconsume_times: int) -> int:
    """The delay of a level as brokers have it by default; level 0: the one that the number of tries stands for."""
    delays = CustomizedRetryPolicy().next
    number = level or FIRST_RETRY_LEVEL + reconsume_times
    return int(delays[min(number, len(delays)) - 1])
