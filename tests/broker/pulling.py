"""A client that pulls, and what it makes of the answers: for tests of everything that reads messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.broker.data_broker import DataBroker
from tests.broker.wire import Wire
from tests.store.send_frames import send_frame, unique_key
from thermocline.remoting.command import RemotingCommand, SerializeType
from thermocline.remoting.records.message_record import MessageRecord, iterate_records

TOPIC = "TopicA"
GROUP = "group"


def pull_fields(offset: int, **fields: Any) -> dict[str, str]:
    values: dict[str, Any] = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 15_000,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
        "maxMsgBytes": 2_147_483_647,
    }
    return {name: str(value) for name, value in (values | fields).items() if value is not None}


class Consumer:
    """One client that pulls."""

    def __init__(self, broker: DataBroker, *, through_chunks: bool = True) -> None:
        self.broker = broker
        self.wire = Wire(broker.dispatcher, broker.hot if through_chunks else None)
        self._opaque = 100

    def send(
        self,
        count: int = 1,
        *,
        tag: str = "TagA",
        body: bytes = b"body",
        queue_id: int = 0,
        topic: str = TOPIC,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Store messages, by the fast path; `properties` are those that users set."""
        for _ in range(count):
            self._opaque += 1
            all_properties = {"UNIQ_KEY": unique_key(self._opaque), "WAIT": "true", "TAGS": tag, **(properties or {})}
            frame = send_frame(
                topic=topic, queue_id=queue_id, body=body, properties=all_properties, opaque=self._opaque
            )
            Wire(self.broker.dispatcher, self.broker.hot).receive(frame)

    def ask(
        self, offset: int, *, code: int = 11, serialize_type: SerializeType = SerializeType.JSON, **fields: Any
    ) -> int:
        """Send a pull; its opaque."""
        self._opaque += 1
        command = RemotingCommand(
            code=code, opaque=self._opaque, ext_fields=pull_fields(offset, **fields), serialize_type=serialize_type
        )
        self.wire.receive(command.encode())
        return self._opaque

    def pull(self, offset: int, **fields: Any) -> RemotingCommand:
        """Send a pull that is answered at once."""
        opaque = self.ask(offset, **fields)
        (answer,) = self.wire.take_commands()
        assert answer.opaque == opaque
        return answer

    async def pull_later(self, offset: int, **fields: Any) -> RemotingCommand:
        """Send a pull, and wait for its answer."""
        opaque = self.ask(offset, **fields)
        return await self.answer_to(opaque)

    async def answer_to(self, opaque: int) -> RemotingCommand:
        (answer,) = await self.wire.wait_commands()
        assert answer.opaque == opaque
        return answer


def outcome(answer: RemotingCommand) -> tuple[int, str | None, int, int, int]:
    """Code, status, next, minimum and maximum offset."""
    fields = answer.ext_fields or {}
    return (
        answer.code,
        answer.remark,
        int(fields["nextBeginOffset"]),
        int(fields["minOffset"]),
        int(fields["maxOffset"]),
    )


def messages(answer: RemotingCommand) -> list[MessageRecord]:
    return list(iterate_records(bytes(answer.body)))


def offsets(answer: RemotingCommand) -> list[int]:
    return [record.queue_offset for record in messages(answer)]


def expire_local_files(broker: DataBroker, below_offset: int, queue_id: int = 0, *, topic: str = TOPIC) -> int:
    """Delete whole local files in front of a message; the queue's new minimum."""
    store = broker.store
    queue = store.queues.find(topic, queue_id)
    assert queue is not None
    log = store.commit_log
    log.flush()
    border = queue.unit(below_offset).physical_offset // log.file_bytes * log.file_bytes
    files = log.raise_minimum(border)
    store.queues.files.log_min_offset = log.min_offset
    for file in files:
        log.delete_file(file)
    return queue.min_offset


def send_with_keys(broker: DataBroker, count: int, **fields: Any) -> None:
    for index in range(count):
        properties = {
            "KEYS": f"k{index} shared",
            "UNIQ_KEY": unique_key(index),
            "TAGS": f"Tag{index % 2}",
            "WAIT": "true",
        }
        Wire(broker.dispatcher, broker.hot).receive(send_frame(properties=properties, opaque=index, **fields))
        broker.clock.now_ms += 1_000
