"""AdminBase: what all families of administration share: the session, and finding the brokers to ask."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from thermocline.client.fan_out import Answers, ask_each
from thermocline.client.options import ClientOptions
from thermocline.client.session import ClientSession
from thermocline.client.topic_route import MASTER_ID, BrokerAddress
from thermocline.remoting.bodies import ConsumerData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection
from thermocline.remoting.errors import ClosedError, ObjectNotFoundError, UnavailableError, UnsupportedRequestError
from thermocline.remoting.request_code import RequestCode

__all__ = ["AdminBase"]

T = TypeVar("T")

ALIVE_AFTER_MS = 500
"""A slow call that has not been answered by then is watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterlessBroker(BrokerAddress):
    """A broker name that has no master now; the address is that of its first replica."""


class AdminBase(ClientOptions):
    """Belongs to one event loop; every method must be called on it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._session: ClientSession | None = None
        self._closed = False

    async def start(self) -> None:
        """Begin to work; connections are made when they are first needed. ClosedError: started or closed before."""
        if self._session is not None or self._closed:
            raise ClosedError("an admin client starts once")
        self._session = ClientSession(self, _Owner())
        await self._session.start()

    async def close(self) -> None:
        """Close all connections; idempotent."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _running(self) -> ClientSession:
        if self._session is None or self._closed:
            raise ClosedError("the admin client is not started, or is closed")
        return self._session

    async def _brokers(self) -> list[BrokerAddress]:
        info = await self._running().name_servers.cluster_info()
        return [
            BrokerAddress(cluster=data.cluster, broker_name=name, broker_id=broker_id, address=address)
            for name, data in sorted(info.broker_addr_table.items())
            for broker_id, address in sorted(data.broker_addrs.items())
        ]

    async def _masters(self, *, cluster: str | None = None, broker: str | None = None) -> list[BrokerAddress]:
        """Return the masters of all clusters, of one, or one by its name; or the broker at an address, whatever its id.

        A name that has no master now is a `MasterlessBroker`.

        Raises:
            ObjectNotFoundError: There is none.
            UnavailableError: No NameServer answers.
        """
        brokers = [one for one in await self._brokers() if cluster in (None, one.cluster)]
        found = [one for one in brokers if broker is not None and one.address == broker] or [
            one for one in _masters_of(brokers) if broker in (None, one.broker_name)
        ]
        if not found:
            wanted = {"cluster": cluster, "broker": broker}
            raise ObjectNotFoundError("no such broker", **{name: value for name, value in wanted.items() if value})
        return found

    async def _topic_masters(self, topic: str) -> list[BrokerAddress]:
        """Return the masters that have a topic; a name that has no master now is a `MasterlessBroker`.

        Raises:
            TopicNotFoundError: No live broker has it.
            UnavailableError: No NameServer answers.
        """
        return _masters_of((await self._running().routes.refresh(topic)).brokers)

    async def _ask_each(
        self,
        brokers: Iterable[BrokerAddress],
        ask: Callable[[BrokerAddress], Awaitable[T]],
        *,
        takes_replicas: bool = False,
    ) -> Answers[BrokerAddress, T]:
        """Ask brokers side by side; every method that asks more than one does it by this.

        `ask` makes one broker's requests, one after another. See client/fan_out.py for what becomes of the answers.
        A name that has no master now has failed; with `takes_replicas` its first replica is asked.
        """

        async def ask_master(broker: BrokerAddress) -> T:
            if isinstance(broker, MasterlessBroker) and not takes_replicas:
                raise UnavailableError("the broker has no master now")
            return await ask(broker)

        return await ask_each(brokers, ask_master)

    async def _ask_one(self, broker: str, ask: Callable[[BrokerAddress], Awaitable[T]]) -> T:
        """Ask the master with this name or address.

        Raises:
            ObjectNotFoundError: No such broker.
            MQError: It gave no answer, or refused; the error says which broker it is.
        """
        # One address may be registered by two names: a broker that has a new one since its host was restarted.
        master = (await self._masters(broker=broker))[0]
        answers: Answers[BrokerAddress, T] = await self._ask_each([master], ask)
        answers.require_all()
        return answers.by_peer[master]

    async def _while_alive(self, address: str, call: Coroutine[Any, Any, T]) -> T:
        """Wait for a call that may take long, as long as its broker answers other requests in time. Cancelling is safe.

        Raises:
            UnavailableError: The broker answers nothing within `request_timeout_ms`.
        """
        task: asyncio.Task[T] = asyncio.get_running_loop().create_task(call)
        pause_ms = min(ALIVE_AFTER_MS, self.request_timeout_ms)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=pause_ms / 1000)
                if not task.done():
                    await self._check_alive(address, task)
                pause_ms = self.request_timeout_ms
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _check_alive(self, address: str, call: asyncio.Task[Any]) -> None:
        """Pass when the broker answers anything, or when `call` has ended."""
        command = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        asking = self._running().connections.call(address, command, timeout_ms=self.request_timeout_ms)
        sign = asyncio.get_running_loop().create_task(asking)
        try:
            await asyncio.wait({call, sign}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                sign.result()
        finally:
            sign.cancel()
            await asyncio.gather(sign, return_exceptions=True)


def _masters_of(brokers: Iterable[BrokerAddress]) -> list[BrokerAddress]:
    """The masters, and a `MasterlessBroker` for each name that has none; `brokers`: by name and id."""
    masters: list[BrokerAddress] = []
    for name, of_name in itertools.groupby(brokers, key=lambda one: one.broker_name):
        replicas = list(of_name)
        first = replicas[0]
        masters += [one for one in replicas if one.broker_id == MASTER_ID] or [
            MasterlessBroker(cluster=first.cluster, broker_name=name, broker_id=first.broker_id, address=first.address)
        ]
    return masters


class _Owner:
    """What the session asks of an admin client: nothing, it is in no group."""

    def producer_groups(self) -> list[str]:
        """None."""
        return []

    def consumer_data(self) -> list[ConsumerData]:
        """None."""
        return []

    def answer(self, command: RemotingCommand) -> RemotingCommand | None:
        """Refuse."""
        raise UnsupportedRequestError(code=command.code)

    def connection_closed(self, connection: Connection) -> None:
        """Nothing to do: calls on it have failed."""
