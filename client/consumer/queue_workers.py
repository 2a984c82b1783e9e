"""QueueWorkers: the queues that a push consumer works on, one pull loop each, from taking up to giving up.

    take up   [lock] -> start offset -> process queue -> pull loop
    pull loop wait for room -> pull -> put and dispatch -> again; a failure pauses and asks for the same offset again
    give up   drop -> stop the loop -> [wait for the listener at work] -> commit -> [unlock]

Rules
  - The next pull offset always comes from a broker's answer; guessing could skip messages.
  - An answer "offset illegal" means one of three things. Messages that were not pulled yet have expired: the queue goes
    on behind them, and what was pulled is consumed. The group was reset: the queue is dropped, the broker's offset is
    stored, and the queue is taken up anew from there. The queue's end was lost: the same, but from the first message
    that is not consumed yet, so that none is left out.
  - A lock that another member has drops its queue. While a broker does not answer, its queues stay: each is consumed
    as long as its lock is trusted, and again once the lock is renewed. Other brokers' queues are not affected.
  - A queue that is given up, reset or corrected is not taken up before its listener is done and its offset stored.
Source: client/impl/consumer/DefaultMQPushConsumerImpl.java (pullMessage), RebalancePushImpl.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from thermocline.client.busy_retry import BusyPauses
from thermocline.client.consumer.consumer_calls import ConsumerCalls, PullResult, PullStatus
from thermocline.client.consumer.dispatch.consumer_stats import ConsumerStats
from thermocline.client.consumer.dispatch.dispatcher import Dispatcher
from thermocline.client.consumer.dispatch.process_queue import ProcessQueue
from thermocline.client.consumer.flow_control import FlowControl
from thermocline.client.consumer.offset_store import OffsetStore
from thermocline.client.consumer.options import MessageModel, PushConsumerOptions
from thermocline.client.consumer.start_offset import find_start_offset
from thermocline.client.message_queue import MessageQueue
from thermocline.client.session import ClientSession
from thermocline.remoting.bodies import SubscriptionData
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import (
    BrokerBusyError,
    MQError,
    SubscriptionNotFoundError,
    SubscriptionNotLatestError,
    UnavailableError,
)
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.topic_validation import is_retry_topic

__all__ = ["QueueWorkers"]

logger = logging.getLogger(__name__)

LOCK_INTERVAL_S = 20.0
LOCK_RETRY_S = 1.0
SUSPEND_MS = 15_000
PULL_TIMEOUT_MS = 30_000
FLOW_CONTROL_PAUSE_S = 0.02
LOCK_WAIT_S = 0.1
UNSUBSCRIBED_PAUSE_S = 0.1


class QueueWorkers:
    """See the module; is the `RebalanceOwner` and `DispatcherHost` of a push consumer. Belongs to its loop."""

    def __init__(
        self,
        options: PushConsumerOptions,
        *,
        session: ClientSession,
        calls: ConsumerCalls,
        store: OffsetStore,
        flow: FlowControl,
        stats: ConsumerStats,
        subscriptions: Mapping[str, SubscriptionData],
        consume_timestamp_ms: int,
        rebalance_soon: Callable[[], None],
    ) -> None:
        self._options = options
        self._session = session
        self._calls = calls
        self._store = store
        self._flow = flow
        self._stats = stats
        self._subscriptions = subscriptions
        self._consume_timestamp_ms = consume_timestamp_ms
        self._rebalance_soon = rebalance_soon
        self._dispatcher: Dispatcher
        self._loops: dict[ProcessQueue, asyncio.Task[Any]] = {}
        self._leaving: set[MessageQueue] = set()
        self._leaves: set[asyncio.Task[Any]] = set()
        self._resumed = asyncio.Event()
        self._resumed.set()
        self.table: dict[MessageQueue, ProcessQueue] = {}

    def bind(self, dispatcher: Dispatcher) -> None:
        """Give pulled messages to this dispatcher."""
        self._dispatcher = dispatcher

    @property
    def _needs_locks(self) -> bool:
        return self._dispatcher.is_orderly and self._options.message_model is MessageModel.CLUSTERING

    # -- taking up and giving up -------------------------------------------------------------------------------------

    def queues(self) -> set[MessageQueue]:
        """What this member works on; see `RebalanceOwner`."""
        return set(self.table)

    async def take_up(self, queue: MessageQueue) -> None:
        """Begin to work on a queue; see `RebalanceOwner`."""
        if queue in self._leaving:
            raise UnavailableError("a listener is still at work on this queue")
        asked_ms = wall_clock_ms()
        if self._needs_locks:
            locks = await self._calls.lock([queue])
            if queue not in locks.held:
                is_refused = queue in locks.refused
                whose = "another member holds" if is_refused else "no master answers for"
                raise UnavailableError(f"{whose} the lock of this queue")
        offset = await find_start_offset(
            queue,
            store=self._store,
            calls=self._calls,
            consume_from_where=self._options.consume_from_where,
            consume_timestamp_ms=self._consume_timestamp_ms,
        )
        if queue in self.table:
            return
        process_queue = ProcessQueue(queue, start_offset=offset, now_ms=wall_clock_ms())
        process_queue.locked = self._needs_locks
        process_queue.last_lock_ms = asked_ms
        self.table[queue] = process_queue
        self._flow.add(process_queue)
        self._loops[process_queue] = self._session.start_task(self._pull_loop(process_queue))
        logger.info("queue taken up queue=%s offset=%d", queue, offset)

    async def give_up(self, queue: MessageQueue) -> None:
        """Stop working on a queue; see `RebalanceOwner`."""
        if queue not in self.table:
            return  # reset, or its lock lost, while the caller waited for something else
        process_queue = self._drop(queue)
        if not self._needs_locks:
            await self._dispatcher.release(process_queue)
            await self._store.persist({queue: process_queue.commit_offset}, is_confirmed=False)
            logger.info("queue given up queue=%s offset=%d", queue, process_queue.commit_offset)
            return
        # A listener may be at work for long; the other queues need not wait for it.
        self._leaving.add(queue)
        leave = self._session.start_task(self._leave_in_order(process_queue))
        self._leaves.add(leave)
        leave.add_done_callback(self._leaves.discard)

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at other offsets in those of the queues that this member works on."""
        mine = {queue: offset for queue, offset in offsets.items() if queue in self.table}
        dropped = [self._drop(queue) for queue in mine]
        self._leaving |= mine.keys()
        try:
            for process_queue in dropped:
                await self._dispatcher.release(process_queue)
            await self._store.persist(mine, is_confirmed=True)
        finally:
            self._leaving -= mine.keys()
        self._rebalance_soon()

    async def _leave_in_order(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        try:
            await self._dispatcher.release(process_queue)
            await self._store.persist({queue: process_queue.commit_offset}, is_confirmed=True)
            await self._calls.unlock([queue])
        finally:
            self._leaving.discard(queue)
        logger.info("queue given up queue=%s offset=%d", queue, process_queue.commit_offset)

    def _drop(self, queue: MessageQueue) -> ProcessQueue:
        process_queue = self.table.pop(queue)
        process_queue.dropped = True
        self._flow.remove(process_queue)
        self._calls.forget(queue)
        loop = self._loops.pop(process_queue, None)
        if loop is not None and loop is not asyncio.current_task():
            loop.cancel()
        return process_queue

    # -- the pull loop -----------------------------------------------------------------------------------------------

    async def _pull_loop(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        pauses = BusyPauses(self._options.pull_time_delay_ms_when_exception / 1000)
        while self._is_mine(process_queue):
            await self._resumed.wait()
            await self._flow.wait_for_room(process_queue)
            if self._needs_locks and not process_queue.is_lock_trusted(wall_clock_ms()):
                await asyncio.sleep(LOCK_WAIT_S)
                continue
            subscription = self._subscriptions.get(queue.topic)
            if not self._is_mine(process_queue):
                return
            if subscription is None:
                # Unsubscribed: the next rebalance gives the queue up, unless the topic is subscribed again by then.
                await asyncio.sleep(UNSUBSCRIBED_PAUSE_S)
                continue
            process_queue.last_pull_ms = wall_clock_ms()
            started_at = time.monotonic()
            try:
                result = await self._pull(process_queue, subscription)
            except MQError as error:
                await self._pause_after(error, queue, pauses)
                continue
            pauses.reset()
            if not self._is_mine(process_queue):
                return
            if result.messages:
                self._stats.pulled(queue.topic, count=len(result.messages), elapsed_s=time.monotonic() - started_at)
            if result.status is PullStatus.OFFSET_ILLEGAL:
                self._log_correction(process_queue, result)
                if not result.has_expired(process_queue.next_pull_offset):
                    await self._correct_offset(process_queue, result)
                    return
            process_queue.put(result.messages, next_offset=result.next_begin_offset)
            if result.messages:
                self._dispatcher.dispatch(process_queue, result.messages)
                if self._options.pull_interval_ms:
                    await asyncio.sleep(self._options.pull_interval_ms / 1000)

    def _is_mine(self, process_queue: ProcessQueue) -> bool:
        return self.table.get(process_queue.queue) is process_queue

    async def _pull(self, process_queue: ProcessQueue, subscription: SubscriptionData) -> PullResult:
        commits = self._options.message_model is MessageModel.CLUSTERING and process_queue.commit_offset > 0
        return await self._calls.pull(
            process_queue.queue,
            offset=process_queue.next_pull_offset,
            subscription=subscription,
            count_max=self._options.pull_batch_size,
            bytes_max=self._options.pull_batch_size_in_bytes,
            suspend_ms=SUSPEND_MS,
            timeout_ms=PULL_TIMEOUT_MS,
            commit_offset=process_queue.commit_offset if commits else None,
        )

    async def _pause_after(self, error: MQError, queue: MessageQueue, pauses: BusyPauses) -> None:
        if error.context.get("code") == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(FLOW_CONTROL_PAUSE_S)
            return
        if isinstance(error, SubscriptionNotFoundError | SubscriptionNotLatestError):
            self._session.heartbeat_soon()
        else:
            self._session.routes.refresh_soon(queue.topic)  # another broker may be the master since
        if not is_retry_topic(queue.topic):
            logger.warning("pull failed queue=%s error=%s", queue, error)
        if isinstance(error, BrokerBusyError):
            await asyncio.sleep(pauses.next_s())
            return
        await asyncio.sleep(self._options.pull_time_delay_ms_when_exception / 1000)

    def _log_correction(self, process_queue: ProcessQueue, result: PullResult) -> None:
        logger.warning(
            "offset corrected by the broker queue=%s asked=%d next=%d min=%d max=%d",
            process_queue.queue,
            process_queue.next_pull_offset,
            result.next_begin_offset,
            result.min_offset,
            result.max_offset,
        )

    async def _correct_offset(self, process_queue: ProcessQueue, result: PullResult) -> None:
        queue, offset = process_queue.queue, result.next_begin_offset
        self._drop(queue)
        self._leaving.add(queue)
        try:
            await self._dispatcher.release(process_queue)
            if result.is_past_end(process_queue.next_pull_offset):
                offset = min(offset, process_queue.commit_offset)
            await self._store.persist({queue: offset}, is_confirmed=True)
        finally:
            self._leaving.discard(queue)
        self._rebalance_soon()

    # -- rounds ------------------------------------------------------------------------------------------------------

    async def commit(self, *, is_confirmed: bool) -> None:
        """Store every queue's offset."""
        offsets = {queue: process_queue.commit_offset for queue, process_queue in self.table.items()}
        await self._store.persist(offsets, is_confirmed=is_confirmed)

    async def keep_locks(self) -> None:
        """Renew locks for ever; soon again while a broker gives no answer."""
        pause_s = LOCK_INTERVAL_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = LOCK_INTERVAL_S if await self.renew_locks() else LOCK_RETRY_S

    async def renew_locks(self) -> bool:
        """Renew the locks of all queues, and give up those that another member has; False: a broker gave no answer."""
        if not self._needs_locks or not self.table:
            return True
        wanted = set(self.table)
        asked_ms = wall_clock_ms()
        locks = await self._calls.lock(wanted)
        for queue in locks.held & self.table.keys():
            self.table[queue].last_lock_ms = asked_ms
        for queue in locks.refused & self.table.keys():
            logger.warning("lock lost queue=%s", queue)
            await self.give_up(queue)
            self._rebalance_soon()
        unanswered = wanted - locks.held - locks.refused
        for topic in {queue.topic for queue in unanswered}:
            self._session.routes.refresh_soon(topic)
        return not unanswered

    def give_back_expired(self) -> None:
        """Give back messages whose listener takes too long."""
        self._dispatcher.give_back_expired()

    # -- for the consumer --------------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Pull nothing until `resume`; what is pulled is consumed."""
        self._resumed.clear()

    def resume(self) -> None:
        """Pull again."""
        self._resumed.set()

    async def stop(self) -> None:
        """Stop all pull loops; what is pulled stays."""
        loops = list(self._loops.values())
        self._loops.clear()
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    async def unlock_all(self) -> None:
        """Release the locks of all queues."""
        if self._needs_locks and self.table:
            await self._calls.unlock(self.table)

    async def settle(self) -> None:
        """Wait for the queues that are being given up: their listeners are done, their offsets are not stored yet."""
        if self._leaves:
            await asyncio.wait(self._leaves)

    def queue_changed(self, process_queue: ProcessQueue) -> None:
        """The queue holds less than before; see `DispatcherHost`."""
        self._flow.changed()

    def start_task(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something until it ends or the consumer closes; see `DispatcherHost`."""
        return self._session.start_task(coroutine)
