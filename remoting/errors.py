"""Errors, sorted by the caller's possible reaction.

MQError
  InvalidRequestError   change the request, then try again
  UnavailableError      the same request may succeed later
  ClosedError           this instance is finished: open a new one
  ProtocolError         the peer does not speak the protocol: close the connection
  CorruptDataError      stored data is damaged: stop and repair
  ResponseError         a broker or NameServer answered with a code other than SUCCESS

Leaves add names, never handling: callers catch one of the classes above. A sentence comes first, what was seen follows
as keyword arguments, units last in their names:

    raise MessageTooLargeError("the body is too large", size_bytes=len(body), size_bytes_max=4_194_304)

`error_table.py` turns each of them into the response code that a client sees.
"""

from __future__ import annotations

import re

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class MQError(Exception):
    """Base of every error that is part of an interface here; `str()` gives the sentence, then its context."""

    def __init__(self, message: str = "", **context: object) -> None:
        super().__init__(message)
        self.message = message or _words(type(self).__name__)
        self.context = context

    def __str__(self) -> str:
        fields = " ".join(f"{name}={value}" for name, value in self.context.items())
        return f"{self.message} {fields}" if fields else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.context)


def _words(class_name: str) -> str:
    """`MessageTooLargeError` -> `message too large`."""
    return _WORD_START.sub(" ", class_name.removesuffix("Error")).lower()


def _rebuild(error_class: type[MQError], message: str, context: dict[str, object]) -> MQError:
    return error_class(message, **context)


# -- change the request --------------------------------------------------------------------------------------------


class InvalidRequestError(MQError):
    """The request can never succeed as it is."""


class InvalidParameterError(InvalidRequestError):
    """A topic or group name, a queue id or another parameter breaks the rules."""


class SettingError(InvalidParameterError):
    """A setting is unknown, its value cannot be one, or it asks for what is not built: correct the configuration."""


class MessageIllegalError(InvalidRequestError):
    """The message itself cannot be stored: a broken batch, a property that contradicts another."""


class MessageTooLargeError(MessageIllegalError):
    """Body or whole record is larger than the limit."""


class PropertiesTooLargeError(MessageIllegalError):
    """The property text is longer than its 16-bit length allows."""


class OffsetOutOfRangeError(InvalidRequestError):
    """The offset is outside what the queue or the log holds."""


class ObjectNotFoundError(InvalidRequestError):
    """The named thing does not exist."""


class TopicNotFoundError(ObjectNotFoundError):
    """There is no such topic, or no live broker has it."""


class GroupNotFoundError(ObjectNotFoundError):
    """There is no such subscription group."""


class QueryNotFoundError(ObjectNotFoundError):
    """A key, a consumer offset or a message looked for is not there."""


class SubscriptionParseError(InvalidRequestError):
    """The subscription expression cannot be parsed."""


class SubscriptionNotFoundError(InvalidRequestError):
    """The group is not subscribed to the topic on this broker."""


class SubscriptionNotLatestError(InvalidRequestError):
    """The request carries a newer subscription than the last heartbeat did."""


class FilterDataNotFoundError(InvalidRequestError):
    """The group's subscription has no valid filter: its expression is wrong, or of an unknown type."""


class PermissionDeniedError(InvalidRequestError):
    """Broker, topic or group forbid this."""


class UnsupportedRequestError(InvalidRequestError):
    """The request code is not served here."""


class ConsumerOfflineError(InvalidRequestError):
    """No member of the group is connected."""


class IllegalOperationError(InvalidRequestError):
    """Right in form, but not in the state that the message is in."""


class GroupActiveError(IllegalOperationError):
    """Members of the group are connected, or hold messages that they have popped: stop them first."""


class OffsetChangedError(IllegalOperationError):
    """The group's offsets have changed: a consumer has consumed meanwhile."""


class TopicChangedError(IllegalOperationError):
    """The topic was deleted and made again: offsets of its former life say nothing."""


class NotPreparedError(IllegalOperationError):
    """The plan to apply is not prepared, or no longer: prepare it again."""


class NotLeaderForQueueError(InvalidRequestError):
    """Another broker leads this logic queue of a static topic; the route says which."""


# -- retry the same later ------------------------------------------------------------------------------------------


class LimitReachedError(InvalidRequestError):
    """An administrator may not make more of this: a limit, which is a setting. Sent again, it is refused again."""

    def __init__(self, noun: str = "", *, limit: str = "", present: int = 0, most: int = 0) -> None:
        """`limit`: the setting; `present`: how many there are; `most`: how many it allows."""
        super().__init__(f"there are {present} {noun}, and {limit} allows {most}")
        self.limit = limit


class UnavailableError(MQError):
    """Not now: the same request may be sent again."""


class BrokerBusyError(UnavailableError):
    """A bound was reached: flow control."""


class GroupHeldError(UnavailableError):
    """The group is being moved; its members may go on in a moment."""


class ServiceUnavailableError(UnavailableError):
    """The store takes no writes at the moment: starting, stopping, disk full."""


class DiskFullError(ServiceUnavailableError):
    """The file system has no room left."""


class ObjectStoreUnavailableError(UnavailableError):
    """The object store gave no answer."""


class RequestTimeoutError(UnavailableError):
    """No answer came in time; whether the request was carried out is unknown."""


class ReplyTimeoutError(RequestTimeoutError):
    """A request message got no reply in its time: no consumer runs, or none is fast enough."""


class ConnectionLostError(UnavailableError):
    """The connection broke, or could not be made; whether a pending request was carried out is unknown."""

    LOST = "the connection was lost"
    """Its message where the connection had been made."""


# -- open a new instance -------------------------------------------------------------------------------------------


class ClosedError(MQError):
    """This instance was closed, or closed itself for good."""


class StoreClosedError(ClosedError):
    """The store is closed, or an earlier write to it failed."""


class FencedError(ClosedError):
    """Another writer has taken over with a higher epoch."""


# -- close the connection ------------------------------------------------------------------------------------------


class ProtocolError(MQError):
    """The peer sent what no frame can be."""


class FrameTooLargeError(ProtocolError):
    """The frame's length word is negative or above the limit."""


class HeaderDecodeError(ProtocolError):
    """The frame's header cannot be decoded."""


# -- stop and repair -----------------------------------------------------------------------------------------------


class CorruptDataError(MQError):
    """Stored or received data contradicts itself."""


class RecordMagicError(CorruptDataError):
    """No message record starts here."""


class RecordSizeError(CorruptDataError):
    """The record's size is not the sum of its fields, or it ends beyond what there is."""


class RecordChecksumError(CorruptDataError):
    """The body's checksum does not match."""


class SegmentSizeError(CorruptDataError):
    """An object or file ends before the requested range."""


# -- what the other side answered ----------------------------------------------------------------------------------


class ResponseError(MQError):
    """The peer answered with `code` (see `ResponseCode`) and `remark` instead of SUCCESS."""

    def __init__(self, message: str = "", *, code: int, remark: str | None = None, **context: object) -> None:
        super().__init__(message or remark or "the peer refused the request", code=int(code), **context)
        self.code = code
        self.remark = remark

    def __reduce__(self) -> tuple[object, ...]:
        context = {name: value for name, value in self.context.items() if name != "code"}
        return _rebuild, (type(self), self.message, {"code": self.code, "remark": self.remark, **context})
