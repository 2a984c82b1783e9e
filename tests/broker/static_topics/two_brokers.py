"""Two brokers with a static topic between them, over real stores; they reach each other without a NameServer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.broker.data_broker import DataBroker, ScanIndex, data_broker
from tests.broker.pulling import pull_fields
from thermocline.broker.assembly.processors import state_processors, table_processors
from thermocline.broker.assembly.replicas import Replicas
from thermocline.broker.cluster.peer_brokers import PeerBrokers
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.remoting.bodies import LogicQueueMappingItem, TopicQueueMappingDetail
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections.dispatcher import Dispatcher
from thermocline.remoting.connections.limit_counts import LimitCounts
from thermocline.remoting.connections.server import RemotingServer
from thermocline.remoting.errors import MQError

TOPIC = "Static"
GROUP = "group"
TIMEOUT_MS = 5_000


class Peers(PeerBrokers):
    """Brokers that are found by name in a dictionary, without a name server."""

    def __init__(self, addresses: dict[str, str]) -> None:
        self.addresses = addresses
        self._connections: dict[str, ClientConnection] = {}

    async def call(
        self, broker_name: str, command: RemotingCommand, *, timeout_ms: int | None = None
    ) -> RemotingCommand:
        if broker_name not in self.addresses:
            raise MQError(f"cannot find addr for broker {broker_name}")
        connection = self._connections.get(broker_name)
        if connection is None:
            connection = self._connections[broker_name] = await ClientConnection.open(self.addresses[broker_name])
        return await connection.call(command, timeout_ms=timeout_ms or TIMEOUT_MS)

    async def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def item(gen: int, broker: str, logic_offset: int, *, queue_id: int = 0) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(gen=gen, broker_name=broker, logic_offset=logic_offset, queue_id=queue_id)


@dataclass(slots=True)
class Side:
    """One broker, served whole as far as static topics reach."""

    name: str
    broker: DataBroker
    server: RemotingServer
    port: int
    connections: list[ClientConnection] = field(default_factory=list)

    async def ask(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> RemotingCommand:
        if not self.connections:
            self.connections.append(await ClientConnection.open(f"127.0.0.1:{self.port}"))
        named = {name: str(value) for name, value in (fields or {}).items() if value is not None}
        command = RemotingCommand.request(code, ext_fields=named, body=body)
        return await self.connections[0].call(command, timeout_ms=TIMEOUT_MS)

    async def map(
        self,
        queues: dict[int, list[LogicQueueMappingItem]],
        *,
        epoch: int = 1,
        queue_count: int = 4,
        total: int = 2,
        force: bool = False,
    ) -> RemotingCommand:
        """Tell the broker its mapping (513)."""
        detail = TopicQueueMappingDetail(
            topic=TOPIC, broker_name=self.name, epoch=epoch, total_queues=total, hosted_queues=queues
        )
        fields = {
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "readQueueNums": queue_count,
            "writeQueueNums": queue_count,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
            "force": "true" if force else "false",
        }
        return await self.ask(513, fields, detail.encode())

    async def send(self, queue_id: int = 0, *, body: bytes = b"body", **fields: Any) -> RemotingCommand:
        names = {
            "a": "producers",
            "b": TOPIC,
            "c": "TBW102",
            "d": 8,
            "e": queue_id,
            "f": 0,
            "g": 1_700_000_000_000,
            "h": 0,
            "i": "TAGS\x01A\x02",
            "j": 0,
            "k": "false",
            "m": "false",
        }
        return await self.ask(310, names | fields, body)

    async def pull(self, offset: int, *, queue_id: int = 0, **fields: Any) -> RemotingCommand:
        named = pull_fields(offset, consumerGroup=GROUP, topic=TOPIC, queueId=queue_id, **fields)
        return await self.ask(11, named)

    async def offset(self, code: int, *, queue_id: int = 0, **fields: Any) -> int:
        answer = await self.ask(code, {"topic": TOPIC, "queueId": queue_id} | fields)
        assert answer.code == 0, answer.remark
        assert answer.ext_fields is not None
        return int(answer.ext_fields.get("offset", answer.ext_fields.get("timestamp", "")))

    async def committed(self, *, queue_id: int = 0, **fields: Any) -> int | None:
        named = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id, "setZeroIfNotFound": "false"}
        answer = await self.ask(14, named | fields)
        if answer.code == 22:
            return None
        assert answer.code == 0, answer.remark
        assert answer.ext_fields is not None
        return int(answer.ext_fields["offset"])

    async def commit(self, offset: int, *, queue_id: int = 0) -> RemotingCommand:
        named = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id, "commitOffset": offset}
        return await self.ask(15, named)


@dataclass(frozen=True, slots=True)
class TwoBrokers:
    a: Side
    b: Side
    peers: Peers


@asynccontextmanager
async def two_brokers(root: Path, **settings: Any) -> AsyncIterator[TwoBrokers]:
    """Brokers `a` and `b`; nothing is mapped yet."""
    peers = Peers({})
    async with AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(one_broker(root / name, name, peers, **settings)) for name in "ab"]
        peers.addresses |= {side.name: f"127.0.0.1:{side.port}" for side in sides}
        stack.push_async_callback(peers.close)
        yield TwoBrokers(*sides, peers)


async def no_retention() -> None:
    """Nothing is deleted."""


@asynccontextmanager
async def one_broker(root: Path, name: str, peers: Peers, **settings: Any) -> AsyncIterator[Side]:
    config = BrokerConfig(listen_host="127.0.0.1", broker_name=name)
    async with data_broker(root, config=config, start=False, **settings) as broker:
        parts = broker.parts
        parts.cluster.peers = peers
        messages = parts.make_message_path(key_index=ScanIndex(broker.store), long_polling=broker.long_polling)
        broker.messages = messages
        state = state_processors(
            parts,
            run_retention=no_retention,
            delete_expired=no_retention,
            ha_runtime_info=Replicas(
                parts.base.settings, broker.store, disk=parts.base.disk, limits=LimitCounts()
            ).runtime_info,
            owns_ledger=lambda: False,
            has_claimed=lambda: False,
            waiting_offset=lambda: None,
            dispatch_behind_bytes=lambda: 0,
        )
        dispatcher = Dispatcher(
            [*table_processors(parts), *state, *messages.processors], on_closed=[messages.connection_closed]
        )
        server = RemotingServer(dispatcher, chunk_handler=messages.hot)
        port = await server.start("127.0.0.1", 0)
        side = Side(name, broker, server, port)
        messages.hot.start()
        try:
            yield side
        finally:
            for connection in side.connections:
                connection.close()
            await server.close()
            await messages.hot.close()
