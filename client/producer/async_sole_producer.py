"""AsyncSoleProducer: sends only while it is the one producer of its group, for jobs of which two must not run.

    async with AsyncSoleProducer(group="job-7-task-3", namesrv="127.0.0.1:9876", topics=("orders",)) as producer:
        ...   # no other sole producer of this group sends now, and none that ended has anything on its way

How: it connects to the master of every broker of its topics and announces itself there; only then it asks each of them
for the group's members, over the same connection. Of two that start together at least one sees the other, so at most
one finds itself alone. A producer that is not alone disconnects, and may be started again later.

Why that is a fence, without any clock: a broker drops a producer from a group when its connection is closed, and what
came over the connection before was received before. So when a producer that was killed has gone from the list, nothing
of it is under way any more. And one that lost a connection makes no other (`RemotingClient.seal`): what it has yet to
send fails. A broker closes connections that were silent for two minutes, so a vanished machine blocks a new producer no
longer than that. (Apache RocketMQ hands received sends to a pool of threads, so there a send may be stored after its
connection has gone: wait for a moment before reading back the messages of a predecessor.)
"""

from __future__ import annotations

from dataclasses import dataclass

from thermocline.client.message_queue import MessageQueue
from thermocline.client.producer.async_producer import AsyncProducer
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.session import ClientSession
from thermocline.remoting.bodies import HeartbeatData, ProducerConnection, ProducerData
from thermocline.remoting.errors import InvalidRequestError, ResponseError, UnavailableError
from thermocline.remoting.headers import GetProducerConnectionListRequestHeader
from thermocline.remoting.request_code import RequestCode

__all__ = ["AnotherProducerError", "AsyncSoleProducer", "SoleProducerOptions"]


class AnotherProducerError(UnavailableError):
    """Another producer of the group is connected."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SoleProducerOptions(ProducerOptions):
    """How a sole producer sends."""

    topics: tuple[str, ...] = ()
    """The topics to send to: it announces itself to all their brokers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.topics:
            raise InvalidRequestError("a sole producer says which topics it sends to", group=self.group)


class AsyncSoleProducer(SoleProducerOptions, AsyncProducer):
    """See the module. Belongs to one event loop."""

    def watched_topics(self) -> tuple[str, ...]:
        """All topics: their brokers know this producer from its start."""
        return self.topics

    async def start(self) -> None:
        """Connect everywhere, and return when no other producer of the group is connected.

        Raises:
            AnotherProducerError: One is; this one has left again.
            TopicNotFoundError: A topic does not exist.
            UnavailableError: A broker of the topics does not answer.
            ClosedError: It was started or closed before.
        """
        await super().start()
        try:
            await self._check_alone()
        except BaseException:
            await self.close()
            raise

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of one of its topics that may be sent to, as they were at the start, sorted.

        Raises:
            ClosedError: The producer is not started, or closed.
        """
        route = self._started()[0].routes.cached(topic)
        assert route is not None
        return tuple(sorted(route.publish_queues))

    async def _check_alone(self) -> None:
        session = self._started()[0]
        addresses: set[str] = set()
        for topic in self.topics:
            route = await session.routes.get(topic)
            if not route.publish_queues:
                raise UnavailableError("no broker takes messages for this topic now", topic=topic)
            addresses |= {route.master(route.broker_of(queue)) for queue in route.publish_queues}
        session.connections.seal()
        announcement = HeartbeatData(
            client_id=session.client_id, producer_data_set=[ProducerData(group_name=self.group)]
        ).encode()
        for address in sorted(addresses):
            # Once more, as the connection may be another than that of the first announcement; now it is the last.
            await session.call(address, RequestCode.HEART_BEAT, body=announcement)
            members = await self._members(session, address)
            if session.client_id not in members:
                raise UnavailableError("a broker does not know this producer", address=address, group=self.group)
            if len(members) > 1:
                raise AnotherProducerError(address=address, group=self.group)

    async def _members(self, session: ClientSession, address: str) -> set[str]:
        header = GetProducerConnectionListRequestHeader(producer_group=self.group)
        try:
            answer = await session.call(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        except ResponseError:  # the answer for a group without members
            return set()
        return {one.client_id for one in ProducerConnection.decode(answer.body).connection_set}
