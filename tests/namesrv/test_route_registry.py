"""The route registry: who registers, what clients find, and how brokers leave."""

from dataclasses import replace

import pytest

from tests.clock import Clock
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.route_registry import BrokerRegistration, RegistrationResult, RouteRegistry
from thermocline.remoting.bodies import DataVersion, QueueData, TopicConfig, TopicQueueMappingInfo
from thermocline.remoting.errors import InvalidRequestError

CLUSTER = "DefaultCluster"
MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000)


def make_registry(clock: Clock, config: NameServerConfig | None = None) -> RouteRegistry:
    settings = config or NameServerConfig()
    return RouteRegistry(clock=clock, config=lambda: settings)


@pytest.fixture
def registry(clock: Clock) -> RouteRegistry:
    return make_registry(clock)


def topic(name: str, *, queues: int = 4, perm: int = 6, flag: int = 0) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm, topic_sys_flag=flag)


def registration(
    *topics: TopicConfig,
    name: str = "broker-a",
    broker_id: int = 0,
    address: str = MASTER,
    counter: int = 1,
    state_version: int = 0,
    cluster: str = CLUSTER,
    **more: object,
) -> BrokerRegistration:
    return BrokerRegistration(
        cluster=cluster,
        broker_name=name,
        broker_id=broker_id,
        address=address,
        ha_address=f"{address}-ha",
        data_version=DataVersion(counter=counter, state_version=state_version, timestamp=7),
        topics={config.topic_name: config for config in topics},
        **more,  # type: ignore[arg-type]
    )


def perms(registry: RouteRegistry, name: str) -> list[int]:
    route = registry.route(name)
    return [] if route is None else [data.perm for data in route.queue_datas]


def test_a_registered_topic_has_a_route(registry: RouteRegistry) -> None:
    registry.register(registration(topic("T", queues=8), topic("U")), connection="c")
    route = registry.route("T")
    assert route is not None
    assert route.queue_datas == [
        QueueData(broker_name="broker-a", perm=6, read_queue_nums=8, write_queue_nums=8, topic_sys_flag=0)
    ]
    assert [data.broker_addrs for data in route.broker_datas] == [{0: MASTER}]
    assert registry.route("no such topic") is None


def test_a_renamed_broker_leaves_nothing_of_its_former_name_behind_its_former_connection(
    registry: RouteRegistry, clock: Clock
) -> None:
    """The machine lost power, and the connection of its former life is half open."""
    registry.register(registration(topic("T"), topic("U"), name="former"), connection="half open")
    clock.now_ms += 60_000
    registry.register(registration(topic("T"), topic("V"), name="broker-a"), connection="c")
    clock.now_ms += 60_001
    assert registry.expire() == ["half open"]
    route = registry.route("T")
    assert route is not None
    assert [data.broker_name for data in route.queue_datas] == ["broker-a"]
    assert registry.route("U") is None
    assert registry.cluster_info().cluster_addr_table == {CLUSTER: ["broker-a"]}


def test_a_broker_that_moved_to_another_cluster_stays(registry: RouteRegistry, clock: Clock) -> None:
    former = replace(registration(topic("T"), topic("U")), cluster="former")
    registry.register(former, connection="half open")
    clock.now_ms += 60_000
    registry.register(registration(topic("T"), topic("U")), connection="c")
    clock.now_ms += 60_001
    assert registry.expire() == ["half open"]
    info = registry.cluster_info()
    assert info.cluster_addr_table == {CLUSTER: ["broker-a"]}
    assert info.broker_addr_table["broker-a"].cluster == CLUSTER
    assert registry.route("T") is not None


def test_a_single_topic_from_an_unknown_broker_is_refused(registry: RouteRegistry) -> None:
    with pytest.raises(InvalidRequestError, match="register broker failed"):
        registry.register(registration(topic("T")), connection="c")
    assert registry.route("T") is None
    assert registry.cluster_info().broker_addr_table == {}
    registry.register(registration(topic("T"), topic("U")), connection="c")
    registry.register(registration(topic("V"), counter=2), connection="c")
    assert registry.route("V") is not None


def test_topics_are_taken_over_when_the_version_differs_or_a_topic_is_missing(registry: RouteRegistry) -> None:
    registry.register(registration(topic("T"), topic("U")), connection="c")
    registry.register(registration(topic("T", queues=16), topic("U"), topic("New")), connection="c")
    assert [data.read_queue_nums for data in registry.route("T").queue_datas] == [4]  # type: ignore[union-attr]
    assert registry.route("New") is not None
    registry.register(registration(topic("T", queues=16), topic("U"), counter=2), connection="c")
    assert [data.read_queue_nums for data in registry.route("T").queue_datas] == [16]  # type: ignore[union-attr]


