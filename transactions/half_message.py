"""Half messages: the message that a producer sends before its local transaction, and the records made from it.

    send -> half       RMQ_SYS_TRANS_HALF_TOPIC, queue 0: no group consumes it
    half -> copy       the same again at the queue's end, one check later
    half -> committed  the topic and queue it was sent to
    half -> parked     TRANS_CHECK_MAX_TIME_TOPIC: checked too often, left to the operator

Properties of a half message beside those that were sent
    REAL_TOPIC, REAL_QID           where it was sent to
    __transactionId__              UNIQ_KEY once more, when there is one
    TRANSACTION_CHECK_TIMES        how often the producers were asked
    TRAN_PREPARED_QUEUE_OFFSET     of a copy: the half queue offset of the first one, its origin

Rules
  - All copies of one half message are one transaction, named by its origin. Apache RocketMQ names the origin only while
    it waits for a custom immunity time to pass; here every copy does, so that a decision that names an early copy is
    known to be the same as one that names the last.
  - The transaction bits of the system flag are clear in half messages and say "commit" in a committed one, which also
    carries the physical offset of the half message that it was made of.
  - TRAN_MSG, PGROUP and `__transactionId__` stay in the committed message, as they do in RocketMQ 5.5.
  - A property text that leaves no room for what copies add is refused when it is sent.
Source: TransactionalMessageBridge.java, EndTransactionProcessor.java, TransactionalMessageServiceImpl.java,
DefaultTransactionalMessageCheckListener.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from thermocline.remoting.errors import PropertiesTooLargeError
from thermocline.remoting.java_long import LONG_MAX
from thermocline.remoting.offsets import LOG_START, PhysicalOffset, QueueOffset
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import (
    PROPERTIES_BYTES_MAX,
    PropertyName,
    decode_properties,
    encode_properties,
)
from thermocline.remoting.records.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK
from thermocline.remoting.topic_validation import TRANSACTION_CHECK_MAX_TIME_TOPIC, TRANSACTION_HALF_TOPIC
from thermocline.store.log import MessageDraft

HALF_QUEUE_ID = 0
"""Half and op topic have one queue."""

SET_BACK_MS = 10_000
"""By how much the clock must have been set back to matter."""
CHECK_TIMES_CHARACTERS_MAX = 10
COPY_BYTES = len(
    encode_properties(
        {
            PropertyName.TRANSACTION_CHECK_TIMES: "9" * CHECK_TIMES_CHARACTERS_MAX,
            PropertyName.TRANSACTION_PREPARED_QUEUE_OFFSET: str(LONG_MAX),
        }
    )
)
"""The most bytes that a copy's property text adds to that of the half message."""


def is_half_request(properties: Mapping[str, str], *, reconsume_times: int, delay_level: int) -> bool:
    """Whether a sent message is a half message. A retry of a client before 4.6.1, with what it got, is none."""
    is_marked = properties.get(PropertyName.TRANSACTION_PREPARED, "").lower() == "true"
    return is_marked and not (reconsume_times > 0 and delay_level > 0)


