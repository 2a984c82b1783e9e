"""Receipt handle: what a consumer that popped a message acknowledges it with.

    "5 1700000000000 60000 3 0 broker-a 2 7"

    start offset of the check point | pop time, ms | invisible time, ms | revive queue id | retry flag | broker name |
    queue id | queue offset of the message

It travels as the message property POP_CK and as the header field extraInfo. The message is this consumer's until pop
time plus invisible time; then another consumer gets it, and the handle is invalid. Clients make handles
from the answer to a POP (pop_offsets.py); of messages from a retry topic the broker does. Fields behind these are a
proxy's own and ignored here.
Source: ExtraInfoUtil.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.handles.pop_topics import ORDER_REVIVE_QUEUE_ID, RetryFlag
from thermocline.remoting.offsets import NO_QUEUE_OFFSET, QueueOffset
from thermocline.remoting.records.properties import KEY_SEPARATOR

FIELDS_WRITTEN = 8
FIELDS_MIN = 7
"""Old clients leave the queue offset out where the request names it anyway."""
SHOWN_CHARS = 200


class ReceiptHandle(msgspec.Struct, frozen=True, kw_only=True):
    """One popped message that a consumer holds."""

    start_offset: QueueOffset
    pop_time_ms: int
    invisible_ms: int
    revive_queue_id: int
    retry_flag: int = RetryFlag.NORMAL
    broker_name: str
    queue_id: int
    queue_offset: QueueOffset = NO_QUEUE_OFFSET

    @property
    def is_order(self) -> bool:
        """Whether it comes from an ordered POP."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE_ID

    @property
    def revive_time_ms(self) -> int:
        """When another consumer may get the message."""
        return self.pop_time_ms + self.invisible_ms

    def text(self) -> str:
        """The handle as it travels."""
        return (
            f"{self.start_offset} {self.pop_time_ms} {self.invisible_ms} {self.revive_queue_id} {int(self.retry_flag)} "
            f"{self.broker_name} {self.queue_id} {self.queue_offset}"
        )

    @classmethod
    def parse(cls, text: str) -> ReceiptHandle:
        """Read a handle.

        Raises:
            InvalidRequestError: It is none.
        """
        return cls.of_fields(text.split(KEY_SEPARATOR), text)

    @classmethod
    def of_fields(cls, fields: Sequence[str], text: str) -> ReceiptHandle:
        """Read a handle that is taken apart already; `text` is shown where it is none.

        Raises:
            InvalidRequestError: It is none.
        """
        if len(fields) < FIELDS_MIN:
            raise InvalidRequestError("not a receipt handle", text=text[:SHOWN_CHARS])
        try:
            return cls(
                start_offset=QueueOffset(int(fields[0])),
                pop_time_ms=int(fields[1]),
                invisible_ms=int(fields[2]),
                revive_queue_id=int(fields[3]),
                retry_flag=int(fields[4]),
                broker_name=fields[5],
                queue_id=int(fields[6]),
                queue_offset=QueueOffset(int(fields[7]) if len(fields) >= FIELDS_WRITTEN else -1),
            )
        except ValueError as error:
            raise InvalidRequestError("not a receipt handle", text=text[:SHOWN_CHARS]) from error
