"""Official gRPC clients of four languages under load while proxies are killed and replaced, and while a cluster grows.

Nothing acknowledged is lost, whatever happens to a proxy; a planned change is no pause and no burst of repetitions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.clock import now_ms
from tests.interop.cluster import thermocline_broker
from tests.interop.grpc_load import TOPIC, running_load
from tests.interop.grpc_programs import GrpcProgram
from tests.interop.killable_broker import KillableBroker, name_server
from tests.interop.proxy_daemons import BROKER_SETTINGS
from tests.interop.two_proxies import TwoProxies
from tests.process_groups import processes_of
from tests.waiting import wait_until
from thermocline.client import AdminClient

pytestmark = [
    pytest.mark.full,
    pytest.mark.java,
    pytest.mark.go,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("interop-grpc-load"),
]

SETTINGS = {
    "useEndpointPortFromRequest": "true",  # routes name both proxies, as the clients' settings do
    "defaultInvisibleTimeMills": "10000",
    "renewAheadTimeMillis": "5000",
    "renewSchedulePeriodMillis": "1000",
}
KILL_PERIOD_S = 10.0
KILLS = 4


PAUSE_MS_MAX = 1_000
"""Between two receipts of a client that gets a message every few milliseconds; beside it twice the longest one while a
broker of another cluster starts on this machine. One that waits for a time limit of its own waits for 3 s and more."""
REPEATED_MAX = 20
"""Of some thousand messages: which are a burst."""
HELD_MAX = 128
"""A proxy that stops gives back what its push consumers hold: a few receives of 32, by both stops."""


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    with name_server(tmp_path / "namesrv") as address:
        yield address


@pytest.fixture
def broker(namesrv: str, tmp_path: Path) -> Iterator[KillableBroker]:
    """A broker with the topic."""
    with KillableBroker(tmp_path / "broker", namesrv, settings=BROKER_SETTINGS) as running:
        with AdminClient(namesrv=namesrv) as admin:
            wait_until(lambda: bool(admin.cluster_info()), what="the broker registers")
            admin.create_topic(TOPIC, queue_nums=4, attributes={"message.type": "NORMAL"})
        yield running


@pytest.fixture
def programs(
    java_grpc: GrpcProgram, go_grpc: GrpcProgram, node_grpc: GrpcProgram, python_grpc_load: GrpcProgram
) -> Sequence[GrpcProgram]:
    return [java_grpc, go_grpc, node_grpc, python_grpc_load]


def test_no_message_is_lost_while_one_of_two_proxies_is_killed_every_ten_seconds(
    namesrv: str, broker: KillableBroker, programs: Sequence[GrpcProgram], tmp_path: Path
) -> None:
    with TwoProxies(namesrv, tmp_path, SETTINGS) as proxies:
        for index in range(2):
            proxies.end(index)
            proxies.start(index, is_killed=True)
        with running_load(programs, proxies.addresses, tmp_path / "clients") as load:
            for kill in range(KILLS):
                due = time.monotonic() + KILL_PERIOD_S
                proxies.end(kill % 2)
                load.wait_for_progress(is_first_away=kill % 2 == 0)  # by the other one
                proxies.start(kill % 2, is_killed=True)
                wait_until(lambda due=due: time.monotonic() >= due, what="the next kill is due")  # type: ignore[misc]
            load.finish()
            assert min(len(client.sent) for client in load.clients.values()) > 100


def test_a_rolling_restart_of_the_proxies_leaves_the_broker_alone_and_loses_nothing(
    namesrv: str, broker: KillableBroker, programs: Sequence[GrpcProgram], tmp_path: Path
) -> None:
    before = processes_of(broker.process_id)
    with (
        TwoProxies(namesrv, tmp_path, SETTINGS) as proxies,
        running_load(programs, proxies.addresses, tmp_path / "clients") as load,
    ):
        for index in (0, 1):
            proxies.end(index)
            load.wait_for_progress(is_first_away=index == 0)
            proxies.start(index, is_killed=False)
            load.wait_for_progress()
        load.finish()
        assert max(load.repeated().values()) <= HELD_MAX, load.repeated()
    assert processes_of(broker.process_id) == before


def test_queues_and_a_broker_that_are_added_make_no_pause_and_no_burst(
    namesrv: str, broker: KillableBroker, programs: Sequence[GrpcProgram], tmp_path: Path
) -> None:
    with (
        AdminClient(namesrv=namesrv) as admin,
        TwoProxies(namesrv, tmp_path, SETTINGS) as proxies,
        running_load(programs, proxies.addresses, tmp_path / "clients") as load,
    ):

        def queues_in_use() -> int:
            return sum(queue.max_offset > 0 for queue in admin.topic_stats(TOPIC))

        calm_ms = now_ms()
        with (
            name_server(tmp_path / "other-namesrv") as other,
            thermocline_broker(tmp_path / "other", name="broker-b", namesrv=other),
        ):
            load.wait_for_progress()  # beside a broker that starts, and has nothing to do with these clients
        start_ms = now_ms()
        admin.create_topic(TOPIC, queue_nums=8, broker=broker.name, attributes={"message.type": "NORMAL"})
        wait_until(lambda: queues_in_use() == 8, what="the new queues get messages")
        with thermocline_broker(tmp_path / "second", name="broker-b", namesrv=namesrv):
            wait_until(lambda: len(admin.cluster_info()) == 2, what="the second broker registers")
            admin.create_topic(TOPIC, queue_nums=4, broker="broker-b", attributes={"message.type": "NORMAL"})
            wait_until(lambda: queues_in_use() == 12, what="the second broker gets messages")
            load.wait_for_progress()
            load.finish()
        pauses_ms = load.longest_pauses_ms(start_ms)
        machine_ms = load.longest_pauses_ms(calm_ms, start_ms)
        late = {name: pause for name, pause in pauses_ms.items() if pause > PAUSE_MS_MAX + 2 * machine_ms[name]}
        assert late == {}, machine_ms
        assert max(load.repeated().values()) <= REPEATED_MAX, load.repeated()
