"""Topic attributes: the change syntax of `updateTopic -a` and the time to live that they mean."""

import pytest

from thermocline.broker.tables.topic_attributes import HOUR_MS, apply_change, parse_change, ttl_change, ttl_ms
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.java_long import LONG_MAX


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
        ("+reserve.time=0s", False, "value is not in range"),
        ("+reserve.time=90 min", False, "value is not in range"),
        ("+reserve.time=99999999999999999999h", False, "value is not in range"),
        ("+reserve.time=" + "9" * 5_000, False, "value is not in range"),
        ("+thermocline.ttl.ms=9223372036854775808", False, "value is not in range"),
        ("+reserve.time=2,+thermocline.ttl.ms=7200001", False, "differ"),
        ("+reserve.time=2m,+thermocline.ttl.ms=120001", True, "differ"),
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
        ({"reserve.time": "9" * 5_000}, 5_000),
    ],
)
def test_time_to_live(attributes: dict[str, str], expected: int | None) -> None:
    assert ttl_ms(attributes, default_ms=5_000) == expected
    assert ttl_ms({}, default_ms=None) is None


DEFAULT_MS = 5_000


@pytest.mark.parametrize(
    ("text", "expected", "expected_ms"),
    [
        ("+reserve.time=48", {"reserve.time": "48"}, 48 * HOUR_MS),
        ("+reserve.time=2d", {"reserve.time": "48"}, 48 * HOUR_MS),
        ("+reserve.time=90s", {"reserve.time": "1", "thermocline.ttl.ms": "90000"}, 90_000),
        ("+reserve.time=1h1ms", {"reserve.time": "2", "thermocline.ttl.ms": "3600001"}, HOUR_MS + 1),
        ("+reserve.time=-1", {"reserve.time": "-1"}, DEFAULT_MS),
        ("+reserve.time=0", {"reserve.time": "0"}, DEFAULT_MS),
        ("-reserve.time", {}, DEFAULT_MS),
        ("+thermocline.ttl.ms=7200000", {"reserve.time": "2"}, 2 * HOUR_MS),
        ("+thermocline.ttl.ms=1", {"reserve.time": "1", "thermocline.ttl.ms": "1"}, 1),
        ("+thermocline.ttl.ms=0", {"thermocline.ttl.ms": "0"}, None),
        ("+thermocline.ttl.ms=-1", {}, DEFAULT_MS),
        ("-thermocline.ttl.ms", {}, DEFAULT_MS),
        ("-thermocline.ttl.ms,+reserve.time=3", {"reserve.time": "3"}, 3 * HOUR_MS),
        ("+thermocline.ttl.ms=-1,+reserve.time=3", {"reserve.time": "3"}, 3 * HOUR_MS),
        (
            "+reserve.time=1,+thermocline.ttl.ms=90000",
            {"reserve.time": "1", "thermocline.ttl.ms": "90000"},
            90_000,
        ),
        (
            f"+thermocline.ttl.ms={LONG_MAX}",
            {"reserve.time": str(LONG_MAX // HOUR_MS + 1), "thermocline.ttl.ms": str(LONG_MAX)},
            LONG_MAX,
        ),
    ],
)
@pytest.mark.parametrize(
    "before",
    [
        {"reserve.time": "1", "thermocline.ttl.ms": "1500"},
        # As earlier builds and people's own files have it.
        {"reserve.time": "24", "thermocline.ttl.ms": "-1"},
    ],
)
def test_both_spellings_hold_the_same_value_after_any_change(
    before: dict[str, str], text: str, expected: dict[str, str], expected_ms: int | None
) -> None:
    before = {**before, "message.type": "FIFO"}
    after = apply_change(before, parse_change(text), is_new=False)
    assert after == {**expected, "message.type": "FIFO"}
    assert ttl_ms(after, default_ms=DEFAULT_MS) == expected_ms
    assert apply_change(after, parse_change("+message.type=NORMAL"), is_new=False) == {
        **expected,
        "message.type": "NORMAL",
    }


@pytest.mark.parametrize("before", [{}, {"reserve.time": "1", "thermocline.ttl.ms": "1500"}, {"reserve.time": "2"}])
@pytest.mark.parametrize("duration_ms", [None, 0, 1, 1_500, HOUR_MS, LONG_MAX])
def test_the_change_of_the_command(before: dict[str, str], duration_ms: int | None) -> None:
    after = apply_change(before, ttl_change(before, duration_ms), is_new=False)
    assert ttl_ms(after, default_ms=DEFAULT_MS) == (DEFAULT_MS if duration_ms is None else duration_ms or None)


def test_hours_beyond_all_numbers_are_for_ever_long() -> None:
    assert ttl_ms({"reserve.time": str(LONG_MAX)}, default_ms=None) == LONG_MAX
    assert apply_change({}, {"+reserve.time": str(LONG_MAX)}, is_new=True)["thermocline.ttl.ms"] == str(LONG_MAX)
