"""Consumer offsets: committing, resetting, cloning, and the file."""

import pytest

from thermocline.broker.tables.consumer_offsets import ConsumerOffsets
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.json_dialect import DIALECT_BYTES_MAX, loads
from thermocline.remoting.offsets import QueueOffset

# As the official broker writes it: integer keys unquoted.
OFFICIAL_FILE = b"""{
\t"dataVersion":{
\t\t"counter":1,
\t\t"stateVersion":0,
\t\t"timestamp":1795248728504
\t},
\t"groupTopicMap":{
\t\t"FxGroup":[
\t\t\t"FxRetry",
\t\t\t"%RETRY%FxGroup"
\t\t]
\t},
\t"offsetTable":{
\t\t"%RETRY%FxGroup@FxGroup":{
\t\t\t0:24
\t\t},
\t\t"FxRetry@FxGroup":{
\t\t\t0:30,
\t\t\t1:29
\t\t}
\t},
\t"pullOffsetTable":{
\t\t"FxDelay@FxReader":{
\t\t\t0:20,
\t\t\t1:40
\t\t}
\t}
}"""


@pytest.fixture
def offsets() -> ConsumerOffsets:
    return ConsumerOffsets(clock=lambda: 7, version_step=3)


def test_an_offset_is_the_last_committed_one(offsets: ConsumerOffsets) -> None:
    assert offsets.query("T", "G", 0) is None
    offsets.commit("T", "G", 0, 10)
    offsets.commit("T", "G", 0, 5)  # smaller is accepted
    assert offsets.query("T", "G", 0) == 5
    assert offsets.query("T", "G", 1) is None
    assert offsets.topics_of("G") == {"T"}
    assert offsets.groups_of("T") == {"G"}


def test_the_pull_offset_falls_back_to_the_committed_one(offsets: ConsumerOffsets) -> None:
    assert offsets.query_pull("T", "G", 0) is None
    offsets.commit("T", "G", 0, 10)
    assert offsets.query_pull("T", "G", 0) == 10
    offsets.commit_pull("T", "G", 0, 42)
    assert offsets.query_pull("T", "G", 0) == 42


def test_a_reset_moves_the_offset_and_waits_for_the_next_pull(offsets: ConsumerOffsets) -> None:
    offsets.commit("T", "G", 0, 10)
    assert not offsets.has_reset("T", "G", 0)
    offsets.assign_reset("T", "G", 0, 3)
    assert offsets.has_reset("T", "G", 0)
    assert not offsets.has_reset("T", "G", 1)
    assert offsets.query("T", "G", 0) == 3
    assert offsets.take_reset("T", "G", 0) == 3
    assert offsets.take_reset("T", "G", 0) is None
    assert not offsets.has_reset("T", "G", 0)
    assert offsets.query("T", "G", 0) == 3


def test_groups_and_topics_are_forgotten(offsets: ConsumerOffsets) -> None:
    for topic in ("T", "U"):
        for group in ("G", "H"):
            offsets.commit(topic, group, 0, 1)
            offsets.commit_pull(topic, group, 0, 2)
    offsets.assign_reset("T", "G", 0, 0)
    offsets.remove_group("G")
    assert offsets.topics_of("G") == set()
    assert offsets.query_pull("T", "G", 0) is None
    assert not offsets.has_reset("T", "G", 0)
    offsets.remove_topic("T")
    assert offsets.topics_of("H") == {"U"}
    assert [*offsets.items()] == [("U", "H", 0, 1)]


def test_cloning_copies(offsets: ConsumerOffsets) -> None:
    offsets.commit("T", "G", 0, 1)
    offsets.commit("T", "New", 5, 9)
    offsets.clone("T", "G", "New")
    offsets.commit("T", "G", 0, 2)
    assert offsets.of_group("T", "New") == {0: 1}
    offsets.clone("no such topic", "G", "New")
    assert offsets.topics_of("New") == {"T"}


def test_the_file_has_the_official_form(offsets: ConsumerOffsets) -> None:
    offsets.load(OFFICIAL_FILE)
    assert offsets.changes.is_unsaved  # the file does not hold the POP offsets yet
    assert offsets.query("FxRetry", "FxGroup", 1) == 29
    assert offsets.query_pull("FxDelay", "FxReader", 1) == 40
    data = offsets.encode()
    assert b'"FxRetry@FxGroup":{0:30,1:29}' in data
    written, official = loads(data), loads(OFFICIAL_FILE)
    for table in (written, official):
        table["groupTopicMap"]["FxGroup"].sort()
    assert written == official
    again = ConsumerOffsets(clock=lambda: 7)
    again.load(data)
    assert again.encode() == data


