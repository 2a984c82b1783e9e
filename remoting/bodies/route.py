"""Bodies between brokers, NameServers and those who ask for routes.

A broker registers with its topics as JSON, or with a zlib stream, which our brokers never send, of
    int32 size, DataVersion as JSON
    int32 count of topics, for each: int32 size, its line (`TopicConfig.decode_line`)
    int32 size, the list of filter servers as JSON
    int32 count of static topics, for each: int32 size, TopicQueueMappingInfo as JSON   (brokers since 5.0)

Clients from 4.9.4 on, and those that ask for it, get routes in standard JSON with quoted numbers as keys, sorted, other
scripts escaped; older ones get Java's dialect with unquoted numbers, which some parse by hand.
Source: ClientRequestProcessor.java, TopicRouteData.java, ClusterInfo.java, RegisterBrokerBody.java,
Apache RocketMQ 5.3.
"""

from __future__ import annotations

import struct

from msgspec import field

from thermocline.remoting.bodies.body import Body, DialectBody
from thermocline.remoting.bodies.topic import DataVersion, TopicConfig, TopicQueueMappingDetail, TopicQueueMappingInfo
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError
from thermocline.remoting.header_codec import Int, Long
from thermocline.remoting.json_dialect import dumps, dumps_dialect, loads_as
from thermocline.remoting.records.compression import decompress
from thermocline.remoting.records.sys_flag import CompressionType

STANDARD_JSON_VERSION = 401
"""Release 4.9.4."""


class QueueData(Body, kw_only=True):
    """How many queues of a topic one broker has, and what may be done with them."""

    broker_name: str = ""
    perm: Int = 0
    read_queue_nums: Int = 0
    topic_sys_flag: Int = 0
    write_queue_nums: Int = 0


class BrokerData(DialectBody, kw_only=True):
    """The addresses of one broker name: id 0 is the master."""

    broker_addrs: dict[Long, str] = field(default_factory=dict)
    broker_name: str = ""
    cluster: str = ""
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRouteData(DialectBody, kw_only=True):
    """The answer to GET_ROUTEINFO_BY_TOPIC; `encode` gives the form for clients before 4.9.4."""

    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None

    def encode_standard(self) -> bytes:
        """Standard JSON with only ASCII in it, for clients since 4.9.4."""
        return dumps(self, ascii_only=True)

    def encode_for(self, client_version: int, *, accepts_standard_json: bool) -> bytes:
        """The form for a client of this release ordinal; `accepts_standard_json`: it asks for standard JSON."""
        if client_version >= STANDARD_JSON_VERSION or accepts_standard_json:
            return self.encode_standard()
        return self.encode()


class ClusterInfo(DialectBody, kw_only=True):
    """The answer to GET_BROKER_CLUSTER_INFO."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


class BrokerMemberGroup(DialectBody, kw_only=True):
    """The brokers under one broker name."""

    broker_addrs: dict[Long, str] = field(default_factory=dict)
    broker_name: str = ""
    cluster: str = ""


class GetBrokerMemberGroupResponseBody(DialectBody, kw_only=True):
    """The answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup = field(default_factory=BrokerMemberGroup)


class TopicConfigSerializeWrapper(Body, kw_only=True):
    """A broker's topics as it registers them."""

    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)


_SIZE = struct.Struct(">i")
_REGISTRATION_BYTES_MAX = 256 * 1024 * 1024
_SMALL_BYTES_MAX = 64 * 1024
"""Of its data version, and of its filter servers: a NameServer takes 100 of them, of 255 characters."""


class RegisterBrokerBody(Body, kw_only=True):
    """The request body of REGISTER_BROKER."""

    filter_server_list: list[str] = field(default_factory=list)
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(default_factory=TopicConfigSerializeWrapper)

    def encode(self) -> bytes:
        """The JSON text; with static topics in the Java form."""
        if self.topic_config_serialize_wrapper.topic_queue_mapping_info_map:
            return dumps_dialect(self)
        return dumps(self)

    @classmethod
    def decode_compressed(cls, data: bytes, *, topics_max: int | None = None) -> RegisterBrokerBody:
        """The body in a zlib stream, with or without the part about static topics. `topics_max`: None for any number.

        A few hundred kilobytes may hold the lines of millions of topics, so these are counted before they are read.

        Raises:
            InvalidRequestError: It is no such stream, or has more topics.
        """
        try:
            parts = _Parts(decompress(data, CompressionType.ZLIB, size_bytes_max=_REGISTRATION_BYTES_MAX))
        except CorruptDataError as error:
            raise InvalidRequestError("the registration cannot be decompressed") from error
        wrapper = TopicConfigSerializeWrapper(data_version=DataVersion.decode(parts.next_part(_SMALL_BYTES_MAX)))
        for _ in range(parts.take_count(topics_max)):
            config = TopicConfig.decode_line(parts.next_part().decode("utf-8", "replace"))
            wrapper.topic_config_table[config.topic_name] = config
        filter_server_list = loads_as(parts.next_part(_SMALL_BYTES_MAX), list[str])
        if not parts.is_empty:
            for _ in range(parts.take_count(topics_max)):
                info = TopicQueueMappingInfo.decode(parts.next_part())
                wrapper.topic_queue_mapping_info_map[info.topic or ""] = info
        return cls(filter_server_list=filter_server_list, topic_config_serialize_wrapper=wrapper)


class _Parts:
    """The parts of a decompressed registration, taken off the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_empty(self) -> bool:
        return self._position == len(self._data)

    def take_count(self, most: int | None = None) -> int:
        if len(self._data) - self._position < _SIZE.size:
            raise InvalidRequestError("the registration is cut short", position=self._position)
        (count,) = _SIZE.unpack_from(self._data, self._position)
        self._position += _SIZE.size
        if not 0 <= count <= len(self._data) - self._position:
            raise InvalidRequestError("impossible size in a registration", size=count)
        if most is not None and count > most:
            raise InvalidRequestError("too much in a registration", size=count, size_max=most)
        return int(count)

    def next_part(self, bytes_max: int | None = None) -> bytes:
        size_bytes = self.take_count(bytes_max)
        start = self._position
        self._position += size_bytes
        return self._data[start : self._position]
