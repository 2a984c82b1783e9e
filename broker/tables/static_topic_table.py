"""Static topic table: the mapping of every static topic that this broker has a part in, durable before it counts.

File of the store: config/topicQueueMapping.json, Apache RocketMQ's:
    {"dataVersion":{...},"topicQueueMappingInfoMap":{topic: mapping}}
Keys of queues are quoted in it: official brokers read both, official tools since 5.5.0 only that.

Rules
  - A mapping counts from the moment in which it is durable, at once for every request: a queue that has moved away
    takes no message after the change was answered, and its earlier messages are below the end that is requested then.
  - A mapping without its topic is dropped at the start: the stop came between the two files of a creation, or of a
    deletion. A topic without its mapping would be an ordinary one, so a new topic's mapping is written first.
  - `led` finds the queue that a request means, by a lookup in one dictionary, which is empty without static topics. A
    request with `lo=false` means physical queues.
Owner: the hot process's event loop.
Source: broker/topic/TopicQueueMappingManager.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from thermocline.broker.state_files import ConfigPersister, VersionCounter
from thermocline.broker.tables.mapping_check import succeed
from thermocline.remoting.bodies import (
    DataVersion,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingTableBody,
)
from thermocline.remoting.bodies.logic_queue import led_queues, mapping_info
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError, NotLeaderForQueueError

logger = logging.getLogger(__name__)

FILE_NAME = "topicQueueMapping.json"

MappingListener = Callable[[str], None]
"""Called with a topic whose mapping was changed or deleted."""


class LedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A logic queue that this broker leads; at least one of its items."""

    topic: str
    queue_id: int
    detail: TopicQueueMappingDetail
    items: tuple[LogicQueueMappingItem, ...]

    @property
    def leader(self) -> LogicQueueMappingItem:
        """The item that is written to."""
        return self.items[-1]

    def is_here(self, item: LogicQueueMappingItem) -> bool:
        """Whether an item's physical queue is on this broker."""
        return item.broker_name == self.detail.broker_name


