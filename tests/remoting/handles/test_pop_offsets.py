"""The header fields that say which messages an answer to a POP holds."""

import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.handles.pop_offsets import (
    PoppedOffsets,
    message_offset_info,
    order_count_info,
    parse_order_counts,
    parse_popped_offsets,
    start_offset_info,
)

QUEUES = [
    PoppedOffsets(retry_flag=0, queue_id=3, start_offset=2, offsets=(2, 3, 7)),
    PoppedOffsets(retry_flag=1, queue_id=0, start_offset=0, offsets=(0,)),
]


def test_fields_as_an_official_broker_writes_them() -> None:
    assert start_offset_info(QUEUES) == "0 3 2;1 0 0"
    assert message_offset_info(QUEUES) == "0 3 2,3,7;1 0 0"
    assert order_count_info(0, 3, {7: 1, 8: 2}, least=0) == "0 qo3%7 1;0 qo3%8 2;0 3 0"
    assert order_count_info(0, 3, {}, least=0) == "0 3 0"


def test_fields_are_read_back() -> None:
    parsed = parse_popped_offsets(start_offset_info(QUEUES), message_offset_info(QUEUES))
    assert list(parsed.values()) == QUEUES
    assert parse_popped_offsets("", "") == parse_popped_offsets(None, None) == {}
    assert parse_order_counts("0 qo3%7 1;0 3 0") == {(0, 3, 7): 1, (0, 3, None): 0}
    assert parse_order_counts(None) == {}


@pytest.mark.parametrize(
    ("start", "offsets"),
    [("0 3", "0 3 2"), ("0 3 2", "0 3"), ("0 3 2", "0 4 2"), ("0 3 2", "0 3 x"), ("0 3 2", "0 3 2;0 3 2")],
)
def test_fields_that_make_no_sense_are_refused(start: str, offsets: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_popped_offsets(start, offsets)


def test_order_counts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidRequestError):
        parse_order_counts("0 qo3 1")
