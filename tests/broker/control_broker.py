"""A broker's control plane over a real store and real sockets, without the data plane: for tests of this folder."""

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clock import Clock
from thermocline.broker.assembly.housekeeping import Housekeeping
from thermocline.broker.assembly.parts import BrokerParts, make_parts
from thermocline.broker.assembly.processors import due_processors, state_processors, table_processors
from thermocline.broker.assembly.recurring import make_housekeeping
from thermocline.broker.assembly.replicas import Replicas
from thermocline.broker.cold.cold_reads import ColdReads, NoColdTier
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.broker_settings import BrokerSettings
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.connection import Connection
from thermocline.remoting.connections.dispatcher import Dispatcher
from thermocline.remoting.connections.limit_counts import LimitCounts
from thermocline.remoting.connections.server import RemotingServer
from thermocline.remoting.language_code import LanguageCode
from thermocline.remoting.records.properties import encode_properties
from thermocline.store.config.store_config import StoreConfig
from thermocline.store.files.disk import Disk, RealDisk
from thermocline.store.log.message_draft import MessageDraft, PutResult
from thermocline.store.message_store import MessageStore
from thermocline.store.queues.consume_queue import ConsumeQueue
from thermocline.tiered.budgets.tier_config import TierConfig
from thermocline.transactions.settlement import settle_commits

TIMEOUT_MS = 5_000
STORE_HOST = ("127.0.0.1", 10911)
RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("recorded_dialogues.json").read_text())


def recorded(code: int, source: str = "", *, answer_code: int | None = None) -> dict[str, Any]:
    """One recorded exchange with the official broker."""
    return next(
        item
        for item in RECORDED
        if item["code"] == code and source in item["source"] and answer_code in (None, item["answer"]["code"])
    )


def shape(value: Any) -> Any:
    """The members of a body, whatever their values; lists by their first item, object keys by their members."""
    if isinstance(value, dict):
        return {str(sorted(key)) if isinstance(key, dict) else str(key): shape(member) for key, member in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


class HalfFullDisk(RealDisk):
    """The file system of this machine, whose fullness decides nothing in a test."""

    def free_bytes(self, path: str) -> int:
        return 1 << 40

    def total_bytes(self, path: str) -> int:
        return 1 << 41


@dataclass(slots=True, kw_only=True)
class ControlBroker:
    """The parts, and ways to ask them."""

    parts: BrokerParts
    housekeeping: Housekeeping
    clock: Clock
    port: int
    arrived: list[ConsumeQueue]
    retention_runs: list[str]
    connections: list[ClientConnection] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def connect(self, handler: Any = None) -> ClientConnection:
        connection = await ClientConnection.open(self.address, handler=handler)
        self.connections.append(connection)
        return connection

    async def ask(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        version: int = 513,
        language: LanguageCode = LanguageCode.JAVA,
        connection: ClientConnection | None = None,
    ) -> RemotingCommand:
        if connection is None:
            connection = self.connections[0] if self.connections else await self.connect()
        command = RemotingCommand.request(code, ext_fields=fields, body=body)
        command.version, command.language = version, language
        return await connection.call(command, timeout_ms=TIMEOUT_MS)

    async def replay(self, dialogue: dict[str, Any], **fields: str) -> RemotingCommand:
        extended = {**(dialogue["extFields"] or {}), **fields} if fields else dialogue["extFields"]
        return await self.ask(dialogue["code"], extended, dialogue["body"].encode(), version=dialogue["version"])

    async def create_topic(self, topic: str, *, queues: int = 4, attributes: str = "") -> None:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "attributes": attributes,
        }
        answer = await self.ask(17, fields)
        assert answer.code == 0, answer.remark

    def put(self, topic: str, queue_id: int = 0, body: bytes = b"hello", **properties: str) -> PutResult:
        """Store a message, in a slave's log too, as if it came from the master."""
        store = self.parts.base.store
        with store.commit_log.let_through(store.commit_log.lasting_refusal or ""):
            return store.put(
                MessageDraft(
                    topic=topic,
                    queue_id=queue_id,
                    body=body,
                    properties_text=encode_properties(properties),
                    born_timestamp_ms=self.clock(),
                    born_host=("10.0.0.7", 4711),
                )
            )


@asynccontextmanager
async def control_broker(
    root: Path | str,
    *,
    clock: Clock | None = None,
    disk: Disk | None = None,
    cold: ColdReads | None = None,
    config: BrokerConfig | None = None,
    store_host: tuple[str, int] = STORE_HOST,
    **store_settings: Any,
) -> AsyncIterator[ControlBroker]:
    """Open, serve, and stop cleanly."""
    clock = clock or Clock()
    disk = disk or HalfFullDisk()
    config = config or BrokerConfig(listen_host="127.0.0.1")
    store_config = StoreConfig(
        root_path=str(root),
        **{"log_file_bytes": 1 << 20, "queue_file_bytes": 20 * 1_000, **store_settings},
    )
    store = MessageStore.open(store_config, disk=disk, clock=clock, settle=settle_commits)
    settings = BrokerSettings(broker=config, store=store_config, tier=TierConfig(), clock=clock)
    arrived: list[ConsumeQueue] = []
    retention_runs: list[str] = []

    def note_arrived(queues: Iterable[ConsumeQueue]) -> None:
        arrived.extend(queues)

    async def run_retention() -> None:
        retention_runs.append("round")

    async def delete_expired() -> None:
        retention_runs.append("expired files")

    parts = await make_parts(
        settings,
        store,
        disk=disk,
        cold=cold or NoColdTier(),
        store_host=store_host,
        arrived=note_arrived,
        clock=clock,
        steady_clock=clock.steady,
        seed=7,
    )
    dispatcher = Dispatcher(
        [
            *table_processors(parts),
            *due_processors(parts),
            *state_processors(
                parts,
                run_retention=run_retention,
                delete_expired=delete_expired,
                ha_runtime_info=Replicas(settings, store, disk=RealDisk(), limits=LimitCounts()).runtime_info,
                owns_ledger=lambda: False,
                has_claimed=lambda: False,
                waiting_offset=lambda: None,
                dispatch_behind_bytes=lambda: 0,
            ),
        ],
        on_closed=[parts.tables.clients.connection_closed, parts.tables.proxied.connection_closed],
    )
    server = RemotingServer(dispatcher)
    port = await server.start("127.0.0.1", 0)
    broker = ControlBroker(
        parts=parts,
        housekeeping=make_housekeeping(parts),
        clock=clock,
        port=port,
        arrived=arrived,
        retention_runs=retention_runs,
    )
    try:
        yield broker
    finally:
        for connection in broker.connections:
            connection.close()
        await server.close()
        await broker.housekeeping.close()
        await parts.cluster.peers.close()
        await parts.tables.persister.close()
        if parts.due.timers is not None:
            parts.due.timers.close()
        store.close()


Handler = Callable[[Connection, RemotingCommand], RemotingCommand | None]


class Client:
    """A client that answers the broker's requests with a function, and remembers them."""

    def __init__(self, answer: Handler | None = None) -> None:
        self.requests: list[RemotingCommand] = []
        self._answer = answer

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        self.requests.append(command)
        return None if self._answer is None else self._answer(connection, command)

    def connection_opened(self, connection: Connection) -> None:
        """Nothing to note."""

    def connection_closed(self, connection: Connection) -> None:
        """Nothing to note."""