def test_wiped_write_permission_comes_back_with_a_changed_version_only(registry: RouteRegistry) -> None:
    registry.register(registration(topic("T"), topic("U", perm=4)), connection="c")
    assert registry.wipe_write_perm("broker-a") == 2
    assert perms(registry, "T") == [4]
    registry.register(registration(topic("T"), topic("U", perm=4)), connection="c")
    assert perms(registry, "T") == [4]
    registry.register(registration(topic("T"), topic("U", perm=4), counter=2), connection="c")
    assert perms(registry, "T") == [6]
    assert registry.add_write_perm("broker-a") == 2
    assert perms(registry, "U") == [6]
    assert registry.wipe_write_perm("no such broker") == 0


def test_a_closed_connection_removes_its_broker_only(registry: RouteRegistry) -> None:
    registry.register(registration(topic("T"), topic("U")), connection="one")
    registry.register(registration(topic("T"), topic("V"), name="broker-b", address="10.0.0.3:10911"), connection="two")
    registry.connection_closed("one")
    route = registry.route("T")
    assert route is not None
    assert [data.broker_name for data in route.queue_datas] == ["broker-b"]
    assert registry.route("U") is None
    assert registry.cluster_info().cluster_addr_table == {CLUSTER: ["broker-b"]}
    registry.connection_closed("two")
    assert registry.cluster_info().cluster_addr_table == {}
    assert registry.topics() == []


def test_an_old_connection_that_closes_late_takes_nothing_with_it(registry: RouteRegistry) -> None:
    registry.register(registration(topic("T"), topic("U")), connection="old")
    registry.register(registration(topic("T"), topic("U")), connection="new")
    registry.connection_closed("old")
    assert registry.route("T") is not None


def test_a_silent_broker_expires(clock: Clock, registry: RouteRegistry) -> None:
    registry.register(registration(topic("T"), topic("U")), connection="c")
    registry.register(
        registration(topic("T"), topic("U"), name="broker-b", address="10.0.0.3:10911", expiry_ms=1_000),
        connection="d",
    )
    clock.now_ms += 1_001
    assert registry.expire() == ["d"]
    clock.now_ms += 118_999
    registry.heartbeat(cluster=CLUSTER, broker_name="broker-a", address=MASTER)
    clock.now_ms += 120_000
    assert registry.expire() == []
    clock.now_ms += 1
    assert registry.expire() == ["c"]
    assert registry.route("T") is None


def test_a_broker_that_leaves_by_request_is_gone(registry: RouteRegistry) -> None:
    registry.register(registration(topic("T"), topic("U")), connection="c")
    registry.unregister(cluster=CLUSTER, broker_name="broker-a", address=MASTER)
    assert registry.route("T") is None
    assert registry.data_version(cluster=CLUSTER, broker_name="broker-a", address=MASTER) is None
    registry.unregister(cluster=CLUSTER, broker_name="broker-a", address=MASTER)


def test_a_slave_learns_of_its_master_and_changes_no_topic(registry: RouteRegistry) -> None:
    assert registry.register(registration(topic("T"), topic("U")), connection="c") == RegistrationResult()
    result = registry.register(
        registration(topic("T", queues=1), topic("U"), broker_id=1, address=SLAVE, counter=5), connection="d"
    )
    assert result == RegistrationResult(master_address=MASTER, ha_address=f"{MASTER}-ha")
    route = registry.route("T")
    assert route is not None
    assert route.queue_datas[0].read_queue_nums == 4
    assert route.broker_datas[0].broker_addrs == {0: MASTER, 1: SLAVE}


def test_a_promoted_slave_is_listed_once(registry: RouteRegistry) -> None:
    registry.register(registration(topic("T"), topic("U")), connection="c")
    registry.register(registration(topic("T"), topic("U"), broker_id=1, address=SLAVE), connection="d")
    registry.unregister(cluster=CLUSTER, broker_name="broker-a", address=MASTER)
    registry.register(registration(topic("T"), topic("U"), broker_id=0, address=SLAVE, counter=9), connection="d")
    assert registry.broker_addresses("broker-a") == {0: SLAVE}


def test_a_former_master_with_an_older_state_is_passed_over(registry: RouteRegistry) -> None:
    registry.register(registration(topic("T"), topic("U"), state_version=3), connection="c")
    late = registration(topic("T"), topic("U"), address=SLAVE, state_version=2)
    assert registry.register(late, connection="d") == RegistrationResult()
    assert registry.broker_addresses("broker-a") == {0: MASTER}


def test_a_prime_slave_serves_without_write_permission(clock: Clock) -> None:
    registry = make_registry(clock, NameServerConfig(acting_master=True))
    registry.register(
        registration(topic("T"), topic("U"), broker_id=1, address=SLAVE, enable_acting_master=True), connection="d"
    )
    route = registry.route("T")
    assert route is not None
    assert perms(registry, "T") == [4]
    assert route.broker_datas[0].broker_addrs == {0: SLAVE}  # shown as the master it acts for
    assert registry.broker_addresses("broker-a") == {1: SLAVE}


