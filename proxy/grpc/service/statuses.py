"""Statuses: the one table from errors to the codes of the protocol, where they leave for a client.

The nearest listed class in an error's ancestry decides. A client sees the code and the error's sentence; an exception
that is not an `MQError` is a bug of ours, and its text stays here.
Source: ResponseBuilder.java, GrpcProxyException.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from thermocline.proxy.flow import NoPlaceError, NoQueueError, TypeConflictError
from thermocline.proxy.grpc.messages import Code, messages
from thermocline.proxy.messaging import BrokerNotFoundError, HandleExpiredError
from thermocline.remoting import errors

__all__ = ["CODES", "CodeError", "code_of", "common_status", "status", "status_of"]

logger = logging.getLogger(__name__)

INTERNAL_SENTENCE = "internal error, see the proxy's log"


class CodeError(errors.InvalidRequestError):
    """A request is answered with this code."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


CODES: dict[type[errors.MQError], Code] = {
    errors.MQError: Code.INTERNAL_SERVER_ERROR,
    # change the request
    BrokerNotFoundError: Code.BAD_REQUEST,
    HandleExpiredError: Code.INVALID_RECEIPT_HANDLE,
    NoPlaceError: Code.INVALID_RECEIPT_HANDLE,
    NoQueueError: Code.FORBIDDEN,
    TypeConflictError: Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    errors.TopicNotFoundError: Code.TOPIC_NOT_FOUND,
    errors.GroupNotFoundError: Code.CONSUMER_GROUP_NOT_FOUND,
    errors.UnsupportedRequestError: Code.NOT_IMPLEMENTED,
    # retry the same later
    errors.BrokerBusyError: Code.TOO_MANY_REQUESTS,
    errors.RequestTimeoutError: Code.PROXY_TIMEOUT,
}


def code_of(error: errors.MQError) -> Code:
    """Return the code for an error."""
    if isinstance(error, CodeError):
        return error.code
    for error_class in type(error).__mro__:
        code = CODES.get(error_class)
        if code is not None:
            return code
    raise AssertionError("every error of ours has MQError in its ancestry")


def status(code: Code, message: str | None = None) -> Any:
    """Return a Status; its message is the code's name where there is none."""
    return messages.Status(code=code, message=code.name if message is None else message)


def status_of(error: BaseException) -> Any:
    """Return the Status for an error that ended a request."""
    if not isinstance(error, errors.MQError):
        logger.error("a request failed, a bug of ours", exc_info=error)
        return status(Code.INTERNAL_SERVER_ERROR, INTERNAL_SENTENCE)
    # The context of an error may name addresses of brokers, which are none of a client's business.
    return status(code_of(error), error.message)


def common_status(codes: Iterable[int], *, nothing: str) -> Any:
    """Return the Status over entries: their common code, or MULTIPLE_RESULTS."""
    found = set(codes)
    if not found:
        return status(Code.INTERNAL_SERVER_ERROR, nothing)
    return status(Code(found.pop()) if len(found) == 1 else Code.MULTIPLE_RESULTS)
