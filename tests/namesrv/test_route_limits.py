"""What brokers, or clients that call themselves brokers, make a NameServer remember: bounds, and nothing that stays."""

from __future__ import annotations

import pytest

from tests.clock import Clock
from tests.namesrv.test_route_registry import CLUSTER, make_registry, registration, topic
from thermocline.namesrv.kv_config import KVConfig
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.processor import NameServerProcessor
from thermocline.namesrv.route_registry import RouteRegistry
from thermocline.remoting.bodies import QueueData, TopicQueueMappingInfo
from thermocline.remoting.errors import BrokerBusyError, InvalidParameterError

TOPICS = (topic("T"), topic("U"))


def registry_with(**settings: int) -> RouteRegistry:
    return make_registry(Clock(1_000_000), NameServerConfig(**settings))  # type: ignore[arg-type]


def register(registry: RouteRegistry, number: int, *, connection: str, count: int = 2) -> None:
    topics = [topic(f"T{index}") for index in range(count)]
    name, address = f"broker-{number}", f"10.0.0.{number}:10911"
    registry.register(registration(*topics, name=name, address=address), connection=connection)


def test_brokers_of_a_connection_and_in_all() -> None:
    registry = registry_with(connection_brokers_max=2, brokers_max=3)
    register(registry, 1, connection="c")
    register(registry, 2, connection="c")
    with pytest.raises(BrokerBusyError, match="brokersPerConnectionMax"):
        register(registry, 3, connection="c")
    register(registry, 1, connection="c")  # again, as brokers do
    register(registry, 3, connection="d")
    with pytest.raises(BrokerBusyError, match="brokersMax"):
        register(registry, 4, connection="d")
    assert sorted(registry.cluster_info().broker_addr_table) == ["broker-1", "broker-2", "broker-3"]
    registry.connection_closed("c")
    register(registry, 4, connection="d")
    register(registry, 1, connection="e")
    for connection in ("d", "e"):
        registry.connection_closed(connection)
    assert registry._live_by_connection == registry._live == registry._topics == {}
    assert registry._route_count == 0


def test_names_and_clusters_at_one_address() -> None:
    """Each one counts as a broker, and is gone with its connection."""
    registry = registry_with(connection_brokers_max=5, brokers_max=10)
    for number in range(5):
        registry.register(registration(name=f"broker-{number}"), connection="c")
    with pytest.raises(BrokerBusyError, match="brokersPerConnectionMax"):
        registry.register(registration(name="broker-5"), connection="c")
    for number in range(5):
        registry.register(registration(cluster=f"cluster-{number}"), connection="d")
    with pytest.raises(BrokerBusyError, match="brokersPerConnectionMax"):
        registry.register(registration(cluster="cluster-5"), connection="d")
    for connection in ("c", "d"):
        registry.connection_closed(connection)
    assert registry._live == registry._brokers == registry._clusters == {}


def test_topics_of_a_broker_and_of_all() -> None:
    registry = registry_with(broker_topics_max=5, routes_max=8)
    with pytest.raises(BrokerBusyError, match="topicsPerBrokerMax"):
        register(registry, 1, connection="c", count=6)
    assert registry.cluster_info().broker_addr_table == {}
    register(registry, 1, connection="c", count=5)
    with pytest.raises(BrokerBusyError, match="routesMax"):
        register(registry, 2, connection="c", count=4)
    register(registry, 2, connection="c", count=3)
    data = QueueData(broker_name="broker-2", read_queue_nums=1, write_queue_nums=1, perm=6, topic_sys_flag=0)
    registry.add_queue_data("T0", [data])
    with pytest.raises(BrokerBusyError, match="routesMax"):
        registry.add_queue_data("New", [data])
    assert registry.route("New") is None
    registry.delete_topic("T0")
    registry.add_queue_data("New", [data])
    registry.unregister(cluster=CLUSTER, broker_name="broker-1", address="10.0.0.1:10911")
    assert registry._route_count == 3


def test_texts_that_are_too_long() -> None:
    registry = registry_with()
    long = "x" * 256
    for refused in (
        registration(*TOPICS, name=long),
        registration(*TOPICS, address=long),
        registration(topic("T"), topic(long)),
        registration(*TOPICS, filter_servers=(long,)),
        registration(*TOPICS, filter_servers=("10.0.0.9:1",) * 101),
        registration(*TOPICS, zone_name=long),
        registration(*TOPICS, mappings={"T": TopicQueueMappingInfo(broker_name="broker-a", topic="T", scope=long)}),
    ):
        with pytest.raises(InvalidParameterError):
            registry.register(refused, connection="c")
    assert registry.cluster_info().broker_addr_table == {}
    with pytest.raises(InvalidParameterError):
        registry.add_queue_data(long, [])


def test_no_mapping_stays_without_its_topic() -> None:
    """Those of topics that the broker does not have, or in the name of another broker, stayed for ever."""
    registry = registry_with()
    mappings = {
        "NoTopic": TopicQueueMappingInfo(broker_name="broker-a", topic="NoTopic"),
        "T": TopicQueueMappingInfo(broker_name="broker-z", topic="T"),
        "U": TopicQueueMappingInfo(broker_name="broker-a", topic="U"),
    }
    registry.register(registration(*TOPICS, mappings=mappings), connection="c")
    assert list(registry._mappings) == ["U"]
    registry.connection_closed("c")
    assert registry._mappings == {}


def test_the_kv_configuration_has_a_size() -> None:
    clock = Clock(1_000_000)
    config = NameServerConfig(kv_config_bytes_max=100)
    kv = KVConfig()
    processor = NameServerProcessor(make_registry(clock, config), kv, config, clock=clock)
    kv.put("N", "key", "v" * 90)
    assert kv.size_with("N", "key", "v" * 90) == 94
    assert kv.size_with("N", "other", "") == 94 + 5
    with pytest.raises(BrokerBusyError, match="kvConfigBytesMax"):
        processor._limits.check_kv_bytes(address="10.0.0.1:5", size_bytes=kv.size_with("M", "other", "1"))
    processor._limits.check_kv_bytes(address="10.0.0.1:5", size_bytes=kv.size_with("N", "key", "v" * 96))
