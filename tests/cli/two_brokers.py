"""Two real brokers with two real NameServers as processes, which can be frozen; and a broker that is down.

`broker-a` works. `broker-b` is frozen by SIGSTOP: connections to it are made, nothing is answered. `broker-c` is only
registered: nothing listens at its address.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from tests.docs.command_lines import Daemon
from tests.waiting import wait_until
from thermocline.cli.main import run
from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.blocking import BackgroundLoop
from thermocline.client.message_queue import MessageQueue
from thermocline.remoting.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from thermocline.remoting.clients.client import ClientConnection
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import close_all
from thermocline.remoting.errors import MQError
from thermocline.remoting.headers import RegisterBrokerRequestHeader
from thermocline.remoting.request_code import RequestCode

FREE = "127.0.0.1:0"
NEVER_MS = 3_600_000
"""NameServers keep a frozen broker so long, however slow the machine is."""
SETTINGS = (
    "coldSealAgeMs=3600000",
    "mappedFileSizeCommitLog=16777216",
    "recallMessageEnable=true",
    "autoCreateTopicEnable=false",
    "traceTopicEnable=true",
)


@dataclass(kw_only=True)
class TwoBrokers:
    """The processes, and where they are."""

    name_servers: list[Daemon]
    brokers: list[Daemon]
    addresses: dict[str, str]
    namesrv: str
    namesrv_addresses: list[str]
    held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @contextlib.contextmanager
    def frozen(self, daemon: Daemon) -> Iterator[None]:
        """Stop a process where it is, and let it go on afterwards."""
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            daemon.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def two_brokers(folder: Path, *, topics: Sequence[str], settings: Sequence[str] = ()) -> Iterator[TwoBrokers]:
    """Start everything, brokers with `settings` besides; `broker-c` is registered with `topics`, which it does not
    serve."""
    with contextlib.ExitStack() as stack:

        def start(name: str, words: list[str]) -> tuple[Daemon, dict[str, str]]:
            (folder / name).mkdir()
            daemon = Daemon(words, folder / name)
            stack.callback(daemon.stop)
            return daemon, daemon.ready()

        expiry = ["--broker-expiry-ms", str(NEVER_MS)]
        started = [start(f"namesrv-{i}", ["namesrv", "--listen", FREE, *expiry]) for i in range(2)]
        namesrv_addresses = [ready["namesrv"] for _, ready in started]
        namesrv = ";".join(namesrv_addresses)
        brokers, addresses = [], {}
        for name in ("broker-a", "broker-b"):
            words = ["broker", "--name", name, "--namesrv", namesrv, "--listen", FREE, "--data", "data"]
            words += ["--cold", f"file://{folder}/cold"]
            for setting in (*SETTINGS, *settings):
                words += ["--set", setting]
            daemon, ready = start(name, words)
            brokers.append(daemon)
            addresses[name] = ready["broker"]
        down = stack.enter_context(socket.socket())
        down.bind(("127.0.0.1", 0))  # and does not listen
        addresses["broker-c"] = f"127.0.0.1:{down.getsockname()[1]}"
        cluster = TwoBrokers(
            name_servers=[daemon for daemon, _ in started],
            brokers=brokers,
            addresses=addresses,
            namesrv=namesrv,
            namesrv_addresses=namesrv_addresses,
            held=stack,
        )
        with AdminClient(namesrv=namesrv) as admin:
            for topic in topics:
                admin.create_topic(topic, queue_nums=1)
            wait_for(lambda: all(len(admin.topic_route(topic).brokers) == 2 for topic in topics))
        yield cluster


def register_down_broker(cluster: TwoBrokers, topics: Sequence[str]) -> None:
    """Have the NameServers route to `broker-c` too, until the cluster ends."""
    loop = BackgroundLoop(name="broker that is down")
    loop.start()
    connections: list[ClientConnection] = []

    async def leave() -> None:
        await close_all(connections, timeout_ms=1_000)

    cluster.held.callback(lambda: (loop.run(leave()), loop.close()))
    wrapper = TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=1, timestamp=1),
        topic_config_table={name: TopicConfig(topic_name=name, read_queue_nums=1) for name in topics},
    )
    header = RegisterBrokerRequestHeader(
        broker_name="broker-c",
        broker_addr=cluster.addresses["broker-c"],
        cluster_name="DefaultCluster",
        broker_id=0,
    )
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()

    async def register(address: str) -> None:
        connection = await ClientConnection.open(address)  # once it closes, the NameServer forgets the broker
        connections.append(connection)
        await connection.request(
            RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body=body), timeout_ms=60_000
        )

    for address in cluster.namesrv_addresses:
        loop.run(register(address))


def wait_for(condition: Any) -> None:
    """Until it holds; an MQError means "not yet"."""

    def holds() -> bool:
        try:
            return bool(condition())
        except MQError:
            return False

    wait_until(holds, what="the condition holds", interval_s=0.02)


# -- commands side by side ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command wrote."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        """Its stdout, which is one JSON value."""
        return json.loads(self.out)


class _PerThread:
    """A standard stream that keeps apart what threads write."""

    def __init__(self) -> None:
        self._local = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.buffer_of_thread(), name)

    def buffer_of_thread(self) -> StringIO:
        buffer: StringIO | None = getattr(self._local, "buffer", None)
        if buffer is None:
            buffer = self._local.buffer = StringIO()
        return buffer

    def drain(self) -> str:
        text = self.buffer_of_thread().getvalue()
        self._local.buffer = StringIO()
        return text


def run_all(commands: dict[str, Sequence[str]]) -> dict[str, Outcome]:
    """Run command lines in this process, all at once: each waits for the same frozen broker."""
    out, err = _PerThread(), _PerThread()

    def one(words: Sequence[str]) -> Outcome:
        status = run(words)
        return Outcome(status=status, out=out.drain(), err=err.drain())

    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err  # type: ignore[assignment]
    try:
        with ThreadPoolExecutor(len(commands)) as pool:
            outcomes = list(pool.map(one, commands.values()))
    finally:
        sys.stdout, sys.stderr = kept
    return dict(zip(commands, outcomes, strict=True))


def queue_of(broker_name: str, topic: str) -> MessageQueue:
    """The first queue of a topic at a broker."""
    return MessageQueue(topic=topic, broker_name=broker_name, queue_id=0)
