"""Revival: a message that no consumer acknowledged in time, as it is put once more.

    tried less often than the group allows    %RETRY%group_topic (or +topic), queue 0: it is popped from there like any
                                              other, one try more; from a retry topic it comes back to the same one
    else                                      %DLQ%group, queue 0: the dead letters, for operators

Body, tag, keys, properties and birth stay. 1ST_POP_TIME is when it was popped first, ORIGIN_GROUP whose it is. Coming
back after a suspension counts as no try.

Dead letters are this broker's own: RocketMQ puts an unacknowledged message into the retry topic for ever, and official
clients acknowledge a message that was tried too often without delivering it to their listener.
Source: PopReviveService.java (reviveRetry), AbstractSendMessageProcessor.java, Apache RocketMQ 5.3 and 5.5.
"""

from __future__ import annotations

from thermocline.pop.check_point import CheckPoint
from thermocline.remoting.errors import PropertiesTooLargeError
from thermocline.remoting.handles import normal_topic, pop_retry_topic_v1, pop_retry_topic_v2
from thermocline.remoting.records.message_id import encode_message_id
from thermocline.remoting.records.message_record import MessageRecord
from thermocline.remoting.records.properties import PropertyName, encode_properties
from thermocline.remoting.socket_address import Host
from thermocline.remoting.topic_validation import dlq_topic, is_retry_topic
from thermocline.store.log import MessageDraft


def retry_topic_of(check_point: CheckPoint, *, is_v2: bool) -> str:
    """The topic that messages of a check point come back to; `is_v2`: how new retry topics are named."""
    if is_retry_topic(check_point.topic):
        return check_point.topic
    name = pop_retry_topic_v2 if is_v2 else pop_retry_topic_v1
    return name(check_point.topic, check_point.group)


def is_dead(record: MessageRecord, check_point: CheckPoint, *, tries_max: int) -> bool:
    """Whether the message was tried often enough."""
    return not check_point.is_suspended and record.reconsume_times >= tries_max


def retry_draft(record: MessageRecord, check_point: CheckPoint, *, topic: str, store_host: Host) -> MessageDraft:
    """The message for its retry topic."""
    return MessageDraft(
        topic=topic,
        queue_id=0,
        body=record.body,
        properties_text=_text(_properties(record, check_point), record),
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=store_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times if check_point.is_suspended else record.next_reconsume_times,
    )


def dead_letter_draft(record: MessageRecord, check_point: CheckPoint) -> MessageDraft:
    """The message for the dead letters of its group."""
    topic = normal_topic(check_point.topic, check_point.group)
    message_id = encode_message_id(record.store_host, record.physical_offset)
    properties = _properties(record, check_point)
    properties[PropertyName.RETRY_TOPIC] = topic
    properties[PropertyName.DELAY_LEVEL] = "0"
    properties[PropertyName.DLQ_ORIGIN_TOPIC] = topic
    properties[PropertyName.DLQ_ORIGIN_MESSAGE_ID] = record.unique_key or message_id
    properties.setdefault(PropertyName.ORIGIN_MESSAGE_ID, message_id)
    return MessageDraft(
        topic=dlq_topic(check_point.group),
        queue_id=0,
        body=record.body,
        properties_text=_text(properties, record),
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.next_reconsume_times,
    )


def _properties(record: MessageRecord, check_point: CheckPoint) -> dict[str, str]:
    properties = record.properties
    if not record.reconsume_times or PropertyName.FIRST_POP_TIME not in properties:
        properties[PropertyName.FIRST_POP_TIME] = str(check_point.pop_time_ms)
    properties[PropertyName.ORIGIN_GROUP] = check_point.group
    return properties


def _text(properties: dict[str, str], record: MessageRecord) -> bytes:
    """The property text; the message's own when there is no room for more."""
    try:
        return encode_properties(properties)
    except PropertiesTooLargeError:
        return record.properties_text
