"""Pop admission: checks whether a client may pop from a topic, and finds the filter of the request.

Checked in RocketMQ's order: not too late; broker readable; message count, and the attempt id, within the limit; topic
exists and is readable; queue id; group set up (made by its first use) and enabled; the expression.

The expression is the request's own, whatever heartbeats say: `*`, nothing, tags, or one of SQL92, as for pulls.
Source: PopMessageProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.broker.pulls import RequestExpressions, Wanted
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.tables import ConsumerOffsets, GroupHolds, GroupTable, MessageFilters, TopicTable
from thermocline.remoting.bodies import PERM_READ, SubscriptionGroupConfig, TopicConfig
from thermocline.remoting.errors import (
    GroupNotFoundError,
    InvalidParameterError,
    PermissionDeniedError,
    TopicNotFoundError,
)
from thermocline.remoting.headers.read import PopMessageRequestHeader

MESSAGES_MAX = 32
ATTEMPT_CHARACTERS_MAX = 255
"""It is kept with each queue that is popped in order, in memory, in the log and in a file."""
FAQ_TEXT = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class PopAdmission:
    """Admits POPs and their relatives, or refuses them with an error."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        topics: TopicTable,
        groups: GroupTable,
        holds: GroupHolds,
        offsets: ConsumerOffsets,
        filters: MessageFilters,
        store_host: tuple[str, int],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._holds = holds
        self._offsets = offsets
        self._store_host = store_host
        self._expressions = RequestExpressions(filters)

    def admit(self, header: PopMessageRequestHeader, *, remote_address: str) -> Wanted:
        """Pass a POP; the messages that its group wants.

        Raises:
            PermissionDeniedError, InvalidParameterError, TopicNotFoundError, GroupNotFoundError, BrokerBusyError: It is
                refused.
            SubscriptionParseError: Its expression cannot be read.
            CompileNeeded: Its expression has to be compiled first.
        """
        self.check_broker("pop message")
        if header.max_msg_nums > MESSAGES_MAX:
            raise InvalidParameterError(
                f"the broker[{self._store_host[0]}] pop message's num is greater than {MESSAGES_MAX}"
            )
        if len(header.attempt_id or "") > ATTEMPT_CHARACTERS_MAX:
            raise InvalidParameterError("the attempt id is too long", characters=len(header.attempt_id or ""))
        self.check_place(header.topic, header.consumer_group, header.queue_id, remote_address=remote_address)
        topic, group = header.topic, header.consumer_group
        self._offsets.check_writable(group)
        if not self._offsets.has_pair(topic, group):
            self._offsets.check_room(topic, group, address=remote_address)
            self._topics.check_first_pop(topic, group, remote_address)
        expression = header.exp or ""
        return self._expressions.read(header.topic, expression, header.exp_type if expression else None)

    def check_broker(self, what: str) -> None:
        """Pass while the broker gives messages out.

        Raises:
            PermissionDeniedError: It does not.
        """
        if not self._settings.broker.is_readable:
            raise PermissionDeniedError(f"the broker[{self._store_host[0]}] {what} is forbidden")

    def check_place(self, topic: str, group: str, queue_id: int, *, remote_address: str) -> TopicConfig:
        """Pass a topic, one of its queues (below 0: all), and a group.

        Raises:
            TopicNotFoundError, PermissionDeniedError, InvalidParameterError, GroupNotFoundError, GroupHeldError: It is
                refused.
        """
        config = self._topics.get(topic)
        if config is None:
            raise TopicNotFoundError(f"topic[{topic}] not exist, apply first please! {FAQ_TEXT}")
        if not config.perm & PERM_READ:
            raise PermissionDeniedError(f"the topic[{topic}] peeking message is forbidden")
        if queue_id >= config.read_queue_nums:
            raise InvalidParameterError(_queue_text(topic, queue_id, config, remote_address))
        self._check_group(group, remote_address=remote_address)
        return config

    def _check_group(self, name: str, *, remote_address: str) -> SubscriptionGroupConfig:
        group = self._groups.find_or_create(name, remote_address)
        if group is None:
            raise GroupNotFoundError(f"subscription group [{name}] does not exist, {FAQ_TEXT}")
        if not group.consume_enable:
            raise PermissionDeniedError(f"subscription group no permission, {name}")
        self._holds.check(name)
        return group


def _queue_text(topic: str, queue_id: int, config: TopicConfig, remote_address: str) -> str:
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{config.read_queue_nums}] "
        f"consumer:[{remote_address}]"
    )
