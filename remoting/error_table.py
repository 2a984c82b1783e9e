"""The one table from our errors to RocketMQ's response codes, where errors leave for a client.

The nearest listed class in an error's ancestry decides. A client sees the code and the error's sentence, nothing else;
an exception that is not an `MQError` is a bug of ours, and its text stays here.
"""

from __future__ import annotations

from thermocline.remoting import errors
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.response_code import ResponseCode

RESPONSE_CODES: dict[type[errors.MQError], ResponseCode] = {
    errors.MQError: ResponseCode.SYSTEM_ERROR,
    # change the request
    errors.InvalidRequestError: ResponseCode.SYSTEM_ERROR,
    errors.InvalidParameterError: ResponseCode.INVALID_PARAMETER,
    errors.MessageIllegalError: ResponseCode.MESSAGE_ILLEGAL,
    errors.OffsetOutOfRangeError: ResponseCode.SYSTEM_ERROR,
    errors.ObjectNotFoundError: ResponseCode.SYSTEM_ERROR,
    errors.TopicNotFoundError: ResponseCode.TOPIC_NOT_EXIST,
    errors.GroupNotFoundError: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    errors.QueryNotFoundError: ResponseCode.QUERY_NOT_FOUND,
    errors.SubscriptionParseError: ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    errors.SubscriptionNotFoundError: ResponseCode.SUBSCRIPTION_NOT_EXIST,
    errors.SubscriptionNotLatestError: ResponseCode.SUBSCRIPTION_NOT_LATEST,
    errors.FilterDataNotFoundError: ResponseCode.FILTER_DATA_NOT_EXIST,
    errors.PermissionDeniedError: ResponseCode.NO_PERMISSION,
    errors.UnsupportedRequestError: ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    errors.ConsumerOfflineError: ResponseCode.CONSUMER_NOT_ONLINE,
    errors.IllegalOperationError: ResponseCode.ILLEGAL_OPERATION,
    errors.NotLeaderForQueueError: ResponseCode.NOT_LEADER_FOR_QUEUE,
    # retry the same later
    errors.UnavailableError: ResponseCode.SYSTEM_BUSY,
    errors.ServiceUnavailableError: ResponseCode.SERVICE_NOT_AVAILABLE,
    # open a new instance: for a client, another broker
    errors.ClosedError: ResponseCode.SERVICE_NOT_AVAILABLE,
    # stop and repair
    errors.CorruptDataError: ResponseCode.SYSTEM_ERROR,
    errors.ProtocolError: ResponseCode.SYSTEM_ERROR,
}

INTERNAL_ERROR_REMARK = "internal error, see the broker's log"


def response_code(error: errors.MQError) -> int:
    """The response code for `error`; a peer's own code when it only passes through."""
    if isinstance(error, errors.ResponseError):
        return error.code
    for error_class in type(error).__mro__:
        code = RESPONSE_CODES.get(error_class)
        if code is not None:
            return code
    raise AssertionError("every error of ours has MQError in its ancestry")


def error_response(request: RemotingCommand, error: BaseException) -> RemotingCommand:
    """The answer to a request whose handler raised `error`."""
    if isinstance(error, errors.ResponseError):
        return RemotingCommand.response(request, error.code, remark=error.remark)
    if isinstance(error, errors.MQError):
        return RemotingCommand.response(request, response_code(error), remark=str(error))
    return RemotingCommand.response(request, ResponseCode.SYSTEM_ERROR, remark=INTERNAL_ERROR_REMARK)
