"""Transaction service: the periodic work for transactions.

    every transactionCheckInterval         Runs a check round, in slices (check_round.py). Sends each of its questions
                                           (CHECK_TRANSACTION_STATE) to a connected producer of the group, in turn. With
                                           access control to one whose user may send to the topic: the question has
                                           the message in it.
    transactionOpBatchInterval after the   Writes the waiting notes of ended transactions to the log, as op messages
    first waiting note                     (op_message.py). Earlier if the notes fill an op message.
    every second                           Commits the durable progress to the consumer offsets of the group
                                           CID_RMQ_SYS_TRANS. Housekeeping writes these to their file.
    every transactionMetricFlushInterval   Saves the counts of open transactions, if they changed.

Without open transactions a check round costs almost nothing: it compares two offsets.

Bounds: a round ends after ROUND_S_MAX. For a producer whose connection is full, a round waits up to WRITABLE_S_MAX,
once: then its questions are not sent, and come again in a later round. So one that is frozen neither holds up the
transactions of others nor fills the memory.
If a round fails because the log accepts no writes, the next round tries again.
Owner: the hot process's event loop.
Source: TransactionalMessageCheckService.java, TransactionalOpBatchService.java,
AbstractTransactionalMessageCheckListener.java, Apache RocketMQ 5.3.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from thermocline.broker.due import transaction_counts
from thermocline.broker.due.transaction_counts import TransactionCounts
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.state_files import ConfigPersister
from thermocline.broker.tables import Client, ClientRegistry, ConsumerOffsets, TopicTable
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MQError
from thermocline.remoting.headers.send import CheckTransactionStateRequestHeader
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import (
    TRANSACTION_CHECK_MAX_TIME_TOPIC,
    TRANSACTION_GROUP,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_HALF_TOPIC,
)
from thermocline.store.message_store import MessageStore
from thermocline.transactions.check_round import CheckBack, CheckRound
from thermocline.transactions.half_message import HALF_QUEUE_ID
from thermocline.transactions.transaction_coordinator import TransactionCoordinator

logger = logging.getLogger(__name__)

ROUND_S_MAX = 60.0
WRITABLE_S_MAX = 1.0
PARKING_QUEUES = 1


class TransactionService:
    """Start `run` as a task, call `step` every second, and call `close` once before the log is closed."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        clients: ClientRegistry,
        transactions: TransactionCoordinator,
        transaction_counts: TransactionCounts,
        persister: ConfigPersister,
        clock: Callable[[], int],
        may_send: Callable[[Client, str], bool] | None = None,
    ) -> None:
        """`may_send`: whether a producer's user may send to a topic; None: without access control."""
        self._may_send = may_send
        self._settings = settings
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._transaction_counts = transaction_counts
        self._persister = persister
        self._clock = clock
        self._coordinator = transactions
        self._coordinator.on_notes_waiting = self._schedule_ops
        self._loop = asyncio.get_running_loop()
        self._ops_timer: asyncio.TimerHandle | None = None
        self._counts_due_ms = 0
        self._frozen: set[str] = set()
        """Addresses of producers that have taken nothing in this round."""
        if self._coordinator.table.buffer:
            self._schedule_ops()

    async def run(self) -> None:
        """Run check rounds until cancelled."""
        while True:
            await asyncio.sleep(self._settings.broker.transaction_check_interval_ms / 1_000)
            try:
                await self.check()
            except MQError as error:
                logger.error("check of transactions given up, the next round tries again error=%s", error)
            except Exception:
                # A bug in one round must not end all checks.
                logger.exception("check of transactions failed")

    async def check(self) -> int:
        """Run one check round. Return its number of questions, including those without a connected producer.

        Raises:
            MQError: The log accepts no writes, or the parking topic could not be created.
        """
        check_round = CheckRound(self._coordinator, self._store, now_ms=self._clock())
        check_round.has_parking_topic = TRANSACTION_CHECK_MAX_TIME_TOPIC in self._topics
        self._frozen.clear()
        deadline = self._loop.time() + ROUND_S_MAX
        while not check_round.is_done and self._loop.time() < deadline:
            for question in check_round.step():
                await self._ask(question)
            if check_round.needs_parking_topic and not check_round.has_parking_topic:
                await self._topics.ensure(TRANSACTION_CHECK_MAX_TIME_TOPIC, queue_count=PARKING_QUEUES)
                check_round.has_parking_topic = True
            await asyncio.sleep(0)  # the loop handles requests between two slices
        if check_round.asked_count:
            logger.info("producers asked how transactions ended questions=%d", check_round.asked_count)
        return check_round.asked_count

    def step(self, now_ms: int) -> None:
        """Commit the durable progress. Request a save of the counts if they changed and their interval is over."""
        self.commit_progress()
        if self._transaction_counts.changes.is_unsaved and now_ms >= self._counts_due_ms:
            self._counts_due_ms = now_ms + self._settings.broker.transaction_counts_interval_ms
            self._persister.request(transaction_counts.FILE_NAME)

    def commit_progress(self) -> None:
        """Commit the durable progress to the consumer offsets."""
        if self._coordinator.advance_progress():
            half_offset, op_offset = self._coordinator.progress
            offsets = self._offsets
            offsets.commit(TRANSACTION_HALF_TOPIC, TRANSACTION_GROUP, HALF_QUEUE_ID, half_offset)
            offsets.commit(TRANSACTION_OP_HALF_TOPIC, TRANSACTION_GROUP, HALF_QUEUE_ID, op_offset)

    def close(self) -> None:
        """Write all waiting notes to the log. Call this after the last request was handled."""
        if self._ops_timer is not None:
            self._ops_timer.cancel()
            self._ops_timer = None
        self._coordinator.close()
        self.commit_progress()

    # -- questions -----------------------------------------------------------------------------------------------------

    async def _ask(self, question: CheckBack) -> None:
        may_send, topic = self._may_send, question.topic
        client = self._clients.next_producer(
            question.producer_group, is_eligible=None if may_send is None else lambda one: may_send(one, topic)
        )
        if client is None:
            logger.warning(
                "no producer to ask how a transaction ended group=%s transaction_id=%s",
                question.producer_group,
                question.transaction_id,
            )
            return
        header = CheckTransactionStateRequestHeader(
            topic=TRANSACTION_HALF_TOPIC,
            tran_state_table_offset=question.half_offset,
            commit_log_offset=question.physical_offset,
            msg_id=question.transaction_id,
            transaction_id=question.transaction_id,
            offset_msg_id=question.offset_message_id,
            broker_name=self._settings.broker.broker_name,
        )
        connection = client.connection
        if connection.is_full and not await self._takes_more(client):
            return
        connection.send(
            RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, body=question.record, oneway=True)
        )

    async def _takes_more(self, client: Client) -> bool:
        """Wait until a producer takes what it is sent; whether it does."""
        connection = client.connection
        if connection.remote_address not in self._frozen:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WRITABLE_S_MAX):
                    await connection.wait_writable()
            if connection.is_full:
                self._frozen.add(connection.remote_address)
                logger.warning("producer takes no questions address=%s", connection.remote_address)
        return not connection.is_full

    # -- notes ---------------------------------------------------------------------------------------------------------

    def _schedule_ops(self) -> None:
        """Write the waiting notes now if they fill an op message; else start the timer that writes them."""
        config = self._settings.broker
        if self._coordinator.table.buffer.size_bytes >= config.transaction_op_bytes_max:
            self.write_notes()
        elif self._ops_timer is None:
            self._ops_timer = self._loop.call_later(config.transaction_op_interval_ms / 1_000, self.write_notes)

    def write_notes(self) -> None:
        """Write the waiting notes to the log now; those that it does not take are tried again."""
        if self._ops_timer is not None:
            self._ops_timer.cancel()
            self._ops_timer = None
        try:
            self._coordinator.write_ops()
        except MQError as error:
            logger.error("notes of ended transactions not written, will try again error=%s", error)
            interval_s = self._settings.broker.transaction_op_interval_ms / 1_000
            self._ops_timer = self._loop.call_later(interval_s, self.write_notes)
