"""OwnBroker: the socket stands where its address was, and nowhere else."""

from __future__ import annotations

from thermocline.proxy.cluster import OwnBroker
from thermocline.proxy.messaging import read_topic_queues
from thermocline.remoting.bodies import BrokerData, QueueData, TopicRouteData

OWN = OwnBroker(name="b", socket_path="/run/b.sock")


def route(**masters: int) -> TopicRouteData:
    """Brokers by name, with the broker id that their only member has."""
    return TopicRouteData(
        queue_datas=[
            QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=6) for name in sorted(masters)
        ],
        broker_datas=[
            BrokerData(cluster="c", broker_name=name, broker_addrs={broker_id: f"192.0.2.1:{number}"})
            for number, (name, broker_id) in enumerate(sorted(masters.items()), start=1)
        ],
    )


def test_the_own_broker_is_asked_over_its_socket() -> None:
    queues = read_topic_queues("T", route(a=0, b=0, c=0))
    seen = OWN.in_queues(queues)
    assert [dict(broker.addresses) for broker in seen.brokers] == [
        {0: "192.0.2.1:1"},
        {0: "/run/b.sock"},
        {0: "192.0.2.1:3"},
    ]
    assert seen.write_queues == queues.write_queues


def test_a_broker_without_a_master_is_left_as_it_is() -> None:
    queues = read_topic_queues("T", route(a=0, b=1))
    assert OWN.in_queues(queues) == queues
