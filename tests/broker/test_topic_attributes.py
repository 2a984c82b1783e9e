"""Topic attributes: the change syntax of `updateTopic -a` and the time to live that they mean."""

import pytest

from thermocline.broker.topic_attributes import apply_change, parse_change, ttl_ms
from thermocline.remoting.errors import InvalidRequestError


def test_a_change_sets_and_removes() -> None:
    change = parse_change("+reserve.time=24,-message.type")
    assert change == {"+reserve.time": "24", "-message.type": ""}
    assert apply_change({"message.type": "FIFO"}, change, is_new=False) == {"reserve.time": "24"}


@pytest.mark.parametrize("text", [None, "", ","])
def test_no_change(text: str | None) -> None:
    assert parse_change(text) == {}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("reserve.time=24", "add/alter attribute format is wrong"),
        ("reserve.time", "delete attribute format is wrong"),
        ("+reserve.time=1,+reserve.time=2", "key duplication"),
    ],
)
def test_text_of_another_form_is_refused(text: str, error: str) -> None:
    with pytest.raises(InvalidRequestError, match=error):
        parse_change(text)


@pytest.mark.parametrize(
    ("text", "is_new", "error"),
    [
        ("+no.such=1", True, "unsupported key: no.such"),
        ("+reserve.time=1.5", True, "value is not in range"),
        ("+reserve.time=-2", False, "value is not in range"),
        ("+message.type=fifo", True, "value is not in range"),
        ("-reserve.time", True, "only add attribute"),
        ("-reserve.time", False, "nonexistent key"),
        ("+queue.type=SimpleCQ", False, "unchangeable"),
        ("+queue.type=BatchCQ", True, "not supported yet"),
        ("+message.type=NORMAL,-message.type", False, "duplication"),
        ("+=1", True, "format wrong"),
    ],
)
def test_a_change_that_breaks_a_rule_is_refused_whole(text: str, is_new: bool, error: str) -> None:
    current: dict[str, str] = {}
    with pytest.raises(InvalidRequestError, match=error):
        apply_change(current, parse_change(text), is_new=is_new)
    assert current == {}


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, 5_000),
        ({"reserve.time": "-1"}, 5_000),
        ({"reserve.time": "0"}, 5_000),
        ({"reserve.time": "2"}, 7_200_000),
        ({"reserve.time": "2", "thermocline.ttl.ms": "1500"}, 1_500),
        ({"reserve.time": "2", "thermocline.ttl.ms": "-1"}, 7_200_000),
        ({"reserve.time": "2", "thermocline.ttl.ms": "0"}, None),
        ({"reserve.time": "what"}, 5_000),
    ],
)
def test_time_to_live(attributes: dict[str, str], expected: int | None) -> None:
    assert ttl_ms(attributes, default_ms=5_000) == expected
    assert ttl_ms({}, default_ms=None) is None
