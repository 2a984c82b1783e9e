"""Recall: 370 RECALL_MESSAGE, cancels the delivery of a timed message.

    handle of the send's answer -> marker in the same tick of the timers -> the message's unique id as the answer

A success means that the marker is stored: there may have been no such message, or it has gone out already.
Checks, in RocketMQ's order: recalls are allowed; sends are accepted yet; broker writable; topic; handle.
Source: RecallMessageProcessor.java, Apache RocketMQ 5.3.
"""

import logging
from collections.abc import Callable, Mapping

from thermocline.broker.sends import MessageAppender
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.tables import TopicTable
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.error_table import error_response
from thermocline.remoting.errors import (
    IllegalOperationError,
    MQError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from thermocline.remoting.handles import decode_recall_handle
from thermocline.remoting.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from thermocline.remoting.records.properties import PropertyName
from thermocline.remoting.request_code import RequestCode
from thermocline.store.log import PutStatus
from thermocline.timers.timer_message_store import TimerMessageStore

logger = logging.getLogger(__name__)

STORED = frozenset({PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT})


class RecallProcessor:
    """Serves recalls."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        topics: TopicTable,
        timers: TimerMessageStore | None,
        appender: MessageAppender,
        clock: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._timers = timers
        self._appender = appender
        self._clock = clock

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {RequestCode.RECALL_MESSAGE: self.recall}

    async def recall(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """370: take a timed message back; as safe as a send on return."""
        try:
            message_id = await self._recall(connection, command.header(RecallMessageRequestHeader))
            response = RemotingCommand.response(command, header=RecallMessageResponseHeader(msg_id=message_id))
        except MQError as error:
            response = error_response(command, error)
        region = {PropertyName.MESSAGE_REGION: self._settings.broker.region_id}
        response.ext_fields = {**(response.ext_fields or {}), **region}
        return response

    async def _recall(self, connection: Connection, header: RecallMessageRequestHeader) -> str:
        config = self._settings.broker
        if not config.recall:
            raise PermissionDeniedError("recall failed, operation is forbidden")
        if self._clock() < config.accept_sends_from_ms:
            raise ServiceUnavailableError("recall failed, broker service not available")
        if not config.is_writable and not config.recall_when_not_writable:
            raise ServiceUnavailableError("recall failed, broker service not available")
        if header.topic not in self._topics:
            raise TopicNotFoundError(f"recall failed, the topic[{header.topic}] not exist")
        handle = decode_recall_handle(header.recall_handle)
        timers = self._timers
        try:
            if timers is None:
                raise MQError("timers are switched off")
            marker = timers.recall(
                handle,
                topic=header.topic,
                broker_name=config.broker_name,
                producer_group=header.producer_group,
                born_host=connection.remote_host,
            )
            _, status = await self._appender.append_and_wait(marker)
            if status not in STORED:
                raise ServiceUnavailableError(status.value)
        except IllegalOperationError:
            raise
        except MQError as error:
            # RocketMQ answers every failure to store the marker so, whatever a send would be answered.
            logger.warning("recall failed topic=%s error=%s", header.topic, error)
            raise MQError("recall failed, execute error") from error
        return handle.unique_key
