"""TraceDispatcher: sends the trace records of one producer or consumer, many to a message, in the background.

Records wait until there are 20, or until the first has waited five seconds. Then a producer used only for traces sends
them in one message to the trace topic. Calls of the traced client neither wait for this nor fail because of it: records
that cannot be sent are dropped, with one warning at the first of several failures. At most 2048 records wait; further
ones are dropped.
Source: client/trace/AsyncTraceDispatcher.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Protocol

from thermocline.client.message import Message
from thermocline.client.producer.sending import SendCallback
from thermocline.client.send_result import SendResult
from thermocline.client.trace.trace_records import TraceRecord, encode_trace, trace_keys
from thermocline.remoting.errors import MQError
from thermocline.remoting.topic_validation import GROUP_CHARACTERS_MAX

__all__ = ["TRACE_GROUP_PREFIX", "TraceDispatcher", "trace_group"]

logger = logging.getLogger(__name__)

TRACE_GROUP_PREFIX = "_INNER_TRACE_PRODUCER"
RECORDS_A_MESSAGE = 20
RECORDS_WAITING_MAX = 2_048
LINGER_S = 5.0
BODY_BYTES_MAX = 128_000
"""Only records with very long keys reach this."""

_numbers = itertools.count(1)


def trace_group(group: str, *, kind: str) -> str:
    """The producer group of the traces of a group; `kind`: PRODUCE or CONSUME."""
    return f"{TRACE_GROUP_PREFIX}-{group}-{kind}-{next(_numbers)}"[:GROUP_CHARACTERS_MAX]


class TraceSender(Protocol):
    """The producer that sends trace messages, as the dispatcher uses it."""

    async def start(self) -> None:
        """Connect. Call this before `send_async`."""

    async def close(self) -> None:
        """Wait for the sends in flight, then disconnect."""

    def send_async(self, message: Message, callback: SendCallback | None = None) -> object:
        """Send a message in the background; `callback` receives the result or the error.

        Raises:
            MQError: It cannot be sent.
        """


class TraceDispatcher:
    """See the module. Belongs to one event loop."""

    def __init__(self, sender: TraceSender, *, topic: str) -> None:
        self._sender = sender
        self._topic = topic
        self._records: list[TraceRecord] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._is_failing = False
        self.dropped_count = 0

    async def start(self) -> None:
        """Start the sender. Raises as its `start`."""
        await self._sender.start()

    async def close(self) -> None:
        """Send the waiting records, then close the sender; idempotent."""
        if self._closed:
            return
        self.flush()
        self._closed = True
        await self._sender.close()

    def append(self, record: TraceRecord) -> None:
        """Queue a record, or drop it when too many wait or the dispatcher is closed. Never waits, never raises."""
        if self._closed or len(self._records) >= RECORDS_WAITING_MAX:
            self.dropped_count += 1
            return
        self._records.append(record)
        if len(self._records) >= RECORDS_A_MESSAGE:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self.flush)

    def flush(self) -> None:
        """Send all waiting records now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        records, self._records = self._records, []
        texts: list[str] = []
        taken: list[TraceRecord] = []
        size = 0
        for record in records:
            text = encode_trace(record)
            if texts and (size + len(text) > BODY_BYTES_MAX or len(texts) == RECORDS_A_MESSAGE):
                self._send(texts, taken)
                texts, taken, size = [], [], 0
            texts.append(text)
            taken.append(record)
            size += len(text)
        if texts:
            self._send(texts, taken)

    def _send(self, texts: list[str], records: list[TraceRecord]) -> None:
        message = Message(self._topic, "".join(texts).encode(), keys=trace_keys(records))
        try:
            self._sender.send_async(message, self._sent)
        except MQError as error:
            self._sent(error)

    def _sent(self, outcome: SendResult | MQError) -> None:
        has_failed = isinstance(outcome, MQError)
        if has_failed:
            self.dropped_count += 1
            if not self._is_failing:
                logger.warning("traces are not sent topic=%s error=%s", self._topic, outcome)
        self._is_failing = has_failed
