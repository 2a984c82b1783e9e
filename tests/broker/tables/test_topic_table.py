"""The topic table: durable before use, shared writes, deletion, and what a time to live makes invisible.

Covers `broker/tables/topic_journal.py`.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import pytest

from tests.clock import Clock
from tests.simulated_disk import PowerCut, SimulatedDisk
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.state_files.config_persister import ConfigPersister, ConfigSyncSite, load_file
from thermocline.broker.tables import topic_table
from thermocline.broker.tables.topic_attributes import decode_ttl_default
from thermocline.broker.tables.topic_journal import FILE_NAME as JOURNAL_NAME
from thermocline.broker.tables.topic_journal import JournalSyncSite, TopicJournal
from thermocline.broker.tables.topic_table import FILE_NAME, TopicTable
from thermocline.broker.tier_process.state_capture import QueueEnds, StateCapture
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.errors import CorruptDataError, DiskFullError, InvalidRequestError, UnavailableError
from thermocline.remoting.json_dialect import loads
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import DiskFile
from thermocline.store.log.message_draft import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.store.state.topic_births import TopicBirth, read_births

CONFIG = StoreConfig(root_path="/store", log_file_bytes=1 << 16, queue_file_bytes=20 * 100)
TOPICS_PATH = "/store/config/topics.json"
HOUR_MS = 3_600_000


@dataclass
class Parts:
    disk: SimulatedDisk
    clock: Clock
    store: MessageStore
    persister: ConfigPersister
    topics: TopicTable
    notices: list[tuple[str, TopicConfig | None]]

    async def close(self) -> None:
        await self.topics.close()
        await self.persister.close()
        self.store.close()

    async def reopen(self, **settings: int) -> "Parts":
        await self.close()
        return await open_parts(self.disk, self.clock, **settings)


async def open_parts(disk: SimulatedDisk, clock: Clock, **settings: int) -> Parts:
    store = MessageStore.open(CONFIG, disk=disk, clock=clock)
    persister = ConfigPersister(disk)
    config = BrokerConfig(**settings)  # type: ignore[arg-type]
    journal = TopicJournal(disk, CONFIG.topic_births_path)
    topics = TopicTable(
        store=store,
        persister=persister,
        journal=journal,
        config=lambda: config,
        system_topics={"TBW102"},
        steady_clock=clock.steady,
    )
    persister.register(JOURNAL_NAME, CONFIG.topic_births_path, journal.encode, write=journal.write)
    persister.register(FILE_NAME, TOPICS_PATH, topics.encode)
    persister.register("topicIncarnation", CONFIG.incarnation_path, store.incarnations.encode)
    persister.register("ttlDefault", "/store/thermocline/ttlDefault.json", topics.encode_ttl_default)
    notices: list[tuple[str, TopicConfig | None]] = []
    topics.add_listener(lambda topic, config: notices.append((topic, config)))
    topics.load(load_file(disk, TOPICS_PATH))
    previous = decode_ttl_default(load_file(disk, "/store/thermocline/ttlDefault.json"))
    model = TopicConfig(topic_name="TBW102", read_queue_nums=8, write_queue_nums=8, perm=7)
    await topics.boot([model], previous_ttl_default_ms=previous)
    return Parts(disk, clock, store, persister, topics, notices)


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    parts = await open_parts(SimulatedDisk(), Clock())
    yield parts
    await parts.close()


def put(parts: Parts, topic: str) -> int:
    draft = MessageDraft(
        topic=topic, queue_id=0, body=b"x", properties_text=b"", born_timestamp_ms=1, born_host=("10.0.0.1", 1)
    )
    return parts.store.put(draft).physical_offset


def on_disk(parts: Parts) -> dict[str, object]:
    table: dict[str, object] = loads(parts.disk.read(TOPICS_PATH))["topicConfigTable"]
    return table


# -- making topics -----------------------------------------------------------------------------------------------------


async def test_a_first_message_makes_its_topic_after_the_model(parts: Parts) -> None:
    config = await parts.topics.auto_create("T", default_topic="TBW102", queue_count=4)
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (4, 4, 6)
    assert parts.topics.get("T") == config
    assert parts.notices == [("T", config)]
    await parts.topics.close()
    assert on_disk(parts)["T"] == json.loads(config.encode())
    wide = await parts.topics.auto_create("U", default_topic="TBW102", queue_count=100)
    assert wide is not None
    assert wide.write_queue_nums == 8


async def test_a_system_topic_stays_as_it_was_made(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    """`defaultTopicQueueNums` counts when the model is made, as in RocketMQ; a warning names a later value."""
    same, other = (
        TopicConfig(topic_name="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=7) for queues in (8, 4)
    )
    await parts.topics.boot([same], previous_ttl_default_ms=None)
    assert not caplog.records
    await parts.topics.boot([other], previous_ttl_default_ms=None)
    (record,) = caplog.records
    assert "system topic stays as it was made" in record.message
    assert "topic=TBW102 queues=8 settings_queues=4" in record.message
    model = parts.topics.get("TBW102")
    assert model is not None
    assert model.write_queue_nums == 8


async def test_a_model_without_inheritance_makes_nothing(parts: Parts) -> None:
    await parts.topics.update(TopicConfig(topic_name="Plain", perm=6), {})
    assert await parts.topics.auto_create("T", default_topic="Plain", queue_count=4) is None
    assert await parts.topics.auto_create("T", default_topic="no such topic", queue_count=4) is None
    closed = await parts.reopen(auto_create_topic=False)
    assert await closed.topics.auto_create("T", default_topic="TBW102", queue_count=4) is None
    await closed.close()
    parts.persister, parts.store = closed.persister, closed.store


def born_on_disk(parts: Parts) -> dict[str, TopicBirth]:
    return {birth.topic: birth for birth in read_births(parts.disk, CONFIG.topic_births_path)}


async def test_a_topic_appears_only_when_it_is_durable(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    seen_in_file: list[bool] = []
    parts.topics.add_listener(lambda topic, _: seen_in_file.append(topic in born_on_disk(parts)))
    await parts.topics.auto_create("T", default_topic="TBW102", queue_count=4)
    assert seen_in_file == [True]
    assert born_on_disk(parts)["T"].incarnation == parts.topics.incarnation("T")
    assert parts.topics.incarnation("T").id > 0

    def refuse(path: str, **_: object) -> None:
        raise DiskFullError("no room left on the disk", path=path)

    with monkeypatch.context() as full:
        full.setattr(parts.disk, "open", refuse)
        with pytest.raises(UnavailableError):
            await parts.topics.auto_create("U", default_topic="TBW102", queue_count=4)
    assert parts.topics.get("U") is None
    assert await parts.topics.auto_create("U", default_topic="TBW102", queue_count=4) is not None
    assert born_on_disk(parts).keys() == {"T", "U"}


class WrittenBytes(SimulatedDisk):
    """Counts the bytes that each file was written, and syncs of files."""

    def __init__(self) -> None:
        super().__init__()
        self.written: Counter[str] = Counter()
        self.sync_count = 0

    def open(self, path: str, *, create: bool = False, random_access: bool = False) -> DiskFile:
        return cast(DiskFile, CountingFile(super().open(path, create=create, random_access=random_access), self, path))


class CountingFile:
    """A file of WrittenBytes."""

    def __init__(self, file: DiskFile, disk: WrittenBytes, path: str) -> None:
        self._file, self._disk, self._path = file, disk, path.removesuffix(".tmp")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write_at(self, data: bytes, position: int) -> None:
        self._disk.written[self._path] += len(data)
        self._file.write_at(data, position)

    def sync(self, *, site: str = "") -> None:
        self._disk.sync_count += 1
        self._file.sync(site=site)


async def test_topics_made_one_after_the_other_cost_no_table_each(case_count: Callable[..., int]) -> None:
    """The tables are written a few times for all of them: their bytes grow with the topics, not with their square."""
    count = case_count(quick=4_000, soak=20_000)
    disk = WrittenBytes()
    parts = await open_parts(disk, Clock())
    disk.written.clear()
    for number in range(count):
        await parts.topics.auto_create(f"Topic{number:05d}", default_topic="TBW102", queue_count=4)
    await parts.topics.close()
    table_bytes = len(parts.disk.read(TOPICS_PATH)) + len(parts.disk.read(CONFIG.incarnation_path))
    assert sum(disk.written[path] for path in (TOPICS_PATH, CONFIG.incarnation_path)) < 4 * table_bytes
    assert disk.written[CONFIG.topic_births_path] < 2 * table_bytes
    assert len(on_disk(parts)) == count + 1
    assert born_on_disk(parts) == {}, "a clean stop leaves all of it where Apache RocketMQ looks"
    await parts.close()


async def test_topics_made_together_share_their_writes() -> None:
    disk = WrittenBytes()
    parts = await open_parts(disk, Clock())
    disk.sync_count = 0
    await asyncio.gather(
        *(parts.topics.auto_create(f"T{number}", default_topic="TBW102", queue_count=4) for number in range(900))
    )
    assert len(parts.topics) == 901
    assert disk.sync_count <= 3
    disk.sync_count = 0
    await asyncio.gather(
        *(parts.topics.update(TopicConfig(topic_name=f"T{number}", perm=4), {}) for number in range(900))
    )
    assert {parts.topics.configs()[f"T{number}"].perm for number in range(900)} == {4}
    assert disk.sync_count <= 6
    await parts.close()


@pytest.fixture(autouse=True)
def many_births(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A birth is one of many here, but in the test that is about a few."""
    if request.function is not test_tables_have_the_first_few_topics_before_these_appear:
        monkeypatch.setattr(topic_table, "SINGLE_BIRTHS_MAX", 0)


