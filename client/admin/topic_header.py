"""The request header in which a topic's configuration goes to a broker."""

from __future__ import annotations

from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.headers import CreateTopicRequestHeader
from thermocline.remoting.topic_validation import AUTO_CREATE_TOPIC


def topic_header(
    topic: str, config: TopicConfig, *, force: bool, attributes: str | None = None
) -> CreateTopicRequestHeader:
    """The header for `topic` as `config` says; `attributes` as changes (`+name=value,-name`)."""
    return CreateTopicRequestHeader(
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=attributes,
        force=force,
    )
