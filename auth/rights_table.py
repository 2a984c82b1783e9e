"""Rights table: the rule of every request code that a broker, a NameServer or a controller serves.

A code without a rule is refused (access_control.py). docs/security.md shows the table; tests compare it with what
broker, NameServer and controller serve, and with what RocketMQ's own classes ask for:
tests/interop/test_official_rights.py names each difference and why.

VIEW_MESSAGE_BY_ID, CONSUMER_SEND_MSG_BACK, END_TRANSACTION, RESUME_CHECK_HALF_MESSAGE and CONSUME_MESSAGE_DIRECTLY name
a message by its place in the log. The topic that it has is checked, too, once it is read
(broker/processors/messages/topic_check.py); RocketMQ believes what requests say.
Source: the annotations RocketMQAction and RocketMQResource of request headers, and
auth/authorization/builder/DefaultAuthorizationContextBuilder.java, Apache RocketMQ 5.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from thermocline.auth.actions import Action
from thermocline.auth.resources import RETRY_PREFIX, ResourceType
from thermocline.auth.rights import Missing, Names, Need, Rule
from thermocline.remoting import bodies
from thermocline.remoting.bodies.hand_off import HandOffBody
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_code import RequestCode

PUB, SUB, GET, LIST = Action.PUB, Action.SUB, Action.GET, Action.LIST
CREATE, UPDATE, DELETE = Action.CREATE, Action.UPDATE, Action.DELETE


# -- needs -------------------------------------------------------------------------------------------------------------


def _topic(*actions: Action, field: str = "topic", missing: Missing = Missing.EVERY, separator: str = "") -> Need:
    return Need(type=ResourceType.TOPIC, actions=actions, field=field, missing=missing, separator=separator)


def _sent_topic(field: str) -> Need:
    return Need(type=ResourceType.TOPIC, actions=(PUB,), field=field, retry_actions=(PUB, SUB))


def _reply_topic(field: str) -> Need:
    """A reply is stored in the topic that it names: without a right a user may name that of replies alone."""
    return Need(type=ResourceType.TOPIC, actions=(PUB,), field=field, is_reply=True)


def _group(*actions: Action, field: str = "consumerGroup", missing: Missing = Missing.EVERY) -> Need:
    return Need(type=ResourceType.GROUP, actions=actions, field=field, missing=missing)


def _cluster(*actions: Action, field: str = "") -> Rule:
    return Rule((Need(type=ResourceType.CLUSTER, actions=actions, field=field),))


def _every_topic(*actions: Action) -> Rule:
    return Rule((Need(type=ResourceType.TOPIC, actions=actions),))


def _every_group(*actions: Action) -> Rule:
    return Rule((Need(type=ResourceType.GROUP, actions=actions),))


def _in_body(kind: ResourceType, *actions: Action, what: str, names: Names, missing: Missing = Missing.EVERY) -> Need:
    return Need(type=kind, actions=actions, field=what, names=names, missing=missing)


def _rule(*needs: Need) -> Rule:
    return Rule(needs)


# -- names in bodies ---------------------------------------------------------------------------------------------------


def _heartbeat_groups(command: RemotingCommand) -> Iterable[str]:
    return [data.group_name for data in bodies.HeartbeatData.decode(command.body).consumer_data_set]


def _heartbeat_topics(command: RemotingCommand) -> Iterable[str]:
    return [
        subscription.topic
        for data in bodies.HeartbeatData.decode(command.body).consumer_data_set
        for subscription in data.subscription_data_set
        if subscription.topic != f"{RETRY_PREFIX}{data.group_name}"
    ]


def _checked_group(command: RemotingCommand) -> Iterable[str]:
    return [bodies.CheckClientRequestBody.decode(command.body).group] if command.body else []


def _checked_topic(command: RemotingCommand) -> Iterable[str]:
    subscription = bodies.CheckClientRequestBody.decode(command.body).subscription_data if command.body else None
    return [subscription.topic] if subscription is not None else []


def _locked_group(command: RemotingCommand) -> Iterable[str]:
    return [bodies.LockBatchRequestBody.decode(command.body).consumer_group]


def _locked_topics(command: RemotingCommand) -> Iterable[str]:
    return [queue.topic for queue in bodies.LockBatchRequestBody.decode(command.body).mq_set]


def _assigned_group(command: RemotingCommand) -> Iterable[str]:
    return [bodies.QueryAssignmentRequestBody.decode(command.body).consumer_group]


def _assigned_topic(command: RemotingCommand) -> Iterable[str]:
    return [bodies.QueryAssignmentRequestBody.decode(command.body).topic]


def _mode_group(command: RemotingCommand) -> Iterable[str]:
    return [bodies.SetMessageRequestModeRequestBody.decode(command.body).consumer_group]


def _acknowledged_groups(command: RemotingCommand) -> Iterable[str]:
    acks = bodies.BatchAckMessageRequestBody.decode(command.body).acks if command.body else []
    return [ack.consumer_group for ack in acks]


def _acknowledged_topics(command: RemotingCommand) -> Iterable[str]:
    acks = bodies.BatchAckMessageRequestBody.decode(command.body).acks if command.body else []
    return [ack.topic for ack in acks]


def _made_topics(command: RemotingCommand) -> Iterable[str]:
    return [config.topic_name for config in bodies.TopicConfigListBody.decode(command.body).topic_config_list]


def _made_group(command: RemotingCommand) -> Iterable[str]:
    return [bodies.SubscriptionGroupConfig.decode(command.body).group_name]


def _made_groups(command: RemotingCommand) -> Iterable[str]:
    return [config.group_name for config in bodies.SubscriptionGroupListBody.decode(command.body).group_config_list]


def _handed_off_group(command: RemotingCommand) -> Iterable[str]:
    return [HandOffBody.decode(command.body).group]


def _handed_off_topics(command: RemotingCommand) -> Iterable[str]:
    return [target.topic for target in HandOffBody.decode(command.body).topics]


# -- rules -------------------------------------------------------------------------------------------------------------

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
# Needs are in RocketMQ's order: the first one that a user lacks is in the answer.
_PULL = _rule(_topic(SUB), _group(SUB))
_POP = _rule(_group(SUB), _topic(SUB))
_POPPED = _rule(_group(SUB), Need(type=_TOPIC, actions=(SUB,), field="topic", group_field="consumerGroup"))

MESSAGES: Mapping[int, Rule] = {
    RequestCode.SEND_MESSAGE: _rule(_sent_topic("topic")),
    RequestCode.SEND_MESSAGE_V2: _rule(_sent_topic("b")),
    RequestCode.SEND_BATCH_MESSAGE: _rule(_sent_topic("b")),
    RequestCode.SEND_REPLY_MESSAGE: _rule(_reply_topic("topic")),
    RequestCode.SEND_REPLY_MESSAGE_V2: _rule(_reply_topic("b")),
    RequestCode.RECALL_MESSAGE: _rule(_topic(PUB)),
    RequestCode.END_TRANSACTION: _rule(_topic(PUB, missing=Missing.NOTHING)),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _rule(_topic(UPDATE)),
    RequestCode.CONSUMER_SEND_MSG_BACK: _rule(_group(SUB, field="group")),
    RequestCode.PULL_MESSAGE: _PULL,
    RequestCode.LITE_PULL_MESSAGE: _PULL,
    RequestCode.POP_MESSAGE: _POP,
    RequestCode.PEEK_MESSAGE: _PULL,
    RequestCode.NOTIFICATION: _POP,
    RequestCode.ACK_MESSAGE: _POPPED,
    RequestCode.BATCH_ACK_MESSAGE: _rule(
        _in_body(_GROUP, SUB, what="consumerGroup", names=_acknowledged_groups),
        _in_body(_TOPIC, SUB, what="topic", names=_acknowledged_topics),
    ),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _POPPED,
    RequestCode.POLLING_INFO: _rule(_group(GET), _topic(GET)),
    RequestCode.QUERY_MESSAGE: _rule(_topic(SUB, GET)),
    RequestCode.VIEW_MESSAGE_BY_ID: _rule(_topic(GET, missing=Missing.NOTHING)),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _rule(_topic(GET)),
    RequestCode.GET_MAX_OFFSET: _rule(_topic(GET)),
    RequestCode.GET_MIN_OFFSET: _rule(_topic(GET)),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _rule(_topic(GET)),
}

CLIENTS: Mapping[int, Rule] = {
    RequestCode.HEART_BEAT: _rule(
        _in_body(_GROUP, SUB, what="groupName", names=_heartbeat_groups, missing=Missing.NOTHING),
        _in_body(_TOPIC, SUB, what="topic", names=_heartbeat_topics, missing=Missing.NOTHING),
    ),
    RequestCode.UNREGISTER_CLIENT: _rule(_group(SUB, missing=Missing.NOTHING)),
    RequestCode.CHECK_CLIENT_CONFIG: _rule(
        _in_body(_GROUP, SUB, what="group", names=_checked_group, missing=Missing.NOTHING),
        _in_body(_TOPIC, SUB, what="topic", names=_checked_topic, missing=Missing.NOTHING),
    ),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _rule(_group(SUB, GET)),
    RequestCode.LOCK_BATCH_MQ: _rule(
        _in_body(_GROUP, SUB, what="consumerGroup", names=_locked_group),
        _in_body(_TOPIC, SUB, what="topic", names=_locked_topics, missing=Missing.NOTHING),
    ),
    RequestCode.UNLOCK_BATCH_MQ: _rule(
        _in_body(_GROUP, SUB, what="consumerGroup", names=_locked_group),
        _in_body(_TOPIC, SUB, what="topic", names=_locked_topics, missing=Missing.NOTHING),
    ),
    RequestCode.QUERY_ASSIGNMENT: _rule(
        _in_body(_GROUP, SUB, what="consumerGroup", names=_assigned_group),
        _in_body(_TOPIC, SUB, what="topic", names=_assigned_topic),
    ),
    RequestCode.QUERY_CONSUMER_OFFSET: _rule(_topic(SUB, GET), _group(SUB, GET)),
    RequestCode.UPDATE_CONSUMER_OFFSET: _rule(_topic(SUB, UPDATE), _group(SUB, UPDATE)),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _rule(_group(GET)),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _cluster(GET),
    RequestCode.GET_ALL_PRODUCER_INFO: _cluster(GET),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _rule(_group(GET)),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _rule(_group(SUB), _topic(SUB)),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _rule(_topic(GET), _group(GET, field="group")),
}

TOPICS_AND_GROUPS: Mapping[int, Rule] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: _rule(_topic(CREATE)),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _rule(_in_body(_TOPIC, CREATE, what="topicName", names=_made_topics)),
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: _rule(_topic(CREATE)),
    RequestCode.DELETE_TOPIC_IN_BROKER: _rule(_topic(DELETE)),
    RequestCode.GET_TOPIC_CONFIG: _rule(_topic(GET)),
    RequestCode.GET_ALL_TOPIC_CONFIG: _every_topic(LIST),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _cluster(GET),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _rule(
        _in_body(_GROUP, CREATE, what="groupName", names=_made_group)
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _rule(
        _in_body(_GROUP, CREATE, what="groupName", names=_made_groups)
    ),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _rule(_group(DELETE, field="groupName")),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _rule(_group(GET, field="group")),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _every_group(LIST),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _rule(_group(UPDATE, field="group"), _topic(UPDATE)),
    RequestCode.GET_ALL_CONSUMER_OFFSET: _cluster(GET),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _rule(_group(UPDATE, field="group"), _topic(UPDATE)),
    RequestCode.CLONE_GROUP_OFFSET: _rule(
        _group(GET, field="srcGroup"), _group(UPDATE, field="destGroup"), _topic(UPDATE, missing=Missing.NOTHING)
    ),
    RequestCode.QUERY_CORRECTION_OFFSET: _rule(
        Need(type=_GROUP, actions=(GET,), field="filterGroups", separator=",", missing=Missing.NOTHING),
        _group(GET, field="compareGroup", missing=Missing.NOTHING),
        _topic(GET),
    ),
    RequestCode.SET_MESSAGE_REQUEST_MODE: _rule(_in_body(_GROUP, UPDATE, what="consumerGroup", names=_mode_group)),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: _cluster(GET),
    RequestCode.GET_TOPIC_STATS_INFO: _rule(_topic(GET)),
    RequestCode.GET_CONSUME_STATS: _rule(
        _group(GET),
        _topic(GET, missing=Missing.NOTHING),
        _topic(GET, field="topicList", separator=";", missing=Missing.NOTHING),
    ),
    RequestCode.GET_BROKER_CONSUME_STATS: _cluster(GET),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _rule(_topic(GET)),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _rule(_group(GET, field="group")),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _rule(_group(GET, field="group"), _topic(GET)),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _rule(_topic(GET), _group(GET, field="group")),
    RequestCode.QUERY_CONSUME_QUEUE: _rule(_topic(GET), _group(GET, missing=Missing.NOTHING)),
}

BROKERS: Mapping[int, Rule] = {
    RequestCode.UPDATE_BROKER_CONFIG: _cluster(UPDATE),
    RequestCode.GET_BROKER_CONFIG: _cluster(GET),
    RequestCode.GET_BROKER_RUNTIME_INFO: _cluster(GET),
    RequestCode.VIEW_BROKER_STATS_DATA: _cluster(GET),
    RequestCode.GET_ALL_DELAY_OFFSET: _cluster(GET),
    RequestCode.GET_TIMER_CHECK_POINT: _cluster(GET),
    RequestCode.GET_TIMER_METRICS: _cluster(GET),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _cluster(UPDATE),
    RequestCode.CLEAN_UNUSED_TOPIC: _cluster(UPDATE),
    RequestCode.DELETE_EXPIRED_COMMITLOG: _cluster(UPDATE),
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _rule(_topic(GET, missing=Missing.CLUSTER)),
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: _cluster(GET),
    RequestCode.POP_ROLLBACK: _cluster(UPDATE),
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: _cluster(UPDATE),
    RequestCode.EXCHANGE_BROKER_HA_INFO: _cluster(UPDATE),
    RequestCode.GET_BROKER_HA_STATUS: _cluster(GET),
    RequestCode.RESET_MASTER_FLUSH_OFFSET: _cluster(UPDATE),
    RequestCode.GET_BROKER_EPOCH_CACHE: _cluster(GET),
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: _cluster(UPDATE),
    PrivateRequestCode.TOPIC_INCARNATIONS: _cluster(GET),
    PrivateRequestCode.REPLICA_SOURCE: _cluster(GET),
    PrivateRequestCode.REPLICA_HAND_OVER: _cluster(UPDATE),
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: _cluster(UPDATE),
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: _cluster(UPDATE),
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: _cluster(GET),
    RequestCode.SET_COMMITLOG_READ_MODE: _cluster(UPDATE),
}

USERS_AND_POLICIES: Mapping[int, Rule] = {
    RequestCode.AUTH_CREATE_USER: _cluster(UPDATE),
    RequestCode.AUTH_UPDATE_USER: _cluster(UPDATE),
    RequestCode.AUTH_DELETE_USER: _cluster(UPDATE),
    RequestCode.AUTH_GET_USER: _cluster(GET),
    RequestCode.AUTH_LIST_USER: _cluster(GET),
    RequestCode.AUTH_CREATE_ACL: _cluster(UPDATE),
    RequestCode.AUTH_UPDATE_ACL: _cluster(UPDATE),
    RequestCode.AUTH_DELETE_ACL: _cluster(UPDATE),
    RequestCode.AUTH_GET_ACL: _cluster(GET),
    RequestCode.AUTH_LIST_ACL: _cluster(GET),
    PrivateRequestCode.ACL_CHECK: _cluster(GET),
    PrivateRequestCode.ACL_VERSION: _cluster(GET),
}

PROXIES: Mapping[int, Rule] = {
    PrivateRequestCode.PROXIED_CLIENTS_REPORT: _cluster(UPDATE),
    PrivateRequestCode.PROXIED_CLIENTS_LIST: _cluster(GET),
}

COLD_TIER: Mapping[int, Rule] = {
    PrivateRequestCode.TIER_STATUS: _rule(_topic(GET, missing=Missing.CLUSTER)),
    PrivateRequestCode.TIER_SEAL: _rule(_topic(UPDATE, missing=Missing.CLUSTER)),
    PrivateRequestCode.TIER_EXPLAIN: _rule(_topic(GET, missing=Missing.CLUSTER)),
    PrivateRequestCode.TIER_PURGE: _rule(_topic(DELETE)),
    PrivateRequestCode.TIER_SCRUB: _cluster(UPDATE),
    PrivateRequestCode.TIER_SCRUB_STATE: _cluster(GET),
    PrivateRequestCode.TIER_COST: _rule(_topic(GET, missing=Missing.CLUSTER)),
    PrivateRequestCode.TTL_PREVIEW: _rule(_topic(GET)),
    PrivateRequestCode.TTL_SET: _rule(_topic(UPDATE)),
    PrivateRequestCode.TTL_EVIDENCE: _rule(_topic(GET)),
    PrivateRequestCode.HAND_OFF_LOOK: _rule(_group(SUB, GET, field="group"), _topic(SUB, GET)),
    PrivateRequestCode.HAND_OFF_PREPARE: _rule(
        _in_body(_GROUP, UPDATE, what="group", names=_handed_off_group),
        _in_body(_TOPIC, SUB, GET, what="topic", names=_handed_off_topics),
    ),
    PrivateRequestCode.HAND_OFF_APPLY: _rule(_group(UPDATE, field="group")),
    PrivateRequestCode.HAND_OFF_ABORT: _rule(_group(UPDATE, field="group")),
    PrivateRequestCode.FLUSHED_RANGES: _rule(_topic(SUB, GET)),
}

NAME_SERVERS: Mapping[int, Rule] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _rule(_topic(PUB, SUB, GET)),
    RequestCode.REGISTER_BROKER: _cluster(UPDATE, field="clusterName"),
    RequestCode.UNREGISTER_BROKER: _cluster(UPDATE, field="clusterName"),
    RequestCode.BROKER_HEARTBEAT: _cluster(UPDATE, field="clusterName"),
    RequestCode.QUERY_DATA_VERSION: _cluster(GET, field="clusterName"),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _cluster(UPDATE),
    RequestCode.GET_BROKER_MEMBER_GROUP: _cluster(GET, field="clusterName"),
    RequestCode.GET_BROKER_CLUSTER_INFO: _cluster(GET),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _cluster(UPDATE),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _cluster(UPDATE),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _every_topic(LIST),
    RequestCode.GET_TOPICS_BY_CLUSTER: _every_topic(LIST),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _every_topic(LIST),
    RequestCode.GET_UNIT_TOPIC_LIST: _every_topic(LIST),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _every_topic(LIST),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _every_topic(LIST),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _cluster(UPDATE, field="clusterName"),
    RequestCode.PUT_KV_CONFIG: _cluster(UPDATE),
    RequestCode.GET_KV_CONFIG: _cluster(GET),
    RequestCode.DELETE_KV_CONFIG: _cluster(UPDATE),
    RequestCode.GET_KVLIST_BY_NAMESPACE: _cluster(GET),
    RequestCode.UPDATE_NAMESRV_CONFIG: _cluster(UPDATE),
    RequestCode.GET_NAMESRV_CONFIG: _cluster(GET),
}

CONTROLLERS: Mapping[int, Rule] = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: _cluster(UPDATE),
    RequestCode.CONTROLLER_ELECT_MASTER: _cluster(UPDATE, field="clusterName"),
    RequestCode.CONTROLLER_REGISTER_BROKER: _cluster(UPDATE, field="clusterName"),
    RequestCode.CONTROLLER_GET_REPLICA_INFO: _cluster(GET),
    RequestCode.CONTROLLER_GET_METADATA_INFO: _cluster(GET),
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: _cluster(GET),
    RequestCode.UPDATE_CONTROLLER_CONFIG: _cluster(UPDATE),
    RequestCode.GET_CONTROLLER_CONFIG: _cluster(GET),
    RequestCode.CLEAN_BROKER_DATA: _cluster(UPDATE, field="clusterName"),
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: _cluster(GET, field="clusterName"),
    RequestCode.CONTROLLER_APPLY_BROKER_ID: _cluster(UPDATE, field="clusterName"),
    PrivateRequestCode.CONTROLLER_CONSENSUS: _cluster(UPDATE),
    PrivateRequestCode.CONTROLLER_STATUS: _cluster(GET),
}

FAMILIES: Mapping[str, Mapping[int, Rule]] = {
    "messages": MESSAGES,
    "clients": CLIENTS,
    "topics and groups": TOPICS_AND_GROUPS,
    "brokers": BROKERS,
    "users and policies": USERS_AND_POLICIES,
    "clients of proxies": PROXIES,
    "cold tier": COLD_TIER,
    "NameServers": NAME_SERVERS,
    "controllers": CONTROLLERS,
}
"""As docs/security.md shows them."""

RULES: Mapping[int, Rule] = {code: rule for family in FAMILIES.values() for code, rule in family.items()}
"""All rules by request code."""

assert len(RULES) == sum(map(len, FAMILIES.values())), "a code in two families"
