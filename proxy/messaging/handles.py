"""Handles that a proxy gives to its clients: self-contained, so that any proxy can serve them, also after a restart.

Receipt handle: a broker's (remoting/handles/receipt_handle.py) with a ninth field, the physical offset of the message,
which forwarding to the dead-letter topic needs. As the official proxy writes it.

Transaction handle: the official proxy keeps where a half message is in memory, for 30 s; here the transaction id that
the client is given says it:

    URL-safe base64 of "v1 <unique id> <broker name> <queue offset of the half message> <its physical offset>"

so a transaction may be ended through another proxy, or after a restart, at any time before the broker gives it up.
Source: ReceiptHandle.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from thermocline.remoting.errors import InvalidParameterError, InvalidRequestError
from thermocline.remoting.handles import ReceiptHandle
from thermocline.remoting.offsets import PhysicalOffset, QueueOffset

__all__ = ["HandleExpiredError", "ProxyHandle", "TransactionHandle"]

FIELDS_MIN = 8
HANDLE_CHARS_MAX = 1024
NO_OFFSET = -1
_VERSION = "v1"
_INTEGER_DIGITS_MAX = 19


class HandleExpiredError(InvalidRequestError):
    """The receipt handle's time is over: another consumer may have the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyHandle:
    """One message that a client holds."""

    receipt: ReceiptHandle
    physical_offset: int
    """-1 where the handle does not say it."""

    def text(self) -> str:
        """The handle as clients see it."""
        return f"{self.receipt.text()} {self.physical_offset}"

    @property
    def place(self) -> tuple[str, int, int]:
        """Broker, queue and offset: the same through all renewals of a delivery."""
        return self.receipt.broker_name, self.receipt.queue_id, self.receipt.queue_offset

    def check_fresh(self, now_ms: int) -> None:
        """Pass a handle whose time is not over.

        Raises:
            HandleExpiredError: It is.
        """
        if self.receipt.revive_time_ms <= now_ms:
            raise HandleExpiredError("receipt handle is expired")

    @classmethod
    def parse(cls, text: str) -> ProxyHandle:
        """Read a handle.

        Raises:
            InvalidRequestError: It is none.
        """
        fields = text[:HANDLE_CHARS_MAX].split(" ")
        if len(text) > HANDLE_CHARS_MAX or len(fields) < FIELDS_MIN:
            raise InvalidRequestError("Parse failed, dataList size " + str(len(fields)))
        receipt = ReceiptHandle.of_fields(fields, text)
        physical_offset = _number(fields[FIELDS_MIN]) if len(fields) > FIELDS_MIN else NO_OFFSET
        return cls(receipt=receipt, physical_offset=physical_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionHandle:
    """Where a half message is."""

    unique_key: str
    broker_name: str
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset

    def text(self) -> str:
        """The transaction id as clients see it."""
        words = (_VERSION, self.unique_key, self.broker_name, str(self.queue_offset), str(self.physical_offset))
        return base64.urlsafe_b64encode("\x01".join(words).encode()).decode()

    @classmethod
    def parse(cls, text: str) -> TransactionHandle:
        """Read a transaction id.

        Raises:
            InvalidParameterError: It is none of a proxy's.
        """
        try:
            if len(text) > HANDLE_CHARS_MAX:
                raise ValueError
            words = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True).decode().split("\x01")
            version, unique_key, broker_name, queue_offset, physical_offset = words
            if version != _VERSION:
                raise ValueError
            return cls(
                unique_key=unique_key,
                broker_name=broker_name,
                queue_offset=QueueOffset(_number(queue_offset)),
                physical_offset=PhysicalOffset(_number(physical_offset)),
            )
        except (UnicodeError, binascii.Error, ValueError, InvalidRequestError):
            raise InvalidParameterError("cannot found transaction data") from None


def _number(text: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > _INTEGER_DIGITS_MAX:
        raise InvalidRequestError("a number is needed", text=text[:64])
    return int(text)
