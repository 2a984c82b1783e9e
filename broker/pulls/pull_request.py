"""Pull request: one pull on its way from its frame to its answer."""

from __future__ import annotations

from thermocline.broker.pulls.static_pull import StaticPull
from thermocline.remoting.command import SerializeType
from thermocline.remoting.connections import Connection
from thermocline.remoting.headers.read import PullMessageRequestHeader


class PullRequest:
    """One pull. `offset` is where to look from: it moves on while the pull waits and nothing matches. `is_first` ends
    when the pull has waited: it neither waits nor commits again. `static`: the logic queue that it is for, when the
    header has been rewritten to a physical one."""

    __slots__ = ("code", "connection", "header", "is_first", "offset", "opaque", "serialize_type", "static", "user")

    def __init__(
        self,
        connection: Connection,
        header: PullMessageRequestHeader,
        *,
        code: int,
        opaque: int,
        serialize_type: SerializeType,
        user: str = "",
    ) -> None:
        """`user`: who is proved to have sent it, with access control."""
        self.connection = connection
        self.header = header
        self.code = code
        self.opaque = opaque
        self.serialize_type = serialize_type
        self.user = user
        self.offset = header.queue_offset
        self.is_first = True
        self.static: StaticPull | None = None

    @property
    def characters(self) -> int:
        """Of its texts whose length nothing else bounds."""
        header = self.header
        texts = (header.subscription, header.expression_type, header.proxy_forward_client_id)
        return sum(len(text) for text in (*texts, header.namespace, header.broker_name) if text)
