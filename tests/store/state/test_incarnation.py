"""Incarnations: a name that is deleted and made again starts clean."""

from __future__ import annotations

import pytest

from tests.simulated_disk import SimulatedDisk
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import LOG_START
from thermocline.store.state.incarnation import Incarnation, TopicIncarnations

PATH = "/config/topicIncarnation.json"


def test_a_topic_without_an_entry_is_live_from_the_start() -> None:
    incarnations = TopicIncarnations()
    assert incarnations.find("t") == Incarnation(id=0, start_offset=0)
    assert incarnations.is_live("t", 0)
    assert not incarnations.is_deleted("t")


def test_a_life_begins_at_the_logs_end_and_ends_for_good() -> None:
    incarnations = TopicIncarnations()
    first = incarnations.create("t", start_offset=100)
    assert incarnations.create("t", start_offset=500) == first
    assert incarnations.is_live("t", 100)
    assert not incarnations.is_live("t", 99)
    incarnations.delete("t")
    assert incarnations.is_deleted("t")
    assert not incarnations.is_live("t", 100)
    second = incarnations.create("t", start_offset=800)
    assert second.id > first.id
    assert not incarnations.is_live("t", 799)
    assert incarnations.is_live("t", 800)
    assert incarnations.create("u", start_offset=0).id > second.id


def test_the_cut_only_rises() -> None:
    incarnations = TopicIncarnations()
    incarnations.expire_before("t", 50)
    assert incarnations.expire_before("t", 40).expired_before_ms == 50
    assert incarnations.expire_before("t", 60).expired_before_ms == 60
    assert incarnations.is_live("t", 0)
    incarnations.delete("t")
    assert incarnations.create("t", start_offset=1).expired_before_ms == 0


def test_no_life_begins_behind_the_recovered_end() -> None:
    incarnations = TopicIncarnations()
    incarnations.create("t", start_offset=100)
    assert not incarnations.begin_at_latest(100)
    assert incarnations.begin_at_latest(70)
    assert incarnations.is_live("t", 70)


def test_file() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/config")
    incarnations = TopicIncarnations.load(disk, PATH)
    incarnations.create("orders", start_offset=96)
    incarnations.save(disk, PATH)
    assert disk.read(PATH) == (
        b'{"lastId":1,"incarnationTable":{"orders":{"id":1,"startOffset":96,"deleted":false,"expiredBeforeMs":0}}}'
    )
    incarnations.delete("orders")
    incarnations.save(disk, PATH)
    assert TopicIncarnations.load(disk, PATH).is_deleted("orders")
    disk.remove(PATH)
    assert not TopicIncarnations.load(disk, PATH).is_deleted("orders")


def test_damage_is_not_taken_for_an_empty_table() -> None:
    """An empty table would bring deleted topics back."""
    disk = SimulatedDisk()
    disk.make_directory("/config")
    disk.open(PATH, create=True).write_at(b'{"lastId":', 0)
    with pytest.raises(CorruptDataError):
        TopicIncarnations.load(disk, PATH)


@pytest.mark.parametrize(
    "data",
    [b'{"lastId":1,"incarnationTable":{"t":{"id":2}}}', b'{"lastId":0,"incarnationTable":{"t":{"id":1}}}'],
)
def test_a_table_with_an_id_above_its_newest_is_refused(data: bytes) -> None:
    """The next topic would get an id that another one has."""
    disk = SimulatedDisk()
    disk.make_directory("/config")
    disk.open(PATH, create=True).write_at(data, 0)
    with pytest.raises(CorruptDataError):
        TopicIncarnations.load(disk, PATH)


def test_an_incarnation_begins_behind_the_one_before() -> None:
    incarnations = TopicIncarnations()
    incarnations.create("t", start_offset=100)
    incarnations.delete("t")
    with pytest.raises(AssertionError, match="behind"):
        incarnations.create("t", start_offset=99)
    with pytest.raises(AssertionError, match="ids rise"):
        incarnations.adopt("t", Incarnation(id=0, start_offset=100))


def test_queue_ends_keep_their_id_while_a_life_goes_on() -> None:
    incarnations = TopicIncarnations()
    incarnations.follow("copied", Incarnation(id=5, start_offset=LOG_START))
    assert incarnations.recorded_id("copied") == 0
    incarnations.follow("copied", Incarnation(id=9, start_offset=LOG_START))
    assert [incarnations.is_recorded_as("copied", each) for each in (0, 5, 9)] == [True, False, True]
    incarnations.create("here", start_offset=LOG_START, has_queues=True)
    assert incarnations.is_recorded_as("here", 0)
    first = incarnations.create("plain", start_offset=LOG_START)
    assert not incarnations.is_recorded_as("plain", 0)
    assert incarnations.is_recorded_as("plain", first.id)


def test_queue_ends_of_a_life_that_is_over_count_no_more() -> None:
    incarnations = TopicIncarnations()
    incarnations.follow("t", Incarnation(id=5, start_offset=LOG_START))
    incarnations.delete("t")
    assert not incarnations.is_recorded_as("t", 0)
    assert not incarnations.is_recorded_as("t", 5)
    incarnations.begin_anew("t")
    anew = incarnations.recorded_id("t")
    assert not incarnations.is_recorded_as("t", anew)
    incarnations.follow("t", Incarnation(id=8, start_offset=LOG_START))
    assert [incarnations.is_recorded_as("t", each) for each in (0, 5, 8, anew)] == [False, False, True, True]
    incarnations.delete("t")
    incarnations.create("t", start_offset=LOG_START)
    assert not incarnations.is_recorded_as("t", anew)


def test_a_clean_stop_settles_the_ids_of_queue_ends() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/config")
    incarnations = TopicIncarnations()
    incarnations.follow("t", Incarnation(id=5, start_offset=LOG_START))
    incarnations.settle_recorded(disk, PATH)
    assert incarnations.recorded_id("t") == 5
    found = TopicIncarnations.load(disk, PATH)
    assert found.is_recorded_as("t", 0)
    found.found_recorded("t", 5)
    assert found.recorded_id("t") == 5
    found.follow("t", Incarnation(id=6, start_offset=LOG_START))
    assert found.is_recorded_as("t", 5)
