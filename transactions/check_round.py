"""Check round: examines every open half message once, in queue order, and makes the questions to producers.

    younger than its immunity time   stays as it is; if the time is the message's own, a copy replaces the message once
                                     it keeps too many log files or half messages (`_holds_back`)
    checked `check_max` times        is parked
    else                             a copy with one more check replaces it, and producers are asked about the copy

The immunity time is the message's own (CHECK_IMMUNITY_TIME_IN_SECONDS), else the broker's (transactionTimeOut).
A round examines the half messages that were stored before it began, so none of its own copies.

A round is cut into slices, bounded by messages and bytes, so that the loop can serve requests in between. A slice
writes its notes into the log before it returns: a copy may be decided only after the log has the end of the message
that it replaces.

Differences from Apache RocketMQ
  - RocketMQ puts a message that waits for its own immunity time again in every round, and counts that as a check, so a
    message that waits for more than transactionCheckMax rounds is parked without a question. This broker leaves it
    until HELD_MESSAGES_MAX half messages, or the bytes of a log file, were stored after it, or retention wants its
    file; and it counts questions only.
  - RocketMQ parks a half message that is older than the log's retention. This broker keeps its log file instead.
  - RocketMQ computes a message's age from the producer's clock, so it asks at once if that clock is ahead.
Source: TransactionalMessageServiceImpl.java (check), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging

import msgspec

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.message_record import encode_record
from thermocline.remoting.records.properties import PropertyName, encode_properties
from thermocline.store.log import PutResult
from thermocline.store.message_store import MessageStore
from thermocline.transactions.half_message import HalfMessage
from thermocline.transactions.transaction_coordinator import TransactionCoordinator
from thermocline.transactions.transaction_table import TransactionState

logger = logging.getLogger(__name__)

SLICE_MESSAGES_MAX = 64
SLICE_BYTES_MAX = 1 << 20
HELD_MESSAGES_MAX = 100_000
"""How many half messages may follow one that waits for its own immunity time: a restart reads all of them."""


class CheckBack(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the producers of a group: how did this transaction end? Offsets are those of the newest copy."""

    producer_group: str
    topic: str
    """Of the message."""
    half_offset: QueueOffset
    physical_offset: PhysicalOffset
    offset_message_id: str
    transaction_id: str | None
    record: bytes
    """The message, with its real topic and queue."""


class CheckRound:
    """One round. Call `step` until `is_done`; a round may be abandoned between two steps."""

    def __init__(self, coordinator: TransactionCoordinator, store: MessageStore, *, now_ms: int) -> None:
        self.is_done = False
        self.needs_parking_topic = False
        """True if the next step needs the parking topic: create it, then set `has_parking_topic`."""
        self.has_parking_topic = False
        self.asked_count = 0
        self._coordinator = coordinator
        self._store = store
        self._now_ms = now_ms
        self._end = coordinator.catch_up()
        self._position = coordinator.table.base

    def step(self) -> list[CheckBack]:
        """Examine one slice of half messages. Return the questions to send now.

        Raises:
            MQError: The log takes no writes. Changes made before the error stay; a later round repeats their questions.
        """
        questions: list[CheckBack] = []
        size_bytes = 0
        try:
            for _ in range(SLICE_MESSAGES_MAX):
                half_offset = self._coordinator.table.next_open(self._position, self._end)
                if half_offset is None:
                    self.is_done = True
                    break
                half = self._coordinator.read_half(half_offset)
                if half is None:
                    self._coordinator.table.finish(half_offset, TransactionState.MISSING, now_ms=self._now_ms)
                else:
                    size_bytes += half.record.size_bytes
                    try:
                        if not self._examine(half, questions):
                            break
                    except InvalidRequestError as error:  # a limit was lowered since it was sent
                        logger.error("half message cannot be put again half_offset=%d error=%s", half_offset, error)
                self._position = half_offset + 1
                if size_bytes >= SLICE_BYTES_MAX:
                    break
        finally:
            self._coordinator.write_ops()
        self.asked_count += len(questions)
        return questions

    def _examine(self, half: HalfMessage, questions: list[CheckBack]) -> bool:
        """Check, park, copy or drop one half message if that is due. Return False if the parking topic is needed."""
        coordinator = self._coordinator
        if not coordinator.is_live(half):
            coordinator.finish(half, TransactionState.ROLLED_BACK)
            logger.info("half message of a deleted topic dropped topic=%s", half.real_topic)
        elif half.is_young(self._now_ms, coordinator.config.timeout_ms):
            if half.is_immune_by_itself and self._holds_back(half):
                coordinator.put_copy(half, check_times=half.check_times)
        elif half.check_times >= coordinator.config.check_max:
            if not self.has_parking_topic:
                self.needs_parking_topic = True
                return False
            coordinator.park(half)
            logger.warning(
                "transaction parked, its producers were asked too often topic=%s group=%s transaction_id=%s checks=%d",
                half.real_topic,
                half.producer_group,
                half.transaction_id,
                half.check_times,
            )
        else:
            result = coordinator.put_copy(half, check_times=half.check_times + 1)
            if half.producer_group:
                questions.append(self._question(half, half.producer_group, result))
        return True

    def _holds_back(self, half: HalfMessage) -> bool:
        record = half.record
        log_bytes = self._store.commit_log.append_offset - record.physical_offset
        return (
            self._end - record.queue_offset > HELD_MESSAGES_MAX
            or log_bytes > self._store.config.log_file_bytes
            or self._coordinator.is_wanted(record.physical_offset)
        )

    def _question(self, half: HalfMessage, producer_group: str, copy: PutResult) -> CheckBack:
        record = half.record
        properties = {
            **half.properties,
            PropertyName.TRANSACTION_CHECK_TIMES: str(half.check_times + 1),
            PropertyName.WAIT_STORE: "false",
        }
        properties.pop(PropertyName.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
        return CheckBack(
            producer_group=producer_group,
            topic=half.real_topic,
            half_offset=copy.queue_offset,
            physical_offset=copy.physical_offset,
            offset_message_id=encode_message_id(self._store.store_host, copy.physical_offset),
            transaction_id=half.transaction_id,
            record=encode_record(
                topic=half.real_topic,
                queue_id=half.real_queue_id,
                queue_offset=copy.queue_offset,
                physical_offset=copy.physical_offset,
                body=record.body,
                properties_text=encode_properties(properties),
                born_timestamp_ms=record.born_timestamp_ms,
                born_host=record.born_host,
                store_timestamp_ms=copy.store_timestamp_ms,
                store_host=self._store.store_host,
                flag=record.flag,
                sys_flag=record.sys_flag,
                reconsume_times=record.reconsume_times,
            ),
        )
