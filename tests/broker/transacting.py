"""What tests of the broker's transactions share: half messages and decisions as frames, and who sends them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.broker.data_broker import DataBroker
from tests.broker.wire import Wire
from tests.store.send_frames import send_frame, unique_key
from thermocline.remoting.bodies import HeartbeatData, ProducerData
from thermocline.remoting.command import FLAG_ONEWAY, RemotingCommand
from thermocline.remoting.header_codec import encode_header
from thermocline.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageResponseHeader,
)
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.request_code import RequestCode

TOPIC, GROUP = "TopicA", "shop"
HALF, OP, PARKED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLL_BACK, UNKNOWN = 8, 12, 0


@dataclass(frozen=True, slots=True)
class Half:
    """What the answer to a half message said."""

    half_offset: int
    physical_offset: int
    queue_id: int
    transaction_id: str | None


class TransactionClient:
    """A producer without a socket."""

    def __init__(self, broker: DataBroker, *, group: str = GROUP) -> None:
        self.group = group
        self.wire = Wire(broker.dispatcher, broker.hot)
        self._broker = broker
        self._number = 0

    async def join(self, client_id: str) -> None:
        """Send a heartbeat."""
        body = HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name=self.group)]).encode()
        assert (await self.ask(RemotingCommand.request(RequestCode.HEART_BEAT, body=body))).code == 0

    async def ask(self, command: RemotingCommand) -> RemotingCommand:
        """One request and its answer."""
        self.wire.receive(command.encode())
        (answer,) = await self.wire.wait_commands()
        return answer

    def half_frame(self, body: bytes = b"half", *, queue_id: int = 1, f: str = "4", **properties: str) -> bytes:
        """A half message as official clients send it."""
        self._number += 1
        pairs = {"UNIQ_KEY": unique_key(self._number), "WAIT": "true", "TRAN_MSG": "true", "PGROUP": self.group}
        return send_frame(
            topic=TOPIC,
            queue_id=queue_id,
            body=body,
            properties=pairs | properties,
            f=f,
            a=self.group,
            g=str(self._broker.clock.now_ms),
        )

    async def send_half(self, body: bytes = b"half", *, queue_id: int = 1, **properties: str) -> Half:
        """Send one."""
        self.wire.receive(self.half_frame(body, queue_id=queue_id, **properties))
        (answer,) = await self.wire.wait_commands()
        assert answer.code == 0, answer.remark
        header = answer.header(SendMessageResponseHeader)
        return Half(
            header.queue_offset,
            decode_message_id(header.msg_id).physical_offset,
            header.queue_id,
            header.transaction_id,
        )

    def end_command(
        self, half: Half, decision: int, *, is_checked: bool = False, is_oneway: bool = False, **fields: str
    ) -> RemotingCommand:
        """END_TRANSACTION."""
        header = EndTransactionRequestHeader(
            topic=TOPIC,
            producer_group=self.group,
            tran_state_table_offset=half.half_offset,
            commit_log_offset=half.physical_offset,
            commit_or_rollback=decision,
            from_transaction_check=is_checked,
            msg_id=half.transaction_id,
            transaction_id=half.transaction_id,
        )
        return RemotingCommand(
            code=RequestCode.END_TRANSACTION,
            opaque=77,
            flag=FLAG_ONEWAY if is_oneway else 0,
            ext_fields=encode_header(header) | fields,
        )

    async def end(self, half: Half, decision: int, *, is_checked: bool = False, **fields: str) -> RemotingCommand:
        """Decide, and wait for the answer."""
        return await self.ask(self.end_command(half, decision, is_checked=is_checked, **fields))

    def end_one_way(self, half: Half, decision: int, *, is_checked: bool = False) -> None:
        """Decide as official clients do."""
        self.wire.receive(self.end_command(half, decision, is_checked=is_checked, is_oneway=True).encode())
        assert self.wire.take_commands() == []

    def questions(self) -> list[tuple[Half, RemotingCommand]]:
        """What this producer was asked since the last call."""
        asked = []
        for command in self.wire.take_commands():
            assert command.code == RequestCode.CHECK_TRANSACTION_STATE
            assert command.is_oneway
            header = command.header(CheckTransactionStateRequestHeader)
            half = Half(header.tran_state_table_offset, header.commit_log_offset, -1, header.transaction_id)
            asked.append((half, command))
        return asked


def bodies(broker: DataBroker, topic: str) -> list[bytes]:
    """The bodies of everything that the log holds of a topic."""
    return [record.body for record in broker.records() if record.topic == topic]
