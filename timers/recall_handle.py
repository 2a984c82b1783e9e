"""Recall handle: what the answer to a timed send carries, and RECALL_MESSAGE brings back.

    URL-safe base64 of "v1 <topic> <broker name> <TIMER_OUT_MS + 1> <unique id>"

Recalling appends a marker: a timed message in the same tick that names the other one in TIMER_DEL_UNIQKEY. The answer
means that the marker is stored, not that there was such a message, or that it has not gone out yet.
Source: RecallMessageHandle.java, RecallMessageProcessor.java, SendMessageProcessor.java (attachRecallHandle), Apache
RocketMQ 5.3.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from thermocline.remoting.errors import IllegalOperationError
from thermocline.remoting.message_record import Host
from thermocline.remoting.properties import PropertyName, decode_properties, encode_properties
from thermocline.remoting.topic_validation import TIMER_TOPIC, is_retry_topic
from thermocline.store.message_draft import MessageDraft
from thermocline.timers.timer_config import TimerConfig
from thermocline.timers.timer_request import timed_draft

VERSION = "v1"
SEPARATOR = " "
RECALL_TAG = "_RECALL_TAG_"
MARKER_BODY = b"0"
_DIGITS = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHandle:
    """Names one timed message."""

    topic: str
    broker_name: str
    timestamp_text: str
    """A time in ms within the tick; as text, as anything may stand here."""
    unique_key: str

    def encode(self) -> str:
        """The handle as clients see it."""
        text = SEPARATOR.join((VERSION, self.topic, self.broker_name, self.timestamp_text, self.unique_key))
        return base64.urlsafe_b64encode(text.encode()).decode()


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


def decode_recall_handle(handle: str) -> RecallHandle:
    """The handle that a client sent.

    Raises:
        IllegalOperationError: It is none.
    """
    try:
        data = handle.encode("ascii")
        text = base64.b64decode(data + b"=" * (-len(data) % 4), altchars=b"-_", validate=True).decode()
    except (UnicodeError, binascii.Error) as error:
        raise IllegalOperationError("recall handle is invalid") from error
    words = text.rstrip(SEPARATOR).split(SEPARATOR)
    if words[0] != VERSION or len(words) < 5:
        raise IllegalOperationError("recall handle is invalid")
    return RecallHandle(topic=words[1], broker_name=words[2], timestamp_text=words[3], unique_key=words[4])


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
