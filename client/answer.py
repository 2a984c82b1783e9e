"""Answers: what a response code other than SUCCESS means to the caller of the SDK.

One table, read backwards from remoting/error_table.py: a code becomes the error class that says what to do about it,
with the code and the broker's sentence in its context. Codes without a class of their own become `ResponseError`.
"""

from __future__ import annotations

from thermocline.remoting import errors
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.response_code import ResponseCode

__all__ = ["answer_error", "check_answer"]

_ERROR_CLASSES: dict[int, type[errors.MQError]] = {
    ResponseCode.SYSTEM_BUSY: errors.BrokerBusyError,
    ResponseCode.FLOW_CONTROL: errors.BrokerBusyError,
    ResponseCode.SERVICE_NOT_AVAILABLE: errors.ServiceUnavailableError,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: errors.UnsupportedRequestError,
    ResponseCode.MESSAGE_ILLEGAL: errors.MessageIllegalError,
    ResponseCode.NO_PERMISSION: errors.PermissionDeniedError,
    ResponseCode.TOPIC_NOT_EXIST: errors.TopicNotFoundError,
    ResponseCode.QUERY_NOT_FOUND: errors.QueryNotFoundError,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: errors.SubscriptionParseError,
    ResponseCode.SUBSCRIPTION_NOT_EXIST: errors.SubscriptionNotFoundError,
    ResponseCode.SUBSCRIPTION_NOT_LATEST: errors.SubscriptionNotLatestError,
    ResponseCode.FILTER_DATA_NOT_EXIST: errors.FilterDataNotFoundError,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: errors.GroupNotFoundError,
    ResponseCode.INVALID_PARAMETER: errors.InvalidParameterError,
    ResponseCode.CONSUMER_NOT_ONLINE: errors.ConsumerOfflineError,
    ResponseCode.CONSUME_MSG_TIMEOUT: errors.RequestTimeoutError,
    ResponseCode.ILLEGAL_OPERATION: errors.IllegalOperationError,
    ResponseCode.NOT_LEADER_FOR_QUEUE: errors.NotLeaderForQueueError,
}


def answer_error(code: int, remark: str | None, *, address: str) -> errors.MQError:
    """Return the error for a code other than SUCCESS; only the first line of the remark, where the fact stands."""
    sentence = (remark or "").partition("\n")[0].strip()
    error_class = _ERROR_CLASSES.get(code)
    if error_class is None:
        return errors.ResponseError(sentence, code=code, remark=remark, address=address)
    return error_class(sentence, code=int(code), address=address)


def check_answer(answer: RemotingCommand, *, address: str) -> None:
    """Pass a successful answer.

    Raises:
        MQError: Its code is not SUCCESS; the class says what to do, `context["code"]` is the code.
    """
    if answer.code != ResponseCode.SUCCESS:
        raise answer_error(answer.code, answer.remark, address=address)
