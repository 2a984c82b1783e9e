"""ServerRequests: the requests of brokers to a push consumer.

| code | request | answer |
|---|---|---|
| 40 | the group's members changed | none: shares are computed anew |
| 220 | go on at these offsets | none |
| 221 | where are you? | offset of every queue |
| 307 | how are you? | settings, subscriptions, queues, rates, stacks on demand |
| 309 | consume this message now | what the listener answered |
Source: client/impl/ClientRemotingProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

from thermocline.client.consumer.dispatch.consumer_stats import ConsumerStats
from thermocline.client.consumer.dispatch.dispatcher import Dispatcher
from thermocline.client.consumer.listener import ConsumeResult, OrderlyResult
from thermocline.client.consumer.options import PushConsumerOptions
from thermocline.client.consumer.queue_workers import QueueWorkers
from thermocline.client.consumer.running_info import answer_running_info, check_group
from thermocline.client.message_queue import MessageQueue, from_wire, to_wire
from thermocline.client.received_message import ReceivedMessage, restore_topic
from thermocline.remoting.bodies import (
    CONSUME_PASSIVELY,
    ConsumeMessageDirectlyResult,
    GetConsumerStatusBody,
    ProcessQueueInfo,
    ResetOffsetBody,
    SubscriptionData,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import UnsupportedRequestError
from thermocline.remoting.headers import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.message_record import decode_record
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import retry_topic

__all__ = ["ServerRequests"]

MIB = 1024 * 1024


class ServerRequests:
    """See the module. Belongs to its consumer's loop."""

    def __init__(
        self,
        options: PushConsumerOptions,
        *,
        workers: QueueWorkers,
        dispatcher: Dispatcher,
        stats: ConsumerStats,
        subscriptions: Mapping[str, SubscriptionData],
        rebalance_soon: Callable[[], None],
        start_timestamp_ms: int,
    ) -> None:
        self._options = options
        self._workers = workers
        self._dispatcher = dispatcher
        self._stats = stats
        self._subscriptions = subscriptions
        self._rebalance_soon = rebalance_soon
        self._start_timestamp_ms = start_timestamp_ms

    def answer(self, command: RemotingCommand) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Serve one request.

        Raises:
            UnsupportedRequestError: It is none of these.
        """
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._rebalance_soon()
            return None
        if command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            return self._reset(command)
        if command.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            return self._status(command)
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return self._running_info(command)
        if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return self._consume_directly(command)
        raise UnsupportedRequestError(f"request type {command.code} not supported")

    async def _reset(self, command: RemotingCommand) -> RemotingCommand | None:
        header = command.header(ResetOffsetRequestHeader)
        check_group(header.group, self._options.group)
        table = ResetOffsetBody.decode(command.body).offset_table
        offsets = {from_wire(queue): offset for queue, offset in table.items() if queue.topic == header.topic}
        await self._workers.reset(offsets)
        return None if command.is_oneway else RemotingCommand.response(command)

    def _status(self, command: RemotingCommand) -> RemotingCommand:
        header = command.header(GetConsumerStatusRequestHeader)
        check_group(header.group, self._options.group)
        table = {
            to_wire(queue): process_queue.commit_offset
            for queue, process_queue in self._workers.table.items()
            if queue.topic == header.topic
        }
        return RemotingCommand.response(command, body=GetConsumerStatusBody(message_queue_table=table).encode())

    def _running_info(self, command: RemotingCommand) -> RemotingCommand:
        options = self._options
        return answer_running_info(
            command,
            options,
            group=options.group,
            consume_type=CONSUME_PASSIVELY,
            start_timestamp_ms=self._start_timestamp_ms,
            subscriptions=self._subscriptions.values(),
            queues={queue: self._queue_info(queue) for queue in self._workers.table},
            properties={
                "PROP_CONSUMEORDERLY": str(self._dispatcher.is_orderly).lower(),
                "PROP_THREADPOOL_CORE_SIZE": str(options.consume_threads),
            },
            statuses={topic: self._stats.status(topic) for topic in self._subscriptions},
        )

    def _queue_info(self, queue: MessageQueue) -> ProcessQueueInfo:
        process_queue = self._workers.table[queue]
        cached_min, cached_max = process_queue.cached_offsets
        taken_min, taken_max = process_queue.taken_offsets
        return ProcessQueueInfo(
            commit_offset=QueueOffset(process_queue.commit_offset),
            cached_msg_min_offset=QueueOffset(cached_min),
            cached_msg_max_offset=QueueOffset(cached_max),
            cached_msg_count=process_queue.held.cached_count,
            cached_msg_size_in_mib=process_queue.held.cached_bytes // MIB,
            transaction_msg_min_offset=QueueOffset(taken_min),
            transaction_msg_max_offset=QueueOffset(taken_max),
            transaction_msg_count=process_queue.taken_count,
            locked=process_queue.locked,
            last_lock_timestamp=process_queue.last_lock_ms,
            droped=process_queue.dropped,
            last_pull_timestamp=process_queue.last_pull_ms,
            last_consume_timestamp=process_queue.last_consume_ms,
        )

    async def _consume_directly(self, command: RemotingCommand) -> RemotingCommand:
        header = command.header(ConsumeMessageDirectlyRequestHeader)
        check_group(header.consumer_group, self._options.group)
        record = decode_record(command.body)
        queue = MessageQueue(
            topic=record.topic,
            broker_name=header.broker_name or header.target_broker_name or "",
            queue_id=record.queue_id,
        )
        message = ReceivedMessage(record, queue=queue)
        restore_topic(message, retry_topic=retry_topic(self._options.group))
        started_at = time.monotonic()
        remark: str | None = None
        try:
            answer = await self._dispatcher.consume_directly(message)
        except Exception as error:  # noqa: BLE001 - the user's code ends here; the answer carries the error to the operator
            result, remark = "CR_THROW_EXCEPTION", repr(error)
        else:
            succeeded = answer in (None, ConsumeResult.SUCCESS, OrderlyResult.SUCCESS)
            result = "CR_SUCCESS" if succeeded else "CR_LATER"
        body = ConsumeMessageDirectlyResult(
            consume_result=result,
            order=self._dispatcher.is_orderly,
            remark=remark,
            spent_time_mills=int((time.monotonic() - started_at) * 1000),
        )
        return RemotingCommand.response(command, body=body.encode())
