"""Requests of remoting clients to brokers of a named cluster, and back: brokers' names are changed on the way.

    client  broker-a@east   ->   broker  broker-a        fields, receipt and recall handles, queues in bodies
    client  broker-a@east   <-   broker  broker-a        the same, and receipt handles in popped messages

A request that its client signed cannot be changed. It passes as it is where its broker's name is a field, which brokers
ignore; what says the name elsewhere is refused. Requests of the default cluster pass as they are.
Source: common/message/MessageExtBrokerInner.java, client/impl/MQClientAPIImpl.java (processPopResponse), Apache
RocketMQ 5.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from thermocline.proxy.remoting.pull_answers import encode_again
from thermocline.proxy.remoting.request_codes import SENDS_WITH_LETTERS
from thermocline.proxy.routing import BrokerNames
from thermocline.remoting.bodies import (
    BatchAckMessageRequestBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    QueryAssignmentResponseBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.handles import ReceiptHandle
from thermocline.remoting.records.message_record import MessageRecord, iterate_records
from thermocline.remoting.records.properties import PropertyName, without_property
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.request_signature import ACCESS_KEY
from thermocline.remoting.response_code import ResponseCode

__all__ = ["ClusterSide", "broker_field", "check_handles"]

BROKER_FIELD, SHORT_BROKER_FIELD = "bname", "n"
RECEIPT_FIELD, RECALL_FIELD, DIRECT_BROKER_FIELD = "extraInfo", "recallHandle", "brokerName"
LOCKS = frozenset({RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ})
NOT_SIGNED = LOCKS | {
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.RECALL_MESSAGE,
}
"""Requests that name their broker in more than a field of their own."""
FORM_FOR_C = re.compile(rb'"offsetTable"\s*:\s*\[')
"""Of offsets for C++ clients, which cannot read objects as keys."""


def broker_field(code: int) -> str:
    """The field of a request that names its broker."""
    return SHORT_BROKER_FIELD if code in SENDS_WITH_LETTERS else BROKER_FIELD


def check_handles(names: BrokerNames, cluster: str, command: RemotingCommand) -> None:
    """Pass a request whose handles, if it has any, are of the cluster that it goes to.

    Raises:
        InvalidRequestError: A handle is of another cluster, where alone it may be used; or it is none.
        IllegalOperationError: A recall handle is none.
    """
    fields = command.ext_fields or {}
    found = cluster
    if RECEIPT_FIELD in fields:
        found, _ = names.split(ReceiptHandle.parse(fields[RECEIPT_FIELD]).broker_name)
    elif RECALL_FIELD in fields:
        found, _ = names.split_recall(fields[RECALL_FIELD])
    elif command.code == RequestCode.BATCH_ACK_MESSAGE:
        broker_name = BatchAckMessageRequestBody.decode(command.body).broker_name
        found = names.split(broker_name)[0] if broker_name else cluster
    if found != cluster:
        raise InvalidRequestError("the handle is of another cluster than the broker that the request names")


@dataclass(frozen=True, slots=True)
class ClusterSide:
    """What changes between clients and the brokers of one named cluster."""

    names: BrokerNames
    cluster: str

    def to_broker(self, command: RemotingCommand, plain_name: str) -> RemotingCommand:
        """A client's request as its broker is to have it.

        Raises:
            InvalidRequestError: It is signed, and would have to be changed; or it cannot be read.
        """
        fields = command.ext_fields or {}
        if ACCESS_KEY in fields:
            if command.code in NOT_SIGNED:
                raise InvalidRequestError(
                    "a client that signs its requests cannot pop, lock or recall in another cluster than the proxy's"
                    " default one",
                    cluster=self.cluster,
                )
            return command
        changed = dict(fields)
        if broker_field(command.code) in changed:
            changed[broker_field(command.code)] = plain_name
        if RECEIPT_FIELD in changed:
            changed[RECEIPT_FIELD] = self.names.split_receipt(changed[RECEIPT_FIELD])
        if RECALL_FIELD in changed:
            changed[RECALL_FIELD] = self.names.split_recall(changed[RECALL_FIELD])[1]
        body = command.body
        if command.code in LOCKS:
            lock = LockBatchRequestBody.decode(body)
            queues = _renamed(lock.mq_set, lambda name: self.names.split(name)[1])
            body = msgspec.structs.replace(lock, mq_set=queues).encode()
        elif command.code == RequestCode.BATCH_ACK_MESSAGE:
            acks = BatchAckMessageRequestBody.decode(body)
            body = msgspec.structs.replace(acks, broker_name=plain_name).encode()
        return msgspec.structs.replace(command, ext_fields=changed, body=body)

    def to_client(self, code: int, answer: RemotingCommand) -> RemotingCommand:
        """A broker's answer to a request with this code, as the client is to have it."""
        if answer.code != ResponseCode.SUCCESS:
            return answer
        fields = answer.ext_fields or {}
        if RECALL_FIELD in fields:
            handle = self.names.join_recall(self.cluster, fields[RECALL_FIELD])
            answer = msgspec.structs.replace(answer, ext_fields={**fields, RECALL_FIELD: handle})
        if not answer.body:
            return answer
        if code == RequestCode.LOCK_BATCH_MQ:
            locked = LockBatchResponseBody.decode(answer.body)
            body = LockBatchResponseBody(lock_ok_mq_set=_renamed(locked.lock_ok_mq_set, self._join)).encode()
        elif code == RequestCode.QUERY_ASSIGNMENT:
            found = QueryAssignmentResponseBody.decode(answer.body)
            for assignment in found.message_queue_assignments or ():
                if assignment.message_queue is not None:
                    (assignment.message_queue,) = _renamed([assignment.message_queue], self._join)
            body = found.encode()
        elif code == RequestCode.POP_MESSAGE:
            body = self._popped(answer.body)
        else:
            return answer
        return msgspec.structs.replace(answer, body=body)

    def asked_of_client(self, command: RemotingCommand, plain_name: str) -> RemotingCommand:
        """A broker's request as the client is to have it. `plain_name`: the broker's; "" where it is not known."""
        fields = dict(command.ext_fields or {})
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            name = fields.get(BROKER_FIELD) or plain_name
            if not name:
                return command
            fields[BROKER_FIELD] = self._join(name)
        elif command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY and DIRECT_BROKER_FIELD in fields:
            fields[DIRECT_BROKER_FIELD] = self._join(fields[DIRECT_BROKER_FIELD])
        elif command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            return msgspec.structs.replace(command, body=self._reset_body(command))
        else:
            return command
        return msgspec.structs.replace(command, ext_fields=fields)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _join(self, plain_name: str) -> str:
        return self.names.join(self.cluster, plain_name)

    def _reset_body(self, command: RemotingCommand) -> bytes:
        if FORM_FOR_C.search(command.body):
            found = ResetOffsetBodyForC.decode(command.body)
            for queue in found.offset_table:
                queue.broker_name = self._join(queue.broker_name)
            return found.encode()
        body = ResetOffsetBody.decode(command.body)
        offsets = body.offset_table
        return ResetOffsetBody(
            offset_table=dict(zip(_renamed(offsets, self._join), offsets.values(), strict=True))
        ).encode()

    def _popped(self, body: bytes | memoryview) -> bytes:
        """Popped messages with the receipt handles in them, which brokers write for those that came back."""
        if PropertyName.POP_CHECKPOINT.encode() not in bytes(body):
            return bytes(body)
        return b"".join(self._popped_record(record) for record in iterate_records(body))

    def _popped_record(self, record: MessageRecord) -> bytes:
        receipt = record.property_text(PropertyName.POP_CHECKPOINT)
        text = record.properties_text
        if receipt is not None:
            name = PropertyName.POP_CHECKPOINT.encode()
            rest = without_property(text, name).rstrip(b"\x02")
            joined = self.names.join_receipt(self.cluster, receipt).encode()
            text = b"\x02".join(piece for piece in (rest, name + b"\x01" + joined) if piece)
        return encode_again(record, properties_text=text)


def _renamed(queues: Iterable[MessageQueue], rename: Callable[[str], str]) -> list[MessageQueue]:
    return [
        MessageQueue(broker_name=rename(queue.broker_name), queue_id=queue.queue_id, topic=queue.topic)
        for queue in queues
    ]
