"""Pull admission: checks whether a client may pull from a queue, and finds the group's filter.

Checked in RocketMQ's order: broker readable; lite pull allowed; group set up (made by its first use) and enabled;
topic there and readable; queue id; subscription, either the expression in the request or the subscription in the
group's heartbeats.

    TAG      messages are chosen by the hash of their tag, the client looks at the tag itself
    SQL92    by their properties, if `enablePropertyFilter` is set (message_filters.py)

An expression that is none is refused: in a request with SUBSCRIPTION_PARSE_FAILED (RocketMQ gives such a request every
message); pulls that rely on one of a heartbeat get FILTER_DATA_NOT_EXIST. FILTER_DATA_NOT_LATEST is never said: an
expression and its filter are of one age.
Source: PullMessageProcessor.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.broker.pulls.pull_request import PullRequest
from thermocline.broker.pulls.request_expressions import ALL, RequestExpressions, Wanted
from thermocline.broker.settings import CurrentConfig
from thermocline.broker.tables import ClientRegistry, GroupHolds, GroupTable, MessageFilters, TopicTable, is_tag_type
from thermocline.filters import CompiledFilter
from thermocline.remoting.bodies import CONSUME_ACTIVELY, PERM_READ, SubscriptionData
from thermocline.remoting.errors import (
    FilterDataNotFoundError,
    GroupNotFoundError,
    InvalidParameterError,
    PermissionDeniedError,
    SubscriptionNotFoundError,
    SubscriptionNotLatestError,
    SubscriptionParseError,
    TopicNotFoundError,
)
from thermocline.remoting.headers.read import PullMessageRequestHeader
from thermocline.remoting.records import sys_flag as sys_flags
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.topic_validation import is_system_group

FORBIDDEN_BY_BROKER = 1
FORBIDDEN_BY_GROUP = 2
FORBIDDEN_BY_TOPIC = 3
FORBIDDEN_BROADCASTING = 4
FORBIDDEN_SUBSCRIPTION = 5


class PullForbiddenError(PermissionDeniedError):
    """Broker, topic or group forbid the pull; `forbidden_type` in the answer's header says which."""

    def __init__(self, message: str, *, forbidden_type: int) -> None:
        super().__init__(message)
        self.forbidden_type = forbidden_type


class Admission:
    """The filter of an admitted pull, and the flags that go into its answer."""

    __slots__ = ("group_sys_flag", "topic_sys_flag", "wanted")

    def __init__(self, wanted: Wanted, *, topic_sys_flag: int, group_sys_flag: int) -> None:
        self.wanted = wanted
        self.topic_sys_flag = topic_sys_flag
        self.group_sys_flag = group_sys_flag


class PullAdmission:
    """Admits pulls, or refuses them with an error."""

    def __init__(
        self,
        *,
        settings: CurrentConfig,
        topics: TopicTable,
        groups: GroupTable,
        holds: GroupHolds,
        clients: ClientRegistry,
        filters: MessageFilters,
        store_host: tuple[str, int],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._holds = holds
        self._clients = clients
        self._filters = filters
        self._store_host = store_host
        self._expressions = RequestExpressions(filters)

    def admit(self, request: PullRequest) -> Admission:
        """Pass the pull.

        Raises:
            PullForbiddenError, GroupNotFoundError, TopicNotFoundError, InvalidParameterError, SubscriptionParseError,
            SubscriptionNotFoundError, SubscriptionNotLatestError, FilterDataNotFoundError, GroupHeldError,
            MQError: It is refused.
            CompileNeeded: The filter of its subscription has to be compiled first.
        """
        header = request.header
        config = self._settings.broker
        if not config.is_readable:
            raise PullForbiddenError(
                f"the broker[{self._store_host[0]}] pulling message is forbidden", forbidden_type=FORBIDDEN_BY_BROKER
            )
        if request.code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull:
            raise PullForbiddenError(
                f"the broker[{self._store_host[0]}] for lite pull consumer is forbidden",
                forbidden_type=FORBIDDEN_BY_BROKER,
            )
        group = self._groups.find_or_create(header.consumer_group, request.connection.remote_address)
        if group is None:
            raise GroupNotFoundError(f"subscription group [{header.consumer_group}] does not exist")
        if not group.consume_enable:
            raise PullForbiddenError(
                f"subscription group no permission, {header.consumer_group}", forbidden_type=FORBIDDEN_BY_GROUP
            )
        self._holds.check(header.consumer_group)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise TopicNotFoundError(f"topic[{header.topic}] not exist, apply first please!")
        if not topic.perm & PERM_READ:
            raise PullForbiddenError(
                f"the topic[{header.topic}] pulling message is forbidden", forbidden_type=FORBIDDEN_BY_TOPIC
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise InvalidParameterError(
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{request.connection.remote_address}]"
            )
        if header.sys_flag & sys_flags.PULL_SUBSCRIPTION:
            wanted = self._expressions.read(header.topic, header.subscription or "", header.expression_type)
        else:
            subscription = self._registered(header, may_broadcast=group.consume_broadcast_enable)
            if is_tag_type(subscription.expression_type):
                wanted = Wanted(frozenset(subscription.code_set)) if subscription.code_set else ALL
            else:
                wanted = Wanted(properties=self._registered_filter(subscription))
        if config.reject_pull_consumers:
            self._check_consumer_connected(request)
        return Admission(wanted, topic_sys_flag=topic.topic_sys_flag, group_sys_flag=group.group_sys_flag)

    def _registered_filter(self, subscription: SubscriptionData) -> CompiledFilter:
        """The filter of the subscription in the group's heartbeats."""
        try:
            return self._filters.find(subscription.expression_type, subscription.sub_string)
        except SubscriptionParseError as error:
            raise FilterDataNotFoundError(
                "The broker's consumer filter data is not exist!Your expression may be wrong!"
            ) from error

    def _registered(self, header: PullMessageRequestHeader, *, may_broadcast: bool) -> SubscriptionData:
        """The subscription in the group's heartbeats."""
        group = self._clients.consumer_group(header.consumer_group)
        if group is None:
            raise SubscriptionNotFoundError("the consumer's group info not exist", group=header.consumer_group)
        if not may_broadcast and group.is_broadcasting:
            raise PullForbiddenError(
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
                forbidden_type=FORBIDDEN_BROADCASTING,
            )
        if self._groups.is_read_forbidden(header.consumer_group, header.topic):
            raise PullForbiddenError(
                f"the consumer group[{header.consumer_group}] is forbidden for topic[{header.topic}]",
                forbidden_type=FORBIDDEN_SUBSCRIPTION,
            )
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            raise SubscriptionNotFoundError(
                "the consumer's subscription not exist", group=header.consumer_group, topic=header.topic
            )
        if subscription.sub_version < header.sub_version:
            raise SubscriptionNotLatestError("the consumer's subscription not latest")
        return subscription

    def _check_consumer_connected(self, request: PullRequest) -> None:
        """Pass only members of the group that do more than pull by themselves (`rejectPullConsumerEnable`)."""
        name = request.header.consumer_group
        group = self._clients.consumer_group(name)
        if group is not None and (group.consume_type != CONSUME_ACTIVELY or request.connection in group.members):
            return
        if not is_system_group(name):
            raise SubscriptionNotFoundError(
                "the consumer's group info not exist, or the pull consumer is rejected by server.", group=name
            )