def half_draft(draft: MessageDraft) -> MessageDraft:
    """The half message of a message that was sent.

    Raises:
        PropertiesTooLargeError: There is no room for the properties of a half message and its copies.
    """
    properties = decode_properties(draft.properties_text)
    unique_key = properties.get(PropertyName.UNIQUE_KEY)
    if unique_key:
        properties[PropertyName.TRANSACTION_ID] = unique_key
    properties.pop(PropertyName.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    properties.pop(PropertyName.TRANSACTION_CHECK_TIMES, None)
    properties[PropertyName.REAL_TOPIC] = draft.topic
    properties[PropertyName.REAL_QUEUE_ID] = str(draft.queue_id)
    text = encode_properties(properties)
    if len(text) + COPY_BYTES > PROPERTIES_BYTES_MAX:
        raise PropertiesTooLargeError(
            "no room for the properties of a half message",
            size_bytes=len(text),
            size_bytes_max=PROPERTIES_BYTES_MAX - COPY_BYTES,
        )
    return msgspec.structs.replace(
        draft,
        topic=TRANSACTION_HALF_TOPIC,
        queue_id=HALF_QUEUE_ID,
        sys_flag=draft.sys_flag & ~TRANSACTION_MASK,
        properties_text=text,
        tags_code=None,
    )


class HalfMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The transaction of a half message, or of a parked one, from its record."""

    record: MessageRecord
    properties: dict[str, str]
    real_topic: str
    real_queue_id: int
    origin: QueueOffset | None
    """The half queue offset of the transaction's first record; None when a parked one does not say it."""
    check_times: int
    immunity_text: str | None

    @classmethod
    def read(cls, record: MessageRecord) -> HalfMessage | None:
        """Of any record; None when it does not say where the message was sent to."""
        properties = record.properties
        real_topic = properties.get(PropertyName.REAL_TOPIC, "")
        real_queue_id = _number(properties.get(PropertyName.REAL_QUEUE_ID))
        if not real_topic or real_queue_id is None:
            return None
        number = _number(properties.get(PropertyName.TRANSACTION_PREPARED_QUEUE_OFFSET))
        origin = None if number is None else QueueOffset(number)
        if record.topic == TRANSACTION_HALF_TOPIC and (origin is None or origin > record.queue_offset):
            origin = record.queue_offset
        return cls(
            record=record,
            properties=properties,
            real_topic=real_topic,
            real_queue_id=real_queue_id,
            origin=origin,
            check_times=_number(properties.get(PropertyName.TRANSACTION_CHECK_TIMES)) or 0,
            immunity_text=properties.get(PropertyName.CHECK_IMMUNITY_TIME_S),
        )

    @property
    def producer_group(self) -> str | None:
        """The producer group that is asked."""
        return self.properties.get(PropertyName.PRODUCER_GROUP)

    @property
    def transaction_id(self) -> str | None:
        """The producer's id of the message, which is that of the transaction."""
        return self.properties.get(PropertyName.UNIQUE_KEY)

    def age_ms(self, now_ms: int) -> int:
        """How long ago it was born; stored, when the producer's clock is ahead of the broker's."""
        return now_ms - min(self.record.born_timestamp_ms, self.record.store_timestamp_ms)

    def is_young(self, now_ms: int, transaction_timeout_ms: int) -> bool:
        """Whether it is too early to ask its producers. One of the future is not young: the clock was set back since it
        was stored, so its age is unknown."""
        return -SET_BACK_MS <= self.age_ms(now_ms) <= self.check_after_ms(transaction_timeout_ms)

    @property
    def is_immune_by_itself(self) -> bool:
        """Whether it names an immunity time of its own."""
        return self.immunity_text is not None

    def check_after_ms(self, transaction_timeout_ms: int) -> int:
        """At which age its producers may be asked: the time that it names, else the broker's."""
        seconds = _seconds(self.immunity_text)
        return transaction_timeout_ms if seconds is None or seconds == -1 else seconds * 1_000

    def is_too_late(self, now_ms: int, transaction_timeout_ms: int) -> bool:
        """Whether a decision has to come by a check now: it named an immunity time, and that has passed."""
        if not self.immunity_text:
            return False
        seconds = _seconds(self.immunity_text) or 0
        return self.age_ms(now_ms) > max(seconds * 1_000, transaction_timeout_ms)

    # -- what comes of it ----------------------------------------------------------------------------------------------

    def committed(self) -> MessageDraft:
        """The message for its real topic."""
        left_out = (
            PropertyName.REAL_TOPIC,
            PropertyName.REAL_QUEUE_ID,
            PropertyName.TRANSACTION_PREPARED_QUEUE_OFFSET,
        )
        properties = {name: value for name, value in self.properties.items() if name not in left_out}
        return self._draft(
            self.real_topic,
            self.real_queue_id,
            properties,
            sys_flag=self.record.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
            prepared_transaction_offset=self.record.physical_offset,
        )

    def copy(self, *, check_times: int) -> MessageDraft:
        """The same half message for the end of its queue, with another number of checks."""
        properties = self._with_origin()
        properties.pop(PropertyName.TRANSACTION_CHECK_TIMES, None)
        if check_times:
            properties[PropertyName.TRANSACTION_CHECK_TIMES] = str(check_times)
        return self._draft(TRANSACTION_HALF_TOPIC, HALF_QUEUE_ID, properties, sys_flag=self.record.sys_flag)

    def as_sent(self) -> MessageDraft:
        """The half message as its producer sent it, for another broker, which begins to count its checks anew."""
        left_out = (
            PropertyName.REAL_TOPIC,
            PropertyName.REAL_QUEUE_ID,
            PropertyName.TRANSACTION_PREPARED_QUEUE_OFFSET,
            PropertyName.TRANSACTION_CHECK_TIMES,
        )
        properties = {name: value for name, value in self.properties.items() if name not in left_out}
        properties[PropertyName.TRANSACTION_PREPARED] = "true"
        return self._draft(self.real_topic, self.real_queue_id, properties, sys_flag=self.record.sys_flag)

    def parked(self) -> MessageDraft:
        """The message for the topic of those that were checked too often."""
        return self._draft(TRANSACTION_CHECK_MAX_TIME_TOPIC, 0, self._with_origin(), sys_flag=self.record.sys_flag)

    def _with_origin(self) -> dict[str, str]:
        if self.origin is None:
            return dict(self.properties)
        return {**self.properties, PropertyName.TRANSACTION_PREPARED_QUEUE_OFFSET: str(self.origin)}

    def _draft(
        self,
        topic: str,
        queue_id: int,
        properties: Mapping[str, str],
        *,
        sys_flag: int,
        prepared_transaction_offset: PhysicalOffset = LOG_START,
    ) -> MessageDraft:
        record = self.record
        return MessageDraft(
            topic=topic,
            queue_id=queue_id,
            body=record.body,
            properties_text=encode_properties(properties),
            born_timestamp_ms=record.born_timestamp_ms,
            born_host=record.born_host,
            flag=record.flag,
            sys_flag=sys_flag,
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=prepared_transaction_offset,
        )


def _number(text: str | None) -> int | None:
    """The number, 0 or more, that a broker wrote; None for anything else."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= 19 else None


def _seconds(text: str | None) -> int | None:
    """The number that a producer wrote, as Java reads it; None when it is none."""
    if text is None:
        return None
    number = _number(text[1:] if text[:1] in ("-", "+") else text)
    return -number if number is not None and text[:1] == "-" else number
