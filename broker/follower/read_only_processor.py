"""Read-only processor: what a broker that only serves another's history refuses, with NO_PERMISSION."""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.broker.follower.source import Source
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import PermissionDeniedError
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode

REFUSED = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
    RequestCode.RECALL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    PrivateRequestCode.TTL_SET,
)
"""Requests that append to the log (also POP's check points), or change topics, which belong to the source: a time to
live that is changed here hides the source's messages from this broker's readers, some of them for ever."""


class ReadOnlyProcessor:
    """Stands before all others."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return dict.fromkeys(REFUSED, self.refuse)

    def refuse(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Say who takes messages."""
        raise PermissionDeniedError(
            f"this broker is read-only: it serves the history of broker {self._source.broker_name},"
            f" cluster {self._source.cluster_name}"
        )
