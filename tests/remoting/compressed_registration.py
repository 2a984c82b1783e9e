"""A registration as brokers with `compressedRegister=true` write it. Ours never do; our NameServer reads it.

Written from RegisterBrokerBody.java and TopicConfig.java, Apache RocketMQ 5.3, beside `decode_compressed`, not from it.
"""

import json
import struct
import zlib

from thermocline.remoting.bodies import RegisterBrokerBody, TopicConfig


def encode_compressed(body: RegisterBrokerBody) -> bytes:
    """The zlib stream. A topic's order and system flag are not in it."""
    return zlib.compress(encode_inflated(body), 9)


def encode_inflated(body: RegisterBrokerBody) -> bytes:
    """What `encode_compressed` compresses."""
    wrapper = body.topic_config_serialize_wrapper
    topics = [_sized(_topic_line(config).encode()) for config in wrapper.topic_config_table.values()]
    static = [_sized(info.encode()) for info in wrapper.topic_queue_mapping_info_map.values()]
    return b"".join(
        [
            _sized(wrapper.data_version.encode()),
            struct.pack(">i", len(topics)),
            *topics,
            _sized(json.dumps(body.filter_server_list).encode()),
            struct.pack(">i", len(static)),
            *static,
        ]
    )


def _sized(text: bytes) -> bytes:
    return struct.pack(">i", len(text)) + text


def _topic_line(config: TopicConfig) -> str:
    words = (config.topic_name, config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_filter_type)
    return " ".join(map(str, words)) + " " + json.dumps(config.attributes)
