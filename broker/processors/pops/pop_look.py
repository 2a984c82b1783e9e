"""Looking without taking, for clients that pop.

    200052 PEEK_MESSAGE     the next messages of a group, which stay where they are
    200054 NOTIFICATION     whether there is something to pop; waits for it
    200055 POLLING_INFO     how many POPs wait at a place

Rules
  - A peek reads as a POP does, but claims nothing and moves no offset; a queue in the cold tier is passed over.
  - A notification that waits is answered `hasMsg` when something is there, and with false at its deadline. It is only
    a hint: another consumer may pop the message first.
Source: PeekMessageProcessor.java, NotificationProcessor.java, PollingInfoProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from random import Random

import msgspec

from thermocline.auth.quota_buckets import QuotaTable
from thermocline.broker.pops import ANSWER_BYTES_MAX, ANY_QUEUE, Parking, PopAdmission, PopPolling
from thermocline.broker.processors.pops.pop import correct_born_time, fill_born_time, place_of
from thermocline.broker.pulls import ALL, ColdNeeded, PullAnswer, PullFinder, PullRequest
from thermocline.broker.queues import QueueLookup, VisibleQueues
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.stats import BrokerStats
from thermocline.broker.tables import ConsumerOffsets, TopicTable
from thermocline.pop.pop_store import PopStore
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.error_table import error_response
from thermocline.remoting.errors import MQError
from thermocline.remoting.handles import pop_retry_topic_v1, pop_retry_topic_v2
from thermocline.remoting.headers.read import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
    PullMessageRequestHeader,
)
from thermocline.remoting.offsets import QUEUE_START, QueueOffset
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode
from thermocline.store.message_store import MessageStore

logger = logging.getLogger(__name__)

MESSAGES_MAX = 32
"""As of a POP."""
RETRY_FIRST_ONE_IN = 5


class PopLookProcessor:
    """Serves peeks, notifications and polling information."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        pops: PopStore,
        stats: BrokerStats,
        visible: VisibleQueues,
        lookup: QueueLookup,
        clock: Callable[[], int],
        random: Random,
        admission: PopAdmission,
        finder: PullFinder,
        polling: PopPolling,
        notifications: PopPolling,
        quotas: QuotaTable,
    ) -> None:
        self._quotas = quotas
        self._settings = settings
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._pops = pops
        self._stats = stats
        self._visible = visible
        self._lookup = lookup
        self._clock = clock
        self._random = random
        self._admission = admission
        self._finder = finder
        self._polling = polling
        self._notifications = notifications

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def peek(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """200052: what a group would get next, at most MESSAGES_MAX; it counts for quotas as a POP."""
        header = command.header(PeekMessageRequestHeader)
        quotas, address = self._quotas.current(), connection.remote_host_bytes
        if quotas is not None:
            quotas.check_read(header.topic, header.consumer_group, address, command.user)
        self._admission.check_broker("peeking message")
        self._admission.check_place(
            header.topic, header.consumer_group, header.queue_id, remote_address=connection.remote_address
        )
        chance = self._random.randrange(100)
        own = self._queues_from(header.topic, chance) if header.queue_id < 0 else [(header.topic, header.queue_id)]
        retries = [
            place
            for name in self._retry_topics(header.topic, header.consumer_group)
            for place in self._queues_from(name, chance)
        ]
        places = own + retries if chance % RETRY_FIRST_ONE_IN else retries + own
        pieces: list[bytes | memoryview] = []
        rest_count = message_count = size_bytes = 0
        for topic, queue_id in places:
            offset = self._offset(topic, header.consumer_group, queue_id)
            rest_count += max(0, self._lookup.end(topic, queue_id) - offset)
            wanted_count = min(header.max_msg_nums, MESSAGES_MAX) - message_count
            if wanted_count > 0 and size_bytes < ANSWER_BYTES_MAX:
                answer = self._read(connection, command, header, topic, queue_id, offset, wanted_count)
                if answer is not None:
                    pieces.extend(answer.buffers)
                    message_count += answer.message_count
                    size_bytes += answer.size_bytes
        if quotas is not None:
            quotas.took(header.topic, header.consumer_group, address, command.user, requests=1, size_bytes=size_bytes)
        if message_count:
            self._stats.add_get(header.topic, header.consumer_group, message_count, size_bytes)
        return RemotingCommand.response(
            command,
            ResponseCode.SUCCESS if message_count else ResponseCode.PULL_NOT_FOUND,
            remark="FOUND" if message_count else "NO_MESSAGE_IN_QUEUE",
            header=PopMessageResponseHeader(pop_time=0, invisible_time=0, revive_qid=0, rest_num=rest_count),
            body=b"".join(pieces),
        )

    def notify(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """200054: whether there is something to pop, now or within the time that the client waits."""
        fill_born_time(command, self._clock())
        header = command.header(NotificationRequestHeader)
        correct_born_time(header, self._clock())
        answer = NotificationResponseHeader(has_msg=self._has_message(connection, header))
        if not answer.has_msg and header.poll_time > 0:
            parking = self._notifications.park(
                place_of(header.topic, header.consumer_group, header.queue_id),
                WaitingNotification(
                    self, connection, msgspec.structs.replace(command, ext_fields=None, body=b""), header
                ),
                deadline_ms=header.born_time + header.poll_time,
                characters=sum(map(len, filter(None, (header.attempt_id, header.namespace, header.broker_name)))),
            )
            if parking is Parking.PARKED:
                return None
            answer.polling_full = parking is Parking.FULL
        return RemotingCommand.response(command, header=answer)

    def look_again(
        self, connection: Connection, command: RemotingCommand, header: NotificationRequestHeader, *, is_last: bool
    ) -> bool:
        """Whether a notification that waits is answered now; `is_last`: it does not wait any longer."""
        try:
            answer = NotificationResponseHeader(has_msg=self._has_message(connection, header))
            if not answer.has_msg and not is_last:
                return False
            response = RemotingCommand.response(command, header=answer)
        except Exception as error:  # the end of a request: it becomes an answer
            if not isinstance(error, MQError):
                logger.error("notification failed, a bug of ours", exc_info=error)
            response = error_response(command, error)
        connection.send(response)
        return True

    def polling_info(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """200055: how many POPs wait for a group's messages in a queue, or in any."""
        header = command.header(PollingInfoRequestHeader)
        self._admission.check_broker("peeking message")
        self._admission.check_place(
            header.topic, header.consumer_group, header.queue_id, remote_address=connection.remote_address
        )
        place = place_of(header.topic, header.consumer_group, header.queue_id)
        return RemotingCommand.response(
            command, header=PollingInfoResponseHeader(polling_num=self._polling.count_at(place))
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _has_message(self, connection: Connection, header: NotificationRequestHeader) -> bool:
        self._admission.check_broker("peeking message")
        topic, group = header.topic, header.consumer_group
        self._admission.check_place(topic, group, header.queue_id, remote_address=connection.remote_address)
        places = [place for name in self._retry_topics(topic, group) for place in self._queues_from(name, 0)]
        places += self._queues_from(topic, 0) if header.queue_id <= ANY_QUEUE else [(topic, header.queue_id)]
        return any(self._is_waiting(name, group, queue_id, header) for name, queue_id in places)

    def _is_waiting(self, topic: str, group: str, queue_id: int, header: NotificationRequestHeader) -> bool:
        if header.order:
            info = self._pops.orders.find(topic, group, queue_id)
            if info is not None and info.is_blocking(self._clock(), attempt_id=header.attempt_id):
                return False
        return self._lookup.end(topic, queue_id) > self._offset(topic, group, queue_id)

    def _offset(self, topic: str, group: str, queue_id: int) -> QueueOffset:
        """The group's offset, or where it would begin."""
        offset = self._offsets.query(topic, group, queue_id)
        if offset is not None:
            return offset
        queue = self._store.queues.find(topic, queue_id)
        return QUEUE_START if queue is None else self._visible.near_minimum(queue)

    def _retry_topics(self, topic: str, group: str) -> list[str]:
        config = self._settings.broker
        names = []
        if config.retry_topic_v2:
            names.append(pop_retry_topic_v2(topic, group))
        if not config.retry_topic_v2 or config.read_retry_topic_v1:
            names.append(pop_retry_topic_v1(topic, group))
        return names

    def _queues_from(self, topic: str, chance: int) -> list[tuple[str, int]]:
        config = self._topics.get(topic)
        if config is None:
            return []
        count = config.read_queue_nums
        return [(topic, (chance + index) % count) for index in range(count)]

    def _read(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: PeekMessageRequestHeader,
        topic: str,
        queue_id: int,
        offset: QueueOffset,
        count: int,
    ) -> PullAnswer | None:
        """The messages of a queue for a peek; None when there are none, or none here."""
        if self._offsets.has_reset(topic, header.consumer_group, queue_id):
            return None  # the next POP is to hear of it
        for _ in range(2):
            pull = PullRequest(
                connection,
                PullMessageRequestHeader(
                    consumer_group=header.consumer_group,
                    topic=topic,
                    queue_id=queue_id,
                    queue_offset=offset,
                    max_msg_nums=count,
                    sys_flag=0,
                ),
                code=command.code,
                opaque=command.opaque,
                serialize_type=command.serialize_type,
            )
            try:
                answer = self._finder.find(pull, ALL)
            except ColdNeeded:
                return None
            if answer.code != ResponseCode.PULL_OFFSET_MOVED:
                return answer if answer.code == ResponseCode.SUCCESS else None
            offset = answer.next_offset
        return None


class WaitingNotification:
    """A notification that waits."""

    __slots__ = ("_command", "_connection", "_header", "_processor")

    def __init__(
        self,
        processor: PopLookProcessor,
        connection: Connection,
        command: RemotingCommand,
        header: NotificationRequestHeader,
    ) -> None:
        self._processor = processor
        self._connection = connection
        self._command = command
        self._header = header

    @property
    def connection(self) -> Connection:
        """The client's connection."""
        return self._connection

    def look_again(self) -> bool:
        """There may be something now."""
        return self._processor.look_again(self._connection, self._command, self._header, is_last=False)

    def time_is_up(self) -> None:
        """The client does not want to wait any longer."""
        self._processor.look_again(self._connection, self._command, self._header, is_last=True)