def test_write_permission_goes_with_the_master(clock: Clock) -> None:
    registry = make_registry(clock, NameServerConfig(acting_master=True))
    registry.register(registration(topic("T"), topic("U"), enable_acting_master=True), connection="c")
    registry.register(
        registration(topic("T"), topic("U"), broker_id=1, address=SLAVE, enable_acting_master=True), connection="d"
    )
    registry.unregister(cluster=CLUSTER, broker_name="broker-a", address=MASTER)
    assert perms(registry, "T") == [4]


def test_topics_are_deleted_everywhere_or_in_one_cluster(registry: RouteRegistry) -> None:
    registry.register(registration(topic("T"), topic("U")), connection="c")
    registry.delete_topic("T", cluster="another")
    assert registry.route("T") is not None
    registry.delete_topic("T", cluster=CLUSTER)
    assert registry.route("T") is None
    registry.delete_topic("U")
    assert registry.topics() == []
    registry.register(registration(topic("T"), topic("U")), connection="c")  # missing topics come back
    assert registry.route("T") is not None


def test_topics_missing_in_a_registration_are_removed_on_request(clock: Clock) -> None:
    registry = make_registry(clock, NameServerConfig(delete_topics_with_registration=True))
    registry.register(registration(topic("T"), topic("U")), connection="c")
    registry.register(registration(topic("U"), topic("V"), counter=2), connection="c")
    assert sorted(registry.topics()) == ["U", "V"]


def test_lists(registry: RouteRegistry) -> None:
    registry.register(registration(topic("T", flag=1), topic("U", flag=2), topic("V", flag=3)), connection="c")
    assert registry.topics() == ["T", "U", "V"]
    assert registry.topics_of_cluster(CLUSTER)
    assert not registry.topics_of_cluster("another")
    assert registry.topics_by_flag(with_flag=1) == ["T", "V"]
    assert registry.topics_by_flag(with_flag=2) == ["U", "V"]
    assert registry.topics_by_flag(with_flag=2, without_flag=1) == ["U"]
    assert registry.system_topics() == ([CLUSTER, "broker-a"], MASTER)


def test_single_topics_are_added_at_known_brokers_only(registry: RouteRegistry) -> None:
    registry.add_queue_data("T", [QueueData(broker_name="broker-a", perm=6, read_queue_nums=1, write_queue_nums=1)])
    assert registry.route("T") is None
    registry.register(registration(topic("U"), topic("V")), connection="c")
    registry.add_queue_data("T", [QueueData(broker_name="broker-a", perm=6, read_queue_nums=1, write_queue_nums=1)])
    assert registry.route("T") is not None


def test_static_topics_and_filter_servers_come_with_the_route(registry: RouteRegistry) -> None:
    mapping = TopicQueueMappingInfo(topic="T", broker_name="broker-a", total_queues=4, curr_id_map={0: 0})
    registry.register(
        registration(topic("T"), topic("U"), mappings={"T": mapping}, filter_servers=("10.0.0.9:1",)), connection="c"
    )
    route = registry.route("T")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"broker-a": mapping}
    assert route.filter_server_table == {MASTER: ["10.0.0.9:1"]}
    assert registry.route("U").topic_queue_mapping_by_broker is None  # type: ignore[union-attr]


def test_filter_servers_go_with_their_broker(registry: RouteRegistry) -> None:
    """Those of a former master that had not noticed stayed for ever, one list for each address that came so."""
    for number in range(3):
        one = registration(topic("T"), topic("U"), address=f"10.0.1.{number}:1", filter_servers=("10.0.0.9:1",))
        registry.register(one, connection=f"c{number}")
        newer = replace(one, address=MASTER, data_version=DataVersion(counter=1, state_version=9), filter_servers=())
        registry.register(newer, connection="c")
        registry.register(one, connection=f"c{number}")  # passed over
        registry.unregister(cluster=CLUSTER, broker_name="broker-a", address=MASTER)
    assert not registry._filter_servers
    assert registry.cluster_info().broker_addr_table == {}


def static(total: int = 4, epoch: int = 1) -> TopicQueueMappingInfo:
    return TopicQueueMappingInfo(topic="T", broker_name="broker-a", total_queues=total, epoch=epoch)


def mapping_of(registry: RouteRegistry) -> TopicQueueMappingInfo | None:
    route = registry.route("T")
    assert route is not None
    return (route.topic_queue_mapping_by_broker or {}).get("broker-a")


