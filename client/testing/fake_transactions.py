"""FakeTransactions: half messages of one fake broker, and their ends.

Half messages stay in the half topic until a producer ends them. Producers are asked when the test calls `ask`, never by
time; a half message that was asked about stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable

from thermocline.client.testing.fake_groups import FakeGroups
from thermocline.client.testing.fake_store import FakeStore, StoredMessage
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import MQError
from thermocline.remoting.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from thermocline.remoting.records.message_id import decode_message_id, encode_message_id
from thermocline.remoting.records.message_record import encode_record
from thermocline.remoting.records.properties import PropertyName, decode_properties, encode_properties
from thermocline.remoting.records.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
    TRANSACTION_ROLLBACK,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import TRANSACTION_HALF_TOPIC

__all__ = ["FakeTransactions"]


class FakeTransactions:
    """Open transactions of one fake broker."""

    def __init__(
        self, store: FakeStore, groups: FakeGroups, *, broker_name: str, arrived: Callable[[str, int], None]
    ) -> None:
        """`arrived`: called with topic and queue id of each committed message."""
        self._store = store
        self._groups = groups
        self._broker_name = broker_name
        self._arrived = arrived
        self._open: dict[int, StoredMessage] = {}

    def count(self, topic: str) -> int:
        """How many transactions of a topic are open."""
        return sum(one.decode().property_text(PropertyName.REAL_TOPIC) == topic for one in self._open.values())

    def half_properties(self, topic: str, queue_id: int, properties_text: bytes) -> bytes | None:
        """The property text of a half message for this queue; None when the message is none."""
        properties = decode_properties(properties_text)
        if properties.get(PropertyName.TRANSACTION_PREPARED) != "true":
            return None
        self._store.create_topic(TopicConfig(topic_name=TRANSACTION_HALF_TOPIC, read_queue_nums=1, write_queue_nums=1))
        properties[PropertyName.REAL_TOPIC] = topic
        properties[PropertyName.REAL_QUEUE_ID] = str(queue_id)
        return encode_properties(properties)

    def begin(self, half: StoredMessage) -> None:
        """A half message was stored."""
        self._open[half.physical_offset] = half

    def end(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """END_TRANSACTION."""
        header = command.header(EndTransactionRequestHeader)
        if header.commit_or_rollback == TRANSACTION_NONE:
            return None
        half = self._open.get(header.commit_log_offset)
        if half is None:
            raise MQError("Find prepared transaction message failed")
        record = half.decode()
        if record.property_text(PropertyName.PRODUCER_GROUP) != header.producer_group:
            raise MQError("The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise MQError("The transaction state table offset wrong")
        if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            raise MQError("commitOrRollback field wrong")
        del self._open[half.physical_offset]
        if header.commit_or_rollback == TRANSACTION_COMMIT:
            properties = record.properties
            topic = properties.pop(PropertyName.REAL_TOPIC)
            queue_id = int(properties.pop(PropertyName.REAL_QUEUE_ID))
            self._store.append(
                topic,
                queue_id,
                body=record.body,
                properties_text=encode_properties(properties),
                born_timestamp_ms=record.born_timestamp_ms,
                born_host=record.born_host,
                flag=record.flag,
                sys_flag=record.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
            )
            self._arrived(topic, queue_id)
        return RemotingCommand.response(command)

    def resume(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """RESUME_CHECK_HALF_MESSAGE: for those that are open, which are asked about anyway."""
        place = decode_message_id(command.header(ResumeCheckHalfMessageRequestHeader).msg_id or "")
        if place.physical_offset not in self._open:
            raise MQError("Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")
        return RemotingCommand.response(command)

    def ask(self) -> int:
        """Ask a producer about each open transaction; how many there was one for."""
        asked = 0
        for half in self._open.values():
            record = half.decode()
            members = self._groups.producers.get(record.property_text(PropertyName.PRODUCER_GROUP) or "", {})
            member = next(iter(members.values()), None)
            if member is None:
                continue
            properties = record.properties
            unique_key = properties.get(PropertyName.UNIQUE_KEY)
            header = CheckTransactionStateRequestHeader(
                topic=TRANSACTION_HALF_TOPIC,
                tran_state_table_offset=half.queue_offset,
                commit_log_offset=half.physical_offset,
                msg_id=unique_key,
                transaction_id=unique_key,
                offset_msg_id=encode_message_id(record.store_host, half.physical_offset),
                broker_name=self._broker_name,
            )
            body = encode_record(
                topic=properties[PropertyName.REAL_TOPIC],
                queue_id=int(properties[PropertyName.REAL_QUEUE_ID]),
                queue_offset=half.queue_offset,
                physical_offset=half.physical_offset,
                body=record.body,
                properties_text=record.properties_text,
                born_timestamp_ms=record.born_timestamp_ms,
                born_host=record.born_host,
                store_timestamp_ms=record.store_timestamp_ms,
                store_host=record.store_host,
                flag=record.flag,
                sys_flag=record.sys_flag,
            )
            request = RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, body=body, oneway=True)
            member.connection.send(request)
            asked += 1
        return asked
