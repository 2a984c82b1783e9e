"""Traces: what clients do through a proxy, recorded for clients that write no traces themselves.

    a message is stored                  Pub
    it is given to a consumer            SubBefore
    it is acknowledged                   SubAfter, with success
    it goes to the dead letters          SubAfter, without

The records have the form of RocketMQ's clients (client/trace/trace_records.py), and go to the trace topic as theirs do,
so the same tools show them. A request id joins the two halves of a delivery. It is made of the receipt: none is kept.
Messages of brokers that want no traces (`traceOn=false`) have none.

No client waits for traces, and none fails because of them: TraceDispatcher bounds the records that wait, and drops
those that cannot be sent. Bound of this: BROKERS_MAX names. Belongs to one event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from thermocline.client.send_result import SendStatus
from thermocline.client.trace.trace_records import (
    ConsumeOutcome,
    MessageKind,
    PublishTrace,
    SubscribeAfterTrace,
    SubscribeBeforeTrace,
    TraceRecord,
)
from thermocline.proxy.messaging import HeldMessage, OutgoingMessage, ProxyHandle, SendOutcome, TopicType
from thermocline.remoting.handles import ReceiptHandle
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.records.properties import PropertyName, decode_properties
from thermocline.remoting.socket_address import format_address

__all__ = ["TraceSink", "Traces"]

KINDS = {
    TopicType.DELAY: MessageKind.DELAYED,
    TopicType.TRANSACTION: MessageKind.HALF,
    TopicType.FIFO: MessageKind.ORDERED,
}
BROKERS_MAX = 1_024
WANTS_NONE = "false"


class TraceSink(Protocol):
    """Takes records: client/trace/trace_dispatcher.py."""

    def append(self, record: TraceRecord) -> None:
        """Take a record, or drop it. Never waits, never raises."""


class Traces:
    """See the module."""

    def __init__(self, sink: TraceSink, *, clock_ms: Callable[[], int]) -> None:
        """`clock_ms`: milliseconds since 1970."""
        self._sink = sink
        self._clock_ms = clock_ms
        self._untraced: set[str] = set()  # brokers that want no traces

    def sent(
        self, messages: Sequence[OutgoingMessage], outcome: SendOutcome, *, message_type: TopicType, started_ms: int
    ) -> None:
        """A message, or a batch, was stored; it was begun at `started_ms`."""
        if not outcome.is_traced:
            return
        first = messages[0]
        properties = decode_properties(first.properties_text) if len(messages) == 1 else {}
        offset_message_id = outcome.offset_message_id.partition(",")[0]
        self._sink.append(
            PublishTrace(
                timestamp_ms=started_ms,
                region=outcome.region,
                group=first.topic,  # the producer group of clients that have none
                topic=first.topic,
                message_id=",".join([each.unique_key for each in messages]),
                tags=properties.get(PropertyName.TAGS, ""),
                keys=properties.get(PropertyName.KEYS, ""),
                store_host=format_address(*decode_message_id(offset_message_id).host),
                body_bytes=sum(len(each.body) for each in messages),
                cost_ms=max(0, self._clock_ms() - started_ms),
                kind=KINDS.get(message_type, MessageKind.NORMAL),
                offset_message_id=offset_message_id,
                succeeded=outcome.status is SendStatus.SEND_OK,
            )
        )

    def delivered(self, messages: Sequence[HeldMessage], *, group: str) -> None:
        """Messages are given to a consumer."""
        for message in messages:
            receipt = message.handle.receipt
            if message.properties.get(PropertyName.TRACE_SWITCH) == WANTS_NONE:
                if len(self._untraced) < BROKERS_MAX:
                    self._untraced.add(receipt.broker_name)
                continue
            self._untraced.discard(receipt.broker_name)
            self._sink.append(
                SubscribeBeforeTrace(
                    timestamp_ms=receipt.pop_time_ms,
                    region=message.properties.get(PropertyName.MESSAGE_REGION, ""),
                    group=group,
                    request_id=_request_id(receipt),
                    message_id=message.message_id,
                    retry_times=message.reconsume_times,
                    keys=message.keys,
                )
            )

    def ended(self, handle: ProxyHandle, *, message_id: str, group: str, outcome: ConsumeOutcome) -> None:
        """A consumer has done with a delivery. `handle`: the one that it was given."""
        receipt = handle.receipt
        if receipt.broker_name in self._untraced:
            return
        self._sink.append(
            SubscribeAfterTrace(
                request_id=_request_id(receipt),
                message_id=message_id,
                cost_ms=max(0, self._clock_ms() - receipt.pop_time_ms),
                succeeded=outcome is ConsumeOutcome.SUCCESS,
                keys="",
                outcome=outcome,
                timestamp_ms=receipt.pop_time_ms,
                group=group,
            )
        )


def _request_id(receipt: ReceiptHandle) -> str:
    """One for each delivery of a message."""
    return f"{receipt.broker_name}-{receipt.queue_id}-{receipt.queue_offset}-{receipt.pop_time_ms}"
