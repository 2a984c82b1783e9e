"""Consumer offset requests: reading, storing and resetting the offsets of groups.

    14 QUERY_CONSUMER_OFFSET      222 INVOKE_BROKER_TO_RESET_OFFSET      308 QUERY_CORRECTION_OFFSET
    15 UPDATE_CONSUMER_OFFSET     314 CLONE_GROUP_OFFSET                  43 GET_ALL_CONSUMER_OFFSET

A group without an offset (14)
    gets 0 when the queue's first message ever, offset 0, is still here: local, visible, and near enough to the end of
    the log to be in memory. Then a group that starts at "last" still gets the messages sent just before its first
    member connected. Otherwise it gets "not found" and its client decides. Messages that only the cold tier holds do
    not count as "in memory": otherwise a new group that wants only new messages would read years of history.

While a group is held (tables/group_holds.py), requests that would move it are refused with a retryable error.

A logic queue of a static topic has its offsets at its physical queues (static_topics/static_offsets.py).

Resetting (222)
    server side (default): the broker moves the group's offsets at once and answers the next pull of each queue with
    "offset moved"; commits that members send before that are passed over.
    client side (useServerSideResetOffset=false): the broker works the offsets out and pushes them to the group's
    members.
    A slave refuses the first, as its master's next offsets would undo it; one that stands in for its master does not.

Source: broker/processor/ConsumerManageProcessor.java, AdminBrokerProcessor.java, client/net/Broker2Client.java,
Apache RocketMQ 5.3.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from thermocline.broker.queues import FirstMessages, QueueLookup
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.static_topics import MappedQueues, StaticOffsets
from thermocline.broker.tables import (
    ClientRegistry,
    ConsumerOffsets,
    GroupHolds,
    GroupTable,
    LedQueue,
    StaticTopicTable,
    TopicTable,
)
from thermocline.remoting.bodies import (
    MessageQueue,
    MessageQueueForC,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    TopicConfig,
)
from thermocline.remoting.bodies.logic_queue import find_item, physical_queue_offset
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import (
    ConsumerOfflineError,
    GroupNotFoundError,
    InvalidParameterError,
    InvalidRequestError,
    MQError,
    TopicNotFoundError,
)
from thermocline.remoting.headers.group import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetRequestHeader,
    ResetOffsetRequestHeader,
)
from thermocline.remoting.headers.read import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from thermocline.remoting.java_long import LONG_MAX
from thermocline.remoting.language_code import LanguageCode
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.topic_validation import check_group

logger = logging.getLogger(__name__)

RESET_PUSH_VERSION = 28
"""Release 3.0.7-SNAPSHOT: the first whose clients take a pushed reset."""


class ConsumerOffsetProcessor:
    """Serves consumer offsets."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        topics: TopicTable,
        static_topics: StaticTopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        holds: GroupHolds,
        clients: ClientRegistry,
        lookup: QueueLookup,
        mapped_queues: MappedQueues,
        first_messages: FirstMessages,
        does_master_work: Callable[[], bool],
    ) -> None:
        """`does_master_work`: false at a slave that does not stand in for its master."""
        self._does_master_work = does_master_work
        self._settings = settings
        self._topics = topics
        self._static_topics = static_topics
        self._groups = groups
        self._offsets = offsets
        self._holds = holds
        self._clients = clients
        self._lookup = lookup
        self._first_messages = first_messages
        self._static = StaticOffsets(mapped_queues.find)

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
            RequestCode.QUERY_CORRECTION_OFFSET: self.query_correction,
        }

    # -- consumers -----------------------------------------------------------------------------------------------------

    def query(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | Awaitable[RemotingCommand]:
        """14: where a group goes on in a queue."""
        header = command.header(QueryConsumerOffsetRequestHeader)
        led = self._static_topics.led(header.topic, header.queue_id, is_logical=header.logical)
        if led is not None:
            if len(led.items) > 1 or led.leader.logic_offset:
                return self._query_static(command, led, header.consumer_group)
            header.queue_id = led.leader.queue_id  # its offsets are those of the one physical queue
        offset = self._offsets.query(header.topic, header.consumer_group, header.queue_id)
        if offset is not None:
            return RemotingCommand.response(command, header=OffsetResponseHeader(offset=offset))
        if header.set_zero_if_not_found is False:
            return _not_found(command, "Not found, do not set to zero, maybe this group boot first")
        if self._first_messages.is_in_memory(header.topic, header.queue_id):
            return RemotingCommand.response(command, header=OffsetResponseHeader(offset=QUEUE_START))
        return _not_found(command, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")

    async def _query_static(self, command: RemotingCommand, led: LedQueue, group: str) -> RemotingCommand:
        offset = await self._static.committed(led, group)
        if offset is None:
            return _not_found(command, "Not found, maybe this group consumer boot first")
        return RemotingCommand.response(command, header=OffsetResponseHeader(offset=offset))

    def update(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | Awaitable[RemotingCommand]:
        """15: store where a group goes on; passed over while a reset waits for its next pull."""
        header = command.header(UpdateConsumerOffsetRequestHeader)
        led = self._static_topics.led(header.topic, header.queue_id, is_logical=header.logical)
        if led is not None:
            item = find_item(led.items, header.commit_offset)
            if item is None or not led.is_here(item):
                return self._update_elsewhere(command, led, header)
            header.queue_id = item.queue_id
            header.commit_offset = max(item.start_offset, physical_queue_offset(item, header.commit_offset))
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._holds.check(group)
        if group not in self._groups:
            raise GroupNotFoundError(f"Group {group} not exist!")
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFoundError(f"Topic {topic} not exist!")
        if not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            raise InvalidParameterError(f"queueId [{queue_id}] is illegal, topic is {topic}")
        remark = None
        if self._settings.broker.server_side_reset and self._offsets.has_reset(topic, group, queue_id):
            remark = "Offset has been previously reset"
        else:
            self._offsets.check_room(topic, group, address=connection.remote_address)
            self._offsets.commit(topic, group, queue_id, header.commit_offset)
        return RemotingCommand.response(command, remark=remark, ext_fields={})

    async def _update_elsewhere(
        self, command: RemotingCommand, led: LedQueue, header: UpdateConsumerOffsetRequestHeader
    ) -> RemotingCommand:
        await self._static.commit(led, header.consumer_group, header.commit_offset)
        return RemotingCommand.response(command, ext_fields={})

    # -- administration ------------------------------------------------------------------------------------------------

    def get_all(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """43: all offsets, as the file has them, but without pull offsets."""
        return RemotingCommand.response(command, body=self._offsets.encode(has_pulls=False))

    async def clone(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """314: give a group the offsets of another, of one topic or of all."""
        header = command.header(CloneGroupOffsetRequestHeader)
        topic = (header.topic or "").strip()
        check_group(header.dest_group)
        self._holds.check(header.dest_group)
        self._offsets.check_writable(header.dest_group)
        online = self._clients.consumer_group(header.src_group)
        for name in [topic] if topic else sorted(self._offsets.topics_of(header.src_group)):
            if name not in self._topics:
                logger.warning("offset not cloned, no such topic topic=%s", name)
                continue
            if not header.offline and online is not None and online.subscriptions and name not in online.subscriptions:
                logger.warning("offset not cloned, not subscribed topic=%s group=%s", name, header.src_group)
                continue
            if self._offsets.has_pair(name, header.src_group):
                self._offsets.check_room(name, header.dest_group, address=connection.remote_address)
                self._offsets.clone(name, header.src_group, header.dest_group)
        return RemotingCommand.response(command)

    async def query_correction(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """308: per queue the least offset of all groups; 2^63 - 1 where the compared group is below it already.

        Groups to leave out are left out of the answer (RocketMQ deletes their offsets when asked this).
        """
        header = command.header(QueryCorrectionOffsetRequestHeader)
        left_out = {name for name in (header.filter_groups or "").split(",") if name}
        least: dict[int, QueueOffset] = {}
        for group in self._offsets.groups_of(header.topic) - left_out:
            for queue_id, offset in self._offsets.of_group(header.topic, group).items():
                if offset >= await self._lookup.minimum(header.topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, QueueOffset(LONG_MAX)))
        for queue_id, offset in self._offsets.of_group(header.topic, header.compare_group).items():
            if queue_id in least and least[queue_id] > offset:
                least[queue_id] = QueueOffset(LONG_MAX)
        return RemotingCommand.response(command, body=QueryCorrectionOffsetBody(correction_offsets=least).encode())

    # -- reset ---------------------------------------------------------------------------------------------------------

    async def reset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """222: move a group to a time, to the end (-1), or one queue of it to an offset."""
        header = command.header(ResetOffsetRequestHeader)
        if self._settings.broker.server_side_reset and not self._does_master_work():
            raise MQError("Can not reset offset in slave broker")
        config = self._topics.get(header.topic)
        if config is None:
            raise TopicNotFoundError(f"Topic {header.topic} does not exist")
        self._holds.check(header.group)
        self._offsets.check_writable(header.group)
        if not self._settings.broker.server_side_reset:
            return await self._reset_by_members(command, header, config)
        if header.group not in self._groups:
            raise GroupNotFoundError(f"Group {header.group} does not exist")
        if header.queue_id >= 0:
            if header.queue_id >= max(config.read_queue_nums, config.write_queue_nums):
                raise InvalidParameterError(f"queueId [{header.queue_id}] is illegal, topic is {header.topic}")
            targets = {header.queue_id: await self._target_in_queue(header)}
        else:
            targets = await self._targets(header.topic, config.read_queue_nums, header.timestamp)
        if not targets:
            raise InvalidRequestError("No queues to reset.")
        self._holds.check(header.group)  # again: the offsets were looked for
        for queue_id, offset in targets.items():
            self._offsets.assign_reset(header.topic, header.group, queue_id, offset)
        logger.info(
            "offsets reset topic=%s group=%s queues=%d by=%s",
            header.topic,
            header.group,
            len(targets),
            connection.remote_address,
        )
        body = ResetOffsetBody(offset_table=self._by_queue(header.topic, targets))
        return RemotingCommand.response(command, body=body.encode())

    async def _target_in_queue(self, header: ResetOffsetRequestHeader) -> QueueOffset:
        lookup = self._lookup
        offset = header.offset
        if offset is None or offset == -1:
            return await self._offset_at(header.topic, header.queue_id, header.timestamp)
        least = await lookup.minimum(header.topic, header.queue_id)
        end = lookup.end(header.topic, header.queue_id)
        if not least <= offset <= end + 1:
            raise InvalidRequestError(f"Target offset {offset} not in consume queue range [{least}-{end}]")
        return offset

    async def _targets(self, topic: str, queue_count: int, timestamp_ms: int) -> dict[int, QueueOffset]:
        offsets = await asyncio.gather(
            *(self._offset_at(topic, queue_id, timestamp_ms) for queue_id in range(queue_count))
        )
        return dict(enumerate(offsets))

    async def _offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> QueueOffset:
        lookup = self._lookup
        if timestamp_ms < 0:
            return lookup.end(topic, queue_id)
        return await lookup.offset_at(topic, queue_id, timestamp_ms)

    async def _reset_by_members(
        self, command: RemotingCommand, header: ResetOffsetRequestHeader, config: TopicConfig
    ) -> RemotingCommand:
        """Work the offsets out and push them (220) to the group's members, who apply them."""
        targets: dict[int, QueueOffset] = {}
        for queue_id, target in (await self._targets(header.topic, config.write_queue_nums, header.timestamp)).items():
            present = self._offsets.query(header.topic, header.group, queue_id)
            if present is None:
                raise InvalidRequestError(f"THe consumer group <{header.group}> not exist")
            targets[queue_id] = target if header.is_force else min(target, present)
        group = self._clients.consumer_group(header.group)
        if group is None:
            raise ConsumerOfflineError(
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}"
            )
        old = [client for client in group.members.values() if client.version < RESET_PUSH_VERSION]
        if old:
            raise InvalidRequestError(f"the client does not support this feature. version={old[0].version}")
        by_queue = self._by_queue(header.topic, targets)
        body = ResetOffsetBody(offset_table=by_queue).encode()
        pushed = body if command.language is not LanguageCode.CPP else _body_for_c(by_queue)
        push = ResetOffsetRequestHeader(
            topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=header.is_force
        )
        for connection in group.members:
            connection.send(
                RemotingCommand.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, push, body=pushed, oneway=True)
            )
        return RemotingCommand.response(command, body=body)

    def _by_queue(self, topic: str, offsets: Mapping[int, QueueOffset]) -> dict[MessageQueue, QueueOffset]:
        broker_name = self._settings.broker.broker_name
        return {
            MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id): offset
            for queue_id, offset in offsets.items()
        }


def _not_found(command: RemotingCommand, remark: str) -> RemotingCommand:
    return RemotingCommand.response(command, ResponseCode.QUERY_NOT_FOUND, remark=remark, ext_fields={})


def _body_for_c(offsets: Mapping[MessageQueue, QueueOffset]) -> bytes:
    """The form for C++ clients, which cannot read objects as keys."""
    return ResetOffsetBodyForC(
        offset_table=[
            MessageQueueForC(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, offset=offset)
            for queue, offset in offsets.items()
        ]
    ).encode()
