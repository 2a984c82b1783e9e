"""NameServers: the list of them, of which any one that answers will do.

They know nothing of each other and hold the same routes within seconds. A client stays with one, starting at a random
place so that clients spread, and moves on to the next when it does not answer; a request fails only when none of them
does. A refusal (an unknown topic) is an answer.

The list follows its source (remoting/clients/name_server_source.py): a removed name server gets no further request, and
a call that waits for it goes on to the next one. The client does nothing else.
Source: remoting/netty/NettyRemotingClient.java (getAndCreateNameserverChannel), Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from random import Random

from thermocline.client.answer import check_answer
from thermocline.client.fan_out import Answers, ask_each
from thermocline.remoting.bodies import ClusterInfo, TopicRouteData
from thermocline.remoting.clients import NameServerSource, RemotingClient
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import ConnectionLostError, RequestTimeoutError, UnavailableError
from thermocline.remoting.header_codec import Header
from thermocline.remoting.headers import GetRouteInfoRequestHeader
from thermocline.remoting.request_code import RequestCode

__all__ = ["NameServers"]

logger = logging.getLogger(__name__)


class NameServers:
    """Asks one NameServer after another. Belongs to its session's loop."""

    def __init__(
        self,
        source: NameServerSource,
        *,
        connections: RemotingClient,
        timeout_ms: int,
        random: Random,
        zone_name: str = "",
    ) -> None:
        self._zone = {"__ZONE_MODE": "true", "__ZONE_NAME": zone_name} if zone_name else {}
        self._source = source
        self._addresses: tuple[str, ...] = ()
        self._connections = connections
        self._timeout_ms = timeout_ms
        self._random = random
        self._current = ""
        if source.is_fixed:
            self._follow(source.values)

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, in their source's order; none before the first `refresh` of a source that is asked."""
        return self._addresses

    @property
    def is_fixed(self) -> bool:
        """Whether the addresses never change."""
        return self._source.is_fixed

    async def refresh(self) -> None:
        """Ask the source again, and follow it. A client that has a list keeps it when the source does not answer.

        Raises:
            UnavailableError: The source gives no list, and there is none.
        """
        try:
            self._follow(await self._source.fetch(has_list=bool(self._addresses)))
        except UnavailableError as error:
            if not self._addresses:
                raise
            logger.warning("NameServers stay as they are addresses=%s error=%s", ";".join(self._addresses), error)

    def _follow(self, addresses: tuple[str, ...]) -> None:
        if set(addresses) == set(self._addresses):
            return
        removed = set(self._addresses) - set(addresses)
        if self._addresses:
            logger.info("NameServers changed before=%s now=%s", ";".join(self._addresses), ";".join(addresses))
        self._addresses = addresses
        if self._current not in addresses:
            self._current = self._random.choice(addresses)
        for address in removed:
            self._connections.disconnect(address)

    async def call(
        self,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        ext_fields: Mapping[str, str] | None = None,
    ) -> RemotingCommand:
        """Ask the current NameServer, or the next one that answers.

        Raises:
            MQError: It refused; see `check_answer`.
            UnavailableError: None of them answered.
        """

        def request() -> RemotingCommand:
            return RemotingCommand.request(code, header, body=body, ext_fields=ext_fields)

        address, answer = await self._ask_one(request)
        check_answer(answer, address=address)
        return answer

    async def pass_on(self, command: RemotingCommand) -> RemotingCommand:
        """Ask what another client's request asks, with its fields as they are; the answer, whatever its code.

        Raises:
            UnavailableError: None of them answered.
        """
        _, answer = await self._ask_one(command.renumbered)
        return answer

    async def _ask_one(self, request: Callable[[], RemotingCommand]) -> tuple[str, RemotingCommand]:
        if not self._addresses:
            await self.refresh()
        failure: UnavailableError | None = None
        tried: set[str] = set()
        while self._current not in tried:
            address = self._current
            tried.add(address)
            asked_at_s = asyncio.get_running_loop().time()
            try:
                return address, await self._connections.call(address, request(), timeout_ms=self._timeout_ms)
            except UnavailableError as error:
                failure = error
                if isinstance(error, RequestTimeoutError):
                    self._connections.drop_silent(address, since_s=asked_at_s)
                self._move_on(address)
                if len(self._addresses) > 1:
                    logger.warning("NameServer failed address=%s error=%s", address, error)
        assert failure is not None
        addresses, reason = ";".join(self._addresses), failure.context.get("reason")
        why = f"{failure.message}: {reason}" if reason else failure.message
        if failure.message == ConnectionLostError.LOST and not self._connections.speaks_tls:
            why += " (a port that takes TLS alone closes plain connections)"
        raise UnavailableError("no NameServer answers", addresses=addresses, reason=why) from failure

    def _move_on(self, failed: str) -> None:
        """Take the one behind it, unless another call has moved on already, or the list has changed."""
        if self._current == failed:
            place = self._addresses.index(failed)
            self._current = self._addresses[(place + 1) % len(self._addresses)]

    async def call_each(
        self, code: int, header: Header | None = None, *, body: bytes = b""
    ) -> Answers[str, RemotingCommand]:
        """Ask every NameServer, side by side, for what must change on all of them or is of each."""

        async def ask(address: str) -> RemotingCommand:
            answer = await self._connections.call(
                address, RemotingCommand.request(code, header, body=body), timeout_ms=self._timeout_ms
            )
            check_answer(answer, address=address)
            return answer

        if not self._addresses:
            await self.refresh()
        return await ask_each(self._addresses, ask)

    async def topic_route(self, topic: str, *, everywhere: bool = False) -> TopicRouteData:
        """Return where a topic's queues are; in this client's zone, if it has one and does not ask for everywhere.

        Raises:
            TopicNotFoundError: No live broker has the topic.
            UnavailableError: No NameServer answers.
        """
        answer = await self.call(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True),
            ext_fields=None if everywhere else self._zone,
        )
        return TopicRouteData.decode(answer.body)

    async def cluster_info(self) -> ClusterInfo:
        """Return all clusters, brokers and addresses."""
        answer = await self.call(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(answer.body)
