"""Op messages: the log's notes of which half messages are finished, and the buffer that collects them.

    RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0, tag `d`
    body: half queue offsets in ASCII, each followed by a comma: "15,16,19,"

A note costs a record, so notes are collected until a body is full (transactionOpMsgMaxSize) or the oldest of them has
waited for long enough (transactionOpBatchInterval). They leave in the order in which they came.
Source: TransactionalMessageServiceImpl.java (deletePrepareMessage, getOpMessage, fillOpRemoveMap), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections import deque

from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.properties import PropertyName, encode_properties
from thermocline.remoting.socket_address import Host
from thermocline.remoting.topic_validation import TRANSACTION_OP_HALF_TOPIC
from thermocline.store.log import MessageDraft
from thermocline.transactions.half_message import HALF_QUEUE_ID

OP_TAG = "d"
SEPARATOR = b","

_PROPERTIES = encode_properties({PropertyName.TAGS: OP_TAG, PropertyName.WAIT_STORE: "true"})


def op_draft(body: bytes, *, now_ms: int, host: Host) -> MessageDraft:
    """The op message with this body."""
    return MessageDraft(
        topic=TRANSACTION_OP_HALF_TOPIC,
        queue_id=HALF_QUEUE_ID,
        body=body,
        properties_text=_PROPERTIES,
        born_timestamp_ms=now_ms,
        born_host=host,
    )


def decode_op_body(body: bytes) -> list[QueueOffset]:
    """The half queue offsets in a body; what is none is left out, as RocketMQ leaves it out."""
    return [QueueOffset(int(piece)) for piece in body.split(SEPARATOR) if piece.isdigit()]


class OpBuffer:
    """Notes that are not in the log yet. Bound: `is_full` says when to write; a body holds a few hundred."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[QueueOffset, bytes]] = deque()
        self._size_bytes = 0
        self._waiting: set[QueueOffset] = set()
        self.first_ms: int | None = None
        """When the oldest note came; None while there is none."""

    def __len__(self) -> int:
        return len(self._pieces)

    def __contains__(self, half_offset: QueueOffset) -> bool:
        return half_offset in self._waiting

    @property
    def size_bytes(self) -> int:
        """The bytes of the notes in a body."""
        return self._size_bytes

    def add(self, half_offset: QueueOffset, now_ms: int) -> None:
        """Note that a half message is finished; a second note of the same one changes nothing."""
        if half_offset in self._waiting:
            return
        if not self._pieces:
            self.first_ms = now_ms
        piece = b"%d," % half_offset
        self._pieces.append((half_offset, piece))
        self._waiting.add(half_offset)
        self._size_bytes += len(piece)

    def bodies(self, *, bytes_max: int) -> list[tuple[list[QueueOffset], bytes]]:
        """Everything that waits, as offsets and body of each op message; it waits on until `written`.

        A body ends with the note by which it reaches `bytes_max`.
        """
        bodies: list[tuple[list[QueueOffset], bytes]] = []
        offsets: list[QueueOffset] = []
        pieces: list[bytes] = []
        size_bytes = 0
        for offset, piece in self._pieces:
            offsets.append(offset)
            pieces.append(piece)
            size_bytes += len(piece)
            if size_bytes >= bytes_max:
                bodies.append((offsets, b"".join(pieces)))
                offsets, pieces, size_bytes = [], [], 0
        if pieces:
            bodies.append((offsets, b"".join(pieces)))
        return bodies

    def written(self, count: int) -> None:
        """The first `count` notes are in the log."""
        assert count <= len(self._pieces)
        for _ in range(count):
            offset, piece = self._pieces.popleft()
            self._waiting.discard(offset)
            self._size_bytes -= len(piece)
        if not self._pieces:
            self.first_ms = None
