"""Errors become codes where they leave for a client."""

from __future__ import annotations

import pytest

from thermocline.proxy.grpc.messages import Code
from thermocline.proxy.grpc.service.statuses import CODES, CodeError, code_of, common_status, status_of
from thermocline.proxy.messaging import HandleExpiredError
from thermocline.remoting import errors

ROWS: list[tuple[errors.MQError, Code]] = [
    (errors.TopicNotFoundError("no"), Code.TOPIC_NOT_FOUND),
    (errors.GroupNotFoundError("no"), Code.CONSUMER_GROUP_NOT_FOUND),
    (errors.BrokerBusyError("no"), Code.TOO_MANY_REQUESTS),
    (errors.RequestTimeoutError("no"), Code.PROXY_TIMEOUT),
    (errors.UnsupportedRequestError("no"), Code.NOT_IMPLEMENTED),
    (errors.PermissionDeniedError("no"), Code.INTERNAL_SERVER_ERROR),
    (errors.ConnectionLostError("no"), Code.INTERNAL_SERVER_ERROR),
    (errors.CorruptDataError("no"), Code.INTERNAL_SERVER_ERROR),
    (errors.ResponseError("no", code=1), Code.INTERNAL_SERVER_ERROR),
    (HandleExpiredError("no"), Code.INVALID_RECEIPT_HANDLE),
    (CodeError(Code.ILLEGAL_TOPIC, "no"), Code.ILLEGAL_TOPIC),
]


@pytest.mark.parametrize(("error", "code"), ROWS)
def test_each_error_has_its_code(error: errors.MQError, code: Code) -> None:
    found = status_of(error)
    assert (found.code, found.message) == (code, "no")
    assert code_of(error) is code


def test_an_answer_says_nothing_about_addresses_or_bugs(caplog: pytest.LogCaptureFixture) -> None:
    assert status_of(errors.RequestTimeoutError("no answer", address="10.0.0.1:10911")).message == "no answer"
    found = status_of(KeyError("secret"))
    assert (found.code, found.message) == (50001, "internal error, see the proxy's log")
    assert "a bug of ours" in caplog.text


def test_the_status_over_entries() -> None:
    assert common_status([20000, 20000], nothing="nothing").code == Code.OK
    assert common_status([20000, 40013], nothing="nothing").code == Code.MULTIPLE_RESULTS
    assert common_status([], nothing="nothing").code == Code.INTERNAL_SERVER_ERROR
    assert errors.MQError in CODES
