"""A client that pops, acknowledges and keeps longer, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.broker.data_broker import DataBroker
from tests.broker.wire import Wire
from tests.store.send_frames import send_frame, unique_key
from thermocline.remoting.bit_set import encode_bit_set
from thermocline.remoting.bodies import BatchAck, BatchAckMessageRequestBody
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.handles.pop_offsets import parse_popped_offsets
from thermocline.remoting.handles.pop_topics import RetryFlag, flagged_topic
from thermocline.remoting.handles.receipt_handle import ReceiptHandle
from thermocline.remoting.records.message_record import MessageRecord, iterate_records

TOPIC = "TopicA"
GROUP = "group"
INVISIBLE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Popped:
    """One message, and the receipt that a client makes of the answer."""

    record: MessageRecord
    receipt: ReceiptHandle

    @property
    def body(self) -> bytes:
        return self.record.body

    @property
    def topic(self) -> str:
        """Topic that stores the message."""
        return flagged_topic(TOPIC, GROUP, self.receipt.retry_flag)


class PopClient:
    """One client that pops. Without a socket: the broker answers what it can at once."""

    def __init__(self, broker: DataBroker) -> None:
        self.broker = broker
        self.wire = Wire(broker.dispatcher, broker.hot)
        self._opaque = 1_000

    def send(
        self, *bodies: bytes, queue_id: int = 0, tag: str = "TagA", topic: str = TOPIC, **properties_too: str
    ) -> None:
        """Store messages, by the fast path."""
        for body in bodies:
            self._opaque += 1
            properties = {"UNIQ_KEY": unique_key(self._opaque), "WAIT": "true", "TAGS": tag} | properties_too
            frame = send_frame(topic=topic, queue_id=queue_id, body=body, properties=properties, opaque=self._opaque)
            Wire(self.broker.dispatcher, self.broker.hot).receive(frame)

    def ask(self, code: int, body: bytes = b"", **fields: Any) -> int:
        """Send a request; its opaque."""
        self._opaque += 1
        ext_fields = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()
        }
        self.wire.receive(RemotingCommand(code=code, opaque=self._opaque, ext_fields=ext_fields, body=body).encode())
        return self._opaque

    def answer(self, opaque: int) -> RemotingCommand:
        """The one answer that was sent since the last one was taken."""
        (answer,) = self.wire.take_commands()
        assert answer.opaque == opaque
        return answer

    async def wait_answer(self, opaque: int) -> RemotingCommand:
        (answer,) = await self.wire.wait_commands()
        assert answer.opaque == opaque
        return answer

    # -- requests ------------------------------------------------------------------------------------------------------

    def pop_fields(self, **fields: Any) -> dict[str, Any]:
        return {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": INVISIBLE_MS,
            "pollTime": 0,
            "bornTime": self.broker.clock(),
            "initMode": 0,
            "expType": "TAG",
            "exp": "*",
            "order": False,
        } | fields

    def ask_pop(self, **fields: Any) -> int:
        return self.ask(200_050, **self.pop_fields(**fields))

    def pop_answer(self, **fields: Any) -> RemotingCommand:
        """The answer to a POP that is answered at once."""
        return self.answer(self.ask_pop(**fields))

    def pop(self, **fields: Any) -> list[Popped]:
        """What a POP gives at once; nothing is an empty list."""
        answer = self.pop_answer(**fields)
        if answer.code != 0:
            assert (answer.code, answer.remark) == (210, "NO_MESSAGE_IN_QUEUE")
        return popped(answer)

    async def pop_later(self, **fields: Any) -> list[Popped]:
        """The same for a POP that may have to be waited for."""
        return popped(await self.wait_answer(self.ask_pop(**fields)))

    def ack(self, message: Popped, **fields: Any) -> RemotingCommand:
        return self.answer(self.ask(200_051, **receipt_fields(message), **fields))

    def ack_batch(self, *messages: Popped) -> RemotingCommand:
        return self.answer(self.ask(200_151, batch_ack_body(messages)))

    def change(self, message: Popped, invisible_ms: int, **fields: Any) -> RemotingCommand:
        """Keep a message for so long from now on."""
        return self.answer(self.ask(200_053, **receipt_fields(message), invisibleTime=invisible_ms, **fields))

    def changed(self, message: Popped, invisible_ms: int, **fields: Any) -> Popped:
        """The same; the message with its new receipt."""
        answer = self.change(message, invisible_ms, **fields)
        assert answer.code == 0, answer.remark
        return Popped(record=message.record, receipt=changed_receipt(message.receipt, answer))


def receipt_fields(message: Popped, group: str = GROUP) -> dict[str, Any]:
    """What names a message in an acknowledgement and in a change of its invisible time."""
    return {
        "consumerGroup": group,
        "topic": message.topic,
        "queueId": message.receipt.queue_id,
        "offset": message.receipt.queue_offset,
        "extraInfo": message.receipt.text(),
    }


def batch_ack_body(messages: Iterable[Popped], group: str = GROUP) -> bytes:
    """One request for all; one entry for each check point."""
    entries: dict[tuple[str, int, int, int], list[Popped]] = {}
    for message in messages:
        receipt = message.receipt
        key = message.topic, receipt.queue_id, receipt.start_offset, receipt.pop_time_ms
        entries.setdefault(key, []).append(message)
    acks = [
        BatchAck(
            bits=encode_bit_set(each.receipt.queue_offset - start for each in of_check_point),
            consumer_group=group,
            invisible_ms=of_check_point[0].receipt.invisible_ms,
            pop_time_ms=pop_time_ms,
            queue_id=queue_id,
            retry=str(int(of_check_point[0].receipt.retry_flag)),
            revive_queue_id=of_check_point[0].receipt.revive_queue_id,
            start_offset=start,
            topic=TOPIC,
        )
        for (_, queue_id, start, pop_time_ms), of_check_point in entries.items()
    ]
    return BatchAckMessageRequestBody(acks=acks, broker_name="broker-a").encode()


def changed_receipt(old: ReceiptHandle, answer: RemotingCommand) -> ReceiptHandle:
    """The receipt that a client makes of the answer to a change of the invisible time."""
    assert answer.ext_fields is not None
    return ReceiptHandle(
        start_offset=old.queue_offset,
        pop_time_ms=int(answer.ext_fields["popTime"]),
        invisible_ms=int(answer.ext_fields["invisibleTime"]),
        revive_queue_id=int(answer.ext_fields["reviveQid"]),
        retry_flag=old.retry_flag,
        broker_name=old.broker_name,
        queue_id=old.queue_id,
        queue_offset=old.queue_offset,
    )


def popped(answer: RemotingCommand) -> list[Popped]:
    """The messages of an answer, with their receipts as official clients make them."""
    fields = answer.ext_fields or {}
    queues = parse_popped_offsets(fields.get("startOffsetInfo"), fields.get("msgOffsetInfo"))
    if answer.code != 0:
        assert not queues
        return []
    found = []
    for record in iterate_records(bytes(answer.body)):
        text = record.property_text("POP_CK")
        if text is not None:
            receipt = ReceiptHandle.parse(text)
        else:
            queue = queues[RetryFlag.NORMAL, record.queue_id]
            assert record.queue_offset in queue.offsets
            receipt = ReceiptHandle(
                start_offset=queue.start_offset,
                pop_time_ms=int(fields["popTime"]),
                invisible_ms=int(fields["invisibleTime"]),
                revive_queue_id=int(fields["reviveQid"]),
                broker_name="broker-a",
                queue_id=record.queue_id,
                queue_offset=record.queue_offset,
            )
        found.append(Popped(record=record, receipt=receipt))
    return found


def bodies(messages: list[Popped]) -> list[bytes]:
    return [message.body for message in messages]
