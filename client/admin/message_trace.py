"""Message traces: the records of producers and consumers about one message, in the order of events."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from thermocline.client.admin.message_lookup import MessageLookup
from thermocline.client.fan_out import PartialResultError
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.trace.trace_records import SubscribeAfterTrace, TraceRecord, decode_trace
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.topic_validation import TRACE_TOPIC

__all__ = ["MessageTraces", "TraceStep"]

logger = logging.getLogger(__name__)

TRACES_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One record about a message, and the address of the client that wrote it."""

    record: TraceRecord
    client_host: str


class MessageTraces(MessageLookup):
    """Part of `AsyncAdminClient`."""

    async def message_trace(self, message_id: str, *, trace_topic: str = TRACE_TOPIC) -> list[TraceStep]:
        """Return what happened to the message with this id (its producer's), or with this key, oldest first.

        Clients write traces with `enable_trace`, after the message: the last record may come seconds later. The traces
        of official clients are read too. Without a record the list is empty.

        Raises:
            TopicNotFoundError: There is no trace topic; brokers make it with `traceTopicEnable`.
            PartialResultError: Some brokers failed; `result` has what the others know.
        """
        try:
            found = await self.query_by_key(trace_topic, message_id, count_max=TRACES_MAX)
        except PartialResultError as error:
            steps = _steps(error.result, message_id)
            raise PartialResultError(result=steps, answered=error.answered, failures=error.failures) from error
        return _steps(found, message_id)


def _steps(messages: Iterable[ReceivedMessage], message_id: str) -> list[TraceStep]:
    """What trace messages say about one message."""
    steps: list[TraceStep] = []
    for message in messages:
        try:
            records = list(decode_trace(message.body.decode(errors="replace")))
        except CorruptDataError as error:
            logger.warning("trace message cannot be read message_id=%s error=%s", message.message_id, error)
            continue
        steps += [
            TraceStep(record=record, client_host=message.born_host[0])
            for record in records
            if message_id in record.message_id.split(",") or message_id in record.keys.split()
        ]
    # The end of a listener call within its first millisecond comes behind its begin.
    return sorted(steps, key=lambda one: (one.record.timestamp_ms, isinstance(one.record, SubscribeAfterTrace)))