async def test_tables_have_the_first_few_topics_before_these_appear(parts: Parts) -> None:
    for number in range(topic_table.SINGLE_BIRTHS_MAX - 1):  # the model's is one, too
        await parts.topics.auto_create(f"T{number}", default_topic="TBW102", queue_count=4)
        assert f"T{number}" in on_disk(parts)
        assert born_on_disk(parts) == {}
    for number in range(2):
        await parts.topics.auto_create(f"Many{number}", default_topic="TBW102", queue_count=4)
    assert "Many1" not in on_disk(parts)
    assert "Many1" in born_on_disk(parts)


async def test_tables_follow_the_births_while_the_broker_runs(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_table, "FOLD_AFTER_S", 0.0)
    folded = asyncio.Event()
    save = parts.persister.save

    async def tell(name: str) -> None:
        await save(name)
        if name == JOURNAL_NAME and not born_on_disk(parts):
            folded.set()

    monkeypatch.setattr(parts.persister, "save", tell)
    await parts.topics.auto_create("T", default_topic="TBW102", queue_count=4)
    await asyncio.wait_for(folded.wait(), 30)
    assert "T" in on_disk(parts)


async def killed(parts: Parts) -> Parts:
    """The parts of the next process, when this one was killed: nothing was folded."""
    parts.store.before_promise = lambda: None
    await parts.persister.close()
    parts.store.close()
    return await open_parts(parts.disk, parts.clock)


