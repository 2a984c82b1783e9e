"""EndTransaction, and the brokers' questions about transactions.

A question goes to one producer of the topic that has a Telemetry stream, another one each time; that answers with an
EndTransaction of its own. Without a producer the question is dropped, and the broker asks again later.
Source: EndTransactionActivity.java, GrpcClientChannel.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import itertools
import logging
from typing import Any

import msgspec

from thermocline.auth.actions import Action
from thermocline.auth.resources import topic_resource
from thermocline.auth.rights import Right
from thermocline.client.message_queue import MessageQueue
from thermocline.client.received_message import ReceivedMessage
from thermocline.proxy.access import Permit
from thermocline.proxy.clients import ProxyClient
from thermocline.proxy.grpc.calls import RpcCall
from thermocline.proxy.grpc.messages import Code, enums, messages
from thermocline.proxy.grpc.service.application import Application
from thermocline.proxy.grpc.service.context import RequestContext
from thermocline.proxy.grpc.service.delivered_message import to_message
from thermocline.proxy.grpc.service.statuses import CodeError, status
from thermocline.proxy.grpc.service.validation import check_topic_name
from thermocline.proxy.messaging import TransactionCheck, TransactionHandle
from thermocline.remoting.errors import MQError
from thermocline.remoting.records.properties import PropertyName
from thermocline.remoting.records.sys_flag import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK

__all__ = ["Transactions"]

logger = logging.getLogger(__name__)

STATES = {
    enums.TransactionResolution.COMMIT: TRANSACTION_COMMIT,
    enums.TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK,
}


class Transactions:
    """See the module. The `CheckReceiver` of the proxy's messaging."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._turn = itertools.count()

    async def end_transaction(self, context: RequestContext, call: RpcCall, request: Any) -> Any:
        """EndTransaction."""
        app, topic = self._app, request.topic.name
        check_topic_name(topic)
        if not request.transaction_id.strip():
            raise CodeError(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        handle = TransactionHandle.parse(request.transaction_id)
        if context.permit is not None:
            await self._check_topic(handle, topic, timeout_ms=app.timeout_ms(call))
        await app.messaging.end_transaction(
            handle,
            topic=topic,
            producer_group=topic,
            message_id=request.message_id,
            state=STATES.get(request.resolution, TRANSACTION_NONE),
            is_check=request.source == enums.TransactionSource.SOURCE_SERVER_CHECK,
            timeout_ms=app.timeout_ms(call),
        )
        return messages.EndTransactionResponse(status=status(Code.OK))

    async def _check_topic(self, handle: TransactionHandle, topic: str, *, timeout_ms: int) -> None:
        """Pass a handle of a half message for this topic, to which alone the client has proved its right.

        A handle is a text of the client's. A broker ends what a proxy names by the proxy's rights, and compares the
        producer group alone; that of a remoting producer may have a topic's name, and messages of other topics. Where
        the proxy may not view the message, it is no super user, and its own rights count.

        Raises:
            CodeError: It is of another topic, or of none.
            MQError: See `Messaging`.
        """
        record = await self._app.messaging.stored_record(
            handle.broker_name, handle.physical_offset, timeout_ms=timeout_ms
        )
        if record is not None and record.property_text(PropertyName.REAL_TOPIC) != topic:
            raise CodeError(Code.INVALID_TRANSACTION_ID, "the transaction id names a message of another topic")

    def transaction_checked(self, check: TransactionCheck) -> None:
        """Pass a broker's question to a producer."""
        self._app.background.start(self._pass_on(check))

    async def _pass_on(self, check: TransactionCheck) -> None:
        record, topic = check.record, check.producer_group
        queue = MessageQueue(topic=record.topic, broker_name=check.handle.broker_name, queue_id=record.queue_id)
        message = ReceivedMessage(record, queue=queue)
        real_topic = message.properties.get(PropertyName.REAL_TOPIC, topic)
        command = messages.TelemetryCommand(
            recover_orphaned_transaction_command=messages.RecoverOrphanedTransactionCommand(
                message=to_message(message, topic=real_topic), transaction_id=check.handle.text()
            ),
        )
        for client in self._app.clients.producer_of(topic, turn=next(self._turn)):
            may_answer = await self._may_answer(client, real_topic)
            if may_answer and client.channel is not None and client.channel.send(command):
                return
        logger.info("a transaction's check finds no producer topic=%s", topic)

    async def _may_answer(self, client: ProxyClient, topic: str) -> bool:
        """Whether a producer may be shown a message of this topic now. It was found by the name of its producer group,
        which may be another topic's."""
        permit: Permit | None = client.permit
        if permit is not None:
            right = Right(topic_resource(topic), (Action.PUB,))
            permit = msgspec.structs.replace(permit, rights=(*permit.rights, right))
        try:
            await self._app.check_again(permit)
        except MQError:
            return False
        return True
