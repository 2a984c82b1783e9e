"""A broker's data plane over a real store: for tests of the message path, with or without a socket."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.broker.control_broker import STORE_HOST, TIMEOUT_MS, HalfFullDisk
from tests.broker.wire import Wire
from tests.clock import Clock
from thermocline.broker.assembly.messages import MessagePath
from thermocline.broker.assembly.parts import BrokerParts, make_parts
from thermocline.broker.assembly.pops import PopPath
from thermocline.broker.assembly.processors import due_processors, table_processors
from thermocline.broker.cold.cold_reads import ColdReads, NoColdTier
from thermocline.broker.cold.key_index import KeyIndex, KeyMatches, KeyQuery
from thermocline.broker.processors.messages.hot_server import HotServer
from thermocline.broker.pulls.long_polling import LongPolling
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.broker_settings import BrokerSettings
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.dispatcher import Dispatcher
from thermocline.remoting.connections.server import RemotingServer
from thermocline.remoting.records.message_record import MessageRecord, iterate_records
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import Disk
from thermocline.store.message_store import MessageStore
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.transactions.settlement import settle_commits


class ScanIndex:
    """KeyIndex by reading the whole log: what the index files would know, without their processes and hashes."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def find(self, query: KeyQuery) -> KeyMatches:
        log = self._store.commit_log
        records: list[MessageRecord] = []
        for file in log.files:
            end = min(file.end_offset, log.append_offset) - file.base_offset
            records += iterate_records(file.view, 0, max(end, 0))
        found = [
            record.physical_offset
            for record in records
            if record.topic == query.topic
            and query.key in {record.unique_key, *(record.keys or "").split(" "), record.tags}
            and query.begin_ms <= record.store_timestamp_ms <= query.end_ms
        ]
        last = records[-1] if records else None
        return KeyMatches(
            physical_offsets=found[::-1][: query.count_max],
            last_store_timestamp_ms=last.store_timestamp_ms if last else 0,
            last_physical_offset=last.physical_offset if last else 0,
        )


@dataclass(slots=True, kw_only=True)
class DataBroker:
    """The parts, and ways to ask them."""

    parts: BrokerParts
    messages: MessagePath
    pop: PopPath
    dispatcher: Dispatcher
    long_polling: LongPolling
    clock: Clock
    port: int
    connections: list[ClientConnection] = field(default_factory=list)

    @property
    def hot(self) -> HotServer:
        return self.messages.hot

    @property
    def store(self) -> MessageStore:
        return self.parts.base.store

    def change_config(self, **settings: Any) -> None:
        """Let the running broker have other settings."""
        self.parts.base.settings.broker = dataclasses.replace(self.parts.base.settings.broker, **settings)

    def use_random(self, source: Any) -> None:
        """Put something in the place of chance; before anything is sent."""
        self.parts.base.random = source
        self.use_index(ScanIndex(self.store))

    def use_index(self, index: KeyIndex) -> None:
        """Put the data plane together anew, over this index; without a socket."""
        self.messages = self.parts.make_message_path(key_index=index, long_polling=self.long_polling)
        self.dispatcher = Dispatcher(
            [*self.messages.processors, *self.pop.processors],
            on_closed=[self.messages.connection_closed, self.pop.connection_closed],
        )

    async def connect(self, handler: Any = None) -> ClientConnection:
        connection = await ClientConnection.open(f"127.0.0.1:{self.port}", handler=handler)
        self.connections.append(connection)
        return connection

    async def ask(self, command: RemotingCommand, connection: ClientConnection | None = None) -> RemotingCommand:
        if connection is None:
            connection = self.connections[0] if self.connections else await self.connect()
        return await connection.call(command, timeout_ms=TIMEOUT_MS)

    async def ask_wire(self, code: int, **fields: Any) -> RemotingCommand:
        """Ask without a socket, by ordinary code; `fields` beside a topic and queue 0."""
        wire = Wire(self.dispatcher)
        ext_fields = {name: str(value) for name, value in ({"topic": "TopicA", "queueId": 0} | fields).items()}
        wire.receive(RemotingCommand(code=code, opaque=1, ext_fields=ext_fields).encode())
        (answer,) = await wire.wait_commands()
        return answer

    async def make_topic(self, topic: str, *, queues: int = 4, attributes: str = "") -> None:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "attributes": attributes,
        }
        answer = await self.ask(RemotingCommand.request(17, ext_fields=fields))
        assert answer.code == 0, answer.remark

    def records(self) -> list[MessageRecord]:
        """Everything in the log."""
        log = self.store.commit_log
        found: list[MessageRecord] = []
        for file in log.files:
            found += iterate_records(file.view, 0, min(file.end_offset, log.append_offset) - file.base_offset)
        return found


@asynccontextmanager
async def data_broker(
    root: Path | str,
    *,
    clock: Clock | None = None,
    disk: Disk | None = None,
    cold: ColdReads | None = None,
    config: BrokerConfig | None = None,
    topics: Sequence[str] = (),
    start: bool = True,
    near_bytes: int | None = None,
    wrap_cold: Callable[[MessageStore], ColdReads] | None = None,
    port: int = 0,
    **store_settings: Any,
) -> AsyncIterator[DataBroker]:
    """Open, serve on a free port or on `port`, and stop cleanly. Only on the latter clients find it by routes.

    Without `start` nothing keeps time, and flushes run in place.
    """
    clock = clock or Clock()
    disk = disk or HalfFullDisk()
    config = config or BrokerConfig(listen_host="127.0.0.1")
    store_config = StoreConfig(
        root_path=str(root), **{"log_file_bytes": 1 << 20, "queue_file_bytes": 20 * 1_000, **store_settings}
    )
    store = MessageStore.open(store_config, disk=disk, clock=clock, settle=settle_commits)
    settings = BrokerSettings(broker=config, store=store_config, tier=TierConfig(), clock=clock)
    long_polling = LongPolling()
    parts = await make_parts(
        settings,
        store,
        disk=disk,
        cold=wrap_cold(store) if wrap_cold is not None else cold or NoColdTier(),
        store_host=("127.0.0.1", port) if port else STORE_HOST,
        arrived=long_polling.arrived,
        clock=clock,
        steady_clock=clock.steady,
        seed=7,
    )
    messages = parts.make_message_path(key_index=ScanIndex(store), long_polling=long_polling, near_bytes=near_bytes)
    pop = parts.make_pop_path(long_polling=long_polling, near_bytes=near_bytes)
    dispatcher = Dispatcher(
        [
            *table_processors(parts, consumer_left=pop.consumer_left),
            *due_processors(parts),
            *messages.processors,
            *pop.processors,
        ],
        on_closed=[parts.tables.clients.connection_closed, messages.connection_closed, pop.connection_closed],
    )
    server = RemotingServer(dispatcher, chunk_handler=messages.hot)
    port = await server.start("127.0.0.1", port)
    if start:
        messages.hot.start()
    broker = DataBroker(
        parts=parts,
        messages=messages,
        pop=pop,
        dispatcher=dispatcher,
        long_polling=long_polling,
        clock=clock,
        port=port,
    )
    try:
        for topic in topics:
            await parts.tables.topics.ensure(topic, queue_count=4)
        yield broker
    finally:
        for connection in broker.connections:
            connection.close()
        await server.close()
        await pop.close()
        parts.due.transactions.close()
        await messages.hot.close()
        await parts.cluster.peers.close()
        await parts.tables.persister.close()
        if parts.due.timers is not None:
            parts.due.timers.close()
        store.close()
