"""StaticTopicTable: which logic queue a request means, changes that are whole or not at all, and its file."""

from __future__ import annotations

import pytest

from tests.clock import Clock
from tests.simulated_disk import SimulatedDisk
from thermocline.broker.state_files.config_persister import ConfigPersister, load_file
from thermocline.broker.tables.static_topic_table import FILE_NAME, StaticTopicTable
from thermocline.remoting.bodies import LogicQueueMappingItem, TopicQueueMappingDetail
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError, NotLeaderForQueueError, UnavailableError
from thermocline.store.files.disk import make_durable_directory

TOPIC, OWN, OTHER = "Static", "a", "b"
PATH = f"/store/config/{FILE_NAME}"


def item(gen: int, broker: str, logic_offset: int, *, queue_id: int) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(gen=gen, broker_name=broker, logic_offset=logic_offset, queue_id=queue_id)


def detail(epoch: int = 1, topic: str = TOPIC, broker: str = OWN) -> TopicQueueMappingDetail:
    """Queue 0 has moved away from physical queue 2, queues 1 and 3 are here, as 6 and 4."""
    return TopicQueueMappingDetail(
        topic=topic,
        broker_name=broker,
        epoch=epoch,
        total_queues=4,
        hosted_queues={
            0: [item(0, OWN, 0, queue_id=2), item(1, OTHER, 100, queue_id=0)],
            1: [item(0, OTHER, 0, queue_id=3), item(1, OWN, 100, queue_id=6)],
            3: [item(0, OWN, 0, queue_id=4)],
        },
    )


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    make_durable_directory(disk, "/store/config")
    return disk


@pytest.fixture
def table(disk: SimulatedDisk) -> StaticTopicTable:
    persister = ConfigPersister(disk)
    made = StaticTopicTable(broker_name=OWN, clock=Clock(), persister=persister)
    persister.register(FILE_NAME, PATH, made.encode)
    return made


def on_disk(disk: SimulatedDisk, *topics: str) -> StaticTopicTable:
    made = StaticTopicTable(broker_name=OWN, clock=Clock(), persister=ConfigPersister(disk))
    made.load(load_file(disk, PATH), dict.fromkeys(topics))
    return made


async def test_the_queue_that_a_request_means(table: StaticTopicTable) -> None:
    assert table.led(TOPIC, 1, is_logical=None) is None, "an ordinary topic"
    await table.update(detail(), force=False)
    for is_logical in (None, True):
        led = table.led(TOPIC, 1, is_logical=is_logical)
        assert led is not None
        assert (led.topic, led.queue_id, led.leader.queue_id) == (TOPIC, 1, 6)
        assert [led.is_here(each) for each in led.items] == [False, True]
    assert table.led(TOPIC, 1, is_logical=False) is None, "a physical one"
    for queue_id in (0, 2, -1):
        with pytest.raises(NotLeaderForQueueError):
            table.led(TOPIC, queue_id, is_logical=None)
    any_led = table.led(TOPIC, -1, is_logical=None, any_queue=True)
    assert any_led is not None
    assert any_led.queue_id == 1
    with pytest.raises(NotLeaderForQueueError):
        table.led(TOPIC, 0, is_logical=None, any_queue=True)


async def test_a_message_for_a_queue_that_moved_goes_to_another(table: StaticTopicTable) -> None:
    assert table.queue_for(TOPIC, 2) == 2
    await table.update(detail(), force=False)
    assert [table.queue_for(TOPIC, queue_id) for queue_id in (4, 6, 2, 3)] == [4, 6, 4, 6]


async def test_an_update_is_durable_or_changes_nothing(disk: SimulatedDisk, table: StaticTopicTable) -> None:
    notices: list[str] = []
    table.add_listener(notices.append)
    await table.update(detail(), force=False)
    version = table.data_version.counter
    assert on_disk(disk, TOPIC).details[TOPIC].epoch == 1
    with pytest.raises(InvalidRequestError, match="another broker's"):
        await table.update(detail(2, broker=OTHER), force=False)
    with pytest.raises(InvalidRequestError):
        table.check(detail(0), force=False)
    disk.is_full = True
    with pytest.raises(UnavailableError):
        await table.update(detail(2), force=False)
    disk.is_full = False
    assert table.details[TOPIC].epoch == 1
    await table.update(detail(3), force=False)
    assert table.details[TOPIC].epoch == on_disk(disk, TOPIC).details[TOPIC].epoch == 3
    assert table.data_version.counter > version
    assert notices[0] == notices[-1] == TOPIC


async def test_a_cleaned_mapping_replaces_only_what_it_was_made_from(table: StaticTopicTable) -> None:
    await table.update(detail(), force=False)
    before, after = table.details[TOPIC], detail()
    await table.update(detail(2), force=False)
    assert not await table.clean(before, after)
    newest = table.details[TOPIC]
    assert newest.epoch == 2
    assert await table.clean(newest, after)
    assert table.details[TOPIC] is after


async def test_a_deleted_mapping_is_gone_at_once_and_durably(disk: SimulatedDisk, table: StaticTopicTable) -> None:
    notices: list[str] = []
    await table.update(detail(), force=False)
    version = table.data_version.counter
    table.add_listener(notices.append)
    await table.delete(TOPIC)
    assert (notices, table.data_version.counter) == ([TOPIC], version + 1)
    assert TOPIC not in on_disk(disk, TOPIC).details
    await table.delete(TOPIC)
    assert (notices, table.data_version.counter) == ([TOPIC], version + 1), "one that is not there is fine"


async def test_mappings_of_topics_that_do_not_exist_are_dropped(disk: SimulatedDisk, table: StaticTopicTable) -> None:
    await table.update(detail(), force=False)
    await table.update(detail(topic="Gone"), force=False)
    assert on_disk(disk, TOPIC).details.keys() == {TOPIC}
    assert on_disk(disk, TOPIC, "Gone").data_version == table.data_version
    with pytest.raises(CorruptDataError):
        table.load(b"[1]", {})
