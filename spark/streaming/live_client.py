"""LiveClient: a process's connections to the brokers of one cluster, for code that blocks.

The SDK's session finds brokers by the NameServers; it announces nothing, so no broker counts a consumer. One client a
process and list of NameServers: opened at the first use, kept for the worker's next tasks, closed at exit. A forked
child starts afresh. Any thread may use it.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from thermocline.client.admin.admin_base import AdminBase
from thermocline.client.blocking import BackgroundLoop
from thermocline.client.session import ClientSession
from thermocline.client.topic_route import MASTER_ID
from thermocline.remoting.command import RemotingCommand

Answer = TypeVar("Answer")
REQUEST_TIMEOUT_MS = 5_000


class LiveClient:
    """See the module's header. Its coroutines belong to its own loop: hand them to `run`."""

    def __init__(self, name_servers: tuple[str, ...]) -> None:
        self._loop = BackgroundLoop(name="live-brokers")
        self._loop.start()
        self._brokers = _Brokers(namesrv=name_servers, request_timeout_ms=REQUEST_TIMEOUT_MS)
        try:
            self._loop.run(self._brokers.start())
        except BaseException:
            self._loop.close()
            raise

    def run(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """Run on the client's loop, and wait for it."""
        return self._loop.run(call)

    async def masters(self, topic: str) -> dict[str, str]:
        """The address of each broker that has a topic, by name, as the NameServers know them now.

        Raises:
            TopicNotFoundError: No live broker has it.
            UnavailableError: No NameServer answers.
        """
        route = await self._brokers.session.routes.refresh(topic)
        return {broker.broker_name: broker.address for broker in route.brokers if broker.broker_id == MASTER_ID}

    async def address(self, topic: str, broker_name: str, *, fresh: bool = False) -> str:
        """Where a broker is.

        Raises:
            TopicNotFoundError: No live broker has the topic.
            UnavailableError: This one is not there now, or no NameServer answers.
        """
        routes = self._brokers.session.routes
        route = await (routes.refresh(topic) if fresh else routes.get(topic))
        return route.master(broker_name)

    async def ask(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """Ask a broker, whatever it answers; UnavailableError when it does not."""
        return await self._brokers.session.connections.call(address, command, timeout_ms=REQUEST_TIMEOUT_MS)

    def close(self) -> None:
        """Close all connections; idempotent."""
        self._loop.run(self._brokers.close())
        self._loop.close()


class _Brokers(AdminBase):
    """The session of one who administers: it is in no group, and serves nothing."""

    @property
    def session(self) -> ClientSession:
        return self._running()


_clients: dict[tuple[str, ...], LiveClient] = {}
_clients_process_id = 0
_clients_lock = threading.Lock()


def live_client(name_servers: tuple[str, ...]) -> LiveClient:
    """This process's client of a cluster; connections are made when they are needed."""
    global _clients_process_id
    with _clients_lock:
        if _clients_process_id != os.getpid():
            _clients.clear()
            _clients_process_id = os.getpid()
        if name_servers not in _clients:
            _clients[name_servers] = LiveClient(name_servers)
        return _clients[name_servers]


def close_live_clients() -> None:
    """Close what this process has opened. Called at exit, and the next use opens anew."""
    with _clients_lock:
        clients = list(_clients.values()) if _clients_process_id == os.getpid() else []
        _clients.clear()
    for client in clients:
        client.close()


atexit.register(close_live_clients)
