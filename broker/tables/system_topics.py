"""System topics: those that every broker has from its first start on, and may not lose.

    SELF_TEST_TOPIC, OFFSET_MOVED_EVENT        1 queue
    TBW102                                     the model of topics made by their first message; with inherit permission
    BenchmarkTest                              1024 queues
    the cluster's name, the broker's name      16 and 1 queues: a topic that any client finds
    SCHEDULE_TOPIC_XXXX                        one queue a delay level
    RMQ_SYS_TRACE_TOPIC                        when tracing is switched on
    {cluster}_REPLY_TOPIC                      replies of request-reply
    rmq_sys_REVIVE_LOG_{cluster}, rmq_sys_wheel_timer, RMQ_SYS_TRANS_*, rmq_sys_SYNC_BROKER_MEMBER_{broker}
                                               what POP, timers, transactions and replicas keep

Source: broker/topic/TopicConfigManager.java (init), Apache RocketMQ 5.3, and the registration of a 5.5.0 broker.
"""

import logging

from thermocline.broker.settings import BrokerConfig
from thermocline.remoting.bodies import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig
from thermocline.remoting.topic_validation import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    OFFSET_MOVED_EVENT_TOPIC,
    REPLY_TOPIC_SUFFIX,
    REVIVE_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYNC_BROKER_MEMBER_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_HALF_TOPIC,
)

logger = logging.getLogger(__name__)

READ_WRITE = PERM_READ | PERM_WRITE
ALL = READ_WRITE | PERM_INHERIT

BENCHMARK_QUEUES = 1_024
CLUSTER_QUEUES = 16

OTHER_TRANSACTION_TOPICS = ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
"""Seen in 5.5.0."""


def boot_topics(config: BrokerConfig, *, delay_level_count: int) -> list[TopicConfig]:
    """The topics to make at a start where they are missing."""
    topics = [
        _topic(SELF_TEST_TOPIC, 1),
        _topic(BENCHMARK_TOPIC, BENCHMARK_QUEUES),
        _topic(config.cluster_name, CLUSTER_QUEUES, ALL if config.cluster_topic else PERM_INHERIT),
        _topic(config.broker_name, 1, ALL if config.broker_topic else PERM_INHERIT),
        _topic(OFFSET_MOVED_EVENT_TOPIC, 1),
        _topic(SCHEDULE_TOPIC, delay_level_count),
        _topic(f"{config.cluster_name}{REPLY_TOPIC_SUFFIX}", 1),
        _topic(f"{REVIVE_TOPIC_PREFIX}{config.cluster_name}", config.revive_queues),
        _topic(f"{SYNC_BROKER_MEMBER_TOPIC_PREFIX}{config.broker_name}", 1, PERM_INHERIT),
        _topic(TRANSACTION_HALF_TOPIC, 1),
        _topic(TRANSACTION_OP_HALF_TOPIC, 1),
        *(_topic(name, 1) for name in OTHER_TRANSACTION_TOPICS),
        _topic(TIMER_TOPIC, 1),
    ]
    if config.auto_create_topic:
        topics.append(_topic(AUTO_CREATE_TOPIC, config.default_topic_queues, ALL))
    if config.trace_topic:
        topics.append(_topic(config.trace_topic_name, 1))
    # A cluster and a broker may have the same name; the first of two equal ones counts.
    return list({topic.topic_name: topic for topic in reversed(topics)}.values())


def system_topic_names(config: BrokerConfig, *, delay_level_count: int) -> frozenset[str]:
    """The names that belong to the broker: the boot topics, and those that only some versions have."""
    return SYSTEM_TOPICS | {topic.topic_name for topic in boot_topics(config, delay_level_count=delay_level_count)}


def warn_if_other(present: TopicConfig, wanted: TopicConfig) -> None:
    """Log a system topic that was made by other settings, which RocketMQ keeps too."""
    if (present.write_queue_nums, present.perm) != (wanted.write_queue_nums, wanted.perm):
        logger.warning(
            "system topic stays as it was made, not as the settings say topic=%s queues=%d settings_queues=%d"
            " perm=%d settings_perm=%d",
            wanted.topic_name,
            present.write_queue_nums,
            wanted.write_queue_nums,
            present.perm,
            wanted.perm,
        )


def _topic(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
