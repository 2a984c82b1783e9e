"""Recall: the handle of a timed message that was stored, and the marker that takes it back.

The marker is a timed message in the same tick that names the other one in TIMER_DEL_UNIQKEY. That it is stored does not
mean that there was such a message, or that it has not gone out yet.
Source: RecallMessageProcessor.java, SendMessageProcessor.java (attachRecallHandle), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import re

from thermocline.remoting.errors import IllegalOperationError
from thermocline.remoting.handles import RecallHandle
from thermocline.remoting.records.properties import PropertyName, decode_properties, encode_properties
from thermocline.remoting.socket_address import Host
from thermocline.remoting.topic_validation import TIMER_TOPIC, is_retry_topic
from thermocline.store.log import MessageDraft
from thermocline.timers.timer_config import TimerConfig
from thermocline.timers.timer_request import timed_draft

RECALL_TAG = "_RECALL_TAG_"
MARKER_BODY = b"0"
_DIGITS = re.compile(r"[0-9]{1,19}")


def recall_handle_of(stored: MessageDraft, *, broker_name: str) -> str | None:
    """The handle for the answer to a send; None when what was stored is no timed message of a producer's topic."""
    if stored.topic != TIMER_TOPIC:
        return None
    properties = decode_properties(stored.properties_text)
    topic = properties[PropertyName.REAL_TOPIC]
    if is_retry_topic(topic):
        return None
    return RecallHandle(
        topic=topic,
        broker_name=broker_name,
        timestamp_text=str(int(properties[PropertyName.TIMER_OUT_MS]) + 1),
        unique_key=properties.get(PropertyName.UNIQUE_KEY, ""),
    ).encode()


def recall_marker(
    handle: RecallHandle,
    config: TimerConfig,
    *,
    topic: str,
    broker_name: str,
    producer_group: str | None,
    born_host: Host,
    now_ms: int,
) -> MessageDraft:
    """The marker to store for a recall; `topic` is the one that the request names.

    Raises:
        IllegalOperationError: The handle is for another topic or broker, or its time has come or is too far away.
    """
    if topic != handle.topic:
        raise IllegalOperationError("recall failed, topic not match")
    if broker_name != handle.broker_name:
        raise IllegalOperationError("recall failed, broker service not available")
    timestamp_ms = int(handle.timestamp_text) if _DIGITS.fullmatch(handle.timestamp_text) else -1
    if not 0 < timestamp_ms - now_ms < config.delay_ms_max:
        raise IllegalOperationError("recall failed, timestamp invalid")
    key = f"{handle.topic}+{handle.unique_key}" if config.topic_in_delete_key else handle.unique_key
    properties = {
        PropertyName.TAGS: RECALL_TAG,
        PropertyName.TIMER_DELETE_UNIQUE_KEY: key,
        PropertyName.UNIQUE_KEY: handle.unique_key,
        PropertyName.TIMER_DELIVER_MS: handle.timestamp_text,
        PropertyName.BORN_TIMESTAMP: str(now_ms),
    }
    if producer_group:
        properties[PropertyName.PRODUCER_GROUP] = producer_group
    draft = MessageDraft(
        topic=handle.topic,
        queue_id=0,
        body=MARKER_BODY,
        properties_text=encode_properties(properties),
        born_timestamp_ms=now_ms,
        born_host=born_host,
    )
    marker = timed_draft(draft, properties, config, now_ms=now_ms)
    assert marker is not None
    return marker
