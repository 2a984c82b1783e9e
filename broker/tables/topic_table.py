"""Topic table: every topic of this broker, durable before it is used.

Files of the store
    config/topics.json               Apache RocketMQ's: {"dataVersion":{...},"topicConfigTable":{topic:TopicConfig}}
    config/topicIncarnation.json     when each topic began, and its expired offsets (store/state/incarnation.py)
    thermocline/topicBirths          topics that were made since the two above were written (topic_journal.py)
    thermocline/ttlDefault.json      the broker's default time to live that was in force last

Rules
  - A topic appears (`get`, listeners, registration) after its birth is durable, so before its first message. A deleted
    one is gone from memory at once and from both tables before the deletion is answered.
  - The first few births of FOLD_AFTER_S are written to both tables. A further one costs a line, whatever the number of
    topics: both tables are written, and the lines go, FOLD_AFTER_S after the first of them, earlier when
    FOLD_LINES_MIN wait, at each change of another kind, and at the stop.
  - Many topics made at once share their writes (config_persister.py). A topic's JSON is encoded when it changes and
    kept, for the file and for registrations alike.
  - The data version rises with each change; NameServers take changes of topics over when it differs.
  - A message is visible when its store time is at or after `expired_before(topic)`: the later of the time to live
    counted back from now, and of what has expired once. Before a time to live changes, the cut of the old one is
    fixed durably: what has expired does not come back.
  - System topics belong to the broker: made at every start where missing, not to be changed or deleted by clients, and
    not subject to the default time to live.
Owner: the hot process's event loop.
Source: broker/topic/TopicConfigManager.java, Apache RocketMQ 5.3.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from thermocline.broker.settings import BrokerConfig
from thermocline.broker.state_files import ConfigPersister, VersionCounter
from thermocline.broker.tables import topic_journal
from thermocline.broker.tables.creation_limits import POP_RETRY_TOPICS, TOPICS, CreationLimits
from thermocline.broker.tables.system_topics import warn_if_other
from thermocline.broker.tables.topic_attributes import TTL_DEFAULT_FILE_NAME, apply_change, check_supported, ttl_ms
from thermocline.broker.tables.topic_journal import TopicJournal
from thermocline.remoting.bodies import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    TopicConfig,
    TopicConfigTableBody,
)
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import (
    BrokerBusyError,
    CorruptDataError,
    InvalidRequestError,
    TopicNotFoundError,
    UnavailableError,
)
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.topic_validation import AUTO_CREATE_TOPIC
from thermocline.store.config import visible_from_ms
from thermocline.store.message_store import MessageStore
from thermocline.store.state import Incarnation, TopicBirth

logger = logging.getLogger(__name__)

FILE_NAME = "topics.json"
INCARNATION_FILE_NAME = "topicIncarnation"
FOLD_AFTER_S = 10.0
SINGLE_BIRTHS_MAX = 16
"""So many births in FOLD_AFTER_S have the tables written before they appear, as Apache RocketMQ does it for each."""
FOLD_LINES_MIN = 1_000
"""So many lines are folded into the tables at once, or as many as there are topics in them: whichever is more."""

TopicListener = Callable[[str, TopicConfig | None], None]
"""Called with a topic and its configuration after it was made or changed; with None after it was deleted."""


@dataclass(slots=True)
class _Turn:
    """The lock of a topic's changes, and how many callers wait for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    callers: int = 0


