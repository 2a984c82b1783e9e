"""AsyncTransactionProducer: messages that consumers see if, and only if, a local transaction commits.

    class Listener:
        async def execute_local_transaction(self, message, transaction_id, argument): ...
        async def check_local_transaction(self, message, transaction_id): ...

    producer = AsyncTransactionProducer(group="orders", namesrv="127.0.0.1:9876")
    producer.register_transaction_listener(Listener())
    async with producer:
        result = await producer.send_message_in_transaction(Message("orders", b"..."))

See `transactions.py` for the duties of the listener. Everything else is as `AsyncProducer` has it.

Rules
  - The end of a transaction is sent to the broker, and its answer is awaited; the result reports a missing answer, and
    the broker checks later. The official client does not wait for the answer.
  - A half message whose answer was lost is not sent again: the first one may be stored, and both would be asked about
    and commit. The send fails, the local transaction is not run, and a check of the first finds no transaction.
  - Checks wait in a bounded line; the broker asks again about what falls out of it.
Source: client/impl/producer/DefaultMQProducerImpl.java (sendMessageInTransaction, checkTransactionState), Apache
RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from thermocline.client.consumer.dispatch.listener_runner import (
    ListenerRunner,
    TaskRunner,
    is_own_cancellation,
    run_directly,
)
from thermocline.client.message import Message
from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.async_producer import AsyncProducer
from thermocline.client.producer.sending import half_draft
from thermocline.client.producer.transactions import (
    END_FLAGS,
    AsyncTransactionListener,
    LocalTransactionState,
    TransactionProducerOptions,
    TransactionSendResult,
)
from thermocline.client.received_message import ReceivedMessage
from thermocline.client.send_result import SendResult, SendStatus
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import ClosedError, InvalidRequestError, MQError
from thermocline.remoting.headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.message_id import decode_message_id
from thermocline.remoting.records.message_record import MessageRecord, decode_record
from thermocline.remoting.records.properties import PropertyName
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.socket_address import format_address

__all__ = ["AsyncTransactionProducer"]

logger = logging.getLogger(__name__)


class AsyncTransactionProducer(TransactionProducerOptions, AsyncProducer):
    """See the module. Belongs to one event loop; every method must be called on it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._listener: Any = None
        self._runner: ListenerRunner | None = None
        self._checks_waiting = 0

    # -- life --------------------------------------------------------------------------------------------------------

    def register_transaction_listener(self, listener: AsyncTransactionListener) -> None:
        """Run and look up local transactions by this listener.

        Raises:
            ClosedError: The producer has started.
        """
        self.set_transaction_listener(listener)

    async def start(self) -> None:
        """Begin to work, and let the brokers of `topics` know.

        Raises:
            InvalidRequestError: No listener is registered.
            ClosedError: It was started or closed before.
        """
        await self.start_checking_with(TaskRunner(count_max=self.check_threads))

    async def close(self) -> None:
        """Take no more messages, wait for the outcome of all under way, leave the brokers; idempotent.

        Checks that have not begun are left to other producers of the group, or to this one after a restart.
        Cancelling stops only the waiting.
        """
        await super().close()

    async def _finish(self) -> None:
        if self._runner is not None:
            await self._runner.close(timeout_ms=self.request_timeout_ms)
        await super()._finish()

    # -- sending -----------------------------------------------------------------------------------------------------

    async def send_message_in_transaction(
        self, message: Message, argument: object = None, *, timeout_ms: int | None = None
    ) -> TransactionSendResult:
        """Send a half message, run the local transaction, and tell the broker how that ended.

        `argument` is for the listener. `timeout_ms` bounds the send of the half message. Cancelling leaves the
        transaction to a check, as a crash does.

        Raises:
            InvalidRequestError: The message or its topic is impossible, or it is to be delayed.
            UnavailableError: No broker took the half message; the local transaction was not run.
            ClosedError: The producer is not started, or closed.
        """
        result = await self.send_half(message, timeout_ms=timeout_ms)
        # Stored less safely than asked: the half message may be lost, so nothing is done locally.
        state = LocalTransactionState.ROLLBACK_MESSAGE
        if result.status is SendStatus.SEND_OK:
            transaction_id = result.transaction_id or result.message_id
            try:
                outcome = await self._listener.execute_local_transaction(message, transaction_id, argument)
                state = checked_state(outcome)
            except asyncio.CancelledError:
                if is_own_cancellation():
                    raise
                logger.exception("local transaction cancelled, the broker will ask transaction_id=%s", transaction_id)
                state = LocalTransactionState.UNKNOWN
            except Exception:
                logger.exception("local transaction failed, the broker will ask transaction_id=%s", transaction_id)
                state = LocalTransactionState.UNKNOWN
        return await self.end_transaction(result, state)

    # -- for the blocking half, and inside ---------------------------------------------------------------------------

    def set_transaction_listener(self, listener: object) -> None:
        """Use this listener, of the kind that the runner calls."""
        if self._session is not None:
            raise ClosedError("the listener is registered before the start")
        self._listener = listener

    async def start_checking_with(self, runner: ListenerRunner) -> None:
        """Begin to work, and run checks with this runner; see `start`."""
        if self._listener is None:
            raise InvalidRequestError("register a transaction listener first", group=self.group)
        if self._session is None and not self._closed:
            self._runner = runner
        await super().start()

    def watched_topics(self) -> tuple[str, ...]:
        """The topics whose brokers are to know this producer from its start."""
        return tuple(self.topics)

    async def send_half(self, message: Message, *, timeout_ms: int | None) -> SendResult:
        """Send a half message and wait until the broker has stored it; see `send_message_in_transaction`."""
        prepared = half_draft(message, self)
        if not self._in_flight.has_room:
            await self._in_flight.wait_for_room()
        return await self._begin_send(prepared, timeout_ms=timeout_ms)

    async def end_transaction(self, half: SendResult, state: LocalTransactionState) -> TransactionSendResult:
        """Tell the broker how a transaction ended, and return the result of its send."""
        session = self._session
        if session is None:
            raise ClosedError("the producer is not started")
        is_confirmed = False
        try:
            header = EndTransactionRequestHeader(
                topic=half.queue.topic,
                producer_group=self.group,
                tran_state_table_offset=QueueOffset(half.queue_offset),
                commit_log_offset=decode_message_id(half.offset_message_id).physical_offset,
                commit_or_rollback=END_FLAGS[state],
                msg_id=half.message_id,
                transaction_id=half.transaction_id,
                broker_name=half.queue.broker_name,
            )
            address = await session.routes.find_reader(half.queue)
            if state is LocalTransactionState.UNKNOWN:
                await session.tell(address, RequestCode.END_TRANSACTION, header)
            else:
                await session.call(address, RequestCode.END_TRANSACTION, header)
                is_confirmed = True
        except MQError as error:
            logger.warning(
                "end of a transaction not confirmed, the broker will ask transaction_id=%s state=%s error=%s",
                half.transaction_id,
                state.name,
                error,
            )
        return TransactionSendResult(
            status=half.status,
            message_id=half.message_id,
            offset_message_id=half.offset_message_id,
            queue=half.queue,
            queue_offset=half.queue_offset,
            transaction_id=half.transaction_id,
            local_transaction_state=state,
            is_confirmed=is_confirmed,
        )

    def answer(self, command: RemotingCommand) -> RemotingCommand | None:
        """Queue a broker's check of a transaction; its end is sent later."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return super().answer(command)
        header = command.header(CheckTransactionStateRequestHeader)
        record = decode_record(command.body)
        group = record.property_text(PropertyName.PRODUCER_GROUP)
        if group != self.group:
            logger.warning("asked about a transaction of another group group=%s", group)
            return None
        if self._checks_waiting >= self.check_request_hold_max:
            logger.warning("too many checks wait, the broker will ask again transaction_id=%s", header.transaction_id)
            return None
        session, _, _ = self._started()
        self._checks_waiting += 1
        session.start_task(self._check(header, record))
        return None

    async def _check(self, header: CheckTransactionStateRequestHeader, record: MessageRecord) -> None:
        """Look up how a transaction ended and tell the broker, if it ended."""
        session, _, _ = self._started()
        broker_name = header.broker_name or ""
        queue = MessageQueue(topic=record.topic, broker_name=broker_name, queue_id=record.queue_id)
        transaction_id = header.transaction_id or record.unique_key or ""
        try:
            state = await self._look_up(ReceivedMessage(record, queue=queue), transaction_id)
            if state is None:
                return
            answer = EndTransactionRequestHeader(
                topic=header.topic,
                producer_group=self.group,
                tran_state_table_offset=header.tran_state_table_offset,
                commit_log_offset=header.commit_log_offset,
                commit_or_rollback=END_FLAGS[state],
                from_transaction_check=True,
                msg_id=record.unique_key or header.offset_msg_id,
                transaction_id=header.transaction_id,
                broker_name=header.broker_name,
            )
            # RocketMQ's brokers before 5.1.4 do not name themselves.
            address = session.routes.reader(broker_name) if broker_name else format_address(*record.store_host)
            await session.tell(address, RequestCode.END_TRANSACTION, answer)
        except MQError as error:
            logger.warning("check not answered transaction_id=%s error=%s", transaction_id, error)
        finally:
            self._checks_waiting -= 1

    async def _look_up(self, message: ReceivedMessage, transaction_id: str) -> LocalTransactionState | None:
        """The state by the listener; None when it was not asked any more."""
        assert self._runner is not None
        if self._closed:
            return None
        listener = self._listener
        try:
            outcome = await run_directly(
                self._runner, lambda: listener.check_local_transaction(message, transaction_id)
            )
            return checked_state(outcome)
        except ClosedError:
            return None
        except Exception:
            logger.exception("check of a transaction failed, the broker will ask again id=%s", transaction_id)
            return LocalTransactionState.UNKNOWN


def checked_state(outcome: object) -> LocalTransactionState:
    """What a listener's answer means; None is UNKNOWN.

    Raises:
        InvalidRequestError: It is no state.
    """
    if outcome is None:
        return LocalTransactionState.UNKNOWN
    if not isinstance(outcome, LocalTransactionState):
        raise InvalidRequestError("a transaction listener answers with a LocalTransactionState", answer=repr(outcome))
    return outcome
