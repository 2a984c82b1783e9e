"""Recall handle: what the answer to a timed send carries, and RECALL_MESSAGE brings back.

    URL-safe base64 of "v1 <topic> <broker name> <TIMER_OUT_MS + 1> <unique id>"

Padding may be missing. A client reads the broker's name in it, to find the broker to ask.
Source: RecallMessageHandle.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from thermocline.remoting.errors import IllegalOperationError

VERSION = "v1"
SEPARATOR = " "


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


def decode_recall_handle(handle: str) -> RecallHandle:
    """Read a handle.

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