def test_a_mapping_is_replaced_with_its_topic_and_stays_with_those_of_others(registry: RouteRegistry) -> None:
    registry.register(registration(topic("T"), topic("U"), mappings={"T": static()}), connection="c")
    registry.register(registration(topic("T"), counter=2, mappings={"T": static(8, 2)}), connection="c")
    assert mapping_of(registry) == static(8, 2)
    registry.register(registration(topic("U"), counter=3), connection="c")
    assert mapping_of(registry) == static(8, 2)


def test_a_mapping_that_comes_in_a_later_part_of_a_registration_is_taken(registry: RouteRegistry) -> None:
    """Official brokers that register in parts send all mappings with the last one, under one version."""
    registry.register(registration(topic("T"), topic("U")), connection="c")
    registry.register(registration(topic("V"), mappings={"T": static()}), connection="c")
    assert mapping_of(registry) == static()


def test_a_topic_that_comes_again_without_a_mapping_is_an_ordinary_one(registry: RouteRegistry) -> None:
    registry.register(registration(topic("T"), topic("U"), mappings={"T": static()}), connection="c")
    registry.register(registration(topic("T"), counter=2), connection="c")
    assert mapping_of(registry) is None


def test_a_mapping_goes_with_its_topic(registry: RouteRegistry) -> None:
    registry.register(registration(topic("T"), topic("U"), mappings={"T": static()}), connection="c")
    registry.delete_topic("T")
    registry.register(registration(topic("T"), topic("U"), counter=2), connection="c")
    assert mapping_of(registry) is None


def test_a_broker_that_comes_again_with_another_name_leaves_nothing_behind(
    registry: RouteRegistry, clock: Clock
) -> None:
    """Its machine lost power, so the end of the first connection is noticed by its silence alone."""
    registry.register(registration(topic("T"), topic("U"), name="old"), connection="c")
    registry.register(registration(topic("T"), topic("U"), name="new"), connection="d")
    clock.now_ms += 100_000
    registry.heartbeat(cluster=CLUSTER, broker_name="new", address=MASTER)
    clock.now_ms += 100_000
    assert registry.expire() == ["c"]
    assert list(registry.cluster_info().broker_addr_table) == ["new"]
    route = registry.route("T")
    assert route is not None
    assert [data.broker_name for data in route.queue_datas] == ["new"]


def test_a_broker_that_comes_again_with_another_cluster_is_in_that_one_alone(
    registry: RouteRegistry, clock: Clock
) -> None:
    registry.register(registration(topic("T"), topic("U"), cluster="old"), connection="c")
    registry.register(registration(topic("T"), topic("U"), cluster="new"), connection="d")
    clock.now_ms += 100_000
    registry.heartbeat(cluster="new", broker_name="broker-a", address=MASTER)
    clock.now_ms += 100_000
    assert registry.expire() == ["c"]
    assert registry.broker_addresses("broker-a") == {0: MASTER}
    assert registry.cluster_info().cluster_addr_table == {"new": ["broker-a"]}
    assert registry.cluster_info().broker_addr_table["broker-a"].cluster == "new"
    assert sorted(registry.topics_of_cluster("new")) == ["T", "U"]
    registry.connection_closed("d")
    assert registry.topics_of_cluster("new") == []
    assert registry.cluster_info().cluster_addr_table == {}


@pytest.mark.parametrize("ends_by", ["connection", "request"])
def test_master_and_slave_of_different_clusters(registry: RouteRegistry, ends_by: str) -> None:
    """An operator renames the cluster, one broker after the other."""

    def end(cluster: str, address: str, connection: str) -> None:
        if ends_by == "request":
            registry.unregister(cluster=cluster, broker_name="broker-a", address=address)
        registry.connection_closed(connection)

    registry.register(registration(topic("T"), topic("U"), cluster="old"), connection="c")
    registry.register(registration(broker_id=1, address=SLAVE, cluster="old"), connection="d")
    end("old", MASTER, "c")
    registry.register(registration(topic("T"), topic("U"), cluster="new"), connection="e")
    assert registry.cluster_info().cluster_addr_table == {"old": ["broker-a"], "new": ["broker-a"]}
    end("old", SLAVE, "d")
    registry.register(registration(broker_id=1, address=SLAVE, cluster="new"), connection="f")
    assert registry.cluster_info().cluster_addr_table == {"new": ["broker-a"]}
    end("new", MASTER, "e")
    end("new", SLAVE, "f")
    assert registry.cluster_info().cluster_addr_table == {}
    assert registry.topics_of_cluster("new") == registry.topics_of_cluster("old") == []


def test_a_leave_of_another_name_forgets_nothing(registry: RouteRegistry, clock: Clock) -> None:
    """It had the broker's address stay in routes when the broker was gone."""
    registry.register(registration(topic("T"), topic("U")), connection="c")
    registry.unregister(cluster=CLUSTER, broker_name="broker-z", address=MASTER)
    registry.connection_closed("c")
    assert registry.route("T") is None
