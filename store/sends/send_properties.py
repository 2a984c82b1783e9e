"""Send properties: reads, and extends, the property text of a message that is sent to the broker.

Stored text = the text as sent (its last \\x02 added when missing), UNIQ_KEY when the sender gave none, then

    MSG_REGION \\x01 region \\x02 TRACE_ON \\x01 true \\x02 CLUSTER \\x01 cluster \\x02

Messages inside a batch keep their own text untouched: a broker adds nothing to them.

Rules
  - A sender's own MSG_REGION, TRACE_ON and CLUSTER are replaced (a message that is sent on carries those of its first
    broker), POP_CK is removed.
  - Properties that change where a message is stored (`ROUTING_PROPERTIES`) are for ordinary code: the fast path stops
    at any text that names one of them.
  - Order carries no meaning. RocketMQ writes the properties in the order of a Java hash map.
Source: SendMessageProcessor.java, AbstractSendMessageProcessor.java (buildMsgContext), Apache RocketMQ 5.3.
"""

from __future__ import annotations

from thermocline.remoting.records.properties import VALUE_END, PropertyName, decode_properties, encode_properties
from thermocline.remoting.string_hash import tags_code

BROKER_PROPERTIES = frozenset({PropertyName.MESSAGE_REGION, PropertyName.TRACE_SWITCH, PropertyName.CLUSTER})
"""Set by the broker on every message that is not part of a batch."""

REMOVED_PROPERTIES = BROKER_PROPERTIES | {PropertyName.POP_CHECKPOINT}

PRIORITY = "_SYS_MSG_PRIORITY_"
"""Which queue of its topic a message goes to. No name of `PropertyName`: the SDK's users set it themselves."""

ROUTING_PREFIXES = ("TIMER_", "INNER_")
ROUTING_PROPERTIES = frozenset({PropertyName.DELAY_LEVEL, PropertyName.TRANSACTION_PREPARED, PRIORITY})
"""Properties (beside those that start with a routing prefix) that may send a message to another topic or queue."""

TAGS_MARK = f"{PropertyName.TAGS}\x01"
UNIQUE_KEY_MARK = f"{PropertyName.UNIQUE_KEY}\x01"
_UNIQUE_KEY_MARK_LENGTH = len(UNIQUE_KEY_MARK)
_WAIT_MARK = f"{PropertyName.WAIT_STORE}\x01"
_WAIT_TRUE_MARK = f"{_WAIT_MARK}true\x02"


def is_plain(text: str, wait_matters: bool) -> bool:
    """Whether the text names none of the properties that ordinary code must look at, and has no zero byte.

    A handful of substring searches; only when one of them hits is the text taken apart. `wait_matters`: WAIT other than
    true is for ordinary code too, as its sender does not wait for the flush.
    """
    if "\0" in text:
        return False
    if (
        "DELAY" not in text
        and "POP_CK" not in text
        and (
            "R" not in text  # all the others have one, and this is the cheapest search
            or (
                "TRAN_MSG" not in text
                and "TIMER_" not in text
                and "INNER_" not in text
                and PRIORITY not in text
                and "MSG_REGION" not in text
                and "TRACE_ON" not in text
                and "CLUSTER" not in text
            )
        )
        and not (wait_matters and _WAIT_MARK in text and _WAIT_TRUE_MARK not in text)
    ):
        return True
    properties = decode_properties(text)
    return not (
        needs_routing(properties)
        or not REMOVED_PROPERTIES.isdisjoint(properties)
        or (wait_matters and not waits_for_store(properties))
    )


def needs_routing(properties: dict[str, str]) -> bool:
    """Whether one of the properties may send the message to another topic or queue, or asks for a special record."""
    return any(name in ROUTING_PROPERTIES or name.startswith(ROUTING_PREFIXES) for name in properties)


def waits_for_store(properties: dict[str, str]) -> bool:
    """Whether the sender wants its answer only when the message is as safe as the broker makes it (WAIT)."""
    value = properties.get(PropertyName.WAIT_STORE)
    return value is None or value.lower() == "true"


def property_of(text: str, mark: str) -> str:
    """The value of the property whose name and \\x01 are `mark`, empty when absent; the last of several counts."""
    start = text.rfind(mark)
    if start < 0:
        return ""
    if not start or text[start - 1] == VALUE_END:
        value_start = start + len(mark)
        end = text.find(VALUE_END, value_start)
        value = text[value_start:end] if end > 0 else text[value_start:]
        if value:
            return value
    return decode_properties(text).get(mark[:-1], "")


def split_unique_key(text: str) -> tuple[str, str]:
    """The value of UNIQ_KEY as `property_of` finds it, and the text from the \\x02 behind it on; both may be empty."""
    start = text.rfind(UNIQUE_KEY_MARK)
    if start < 0:
        return "", ""
    if not start or text[start - 1] == VALUE_END:
        value_start = start + _UNIQUE_KEY_MARK_LENGTH
        end = text.find(VALUE_END, value_start)
        if end > value_start:
            return text[value_start:end], text[end:]
    return property_of(text, UNIQUE_KEY_MARK), ""


class TagsCodes:
    """Tags codes of property texts. Most senders repeat what follows the unique key, so codes are remembered by it.

    `remembered(end)`: the code of texts that end so behind their unique key, or None. At most ENDS_MAX ends of at most
    END_LENGTH_MAX characters are remembered.
    """

    ENDS_MAX = 4_096
    END_LENGTH_MAX = 256

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self.remembered = self._codes.get

    def find(self, text: str, end: str) -> int:
        """The tags code of a text with this end, which `remembered` does not have."""
        code = tags_code(property_of(text, TAGS_MARK))
        start = end.rfind(TAGS_MARK)
        value_start = start + len(TAGS_MARK)
        # Behind \\x02 and with a value it is the property, whatever the rest of the text says.
        is_property = (
            start > 0 and end[start - 1] == VALUE_END and end[value_start : value_start + 1] not in ("", VALUE_END)
        )
        if is_property and len(end) <= self.END_LENGTH_MAX:
            if len(self._codes) >= self.ENDS_MAX:
                self._codes.clear()
            self._codes[end] = code
        return code


def broker_suffix(*, region_id: str, trace_on: bool, cluster_name: str) -> bytes:
    """The text that the broker adds to every message."""
    return encode_properties(
        reply_properties(region_id=region_id, trace_on=trace_on) | {PropertyName.CLUSTER: cluster_name}
    )


def reply_properties(*, region_id: str, trace_on: bool) -> dict[str, str]:
    """The ext fields that every answer to a send carries beside its header."""
    return {
        PropertyName.MESSAGE_REGION: region_id,
        PropertyName.TRACE_SWITCH: "true" if trace_on else "false",
    }


def stored_text(text: str, properties: dict[str, str], *, suffix: bytes) -> bytes:
    """The text to store for a message sent with `text`; `properties` are its decoded pieces, perhaps changed since.

    As long as ordinary code changed nothing in it, the text stays as it was sent.
    """
    if decode_properties(text) != properties or not REMOVED_PROPERTIES.isdisjoint(properties):
        kept = {name: value for name, value in properties.items() if name not in REMOVED_PROPERTIES}
        text = encode_text(kept)
    elif text and not text.endswith(VALUE_END):
        text += VALUE_END
    return text.encode("utf-8", "replace") + suffix


def encode_text(properties: dict[str, str]) -> str:
    """`encode_properties`, before its bytes; the limit is checked where the text is stored."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
