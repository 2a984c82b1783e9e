"""Hand-off requests: move a consumer group to exactly where a bulk reader stopped. See remoting/bodies/hand_off.py.

    90150 HAND_OFF_LOOK       every queue's range and the group's offset in it
    90151 HAND_OFF_PREPARE    check everything, hold the group
    90152 HAND_OFF_APPLY      check again, move it; durable before the answer
    90153 HAND_OFF_ABORT      release the group

What is checked
  - This is the broker that was read: its store's id, if the request says one. By force another one will do, since a
    broker that was recovered from the bucket has a new id.
  - The group is idle: no member is connected, and no popped message is unacknowledged.
  - The topic has the incarnation that was read, and is not static.
  - Every offset is within the queue's visible range. One below it, whose messages have expired since, is accepted only
    by force; the group then goes on at the queue's beginning.
  - The group's offset is the one that the reader found, if the request has one; else within the range read, or not set.
The range may need a request to the cold tier. After it all other checks are made again and the group is moved in the
same turn of the loop: that is the lock. A receipt that was applied before is answered as such, and moves nothing.
Owner: the hot process's event loop.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping

from thermocline.broker.queues import QueueLookup
from thermocline.broker.state_files import ConfigPersister
from thermocline.broker.tables import (
    ClientRegistry,
    ConsumerOffsets,
    GroupHolds,
    GroupTable,
    StaticTopicTable,
    TopicTable,
    consumer_offsets,
)
from thermocline.pop.pop_store import PopStore
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.bodies.hand_off import (
    BEGINNING,
    ERROR_FIELD,
    NO_OFFSET,
    HandOffAnswer,
    HandOffBody,
    HandOffPlaces,
    MovedQueue,
    QueuePlace,
    QueueTarget,
    TopicTarget,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.error_table import error_response
from thermocline.remoting.errors import (
    GroupActiveError,
    GroupNotFoundError,
    IllegalOperationError,
    InvalidParameterError,
    MQError,
    NotPreparedError,
    OffsetChangedError,
    OffsetOutOfRangeError,
    TopicChangedError,
    TopicNotFoundError,
)
from thermocline.remoting.private_requests import HandOffHeader, HandOffLookHeader, PrivateRequestCode
from thermocline.store.message_store import MessageStore

logger = logging.getLogger(__name__)

RECEIPT_CHARACTERS_MAX = 255
"""Its id is kept with the group's offsets."""


