"""Topic births: which of them the tables lack, and what becomes of a damaged line.

That they survive power cuts is in `tests/broker/tables/test_topic_table.py`.
"""

from __future__ import annotations

import msgspec

from tests.simulated_disk import SimulatedDisk
from thermocline.store.state.incarnation import Incarnation, TopicIncarnations
from thermocline.store.state.topic_births import BornTopic, TopicBirth, read_births, take_births, with_born

PATH = "/births"


def birth(id_: int, *, topic: str = "T", perm: int = 6) -> TopicBirth:
    return TopicBirth(
        topic=topic,
        incarnation=Incarnation(id=id_),
        config=msgspec.Raw(b'{"perm":%d}' % perm),
    )


def incarnations(id_: int, *, is_deleted: bool = False) -> TopicIncarnations:
    table = TopicIncarnations()
    table.adopt("T", Incarnation(id=id_, deleted=is_deleted))
    return table


def test_a_later_life_replaces_what_the_tables_have() -> None:
    table = incarnations(3)
    born = take_births([birth(4)], table)
    assert table.find("T").id == 4
    assert born == {"T": BornTopic(b'{"perm":6}', is_newer=True)}
    assert with_born({"T": {"perm": 2}}, born) == {"T": {"perm": 6}}


def test_of_the_present_life_only_a_missing_configuration_is_taken() -> None:
    born = take_births([birth(3)], incarnations(3))
    assert with_born({"T": {"perm": 2}}, born) == {"T": {"perm": 2}}
    assert with_born({}, born) == {"T": {"perm": 6}}


def test_an_earlier_life_and_a_deleted_one_stay_in_the_past() -> None:
    assert take_births([birth(2)], incarnations(3)) == {}
    assert take_births([birth(3)], incarnations(3, is_deleted=True)) == {}
    assert take_births([birth(2)], incarnations(3, is_deleted=True)) == {}


def test_reading_stops_at_the_first_damaged_line() -> None:
    disk = SimulatedDisk()
    assert read_births(disk, PATH) == []
    lines = [birth(number).encode() for number in (1, 2, 3)]
    file = disk.open(PATH, create=True)
    data = lines[0] + lines[1].replace(b'"id":2', b'"id":9') + lines[2]
    file.allocate(len(data))
    file.write_at(data, 0)
    file.close()
    assert read_births(disk, PATH) == [birth(1)]
