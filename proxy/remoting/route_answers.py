"""Route answers: a topic's route as the NameServer gives it, with the proxy's address in place of every broker's.

A client's request goes to the NameServer as it came, so a NameServer that checks signatures checks the client's.
Broker names, queues and permissions stay; a broker without a master is left out with its queues, because the proxy asks
masters alone. Answers come in the form that the client reads (standard JSON from 4.9.4 on).
Source: GetTopicRouteActivity.java, ProxyTopicRouteData.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

import msgspec

from thermocline.client.name_servers import NameServers
from thermocline.proxy.remoting.client_session import ClientSession
from thermocline.remoting.bodies import BrokerData, TopicRouteData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.headers import GetRouteInfoRequestHeader
from thermocline.remoting.response_code import ResponseCode

__all__ = ["RouteAnswers", "route_through"]

MASTER_ID = 0


class RouteAnswers:
    """See the module. Belongs to one event loop."""

    def __init__(self, name_servers: NameServers) -> None:
        """`name_servers`: reached by connections that sign nothing."""
        self._name_servers = name_servers

    async def answer(self, session: ClientSession, command: RemotingCommand, *, address: str) -> RemotingCommand:
        """The answer to GET_ROUTEINFO_BY_TOPIC; `address`: the proxy's, as this client is to know it.

        Raises:
            InvalidRequestError: The topic is static: its queues move between brokers, which clients follow by names.
            UnavailableError: No NameServer answers.
        """
        header = command.header(GetRouteInfoRequestHeader)
        answer = await self._name_servers.pass_on(command)
        answer = msgspec.structs.replace(answer, opaque=command.opaque)
        if answer.code != ResponseCode.SUCCESS:
            return answer
        found = TopicRouteData.decode(answer.body)
        if found.topic_queue_mapping_by_broker:
            raise InvalidRequestError("a static topic is not served through a proxy", topic=header.topic[:128])
        route = route_through(found, address)
        session.broker_names.update(dict.fromkeys(broker.broker_name for broker in route.broker_datas))
        answer.body = route.encode_for(command.version, accepts_standard_json=header.accept_standard_json_only is True)
        return answer


def route_through(route: TopicRouteData, address: str) -> TopicRouteData:
    """The route with one address for the master of every broker."""
    brokers = [
        BrokerData(
            broker_addrs={MASTER_ID: address},
            broker_name=broker.broker_name,
            cluster=broker.cluster,
            enable_acting_master=broker.enable_acting_master,
            zone_name=broker.zone_name,
        )
        for broker in route.broker_datas
        if MASTER_ID in broker.broker_addrs
    ]
    names = {broker.broker_name for broker in brokers}
    return TopicRouteData(
        broker_datas=brokers,
        order_topic_conf=route.order_topic_conf,
        queue_datas=[queues for queues in route.queue_datas if queues.broker_name in names],
    )
