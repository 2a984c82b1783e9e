"""Pop admission: who may pop what, and which messages of it the group wants.

Checked in RocketMQ's order: not too late; broker readable; not too many messages asked for; topic there and readable;
queue id; group set up (made by its first use) and enabled; the expression.

The expression is the request's own, whatever heartbeats say: `*`, nothing, or tags. Only TAG expressions are served, as
for pulls (pull_admission.py); `_wanted` is where another kind of filter begins.
Source: PopMessageProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.broker.context import BrokerContext
from thermocline.remoting.bodies import EXPRESSION_TAG, PERM_READ, SubscriptionGroupConfig, TopicConfig
from thermocline.remoting.errors import (
    GroupNotFoundError,
    InvalidParameterError,
    MQError,
    PermissionDeniedError,
    SubscriptionParseError,
    TopicNotFoundError,
)
from thermocline.remoting.headers.read import PopMessageRequestHeader
from thermocline.remoting.subscription import parse_subscription

MESSAGES_MAX = 32
EXPRESSIONS_KEPT_MAX = 10_000
FAQ_TEXT = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class PopAdmission:
    """Admits POPs and their relatives, or refuses them with an error."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._codes: dict[str, frozenset[int] | None] = {}

    def admit(self, header: PopMessageRequestHeader, *, remote_address: str) -> frozenset[int] | None:
        """Pass a POP; the tag codes that its group wants, None for all messages.

        Raises:
            PermissionDeniedError, InvalidParameterError, TopicNotFoundError, GroupNotFoundError: It is refused.
            SubscriptionParseError: Its expression cannot be read.
        """
        self.check_broker("pop message")
        if header.max_msg_nums > MESSAGES_MAX:
            raise InvalidParameterError(
                f"the broker[{self._context.store_host[0]}] pop message's num is greater than {MESSAGES_MAX}"
            )
        self.check_place(header.topic, header.consumer_group, header.queue_id, remote_address=remote_address)
        return self._wanted(header)

    def check_broker(self, what: str) -> None:
        """Pass while the broker gives messages out.

        Raises:
            PermissionDeniedError: It does not.
        """
        if not self._context.config.is_readable:
            raise PermissionDeniedError(f"the broker[{self._context.store_host[0]}] {what} is forbidden")

    def check_place(self, topic: str, group: str, queue_id: int, *, remote_address: str) -> TopicConfig:
        """Pass a topic, one of its queues (below 0: all), and a group.

        Raises:
            TopicNotFoundError, PermissionDeniedError, InvalidParameterError, GroupNotFoundError: It is refused.
        """
        config = self._context.topics.get(topic)
        if config is None:
            raise TopicNotFoundError(f"topic[{topic}] not exist, apply first please! {FAQ_TEXT}")
        if not config.perm & PERM_READ:
            raise PermissionDeniedError(f"the topic[{topic}] peeking message is forbidden")
        if queue_id >= config.read_queue_nums:
            raise InvalidParameterError(_queue_text(topic, queue_id, config, remote_address))
        self._check_group(group)
        return config

    def _check_group(self, name: str) -> SubscriptionGroupConfig:
        group = self._context.groups.find_or_create(name)
        if group is None:
            raise GroupNotFoundError(f"subscription group [{name}] does not exist, {FAQ_TEXT}")
        if not group.consume_enable:
            raise PermissionDeniedError(f"subscription group no permission, {name}")
        return group

    def _wanted(self, header: PopMessageRequestHeader) -> frozenset[int] | None:
        """What the request's expression stands for."""
        expression = header.exp or ""
        if expression and header.exp_type and header.exp_type != EXPRESSION_TAG:
            raise MQError(f"The broker does not support consumer to filter message by {header.exp_type}")
        try:
            return self._codes[expression]
        except KeyError:
            pass
        try:
            codes = frozenset(parse_subscription(header.topic, expression).code_set) or None
        except SubscriptionParseError as error:
            raise SubscriptionParseError("parse the consumer's subscription failed") from error
        if len(self._codes) >= EXPRESSIONS_KEPT_MAX:
            self._codes.clear()
        self._codes[expression] = codes
        return codes


def _queue_text(topic: str, queue_id: int, config: TopicConfig, remote_address: str) -> str:
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{config.read_queue_nums}] "
        f"consumer:[{remote_address}]"
    )
