"""Names of topics and groups: which are allowed, which are the system's own.

Letters, digits, `%`, `|`, `_`, `-`; a topic up to 127 characters, a retry or dead-letter topic up to 255, a group up
to 120 (so that its retry topic fits). The checks give RocketMQ's own sentence, which tools show to people.
Source: TopicValidator.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import re

from thermocline.remoting.errors import InvalidParameterError

TOPIC_CHARACTERS_MAX = 127
RETRY_TOPIC_CHARACTERS_MAX = 255
GROUP_CHARACTERS_MAX = 120

RETRY_TOPIC_PREFIX = "%RETRY%"
DLQ_TOPIC_PREFIX = "%DLQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
TRANSACTION_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANSACTION_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANSACTION_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT_TOPIC = "OFFSET_MOVED_EVENT"
ROCKSDB_OFFSET_TOPIC = "CHECKPOINT_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
SYNC_BROKER_MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"

TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"
FILTER_SERVER_CONSUMER_GROUP = "FILTERSRV_CONSUMER"
SELF_TEST_CONSUMER_GROUP = "SELF_TEST_C_GROUP"
ONS_HTTP_PROXY_GROUP = "CID_ONS-HTTP-PROXY"
ONS_API_PULL_GROUP = "CID_ONSAPI_PULL"
ONS_API_PERMISSION_GROUP = "CID_ONSAPI_PERMISSION"
ONS_API_OWNER_GROUP = "CID_ONSAPI_OWNER"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRACE_TOPIC,
        TRANSACTION_OP_HALF_TOPIC,
        TRANSACTION_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
        ROCKSDB_OFFSET_TOPIC,
    }
)

INTERNAL_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRANSACTION_OP_HALF_TOPIC,
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        OFFSET_MOVED_EVENT_TOPIC,
        SELF_TEST_TOPIC,
    }
)

SEND_FORBIDDEN_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRANSACTION_OP_HALF_TOPIC,
        TRANSACTION_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
        TIMER_TOPIC,
    }
)
"""Topics that no client may send to. RocketMQ takes messages for the timer topic, which then go astray."""

SYSTEM_GROUPS = frozenset(
    {
        TOOLS_CONSUMER_GROUP,
        FILTER_SERVER_CONSUMER_GROUP,
        SELF_TEST_CONSUMER_GROUP,
        ONS_HTTP_PROXY_GROUP,
        ONS_API_PULL_GROUP,
        ONS_API_PERMISSION_GROUP,
        ONS_API_OWNER_GROUP,
        TRANSACTION_GROUP,
    }
)

_NAME = re.compile(r"[%|a-zA-Z0-9_-]*")


def check_topic(topic: str) -> None:
    """Pass a topic's name.

    Raises:
        InvalidParameterError: It breaks the rules; the message says which.
    """
    if not topic or topic.isspace():
        raise InvalidParameterError("The specified topic is blank.")
    if not _NAME.fullmatch(topic):
        raise InvalidParameterError(
            f"The specified topic: {topic}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if is_retry_topic(topic) or is_dlq_topic(topic):
        if len(topic) > RETRY_TOPIC_CHARACTERS_MAX:
            raise InvalidParameterError(
                f"The specified topic is DLQ or Retry topic: {topic}, "
                f"and it's longer than topic max length: {RETRY_TOPIC_CHARACTERS_MAX}"
            )
    elif len(topic) > TOPIC_CHARACTERS_MAX:
        raise InvalidParameterError(
            f"The specified topic: {topic}, is longer than topic max length: {TOPIC_CHARACTERS_MAX}"
        )


def check_group(group: str) -> None:
    """Pass a group's name.

    Raises:
        InvalidParameterError: It breaks the rules; the message says which.
    """
    if not group or group.isspace():
        raise InvalidParameterError("The specified group is blank.")
    if not _NAME.fullmatch(group):
        raise InvalidParameterError(
            f"The specified group: {group}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if len(group) > GROUP_CHARACTERS_MAX:
        raise InvalidParameterError(
            f"The specified group: {group}, is longer than group max length: {GROUP_CHARACTERS_MAX}"
        )


def is_system_topic(topic: str) -> bool:
    """Whether the topic is the system's; a broker adds those named after itself and its cluster."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_internal_topic(topic: str) -> bool:
    """Whether the broker keeps its own unfinished work there: no client gets messages of it as they lie there."""
    return topic in INTERNAL_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether the group is the system's."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_retry_topic(topic: str) -> bool:
    """Whether the topic holds messages that a group is to consume again."""
    return topic.startswith(RETRY_TOPIC_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Whether the topic holds messages that a group gave up on."""
    return topic.startswith(DLQ_TOPIC_PREFIX)


def retry_topic(group: str) -> str:
    """The group's retry topic."""
    return RETRY_TOPIC_PREFIX + group


def dlq_topic(group: str) -> str:
    """The group's dead-letter topic."""
    return DLQ_TOPIC_PREFIX + group
