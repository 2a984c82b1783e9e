"""ConsumeTracer: notes when messages are given to a listener, and how that ended.

Each listener call has a request id and two records a message: one before, one after. Messages whose broker wants no
traces (`traceOn=false`, a property of theirs) are left out.
Source: client/trace/hook/ConsumeMessageTraceHookImpl.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thermocline.client.received_message import ReceivedMessage
from thermocline.client.trace.trace_dispatcher import TraceDispatcher
from thermocline.client.trace.trace_records import ConsumeOutcome, SubscribeAfterTrace, SubscribeBeforeTrace
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.records.message_id import UniqueIdGenerator
from thermocline.remoting.records.properties import PropertyName

__all__ = ["ConsumeTracer", "TracedCall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedCall:
    """A listener call that has begun."""

    request_id: str
    started_ms: int
    messages: Sequence[ReceivedMessage]


class ConsumeTracer:
    """Notes listener calls. Belongs to the consumer's loop."""

    def __init__(self, dispatcher: TraceDispatcher, *, group: str, unique_ids: UniqueIdGenerator) -> None:
        self._dispatcher = dispatcher
        self._group = group
        self._unique_ids = unique_ids

    def begin(self, messages: Sequence[ReceivedMessage]) -> TracedCall:
        """A listener is about to get these messages."""
        call = TracedCall(
            request_id=self._unique_ids.next(),
            started_ms=wall_clock_ms(),
            messages=[each for each in messages if each.properties.get(PropertyName.TRACE_SWITCH) != "false"],
        )
        for message in call.messages:
            self._dispatcher.append(
                SubscribeBeforeTrace(
                    timestamp_ms=call.started_ms,
                    region=message.properties.get(PropertyName.MESSAGE_REGION, ""),
                    group=self._group,
                    request_id=call.request_id,
                    message_id=message.message_id,
                    retry_times=message.reconsume_times,
                    keys=message.keys,
                )
            )
        return call

    def end(self, call: TracedCall, outcome: ConsumeOutcome) -> None:
        """The listener is done with them."""
        now_ms = wall_clock_ms()
        for message in call.messages:
            self._dispatcher.append(
                SubscribeAfterTrace(
                    request_id=call.request_id,
                    message_id=message.message_id,
                    cost_ms=(now_ms - call.started_ms) // max(1, len(call.messages)),
                    succeeded=outcome is ConsumeOutcome.SUCCESS,
                    keys=message.keys,
                    outcome=outcome,
                    timestamp_ms=call.started_ms,
                    group=self._group,
                )
            )
