"""SendRequests: from messages to requests that are ready to go, one message each or a batch."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence

from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.producer.queue_selector import QueueSelector, select_by_hash
from thermocline.client.producer.sending import (
    BatchCallback,
    BatchSending,
    Draft,
    SendCallback,
    SingleSending,
)
from thermocline.remoting.errors import InvalidRequestError, MessageTooLargeError, MQError
from thermocline.remoting.records.batch import BatchMessage, encode_batch
from thermocline.remoting.records.message_id import UniqueIdGenerator
from thermocline.remoting.topic_validation import RETRY_TOPIC_PREFIX

__all__ = ["SendRequests"]


class SendRequests:
    """Gives messages their ids, deadlines and queues. Belongs to the producer's loop."""

    def __init__(self, options: ProducerOptions, unique_ids: UniqueIdGenerator) -> None:
        self._max_message_bytes = options.max_message_bytes
        self._send_timeout_ms = options.send_timeout_ms
        self._attempts_more = options.retry_times_when_send_failed
        self._unique_ids = unique_ids
        self._loop = asyncio.get_running_loop()

    def single(
        self,
        prepared: Draft,
        callback: SendCallback,
        *,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        argument: object,
        timeout_ms: int | None,
    ) -> SingleSending:
        """Return the request for one message.

        Raises:
            InvalidRequestError: An argument without a selector.
        """
        message = prepared.message
        unique_id = message.unique_key or self._unique_ids.next()
        body = prepared.body
        sending = SingleSending(
            topic=message.topic,
            body=body,
            sys_flag=prepared.sys_flag,
            properties_text=message.properties_text(unique_id),
            flag=message.flag,
            message_id=unique_id,
            deadline=self._loop.time() + (timeout_ms or self._send_timeout_ms) / 1000,
            attempts_left=self._attempts_more,
            counted_bytes=len(body),
            callback=callback,
            queue=queue,
        )
        if prepared.added_properties:
            sending.properties_text += prepared.added_properties
            sending.may_repeat = prepared.may_repeat
        if selector is not None or argument is not None or message.sharding_key:
            sending.choose = None if queue is not None else _queue_chooser(message, selector, argument)
        return sending

    def batch(
        self,
        messages: Sequence[Message],
        callback: BatchCallback,
        *,
        queue: MessageQueue | None,
        timeout_ms: int | None,
    ) -> BatchSending:
        """Return the request for a batch.

        Raises:
            InvalidRequestError: The messages differ in topic or durability, are delayed, or are too large together.
        """
        first = messages[0]
        topic = first.topic
        is_retry = topic.startswith(RETRY_TOPIC_PREFIX)
        for message in messages:
            message.check(message_bytes_max=self._max_message_bytes)
            if message.is_delayed or is_retry:
                raise InvalidRequestError("delayed and retried messages travel alone", topic=topic)
            if message.topic != topic or message.wait_store_ok != first.wait_store_ok:
                raise InvalidRequestError("a batch has one topic and one wait_store_ok", topic=message.topic)
            if queue is None and message.sharding_key != first.sharding_key:
                raise InvalidRequestError("a batch goes to one queue, so it has one sharding key", topic=message.topic)
        return self.checked_batch(messages, callback, queue=queue, timeout_ms=timeout_ms)

    def checked_batch(
        self,
        messages: Sequence[Message],
        callback: BatchCallback,
        *,
        queue: MessageQueue | None,
        timeout_ms: int | None,
    ) -> BatchSending:
        """Return the request for messages that were checked one by one, and are known to fit into one batch.

        Raises:
            MessageTooLargeError: They are too large together.
            PropertiesTooLargeError: The property text of one of them is too long for a batch.
        """
        assert messages
        first = messages[0]
        message_ids = [message.unique_key or self._unique_ids.next() for message in messages]
        body = encode_batch(
            BatchMessage(message.body, message.properties_text(unique_id).encode(), message.flag)
            for message, unique_id in zip(messages, message_ids, strict=True)
        )
        bytes_max = self._max_message_bytes
        if len(body) > bytes_max:
            raise MessageTooLargeError("the batch is too large", size_bytes=len(body), size_bytes_max=bytes_max)
        wait = "true" if first.wait_store_ok else "false"
        return BatchSending(
            topic=first.topic,
            body=body,
            sys_flag=0,
            properties_text=f"UNIQ_KEY\x01{self._unique_ids.next()}\x02WAIT\x01{wait}\x02",
            flag=0,
            message_ids=message_ids,
            deadline=self._loop.time() + (timeout_ms or self._send_timeout_ms) / 1000,
            attempts_left=self._attempts_more,
            counted_bytes=sum(len(message.body) for message in messages),
            callback=callback,
            queue=queue,
            choose=None if queue is not None else _queue_chooser(first, None, None),
        )


def _queue_chooser(
    message: Message, selector: QueueSelector | None, argument: object
) -> Callable[[tuple[MessageQueue, ...]], MessageQueue] | None:
    """Return how this message's queue is chosen; None when any will do."""
    if selector is not None:
        return functools.partial(_choose, selector, message, argument)
    if argument is not None:
        raise InvalidRequestError("an argument is for a selector", argument=repr(argument))
    if message.sharding_key:
        return lambda queues: select_by_hash(queues, message, message.sharding_key)
    return None


def _choose(
    selector: QueueSelector, message: Message, argument: object, queues: tuple[MessageQueue, ...]
) -> MessageQueue:
    """Call the application's selector.

    Raises:
        InvalidRequestError: It failed, or returned no queue.
    """
    try:
        queue = selector(queues, message, argument)
    except MQError:
        raise
    except Exception as error:
        raise InvalidRequestError("the queue selector failed", topic=message.topic, reason=repr(error)) from error
    if not isinstance(queue, MessageQueue):
        raise InvalidRequestError("a queue selector returns one of the queues", topic=message.topic, answer=repr(queue))
    return queue
