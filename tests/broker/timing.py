"""Timed messages for tests of the broker: delivered by its own service, at a clock that is set."""

from __future__ import annotations

from thermocline.broker.assembly.parts import BrokerParts
from thermocline.broker.assembly.recurring import make_timer_service
from thermocline.broker.due.timer_service import TimerService
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import encode_properties
from thermocline.store.log.message_draft import MessageDraft
from thermocline.timers.timer_message_store import TimerMessageStore

SLICES_MAX = 10_000


def open_timers(parts: BrokerParts) -> TimerMessageStore:
    """The broker's timers, which are switched on."""
    assert parts.due.timers is not None
    return parts.due.timers


def put_timed(parts: BrokerParts, body: bytes, delay_ms: int, *, topic: str = "T", queue_id: int = 1) -> None:
    """Store a message for later, as a send does."""
    properties = {"UNIQ_KEY": f"id-{body.decode()}", "TIMER_DELAY_MS": str(delay_ms)}
    draft = MessageDraft(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties_text=encode_properties(properties),
        born_timestamp_ms=parts.base.clock(),
        born_host=("10.0.0.7", 4711),
    )
    stored = open_timers(parts).schedule(draft, properties)
    assert stored is not None
    parts.base.store.put(stored)


def timer_service(parts: BrokerParts) -> TimerService:
    """The service as the broker makes it."""
    service = make_timer_service(parts)
    assert service is not None
    return service


def deliver_all(service: TimerService) -> int:
    """Deliver what is due now; how long the service wants to rest then, in ms."""
    for _ in range(SLICES_MAX):
        rest_ms = service.deliver_slice()
        if rest_ms:
            return rest_ms
    raise AssertionError("the timers do not come to rest")


def records_in(parts: BrokerParts, topic: str, queue_id: int = 0) -> list[MessageRecord]:
    """Return all records of a queue."""
    store = parts.base.store
    queue = store.queues.find(topic, queue_id)
    if queue is None:
        return []
    offsets = range(queue.min_offset, queue.next_offset)
    return [store.read_record(queue.unit(offset).physical_offset) for offset in offsets]


def bodies_in(parts: BrokerParts, topic: str, queue_id: int = 0) -> list[bytes]:
    """Their bodies."""
    return [bytes(record.body) for record in records_in(parts, topic, queue_id)]