class TopicTable:
    """All topics of one broker."""

    def __init__(
        self,
        *,
        store: MessageStore,
        persister: ConfigPersister,
        journal: TopicJournal,
        config: Callable[[], BrokerConfig],
        system_topics: Iterable[str],
        steady_clock: Callable[[], int],
        limits: LimitCounts | None = None,
    ) -> None:
        """`steady_clock`: ms, for limits of a minute. `limits`: where refusals by limits are counted."""
        limits = limits or LimitCounts()
        self._creations = CreationLimits(TOPICS, config=config, clock=steady_clock, limits=limits)
        self._pop_creations = CreationLimits(POP_RETRY_TOPICS, config=config, clock=steady_clock, limits=limits)
        self._journal = journal
        self._folding: asyncio.Task[None] | None = None
        self._fold_timer: asyncio.TimerHandle | None = None
        self._window_start_s = 0.0
        self._window_births = 0
        self.system_topics = frozenset(system_topics)
        self._store = store
        self._incarnations = store.incarnations
        self._clock = store.clock.now_ms  # never steps back, so neither does what has expired
        self._persister = persister
        self._config = config
        self._topics: dict[str, TopicConfig] = {}
        self._encoded: dict[str, bytes] = {}  # what is in the file, or will be with the write under way
        self._ttl_ms: dict[str, int] = {}
        self._standing: set[str] = set()  # topics whose time to live is being changed: nothing expires meanwhile
        self._ending: set[str] = set()
        self._version = VersionCounter(self._clock)
        self._creating: dict[str, asyncio.Task[TopicConfig]] = {}
        self._deleting: dict[str, asyncio.Event] = {}
        self._changing: dict[str, _Turn] = {}
        self._listeners: list[TopicListener] = []
        self.forget_offsets: Callable[[str], Awaitable[None]] = _forget_nothing
        """Forgets groups' offsets of a topic, durably, when it begins a life without a deletion that was answered."""

    # -- reading -------------------------------------------------------------------------------------------------------

    def get(self, topic: str) -> TopicConfig | None:
        """A topic's configuration; None when there is no such topic. Not to be changed by the caller."""
        return self._topics.get(topic)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def configs(self) -> Mapping[str, TopicConfig]:
        """All topics, as they are now and will be: a view."""
        return self._topics

    @property
    def data_version(self) -> DataVersion:
        """The version of the table."""
        return self._version.current

    def is_order_topic(self, topic: str) -> bool:
        """Whether the topic was set up for ordered messages."""
        config = self._topics.get(topic)
        return config is not None and config.order

    def is_system_topic(self, topic: str) -> bool:
        """Whether the topic belongs to the broker."""
        return topic in self.system_topics or topic.startswith("rmq_sys_")

    def encoded(self, topic: str) -> bytes:
        """A topic as it stands in a table's JSON: `"name":{...}`. Kept encoded."""
        return self._encoded[topic]

    def incarnation(self, topic: str) -> Incarnation:
        """When the topic began, and what of it has expired for good."""
        return self._incarnations.find(topic)

    def time_to_live_ms(self, topic: str) -> int | None:
        """The topic's time to live, the broker's default included; None keeps messages for ever."""
        return self._ttl_ms.get(topic)

    def expired_before(self, topic: str) -> int:
        """Store time in ms below which the topic's messages are no longer visible; 0 when nothing has expired."""
        return visible_from_ms(
            ttl_ms=None if topic in self._standing else self._ttl_ms.get(topic),
            expired_before_ms=self._incarnations.find(topic).expired_before_ms,
            now_ms=self._clock(),
        )

    def expired_at(self, topic: str, now_ms: int) -> int:
        """The same as it was at a time: what was visible no more then."""
        return visible_from_ms(
            ttl_ms=None if topic in self._standing else self._ttl_ms.get(topic),
            expired_before_ms=self._incarnations.find(topic).expired_before_ms,
            now_ms=now_ms,
        )

    def topics_with_ttl(self) -> list[str]:
        """Topics of which messages expire."""
        return list(self._ttl_ms)

    def is_ending(self, topic: str) -> bool:
        """Whether the topic's deletion has begun and is not durable yet: after a crash it may be back."""
        return topic in self._ending

    def add_listener(self, listener: TopicListener) -> None:
        """Call a listener with each topic that is made, changed or deleted, from now on."""
        self._listeners.append(listener)

    # -- making topics -------------------------------------------------------------------------------------------------

    async def auto_create(
        self, topic: str, *, default_topic: str, queue_count: int, sys_flag: int = 0, address: str = ""
    ) -> TopicConfig | None:
        """Make the topic of a first message after a model; None when the model does not allow it.

        `address`: the client's, host:port, for the limits on topics made by use.

        Raises:
            TopicNotFoundError: A limit does not allow it.
            UnavailableError: The files could not be written; there is no such topic.
        """
        existing = self._topics.get(topic)
        if existing is not None:
            return existing
        model = self._topics.get(default_topic)
        if default_topic == AUTO_CREATE_TOPIC and not self._config().auto_create_topic:
            return None
        if model is None or not model.perm & PERM_INHERIT:
            logger.warning("topic not created, its model does not allow it topic=%s model=%s", topic, default_topic)
            return None
        queues = max(0, min(queue_count, model.write_queue_nums))
        return await self._create(
            TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=model.perm & ~PERM_INHERIT,
                topic_sys_flag=sys_flag,
                topic_filter_type=model.topic_filter_type,
            ),
            address,
        )

    def check_first_pop(self, topic: str, group: str, address: str) -> None:
        """Pass a group that has not popped a topic before. `address`: the client's, host:port.

        Raises:
            BrokerBusyError: It may need one retry topic more than clients may have made.
        """
        if not self._pop_creations.allows(address, f"{group} {topic}", present=len(self._topics)):
            raise BrokerBusyError("too many groups pop topics for the first time", topic=topic, group=group)

    async def ensure(
        self,
        topic: str,
        *,
        queue_count: int,
        perm: int = PERM_READ | PERM_WRITE,
        sys_flag: int = 0,
        order: bool | None = None,
        address: str = "",
    ) -> TopicConfig:
        """The topic, made if it is missing; `order` is corrected on one that exists. For retry and dead letter topics.

        `address`: that of the client who named the topic, for the limits on topics made by use; empty for a topic of a
        group that is set up.

        Raises:
            TopicNotFoundError: A limit does not allow it.
            UnavailableError: The files could not be written.
        """
        existing = self._topics.get(topic)
        if existing is None:
            return await self._create(
                TopicConfig(
                    topic_name=topic,
                    read_queue_nums=queue_count,
                    write_queue_nums=queue_count,
                    perm=perm,
                    topic_sys_flag=sys_flag,
                    order=bool(order),
                ),
                address,
            )
        if order is not None and existing.order != order:
            await self._set_order(topic, order)
        return existing

    async def update(self, wanted: TopicConfig, attribute_change: Mapping[str, str]) -> bool:
        """Make a topic, or set it up anew; False when it is so already. `wanted.attributes` does not count.

        Raises:
            InvalidRequestError: The attribute change breaks a rule; nothing changes.
            UnavailableError: The files could not be written; nothing changes.
        """
        async with self.alone(wanted.topic_name):
            present = self._topics.get(wanted.topic_name)
            current = {} if present is None else present.attributes
            attributes = apply_change(current, attribute_change, is_new=present is None)
            config = msgspec.structs.replace(wanted, attributes=attributes)
            if present == config:
                return False
            if present is None:
                created = await self._create(config)
                if created == config:
                    return True
                present = created  # a first message was faster
            try:
                await self._fix_cut(present, config)
                await self._replace(config)
            finally:
                self._standing.discard(wanted.topic_name)
            return True

    async def follow(self, config: TopicConfig, *, expired_before_ms: int = 0) -> None:
        """Make a topic, or set it up anew, as another broker has it, attributes included; durable on return.

        `expired_before_ms`: what has expired there for good. The former time to live does not count: it was changed
        there at a time that is unknown here.

        Raises:
            InvalidRequestError: It has an attribute that is not served here.
            UnavailableError: The files could not be written; nothing changes.
        """
        topic = config.topic_name
        check_supported(config.attributes)
        async with self.alone(topic):
            if topic not in self._topics:
                await self._create(config)
            self._incarnations.expire_before(topic, expired_before_ms)
            if self._topics[topic] != config:
                await self._replace(config)

    async def follow_version(self, version: DataVersion) -> None:
        """Take over the version of the broker whose topics these are; durable on return.

        Raises:
            UnavailableError: The files could not be written.
        """
        self._version.current = version
        await self._save()

    async def delete(self, topic: str, *, next_start: PhysicalOffset | None = None) -> None:
        """Delete a topic and its queues; durable on return, whether it was there or not. Its records are ignored.

        `next_start`: where in the log a topic of the name begins at the earliest, if it is made again elsewhere.

        Raises:
            UnavailableError: The files could not be written; the topic is gone from memory only. Ask again.
        """
        async with self.alone(topic):
            if topic in self._creating:
                await asyncio.wait([self._creating[topic]])
            self._deleting[topic] = asyncio.Event()
            try:
                await self._delete_now(topic, next_start)
            finally:
                self._deleting.pop(topic).set()

    @asynccontextmanager
    async def alone(self, topic: str) -> AsyncIterator[None]:
        """The lock of one topic, for its changes and for readers that must see none; different topics share writes."""
        turn = self._changing.setdefault(topic, _Turn())
        turn.callers += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.callers -= 1
            if turn.callers == 0:
                del self._changing[topic]

    def touch(self) -> None:
        """Raise the data version, so that NameServers take over the topics again."""
        self._version.bump()

    async def set_order(self, topics: Iterable[str]) -> None:
        """Mark topics as ordered, as the NameServer's order configuration names them."""
        for topic in topics:
            if topic in self._topics and not self.is_order_topic(topic):
                await self._set_order(topic, True)

    # -- start and files -----------------------------------------------------------------------------------------------

    def load(self, data: bytes | None) -> None:
        """Load the content of topics.json, and the topics that were made since; to be called once, before `boot`.

        Raises:
            CorruptDataError: It is not what RocketMQ or we write.
        """
        born = self._store.born_topics
        try:
            body = TopicConfigTableBody() if data is None else TopicConfigTableBody.decode(data)
            added = {
                name: TopicConfig.decode(each.config)
                for name, each in born.items()
                if each.is_newer or name not in body.topic_config_table
            }
        except InvalidRequestError as error:
            raise CorruptDataError("topics cannot be read", file=FILE_NAME, reason=str(error)) from error
        for name, config in (body.topic_config_table | added).items():
            if self._incarnations.is_deleted(name):
                # The stop came between the two files of a deletion.
                logger.warning("topic was being deleted at the last stop topic=%s", name)
                continue
            config.topic_name = name
            self._publish(config)
        if data is not None:
            self._version.current = body.data_version

    async def boot(self, topics: Iterable[TopicConfig], *, previous_ttl_default_ms: int | None) -> None:
        """Make the system topics that are missing, and fix what the former default time to live had expired.

        Raises:
            UnavailableError: The files could not be written.
        """
        topics = list(topics)
        missing = [config for config in topics if config.topic_name not in self._topics]
        for config in missing:
            self._publish(config)
        for config in topics:
            warn_if_other(self._topics[config.topic_name], config)
        default_ms = self._ttl_default_ms
        if previous_ttl_default_ms is not None and previous_ttl_default_ms != default_ms:
            now = self._clock()
            for topic, config in self._topics.items():
                if not self.is_system_topic(topic) and ttl_ms(config.attributes, default_ms=-1) == -1:
                    self._incarnations.expire_before(topic, now - previous_ttl_default_ms)
            await self._persister.save(INCARNATION_FILE_NAME)
        if self._store.born_topics:
            self._version.bump()
            await self._save()
            await self._persister.save(topic_journal.FILE_NAME)  # none of its lines: the tables have them
        elif missing:
            self._version.bump()
            await self._persister.save(FILE_NAME)
        if previous_ttl_default_ms != default_ms:
            await self._persister.save(TTL_DEFAULT_FILE_NAME)

    def encode(self) -> bytes:
        """The content of topics.json."""
        return b'{"dataVersion":%s,\n"topicConfigTable":{\n%s\n}}' % (
            self._version.text(),
            b",\n".join(self._encoded.values()),
        )

    def encode_ttl_default(self) -> bytes:
        """The content of ttlDefault.json."""
        return b'{"defaultMs":%d}' % (self._ttl_default_ms or 0)

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _ttl_default_ms(self) -> int | None:
        return self._config().message_ttl_ms or None

    async def _create(self, config: TopicConfig, address: str = "") -> TopicConfig:
        """Make a topic, once, however many ask at the same time. Cancelling one of them does not stop it."""
        task = self._creating.get(config.topic_name)
        if task is None:
            if not self._creations.allows(address, config.topic_name, present=len(self._topics)):
                raise TopicNotFoundError(f"topic[{config.topic_name}] not exist, apply first please!")
            task = asyncio.get_running_loop().create_task(self._create_now(config))
            self._creating[config.topic_name] = task
            task.add_done_callback(lambda _: self._creating.pop(config.topic_name))
        return await asyncio.shield(task)

    async def _create_now(self, config: TopicConfig) -> TopicConfig:
        topic = config.topic_name
        while topic in self._deleting:
            await self._deleting[topic].wait()
        assert topic not in self._topics
        is_first = not self._incarnations.is_deleted(topic)
        store = self._store
        incarnation = self._incarnations.create(
            topic,
            start_offset=store.topic_start_offset(topic) if is_first else store.commit_log.append_offset,
            has_queues=bool(store.queues.of_topic(topic)),
        )
        self._encoded[topic] = _encode_entry(config)
        self._version.bump()
        try:
            if self._is_single():
                await self._save()
            else:
                self._journal.add(self._birth(config, incarnation))
                await self._persister.save(topic_journal.FILE_NAME)
        except Exception:
            self._encoded.pop(topic, None)
            raise
        if topic in self._ending:  # its deletion failed before its queues, and groups' offsets in them, were removed
            await self.forget_offsets(topic)
            await self._remove_queues(topic)
        self._version.bump()
        self._publish(config)
        logger.info(
            "topic created topic=%s queues=%d/%d perm=%d",
            topic,
            config.read_queue_nums,
            config.write_queue_nums,
            config.perm,
        )
        self._tell(topic, config)
        self._fold_later()
        return config

    def _birth(self, config: TopicConfig, incarnation: Incarnation) -> TopicBirth:
        recorded_id = self._incarnations.recorded_id(config.topic_name)
        return TopicBirth(
            topic=config.topic_name,
            incarnation=incarnation,
            config=msgspec.Raw(config.encode()),
            recorded_id=None if recorded_id == incarnation.id else recorded_id,
        )

    def _is_single(self) -> bool:
        """Whether this birth is one of few, so that the tables can be written for it alone."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._window_start_s >= FOLD_AFTER_S:
            self._window_start_s, self._window_births = now_s, 0
        self._window_births += 1
        return self._window_births <= SINGLE_BIRTHS_MAX

    def _fold_later(self) -> None:
        """Write the journal's topics to the tables, once for many births."""
        if self._folding is not None or not len(self._journal):
            return  # under way, or this birth is in the tables
        if len(self._journal) >= max(FOLD_LINES_MIN, len(self._topics) // 2):
            self._fold_soon()
        elif self._fold_timer is None:
            self._fold_timer = asyncio.get_running_loop().call_later(FOLD_AFTER_S, self._fold_soon)

    def _fold_soon(self) -> None:
        self._stop_fold_timer()
        if self._folding is None:
            self._folding = asyncio.get_running_loop().create_task(self._fold(), name="topic journal fold")
            self._folding.add_done_callback(self._folded)

    def _folded(self, task: asyncio.Task[None]) -> None:
        self._folding = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, UnavailableError):  # logged where it was written; the lines stay
            self._fold_timer = asyncio.get_running_loop().call_later(FOLD_AFTER_S, self._fold_soon)
        elif error is not None:
            logger.error("topic journal was not folded, its lines stay", exc_info=error)

    async def _fold(self) -> None:
        count = self._journal.durable_count
        await self._save()
        self._journal.forget(count)
        await self._persister.save(topic_journal.FILE_NAME)

    def _stop_fold_timer(self) -> None:
        if self._fold_timer is not None:
            self._fold_timer.cancel()
            self._fold_timer = None

    async def close(self) -> None:
        """Fold what is in the journal, so that topics.json has every topic, as Apache RocketMQ reads it. Idempotent.

        A failure is logged; the journal's lines count then.
        """
        with contextlib.suppress(UnavailableError):
            if self._folding is not None:
                await self._folding
            if len(self._journal):
                await self._fold()
        self._stop_fold_timer()

    async def _delete_now(self, topic: str, next_start: PhysicalOffset | None) -> None:
        present = self._topics.pop(topic, None)
        self._encoded.pop(topic, None)
        self._ttl_ms.pop(topic, None)
        self._incarnations.delete(topic, next_start=next_start)
        self._ending.add(topic)
        if present is not None:
            self._version.bump()
            self._tell(topic, None)
        await self._save()
        await self._remove_queues(topic)
        logger.info("topic deleted topic=%s was_there=%s", topic, present is not None)

    async def _remove_queues(self, topic: str) -> None:
        """The end of the topic's former life is durable: it is not made anew before its old files are gone."""
        self._store.queues.remove_topic(topic)
        await self._persister.after_writes(lambda: self._store.retention.remove_queues(topic))
        self._ending.discard(topic)

    async def _set_order(self, topic: str, order: bool) -> None:
        async with self.alone(topic):
            config = self._topics.get(topic)
            if config is not None and config.order != order:
                await self._replace(msgspec.structs.replace(config, order=order))

    async def _replace(self, config: TopicConfig) -> None:
        """Change a topic that exists; the caller holds its lock."""
        topic = config.topic_name
        before = self._encoded[topic]
        self._encoded[topic] = _encode_entry(config)
        self._version.bump()
        try:
            if len(self._journal):
                await self._save()  # a line of the journal counts until the table of incarnations has its topic
            else:
                await self._persister.save(FILE_NAME)
        except Exception:
            self._encoded[topic] = before
            self._version.bump()  # a registration may have gone out in between
            raise
        self._version.bump()
        self._publish(config)
        logger.info("topic changed topic=%s", topic)
        self._tell(topic, config)

    async def _fix_cut(self, present: TopicConfig, config: TopicConfig) -> None:
        """Before the time to live changes: what the old one has expired stays so."""
        old_ms = self._ttl_of(present)
        if old_ms is None or old_ms == self._ttl_of(config):
            return
        self._incarnations.expire_before(present.topic_name, self._clock() - old_ms)
        # Until the new one counts the cut stands where it was fixed: a message that expired in between would come back.
        self._standing.add(present.topic_name)
        await self._persister.save(INCARNATION_FILE_NAME)

    async def _save(self) -> None:
        saves: list[Awaitable[None]] = [
            self._persister.save(INCARNATION_FILE_NAME),
            self._persister.save(FILE_NAME),
        ]
        await asyncio.gather(*saves)

    def _publish(self, config: TopicConfig) -> None:
        topic = config.topic_name
        self._topics[topic] = config
        self._encoded[topic] = _encode_entry(config)
        ttl = self._ttl_of(config)
        if ttl is None:
            self._ttl_ms.pop(topic, None)
        else:
            self._ttl_ms[topic] = ttl

    def _ttl_of(self, config: TopicConfig) -> int | None:
        default_ms = None if self.is_system_topic(config.topic_name) else self._ttl_default_ms
        return ttl_ms(config.attributes, default_ms=default_ms)

    def _tell(self, topic: str, config: TopicConfig | None) -> None:
        for listener in self._listeners:
            listener(topic, config)


def _encode_entry(config: TopicConfig) -> bytes:
    return msgspec.json.encode(config.topic_name) + b":" + config.encode()


async def _forget_nothing(topic: str) -> None:
    """What a table without groups does."""
