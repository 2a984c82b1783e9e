"""Static topics: logic queues over the physical queues of several brokers."""

from thermocline.broker.static_topics.mapping_cleaner import MappingCleaner, local_hour
from thermocline.broker.static_topics.physical_queues import MappedQueues
from thermocline.broker.static_topics.static_offsets import StaticOffsets

__all__ = ["MappedQueues", "MappingCleaner", "StaticOffsets", "local_hour"]