class HandOffProcessor:
    """Serves hand-offs."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        static_topics: StaticTopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        holds: GroupHolds,
        clients: ClientRegistry,
        pops: PopStore,
        persister: ConfigPersister,
        lookup: QueueLookup,
    ) -> None:
        self._store = store
        self._topics = topics
        self._static_topics = static_topics
        self._groups = groups
        self._offsets = offsets
        self._holds = holds
        self._clients = clients
        self._pops = pops
        self._persister = persister
        self._lookup = lookup

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            PrivateRequestCode.HAND_OFF_LOOK: _with_error_name(self.places),
            PrivateRequestCode.HAND_OFF_PREPARE: _with_error_name(self.prepare),
            PrivateRequestCode.HAND_OFF_APPLY: _with_error_name(self.apply),
            PrivateRequestCode.HAND_OFF_ABORT: _with_error_name(self.abort),
        }

    async def places(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90150."""
        header = command.header(HandOffLookHeader)
        config = self._config(header.topic)
        queues = []
        for queue_id in range(_queue_count(config)):
            minimum = await self._lookup.minimum(header.topic, queue_id)
            offset = self._offsets.query(header.topic, header.group, queue_id)
            queues.append(
                QueuePlace(
                    queue_id=queue_id,
                    min_offset=minimum,
                    max_offset=self._lookup.end(header.topic, queue_id),
                    offset=NO_OFFSET if offset is None else offset,
                )
            )
        body = HandOffPlaces(
            incarnation=self._store.incarnations.find(header.topic).id,
            store_uuid=self._store.identity.store_id,
            queues=queues,
        )
        return RemotingCommand.response(command, body=body.encode())

    async def prepare(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90151."""
        plan = HandOffBody.decode(command.body)
        if len(plan.receipt_id) > RECEIPT_CHARACTERS_MAX:
            raise InvalidParameterError("the receipt's id is too long", characters=len(plan.receipt_id))
        self._offsets.check_writable(plan.group)
        self._check_store(plan)  # before a group is made on a broker that is none of ours
        if self._groups.find_or_create(plan.group) is None:
            raise GroupNotFoundError("there is no such group", group=plan.group)
        self._check_topics(plan)
        if self._offsets.was_handed_over(plan.group, plan.receipt_id):
            return await self._done(command, plan.group, plan.receipt_id)
        self._check_idle(plan)
        self._holds.hold(plan)
        try:
            moved = await self._targets(plan)
            self._check_places(plan, moved)
        except MQError:
            self._holds.release(plan.group, plan.receipt_id)
            raise
        logger.info("group held group=%s receipt=%s queues=%d", plan.group, plan.receipt_id, len(moved))
        return RemotingCommand.response(command, body=HandOffAnswer(is_applied=False, queues=moved).encode())

    async def apply(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90152."""
        header = command.header(HandOffHeader)
        group, receipt_id = header.group, header.receipt_id
        if self._offsets.was_handed_over(group, receipt_id):
            return await self._done(command, group, receipt_id)
        moved = await self._targets(self._prepared(group, receipt_id))
        # From here on nothing comes in between.
        plan = self._prepared(group, receipt_id)
        if not self._offsets.was_handed_over(group, receipt_id):
            self._check_topics(plan)
            self._check_idle(plan)
            self._check_places(plan, moved)
            self._offsets.hand_over(group, receipt_id, [(each.topic, each.queue_id, each.offset) for each in moved])
        answer = await self._done(command, group, receipt_id, moved)
        logger.info("group handed over group=%s receipt=%s queues=%d", group, receipt_id, len(moved))
        return answer

    def abort(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """90153."""
        header = command.header(HandOffHeader)
        self._holds.release(header.group, header.receipt_id)
        return RemotingCommand.response(command)

    # -- parts ---------------------------------------------------------------------------------------------------------

    async def _done(
        self, command: RemotingCommand, group: str, receipt_id: str, moved: list[MovedQueue] | None = None
    ) -> RemotingCommand:
        """Say that the group has been moved, once that is durable; until then it is held on."""
        await self._persister.save(consumer_offsets.FILE_NAME)
        self._holds.release(group, receipt_id)
        return RemotingCommand.response(command, body=HandOffAnswer(is_applied=True, queues=moved or []).encode())

    def _prepared(self, group: str, receipt_id: str) -> HandOffBody:
        plan = self._holds.find(group, receipt_id)
        if plan is None:
            raise NotPreparedError("the group is not held for this receipt", group=group, receipt=receipt_id)
        return plan

    def _config(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFoundError("there is no such topic", topic=topic)
        if topic in self._static_topics.details:
            raise IllegalOperationError("groups of a static topic cannot be handed over", topic=topic)
        return config

    def _check_store(self, plan: HandOffBody) -> None:
        store_uuid = self._store.identity.store_id
        if plan.store_uuid is not None and plan.store_uuid != store_uuid and not plan.is_forced:
            raise InvalidParameterError(
                "this is not the broker that was read, but another cluster's, or one that was recovered since",
                read=plan.store_uuid,
                now=store_uuid,
            )

    def _check_topics(self, plan: HandOffBody) -> None:
        for target in plan.topics:
            config = self._config(target.topic)
            incarnation = self._store.incarnations.find(target.topic).id
            if target.incarnation is not None and target.incarnation != incarnation:
                raise TopicChangedError(
                    "the topic was deleted and made again since it was read",
                    topic=target.topic,
                    read=target.incarnation,
                    now=incarnation,
                )
            for queue in target.queues:
                if not 0 <= queue.queue_id < _queue_count(config):
                    raise InvalidParameterError("there is no such queue", topic=target.topic, queue_id=queue.queue_id)

    def _check_idle(self, plan: HandOffBody) -> None:
        name = plan.group
        group = self._clients.consumer_group(name)
        if group is not None:
            raise GroupActiveError("members of the group are connected", group=name, clients=len(group.members))
        if plan.is_forced:
            return
        for topic, queue in self._queues(plan):
            if self._pops.in_flight.message_count(topic, name, queue.queue_id):
                raise GroupActiveError(
                    "the group has popped messages that are not acknowledged yet",
                    group=name,
                    topic=topic,
                    queue_id=queue.queue_id,
                )

    def _check_places(self, plan: HandOffBody, moved: list[MovedQueue]) -> None:
        """OffsetChangedError when the group is elsewhere than the load takes it to be."""
        if plan.is_forced:
            return
        for (topic, queue), move in zip(self._queues(plan), moved, strict=True):
            offset = self._offsets.query(topic, plan.group, queue.queue_id)
            problem, now = None, NO_OFFSET if offset is None else offset
            if queue.expected is not None:
                problem = "the group is not where the load began" if queue.expected != now else None
            elif queue.start is not None and offset is not None:
                if max(offset, move.min_offset) < queue.start:
                    problem = "the group has messages in front of those that were read"
                elif offset > move.offset:
                    problem = "the group has gone on beyond what was read"
            if problem is not None:
                raise OffsetChangedError(
                    problem,
                    group=plan.group,
                    topic=topic,
                    queue_id=queue.queue_id,
                    offset=now,
                    expected=queue.expected,
                    start_offset=queue.start,
                    end_offset=move.offset,
                )

    async def _targets(self, plan: HandOffBody) -> list[MovedQueue]:
        """The group's next offset in every queue.

        Raises:
            OffsetOutOfRangeError: An offset is none of its queue's.
            UnavailableError: The cold tier has to be asked where a queue begins, and does not answer.
        """
        lookup, moved = self._lookup, list[MovedQueue]()
        for topic, queue in self._queues(plan):
            minimum = await lookup.minimum(topic, queue.queue_id)
            end = lookup.end(topic, queue.queue_id)
            offset = minimum if queue.offset == BEGINNING else queue.offset
            if plan.is_forced:
                offset = max(offset, minimum)
            if not minimum <= offset <= end:
                problem = "is not there yet" if offset > end else "has expired since it was read"
                raise OffsetOutOfRangeError(
                    f"what the group is to go on with {problem}",
                    topic=topic,
                    queue_id=queue.queue_id,
                    offset=offset,
                    min_offset=minimum,
                    max_offset=end,
                )
            before = self._offsets.query(topic, plan.group, queue.queue_id)
            moved.append(
                MovedQueue(
                    topic=topic,
                    queue_id=queue.queue_id,
                    before=NO_OFFSET if before is None else before,
                    offset=offset,
                    min_offset=minimum,
                )
            )
        return moved

    def _queues(self, plan: HandOffBody) -> list[tuple[str, QueueTarget]]:
        """Every queue that the plan moves the group in."""
        return [(target.topic, queue) for target in plan.topics for queue in self._queues_of(target)]

    def _queues_of(self, target: TopicTarget) -> list[QueueTarget]:
        if not target.is_whole:
            return target.queues
        named = {queue.queue_id for queue in target.queues}
        unnamed = (number for number in range(_queue_count(self._config(target.topic))) if number not in named)
        return [
            *target.queues,
            *(QueueTarget(queue_id=number, offset=BEGINNING, start=BEGINNING) for number in unnamed),
        ]


def _queue_count(config: TopicConfig) -> int:
    return max(config.read_queue_nums, config.write_queue_nums)


def _with_error_name(
    method: Callable[[Connection, RemotingCommand], RemotingCommand | Awaitable[RemotingCommand]],
) -> Handler:
    """The method, with refusals that name their error's class, so that the caller can tell them apart."""

    async def serve(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        try:
            answer = method(connection, command)
            return answer if isinstance(answer, RemotingCommand) else await answer
        except MQError as error:
            response = error_response(command, error)
            response.ext_fields = {ERROR_FIELD: type(error).__name__}
            return response

    return serve
