"""The type of a message that a remoting client sends, by its properties; gRPC clients name it.

A retry or dead-letter topic takes any message, and so does a message that another cluster passes on.
Source: TopicMessageType.java (parseFromMessageProperty), SendMessageActivity.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.proxy.flow import Production, TypeConflictError
from thermocline.proxy.messaging import TopicType
from thermocline.proxy.remoting.cluster_names import broker_field
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import MessageIllegalError, PermissionDeniedError, TopicNotFoundError
from thermocline.remoting.headers import decode_send_header
from thermocline.remoting.records.properties import PropertyName, decode_properties
from thermocline.remoting.topic_validation import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX

__all__ = ["check_message_type", "message_type"]

_DELAYS = (
    PropertyName.DELAY_LEVEL,
    PropertyName.TIMER_DELIVER_MS,
    PropertyName.TIMER_DELAY_S,
    PropertyName.TIMER_DELAY_MS,
)
_DECISIVE = (PropertyName.TRANSACTION_PREPARED, *_DELAYS, PropertyName.SHARDING_KEY)


def message_type(properties_text: str) -> TopicType:
    """Return the type of a message with these properties."""
    if not any(name in properties_text for name in _DECISIVE):
        return TopicType.NORMAL
    properties = decode_properties(properties_text)
    if properties.get(PropertyName.TRANSACTION_PREPARED) == "true":
        return TopicType.TRANSACTION
    if any(name in properties for name in _DELAYS):
        return TopicType.DELAY
    return TopicType.FIFO if PropertyName.SHARDING_KEY in properties else TopicType.NORMAL


async def check_message_type(production: Production, command: RemotingCommand) -> None:
    """Pass a send whose message fits its topic; also where the topic is not there, or this proxy may not read it: then
    the broker alone decides.

    Raises:
        MessageIllegalError: It does not fit.
    """
    header = decode_send_header(command.code, command.ext_fields)
    text = header.properties or ""
    if header.topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX)) or PropertyName.TRANSFER_FLAG in text:
        return
    try:
        broker_name = (command.ext_fields or {}).get(broker_field(command.code), "")
        await production.check_type(header.topic, message_type(text), broker_name=broker_name)
    except (TopicNotFoundError, PermissionDeniedError):
        return
    except TypeConflictError as error:
        raise MessageIllegalError(error.message) from error
