"""Transactions: 37 END_TRANSACTION, 323 RESUME_CHECK_HALF_MESSAGE. Half messages come as sends (send.py).

A decision (commit, roll back) is usually one-way, so errors are logged; a request that wants an answer gets it when the
decision is as durable as the broker makes messages. "Not known yet" changes nothing; RocketMQ never answers it, this
broker answers at once.

Codes, in RocketMQ's order: no such half message, SYSTEM_ERROR; late for its own immunity time, ILLEGAL_OPERATION; group
or queue offset are not the half message's, SYSTEM_ERROR; the put's own. A transaction that was decided otherwise, which
RocketMQ would decide once more, is ILLEGAL_OPERATION too.
Source: EndTransactionProcessor.java, AdminBrokerProcessor.java (resumeCheckHalfMessage), Apache RocketMQ 5.3.
"""

import logging
from collections.abc import Mapping

from thermocline.broker.cold import ColdReads
from thermocline.broker.processors.messages.topic_check import TopicCheck
from thermocline.broker.sends import Acknowledgements
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import (
    CorruptDataError,
    InvalidParameterError,
    InvalidRequestError,
    MQError,
    OffsetOutOfRangeError,
)
from thermocline.remoting.headers.send import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.records import sys_flag as sys_flags
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.records.message_record import MessageRecord, decode_record
from thermocline.remoting.records.properties import PropertyName
from thermocline.remoting.request_code import RequestCode
from thermocline.store.message_store import MessageStore
from thermocline.transactions.transaction_coordinator import Decision, EndRequest, TransactionCoordinator

logger = logging.getLogger(__name__)


class TransactionProcessor:
    """Serves producers' decisions, and operators who have producers asked again."""

    def __init__(
        self,
        *,
        store: MessageStore,
        transactions: TransactionCoordinator,
        cold: ColdReads,
        acknowledgements: Acknowledgements,
        check_topic: TopicCheck | None = None,
        check_resumed: TopicCheck | None = None,
    ) -> None:
        """`check_topic` of a decision, `check_resumed` of a resumption: access control, if it is on."""
        self._check_topic = check_topic
        self._check_resumed = check_resumed
        self._store = store
        self._transactions = transactions
        self._cold = cold
        self._acknowledgements = acknowledgements

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def end(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """37: commit, roll back, or not known yet."""
        header = command.header(EndTransactionRequestHeader)
        if header.commit_or_rollback == sys_flags.TRANSACTION_NONE:
            logger.debug("transaction not ended yet group=%s msg_id=%s", header.producer_group, header.msg_id)
            return None if command.is_oneway else RemotingCommand.response(command)
        try:
            decision = Decision(header.commit_or_rollback)
        except ValueError:
            raise InvalidRequestError("commitOrRollback field wrong") from None
        if self._check_topic is not None:
            self._check_topic(connection, command, self._topic_of(header.commit_log_offset))
        request = EndRequest(
            decision=decision,
            producer_group=header.producer_group,
            half_offset=header.tran_state_table_offset,
            physical_offset=header.commit_log_offset,
            is_checked=header.from_transaction_check,
            waits=not command.is_oneway,
        )
        try:
            self._transactions.end(request)
        except MQError as error:
            logger.warning(
                "decision refused group=%s msg_id=%s decision=%s checked=%s producer=%s error=%s",
                header.producer_group,
                header.msg_id,
                decision.name,
                header.from_transaction_check,
                connection.remote_address,
                error,
            )
            raise
        return self._done(connection, command)

    def _topic_of(self, physical_offset: PhysicalOffset) -> str:
        """The topic that a half message is for; empty where there is none."""
        try:
            record = self._store.read_record(physical_offset)
        except (OffsetOutOfRangeError, CorruptDataError):
            return ""
        return _real_topic(record)

    async def resume(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """323: have the producers of a parked message asked again."""
        header = command.header(ResumeCheckHalfMessageRequestHeader)
        try:
            record = await self._read(header.msg_id or "")
            if self._check_resumed is not None:
                self._check_resumed(connection, command, _real_topic(record))
            self._transactions.resume(record)
        except MQError as error:
            logger.warning("half message not put back msg_id=%s error=%s", header.msg_id, error)
            raise
        logger.info("half message put back topic=%s physical_offset=%d", record.topic, record.physical_offset)
        return self._done(connection, command)

    def _done(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """The answer, once everything in the log is as safe as the broker makes it."""
        response = None if command.is_oneway else RemotingCommand.response(command)
        append_end = self._store.commit_log.append_offset
        return self._acknowledgements.answer(connection, response, append_end=append_end, waits=True)

    async def _read(self, message_id: str) -> MessageRecord:
        """The record of an offset message id; UnavailableError when the cold tier has it and cannot be asked now."""
        store = self._store
        try:
            physical_offset = decode_message_id(message_id).physical_offset
            if physical_offset >= store.commit_log.min_offset:
                return store.read_record(physical_offset)
            cold = await self._cold.view(physical_offset) if physical_offset >= 0 else None
        except (OffsetOutOfRangeError, CorruptDataError, InvalidParameterError) as error:
            raise InvalidRequestError("there is no message with this id", message_id=message_id) from error
        if cold is None:
            raise InvalidRequestError("there is no message with this id", message_id=message_id)
        return decode_record(cold.record)


def _real_topic(record: MessageRecord) -> str:
    """The topic that a half message, or a parked one, is for; empty for other messages."""
    return record.properties.get(PropertyName.REAL_TOPIC, "")
