"""Routes as the proxy gives them on: which brokers, in which form, and which not at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from thermocline.proxy.remoting.route_answers import RouteAnswers, route_through
from thermocline.proxy.routing import Routing
from thermocline.remoting.bodies import BrokerData, QueueData, TopicQueueMappingInfo, TopicRouteData
from thermocline.remoting.command import RemotingCommand
from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.request_code import RequestCode

ROUTE = TopicRouteData(
    broker_datas=[
        BrokerData(broker_name="a", cluster="c", broker_addrs={0: "10.0.0.1:1", 1: "10.0.0.2:1"}),
        BrokerData(broker_name="b", cluster="c", broker_addrs={1: "10.0.0.3:1"}),
    ],
    queue_datas=[QueueData(broker_name="a", perm=6, read_queue_nums=4), QueueData(broker_name="b", perm=6)],
    order_topic_conf="a:4",
)


class OneNameServer:
    """Answers every request with a route."""

    def __init__(self, route: TopicRouteData) -> None:
        self._route = route

    async def pass_on(self, command: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(command.renumbered(), body=self._route.encode_standard())


async def answered(route: TopicRouteData, *, version: int = 513) -> tuple[RemotingCommand, list[str]]:
    """The answer, and the brokers that the client is known to use from then on."""
    session = SimpleNamespace(broker_names={}, consumer_groups={})
    command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "T"})
    command.version = version
    answers = RouteAnswers({"default": cast(Any, OneNameServer(route))}, Routing())
    answer = await answers.answer(cast(Any, session), command, address="proxy:8080")
    assert answer.opaque == command.opaque
    return answer, list(session.broker_names)


def test_masters_have_the_proxys_address_and_others_are_left_out() -> None:
    route = route_through(ROUTE, "proxy:8080")
    assert [(broker.broker_name, broker.broker_addrs) for broker in route.broker_datas] == [("a", {0: "proxy:8080"})]
    assert [queues.broker_name for queues in route.queue_datas] == ["a"]
    assert route.order_topic_conf == "a:4"


async def test_old_clients_get_javas_dialect() -> None:
    answer, names = await answered(ROUTE)
    assert b'{"0":"proxy:8080"}' in bytes(answer.body)
    assert names == ["a"]
    answer, _ = await answered(ROUTE, version=400)
    assert b'{0:"proxy:8080"}' in bytes(answer.body)


async def test_a_static_topic_is_refused() -> None:
    static = TopicRouteData(
        broker_datas=ROUTE.broker_datas,
        queue_datas=ROUTE.queue_datas,
        topic_queue_mapping_by_broker={"a": TopicQueueMappingInfo(topic="T")},
    )
    with pytest.raises(InvalidRequestError, match="a static topic is not served through a proxy"):
        await answered(static)
