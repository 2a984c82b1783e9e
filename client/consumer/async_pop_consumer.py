"""AsyncPopConsumer: the application receives messages and acknowledges each one. `PopConsumer` is its blocking half.

    async with AsyncPopConsumer(group="audit", namesrv="127.0.0.1:9876") as consumer:
        await consumer.subscribe("orders")
        while True:
            for message in await consumer.receive(16, invisible_ms=30_000):
                handle(message)
                await consumer.ack(message)

The broker gives each message to one member of the group and keeps it from the others for `invisible_ms`: members share
messages, not queues, so one that is stuck holds up only what it has received. What is not acknowledged by then comes
back, to any member, with `reconsume_times` one higher; after the group's `retry_max_times` it is a dead letter.
`change_invisible_duration` keeps a message longer, or gives it back earlier.

With `in_order` the messages of a queue come in order: no consumer gets more of it before all that was received of it is
acknowledged, or its time is up.

With several brokers or topics, all of them are polled; the next call returns messages of a late answer. After `close`,
unacknowledged messages go to other members when their invisible time is over.
Source: the SimpleConsumer of rocketmq-clients, and client/impl/consumer/DefaultMQPushConsumerImpl.java (popMessage).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Self

from thermocline.client.busy_retry import retry_while_busy
from thermocline.client.close_once import CloseOnce
from thermocline.client.consumer.consumer_owner import ConsumerOwner
from thermocline.client.consumer.options import POP_MESSAGES_MAX, ConsumeFromWhere, PopConsumerOptions
from thermocline.client.consumer.pop_calls import PopCalls
from thermocline.client.consumer.popped_message import PoppedMessage
from thermocline.client.consumer.running_info import answer_running_info
from thermocline.client.session import ClientSession
from thermocline.remoting.bodies import CLUSTERING, CONSUME_POP, ConsumerData, SubscriptionData
from thermocline.remoting.bodies.subscription import parse_subscription
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import ClosedError, InvalidRequestError, MQError, UnsupportedRequestError
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import check_topic

__all__ = ["AsyncPopConsumer"]

logger = logging.getLogger(__name__)

INIT_MODE_FIRST = 0
INIT_MODE_LAST = 1
LATE_MS = 1_000
"""How long an answer may be late that was to come within the time that `receive` waits."""

Place = tuple[str, str]
"""Topic and broker name: what one POP asks."""


class AsyncPopConsumer(PopConsumerOptions):
    """See the module. Belongs to one event loop; every method must be called on it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._session: ClientSession | None = None
        self._calls: PopCalls | None = None
        self._arrived: deque[_Arrived] = deque()
        self._polls: dict[Place, asyncio.Task[list[_Arrived]]] = {}
        self._attempts: dict[Place, str] = {}
        self._turn = 0
        self._closed = False
        self._close = CloseOnce()
        self._start_timestamp_ms = 0

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to work; ClosedError when it was started or closed before."""
        if self._session is not None or self._closed:
            raise ClosedError("a consumer starts once")
        session = self._session = ClientSession(self, ConsumerOwner(self), zone_name=self.zone_name)
        self._calls = PopCalls(session, group=self.group)
        self._start_timestamp_ms = wall_clock_ms()
        for topic in self._subscriptions:
            session.routes.watch(topic)
        await session.start()

    async def close(self) -> None:
        """Leave the group; idempotent. What was not acknowledged comes back to others after its time.

        Cancelling stops only the waiting.
        """
        self._closed = True
        await self._close.run(self._finish)

    async def _finish(self) -> None:
        polls = list(self._polls.values())
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        """The client id of this consumer; ClosedError before `start`."""
        return self._running()[0].client_id

    # -- what to consume ---------------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, expression: str = "*", *, expression_type: str = "TAG") -> None:
        """Share the messages of a topic with the group: all, or those with one of the tags in `a || b || c`.

        Raises:
            InvalidRequestError: Topic or expression are impossible.
        """
        check_topic(topic)
        self._subscriptions[topic] = parse_subscription(
            topic, expression, expression_type=expression_type, version=wall_clock_ms()
        )
        if self._session is not None:
            self._session.routes.watch(topic)
            await self._session.routes.refresh_all()
            await self._session.send_heartbeats()

    async def unsubscribe(self, topic: str) -> None:
        """Receive nothing of the topic any more."""
        self._subscriptions.pop(topic, None)
        if self._session is not None:
            self._session.routes.unwatch(topic)
            self._session.heartbeat_soon()

    # -- consuming ---------------------------------------------------------------------------------------------------

    async def receive(
        self, count_max: int = POP_MESSAGES_MAX, *, invisible_ms: int | None = None, await_ms: int | None = None
    ) -> list[PoppedMessage]:
        """Return messages as soon as there are any, at most `count_max`; nothing after `await_ms`.

        No other consumer of the group gets them for `invisible_ms`. Cancelling may lose an answer: its messages come
        back after that time.

        Raises:
            InvalidRequestError: `count_max` is not from 1 to 32, or nothing is subscribed.
            TopicNotFoundError: None of the topics exists.
            UnavailableError: No broker answers.
            MQError: All brokers refused.
            ClosedError: The consumer is not started, or closed.
        """
        self._running()
        if not 1 <= count_max <= POP_MESSAGES_MAX:
            raise InvalidRequestError(f"1 to {POP_MESSAGES_MAX} messages can be received at once", count_max=count_max)
        if not self._subscriptions:
            raise InvalidRequestError("nothing is subscribed", group=self.group)
        invisible_ms = self.invisible_ms if invisible_ms is None else invisible_ms
        await_ms = self.await_ms if await_ms is None else await_ms
        self._collect(poll for poll in self._polls.values() if poll.done())
        taken = self._take_arrived(count_max)
        if taken:
            return taken
        places = await self._places()
        self._turn += 1
        places = places[self._turn % len(places) :] + places[: self._turn % len(places)]
        if len(places) > 1:
            # First poll every place without waiting: another one may have messages.
            for place in places:
                if place not in self._polls:
                    await self._try(self._begin_poll(place, count_max, invisible_ms, 0))
                taken = self._take_arrived(count_max)
                if taken:
                    return taken
        for place in places:
            if place not in self._polls:
                self._begin_poll(place, count_max, invisible_ms, await_ms)
        return await self._first_of(places, count_max, await_ms)

    async def ack(self, message: PoppedMessage) -> None:
        """Say that a message was consumed: it does not come back.

        Raises:
            UnavailableError: No answer, or the broker cannot now; it comes back unless it is acknowledged again.
            MQError: The broker refused.
            ClosedError: The consumer is not started, or closed.
        """
        await self._running()[1].ack([message])

    async def ack_many(self, messages: Iterable[PoppedMessage]) -> None:
        """The same for several messages, with one request for each broker. Raises as `ack`."""
        wanted = list(messages)
        if wanted:
            await self._running()[1].ack(wanted)

    async def change_invisible_duration(self, message: PoppedMessage, invisible_ms: int) -> None:
        """Keep a message invisible to other consumers for `invisible_ms` from now; 0 returns it. Its receipt changes.

        Raises:
            UnavailableError: No answer, or the broker cannot now; it comes back when it was to.
            MQError: The broker refused.
            ClosedError: The consumer is not started, or closed.
        """
        if invisible_ms < 0:
            raise InvalidRequestError("a time is not negative", invisible_ms=invisible_ms)
        message.receipt = await self._running()[1].change_invisible(message, invisible_ms=invisible_ms)

    # -- inside ------------------------------------------------------------------------------------------------------

    def answer(self, command: RemotingCommand) -> RemotingCommand | None:
        """Answer requests for the consumer's state; ignore changes in the group, as it shares messages, not queues."""
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            return None
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return self.running_info(command)
        raise UnsupportedRequestError(code=command.code)

    def running_info(self, command: RemotingCommand) -> RemotingCommand:
        """Answer a broker that asks how this consumer is doing; it has no queues of its own."""
        return answer_running_info(
            command,
            self,
            group=self.group,
            consume_type=CONSUME_POP,
            start_timestamp_ms=self._start_timestamp_ms,
            subscriptions=self._subscriptions.values(),
            queues={},
        )

    def consumer_data(self) -> list[ConsumerData]:
        """Return what heartbeats say of this consumer."""
        return [
            ConsumerData(
                group_name=self.group,
                consume_type=CONSUME_POP,
                message_model=CLUSTERING,
                consume_from_where=self.consume_from_where.value,
                subscription_data_set=list(self._subscriptions.values()),
            )
        ]

    async def _places(self) -> list[Place]:
        """Every broker of every topic; the last topic's error when there is none."""
        session = self._running()[0]
        places: list[Place] = []
        failure: MQError | None = None
        for topic in list(self._subscriptions):
            try:
                route = await session.routes.get(topic)
            except MQError as error:
                failure = error
                continue
            places += dict.fromkeys((topic, queue.broker_name) for queue in route.subscribe_queues)
        if not places:
            raise failure or InvalidRequestError("no broker lets these topics be read", topics=[*self._subscriptions])
        return places

    def _take_arrived(self, count_max: int) -> list[PoppedMessage]:
        """Return messages that arrived, without those whose invisible time is over or whose topic was unsubscribed."""
        now_s = asyncio.get_running_loop().time()
        taken: list[PoppedMessage] = []
        while self._arrived and len(taken) < count_max:
            arrived = self._arrived.popleft()
            if arrived.until_s > now_s and arrived.message.topic in self._subscriptions:
                taken.append(arrived.message)
        return taken

    def _begin_poll(
        self, place: Place, count_max: int, invisible_ms: int, await_ms: int
    ) -> asyncio.Task[list[_Arrived]]:
        poll = asyncio.get_running_loop().create_task(self._pop(place, count_max, invisible_ms, await_ms))
        self._polls[place] = poll
        return poll

    async def _try(self, poll: asyncio.Task[list[_Arrived]]) -> None:
        """Give a poll that does not wait for messages a moment. It stays open if its broker has not answered by then:
        other brokers are polled meanwhile, and it is not polled again before."""
        await asyncio.wait({poll}, timeout=LATE_MS / 1_000)
        self._running()
        if poll.done():
            self._collect([poll])

    def _collect(self, done: Iterable[asyncio.Task[list[_Arrived]]]) -> MQError | None:
        """Take the messages of polls that are done; the last failure of one."""
        failure: MQError | None = None
        ended = set(done)
        for place in [place for place, poll in self._polls.items() if poll in ended]:
            poll = self._polls.pop(place)
            if poll.cancelled():
                continue  # the consumer was closed
            try:
                self._arrived.extend(poll.result())
            except MQError as error:
                failure = error
                self._failed(place, error)
        return failure

    def _failed(self, place: Place, error: MQError) -> None:
        topic, broker_name = place
        logger.warning("receive failed topic=%s broker_name=%s error=%s", topic, broker_name, error)
        if self._session is not None:
            self._session.routes.refresh_soon(topic)  # another broker may be the master since

    async def _pop(self, place: Place, count_max: int, invisible_ms: int, await_ms: int) -> list[_Arrived]:
        topic, broker_name = place
        subscription = self._subscriptions.get(topic)
        if subscription is None:
            return []
        attempt_id = self._attempts.setdefault(place, uuid.uuid4().hex) if self.in_order else None
        is_first = self.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        calls = self._running()[1]

        async def ask(left_ms: int) -> list[PoppedMessage]:
            return await calls.pop(
                subscription,
                broker_name,
                count_max=count_max,
                invisible_ms=invisible_ms,
                await_ms=min(await_ms, left_ms),
                init_mode=INIT_MODE_FIRST if is_first else INIT_MODE_LAST,
                in_order=self.in_order,
                attempt_id=attempt_id,
            )

        messages = await retry_while_busy(ask, timeout_ms=await_ms)
        # The next POP has a new attempt id; a retry after a lost answer has repeated the old one.
        self._attempts.pop(place, None)
        now_s = asyncio.get_running_loop().time()
        return [_Arrived(message, now_s + message.receipt.invisible_ms / 1_000) for message in messages]

    async def _first_of(self, places: list[Place], count_max: int, await_ms: int) -> list[PoppedMessage]:
        """Wait for the first of the open polls that finds something."""
        deadline = asyncio.get_running_loop().time() + (await_ms + LATE_MS) / 1_000
        failure: MQError | None = None
        waiting = {self._polls[place] for place in places}
        while waiting:
            remaining_s = deadline - asyncio.get_running_loop().time()
            done, waiting = await asyncio.wait(
                waiting, timeout=max(0.0, remaining_s), return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            failure = self._collect(done) or failure
            taken = self._take_arrived(count_max)
            if taken:
                return taken
        self._running()
        if failure is not None and not self._polls:
            raise failure
        return []

    def _running(self) -> tuple[ClientSession, PopCalls]:
        if self._session is None or self._calls is None or self._closed:
            raise ClosedError("the consumer is not started, or is closed")
        return self._session, self._calls


class _Arrived(NamedTuple):
    """A message that came, and until when it is this consumer's.

    The receipt names that time, but by the broker's clock, which may be another than this machine's.
    """

    message: PoppedMessage
    until_s: float
    """A time of the loop."""
