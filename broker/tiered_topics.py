"""Which topics the cold tier holds: all but those in which the broker keeps its own unfinished work.

Retry and dead-letter topics are tiered like any topic. What waits in an internal topic for its time (delayed messages)
holds back local deletion by itself, see docs/adr/0002.
"""

from thermocline.remoting.topic_validation import SYSTEM_TOPIC_PREFIX

INTERNAL_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "OFFSET_MOVED_EVENT",
        "SELF_TEST_TOPIC",
    }
)


def is_tiered_topic(topic: str) -> bool:
    """True when messages of the topic are to be committed to the cold tier before their local file goes."""
    return topic not in INTERNAL_TOPICS and not topic.startswith(SYSTEM_TOPIC_PREFIX)
