"""Routes by zone: the part of a topic's route for a client that names its zone.

A client that names a zone in `__ZONE_MODE` and `__ZONE_NAME` gets the brokers of its zone, and those whose master is
away, so that it may read from a slave elsewhere.
Source: namesrv/route/ZoneRouteRPCHook.java, Apache RocketMQ 5.3.
"""

from thermocline.remoting.bodies import TopicRouteData

MASTER_ID = 0


def route_in_zone(route: TopicRouteData, zone_name: str) -> TopicRouteData:
    """The route without brokers of other zones that have a master."""
    kept = [
        broker
        for broker in route.broker_datas
        if MASTER_ID not in broker.broker_addrs or (broker.zone_name or "").lower() == zone_name.lower()
    ]
    kept_names = {broker.broker_name for broker in kept}
    removed = [broker for broker in route.broker_datas if broker.broker_name not in kept_names]
    removed_addresses = {address for broker in removed for address in broker.broker_addrs.values()}
    return TopicRouteData(
        order_topic_conf=route.order_topic_conf,
        queue_datas=[
            data for data in route.queue_datas if not any(data.broker_name == broker.broker_name for broker in removed)
        ],
        broker_datas=kept,
        filter_server_table={
            address: servers
            for address, servers in route.filter_server_table.items()
            if address not in removed_addresses
        },
        topic_queue_mapping_by_broker=route.topic_queue_mapping_by_broker,
    )