class StaticTopicTable:
    """The mappings of one broker."""

    def __init__(self, *, broker_name: str, clock: Callable[[], int], persister: ConfigPersister) -> None:
        self._broker_name = broker_name
        self._persister = persister
        self._version = VersionCounter(clock)
        self._details: dict[str, TopicQueueMappingDetail] = {}
        self._written: dict[str, TopicQueueMappingDetail] = {}  # what is in the file, or will be with the next write
        self._changing = asyncio.Lock()
        self._listeners: list[MappingListener] = []

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def details(self) -> Mapping[str, TopicQueueMappingDetail]:
        """Topic -> mapping, as they are now and will be: a view. None of them is changed in place."""
        return self._details

    @property
    def data_version(self) -> DataVersion:
        """The version of the table."""
        return self._version.current

    def led(self, topic: str, queue_id: int, *, is_logical: bool | None, any_queue: bool = False) -> LedQueue | None:
        """The logic queue that a request means; None when it means a physical one. Its items are decided or not.

        `is_logical`: the request's `lo`. `any_queue`: an id below 0 means any queue that this broker leads.

        Raises:
            NotLeaderForQueueError: This broker does not lead the queue.
        """
        detail = self._details.get(topic)
        if detail is None or is_logical is False:
            return None
        if queue_id < 0 and any_queue:
            queue_id = min(led_queues(detail), default=queue_id)
        items = detail.hosted_queues.get(queue_id)
        if not items or items[-1].broker_name != detail.broker_name:
            raise NotLeaderForQueueError(
                f"{topic}-{queue_id} does not exit in request process of current broker {detail.broker_name}"
            )
        return LedQueue(topic=topic, queue_id=queue_id, detail=detail, items=tuple(items))

    def queue_for(self, topic: str, physical_queue_id: int) -> int:
        """The physical queue that takes a message that was meant for this one: another when it has moved away.

        Where this broker leads none of the topic's queues any more it is the same: nowhere here is better.
        """
        detail = self._details.get(topic)
        if detail is None:
            return physical_queue_id
        led = sorted(led_queues(detail).values())
        if not led or physical_queue_id in led:
            return physical_queue_id
        return led[physical_queue_id % len(led)]

    def encoded_detail(self, topic: str) -> bytes:
        """A mapping as it stands in a table's JSON: `"name":{...}`, with quoted keys."""
        return msgspec.json.encode(topic) + b":" + self._details[topic].encode()

    def encoded_info(self, topic: str) -> bytes:
        """A mapping as it is sent to NameServers, likewise; as Java brokers write it, keys of queues unquoted."""
        return msgspec.json.encode(topic) + b":" + mapping_info(self._details[topic]).encode()

    def add_listener(self, listener: MappingListener) -> None:
        """Call a listener at each change, from now on."""
        self._listeners.append(listener)

    # -- changing ------------------------------------------------------------------------------------------------------

    def check(self, new: TopicQueueMappingDetail, *, force: bool) -> None:
        """Pass a mapping that may be taken over.

        Raises:
            InvalidRequestError: It may not: see mapping_check.py.
        """
        if new.broker_name != self._broker_name:
            raise InvalidRequestError(
                f"the mapping is another broker's {new.broker_name} != {self._broker_name}", topic=new.topic
            )
        succeed(self._details.get(new.topic or ""), new, force=force)

    async def update(self, new: TopicQueueMappingDetail, *, force: bool) -> None:
        """Take a topic's mapping over; durable on return.

        Raises:
            InvalidRequestError: It may not be: see mapping_check.py.
            UnavailableError: The file could not be written; nothing changes.
        """
        topic = new.topic
        assert topic
        async with self._changing:
            self.check(new, force=force)
            await self._put(succeed(self._details.get(topic), new, force=force))
        logger.info("static topic's mapping changed topic=%s epoch=%d queues=%d", topic, new.epoch, new.total_queues)

    async def clean(self, before: TopicQueueMappingDetail, after: TopicQueueMappingDetail) -> bool:
        """Put a mapping in the place of the one that it was made from; False when that is no longer the topic's.

        Raises:
            UnavailableError: The file could not be written; nothing changes.
        """
        assert before.topic
        assert before.topic == after.topic
        async with self._changing:
            if self._details.get(before.topic) is not before:
                return False
            await self._put(after)
        return True

    async def replace(self, details: Mapping[str, TopicQueueMappingDetail], *, version: DataVersion) -> None:
        """Take over, all at once, the mappings of this broker's master; durable on return.

        Raises:
            UnavailableError: The file could not be written; the mappings are as before.
        """
        async with self._changing:
            before, written = self._details, self._written
            version_before, self._version.current = self._version.current, version
            self._written = dict(details)
            try:
                await self._persister.save(FILE_NAME)
            except Exception:
                self._written, self._version.current = written, version_before
                raise
            names = [name for name in {**before, **details} if before.get(name) != details.get(name)]
            for name in names:
                if name in details:
                    self._details[name] = details[name]
                else:
                    self._details.pop(name, None)
                self._tell(name)

    async def delete(self, topic: str) -> None:
        """Forget a topic's mapping, at once; durable on return. One that is not there is fine.

        Raises:
            UnavailableError: The file could not be written; the mapping is gone from memory only.
        """
        was_there = self._details.pop(topic, None) is not None
        if was_there:
            self._tell(topic)
        async with self._changing:
            if self._written.pop(topic, None) is None:
                return
            # An update that was being written when the deletion came has counted since.
            self._details.pop(topic, None)
            self._version.bump()
            await self._persister.save(FILE_NAME)
        logger.info("static topic's mapping deleted topic=%s", topic)

    # -- start and file ------------------------------------------------------------------------------------------------

    def load(self, data: bytes | None, topics: Mapping[str, object]) -> None:
        """Load the content of the file; to be called once. `topics`: those that exist.

        Raises:
            CorruptDataError: It is not what RocketMQ or we write.
        """
        if data is None:
            return
        try:
            body = TopicQueueMappingTableBody.decode(data)
        except InvalidRequestError as error:
            raise CorruptDataError("static topics cannot be read", file=FILE_NAME, reason=str(error)) from error
        for topic, detail in body.topic_queue_mapping_info_map.items():
            if topic in topics:
                detail.topic = topic
                self._details[topic] = self._written[topic] = detail
            else:
                logger.warning("mapping dropped, its topic is not there topic=%s", topic)
        self._version.current = body.data_version

    def encode(self) -> bytes:
        """The content of the file."""
        return TopicQueueMappingTableBody(
            data_version=self._version.current, topic_queue_mapping_info_map=self._written
        ).encode()

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _put(self, detail: TopicQueueMappingDetail) -> None:
        topic = detail.topic
        assert topic
        before = self._written.get(topic)
        self._written[topic] = detail
        self._version.bump()
        try:
            await self._persister.save(FILE_NAME)
        except Exception:
            if before is None:
                del self._written[topic]
            else:
                self._written[topic] = before
            raise
        self._details[topic] = detail
        self._tell(topic)

    def _tell(self, topic: str) -> None:
        for listener in self._listeners:
            listener(topic)
