"""View: VIEW_MESSAGE_BY_ID 33, one record by its physical offset, which an offset message id names.

Local first; below the local log the cold tier is asked, and while it cannot be, the answer is a retryable error.
Source: QueryMessageProcessor.java (viewMessageById), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from thermocline.broker.cold import ColdReads
from thermocline.broker.processors.messages.topic_check import TopicCheck
from thermocline.broker.queues import LocalRecords, VisibleQueues
from thermocline.broker.stats import BrokerStats
from thermocline.broker.tables import TopicTable
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.headers.read import ViewMessageRequestHeader
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.message_store import MessageStore


class ViewProcessor:
    """Serves a message by its id."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        stats: BrokerStats,
        cold: ColdReads,
        visible: VisibleQueues,
        local: LocalRecords,
        check_topic: TopicCheck | None = None,
    ) -> None:
        """`check_topic`: access control, if it is on."""
        self._check_topic = check_topic
        self._store = store
        self._topics = topics
        self._stats = stats
        self._cold = cold
        self._visible = visible
        self._local = local

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {RequestCode.VIEW_MESSAGE_BY_ID: self.view}

    def view(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        """33: the record at an offset."""
        offset = command.header(ViewMessageRequestHeader).offset
        if not self._local.holds(offset):
            return self._view_cold(connection, command, offset)
        record = self._local.find(offset)
        if record is None:
            return _not_found(command, offset)
        if self._check_topic is not None:
            self._check_topic(connection, command, record.topic)
        return self._found(command, self._local.bytes_of(record))

    async def _view_cold(
        self, connection: Connection, command: RemotingCommand, offset: PhysicalOffset
    ) -> RemotingCommand:
        found = await self._cold.view(offset) if offset >= 0 else None
        # Looked at after the answer has come: it may have expired on its way, or its topic been deleted.
        if (
            found is None
            or found.topic not in self._topics
            or not self._store.incarnations.is_live(found.topic, found.physical_offset)
            or found.store_timestamp_ms < self._visible.expired_before_ms(found.topic)
        ):
            return _not_found(command, offset)
        if self._check_topic is not None:
            self._check_topic(connection, command, found.topic)
        return self._found(command, found.record)

    def _found(self, command: RemotingCommand, record: bytes | memoryview) -> RemotingCommand:
        self._stats.looked_up_bytes += len(record)
        return RemotingCommand.response(command, body=record)


def _not_found(command: RemotingCommand, offset: PhysicalOffset) -> RemotingCommand:
    return RemotingCommand.response(
        command, ResponseCode.SYSTEM_ERROR, remark=f"can not find message by the offset, {offset}"
    )
