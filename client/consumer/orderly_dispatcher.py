"""OrderlyDispatcher: one batch of a queue at a time, in order, while this member trusts its lock on the queue.

A failed batch stays at the head of its queue, which rests for a moment; the others go on. When a limit is set and
reached, the batch goes to the dead-letter topic, by way of the retry topic, and the queue goes on.
Source: client/impl/consumer/ConsumeMessageOrderlyService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from thermocline.client.consumer.consumer_calls import ConsumerCalls
from thermocline.client.consumer.dispatch.consumer_stats import ConsumerStats
from thermocline.client.consumer.dispatch.dispatcher import DispatcherHost
from thermocline.client.consumer.dispatch.listener_runner import (
    ListenerJob,
    ListenerNotRunError,
    ListenerRunner,
    run_directly,
)
from thermocline.client.consumer.dispatch.process_queue import ProcessQueue
from thermocline.client.consumer.listener import OrderlyContext, OrderlyResult
from thermocline.client.consumer.options import MessageModel, PushConsumerOptions
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.trace.consume_tracer import ConsumeTracer, TracedCall
from thermocline.client.trace.trace_records import ConsumeOutcome
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import MQError

__all__ = ["OrderlyDispatcher"]

logger = logging.getLogger(__name__)

UNLIMITED = 2**31 - 1
LOCK_WAIT_S = 0.1


class OrderlyDispatcher:
    """See the module. Belongs to its consumer's loop."""

    is_orderly = True

    def __init__(
        self,
        listener: Callable[[Sequence[ReceivedMessage], OrderlyContext], Any],
        *,
        options: PushConsumerOptions,
        runner: ListenerRunner,
        calls: ConsumerCalls,
        host: DispatcherHost,
        stats: ConsumerStats,
        tracer: ConsumeTracer | None = None,
    ) -> None:
        self._listener = listener
        self._options = options
        self._runner = runner
        self._calls = calls
        self._host = host
        self._stats = stats
        self._tracer = tracer
        self._needs_lock = options.message_model is MessageModel.CLUSTERING
        self._reconsume_times_max = UNLIMITED if options.max_reconsume_times < 0 else options.max_reconsume_times
        self._at_work: dict[ProcessQueue, asyncio.Future[None]] = {}
        self._resting: set[ProcessQueue] = set()
        self._stopped = False

    def dispatch(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Put messages in line; see `Dispatcher`."""
        process_queue.queue_up(messages)
        self._next(process_queue)

    async def release(self, process_queue: ProcessQueue) -> None:
        """Wait for the listener that is at work on the queue; see `Dispatcher`."""
        at_work = self._at_work.get(process_queue)
        if at_work is not None:
            await asyncio.shield(at_work)

    def stop(self) -> None:
        """Begin no further call; see `Dispatcher`."""
        self._stopped = True

    def give_back_expired(self) -> None:
        """Nothing to do: in order, a slow listener holds back its queue; see `Dispatcher`."""

    async def settle(self) -> None:
        """Wait for what is at work; see `Dispatcher`."""
        if self._at_work:
            await asyncio.wait(self._at_work.values())

    async def consume_directly(self, message: ReceivedMessage) -> object:
        """Have one message consumed now; see `Dispatcher`."""
        return await run_directly(
            self._runner, functools.partial(self._listener, [message], self._context(message.queue))
        )

    def _next(self, process_queue: ProcessQueue) -> None:
        if self._stopped or process_queue.dropped:
            return
        if process_queue in self._at_work or process_queue in self._resting:
            return
        if self._needs_lock and not process_queue.is_lock_trusted(wall_clock_ms()):
            self._rest(process_queue, LOCK_WAIT_S)
            return
        batch = process_queue.take_batch(self._options.consume_message_batch_max_size)
        if not batch:
            return
        context = self._context(process_queue.queue)
        self._at_work[process_queue] = asyncio.get_running_loop().create_future()
        call = None if self._tracer is None else self._tracer.begin(batch)
        done = functools.partial(self._done, process_queue, batch, context, call)
        self._runner.submit(ListenerJob(functools.partial(self._listener, batch, context), done))

    def _context(self, queue: MessageQueue) -> OrderlyContext:
        return OrderlyContext(queue=queue, suspend_current_queue_ms=self._options.suspend_current_queue_ms)

    def _done(
        self,
        process_queue: ProcessQueue,
        batch: list[ReceivedMessage],
        context: OrderlyContext,
        call: TracedCall | None,
        job: ListenerJob,
        outcome: object,
    ) -> None:
        if isinstance(outcome, ListenerNotRunError):
            process_queue.return_taken()
            self._at_work.pop(process_queue).set_result(None)
            return
        has_succeeded = outcome is OrderlyResult.SUCCESS or outcome is None
        if self._tracer is not None and call is not None:
            failure = ConsumeOutcome.EXCEPTION if isinstance(outcome, BaseException) else ConsumeOutcome.FAILED
            self._tracer.end(call, ConsumeOutcome.SUCCESS if has_succeeded else failure)
        ok = len(batch) if has_succeeded else 0
        self._stats.consumed(process_queue.queue.topic, job.started_at, ok=ok, failed=len(batch) - ok)
        process_queue.last_consume_ms = wall_clock_ms()
        if has_succeeded:
            # Also when the queue was dropped meanwhile: `release` waits for us, and then the offset is committed.
            self._finish(process_queue)
            return
        if isinstance(outcome, BaseException):
            logger.warning("listener failed queue=%s error=%r", process_queue.queue, outcome)
        elif outcome is not OrderlyResult.SUSPEND_CURRENT_QUEUE_A_MOMENT:
            logger.error("listener answered nonsense queue=%s answer=%r", process_queue.queue, outcome)
        if not process_queue.dropped and all(message.reconsume_times >= self._reconsume_times_max for message in batch):
            self._host.start_task(self._bury(process_queue, batch, context))
            return
        self._try_again(process_queue, batch, context)

    def _finish(self, process_queue: ProcessQueue) -> None:
        process_queue.commit_taken()
        self._host.queue_changed(process_queue)
        self._at_work.pop(process_queue).set_result(None)
        self._next(process_queue)

    def _try_again(self, process_queue: ProcessQueue, batch: list[ReceivedMessage], context: OrderlyContext) -> None:
        for message in batch:
            message.reconsume_times += 1
        process_queue.return_taken()
        self._rest(process_queue, context.suspend_current_queue_ms / 1000)
        self._at_work.pop(process_queue).set_result(None)

    async def _bury(self, process_queue: ProcessQueue, batch: list[ReceivedMessage], context: OrderlyContext) -> None:
        """Send a batch that failed too often to the dead-letter topic; when that fails too, try it again."""
        try:
            for message in batch:
                await self._calls.resend(message, max_reconsume_times=self._reconsume_times_max)
        except MQError as error:
            logger.warning("message not buried queue=%s error=%s", process_queue.queue, error)
            self._try_again(process_queue, batch, context)
            return
        self._finish(process_queue)

    def _rest(self, process_queue: ProcessQueue, pause_s: float) -> None:
        self._resting.add(process_queue)
        asyncio.get_running_loop().call_later(pause_s, self._wake, process_queue)

    def _wake(self, process_queue: ProcessQueue) -> None:
        self._resting.discard(process_queue)
        self._next(process_queue)
