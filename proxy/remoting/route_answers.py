"""Route answers: a topic's route as the NameServer gives it, with the proxy's address in place of every broker's.

A client's request goes to the NameServer as it came, so a NameServer that checks signatures checks the client's.
Broker names, queues and permissions stay; a broker without a master is left out with its queues, because the proxy asks
masters alone. Answers come in the form that the client reads (standard JSON from 4.9.4 on).

Of several clusters the rules choose: the first cluster's queues, and those that consumers read in others, under names
that say their cluster. A request for a route names no consumer group: it is the one of the topic in the heartbeat that
came over this connection, if one has. New topics are not made by use then: no route says where.
Source: GetTopicRouteActivity.java, ProxyTopicRouteData.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from thermocline.client.name_servers import NameServers
from thermocline.proxy.messaging import CALLER, route_in_cluster
from thermocline.proxy.remoting.client_session import ClientSession
from thermocline.proxy.routing import DEFAULT_CLUSTER, Routing, ask_clusters
from thermocline.remoting.bodies import PERM_READ, PERM_WRITE, BrokerData, TopicRouteData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidRequestError, MQError, TopicNotFoundError, UnavailableError
from thermocline.remoting.headers import GetRouteInfoRequestHeader
from thermocline.remoting.response_code import ResponseCode
from thermocline.remoting.topic_validation import AUTO_CREATE_TOPIC, RETRY_TOPIC_PREFIX

__all__ = ["RouteAnswers", "route_through"]

MASTER_ID = 0


class RouteAnswers:
    """See the module. Belongs to one event loop."""

    def __init__(self, name_servers: Mapping[str, NameServers], routing: Routing) -> None:
        """`name_servers`: by cluster; reached by connections that sign nothing."""
        self._name_servers = name_servers
        self._routing = routing
        self._rocketmq_names = {cluster.name: cluster.cluster_name for cluster in routing.clusters}

    async def answer(self, session: ClientSession, command: RemotingCommand, *, address: str) -> RemotingCommand:
        """The answer to GET_ROUTEINFO_BY_TOPIC; `address`: the proxy's, as this client is to know it.

        Raises:
            InvalidRequestError: The topic is static: its queues move between brokers, which clients follow by names.
            TopicNotFoundError: It is the topic by which new ones are made, and there are several clusters.
            UnavailableError: No NameServer answers.
        """
        header = command.header(GetRouteInfoRequestHeader)
        if self._routing.has_clusters and header.topic == AUTO_CREATE_TOPIC:
            raise TopicNotFoundError("behind a proxy with several clusters topics are not made by use")
        answer, found = await self._found(header.topic, self._clusters(session, header.topic), command)
        answer = msgspec.structs.replace(answer, opaque=command.opaque)
        if answer.code != ResponseCode.SUCCESS:
            return answer
        route = route_through(found, address)
        session.broker_names.update(dict.fromkeys(broker.broker_name for broker in route.broker_datas))
        answer.body = route.encode_for(command.version, accepts_standard_json=header.accept_standard_json_only is True)
        return answer

    def _clusters(self, session: ClientSession, topic: str) -> Sequence[str]:
        """Where this client is to find a topic, the first cluster first."""
        groups = sorted(session.consumer_groups.get(topic, ()))
        return self._routing.decide(topic, groups[0] if groups else "", CALLER.get()).clusters

    async def _found(
        self, topic: str, clusters: Sequence[str], command: RemotingCommand
    ) -> tuple[RemotingCommand, TopicRouteData]:
        """What the NameServers of these clusters say: the first answer that counts, and all their routes as one."""
        found = await ask_clusters(clusters, lambda name: self._one(topic, name, command))
        answers: list[RemotingCommand] = []
        route = TopicRouteData()
        for name, each in found.items():
            is_first = name == clusters[0]
            if isinstance(each, MQError):
                if is_first and not topic.startswith(RETRY_TOPIC_PREFIX):
                    raise each
                continue
            answer, part = each
            answers.append(answer)
            self._add(route, name, part, is_first=is_first)
        if not answers:
            raise UnavailableError("no NameServer of a cluster with the topic answers", topic=topic[:128])
        answers.sort(key=lambda answer: answer.code != ResponseCode.SUCCESS)
        return answers[0], route

    async def _one(self, topic: str, cluster: str, command: RemotingCommand) -> tuple[RemotingCommand, TopicRouteData]:
        """What a cluster's NameServer says."""
        answer = await self._name_servers[cluster].pass_on(command)
        if answer.code != ResponseCode.SUCCESS:
            return answer, TopicRouteData()
        route = TopicRouteData.decode(answer.body)
        if route.topic_queue_mapping_by_broker:
            raise InvalidRequestError("a static topic is not served through a proxy", topic=topic[:128])
        if cluster != DEFAULT_CLUSTER:
            route = route_in_cluster(route, self._rocketmq_names[cluster])
            if not route.broker_datas:
                text = f"No topic route info in name server for the topic: {topic[:128]}"
                return RemotingCommand.response(answer, ResponseCode.TOPIC_NOT_EXIST, remark=text), route
        return answer, route

    def _add(self, route: TopicRouteData, cluster: str, part: TopicRouteData, *, is_first: bool) -> None:
        """Add a cluster's part to a route; of another one than the first what can be read."""
        names = self._routing.names
        for broker in part.broker_datas:
            name = names.join(cluster, broker.broker_name)
            route.broker_datas.append(msgspec.structs.replace(broker, broker_name=name))
        for queues in part.queue_datas:
            permission = queues.perm if is_first else queues.perm & ~PERM_WRITE
            if is_first or permission & PERM_READ:
                name = names.join(cluster, queues.broker_name)
                route.queue_datas.append(msgspec.structs.replace(queues, broker_name=name, perm=permission))
        if is_first and part.order_topic_conf is not None:
            route.order_topic_conf = ";".join(
                ":".join([names.join(cluster, each.partition(":")[0]), *each.split(":")[1:]]) if each else each
                for each in part.order_topic_conf.split(";")
            )


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
