"""Headers by which official clients show who they are, in the forms of each language."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from tests.proxy.access.fake_users import proof_of
from thermocline.proxy.grpc.service.grpc_proof import read_proof

DATE_TIME = "20240101T000000Z"
HEX = "2e5621239cbfdccc449dbd2e028cf60e7c6a592d"
"""HMAC-SHA1 of the date under the key `secret`."""
FORMS = {
    "Java, Node": f"MQv2-HMAC-SHA1 Credential=carol, SignedHeaders=x-mq-date-time, Signature={HEX.upper()}",
    "region": f"MQv2-HMAC-SHA1 Credential=carol/cn/RocketMQ, SignedHeaders=x-mq-date-time, Signature={HEX.upper()}",
    "Python, Rust": f"MQv2-HMAC-SHA1 Credential=carol, SignedHeaders=x-mq-date-time, Signature={HEX}",
    "Go": f"MQv2-HMAC-SHA1 Credential=carol//Rocketmq, SignedHeaders=x-mq-date-time, Signature={HEX}",
    "no blanks": f"MQv2-HMAC-SHA1 Credential=carol,SignedHeaders=x-mq-date-time,Signature={HEX}",
    "another order": f"X Signature={HEX}, Credential=carol",
}


@pytest.mark.parametrize("form", FORMS)
def test_each_clients_header_is_read(form: str) -> None:
    proof = read_proof({"authorization": FORMS[form], "x-mq-date-time": DATE_TIME})
    assert proof == proof_of("carol", "secret", DATE_TIME.encode())


def test_the_header_of_a_python_client_without_keys_names_no_user() -> None:
    signature = hmac.new(b"", b"20261121T031720Z", hashlib.sha1).hexdigest()
    assert signature == "e44e25937655cad9637ba05d919e6042ce3034f4"
    text = f"MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature={signature}"
    proof = read_proof({"authorization": text, "x-mq-date-time": "20261121T031720Z"})
    assert (proof.username, proof.problem) == ("", "")


WRONG = {
    "no header": ({"x-mq-date-time": DATE_TIME}, "authentication header is null"),
    "empty header": ({"authorization": "", "x-mq-date-time": DATE_TIME}, "authentication header is null"),
    "no date": ({"authorization": FORMS["Go"]}, "datetime is null"),
    "one word": (
        {"authorization": "MQv2-HMAC-SHA1", "x-mq-date-time": DATE_TIME},
        "authentication header is incorrect",
    ),
    "no value": ({"authorization": "X Credential", "x-mq-date-time": DATE_TIME}, "authentication keyValues length is"),
    "no hex": (
        {"authorization": "X Credential=carol, Signature=zz", "x-mq-date-time": DATE_TIME},
        "create authentication context error",
    ),
    "half a byte": (
        {"authorization": "X Credential=carol, Signature=abc", "x-mq-date-time": DATE_TIME},
        "create authentication context error",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_shows_nothing_says_why(name: str) -> None:
    metadata, problem = WRONG[name]
    assert read_proof(metadata).problem.startswith(problem)


@pytest.mark.parametrize(
    "text", ["X ", "X =", "X ,", "X a=b,,", "X Credential=/, Signature=", "\x00", "X Signature=\ud800"]
)
def test_no_text_is_an_error(text: str) -> None:
    proof = read_proof({"authorization": text, "x-mq-date-time": "größe \ud800"})
    assert proof.problem or not proof.username
