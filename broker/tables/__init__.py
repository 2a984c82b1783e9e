"""Tables: topics, groups, consumer offsets, clients, filters and locks."""

from thermocline.broker.tables import (
    consumer_filter_table,
    consumer_offsets,
    group_table,
    kept_clock,
    message_request_modes,
    static_topic_table,
    topic_journal,
    topic_table,
)
from thermocline.broker.tables.client_registry import Client, ClientRegistry, ConsumerGroup
from thermocline.broker.tables.client_usage import check_names
from thermocline.broker.tables.consumer_filter_table import ConsumerFilterData, ConsumerFilterTable
from thermocline.broker.tables.consumer_offsets import PROGRESS_GROUPS, ConsumerOffsets, OffsetReplacement
from thermocline.broker.tables.copied_topics import make_copied_topics
from thermocline.broker.tables.group_holds import GroupHolds
from thermocline.broker.tables.group_table import GroupReplacement, GroupTable
from thermocline.broker.tables.kept_clock import KeptClock
from thermocline.broker.tables.message_filters import CompileNeeded, MessageFilters, is_tag_type
from thermocline.broker.tables.message_request_modes import RequestModeTable
from thermocline.broker.tables.proxied_clients import ProxiedClients
from thermocline.broker.tables.queue_assignment import STRATEGIES, assign_for_pop, assign_for_pull
from thermocline.broker.tables.queue_locks import QueueLocks
from thermocline.broker.tables.static_topic_table import LedQueue, StaticTopicTable
from thermocline.broker.tables.system_topics import boot_topics, system_topic_names
from thermocline.broker.tables.topic_attributes import (
    MESSAGE_TYPE,
    MESSAGE_TYPE_MIXED,
    TTL_DEFAULT_FILE_NAME,
    decode_ttl_default,
    full_policy,
    parse_change,
    ttl_attributes,
    ttl_change,
    ttl_ms,
)
from thermocline.broker.tables.topic_journal import TopicJournal
from thermocline.broker.tables.topic_table import TopicTable

__all__ = [
    "MESSAGE_TYPE",
    "MESSAGE_TYPE_MIXED",
    "PROGRESS_GROUPS",
    "STRATEGIES",
    "TTL_DEFAULT_FILE_NAME",
    "Client",
    "ClientRegistry",
    "CompileNeeded",
    "ConsumerFilterData",
    "ConsumerFilterTable",
    "ConsumerGroup",
    "ConsumerOffsets",
    "GroupHolds",
    "GroupReplacement",
    "GroupTable",
    "KeptClock",
    "LedQueue",
    "MessageFilters",
    "OffsetReplacement",
    "ProxiedClients",
    "QueueLocks",
    "RequestModeTable",
    "StaticTopicTable",
    "TopicJournal",
    "TopicTable",
    "assign_for_pop",
    "assign_for_pull",
    "boot_topics",
    "check_names",
    "consumer_filter_table",
    "consumer_offsets",
    "decode_ttl_default",
    "full_policy",
    "group_table",
    "is_tag_type",
    "kept_clock",
    "make_copied_topics",
    "message_request_modes",
    "parse_change",
    "static_topic_table",
    "system_topic_names",
    "topic_journal",
    "topic_table",
    "ttl_attributes",
    "ttl_change",
    "ttl_ms",
]
