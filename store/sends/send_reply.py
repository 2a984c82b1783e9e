"""Send reply: the answer to a send that the fast path has stored, as the codec would write it.

A single message's answer and a batch's, in JSON and in binary; a batch may come without a unique key and is answered
without one. Source: SendMessageResponseHeader.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from thermocline.remoting.answer_template import (
    HEAD_BYTES,
    binary_head,
    binary_pieces,
    binary_template,
    escaped,
    json_template,
    sized_number,
    sized_text,
)
from thermocline.remoting.command import FLAG_RESPONSE, RemotingCommand
from thermocline.remoting.frames import FRAME_HEAD, LENGTH
from thermocline.remoting.header_codec import encode_header
from thermocline.remoting.headers.send import SendMessageResponseHeader
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset
from thermocline.store.sends.send_properties import reply_properties

MESSAGE_IDS_PER_RUN = 64
"""How many message ids of a batch are written in one step."""

MESSAGE_ID, UNIQUE_KEY = "MESSAGE-ID", "UNIQUE-KEY"
QUEUE_ID, QUEUE_OFFSET, OPAQUE = 2_000_000_001, QueueOffset(2_000_000_002), 2_000_000_004

_pack_frame_head = FRAME_HEAD.pack  # the serialisation of JSON is 0
_pack_opaque = struct.Struct(">i").pack
SUCCESS = 0
OPAQUE_POSITION = HEAD_BYTES + 5  # behind code, language and version
SINGLES_MAX = 256
"""How many shapes of a single message's answer are kept."""


class SendReplies:
    """Makes whole frames, and the template of the commonest answer. One for a broker's address and settings.

    `json_single`: the header of the answer to one message in JSON; `%` takes physical offset, queue id, queue offset,
    unique key and opaque.
    """

    def __init__(self, *, store_host: bytes, region_id: str, trace_on: bool) -> None:
        """`store_host`: address and port as a record holds them."""
        self._message_id = f"{store_host.hex().upper()}%016X".encode()
        self._message_ids = [b",".join([self._message_id] * count) for count in range(MESSAGE_IDS_PER_RUN + 1)]
        extra = reply_properties(region_id=region_id, trace_on=trace_on)
        with_key, without_key = _answer(UNIQUE_KEY, extra), _answer(None, extra)
        places = [(MESSAGE_ID, "%b"), (str(QUEUE_ID), "%d"), (str(QUEUE_OFFSET), "%d")]
        opaque = (str(OPAQUE), "%d")
        self._json = json_template(with_key, [*places, (UNIQUE_KEY, "%b"), opaque])
        self.json_single = self._json.replace(b"%b", self._message_id, 1)
        self._json_keyless = json_template(without_key, [*places, opaque])
        sentinels = [MESSAGE_ID, str(QUEUE_ID), str(QUEUE_OFFSET)]
        self._binary = binary_template(with_key, [*sentinels, UNIQUE_KEY])
        self._binary_pieces = binary_pieces(with_key, [*sentinels, UNIQUE_KEY])
        self._binary_singles: dict[tuple[int, int, int], bytes] = {}
        self._binary_keyless = binary_template(without_key, sentinels)

    def binary_single(
        self,
        physical_offset: PhysicalOffset,
        queue_id: int,
        queue_offset: QueueOffset,
        unique_key: bytes,
        opaque: int,
    ) -> bytes:
        """The frame that answers one message in binary."""
        queue, offset = b"%d" % queue_id, b"%d" % queue_offset
        sizes = len(queue), len(offset), len(unique_key)
        template = self._binary_singles.get(sizes)
        if template is None:
            template = self._binary_single(*sizes)
        return template % (_pack_opaque(opaque), physical_offset, queue, offset, unique_key)

    def _binary_single(self, queue_id_bytes: int, queue_offset_bytes: int, unique_key_bytes: int) -> bytes:
        """The frame of a single message's answer whose values have these sizes: `%` takes opaque and all values."""
        sizes = [len(self._message_id % 0), queue_id_bytes, queue_offset_bytes, unique_key_bytes]
        forms = [self._message_id, b"%b", b"%b", b"%b"]
        fields_bytes = sum(map(len, self._binary_pieces)) + sum(LENGTH.size + size for size in sizes)
        head = binary_head(bytes(fields_bytes), code=SUCCESS, opaque=0)[:-fields_bytes]
        opaque_end = OPAQUE_POSITION + len(_pack_opaque(0))
        template = escaped(head[:OPAQUE_POSITION]) + b"%b" + escaped(head[opaque_end:])
        for piece, size, form in zip(self._binary_pieces, sizes, forms, strict=False):
            template += escaped(piece + LENGTH.pack(size)) + form
        template += escaped(self._binary_pieces[-1])
        if len(self._binary_singles) >= SINGLES_MAX:
            self._binary_singles.clear()
        self._binary_singles[queue_id_bytes, queue_offset_bytes, unique_key_bytes] = template
        return template

    def batch(
        self,
        physical_offsets: Sequence[int],
        queue_id: int,
        queue_offset: QueueOffset,
        unique_key: bytes,
        opaque: int,
        is_binary: bool,
    ) -> bytes:
        """The answer to a batch; `unique_key` may be empty."""
        message_ids = self._format_ids(physical_offsets)
        if is_binary:
            return self._binary_frame(message_ids, queue_id, queue_offset, unique_key, opaque)
        if unique_key:
            header = self._json % (message_ids, queue_id, queue_offset, unique_key, opaque)
        else:
            header = self._json_keyless % (message_ids, queue_id, queue_offset, opaque)
        return _pack_frame_head(len(header) + LENGTH.size, len(header)) + header

    def _binary_frame(
        self, message_ids: bytes, queue_id: int, queue_offset: QueueOffset, unique_key: bytes, opaque: int
    ) -> bytes:
        values = sized_text(message_ids), sized_number(queue_id), sized_number(queue_offset)
        if unique_key:
            fields = self._binary % (*values, sized_text(unique_key))
        else:
            fields = self._binary_keyless % values
        return binary_head(fields, code=SUCCESS, opaque=opaque)

    def _format_ids(self, physical_offsets: Sequence[int]) -> bytes:
        """The message ids of a batch."""
        runs = [
            physical_offsets[at : at + MESSAGE_IDS_PER_RUN]
            for at in range(0, len(physical_offsets), MESSAGE_IDS_PER_RUN)
        ]
        return b",".join([self._message_ids[len(run)] % tuple(run) for run in runs])


def _answer(unique_key: str | None, extra: dict[str, str]) -> RemotingCommand:
    """Such an answer, with a sentinel wherever one differs from another."""
    fields = SendMessageResponseHeader(
        msg_id=MESSAGE_ID, queue_id=QUEUE_ID, queue_offset=QUEUE_OFFSET, transaction_id=unique_key
    )
    return RemotingCommand(code=SUCCESS, opaque=OPAQUE, flag=FLAG_RESPONSE, ext_fields=encode_header(fields) | extra)
