"""Replies of request-reply: SEND_REPLY_MESSAGE 324, SEND_REPLY_MESSAGE_V2 325; to the client PUSH_REPLY_MESSAGE 326.

    requester --send--> topic --pull--> replier --325--> broker --326--> requester
                                                            '--> {cluster}_REPLY_TOPIC, as a record for operators

A reply names the client that asked in REPLY_TO_CLIENT. It is pushed over that client's connection, and stored
(`storeReplyMessageEnable`), in this order; the replier gets the result of the push. If the requester is gone or does
not accept the reply, only the replier gets an error; the request itself times out.

A reply is stored in whatever topic it names, so it needs the right to that (auth/rights_table.py) and counts for quotas
as a send does.

The pushed properties are the reply's with PUSH_REPLY_TIME in front and the broker's region and trace switch behind;
the stored message is as the replier sent it, with the properties that a broker adds to every message.
Source: broker/processor/ReplyMessageProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from random import Random

from thermocline.broker.sends import MessageAppender
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.tables import ClientRegistry, TopicTable
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.error_table import error_response
from thermocline.remoting.errors import InvalidParameterError, MQError
from thermocline.remoting.header_codec import encode_header
from thermocline.remoting.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    decode_send_header,
)
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.properties import PropertyName, decode_properties, encode_properties
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.log import MessageDraft
from thermocline.store.sends import broker_suffix, reply_properties, stored_text

logger = logging.getLogger(__name__)

NOT_STORED_MESSAGE_ID = "0"
"""The message id in the answer to a reply that is not stored; clients need one."""


class ReplyProcessor:
    """Serves replies."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        topics: TopicTable,
        clients: ClientRegistry,
        appender: MessageAppender,
        clock: Callable[[], int],
        random: Random,
        store_host: tuple[str, int],
        advertised_address: str,
        check: Callable[[SendMessageRequestHeader], None],
        count: Callable[[Connection, RemotingCommand, SendMessageRequestHeader], None],
        make_topic: Callable[[SendMessageRequestHeader, str], Awaitable[TopicConfig]],
    ) -> None:
        """`check`, `count` and `make_topic`: the send family's."""
        self._settings = settings
        self._topics = topics
        self._clients = clients
        self._appender = appender
        self._clock = clock
        self._random = random
        self._store_host = store_host
        self._advertised_address = advertised_address
        self._check = check
        self._count = count
        self._make_topic = make_topic

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {RequestCode.SEND_REPLY_MESSAGE: self.reply, RequestCode.SEND_REPLY_MESSAGE_V2: self.reply}

    async def reply(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Push the reply to the client that waits for it, store it, and answer with the result of the push."""
        config = self._settings.broker
        marks = reply_properties(region_id=config.region_id, trace_on=config.trace_on)
        try:
            header = decode_send_header(command.code, command.ext_fields)
            self._check(header)
            self._count(connection, command, header)
            topic = self._topics.get(header.topic) or await self._make_topic(header, connection.remote_address)
            if header.queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
                raise InvalidParameterError(f"request queueId[{header.queue_id}] is illegal", topic=header.topic)
        except MQError as error:
            refused = error_response(command, error)
            refused.ext_fields = dict(marks)
            return refused
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random.randrange(topic.write_queue_nums)
        body = bytes(command.body)
        properties = decode_properties(header.properties or "")
        failure = await self._push(connection, header, {**properties, **marks}, body)
        message_id, queue_offset = NOT_STORED_MESSAGE_ID, QUEUE_START
        if config.store_replies:
            try:
                message_id, queue_offset = await self._store(connection, header, properties, body, queue_id)
            except MQError as error:
                logger.warning("reply not stored topic=%s error=%s", header.topic, error)
        if failure:
            return RemotingCommand.response(
                command, ResponseCode.SYSTEM_ERROR, remark=failure, ext_fields=self._fields(marks, None)
            )
        answer = SendMessageResponseHeader(msg_id=message_id, queue_id=queue_id, queue_offset=queue_offset)
        return RemotingCommand.response(command, ext_fields=self._fields(marks, answer))

    async def _push(
        self, connection: Connection, header: SendMessageRequestHeader, properties: Mapping[str, str], body: bytes
    ) -> str:
        """Push a reply to the requester; return the reason when that failed, else an empty text."""
        client_id = properties.get(PropertyName.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{PropertyName.REPLY_TO_CLIENT}] is null"
        requester = self._clients.producer_connection(client_id)
        if requester is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self._clock()
        pushed = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=encode_properties({PropertyName.PUSH_REPLY_TIME: str(now_ms), **properties}).decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
            born_host=connection.remote_address,
            store_host=self._advertised_address,
            store_timestamp=now_ms,
        )
        request = RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, body=body)
        try:
            answer = await requester.call(request, timeout_ms=self._settings.broker.client_call_timeout_ms)
        except MQError as error:
            logger.warning("reply not pushed client_id=%s error=%s", client_id, error)
        else:
            if answer.code == ResponseCode.SUCCESS:
                return ""
            logger.warning("reply refused client_id=%s code=%d remark=%s", client_id, answer.code, answer.remark)
        return f"push reply message to {client_id}fail."

    async def _store(
        self,
        connection: Connection,
        header: SendMessageRequestHeader,
        properties: dict[str, str],
        body: bytes,
        queue_id: int,
    ) -> tuple[str, QueueOffset]:
        """Store a reply as it was sent; its offset message id and queue offset."""
        config = self._settings.broker
        suffix = broker_suffix(region_id=config.region_id, trace_on=config.trace_on, cluster_name=config.cluster_name)
        draft = MessageDraft(
            topic=header.topic,
            queue_id=queue_id,
            body=body,
            properties_text=stored_text(header.properties or "", properties, suffix=suffix),
            born_timestamp_ms=header.born_timestamp,
            born_host=connection.remote_host,
            flag=header.flag,
            reconsume_times=header.reconsume_times or 0,
        )
        result = await self._appender.append_safely(draft)
        return encode_message_id(self._store_host, result.physical_offset), result.queue_offset

    def _fields(self, marks: Mapping[str, str], header: SendMessageResponseHeader | None) -> dict[str, str]:
        return {**marks, **({} if header is None else encode_header(header))}
