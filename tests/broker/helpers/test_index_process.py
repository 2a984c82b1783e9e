"""IndexRole over a real store, page and socket: it follows the log, answers, and checkpoints in its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.store.store_parts import draft, open_store, small_config
from tests.waiting import until
from thermocline.broker.cold.key_index import KeyQuery
from thermocline.broker.helpers import index_process
from thermocline.broker.helpers.helper_hub import HelperHub
from thermocline.broker.helpers.helper_process import HelperOptions
from thermocline.broker.helpers.helper_protocol import INDEX_ROLE, HelloReply, HelperRequestCode, IndexQueryRequest
from thermocline.broker.helpers.index_link import IndexLink
from thermocline.broker.helpers.shared_page import SharedPage
from thermocline.broker.process.build_id import current_build_id
from thermocline.remoting.connections.server import RemotingServer
from thermocline.remoting.errors import MQError
from thermocline.store.files.disk import RealDisk
from thermocline.store.message_store import MessageStore
from thermocline.tiered.budgets.tier_config import TierConfig

TOPIC = "orders"
GENERATION = 3
NEVER_MS = 1 << 40


@dataclass(frozen=True, slots=True)
class Hot:
    """The hot process's end: a store, and the link to the index."""

    store: MessageStore
    page: SharedPage
    hub: HelperHub
    index: IndexLink
    socket_path: str
    page_path: Path

    def put(self, *keys: str) -> None:
        for key in keys:
            self.store.put(draft(TOPIC, properties=b"KEYS\x01%s\x02" % key.encode()))

    async def flushed(self) -> int:
        log = self.store.commit_log
        log.flush()
        self.page.publish(append_offset=log.append_offset, flush_offset=log.flush_offset, min_offset=log.min_offset)
        return log.flush_offset

    async def find(self, key: str) -> list[int]:
        query = KeyQuery(topic=TOPIC, key=key, index_type="K", begin_ms=0, end_ms=1 << 50, count_max=10)
        return (await self.index.find(query)).physical_offsets


@pytest.fixture
async def hot(tmp_path: Path) -> AsyncIterator[Hot]:
    store = open_store(RealDisk(), small_config(str(tmp_path / "store")))
    page_path, socket_path = tmp_path / "page", str(tmp_path / "socket")
    page = SharedPage.create(page_path, generation=GENERATION, build_id=current_build_id())
    settings = HelloReply(
        store=store.config, tier=TierConfig(), store_uuid="u", cluster_name="C", broker_name="b", was_clean=True
    )
    hub = HelperHub(generation=GENERATION, build_id=current_build_id(), settings=settings)
    found: list[Hot] = []
    index = IndexLink(hub, flushed=lambda: found[0].flushed(), timeout_ms=60_000)
    found.append(Hot(store, page, hub, index, socket_path, page_path))
    server = RemotingServer(hub)
    await server.start_unix(socket_path)
    await found[0].flushed()
    yield found[0]
    await server.close()
    page.close()
    store.close()


@asynccontextmanager
async def serving(hot: Hot) -> AsyncIterator[asyncio.Event]:
    """The index process's work, in a task of this one. The event stops it."""
    stop = asyncio.Event()
    options = HelperOptions(parent_pid=0, socket_path=hot.socket_path, page_path=hot.page_path)
    async with AsyncExitStack() as resources:
        task = asyncio.create_task(index_process.serve(options, stop))
        resources.push_async_callback(asyncio.wait_for, task, 30)
        resources.callback(stop.set)
        await until(lambda: hot.hub.is_connected(INDEX_ROLE) or task.done())
        yield stop
    assert not hot.hub.is_connected(INDEX_ROLE) or await is_gone(hot)


async def is_gone(hot: Hot) -> bool:
    await until(lambda: not hot.hub.is_connected(INDEX_ROLE))
    return True


async def test_a_query_waits_for_the_records_before_it(hot: Hot, monkeypatch: pytest.MonkeyPatch) -> None:
    """However seldom the log is looked at."""
    monkeypatch.setattr(index_process, "IDLE_MS", NEVER_MS)
    monkeypatch.setattr(index_process, "LONG_IDLE_MS", NEVER_MS)
    hot.put("a", "b", "a")
    ends = [record.physical_offset for record in (hot.store.read_record(each) for each in offsets(hot))]
    async with serving(hot):
        assert await hot.find("a") == [ends[2], ends[0]]
        hot.put("c")
        assert await hot.find("c") == [offsets(hot)[3]]
        assert await hot.find("none") == []


def offsets(hot: Hot) -> list[int]:
    queue = hot.store.queues.find(TOPIC, 0)
    assert queue is not None
    return [queue.unit(number).physical_offset for number in range(queue.next_offset)]


async def test_no_checkpoint_before_its_time(hot: Hot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_process, "CHECKPOINT_MS", NEVER_MS)
    hot.put("a")
    async with serving(hot):
        for key in ("b", "c"):  # a round between two queries is a whole one
            hot.put(key)
            assert await hot.find(key)
        assert hot.index.durable_offset == 0


async def test_what_is_indexed_becomes_durable_and_is_reported(hot: Hot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_process, "CHECKPOINT_MS", 0)
    monkeypatch.setattr(index_process, "IDLE_MS", 1)
    async with serving(hot):
        for key in ("a", "b"):
            hot.put(key)
            end = await hot.flushed()
            await until(lambda end=end: hot.index.durable_offset == end)  # type: ignore[misc]
        assert hot.index.index_timestamp_ms == 0, "its only file is not full"
        hot.put(*[f"k{number}" for number in range(hot.store.config.index_entry_count)])
        end = await hot.flushed()
        await until(lambda: hot.index.durable_offset == end)
        assert hot.index.index_timestamp_ms == hot.store.read_record(0).store_timestamp_ms
    monkeypatch.setattr(index_process, "CHECKPOINT_MS", NEVER_MS)
    async with serving(hot):
        await until(lambda: hot.index.durable_offset == end)
        assert await hot.find("a")


async def test_it_ends_when_it_is_stopped_or_the_hot_process_is_gone(hot: Hot) -> None:
    for cause in ("stop", "gone"):
        async with serving(hot) as stop:
            if cause == "stop":
                stop.set()
            else:
                hot.hub._disconnect(INDEX_ROLE)
                await until(stop.is_set)


async def test_another_request_is_refused(hot: Hot) -> None:
    async with serving(hot):
        query = KeyQuery(topic=TOPIC, key="a", index_type="K", begin_ms=0, end_ms=1, count_max=1)
        with pytest.raises(MQError):
            await hot.hub.ask(
                INDEX_ROLE,
                HelperRequestCode.TIER_REPORT,
                IndexQueryRequest(query=query, up_to_offset=0),
                timeout_ms=10_000,
            )
