"""ConcurrentDispatcher: batches run side by side, in any order.

A failed message is sent back to the broker, which delivers it again later; only then it counts as done here. If even
that fails it is tried again locally after a pause. Broadcasting has no retries: there a failed message is dropped,
with a warning. Source: client/impl/consumer/ConsumeMessageConcurrentlyService.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
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
from thermocline.client.consumer.listener import ConsumeContext, ConsumeResult
from thermocline.client.consumer.options import MessageModel, PushConsumerOptions
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.trace.consume_tracer import ConsumeTracer, TracedCall
from thermocline.client.trace.trace_records import ConsumeOutcome
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import MQError

__all__ = ["ConcurrentDispatcher"]

logger = logging.getLogger(__name__)

RECONSUME_TIMES_DEFAULT = 16
LOCAL_RETRY_PAUSE_S = 5.0
EXPIRED_DELAY_LEVEL = 3


class ConcurrentDispatcher:
    """See the module. Belongs to its consumer's loop."""

    is_orderly = False

    def __init__(
        self,
        listener: Callable[[Sequence[ReceivedMessage], ConsumeContext], Any],
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
        self._traced: dict[ListenerJob, TracedCall] = {}
        limit = options.max_reconsume_times
        self._reconsume_times_max = RECONSUME_TIMES_DEFAULT if limit < 0 else limit
        self._running: dict[ListenerJob, tuple[ProcessQueue, list[ReceivedMessage], ConsumeContext]] = {}
        self._send_backs: set[asyncio.Task[Any]] = set()
        self._stopped = False

    def dispatch(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Submit one listener call a batch; see `Dispatcher`."""
        if self._stopped:
            return
        size = self._options.consume_message_batch_max_size
        for start in range(0, len(messages), size):
            batch = list(messages[start : start + size])
            context = ConsumeContext(queue=process_queue.queue)
            job = ListenerJob(functools.partial(self._listener, batch, context), self._done)
            self._running[job] = (process_queue, batch, context)
            if self._tracer is not None:
                self._traced[job] = self._tracer.begin(batch)
            self._runner.submit(job)

    async def release(self, process_queue: ProcessQueue) -> None:
        """Leave out the calls that have not begun; the others' outcomes will be ignored; see `Dispatcher`."""
        for job, (queue, _, _) in self._running.items():
            if queue is process_queue:
                job.is_cancelled = True

    def stop(self) -> None:
        """Begin no further call; see `Dispatcher`."""
        self._stopped = True
        for job in self._running:
            job.is_cancelled = True

    def give_back_expired(self) -> None:
        """Send back what has been with a listener for too long, and stop waiting for it; see `Dispatcher`."""
        oldest = time.monotonic() - self._options.consume_timeout_minutes * 60
        for job, (process_queue, batch, _) in list(self._running.items()):
            if job.started_at is not None and job.started_at < oldest:
                logger.warning("listener takes too long queue=%s count=%d", process_queue.queue, len(batch))
                waiting = [message for message in batch if process_queue.contains(message)]
                if waiting:
                    self._start_send_back(process_queue, waiting, EXPIRED_DELAY_LEVEL, is_with_listener=True)

    async def settle(self) -> None:
        """Wait for the send-backs under way; see `Dispatcher`."""
        if self._send_backs:
            await asyncio.wait(self._send_backs)

    async def consume_directly(self, message: ReceivedMessage) -> object:
        """Have one message consumed now; see `Dispatcher`."""
        return await run_directly(
            self._runner, functools.partial(self._listener, [message], ConsumeContext(queue=message.queue))
        )

    def _done(self, job: ListenerJob, outcome: object) -> None:
        process_queue, batch, context = self._running.pop(job)
        self._trace(job, outcome)
        if process_queue.dropped or isinstance(outcome, ListenerNotRunError):
            return
        succeeded = self._succeeded_count(batch, context, outcome, process_queue)
        self._stats.consumed(process_queue.queue.topic, job.started_at, ok=succeeded, failed=len(batch) - succeeded)
        process_queue.last_consume_ms = wall_clock_ms()
        process_queue.finish(batch[:succeeded])
        failed = [message for message in batch[succeeded:] if process_queue.contains(message)]
        if failed and self._options.message_model is MessageModel.BROADCASTING:
            logger.warning("message dropped after failure queue=%s count=%d", process_queue.queue, len(failed))
            process_queue.finish(failed)
        elif failed:
            self._start_send_back(process_queue, failed, context.delay_level_when_next_consume)
        self._host.queue_changed(process_queue)

    def _trace(self, job: ListenerJob, outcome: object) -> None:
        call = self._traced.pop(job, None)
        if self._tracer is None or call is None or isinstance(outcome, ListenerNotRunError):
            return
        if outcome is ConsumeResult.SUCCESS or outcome is None:
            self._tracer.end(call, ConsumeOutcome.SUCCESS)
        elif isinstance(outcome, BaseException):
            self._tracer.end(call, ConsumeOutcome.EXCEPTION)
        else:
            self._tracer.end(call, ConsumeOutcome.FAILED)

    def _succeeded_count(
        self, batch: list[ReceivedMessage], context: ConsumeContext, outcome: object, process_queue: ProcessQueue
    ) -> int:
        if outcome is ConsumeResult.SUCCESS or outcome is None:
            return len(batch) if context.ack_index is None else max(0, min(context.ack_index + 1, len(batch)))
        if isinstance(outcome, BaseException):
            logger.warning("listener failed queue=%s error=%r", process_queue.queue, outcome)
        elif outcome is not ConsumeResult.RECONSUME_LATER:
            logger.error("listener answered nonsense queue=%s answer=%r", process_queue.queue, outcome)
        return 0

    def _start_send_back(
        self,
        process_queue: ProcessQueue,
        messages: list[ReceivedMessage],
        delay_level: int,
        *,
        is_with_listener: bool = False,
    ) -> None:
        task = self._host.start_task(
            self._send_back(process_queue, messages, delay_level, is_with_listener=is_with_listener)
        )
        self._send_backs.add(task)
        task.add_done_callback(self._send_backs.discard)

    async def _send_back(
        self,
        process_queue: ProcessQueue,
        messages: list[ReceivedMessage],
        delay_level: int,
        *,
        is_with_listener: bool,
    ) -> None:
        """What cannot be sent back is tried again here, unless a listener has it still: then the next round tries."""
        kept: list[ReceivedMessage] = []
        for message in messages:
            try:
                await self._calls.send_back(
                    message, delay_level=delay_level, max_reconsume_times=self._reconsume_times_max
                )
            except MQError as error:
                logger.warning("message not sent back message_id=%s error=%s", message.message_id, error)
                if not is_with_listener:
                    message.reconsume_times += 1
                    kept.append(message)
            else:
                process_queue.finish([message])
        self._host.queue_changed(process_queue)
        if kept:
            asyncio.get_running_loop().call_later(LOCAL_RETRY_PAUSE_S, self._dispatch_again, process_queue, kept)

    def _dispatch_again(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        if not process_queue.dropped:
            self.dispatch(process_queue, messages)
