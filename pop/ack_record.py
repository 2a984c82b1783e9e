"""Acknowledgement records: what was consumed of a check point, in the revive topic behind it.

    tag `ack`    one message         {"ao":7,"bn":"broker-a","c":"group","pt":1700000000000,"q":1,"so":5,"t":"topic"}
    tag `bAck`   several messages    the same with "ao":-1 and "aol":[5,8]

    ao  offset    aol  offsets    so  start offset of the check point    pt  its pop time    t, q, c, bn  as there

    property UNIQ_KEY            ack:   topic@queueId@offset@group@popTime@brokerName@ack
                                 bAck:  topic@queueId@[5, 8]@group@popTime@bAck
    property TIMER_DELIVER_MS    pop time + invisible time

Long names (ackOffset, startOffset, consumerGroup, topic, queueId, popTime, brokerName, ackOffsetList) are read too. An
empty broker name means the broker that reads it.
Source: AckMsg.java, BatchAckMsg.java, AckMessageProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from thermocline.pop.check_point import SEPARATOR, UNREADABLE, CheckPoint
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.header_codec import Int, Long, QueueOffsetLong
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.records.properties import PropertyName, encode_properties

TAG = "ack"
BATCH_TAG = "bAck"
NO_OFFSET = QueueOffset(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AckRecord:
    """Messages of one check point that were consumed. One offset makes an `ack`, more of them a `bAck`."""

    topic: str
    group: str
    queue_id: int
    start_offset: QueueOffset
    pop_time_ms: int
    broker_name: str
    offsets: tuple[QueueOffset, ...]

    def __post_init__(self) -> None:
        assert self.offsets

    @classmethod
    def of(cls, check_point: CheckPoint, offsets: Sequence[QueueOffset]) -> AckRecord:
        """The record that these messages of a check point were consumed."""
        return cls(
            topic=check_point.topic,
            group=check_point.group,
            queue_id=check_point.queue_id,
            start_offset=check_point.start_offset,
            pop_time_ms=check_point.pop_time_ms,
            broker_name=check_point.broker_name,
            offsets=tuple(offsets),
        )

    @property
    def tag(self) -> str:
        """The record's tag."""
        return TAG if len(self.offsets) == 1 else BATCH_TAG

    def unique_key(self) -> str:
        """The record's key."""
        if len(self.offsets) == 1:
            parts = (
                self.topic,
                self.queue_id,
                self.offsets[0],
                self.group,
                self.pop_time_ms,
                self.broker_name,
                TAG,
            )
            return SEPARATOR.join(map(str, parts))
        offsets = ", ".join(map(str, self.offsets))
        return SEPARATOR.join(
            map(str, (self.topic, self.queue_id, f"[{offsets}]", self.group, self.pop_time_ms, BATCH_TAG))
        )

    def body(self) -> bytes:
        """The record's body."""
        is_single = len(self.offsets) == 1
        return _encode(
            _Json(
                ao=self.offsets[0] if is_single else NO_OFFSET,
                aol=msgspec.UNSET if is_single else self.offsets,
                bn=self.broker_name,
                c=self.group,
                pt=self.pop_time_ms,
                q=self.queue_id,
                so=self.start_offset,
                t=self.topic,
            )
        )

    def properties_text(self, *, revive_time_ms: int) -> bytes:
        """The record's properties; `revive_time_ms` is the check point's."""
        return encode_properties(
            {
                PropertyName.UNIQUE_KEY: self.unique_key(),
                PropertyName.TAGS: self.tag,
                PropertyName.TIMER_DELIVER_MS: str(revive_time_ms),
            }
        )

    @classmethod
    def parse(cls, body: bytes, *, broker_name: str) -> AckRecord:
        """Read a record's body; `broker_name`: this broker's.

        Raises:
            CorruptDataError: It is none.
        """
        try:
            raw = msgspec.json.decode(body, type=dict[str, Any])
            json = msgspec.convert({_LONG_NAMES.get(name, name): value for name, value in raw.items()}, _Json)
        except UNREADABLE as error:
            raise CorruptDataError("an acknowledgement cannot be read", reason=str(error)) from error
        offsets = (json.ao,) if isinstance(json.aol, msgspec.UnsetType) or not json.aol else json.aol
        if not json.t or not json.c or min(offsets) < 0:
            raise CorruptDataError("an impossible acknowledgement", topic=json.t, group=json.c)
        return cls(
            topic=json.t,
            group=json.c,
            queue_id=json.q,
            start_offset=json.so,
            pop_time_ms=json.pt,
            broker_name=(json.bn or "").strip() or broker_name,
            offsets=offsets,
        )


class _Json(msgspec.Struct, kw_only=True):
    """Members in the order of their names, as fastjson writes them."""

    ao: QueueOffsetLong = NO_OFFSET
    aol: tuple[QueueOffsetLong, ...] | msgspec.UnsetType | None = msgspec.UNSET
    bn: str | None = None
    c: str | None = None
    pt: Long = 0
    q: Int = 0
    so: QueueOffsetLong = QUEUE_START
    t: str | None = None


_LONG_NAMES = {
    "ackOffset": "ao",
    "ackOffsetList": "aol",
    "brokerName": "bn",
    "consumerGroup": "c",
    "popTime": "pt",
    "queueId": "q",
    "startOffset": "so",
    "topic": "t",
}

_encode = msgspec.json.Encoder().encode
