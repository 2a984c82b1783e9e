"""Message: what a producer sends.

The broker keeps three things of a message: the body, a flag for the application, and the properties, one
string of `name \\x01 value \\x02` pairs. Tags, keys, delay and the rest are properties with reserved names; so users
set neither those names nor the two separators, for no reader could tell them from the format.
Source: common/message/Message.java, client/Validators.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

import msgspec

from thermocline.remoting.errors import InvalidRequestError, MessageTooLargeError
from thermocline.remoting.records.properties import PropertyName
from thermocline.remoting.topic_validation import SEND_FORBIDDEN_TOPICS, check_topic

__all__ = ["RESERVED_NAMES", "Message"]

_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
_SEPARATORS = frozenset("\x01\x02")
_CHECKED_TOPICS_MAX = 4096
_FLAG_END = 1 << 31
RESERVED_NAMES = frozenset(value for name, value in vars(PropertyName).items() if name.isupper())
"""Names of properties that mean something to brokers or clients."""


class _MessageOptions(msgspec.Struct, frozen=True, kw_only=True):
    tags: str = ""
    """One tag, by which consumers may choose; the broker compares its hash, the consumer the text."""
    keys: str | Iterable[str] = ""
    """Business keys to find the message by: one, several in one string with spaces between, or an iterable."""
    properties: Mapping[str, str] = _NO_PROPERTIES
    """The application's own name-value pairs."""
    flag: int = 0
    """32 bits for the application; the broker only hands them on."""
    sharding_key: str = ""
    """Messages with equal keys go to one queue, in order, unless `send` gets a queue or a selector."""
    delay_level: int = 0
    """1 to 18: deliver after 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h; 0: at once."""
    delay_ms: int = 0
    """Deliver so many milliseconds after the broker has stored it."""
    deliver_at_ms: int | None = None
    """Deliver at this time (milliseconds since 1970); at once, if it has passed."""
    wait_store_ok: bool = True
    """Whether the broker answers only after the flush and replication that it is configured for."""
    unique_key: str = ""
    """Its unique id; set it to send a message again under the same id. "": the producer makes one."""


class Message(_MessageOptions, frozen=True):
    """One message to send. Immutable, cheap to make, and checked when it is sent.

    (A msgspec struct: a frozen data class takes ten times longer to construct.)
    """

    topic: str
    body: bytes

    @property
    def is_delayed(self) -> bool:
        """Whether it is to be delivered later than at once."""
        return bool(self.delay_level or self.delay_ms or self.deliver_at_ms is not None)

    def check(self, *, message_bytes_max: int) -> None:
        """Refuse what the broker or a reader could not take.

        Raises:
            InvalidRequestError: Illegal topic, a body that is empty or no bytes, reserved property name, separator in a
                tag, key or value, two delays.
            MessageTooLargeError: The body is longer than `message_bytes_max`.
        """
        _check_sendable(self.topic)
        if not self.body:
            raise InvalidRequestError("a message needs a body", topic=self.topic)
        if not isinstance(self.body, bytes | bytearray | memoryview):
            raise InvalidRequestError("a body is bytes", topic=self.topic, type=type(self.body).__name__)
        if not isinstance(self.flag, int) or not -_FLAG_END <= self.flag < _FLAG_END:
            raise InvalidRequestError("a flag is a number of 32 bits", topic=self.topic, flag=self.flag)
        if len(self.body) > message_bytes_max:
            raise MessageTooLargeError(topic=self.topic, size_bytes=len(self.body), size_bytes_max=message_bytes_max)
        if self.unique_key and not _SEPARATORS.isdisjoint(self.unique_key):
            raise InvalidRequestError("a unique id may not hold \\x01 or \\x02", topic=self.topic)
        if self.tags:
            _check_word("tag", self.tags)
        if isinstance(self.keys, str) and self.keys:
            _check_word("key", self.keys)
        if self.sharding_key:
            _check_word("sharding key", self.sharding_key)
        if self.is_delayed and bool(self.delay_level) + bool(self.delay_ms) + (self.deliver_at_ms is not None) > 1:
            raise InvalidRequestError("choose one of delay_level, delay_ms and deliver_at_ms", topic=self.topic)
        if self.properties:
            for name, value in self.properties.items():
                if name in RESERVED_NAMES:
                    raise InvalidRequestError("this property name is reserved", name=name)
                if not name or not value:
                    raise InvalidRequestError("a property needs a name and a value", name=name)
                if not _SEPARATORS.isdisjoint(name) or not _SEPARATORS.isdisjoint(value):
                    raise InvalidRequestError("a property may not hold \\x01 or \\x02", name=name)

    def properties_text(self, unique_key: str) -> str:
        """Return the property string as it is sent; `unique_key` becomes the message id.

        Raises:
            InvalidRequestError: What `check` does not see: one of several keys is no text, or a text is no Unicode.
        """
        text = f"UNIQ_KEY\x01{unique_key}\x02WAIT\x01{'true' if self.wait_store_ok else 'false'}\x02"
        if self.tags:
            text += f"TAGS\x01{self.tags}\x02"
        if self.keys:
            text += f"KEYS\x01{self.keys if isinstance(self.keys, str) else _joined(self.keys)}\x02"
        if self.properties:
            text += "".join([f"{name}\x01{value}\x02" for name, value in self.properties.items()])
        if self.sharding_key:
            text += f"{PropertyName.SHARDING_KEY}\x01{self.sharding_key}\x02"
        if self.delay_level:
            text += f"{PropertyName.DELAY_LEVEL}\x01{self.delay_level}\x02"
        if self.delay_ms:
            text += f"{PropertyName.TIMER_DELAY_MS}\x01{self.delay_ms}\x02"
        if self.deliver_at_ms is not None:
            text += f"{PropertyName.TIMER_DELIVER_MS}\x01{self.deliver_at_ms}\x02"
        if not text.isascii():
            _check_unicode(text)
        return text


def _joined(keys: Iterable[str]) -> str:
    try:
        joined = " ".join(keys)
    except TypeError as error:
        raise InvalidRequestError("a key is text", reason=str(error)) from error
    _check_word("key", joined)
    return joined


def _check_word(what: str, text: str) -> None:
    """Refuse a separator: what follows it would be read as other properties."""
    if not isinstance(text, str):
        raise InvalidRequestError(f"a {what} is text", type=type(text).__name__)
    if "\x01" in text or "\x02" in text:
        raise InvalidRequestError(f"a {what} may not hold \\x01 or \\x02")


def _check_unicode(text: str) -> None:
    """Refuse half a surrogate pair, as a text that was cut in the middle of a character holds it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("a tag, key or property is no Unicode text", reason=error.reason) from error


@lru_cache(maxsize=_CHECKED_TOPICS_MAX)
def _check_sendable(topic: str) -> None:
    """Refuse what is no topic's name, or one that only the broker writes to; remembers what it has passed."""
    check_topic(topic)
    if topic in SEND_FORBIDDEN_TOPICS:
        raise InvalidRequestError("no client may send to this topic", topic=topic)
