"""AdminBase: what all families of administration share: the session, and finding the brokers to ask."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from thermocline.client.options import ClientOptions
from thermocline.client.session import ClientSession
from thermocline.client.topic_route import MASTER_ID, BrokerAddress
from thermocline.remoting.bodies import ConsumerData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connection import Connection
from thermocline.remoting.errors import ClosedError, ObjectNotFoundError, UnsupportedRequestError

__all__ = ["AdminBase"]


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
        """Return the masters of all clusters, of one, or one by its name or address.

        Raises:
            ObjectNotFoundError: There is none.
            UnavailableError: No NameServer answers.
        """
        found = [
            one
            for one in await self._brokers()
            if one.broker_id == MASTER_ID
            and cluster in (None, one.cluster)
            and broker in (None, one.broker_name, one.address)
        ]
        if not found:
            wanted = {"cluster": cluster, "broker": broker}
            raise ObjectNotFoundError("no such broker", **{name: value for name, value in wanted.items() if value})
        return found

    async def _topic_masters(self, topic: str) -> list[BrokerAddress]:
        """Return the masters that have a topic.

        Raises:
            TopicNotFoundError: No live broker has it.
            UnavailableError: No NameServer answers.
        """
        route = await self._running().routes.refresh(topic)
        return [one for one in route.brokers if one.broker_id == MASTER_ID]


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
