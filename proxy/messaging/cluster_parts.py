"""What a NameServer says, of one RocketMQ cluster alone: others may be registered with the same NameServers."""

from __future__ import annotations

import msgspec

from thermocline.remoting.bodies import ClusterInfo, TopicRouteData

__all__ = ["info_of_cluster", "route_in_cluster"]


def route_in_cluster(route: TopicRouteData, cluster_name: str) -> TopicRouteData:
    """A topic's route with the brokers of one cluster."""
    brokers = [broker for broker in route.broker_datas if broker.cluster == cluster_name]
    names = {broker.broker_name for broker in brokers}
    queues = [queue for queue in route.queue_datas if queue.broker_name in names]
    return msgspec.structs.replace(route, broker_datas=brokers, queue_datas=queues)


def info_of_cluster(info: ClusterInfo, cluster_name: str) -> ClusterInfo:
    """The list of brokers with those of one cluster."""
    names = info.cluster_addr_table.get(cluster_name, [])
    return ClusterInfo(
        broker_addr_table={name: info.broker_addr_table[name] for name in names if name in info.broker_addr_table},
        cluster_addr_table={cluster_name: names},
    )