async def test_topics_created_and_changed_since_survive_a_kill(parts: Parts) -> None:
    for name in ("Made", "Changed", "Deleted", "Again"):
        await parts.topics.auto_create(name, default_topic="TBW102", queue_count=4)
    await parts.topics.update(TopicConfig(topic_name="Changed", perm=4), {})
    await parts.topics.delete("Deleted")
    await parts.topics.delete("Again")
    await parts.topics.auto_create("Again", default_topic="TBW102", queue_count=2)
    await parts.topics.auto_create("Last", default_topic="TBW102", queue_count=4)
    ids = {name: parts.topics.incarnation(name) for name in ("Made", "Changed", "Deleted", "Again", "Last")}
    put(parts, "Last")
    again = await killed(parts)
    assert {name: again.topics.incarnation(name) for name in ids} == ids
    assert set(again.topics) == {"TBW102", "Made", "Changed", "Again", "Last"}
    changed, made_again = again.topics.get("Changed"), again.topics.get("Again")
    assert changed is not None
    assert made_again is not None
    assert (changed.perm, made_again.write_queue_nums) == (4, 2)
    assert again.store.queues.find("Last", 0) is not None
    assert born_on_disk(again) == {}, "the start has folded them"
    assert "Last" in on_disk(again)
    await again.close()
    parts.persister, parts.store, parts.topics = again.persister, again.store, again.topics


async def test_a_torn_line_is_the_end_of_the_births(parts: Parts) -> None:
    await parts.topics.auto_create("Whole", default_topic="TBW102", queue_count=4)
    await parts.topics.auto_create("Torn", default_topic="TBW102", queue_count=4)
    file = parts.disk.open(CONFIG.topic_births_path)
    file.truncate(file.size_bytes - 5)
    file.close()
    again = await killed(parts)
    assert set(again.topics) == {"TBW102", "Whole"}
    await again.close()
    parts.persister, parts.store, parts.topics = again.persister, again.store, again.topics


