"""Order record: what an ordered POP, or an acknowledgement of one, has changed, in the revive topic.

    tag `order`     {"c":"group","i":{order info},"o":7,"q":1,"t":"topic"}

    i  the queue's order info since then; absent: the queue is free
    o  where the group goes on since then

Apache RocketMQ has no such record: there a crash forgets what was acknowledged since the two state files were written
last. Its revive service passes over tags that it does not know. The newest record of a queue is the state; one that is
older than a state file is not needed. Clients may send to the revive topic: a record with numbers that no file could
hold is corrupt.
"""

from __future__ import annotations

import msgspec

from thermocline.pop.check_point import UNREADABLE
from thermocline.pop.order_info import OrderInfo, OrderInfoJson
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.header_codec import Int, QueueOffsetLong
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.properties import PropertyName, encode_properties

TAG = "order"
PROPERTIES_TEXT = encode_properties({PropertyName.TAGS: TAG})


class OrderRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one queue of one group."""

    topic: str
    group: str
    queue_id: int
    next_offset: QueueOffset
    info: OrderInfo | None

    def body(self) -> bytes:
        """The record's body."""
        return _encode(
            _Json(
                c=self.group,
                i=None if self.info is None else OrderInfoJson.of(self.info),
                o=self.next_offset,
                q=self.queue_id,
                t=self.topic,
            )
        )

    @classmethod
    def parse(cls, body: bytes) -> OrderRecord:
        """Read a record's body.

        Raises:
            CorruptDataError: It is none.
        """
        try:
            json = _decode(body)
        except UNREADABLE as error:
            raise CorruptDataError("an order record cannot be read", reason=str(error)) from error
        if json.q < 0 or json.o < 0 or (json.i is not None and not json.i.fits_64_bits):
            raise CorruptDataError("an impossible order record", topic=json.t, group=json.c, queue_id=json.q)
        return cls(
            topic=json.t,
            group=json.c,
            queue_id=json.q,
            next_offset=json.o,
            info=None if json.i is None else json.i.info(),
        )


class _Json(msgspec.Struct, kw_only=True):
    c: str
    i: OrderInfoJson | None
    o: QueueOffsetLong
    q: Int
    t: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Json).decode
