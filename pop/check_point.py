"""Check point: messages of one queue that were popped together and are not all acknowledged yet, as a record.

A record of the revive topic with the tag `ck`; its body is JSON:

    so  start offset         pt  pop time, ms          bn  broker name
    n   number of messages   it  invisible time, ms    ro  revive offset; 0 in the record
    d   their offsets, counted from `so`               rp  how often it was put anew (text), or absent
    bm  bits of those acknowledged when it was put     sp  suspended: coming back counts as no try
    t   topic    q   queue id    c   group             reviveTime  pt + it; not read
    rn  true: a new invisible time of a message that was popped before; absent otherwise, and in what RocketMQ writes

    property UNIQ_KEY           topic@queueId@startOffset@group@popTime@brokerName@ck
    property TIMER_DELIVER_MS   pt + it - 1000

Bit i of `bm`, a signed 32-bit number, belongs to the i-th message, so a check point holds 32 at most. What joins it
with its acknowledgements are topic, group, queue id, start offset, pop time and broker name.

Clients may send to the revive topic, so a record may say anything. One without messages, with more than 32, or with
offsets that do not ascend is corrupt: nothing could finish it.
Source: PopCheckPoint.java, PopMessageProcessor.java (buildCkMsg), Apache RocketMQ 5.3; `sp`: 5.5.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.header_codec import Int, Long, QueueOffsetLong
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.records.properties import PropertyName, encode_properties

MESSAGES_MAX = 32
TAG = "ck"
SEPARATOR = "@"
DELIVER_AHEAD_MS = 1_000
"""RocketMQ reads a check point a second before its acknowledgements."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for a body that is none: also one with other bytes than UTF-8, or nested too deep."""
OFFSET_END = 1 << 63
TIMES_DIGITS_MAX = 9

_SIGN = 1 << 31
_MASK = (1 << 32) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPoint:
    """The content of one record. `offsets` ascend and begin at or behind `start_offset`; `acked_bits` counts from 0."""

    topic: str
    group: str
    queue_id: int
    start_offset: QueueOffset
    offsets: tuple[QueueOffset, ...]
    pop_time_ms: int
    invisible_ms: int
    broker_name: str
    acked_bits: int = 0
    rewritten_times: int = 0
    is_suspended: bool = False
    is_renewal: bool = False

    def __post_init__(self) -> None:
        assert len(self.offsets) <= MESSAGES_MAX

    @property
    def revive_time_ms(self) -> int:
        """When messages not acknowledged by then go to another consumer."""
        return self.pop_time_ms + self.invisible_ms

    def renewed(self, offset: QueueOffset, *, pop_time_ms: int, invisible_ms: int, is_suspended: bool) -> CheckPoint:
        """The check point that takes the place of this one for a message with a new due time."""
        return CheckPoint(
            topic=self.topic,
            group=self.group,
            queue_id=self.queue_id,
            start_offset=offset,
            offsets=(offset,),
            pop_time_ms=pop_time_ms,
            invisible_ms=invisible_ms,
            broker_name=self.broker_name,
            is_suspended=is_suspended,
            is_renewal=True,
        )

    def unique_key(self) -> str:
        """The record's key."""
        parts = (self.topic, self.queue_id, self.start_offset, self.group, self.pop_time_ms, self.broker_name, TAG)
        return SEPARATOR.join(map(str, parts))

    def body(self) -> bytes:
        """The record's body."""
        bits = self.acked_bits
        return _encode(
            _Json(
                bm=bits - (1 << 32) if bits & _SIGN else bits,
                bn=self.broker_name,
                c=self.group,
                d=[offset - self.start_offset for offset in self.offsets],
                it=self.invisible_ms,
                n=len(self.offsets),
                pt=self.pop_time_ms,
                q=self.queue_id,
                revive_time=self.revive_time_ms,
                rn=True if self.is_renewal else msgspec.UNSET,
                rp=str(self.rewritten_times) if self.rewritten_times else msgspec.UNSET,
                so=self.start_offset,
                sp=self.is_suspended,
                t=self.topic,
            )
        )

    def properties_text(self) -> bytes:
        """The record's properties."""
        return encode_properties(
            {
                PropertyName.UNIQUE_KEY: self.unique_key(),
                PropertyName.TAGS: TAG,
                PropertyName.TIMER_DELIVER_MS: str(self.revive_time_ms - DELIVER_AHEAD_MS),
            }
        )

    @classmethod
    def parse(cls, body: bytes, *, broker_name: str) -> CheckPoint:
        """Read a record's body; `broker_name`: this broker's, which an empty one in the record means.

        Raises:
            CorruptDataError: It is none.
        """
        try:
            json = _decode(body)
        except UNREADABLE as error:
            raise CorruptDataError("a check point cannot be read", reason=str(error)) from error
        # Releases before 5.0 wrote no distances: the offsets follow each other.
        count = len(json.d) if json.d else json.n
        if not json.t or not json.c or not 0 < count <= MESSAGES_MAX or json.q < 0 or json.pt < 0:
            raise CorruptDataError("an impossible check point", topic=json.t, group=json.c, count=count)
        offsets = tuple(QueueOffset(json.so + distance) for distance in json.d or range(count))
        if not are_possible(offsets, start=json.so):
            raise CorruptDataError("an impossible check point", topic=json.t, group=json.c, start_offset=json.so)
        return cls(
            topic=json.t,
            group=json.c,
            queue_id=json.q,
            start_offset=json.so,
            offsets=offsets,
            pop_time_ms=json.pt,
            invisible_ms=json.it,
            broker_name=(json.bn or "").strip() or broker_name,
            acked_bits=json.bm & _MASK,
            rewritten_times=_times(json.rp),
            is_suspended=json.sp,
            is_renewal=json.rn is True,
        )


class _Json(msgspec.Struct, kw_only=True):
    """Members in the order of their names, as fastjson writes them."""

    bm: Long = 0
    bn: str | None = None
    c: str | None = None
    d: list[Long] | None = None
    it: Long = 0
    n: Int = 0
    pt: Long = 0
    q: Int = 0
    revive_time: int = msgspec.field(default=0, name="reviveTime")
    rn: bool | msgspec.UnsetType | None = msgspec.UNSET
    ro: int = 0
    rp: str | msgspec.UnsetType | None = msgspec.UNSET
    so: QueueOffsetLong = QUEUE_START
    sp: bool = False
    t: str | None = None


def are_possible(offsets: Sequence[QueueOffset], *, start: QueueOffset) -> bool:
    """Whether offsets ascend from `start` on, which is in a queue as they are."""
    return 0 <= start <= offsets[0] and offsets[-1] < OFFSET_END and all(map(operator.lt, offsets, offsets[1:]))


def _times(text: str | msgspec.UnsetType | None) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) <= TIMES_DIGITS_MAX else 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Json).decode
