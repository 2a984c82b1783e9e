"""Consumer filters: which groups choose a topic's messages by an expression, and since when.

File: config/consumerFilter.json, Apache RocketMQ's:
    {"filterDataByTopic":{topic:{"groupFilterData":{group:{"bloomFilterData":{"bitNum":112,"bitPos":[positions]},
     "bornTime":ms,"clientVersion":version of the subscription,"consumerGroup":group,"dead":bool,"deadTime":ms,
     "expression":text,"expressionType":"SQL92","topic":topic}},"topic":topic}}}

Messages are chosen by what the connected groups subscribe to (message_filters.py), without this table. It is kept for
RocketMQ's broker, which reads it when the store moves there, and for tools that ask about a queue (321).

Rules
  - A filter is born when a heartbeat brings a valid expression that is new for its group and topic. The check may need
    compiling, which is requested for one expression at a time: a heartbeat may bring thousands, and other groups need
    the compiler too. An invalid expression replaces the one before all the same: its group has no filter then.
  - It dies when the group goes offline, or no longer filters that topic by an expression; it is alive again when the
    same expression comes back. Filters loaded from a file are dead until a heartbeat brings them.
  - The dead are forgotten after `DEAD_KEPT_MS`, and the longest dead before that when there are more than
    `DEAD_COUNT_MAX` of them, or than `DEAD_CHARS_MAX` characters in their expressions. The living are bounded by the
    subscriptions of connected clients.
  - While `enablePropertyFilter` is off nothing is compiled, and so nothing is born.
Belongs to the hot process's loop; housekeeping writes the file.
Source: broker/filter/ConsumerFilterManager.java, ConsumerFilterData.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping

import msgspec

from thermocline.broker.tables.filter_bloom import BloomFilterData, bloom_of
from thermocline.broker.tables.message_filters import CompileNeeded, MessageFilters, is_tag_type
from thermocline.remoting import json_dialect
from thermocline.remoting.bodies import SubscriptionData
from thermocline.remoting.errors import InvalidRequestError, MQError, SubscriptionParseError
from thermocline.store.state import TableChanges

logger = logging.getLogger(__name__)

FILE_NAME = "consumerFilter.json"
DEAD_KEPT_MS = 24 * 3_600_000
"""RocketMQ's `filterDataCleanTimeSpan`."""
DEAD_COUNT_MAX = 10_000
DEAD_CHARS_MAX = 1 << 22
OFFLINE_MS = 30_000
"""The shortest time that groups in a loaded file have been offline, as RocketMQ assumes."""


