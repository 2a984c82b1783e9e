"""Errors say what was seen, and become response codes in one place.

Covers `remoting/error_table.py`, `remoting/response_code.py`.
"""

import pickle

import pytest

from thermocline.remoting import errors
from thermocline.remoting.command import RemotingCommand, SerializeType
from thermocline.remoting.error_table import INTERNAL_ERROR_REMARK, RESPONSE_CODES, error_response, response_code
from thermocline.remoting.response_code import ResponseCode


def all_errors() -> list[type[errors.MQError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type)]
    return [value for value in found if issubclass(value, errors.MQError)]


def test_text_has_sentence_and_context() -> None:
    error = errors.MessageTooLargeError("the body is too large", size_bytes=5, size_bytes_max=4)
    assert str(error) == "the body is too large size_bytes=5 size_bytes_max=4"
    assert error.context == {"size_bytes": 5, "size_bytes_max": 4}


def test_sentence_defaults_to_the_name() -> None:
    assert str(errors.MessageTooLargeError(size_bytes=5)) == "message too large size_bytes=5"
    assert str(errors.MQError()) == "mq"


def test_errors_cross_process_borders() -> None:
    error = pickle.loads(pickle.dumps(errors.TopicNotFoundError("no such topic", topic="t")))
    assert isinstance(error, errors.TopicNotFoundError)
    assert str(error) == "no such topic topic=t"
    answer = pickle.loads(pickle.dumps(errors.ResponseError(code=17, remark="gone", address="a")))
    assert (answer.code, answer.remark, str(answer)) == (17, "gone", "gone code=17 address=a")


@pytest.mark.parametrize("error_class", [e for e in all_errors() if e is not errors.ResponseError])
def test_every_error_has_a_code(error_class: type[errors.MQError]) -> None:
    assert response_code(error_class()) in set(ResponseCode)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TopicNotFoundError(), ResponseCode.TOPIC_NOT_EXIST),
        (errors.MessageTooLargeError(), ResponseCode.MESSAGE_ILLEGAL),
        (errors.ObjectStoreUnavailableError(), ResponseCode.SYSTEM_BUSY),
        (errors.FencedError(), ResponseCode.SERVICE_NOT_AVAILABLE),
        (errors.RecordChecksumError(), ResponseCode.SYSTEM_ERROR),
        (errors.ResponseError(code=26, remark="passed on"), 26),
    ],
)
def test_nearest_ancestor_decides(error: errors.MQError, code: int) -> None:
    assert response_code(error) == code


def test_table_lists_error_classes_only() -> None:
    assert set(RESPONSE_CODES) <= set(all_errors())


def test_answer_has_code_and_remark_in_the_asked_serialisation() -> None:
    request = RemotingCommand.request(11, serialize_type=SerializeType.ROCKETMQ)
    answer = error_response(request, errors.TopicNotFoundError("no such topic", topic="t"))
    assert (answer.code, answer.remark, answer.opaque) == (17, "no such topic topic=t", request.opaque)
    assert answer.serialize_type is SerializeType.ROCKETMQ


def test_answer_to_a_bug_of_ours_shows_nothing_of_it() -> None:
    answer = error_response(RemotingCommand.request(11), ValueError("secret"))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, INTERNAL_ERROR_REMARK)


def test_answer_passes_on_another_brokers_error() -> None:
    answer = error_response(RemotingCommand.request(11), errors.ResponseError(code=26, remark="no group"))
    assert (answer.code, answer.remark) == (26, "no group")
