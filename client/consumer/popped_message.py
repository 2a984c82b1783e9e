"""PoppedMessage: a message that a POP consumer holds, with the receipt that it is acknowledged by.

The message is this consumer's until `visible_at_ms`, by the broker's clock; then another consumer may get it, and the
receipt is invalid. Keeping it longer changes the receipt.

Official brokers answer messages that came back under the requested topic, with the receipt in a property; the receipts
of all others come from the answer's header. Both are read here.
Source: client/impl/MQClientAPIImpl.java (processPopResponse), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.handles import (
    ReceiptHandle,
    flagged_topic,
    parse_order_counts,
    parse_popped_offsets,
    retry_flag,
)
from thermocline.remoting.headers import PopMessageResponseHeader
from thermocline.remoting.records.message_record import MessageRecord, iterate_records
from thermocline.remoting.records.properties import PropertyName

__all__ = ["PoppedMessage", "read_popped"]


class PoppedMessage(ReceivedMessage):
    """See the module. Belongs to its receiver."""

    __slots__ = ("receipt",)

    def __init__(self, record: MessageRecord, *, queue: MessageQueue, topic: str, receipt: ReceiptHandle) -> None:
        """`queue`: where it is stored; `topic`: the one that was popped from."""
        super().__init__(record, queue=queue)
        self.topic = topic
        self.receipt = receipt
        """Identifies this delivery to the broker."""

    @property
    def visible_at_ms(self) -> int:
        """When another consumer may get the message, by the broker's clock."""
        return self.receipt.revive_time_ms


def read_popped(
    body: bytes | memoryview, header: PopMessageResponseHeader, *, topic: str, group: str, broker_name: str
) -> list[PoppedMessage]:
    """The messages of an answer to a POP.

    Raises:
        CorruptDataError: They contradict the header, or themselves. They come back when their time is up.
        InvalidRequestError: The header cannot be read.
    """
    queues = parse_popped_offsets(header.start_offset_info, header.msg_offset_info)
    counts = parse_order_counts(header.order_count_info)
    places: dict[tuple[int, str, int], MessageQueue] = {}
    messages = []
    for record in iterate_records(body):
        text = record.property_text(PropertyName.POP_CHECKPOINT)
        if text is not None:
            receipt = ReceiptHandle.parse(text)
        else:
            flag = retry_flag(record.topic)
            popped = queues.get((flag, record.queue_id))
            if popped is None or record.queue_offset not in popped.offsets:
                raise CorruptDataError("a popped message is not in its header", queue_id=record.queue_id)
            receipt = ReceiptHandle(
                start_offset=popped.start_offset,
                pop_time_ms=header.pop_time,
                invisible_ms=header.invisible_time,
                revive_queue_id=header.revive_qid,
                retry_flag=flag,
                broker_name=broker_name,
                queue_id=record.queue_id,
                queue_offset=record.queue_offset,
            )
        place = receipt.retry_flag, receipt.broker_name, receipt.queue_id
        queue = places.get(place)
        if queue is None:
            stored_topic = flagged_topic(topic, group, receipt.retry_flag)
            queue = places[place] = MessageQueue(
                topic=stored_topic, broker_name=receipt.broker_name, queue_id=receipt.queue_id
            )
        message = PoppedMessage(record, queue=queue, topic=topic, receipt=receipt)
        if counts:
            found = int(receipt.retry_flag), record.queue_id
            count = counts.get((*found, record.queue_offset), counts.get((*found, None), 0))
            if count:
                message.reconsume_times = count
        messages.append(message)
    return messages