class ConsumerFilterData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One group's expression for one topic; members in the file's order."""

    bloom_filter_data: BloomFilterData | None = None
    born_time: int = 0
    client_version: int = 0
    consumer_group: str = ""
    dead: bool = False
    dead_time: int = 0
    expression: str = ""
    expression_type: str = ""
    topic: str = ""


class _TopicFilters(msgspec.Struct, kw_only=True, rename="camel"):
    group_filter_data: dict[str, ConsumerFilterData] = {}
    topic: str = ""


class _FilterFile(msgspec.Struct, kw_only=True, rename="camel"):
    filter_data_by_topic: dict[str, _TopicFilters] = {}


class ConsumerFilterTable:
    """See the module's header."""

    def __init__(self, filters: MessageFilters, *, clock: Callable[[], int]) -> None:
        """`filters` checks expressions; `clock` gives ms."""
        self._filters = filters
        self._clock = clock
        self._by_topic: dict[str, _TopicFilters] = {}
        self._live_topics: dict[str, set[str]] = {}
        # The dead in the order of their death, topic and group.
        self._dead: dict[tuple[str, str], ConsumerFilterData] = {}
        self._dead_chars = 0
        # By group and topic: expressions to be compiled, and the one that is being compiled.
        self._waiting: dict[str, dict[str, SubscriptionData]] = {}
        self._compiling: tuple[str, SubscriptionData] | None = None
        self.changes = TableChanges()

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """The filter of a group, dead or alive; None when it has none."""
        filters = self._by_topic.get(topic)
        return None if filters is None else filters.group_filter_data.get(group)

    # -- groups --------------------------------------------------------------------------------------------------------

    def group_wants(self, group: str, subscriptions: Mapping[str, SubscriptionData]) -> None:
        """Record a group's subscriptions by topic, from its last heartbeat; none when it is offline."""
        for place in self._forgotten():
            self._remove(*place)
        wanted = {
            topic: subscription
            for topic, subscription in subscriptions.items()
            if not is_tag_type(subscription.expression_type)
        }
        for topic in self._live_topics.get(group, set()) - wanted.keys():
            self._die(topic, group)
        self._waiting.pop(group, None)
        for subscription in wanted.values():
            self._follow(group, subscription)

    # -- file ----------------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The file's content: without the dead that are due to be forgotten."""
        forgotten = set(self._forgotten())
        if not forgotten:
            return msgspec.json.encode(_FilterFile(filter_data_by_topic=self._by_topic))
        kept: dict[str, _TopicFilters] = {}
        for topic, filters in self._by_topic.items():
            groups = {
                group: data for group, data in filters.group_filter_data.items() if (topic, group) not in forgotten
            }
            if groups:
                kept[topic] = _TopicFilters(topic=topic, group_filter_data=groups)
        return msgspec.json.encode(_FilterFile(filter_data_by_topic=kept))

    def load(self, data: bytes | None) -> None:
        """Load a file's content. One that cannot be read is passed over: nothing depends on it."""
        if data is None:
            return
        try:
            file = json_dialect.loads_as(data, _FilterFile)
        except InvalidRequestError as error:
            logger.warning("consumer filters not read file=%s reason=%s", FILE_NAME, error)
            return
        found = [one for filters in file.filter_data_by_topic.values() for one in filters.group_filter_data.values()]
        offline_since_ms = self._clock() - OFFLINE_MS
        dead = [
            msgspec.structs.replace(
                one,
                bloom_filter_data=bloom_of(one.consumer_group, one.topic),
                dead=True,
                dead_time=max(one.born_time, one.dead_time or offline_since_ms),
            )
            for one in found
        ]
        for one in sorted(dead, key=lambda one: one.dead_time):
            self._put(one)
        # The file has the loaded filters, unless it differs from the file that would be written now.
        self.changes.begin_save()
        self.changes.end_save()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _follow(self, group: str, subscription: SubscriptionData) -> None:
        topic, text, expression_type = subscription.topic, subscription.sub_string, subscription.expression_type
        present = self.get(topic, group)
        if present is not None and (present.expression, present.expression_type) == (text, expression_type):
            version = subscription.sub_version
            if present.dead or present.client_version != version:
                self._put(msgspec.structs.replace(present, client_version=version, dead=False, dead_time=0))
            return
        try:
            self._filters.find(expression_type, text)
        except CompileNeeded:
            self._waiting.setdefault(group, {})[topic] = subscription
            self._compile_next()
        except SubscriptionParseError:
            self._remove(topic, group)
        except MQError:  # property filters are off: whether it is an expression is not asked now
            return
        else:
            self._put(
                ConsumerFilterData(
                    bloom_filter_data=bloom_of(group, topic),
                    born_time=self._clock(),
                    client_version=subscription.sub_version,
                    consumer_group=group,
                    expression=text,
                    expression_type=expression_type,
                    topic=topic,
                )
            )

    def _compile_next(self) -> None:
        """Have one expression compiled, of those that wait for it."""
        if self._compiling is not None or not self._waiting:
            return
        group, subscriptions = next(iter(self._waiting.items()))
        subscription = next(iter(subscriptions.values()))
        if self._filters.compile_soon(subscription.sub_string, self._compiled):
            self._compiling = group, subscription
        # else the broker is busy, and the next heartbeat asks again

    def _compiled(self) -> None:
        assert self._compiling is not None
        (group, subscription), self._compiling = self._compiling, None
        subscriptions = self._waiting.get(group, {})
        if subscriptions.get(subscription.topic) is subscription:  # else the group has changed its mind meanwhile
            del subscriptions[subscription.topic]
            if not subscriptions:
                del self._waiting[group]
            self._follow(group, subscription)
        self._compile_next()

    def _put(self, data: ConsumerFilterData) -> None:
        topic, group = data.topic, data.consumer_group
        self._remove(topic, group)
        self.changes.add()
        filters = self._by_topic.get(topic)
        if filters is None:
            filters = self._by_topic[topic] = _TopicFilters(topic=topic, group_filter_data={})
        filters.group_filter_data[group] = data
        if not data.dead:
            self._live_topics.setdefault(group, set()).add(topic)
            return
        self._dead[topic, group] = data
        self._dead_chars += len(data.expression)
        while len(self._dead) > DEAD_COUNT_MAX or self._dead_chars > DEAD_CHARS_MAX:
            self._remove(*next(iter(self._dead)))

    def _remove(self, topic: str, group: str) -> None:
        present = self.get(topic, group)
        if present is None:
            return
        self.changes.add()
        groups = self._by_topic[topic].group_filter_data
        del groups[group]
        if not groups:
            del self._by_topic[topic]
        if present.dead:
            del self._dead[topic, group]
            self._dead_chars -= len(present.expression)
            return
        live_topics = self._live_topics[group]
        live_topics.remove(topic)
        if not live_topics:
            del self._live_topics[group]

    def _die(self, topic: str, group: str) -> None:
        present = self.get(topic, group)
        assert present is not None
        self._put(msgspec.structs.replace(present, dead=True, dead_time=max(present.born_time, self._clock())))

    def _forgotten(self) -> list[tuple[str, str]]:
        """Topic and group of the dead that are due to be forgotten."""
        oldest_ms = self._clock() - DEAD_KEPT_MS
        return [
            place for place, _ in itertools.takewhile(lambda dead: dead[1].dead_time <= oldest_ms, self._dead.items())
        ]
