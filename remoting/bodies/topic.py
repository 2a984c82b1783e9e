"""Bodies about topics: their configuration, their lists, what their queues hold.

Source: TopicConfig.java, DataVersion.java and the body classes of the same names, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import field

from thermocline.remoting.bodies.body import Body, DialectBody, FrozenBody
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.header_codec import Int, Long, QueueOffsetLong
from thermocline.remoting.json_conversion import EXTENSION, enum_names
from thermocline.remoting.json_dialect import dumps, loads_as
from thermocline.remoting.offsets import NO_QUEUE_OFFSET, QUEUE_START

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_PRIORITY = 8

TOPIC_SYS_FLAG_UNIT = 1
TOPIC_SYS_FLAG_UNIT_SUB = 2

_INT = re.compile(r"[+-]?[0-9]{1,10}")


class DataVersion(FrozenBody, frozen=True, kw_only=True):
    """Version of a table; two are equal when all three members are."""

    counter: Long = 0
    state_version: Long = 0
    timestamp: Long = 0


class TopicConfig(Body, kw_only=True):
    """How a topic is set up on one broker."""

    attributes: dict[str, str] = field(default_factory=dict)
    order: bool = False
    perm: Int = PERM_READ | PERM_WRITE
    read_queue_nums: Int = 16
    topic_filter_type: Annotated[str, enum_names("SINGLE_TAG", "MULTI_TAG")] = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: Int = 0
    write_queue_nums: Int = 16

    @classmethod
    def decode_line(cls, line: str) -> TopicConfig:
        """The topic in a line of a compressed registration; InvalidRequestError when there is none.

        A line is name, read queues, write queues, permissions, filter type and the attributes as JSON, joined by
        spaces. Order and system flag are not in it.
        """
        words = line.split(" ", 5)
        try:
            name, read_queue_nums, write_queue_nums, perm, filter_type = words[:5]
            config = cls(
                topic_name=name,
                read_queue_nums=_int(read_queue_nums),
                write_queue_nums=_int(write_queue_nums),
                perm=_int(perm),
                topic_filter_type=filter_type,
            )
        except ValueError as error:
            raise InvalidRequestError("not a topic's line", line=line[:200]) from error
        if len(words) > 5 and words[5]:
            config.attributes = loads_as(words[5].encode(), dict[str, str])
        return config


def _int(text: str) -> int:
    """Java's int; ValueError: it is none."""
    number = int(text) if _INT.fullmatch(text) else 1 << 31
    if not -(1 << 31) <= number < 1 << 31:
        raise ValueError(text)
    return number


class TopicConfigAndMapping(TopicConfig, kw_only=True):
    """The answer to GET_TOPIC_CONFIG; the mapping only for static topics."""

    mapping_detail: TopicQueueMappingDetail | None = None


class TopicConfigListBody(Body, kw_only=True):
    """The request body of UPDATE_AND_CREATE_TOPIC_LIST."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


class TopicList(Body, kw_only=True):
    """A list of topics, or of names that stand for topics."""

    broker_addr: str | None = None
    topic_list: list[str] = field(default_factory=list)


class KVTable(Body, kw_only=True):
    """Names and texts: runtime information, order configuration."""

    table: dict[str, str] = field(default_factory=dict)


class LogicQueueMappingItem(Body, kw_only=True):
    """One stretch of a static topic's logical queue."""

    broker_name: str | None = field(default=None, name="bname")
    end_offset: QueueOffsetLong = NO_QUEUE_OFFSET
    gen: Int = 0
    logic_offset: QueueOffsetLong = QUEUE_START
    queue_id: Int = 0
    start_offset: QueueOffsetLong = QUEUE_START
    time_of_end: Long = -1
    time_of_start: Long = -1


class TopicQueueMappingInfo(DialectBody, kw_only=True):
    """Which logical queues of a static topic a broker has."""

    broker_name: str | None = field(default=None, name="bname")
    curr_id_map: dict[Int, Int] = field(default_factory=dict)
    dirty: bool = False
    epoch: Long = 0
    scope: str | None = "__global__"
    topic: str | None = None
    total_queues: Int = 0


class TopicQueueMappingDetail(TopicQueueMappingInfo, kw_only=True):
    """The same with the stretches; its integer keys are to be quoted, or new tools refuse it."""

    hosted_queues: dict[Int, list[LogicQueueMappingItem]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Standard JSON."""
        return dumps(self)


class TopicQueueMappingTableBody(Body, kw_only=True):
    """`config/topicQueueMapping.json`."""

    data_version: DataVersion = DataVersion()
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = field(default_factory=dict)


class TopicConfigTableBody(Body, kw_only=True):
    """The answer to GET_ALL_TOPIC_CONFIG, and `config/topics.json` with what that has of it."""

    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion | None = None
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] | None = None


class MessageQueue(FrozenBody, frozen=True, kw_only=True):
    """One queue of a topic on one broker."""

    broker_name: str = ""
    queue_id: Int = 0
    topic: str = ""


class TopicOffset(Body, kw_only=True):
    """What one queue holds. `message_count`, a member of ours: how many messages these are, where some of the offsets
    between the two have none."""

    last_update_timestamp: Long = 0
    max_offset: QueueOffsetLong = QUEUE_START
    min_offset: QueueOffsetLong = QUEUE_START
    message_count: Annotated[Long | None, EXTENSION] = None


class TopicStatsTable(DialectBody, kw_only=True):
    """The answer to GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


class BrokerStatsItem(Body, kw_only=True):
    """One statistic over one span."""

    avgpt: float = 0.0
    sum: Long = 0
    tps: float = 0.0


class BrokerStatsData(Body, kw_only=True):
    """The answer to VIEW_BROKER_STATS_DATA."""

    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