async def test_a_snapshot_of_the_state_has_topics_that_the_tables_lack(parts: Parts) -> None:
    await parts.topics.auto_create("Fresh", default_topic="TBW102", queue_count=4)
    ends = QueueEnds(log_offset=0, topics={})
    captured = StateCapture(parts.disk, CONFIG, clock=parts.clock).capture(ends, popped=())
    assert captured.documents["topics.json"]["topicConfigTable"]["Fresh"]["writeQueueNums"] == 4
    assert captured.last_incarnation == parts.topics.incarnation("Fresh").id
    assert [state.incarnation for state in captured.topics if state.topic == "Fresh"] == [captured.last_incarnation]


async def test_a_topic_requested_twice_at_once_is_created_once(parts: Parts) -> None:
    first, second = await asyncio.gather(
        parts.topics.auto_create("T", default_topic="TBW102", queue_count=4),
        parts.topics.ensure("T", queue_count=1),
    )
    assert first == second == parts.topics.get("T")
    assert len(parts.notices) == 1


async def test_a_caller_that_gives_up_does_not_stop_the_others(parts: Parts) -> None:
    caller = asyncio.ensure_future(parts.topics.auto_create("T", default_topic="TBW102", queue_count=4))
    await asyncio.sleep(0)
    other = asyncio.ensure_future(parts.topics.auto_create("T", default_topic="TBW102", queue_count=4))
    await asyncio.sleep(0)
    caller.cancel()
    assert await other is not None
    assert parts.topics.get("T") is not None


async def test_every_change_raises_the_version(parts: Parts) -> None:
    versions = [parts.topics.data_version.counter]
    await parts.topics.auto_create("T", default_topic="TBW102", queue_count=4)
    versions.append(parts.topics.data_version.counter)
    await parts.topics.update(TopicConfig(topic_name="T", perm=4), {})
    versions.append(parts.topics.data_version.counter)
    await parts.topics.delete("T")
    versions.append(parts.topics.data_version.counter)
    assert versions == sorted(set(versions))


async def test_an_update_without_a_change_changes_nothing(parts: Parts) -> None:
    config = TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)
    assert await parts.topics.update(config, {"+message.type": "FIFO"})
    version = parts.topics.data_version
    assert not await parts.topics.update(config, {})
    assert parts.topics.data_version == version
    present = parts.topics.get("T")
    assert present is not None
    assert present.attributes == {"message.type": "FIFO"}
    with pytest.raises(InvalidRequestError, match="unsupported key"):
        await parts.topics.update(config, {"+no.such": "1"})
    assert parts.topics.data_version == version


async def test_order_topics_are_marked(parts: Parts) -> None:
    await parts.topics.ensure("%RETRY%g", queue_count=1)
    await parts.topics.ensure("%RETRY%g", queue_count=1, order=True)
    assert parts.topics.is_order_topic("%RETRY%g")
    await parts.topics.update(TopicConfig(topic_name="T"), {})
    await parts.topics.set_order(["T", "no such topic"])
    assert parts.topics.is_order_topic("T")
    again = await parts.reopen()
    assert again.topics.is_order_topic("T")
    await again.close()
    parts.persister, parts.store = again.persister, again.store


# -- deleting ----------------------------------------------------------------------------------------------------------


async def test_a_deleted_topic_that_is_made_again_starts_clean(parts: Parts) -> None:
    await parts.topics.auto_create("T", default_topic="TBW102", queue_count=4)
    old = put(parts, "T")
    first = parts.topics.incarnation("T")
    await parts.topics.delete("T")
    assert parts.topics.get("T") is None
    assert "T" not in on_disk(parts)
    assert parts.notices[-1] == ("T", None)
    assert parts.store.queues.find("T", 0) is None
    await parts.topics.auto_create("T", default_topic="TBW102", queue_count=4)
    new = put(parts, "T")
    second = parts.topics.incarnation("T")
    assert second.id > first.id
    assert not parts.store.incarnations.is_live("T", old)
    assert parts.store.incarnations.is_live("T", new)
    queue = parts.store.queues.find("T", 0)
    assert queue is not None
    assert queue.next_offset == 1


