"""Bodies of POP consumption: batch acknowledgements, and whether groups pull or pop.

Source: BatchAckMessageRequestBody.java, BatchAck.java, SetMessageRequestModeRequestBody.java,
MessageRequestModeManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import re
from typing import Annotated, Self

from msgspec import field

from thermocline.remoting.bodies.body import Body
from thermocline.remoting.header_codec import Int, Long, QueueOffsetLong
from thermocline.remoting.json_conversion import convert, enum_names
from thermocline.remoting.json_dialect import loads_as, read_exactly
from thermocline.remoting.offsets import QUEUE_START

REQUEST_MODE_PULL = "PULL"
REQUEST_MODE_POP = "POP"
REQUEST_MODES = (REQUEST_MODE_PULL, REQUEST_MODE_POP)


class BatchAck(Body, kw_only=True):
    """Messages of one check point that were consumed; `bits` as bit_set.py, counted from `start_offset`."""

    bits: str = field(default="", name="b")
    consumer_group: str = field(default="", name="c")
    invisible_ms: Long = field(default=0, name="it")
    pop_time_ms: Long = field(default=0, name="pt")
    queue_id: Int = field(default=0, name="q")
    retry: str = field(default="0", name="r")
    revive_queue_id: Int = field(default=0, name="rq")
    start_offset: QueueOffsetLong = field(default=QUEUE_START, name="so")
    topic: str = field(default="", name="t")


_LONG_NAMES = {
    "bitSet": "b",
    "consumerGroup": "c",
    "invisibleTime": "it",
    "popTime": "pt",
    "queueId": "q",
    "retry": "r",
    "reviveQueueId": "rq",
    "startOffset": "so",
    "topic": "t",
}
"""Names that RocketMQ reads as well."""
_LONG_NAME = re.compile(rf"\b(?:{'|'.join(_LONG_NAMES)})\b".encode())


class BatchAckMessageRequestBody(Body, kw_only=True):
    """The request body of BATCH_ACK_MESSAGE."""

    acks: list[BatchAck] = field(default_factory=list)
    broker_name: str = ""

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """The body, with short or long names of its members.

        Raises:
            InvalidRequestError: It is none.
        """
        if not _LONG_NAME.search(data):
            return loads_as(data, cls)
        body = read_exactly(data)
        acks = body.get("acks") if isinstance(body, dict) else None
        for ack in acks if isinstance(acks, list) else [acks]:
            if isinstance(ack, dict):
                for long_name in _LONG_NAMES.keys() & ack.keys():
                    ack[_LONG_NAMES[long_name]] = ack.pop(long_name)
        return convert(body, cls)


class SetMessageRequestModeRequestBody(Body, kw_only=True):
    """The request body of SET_MESSAGE_REQUEST_MODE: how a group reads a topic.

    In mode POP each client reads its own queues and those of the next `pop_share_queue_num` clients; 0: all queues.
    """

    consumer_group: str = ""
    mode: Annotated[str, enum_names(REQUEST_MODE_PULL, REQUEST_MODE_POP, keeps_unknown=True)] = REQUEST_MODE_PULL
    pop_share_queue_num: Int = 0
    topic: str = ""


class MessageRequestModes(Body, kw_only=True):
    """The file messageRequestMode.json and the answer to GET_ALL_MESSAGE_REQUEST_MODE: by topic and group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(default_factory=dict)
