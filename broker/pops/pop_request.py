"""Pop request: one POP on its way from its frame to its answer."""

from __future__ import annotations

import msgspec

from thermocline.broker.pops.pop_polling import Place
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.headers.read import PopMessageRequestHeader

MESSAGES_MAX = 32
ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""No further queue is read once so much is found: with a longest message on top the answer stays within a frame."""


class PopRequest:
    """One POP. `command` is kept for its answer, without its fields: opaque, serialisation, user."""

    __slots__ = ("command", "connection", "header")

    def __init__(self, connection: Connection, command: RemotingCommand, header: PopMessageRequestHeader) -> None:
        self.connection = connection
        self.command = msgspec.structs.replace(command, ext_fields=None, body=b"")
        self.header = header

    @property
    def place(self) -> Place:
        """The place where it waits when there is no message."""
        header = self.header
        return Place(header.topic, header.consumer_group, max(header.queue_id, -1))

    @property
    def characters(self) -> int:
        """Of its texts whose length nothing else bounds."""
        header = self.header
        texts = (header.exp, header.exp_type, header.attempt_id, header.namespace, header.broker_name)
        return sum(len(text) for text in texts if text)

    @property
    def deadline_ms(self) -> int:
        """Until when its client waits."""
        return self.header.born_time + self.header.poll_time
