"""Reading the answer with all consumer offsets, entry by entry: ours, RocketMQ's, and texts that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clock import Clock
from thermocline.broker.replicas.offsets_text import Entry, read_entries
from thermocline.broker.tables.consumer_offsets import ConsumerOffsets
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.offsets import QueueOffset

OFFICIAL = (
    b'{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1764000000000},"groupTopicMap":{},'
    b'"offsetTable":{"orders@billing":{0:17,1:4},"%RETRY%billing@billing":{0:0}},"pullOffsetTable":{}}'
)


def entries_in(text: bytes) -> list[Entry]:
    return [entry for entry in read_entries(text) if entry is not None]


def offsets_in(text: bytes) -> dict[str, dict[int, QueueOffset]]:
    return {entry.name: entry.offsets() for entry in entries_in(text) if entry.table == "offsetTable"}


def test_rocketmqs_answer_is_read() -> None:
    assert offsets_in(OFFICIAL) == {"orders@billing": {0: 17, 1: 4}, "%RETRY%billing@billing": {0: 0}}
    whole = {entry.name: entry.value for entry in entries_in(OFFICIAL) if not entry.table}
    assert whole["dataVersion"] == b'{"counter":2,"stateVersion":0,"timestamp":1764000000000}'


def test_quoted_keys_and_spaces_are_read() -> None:
    assert offsets_in(b' {"offsetTable" : { "a@b" : { "0" : 1 , "1":2 } } } ') == {"a@b": {0: 1, 1: 2}}


@given(
    st.dictionaries(
        st.tuples(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8)).filter(
            lambda names: "@" not in names[0] + names[1]
        ),
        st.dictionaries(st.integers(0, 9), st.integers(0, 2**62), min_size=1, max_size=4),
        max_size=8,
    )
)
def test_what_the_table_writes_is_read(wanted: dict[tuple[str, str], dict[int, int]]) -> None:
    """Whatever the names are: braces, quotes and backslashes included."""
    table = ConsumerOffsets(clock=Clock())
    for (topic, group), offsets in wanted.items():
        for queue_id, offset in offsets.items():
            table.commit(topic, group, queue_id, QueueOffset(offset))
        table.commit_pull(topic, group, 0, QueueOffset(1))
    table.hand_over("group", "{receipt}", [])
    assert offsets_in(table.encode()) == {f"{topic}@{group}": offsets for (topic, group), offsets in wanted.items()}


@pytest.mark.parametrize("text", [b"", b"nothing", b"[1]", OFFICIAL[:-1], OFFICIAL[:-20], OFFICIAL + b"}"])
def test_another_text_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        list(read_entries(text))


def test_offsets_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidRequestError):
        offsets_in(b'{"offsetTable":{"a@b":{0:x}}}')