async def test_a_topic_that_is_made_again_after_its_deletion_failed_starts_clean(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full, an operator deletes the topic, and a producer goes on."""
    await parts.topics.auto_create("T", default_topic="TBW102", queue_count=4)
    put(parts, "T")
    with monkeypatch.context() as patch:
        patch.setattr(parts.disk, "rename", no_room)
        with pytest.raises(UnavailableError):
            await parts.topics.delete("T")
    assert parts.topics.is_ending("T")
    await parts.topics.auto_create("T", default_topic="TBW102", queue_count=4)
    assert not parts.topics.is_ending("T")
    assert parts.store.queues.find("T", 0) is None, "else the deleted message is read again"
    put(parts, "T")
    again = await parts.reopen()
    queue = again.store.queues.find("T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.next_offset) == (0, 1)
    await again.close()
    parts.persister, parts.store, parts.topics = again.persister, again.store, again.topics


def no_room(source: str, target: str) -> None:
    raise DiskFullError("no room left on the disk", path=target)


async def test_deleting_and_making_at_once_keeps_the_new_messages(parts: Parts) -> None:
    for _ in range(20):
        await parts.topics.auto_create("T", default_topic="TBW102", queue_count=4)
        put(parts, "T")
        deleting = asyncio.ensure_future(parts.topics.delete("T"))
        await asyncio.sleep(0)
        config = await parts.topics.auto_create("T", default_topic="TBW102", queue_count=4)
        if parts.topics.get("T") is None:
            await deleting
            continue
        assert config is not None
        put(parts, "T")
        await deleting
        queue = parts.store.queues.find("T", 0)
        assert queue is not None
        assert queue.next_offset == 1


async def test_a_deletion_cut_between_its_two_files_is_finished_at_the_next_start(parts: Parts) -> None:
    await parts.topics.auto_create("T", default_topic="TBW102", queue_count=4)
    parts.store.incarnations.delete("T")
    await parts.persister.save("topicIncarnation")
    again = await parts.reopen()
    assert again.topics.get("T") is None
    assert await again.topics.auto_create("T", default_topic="TBW102", queue_count=4) is not None
    await again.close()
    parts.persister, parts.store = again.persister, again.store


async def test_a_file_that_cannot_be_read_stops_the_start(parts: Parts) -> None:
    with pytest.raises(CorruptDataError):
        parts.topics.load(b"{not json")


# -- time to live ------------------------------------------------------------------------------------------------------


async def test_the_cut_is_the_time_to_live_counted_back_from_now(parts: Parts) -> None:
    await parts.topics.update(TopicConfig(topic_name="T"), {"+thermocline.ttl.ms": "60000"})
    assert parts.topics.expired_before("T") == parts.clock.now_ms - 60_000
    parts.clock.now_ms += 5_000
    assert parts.topics.expired_before("T") == parts.clock.now_ms - 60_000
    assert parts.topics.time_to_live_ms("T") == 60_000
    await parts.topics.update(TopicConfig(topic_name="U"), {})
    assert parts.topics.expired_before("U") == 0


async def test_expired_messages_never_become_visible(parts: Parts) -> None:
    await parts.topics.update(TopicConfig(topic_name="T"), {"+thermocline.ttl.ms": "60000"})
    cut = parts.topics.expired_before("T")
    await parts.topics.update(TopicConfig(topic_name="T"), {"+thermocline.ttl.ms": str(HOUR_MS)})
    assert parts.topics.expired_before("T") == cut
    await parts.topics.update(TopicConfig(topic_name="T"), {"-thermocline.ttl.ms": ""})
    assert parts.topics.expired_before("T") == cut
    again = await parts.reopen()
    assert again.topics.expired_before("T") == cut
    again.clock.now_ms -= 500_000  # a clock that is set back changes nothing
    assert again.topics.expired_before("T") == cut
    await again.close()
    parts.persister, parts.store = again.persister, again.store


async def test_messages_that_expired_by_the_old_default_stay_expired() -> None:
    clock = Clock()
    parts = await open_parts(SimulatedDisk(), clock, message_ttl_ms=HOUR_MS)
    await parts.topics.update(TopicConfig(topic_name="T"), {})
    await parts.topics.update(TopicConfig(topic_name="Own"), {"+thermocline.ttl.ms": "60000"})
    assert parts.topics.expired_before("T") == clock.now_ms - HOUR_MS
    assert parts.topics.expired_before("TBW102") == 0  # a system topic
    cut = clock.now_ms - HOUR_MS
    parts = await parts.reopen(message_ttl_ms=5 * HOUR_MS)
    assert parts.topics.expired_before("T") == cut
    assert parts.topics.incarnation("Own").expired_before_ms == 0
    clock.now_ms += 10 * HOUR_MS
    assert parts.topics.expired_before("T") == clock.now_ms - 5 * HOUR_MS
    cut = clock.now_ms - 5 * HOUR_MS
    parts = await parts.reopen()  # no default any more
    assert parts.topics.expired_before("T") == cut
    parts = await parts.reopen()
    assert parts.topics.expired_before("T") == cut
    await parts.close()


@pytest.mark.parametrize("seed", range(8))
async def test_no_change_of_the_time_to_live_lowers_the_cut(seed: int) -> None:
    """Over changes of a topic's TTL and of the default, with time passing: the cut is the furthest that any reached."""
    random = Random(seed)
    clock = Clock()
    default_ms = random.choice([0, HOUR_MS])
    parts = await open_parts(SimulatedDisk(), clock, message_ttl_ms=default_ms)
    await parts.topics.update(TopicConfig(topic_name="T"), {})
    own_ms, reached_ms = -1, 0
    for _ in range(12):
        clock.now_ms += random.choice([1, 60_000, 5 * HOUR_MS])
        ttl_ms = default_ms if own_ms == -1 else own_ms
        reached_ms = max(reached_ms, clock.now_ms - ttl_ms if ttl_ms else 0)
        assert parts.topics.expired_before("T") == reached_ms
        if random.random() < 0.3:
            default_ms = random.choice([0, 1_000, HOUR_MS, 9 * HOUR_MS])
            parts = await parts.reopen(message_ttl_ms=default_ms)
        else:
            own_ms = random.choice([-1, 0, 1_000, HOUR_MS, 9 * HOUR_MS])
            await parts.topics.update(TopicConfig(topic_name="T"), {"+thermocline.ttl.ms": str(own_ms)})
        ttl_ms = default_ms if own_ms == -1 else own_ms
        assert parts.topics.expired_before("T") == max(reached_ms, clock.now_ms - ttl_ms if ttl_ms else 0)
    await parts.close()


async def test_a_topic_made_again_starts_without_a_cut(parts: Parts) -> None:
    await parts.topics.update(TopicConfig(topic_name="T"), {"+thermocline.ttl.ms": "60000"})
    await parts.topics.update(TopicConfig(topic_name="T"), {"+thermocline.ttl.ms": "0"})
    assert parts.topics.expired_before("T") == parts.clock.now_ms - 60_000
    await parts.topics.delete("T")
    await parts.topics.update(TopicConfig(topic_name="T"), {"+thermocline.ttl.ms": "0"})
    assert parts.topics.expired_before("T") == 0


# -- power cuts --------------------------------------------------------------------------------------------------------


async def survives_a_power_cut(seed: int, *, ignored_sites: frozenset[str] = frozenset()) -> bool:
    """Topics made, changed and deleted by random; the power goes at a random step of the disk."""
    random = Random(seed)
    disk = SimulatedDisk(ignored_sites=ignored_sites)
    clock = Clock()
    expected: dict[str, TopicConfig | None] = {}
    unsure: set[str] = set()
    parts = await open_parts(disk, clock)
    disk.cut_at_step = disk.step_count + random.randrange(1, 120)
    try:
        for _ in range(40):
            name = f"T{random.randrange(6)}"
            unsure.add(name)
            if random.random() < 0.3:
                await parts.topics.delete(name)
                expected[name] = None
            else:
                config = TopicConfig(topic_name=name, read_queue_nums=random.randrange(1, 9))
                await parts.topics.update(config, {})
                expected[name] = config
            unsure.discard(name)
    except PowerCut:
        pass
    try:
        again = await open_parts(disk.after_power_cut(random), clock)
    except CorruptDataError:
        return False
    is_kept = all(
        again.topics.get(name) == config
        and (config is not None or again.store.incarnations.is_deleted(name) or not again.topics.incarnation(name).id)
        for name, config in expected.items()
        if name not in unsure
    )
    await again.close()
    return is_kept


async def test_acknowledged_changes_survive_a_power_cut(case_count: Callable[..., int]) -> None:
    for seed in range(case_count(quick=40, soak=2_000)):
        assert await survives_a_power_cut(seed), f"seed {seed}"


@pytest.mark.parametrize("site", [*ConfigSyncSite, *JournalSyncSite])
async def test_no_sync_is_one_too_many(site: ConfigSyncSite | JournalSyncSite) -> None:
    for seed in range(400):
        if not await survives_a_power_cut(seed, ignored_sites=frozenset({site})):
            return
    pytest.fail(f"nothing is lost without the sync of the {site}")
