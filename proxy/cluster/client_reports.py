"""ClientReports: tells every broker of the cluster which gRPC clients are connected to this proxy.

    registry -> changed ids, by broker -> a report each `interval_ms`, in parts -> the broker's table of proxied clients

So brokers can show the clients to tools, and pass questions on to them: these come over the same connection, and go to
`handler`. The connections are the reports' own: a long report never stands before a send.

Rules
  - A broker gets all clients first, then what has changed; a report without changes says that the proxy is there.
  - After a failure, or when the broker does not know the connection, it gets all clients again.
  - What a broker refuses, by its limits, is offered again with the next report.
  - A broker that does not take reports, as RocketMQ's, or refuses them, gets the next one after PAUSE_MS.
Bounds: ids of clients for each broker, as many as the registry has, and those that are gone since the last report; a
part has ENTRIES_PER_PART entries and what its last client has beyond. Owner: the proxy's event loop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from thermocline.client.answer import check_answer
from thermocline.proxy.clients import ClientRegistry, ProxyClient
from thermocline.remoting.bodies.proxied_client import (
    LABEL_CHARACTERS_MAX,
    ProxiedClient,
    ProxiedClientsAnswer,
    ProxiedClientsReport,
)
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.clocks import monotonic_ms
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import RequestHandler
from thermocline.remoting.errors import MQError, PermissionDeniedError, UnsupportedRequestError
from thermocline.remoting.json_dialect import dumps, loads_as
from thermocline.remoting.private_requests import PrivateRequestCode
from thermocline.remoting.request_signature import Credentials
from thermocline.remoting.tls import ClientTls, TlsOptions

__all__ = ["ClientReports"]

logger = logging.getLogger(__name__)

ENTRIES_PER_PART = 1_000
REPORT_TIMEOUT_MS = 3_000
PAUSE_MS = 60_000
INSTANCE_BYTES = 12


@dataclass(slots=True, kw_only=True)
class _Broker:
    """What has to be reported to one broker."""

    changed: dict[str, None] = field(default_factory=dict)
    """Ids of clients that have changed or are gone since they were reported, in that order."""
    is_first: bool = True
    is_failing: bool = False
    paused_until_ms: float = 0.0
    """0: it takes reports, as far as is known."""


class ClientReports:
    """See the module."""

    def __init__(
        self,
        clients: ClientRegistry,
        *,
        proxy_name: str,
        brokers: Callable[[], Awaitable[Sequence[str]]],
        describe: Callable[[ProxyClient], ProxiedClient],
        handler: RequestHandler,
        interval_ms: int,
        credentials: Credentials | None,
        tls: TlsOptions | None,
    ) -> None:
        """`brokers`: the addresses of the cluster's brokers now. `describe`: what is reported of a client.

        `interval_ms`: between reports; 0: none are made.
        """
        self._clients = clients
        self._proxy_name = proxy_name[:LABEL_CHARACTERS_MAX]
        self._brokers = brokers
        self._describe = describe
        self._interval_ms = interval_ms
        self._instance = secrets.token_hex(INSTANCE_BYTES)
        self._connections = RemotingClient(
            handler=handler, credentials=credentials, tls=None if tls is None else ClientTls(tls)
        )
        self._states: dict[str, _Broker] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Report from now on."""
        if self._interval_ms > 0:
            self._clients.on_registered.append(self._note)
            self._clients.on_removed.append(self._note)
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Report no more; brokers forget the clients with the connections. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._connections.close()

    def _note(self, client: ProxyClient) -> None:
        for broker in self._states.values():
            if not broker.paused_until_ms:
                broker.changed[client.client_id] = None

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
            except MQError as error:
                logger.info("clients are not reported, the brokers are not known now error=%s", error)
            except Exception:
                # A bug with one client must not end the reports of all.
                logger.exception("clients are not reported")
                self._states.clear()
            await asyncio.sleep(self._interval_ms / 1000)

    async def _round(self) -> None:
        addresses = await self._brokers()
        for address in set(self._states) - set(addresses):
            del self._states[address]
            self._connections.disconnect(address)
        for address in addresses:
            if address not in self._states:
                self._states[address] = self._new_state()
        await asyncio.gather(*(self._report_to(address, self._states[address]) for address in addresses))

    def _new_state(self) -> _Broker:
        """The state of a broker to which nothing is reported yet."""
        return _Broker(changed=dict.fromkeys(client.client_id for client in self._clients.clients()))

    async def _report_to(self, address: str, broker: _Broker) -> None:
        """Bring a broker up to date; after a failure with the next round."""
        if monotonic_ms() < broker.paused_until_ms:
            return
        if broker.paused_until_ms:
            self._begin_anew(broker)
        try:
            if not await self._send_changes(address, broker):
                self._begin_anew(broker)
                await self._send_changes(address, broker)
        except UnsupportedRequestError:
            logger.info("the broker takes no reports of clients, mqadmin does not see them there address=%s", address)
            self._pause(address, broker)
        except PermissionDeniedError as error:
            logger.warning("clients are not reported, the broker refuses it address=%s error=%s", address, error)
            self._pause(address, broker)
        except MQError as error:
            if not broker.is_failing:
                logger.warning("clients are not reported, will try again address=%s error=%s", address, error)
            self._begin_anew(broker)
            broker.is_failing = True
        else:
            broker.is_failing = False

    def _pause(self, address: str, broker: _Broker) -> None:
        broker.changed.clear()
        broker.paused_until_ms = monotonic_ms() + PAUSE_MS
        self._connections.disconnect(address)

    def _begin_anew(self, broker: _Broker) -> None:
        broker.is_first = True
        broker.paused_until_ms = 0.0
        broker.changed = self._new_state().changed

    async def _send_changes(self, address: str, broker: _Broker) -> bool:
        """Send what has changed until now; False when the broker does not know the connection."""
        refused: list[str] = []
        is_last = False
        while not is_last:
            report = self._take_part(broker)
            is_last = not broker.changed
            command = RemotingCommand.request(PrivateRequestCode.PROXIED_CLIENTS_REPORT, body=dumps(report))
            answer = await self._connections.call(address, command, timeout_ms=REPORT_TIMEOUT_MS)
            check_answer(answer, address=address)
            taken = loads_as(answer.body, ProxiedClientsAnswer)
            if not taken.is_known:
                return False
            broker.is_first = False
            refused += taken.refused
        broker.changed.update(dict.fromkeys(refused))
        return True

    def _take_part(self, broker: _Broker) -> ProxiedClientsReport:
        clients: list[ProxiedClient] = []
        gone: list[str] = []
        entries = 0
        while broker.changed and entries < ENTRIES_PER_PART:
            client_id = next(iter(broker.changed))
            del broker.changed[client_id]
            client = self._clients.find(client_id)
            if client is None:
                gone.append(client_id)
                entries += 1
            else:
                clients.append(self._describe(client))
                entries += clients[-1].entry_count
        return ProxiedClientsReport(
            proxy=self._proxy_name,
            instance=self._instance,
            is_first=broker.is_first,
            clients=tuple(clients),
            gone=tuple(gone),
        )