def test_quoted_keys_are_read_too(offsets: ConsumerOffsets) -> None:
    offsets.load(b'{"offsetTable":{"T@G":{"0":5}}}')
    assert offsets.query("T", "G", 0) == 5


def test_a_file_of_any_size_is_read(offsets: ConsumerOffsets) -> None:
    """A broker that could write it must start with it: more than any body may have in RocketMQ's own form."""
    for topic in range(250):
        for queue_id in range(1_000):
            offsets.commit(f"T{topic}", "g", queue_id, 10**12 + topic)
    data = offsets.encode(pop_log_offset=1)
    assert len(data) > DIALECT_BYTES_MAX
    loaded = ConsumerOffsets(clock=lambda: 1)
    loaded.load(data)
    assert loaded.pair_count == 250
    assert loaded.query("T249", "g", 999) == 10**12 + 249


def test_only_changed_offsets_are_encoded_anew(offsets: ConsumerOffsets) -> None:
    for number in range(3):
        offsets.commit(f"T{number}", "G", 0, number)
    before = offsets.encode()
    assert offsets.encode() == before
    offsets.commit("T1", "G", 0, 100)
    table = loads(offsets.encode())["offsetTable"]
    assert table == {"T0@G": {0: 0}, "T1@G": {0: 100}, "T2@G": {0: 2}}


def test_the_version_rises_every_few_commits(offsets: ConsumerOffsets) -> None:
    def version() -> int:
        counter: int = loads(offsets.encode())["dataVersion"]["counter"]
        return counter

    before = version()
    offsets.commit("T", "G", 0, 1)
    offsets.commit("T", "G", 0, 2)
    assert version() == before
    offsets.commit("T", "G", 0, 3)
    assert version() == before + 1


@pytest.mark.parametrize("data", [b"{", b'{"offsetTable":{"T@G":{"zero":5}}}', b'{"offsetTable":7}'])
def test_an_invalid_file_is_an_error(offsets: ConsumerOffsets, data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        offsets.load(data)


def test_an_answer_has_no_pull_offsets() -> None:
    """RocketMQ 5.5 cannot pass over their numbers without quotes."""
    offsets = ConsumerOffsets(clock=lambda: 1)
    offsets.commit("t", "g", 0, QueueOffset(5))
    offsets.commit_pull("t", "g", 0, QueueOffset(7))
    answer = loads(offsets.encode(has_pulls=False))
    assert (answer["offsetTable"], answer["pullOffsetTable"]) == ({"t@g": {0: 5}}, {})
    assert loads(offsets.encode())["pullOffsetTable"] == {"t@g": {0: 7}}


def test_the_further_offset_of_two_tables_is_taken() -> None:
    own, other = ConsumerOffsets(clock=lambda: 1), ConsumerOffsets(clock=lambda: 1)
    for table, offset in ((own, 5), (other, 3)):
        table.commit("t", "behind", 0, QueueOffset(offset))
    for table, offset in ((own, 5), (other, 8)):
        table.commit("t", "ahead", 0, QueueOffset(offset))
    other.commit("t", "new", 1, QueueOffset(0))
    for table, offset in ((own, 5), (other, 8)):
        table.commit("lacking", "ahead", 0, QueueOffset(offset))

    def had(topic: str, queue_id: int, offset: int) -> bool:
        assert (queue_id, offset) == (0, 5)
        return topic != "lacking"

    version = own.data_version
    assert own.take_further(other, had=had) == 2
    assert sorted(own.items()) == [
        ("lacking", "ahead", 0, 5),
        ("t", "ahead", 0, 8),
        ("t", "behind", 0, 5),
        ("t", "new", 1, 0),
    ]
    assert own.data_version != version
    assert own.take_further(other, had=had) == 0


def test_a_file_may_be_larger_than_a_request() -> None:
    """Many groups, many topics: a broker that cannot read what it has written does not start again."""
    offsets = ConsumerOffsets(clock=lambda: 7)
    for number in range(12_000):
        offsets.commit("t" * 120, f"{number}".rjust(255, "g"), 3, QueueOffset(number))
    data = offsets.encode()
    assert len(data) > DIALECT_BYTES_MAX
    loaded = ConsumerOffsets(clock=lambda: 7)
    loaded.load(data)
    assert loaded.tables() == offsets.tables()
