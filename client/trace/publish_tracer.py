"""PublishTracer: records the outcome of each message that a producer sends.

Traced is what the broker took, unless it says that it wants no traces (`traceOn=false`); one-way sends have no answer
and so no trace. A batch is one record with the ids of all its messages.
Source: client/trace/hook/SendMessageTraceHookImpl.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from thermocline.client.message import Message
from thermocline.client.producer.sending import BatchCallback, SendCallback
from thermocline.client.send_result import SendResult, SendStatus
from thermocline.client.trace.trace_dispatcher import TraceDispatcher
from thermocline.client.trace.trace_records import MessageKind, PublishTrace
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.errors import InvalidRequestError, MQError
from thermocline.remoting.records.message_id import decode_message_id

__all__ = ["PublishTracer"]


class PublishTracer:
    """Wraps the callbacks of a producer's sends. Belongs to the producer's loop."""

    def __init__(self, dispatcher: TraceDispatcher, *, group: str) -> None:
        self._dispatcher = dispatcher
        self._group = group

    def single(self, message: Message, callback: SendCallback) -> SendCallback:
        """A callback that notes one message's outcome and hands it on."""
        started_ms = wall_clock_ms()

        def done(outcome: SendResult | MQError) -> None:
            if isinstance(outcome, SendResult):
                self._note([message], [outcome], started_ms)
            callback(outcome)

        return done

    def batch(self, messages: Sequence[Message], callback: BatchCallback) -> BatchCallback:
        """The same for a batch."""
        started_ms = wall_clock_ms()

        def done(outcome: list[SendResult] | MQError) -> None:
            if isinstance(outcome, list):
                self._note(messages, outcome, started_ms)
            callback(outcome)

        return done

    def _note(self, messages: Sequence[Message], results: Sequence[SendResult], started_ms: int) -> None:
        first, result = messages[0], results[0]
        if not result.is_traced:
            return
        is_delayed = bool(first.delay_level) or first.deliver_at_ms is not None
        keys = first.keys if isinstance(first.keys, str) else " ".join(first.keys)
        self._dispatcher.append(
            PublishTrace(
                timestamp_ms=started_ms,
                region=result.region,
                group=self._group,
                topic=first.topic,
                message_id=",".join(each.message_id for each in results),
                tags=first.tags if len(messages) == 1 else "",
                keys=keys if len(messages) == 1 else "",
                store_host=_store_host(result.offset_message_id),
                body_bytes=sum(len(message.body) for message in messages),
                cost_ms=wall_clock_ms() - started_ms,
                kind=MessageKind.DELAYED if is_delayed else MessageKind.NORMAL,
                offset_message_id=result.offset_message_id,
                succeeded=result.status is SendStatus.SEND_OK,
            )
        )


def _store_host(offset_message_id: str) -> str:
    """The broker's address in the id that it gave; "" where that is none: the send has its outcome all the same."""
    try:
        host, port = decode_message_id(offset_message_id).host
    except InvalidRequestError:
        return ""
    return f"{host}:{port}"
