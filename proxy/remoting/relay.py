"""Relay: serves each request of a remoting client, mostly by asking a broker what the client asks.

Which request goes where: request_codes.py. A request that names no broker (clients before 5.0 cannot) goes to the one
broker of its topic, or to the one broker that this client uses; where that leaves a choice, it gets RocketMQ's refusal,
VERSION_NOT_SUPPORTED; of several clusters each request has to name its broker, for a rule that changes would move the
others to another cluster. A broker that is gone is a service that is not available: producers go to another one.
Owner: the proxy's event loop.
Source: proxy/remoting/activity/*.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping

from thermocline.proxy.flow import Production
from thermocline.proxy.messaging import CALLER, BrokerNotFoundError, Messaging
from thermocline.proxy.remoting.client_session import ClientSession
from thermocline.proxy.remoting.cluster_names import broker_field
from thermocline.proxy.remoting.message_types import check_message_type
from thermocline.proxy.remoting.request_codes import (
    ANY_BROKER,
    BY_BROKER_NAME,
    BY_LOCKED_QUEUES,
    EVERY_BROKER,
    LONG_POLLS,
    NAME_SERVER,
    SENDS,
    SENDS_WITH_LETTERS,
)
from thermocline.proxy.remoting.route_answers import RouteAnswers
from thermocline.proxy.routing import OTHERS_TIMEOUT_S, Routing
from thermocline.remoting.bodies import (
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
)
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.connections import Connection, Handler
from thermocline.remoting.errors import (
    ClosedError,
    ConnectionLostError,
    InvalidRequestError,
    ObjectNotFoundError,
    ResponseError,
    ServiceUnavailableError,
    UnavailableError,
)
from thermocline.remoting.request_code import RequestCode
from thermocline.remoting.response_code import ResponseCode

__all__ = ["Relay"]

REQUEST_TIMEOUT_MS = 10_000
HEARTBEAT_TIMEOUT_MS = 2_000
"""Clients wait 3 s."""
LOOK_UPS_MAX = 512
"""Topics of a heartbeat, each with a group, whose brokers are looked up; of further ones the routes tell them."""
POLL_FIELDS = ("suspendTimeoutMillis", "pollTime")
POLL_MS_MAX = 300_000
TOPIC_FIELDS = ("topic", "originTopic", "defaultTopic")
"""Topics whose only broker a request is for, the first that exists; a new topic is made like the last one. One-letter
headers: b, c."""
NO_BROKER_NAME = "Request doesn't have field bname"


class Relay:
    """See the module: the processor of a remoting port."""

    def __init__(
        self,
        messaging: Messaging,
        routes: RouteAnswers,
        *,
        session_of: Callable[[Connection], ClientSession],
        address_for: Callable[[Connection], str],
        production: Production | None,
        routing: Routing,
    ) -> None:
        """`address_for`: the proxy's address as a client is to know it. `production`: checks the types of messages;
        None: they are not checked."""
        self._messaging = messaging
        self._routes = routes
        self._session_of = session_of
        self._address_for = address_for
        self._production = production
        self._routing = routing

    def routes(self) -> Mapping[int, Handler]:
        """Request code -> method."""
        return {
            **dict.fromkeys(NAME_SERVER, self.answer_route),
            **dict.fromkeys(BY_BROKER_NAME, self.ask_broker),
            **dict.fromkeys(SENDS, self.send),
            **dict.fromkeys(BY_LOCKED_QUEUES, self.ask_broker_of_queues),
            **dict.fromkeys(ANY_BROKER, self.ask_any),
            **dict.fromkeys(EVERY_BROKER, self.unregister),
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.list_consumers,
        }

    async def answer_route(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """105: where a topic's queues are, as seen from here."""
        return await self._routes.answer(self._session_of(connection), command, address=self._address_for(connection))

    async def send(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """10, 310, 320: store a message or a batch.

        Raises:
            MessageIllegalError: Its type does not fit the topic's.
        """
        if self._production is not None:
            await check_message_type(self._production, command)
        return await self.ask_broker(connection, command)

    async def ask_broker(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Ask the broker that the request names."""
        session = self._session_of(connection)
        name = await self.broker_name(session, command)
        if command.code in LONG_POLLS:
            self.check_reader(name, command)
        return await self._forward(session, name, command, timeout_ms=_timeout_ms(command))

    def check_reader(self, broker_name: str, command: RemotingCommand) -> None:
        """Pass what reads where the rule of its group says; also by a route from before a rule changed.

        Raises:
            ResponseError: It reads elsewhere, because the client's route was given before it named its group. The
                client tries again until it has a new one.
        """
        rules = self._routing.rules
        if not rules.has_groups:
            return
        fields, caller = command.ext_fields or {}, CALLER.get()
        topic, group = fields.get("topic", ""), fields.get("consumerGroup", "")
        cluster = self._routing.names.split(broker_name)[0]
        if cluster in self._routing.decide(topic, group, caller).clusters:
            return
        if cluster in self._routing.decide(topic, "", caller).clusters:
            raise ResponseError(
                code=ResponseCode.SUBSCRIPTION_NOT_LATEST,
                remark="the group consumes this topic in another cluster: the client's next route says where",
            )

    async def ask_broker_of_queues(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """41, 42: lock or unlock queues, which are of one broker."""
        queues = LockBatchRequestBody.decode(command.body).mq_set
        if not queues:
            return RemotingCommand.response(command, remark="MessageQueue set is empty", body=command.body)
        session = self._session_of(connection)
        return await self._forward(session, queues[0].broker_name, command, timeout_ms=REQUEST_TIMEOUT_MS)

    async def ask_any(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """46, 203: ask the brokers that this client uses; the first one's answer that is no refusal, or a refusal."""
        answers = await self._ask_each(self._session_of(connection), command, timeout_ms=REQUEST_TIMEOUT_MS)
        return _best(answers)

    async def heartbeat(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """34: tell every broker that this client uses."""
        self._session_of(connection).keep_heartbeat(command)
        return await self.pass_heartbeat(connection, command, HeartbeatData.decode(command.body))

    async def pass_heartbeat(
        self, connection: Connection, command: RemotingCommand, data: HeartbeatData
    ) -> RemotingCommand:
        """Tell every broker that this client uses of a heartbeat that is kept and decoded."""
        session = self._session_of(connection)
        groups: dict[str, set[str]] = {}
        for consumer in data.consumer_data_set:
            for subscription in consumer.subscription_data_set:
                groups.setdefault(subscription.topic, set()).add(consumer.group_name)
        session.consumer_groups = groups
        pairs = ((topic, group) for topic, names in groups.items() for group in names)
        asked = [self._brokers_of(topic, group) for topic, group in itertools.islice(pairs, LOOK_UPS_MAX)]
        for found in await asyncio.gather(*asked):
            session.broker_names.update(dict.fromkeys(found))
        answers = await self._ask_each(session, command, timeout_ms=HEARTBEAT_TIMEOUT_MS)
        return _worst(command, answers)

    async def unregister(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """35: a group of this client ends."""
        session = self._session_of(connection)
        session.forget_heartbeat()
        return _worst(command, await self._ask_each(session, command, timeout_ms=HEARTBEAT_TIMEOUT_MS))

    async def list_consumers(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """38: the clients of a group, as all brokers that this client uses know them together."""
        session = self._session_of(connection)
        answers = await self._ask_each(session, command, timeout_ms=REQUEST_TIMEOUT_MS)
        best = _best(answers)
        if best.code != ResponseCode.SUCCESS:
            return best
        found: dict[str, None] = {}
        for answer in answers:
            if answer.code == ResponseCode.SUCCESS and answer.body:
                found.update(dict.fromkeys(GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list))
        return RemotingCommand.response(
            command, body=GetConsumerListByGroupResponseBody(consumer_id_list=list(found)).encode()
        )

    async def broker_name(self, session: ClientSession, command: RemotingCommand) -> str:
        """The broker that a request is for.

        Raises:
            ResponseError: VERSION_NOT_SUPPORTED: it names none, and there are several.
        """
        fields = command.ext_fields or {}
        has_letters = command.code in SENDS_WITH_LETTERS
        name = fields.get(broker_field(command.code))
        if name:
            return name
        if self._routing.has_clusters:
            return await self._assigning_broker(command)
        for field in ("b", "c") if has_letters else TOPIC_FIELDS:
            names = await self._brokers_of(fields[field]) if fields.get(field) else []
            if names:
                break
        else:
            names = list(session.broker_names)
        if len(names) != 1:
            raise ResponseError(code=ResponseCode.VERSION_NOT_SUPPORTED, remark=NO_BROKER_NAME)
        return names[0]

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _brokers_of(self, topic: str, group: str = "") -> list[str]:
        """The brokers that have a topic, if there is one; of several clusters those that the group is to use."""
        # One of several clusters that is away does not keep the client from the others.
        timeout_s = OTHERS_TIMEOUT_S if self._routing.has_clusters else None
        try:
            async with asyncio.timeout(timeout_s):
                queues = await self._messaging.topic_queues(topic, group=group)
        except (ObjectNotFoundError, TimeoutError):
            return []
        except UnavailableError:
            if not self._routing.has_clusters:
                raise
            return []
        return [broker.broker_name for broker in queues.brokers]

    async def _assigning_broker(self, command: RemotingCommand) -> str:
        """The broker that answers which queues a client is to take: any of the cluster that its group consumes in.
        Other requests that name no broker have none here.

        Raises:
            ResponseError: VERSION_NOT_SUPPORTED: it is another request, or there is no such broker.
        """
        if command.code == RequestCode.QUERY_ASSIGNMENT:
            body = QueryAssignmentRequestBody.decode(command.body)
            names = await self._brokers_of(body.topic, body.consumer_group)
            if names:
                return names[0]
        raise ResponseError(code=ResponseCode.VERSION_NOT_SUPPORTED, remark=NO_BROKER_NAME)

    async def _forward(
        self, session: ClientSession, broker_name: str, command: RemotingCommand, *, timeout_ms: int
    ) -> RemotingCommand | None:
        try:
            return await session.forward(broker_name, command, timeout_ms=timeout_ms)
        except (BrokerNotFoundError, ConnectionLostError, ClosedError) as error:
            raise ServiceUnavailableError("the broker is not there", broker_name=broker_name[:128]) from error

    async def _ask_each(
        self, session: ClientSession, command: RemotingCommand, *, timeout_ms: int
    ) -> list[RemotingCommand]:
        return await session.forward_each(tuple(session.broker_names), command, timeout_ms=timeout_ms)


def _timeout_ms(command: RemotingCommand) -> int:
    """How long a broker may take: what the client lets it wait, and the time of a request."""
    if command.code not in LONG_POLLS:
        return REQUEST_TIMEOUT_MS
    fields = command.ext_fields or {}
    text = next((fields[name] for name in POLL_FIELDS if name in fields), "0")
    if not (text.isascii() and text.isdecimal()):
        raise InvalidRequestError("the time of a long poll is no number", text=text[:32])
    return REQUEST_TIMEOUT_MS + min(int(text[:18]), POLL_MS_MAX)


def _best(answers: list[RemotingCommand]) -> RemotingCommand:
    """A success if there is one, else a refusal; without any answer, that no broker is there to ask."""
    ordered = sorted(answers, key=lambda answer: answer.code != ResponseCode.SUCCESS)
    if not ordered:
        raise ServiceUnavailableError("this client uses no broker yet")
    return ordered[0]


def _worst(command: RemotingCommand, answers: list[RemotingCommand]) -> RemotingCommand:
    """A refusal if there is one, else success: each broker must have taken it."""
    refusals = [answer for answer in answers if answer.code != ResponseCode.SUCCESS]
    return refusals[0] if refusals else RemotingCommand.response(command, remark="")
