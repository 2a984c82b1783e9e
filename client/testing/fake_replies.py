"""FakeReplies: replies to request messages, at one fake broker: handed to the producer that asked, and kept.

A reply for a client that is not connected is refused, as a real broker does; it is in the reply topic all the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import MQError, ResponseError
from thermocline.remoting.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    decode_send_header,
)
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.properties import PropertyName, decode_properties, encode_properties
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.topic_validation import REPLY_TOPIC_SUFFIX

if TYPE_CHECKING:
    from thermocline.client.testing.fake_node import FakeNode

__all__ = ["FakeReplies"]

REQUESTER_TIMEOUT_MS = 10_000


class FakeReplies:
    """Serves SEND_REPLY_MESSAGE from its node's memory."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node
        self.topic = f"{node.cluster}{REPLY_TOPIC_SUFFIX}"
        self.served: dict[int, Callable[[Connection, RemotingCommand], Awaitable[RemotingCommand]]] = {
            RequestCode.SEND_REPLY_MESSAGE: self._reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._reply,
        }

    async def _reply(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = decode_send_header(command.code, command.ext_fields)
        stored = self._node.store.append(
            header.topic,
            header.queue_id,
            body=bytes(command.body),
            properties_text=(header.properties or "").encode(),
            born_timestamp_ms=header.born_timestamp,
            born_host=connection.remote_host,
            flag=header.flag,
            sys_flag=header.sys_flag,
        )
        await self._push(connection, header, bytes(command.body))
        answer = SendMessageResponseHeader(
            msg_id=encode_message_id(self._node.host, stored.physical_offset),
            queue_id=header.queue_id,
            queue_offset=stored.queue_offset,
        )
        return RemotingCommand.response(command, header=answer)

    async def _push(self, connection: Connection, header: SendMessageRequestHeader, body: bytes) -> None:
        properties = decode_properties(header.properties or "")
        client_id = properties.get(PropertyName.REPLY_TO_CLIENT, "")
        members = (group.get(client_id) for group in self._node.groups.producers.values())
        member = next((one for one in members if one is not None), None)
        if member is None:
            raise MQError(f"push reply message fail, channel of <{client_id}> not found.")
        now_ms = self._node.clock_ms()
        pushed = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=encode_properties({PropertyName.PUSH_REPLY_TIME: str(now_ms), **properties}).decode(),
            reconsume_times=header.reconsume_times,
            born_host=connection.remote_address,
            store_host=self._node.address,
            store_timestamp=now_ms,
        )
        request = RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, body=body)
        answer = await member.connection.call(request, timeout_ms=REQUESTER_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(code=ResponseCode.SYSTEM_ERROR, remark=f"push reply message to {client_id}fail.")
