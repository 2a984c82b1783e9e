"""The topic table: durable before use, shared writes, deletion, and what a time to live makes invisible."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from random import Random

import pytest

from tests.simulated_disk import PowerCut, SimulatedDisk
from thermocline.broker.broker_config import BrokerConfig
from thermocline.broker.config_persister import ConfigPersister, ConfigSyncSite, load_file
from thermocline.broker.topic_table import FILE_NAME, TopicTable, decode_ttl_default
from thermocline.remoting.bodies import TopicConfig
from thermocline.remoting.errors import CorruptDataError, DiskFullError, InvalidRequestError, UnavailableError
from thermocline.remoting.json_dialect import loads
from thermocline.store.message_draft import MessageDraft
from thermocline.store.message_store import MessageStore
from thermocline.store.store_config import StoreConfig

CONFIG = StoreConfig(root_path="/store", log_file_bytes=1 << 16, queue_file_bytes=20 * 100)
TOPICS_PATH = "/store/config/topics.json"
HOUR_MS = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Parts:
    disk: SimulatedDisk
    clock: Clock
    store: MessageStore
    persister: ConfigPersister
    topics: TopicTable
    told: list[tuple[str, TopicConfig | None]]

    async def close(self) -> None:
        await self.persister.close()
        self.store.close()

    async def reopen(self, **settings: int) -> "Parts":
        await self.close()
        return await open_parts(self.disk, self.clock, **settings)


async def open_parts(disk: SimulatedDisk, clock: Clock, **settings: int) -> Parts:
    store = MessageStore.open(CONFIG, disk=disk, clock=clock)
    persister = ConfigPersister(disk)
    config = BrokerConfig(**settings)  # type: ignore[arg-type]
    topics = TopicTable(store=store, persister=persister, config=lambda: config, system_topics={"TBW102"})
    persister.register(FILE_NAME, TOPICS_PATH, topics.encode)
    persister.register("topicIncarnation", CONFIG.incarnation_path, store.incarnations.encode)
    persister.register("ttlDefault", "/store/thermocline/ttlDefault.json", topics.encode_ttl_default)
    told: list[tuple[str, TopicConfig | None]] = []
    topics.add_listener(lambda topic, config: told.append((topic, config)))
    topics.load(load_file(disk, TOPICS_PATH))
    previous = decode_ttl_default(load_file(disk, "/store/thermocline/ttlDefault.json"))
    model = TopicConfig(topic_name="TBW102", read_queue_nums=8, write_queue_nums=8, perm=7)
    await topics.boot([model], previous_ttl_default_ms=previous)
    return Parts(disk, clock, store, persister, topics, told)


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
    assert parts.told == [("T", config)]
    assert on_disk(parts)["T"] == json.loads(config.encode())
    wide = await parts.topics.auto_create("U", default_topic="TBW102", queue_count=100)
    assert wide is not None
    assert wide.write_queue_nums == 8


async def test_a_model_without_inheritance_makes_nothing(parts: Parts) -> None:
    await parts.topics.update(TopicConfig(topic_name="Plain", perm=6), {})
    assert await parts.topics.auto_create("T", default_topic="Plain", queue_count=4) is None
    assert await parts.topics.auto_create("T", default_topic="no such topic", queue_count=4) is None
    closed = await parts.reopen(auto_create_topic=False)
    assert await closed.topics.auto_create("T", default_topic="TBW102", queue_count=4) is None
    await closed.close()
    parts.persister, parts.store = closed.persister, closed.store


async def test_a_topic_appears_only_when_it_is_durable(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    seen_in_file: list[bool] = []
    parts.topics.add_listener(lambda topic, _: seen_in_file.append(topic in on_disk(parts)))
    await parts.topics.auto_create("T", default_topic="TBW102", queue_count=4)
    assert seen_in_file == [True]
    incarnation = json.loads(parts.disk.read(CONFIG.incarnation_path))["incarnationTable"]["T"]
    assert incarnation["id"] == parts.topics.incarnation("T").id > 0

    def refuse(source: str, target: str) -> None:
        raise DiskFullError("no room left on the disk", path=target)

    monkeypatch.setattr(parts.disk, "rename", refuse)
    with pytest.raises(UnavailableError):
        await parts.topics.auto_create("U", default_topic="TBW102", queue_count=4)
    assert parts.topics.get("U") is None
    monkeypatch.undo()
    assert await parts.topics.auto_create("U", default_topic="TBW102", queue_count=4) is not None
    assert "U" in on_disk(parts)


async def test_a_thousand_topics_made_together_share_their_writes(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced: list[str] = []
    rename = parts.disk.rename

    def count(source: str, target: str) -> None:
        if source.endswith(".tmp"):
            replaced.append(target)
        rename(source, target)

    monkeypatch.setattr(parts.disk, "rename", count)
    await asyncio.gather(
        *(parts.topics.auto_create(f"T{number}", default_topic="TBW102", queue_count=4) for number in range(1_000))
    )
    assert len(parts.topics) == 1_001
    assert len(on_disk(parts)) == 1_001
    assert len(replaced) <= 6
    replaced.clear()
    await asyncio.gather(
        *(parts.topics.update(TopicConfig(topic_name=f"T{number}", perm=4), {}) for number in range(1_000))
    )
    assert {parts.topics.configs()[f"T{number}"].perm for number in range(1_000)} == {4}
    assert len(replaced) <= 6


async def test_a_topic_asked_for_twice_at_once_is_made_once(parts: Parts) -> None:
    first, second = await asyncio.gather(
        parts.topics.auto_create("T", default_topic="TBW102", queue_count=4),
        parts.topics.ensure("T", queue_count=1),
    )
    assert first == second == parts.topics.get("T")
    assert len(parts.told) == 1


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
    assert parts.told[-1] == ("T", None)
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


async def test_what_has_expired_never_comes_back(parts: Parts) -> None:
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


async def test_a_change_of_the_default_fixes_what_the_old_one_had_expired() -> None:
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


async def test_what_was_acknowledged_survives_a_power_cut(case_count: Callable[..., int]) -> None:
    for seed in range(case_count(quick=40, soak=2_000)):
        assert await survives_a_power_cut(seed), f"seed {seed}"


@pytest.mark.parametrize("site", list(ConfigSyncSite))
async def test_no_sync_is_one_too_many(site: ConfigSyncSite) -> None:
    for seed in range(400):
        if not await survives_a_power_cut(seed, ignored_sites=frozenset({site})):
            return
    pytest.fail(f"nothing is lost without the sync of the {site}")
