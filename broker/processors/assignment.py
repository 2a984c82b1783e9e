"""Assignment requests: how groups read topics, and which queues each client gets when the broker assigns them.

    400 QUERY_ASSIGNMENT      401 SET_MESSAGE_REQUEST_MODE      402 GET_ALL_MESSAGE_REQUEST_MODE

A client that leaves balancing to the broker asks 400 for each topic every 20 s. No assignments in the answer mean "no
change": the topic is not known, the group has no members here, or the strategy has no such name.
Retry topics are pulled, whatever is set for others.
Source: broker/processor/QueryAssignmentProcessor.java, Apache RocketMQ 5.3.
"""

import logging
from collections.abc import Mapping

from thermocline.broker.cluster import ClusterQueues
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.tables import (
    STRATEGIES,
    ClientRegistry,
    GroupTable,
    RequestModeTable,
    TopicTable,
    assign_for_pop,
    assign_for_pull,
)
from thermocline.remoting.bodies import (
    BROADCASTING,
    REQUEST_MODE_POP,
    REQUEST_MODE_PULL,
    REQUEST_MODES,
    MessageQueue,
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import (
    GroupNotFoundError,
    InvalidParameterError,
    PermissionDeniedError,
    TopicNotFoundError,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import is_retry_topic

logger = logging.getLogger(__name__)


class AssignmentProcessor:
    """Serves assignments."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientRegistry,
        request_modes: RequestModeTable,
        queues: ClusterQueues,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._request_modes = request_modes
        self._queues = queues

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.get_all_modes,
        }

    async def query(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """400: the queues of one client."""
        body = QueryAssignmentRequestBody.decode(command.body)
        mode = self._mode(body.topic, body.consumer_group)
        queues = await self._assign(body, mode)
        assignments = None
        if queues is not None:
            assignments = [MessageQueueAssignment(message_queue=queue, mode=mode.mode) for queue in queues]
        return RemotingCommand.response(
            command, body=QueryAssignmentResponseBody(message_queue_assignments=assignments).encode()
        )

    async def set_mode(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """401: let a group pull or pop a topic; durable before the answer."""
        mode = SetMessageRequestModeRequestBody.decode(command.body)
        if is_retry_topic(mode.topic):
            raise PermissionDeniedError("retry topic is not allowed to set mode")
        if mode.topic not in self._topics:
            raise TopicNotFoundError(f"topic[{mode.topic}] not exist")
        if self._groups.find_or_create(mode.consumer_group, connection.remote_address) is None:
            raise GroupNotFoundError("subscription group does not exist")
        if mode.mode not in REQUEST_MODES:
            raise InvalidParameterError("a request mode is PULL or POP", mode=mode.mode)
        await self._request_modes.set(mode)
        logger.info(
            "request mode set topic=%s group=%s mode=%s share=%d by=%s",
            mode.topic,
            mode.consumer_group,
            mode.mode,
            mode.pop_share_queue_num,
            connection.remote_address,
        )
        return RemotingCommand.response(command)

    def get_all_modes(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """402: everything that was set."""
        return RemotingCommand.response(command, body=self._request_modes.encode())

    def _mode(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        found = self._request_modes.get(topic, group)
        if found is not None:
            return found
        config = self._settings.broker
        mode = REQUEST_MODE_PULL if is_retry_topic(topic) else config.default_request_mode
        return SetMessageRequestModeRequestBody(
            topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=config.default_pop_share_queues
        )

    async def _assign(
        self, body: QueryAssignmentRequestBody, mode: SetMessageRequestModeRequestBody
    ) -> list[MessageQueue] | None:
        queues = await self._queues.find(body.topic)
        if queues is None or body.message_model == BROADCASTING or not self._settings.broker.server_load_balancer:
            return queues
        group = self._clients.consumer_group(body.consumer_group)
        strategy = STRATEGIES.get(body.strategy_name or "")
        if group is None or strategy is None:
            logger.warning(
                "no assignment topic=%s group=%s strategy=%s client_id=%s",
                body.topic,
                body.consumer_group,
                body.strategy_name,
                body.client_id,
            )
            return None
        client_ids = group.client_ids()
        if mode.mode == REQUEST_MODE_POP:
            return assign_for_pop(strategy, queues, client_ids, body.client_id, share_count=mode.pop_share_queue_num)
        return assign_for_pull(strategy, queues, client_ids, body.client_id)
