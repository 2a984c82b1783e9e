"""Names around POP consumption: where a group's messages come back to, and what revives them.

    %RETRY%group_topic                 retry topic of a group for one topic, version 1; the default
    %RETRY%group+topic                 version 2: `+` stands in no topic's and no group's name, so it can be taken apart
    rmq_sys_REVIVE_LOG_cluster         the revive topic: check points and acknowledgements, read by the group
                                       CID_RMQ_SYS_REVIVE_GROUP

Not to be mixed up with `%RETRY%group`, the one retry topic of a group that pulls.
Source: KeyBuilder.java, PopAckConstants.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from enum import IntEnum

from thermocline.remoting.topic_validation import REVIVE_TOPIC_PREFIX, SYSTEM_GROUP_PREFIX, is_retry_topic, retry_topic

REVIVE_GROUP = f"{SYSTEM_GROUP_PREFIX}REVIVE_GROUP"
ORDER_REVIVE_QUEUE_ID = 999
"""Stands for the revive queue in the receipts of ordered POPs, which are not written there."""

_SEPARATOR_V1 = "_"
_SEPARATOR_V2 = "+"


class RetryFlag(IntEnum):
    """Which kind of topic a popped message comes from, as receipts and headers say it."""

    NORMAL = 0
    RETRY_V1 = 1
    RETRY_V2 = 2


def pop_retry_topic_v1(topic: str, group: str) -> str:
    """Where messages of `topic` come back to that `group` did not acknowledge."""
    return f"{retry_topic(group)}{_SEPARATOR_V1}{topic}"


def pop_retry_topic_v2(topic: str, group: str) -> str:
    """The same in the newer form."""
    return f"{retry_topic(group)}{_SEPARATOR_V2}{topic}"


def retry_flag(topic: str) -> RetryFlag:
    """The kind of a topic, by its name."""
    if not is_retry_topic(topic):
        return RetryFlag.NORMAL
    return RetryFlag.RETRY_V2 if _SEPARATOR_V2 in topic else RetryFlag.RETRY_V1


def flagged_topic(topic: str, group: str, flag: int) -> str:
    """The topic that stores a message with this flag, given the requested topic."""
    if flag == RetryFlag.RETRY_V1:
        return pop_retry_topic_v1(topic, group)
    return pop_retry_topic_v2(topic, group) if flag == RetryFlag.RETRY_V2 else topic


def normal_topic(topic: str, group: str) -> str:
    """The original topic of a message, given the topic that stores it now; that one itself if it is no retry topic."""
    for separator in (_SEPARATOR_V2, _SEPARATOR_V1):
        prefix = f"{retry_topic(group)}{separator}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def revive_topic(cluster_name: str) -> str:
    """The revive topic of the brokers of a cluster."""
    return f"{REVIVE_TOPIC_PREFIX}{cluster_name}"
