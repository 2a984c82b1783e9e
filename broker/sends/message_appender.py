"""Message appender: puts messages that the broker makes itself (those that are due, ones sent back, recall markers).

It does what the send processor does after its checks: append, count, and wake the pulls that wait, as soon as the
message may be seen: at once, or after the flush where sends wait for it (SYNC_FLUSH). Its messages were accepted once:
a later, smaller maxMessageSize does not reject them. A message for a queue of a static topic that has moved away goes
to a queue that this broker leads, as readers have passed the old one.
Owner: the hot process's event loop.
"""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from thermocline.broker.stats import BrokerStats
from thermocline.remoting.errors import ServiceUnavailableError
from thermocline.store.log import MessageDraft, PutResult, PutStatus
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue


class MessageAppender:
    """Puts drafts into the store on behalf of the broker."""

    def __init__(
        self,
        store: MessageStore,
        stats: BrokerStats,
        *,
        arrived: Callable[[Iterable[ConsumeQueue]], None],
        queue_for: Callable[[str, int], int],
        steady_clock: Callable[[], int],
    ) -> None:
        """`arrived`: called with queues that grew, once their messages are visible (LongPolling.arrived).
        `steady_clock`: the one that the store's gate expires by.

        `queue_for(topic, queue id)`: the queue that takes messages in that one's place.
        """
        self._store = store
        self._stats = stats
        self._arrived = arrived
        self._queue_for = queue_for
        self._steady_clock = steady_clock
        self._gate = store.stored

    def append(self, draft: MessageDraft) -> PutResult:
        """Put one message; in the log on return, durable when the log is flushed. Raises as MessageStore.put."""
        queue_id = self._queue_for(draft.topic, draft.queue_id)
        if queue_id != draft.queue_id:
            draft = msgspec.structs.replace(draft, queue_id=queue_id)
        try:
            result = self._store.put(draft, was_accepted=True)
        except Exception:
            self._stats.add_put_failed()
            raise
        self._stats.add_put(draft.topic, 1, result.size_bytes)
        if self._gate.waits_for_flush:
            self._store.flush.wait(result.end_offset, lambda _: self._stored(draft, result))
        else:
            self._stored(draft, result)
        return result

    async def append_and_wait(self, draft: MessageDraft) -> tuple[PutResult, PutStatus]:
        """Put one message, and wait until it is as safe as the broker makes messages; whether it came to that.

        Cancelling leaves it in the log. Raises as MessageStore.put.
        """
        result = self.append(draft)
        if not self._gate.waits:
            return result, PutStatus.PUT_OK
        stored: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
        self._gate.wait(
            result.end_offset,
            lambda status: None if stored.done() else stored.set_result(status),
            now_ms=self._steady_clock(),
        )
        return result, await stored

    async def append_safely(self, draft: MessageDraft) -> PutResult:
        """Put one message; on return it is as safe as the broker makes messages. Cancelling leaves it in the log.

        Raises:
            ServiceUnavailableError: It is in the log, but the flush failed, or it or slaves took too long.
            MQError: As MessageStore.put.
        """
        result, status = await self.append_and_wait(draft)
        if status is not PutStatus.PUT_OK:
            raise ServiceUnavailableError(status.value)
        return result

    def _stored(self, draft: MessageDraft, result: PutResult) -> None:
        """The message is as safe as the broker makes messages: count its put time, show it to pulls."""
        self._stats.rates.add_put_time(self._store.clock.now_ms() - result.store_timestamp_ms, 1)
        queue = self._store.queues.find(draft.topic, draft.queue_id)
        if queue is not None:
            self._arrived((queue,))
