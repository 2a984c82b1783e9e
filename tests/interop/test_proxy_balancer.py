"""Two proxies behind an HTTP/2 load balancer (HAProxy), under official gRPC clients that know the balancer alone.

Each RPC of a client may go to another proxy: its Telemetry stream is at one, its receives and acknowledgements at both.

Covers `proxy/http2/balancers.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.full_cases import full
from tests.interop.foreign_agent import ForeignAgent
from tests.interop.grpc_driver import GrpcDriver, bodies
from tests.interop.grpc_load import TOPIC, running_load
from tests.interop.grpc_programs import GrpcProgram, make_places, run_scenario
from tests.interop.grpc_python_agent import grpc_python_agent
from tests.interop.killable_broker import KillableBroker, name_server
from tests.interop.load_balancer import SOURCE, BalancedProxy, LoadBalancer, running_balancer
from tests.interop.proxy_daemons import BROKER_SETTINGS
from tests.interop.two_proxies import TwoProxies
from tests.proxy.http2_peer import GrpcPeer
from tests.proxy.proxy_under_test import message, send_request
from tests.waiting import wait_until
from thermocline.client import AdminClient
from thermocline.localstack.loopback_port import free_port
from thermocline.proxy.grpc.messages import Code
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON
from tooling.system_packages import find_haproxy

pytestmark = [pytest.mark.java, pytest.mark.go, pytest.mark.timeout(300), pytest.mark.xdist_group("interop-grpc")]

COUNT = 20
KILLS = 2
IDLE_S = 2
"""Of a balancer that cuts off long polls and Telemetry streams."""
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balanced:
    """The proxies, and the balancer before them."""

    proxies: TwoProxies
    balancer: LoadBalancer
    health_ports: tuple[int, int]

    @property
    def endpoint(self) -> str:
        """The address that clients connect to."""
        return f"127.0.0.1:{self.balancer.plain_port}"

    def client_addresses(self, group: str) -> set[str]:
        """IP addresses of a group's clients, as the proxies show them."""
        found = set()
        for port in self.health_ports:
            rows = json.loads(_read(f"http://127.0.0.1:{port}/clients?group={group}"))["clients"]
            found |= {row["address"].rpartition(":")[0] for row in rows}
        return found

    def cut_polls(self) -> float:
        """How many long polls were not ended by the proxies."""
        return sum(
            float(line.rpartition(" ")[2])
            for port in self.health_ports
            for line in _read(f"http://127.0.0.1:{port}/metrics").decode().splitlines()
            if line.startswith("rocketmq_rpc_latency_count")
            and 'request_code="ReceiveMessage"' in line
            and 'result="cancelled"' in line
        )


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: bytes = answer.read()
    return found


def balanced(
    stack: ExitStack, namesrv: str, directory: Path, *, idle_s: int = 600, balance: str = "roundrobin", **settings: str
) -> Balanced:
    """Start two proxies whose routes name the balancer, and the balancer."""
    plain_port, health_ports = free_port(), (free_port(), free_port())
    common = {"grpcAccessAddr": f"127.0.0.1:{plain_port}", "trustedBalancers": f"{SOURCE}/32", **settings}
    proxies = stack.enter_context(
        TwoProxies(namesrv, directory, common, own_settings=[{"healthPort": str(port)} for port in health_ports])
    )
    targets = [
        BalancedProxy(address=address, health_port=port)
        for address, port in zip(proxies.addresses, health_ports, strict=True)
    ]
    balancer = stack.enter_context(
        running_balancer(directory / "balancer", targets, plain_port=plain_port, idle_s=idle_s, balance=balance)
    )
    return Balanced(proxies=proxies, balancer=balancer, health_ports=health_ports)


@pytest.fixture(scope="module")
def namesrv(new_module_folder: Callable[[str], Path]) -> Iterator[str]:
    """A NameServer with a broker."""
    have(find_haproxy)
    directory = new_module_folder("balanced-broker")
    with (
        name_server(directory / "namesrv") as address,
        KillableBroker(directory / "broker", address, settings=BROKER_SETTINGS) as broker,
    ):
        with AdminClient(namesrv=address) as admin:
            wait_until(lambda: bool(admin.cluster_info()), what="the broker registers")
            admin.create_topic(TOPIC, queue_nums=4, attributes={"message.type": "NORMAL"})
            for language in ("Java", "Go"):
                make_places(address, language)
        yield address
        broker.check_log()


@pytest.fixture(scope="module")
def running(namesrv: str, new_module_folder: Callable[[str], Path]) -> Iterator[Balanced]:
    with ExitStack() as stack:
        yield balanced(stack, namesrv, new_module_folder("balanced"))


@pytest.fixture(scope="module")
def agent(new_module_folder: Callable[[str], Path]) -> Iterator[ForeignAgent]:
    with grpc_python_agent(have(ROCKETMQ_GRPC_PYTHON.find), new_module_folder("grpc-python")) as process:
        yield process


@pytest.fixture(scope="module")
def admin(namesrv: str) -> Iterator[AdminClient]:
    with AdminClient(namesrv=namesrv) as client:
        yield client


@pytest.fixture
def driver(agent: ForeignAgent, admin: AdminClient, running: Balanced) -> Iterator[GrpcDriver]:
    found = GrpcDriver(agent, admin, running.endpoint)
    yield found
    found.stop_all()


# -- what clients do ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "scenario", "security"),
    [
        ("java", "simple", "plain"),
        ("go", "push", "plain"),
        *full(("java", "push", "plain")),
        *full(
            *(
                (language, scenario, "plain")
                for language in ("java", "go")
                for scenario in ("check", "fifo", "transaction", "retry")
            )
        ),
    ],
)
def test_clients_run_their_scenarios(
    request: pytest.FixtureRequest, running: Balanced, tmp_path: Path, language: str, scenario: str, security: str
) -> None:
    program: GrpcProgram = request.getfixturevalue(f"{language}_grpc")
    run_scenario(program, running.endpoint, scenario, home=tmp_path, security=security)


def test_the_python_client_sends_and_receives(driver: GrpcDriver) -> None:
    driver.make_topic("NORMAL")
    wanted = [str(number) for number in range(COUNT)]
    driver.send(*({"body": body} for body in wanted))
    assert sorted(bodies(driver.receive(driver.start("simple"), count=COUNT))) == sorted(wanted)
    consumer = driver.start("push")
    driver.send(*({"body": body} for body in wanted))
    assert sorted(bodies(driver.pushed(consumer, count=COUNT))) == sorted(wanted)


def test_the_broker_asks_the_python_client_about_transactions(driver: GrpcDriver) -> None:
    driver.make_topic("TRANSACTION")
    producer = driver.start("producer", checks=True)
    wanted = [f"{end} {driver.topic} {number}" for number in range(3) for end in ("commit", "rollback")]
    for body in wanted:
        driver.call("send_half", name=producer, topic=driver.topic, transaction=body, body=body)
    consumer = driver.start("simple")
    committed = [body for body in wanted if body.startswith("commit")]
    assert sorted(bodies(driver.receive(consumer, count=len(committed)))) == sorted(committed)


@pytest.mark.parametrize("security", ["plain", *full("tls")])
def test_routes_may_name_the_balancer_as_clients_were_told_it(
    namesrv: str, java_grpc: GrpcProgram, tmp_path: Path, security: str
) -> None:
    """It has one port for plain text and one for TLS, which it ends."""
    with ExitStack() as stack:
        settings = {"grpcAccessAddr": "", "useEndpointPortFromRequest": "true"}
        found = balanced(stack, namesrv, tmp_path, **settings)
        port = found.balancer.tls_port if security == "tls" else found.balancer.plain_port
        run_scenario(java_grpc, f"127.0.0.1:{port}", "simple", home=tmp_path, security=security)


# -- proxies and streams that end --------------------------------------------------------------------------------------


def kill_in_turn(namesrv: str, directory: Path, programs: list[GrpcProgram], *, kills: int) -> None:
    """Kill one proxy after the other under load; fails when a message is lost.

    The Go client closes its connection when the balancer has no proxy for one of its RPCs; what a proxy has sent it by
    then is renewed for `renewMaxTimeMillis`, and comes again after that.
    """
    renewal = {"defaultInvisibleTimeMills": "10000", "renewAheadTimeMillis": "5000", "renewMaxTimeMillis": "20000"}
    with ExitStack() as stack:
        found = balanced(stack, namesrv, directory, **renewal)
        for index in range(2):
            found.proxies.end(index)
            found.proxies.start(index, is_killed=True)
        load = stack.enter_context(running_load(programs, [found.endpoint], directory / "clients"))
        for kill in range(kills):
            found.proxies.end(kill % 2)
            load.wait_for_progress()
            found.proxies.start(kill % 2, is_killed=True)
            load.wait_for_progress()
        load.finish()
        assert min(len(client.sent) for client in load.clients.values()) > COUNT


@pytest.mark.full
def test_no_message_is_lost_when_a_proxy_is_killed_and_another_one_started(
    namesrv: str, java_grpc: GrpcProgram, go_grpc: GrpcProgram, python_grpc_load: GrpcProgram, tmp_path: Path
) -> None:
    kill_in_turn(namesrv, tmp_path, [java_grpc, go_grpc, python_grpc_load], kills=KILLS)


@pytest.mark.full
def test_no_message_is_lost_with_more_clients_and_kills(
    namesrv: str,
    java_grpc: GrpcProgram,
    go_grpc: GrpcProgram,
    node_grpc: GrpcProgram,
    python_grpc_load: GrpcProgram,
    tmp_path: Path,
) -> None:
    kill_in_turn(namesrv, tmp_path, [java_grpc, go_grpc, node_grpc, python_grpc_load], kills=3 * KILLS)


def test_a_balancer_that_cuts_off_idle_streams_costs_no_message(
    namesrv: str, agent: ForeignAgent, admin: AdminClient, tmp_path: Path
) -> None:
    """Long polls wait for twice as long as it lets a stream be silent; clients poll again."""
    polls = {f"grpcClientConsumer{kind}LongPollingTimeoutMillis": str(IDLE_S * 2_000) for kind in ("Min", "Max")}
    with ExitStack() as stack:
        found = balanced(stack, namesrv, tmp_path, idle_s=IDLE_S, **polls)
        driver = GrpcDriver(agent, admin, found.endpoint)
        driver.make_topic("NORMAL")
        consumer, producer = driver.start("push"), driver.start("producer")
        wanted, received = [str(number) for number in range(3)], []
        for number in wanted:
            before = found.cut_polls()
            wait_until(lambda before=before: found.cut_polls() > before, what="a poll is cut off")  # type: ignore[misc]
            driver.call("send", name=producer, topic=driver.topic, messages=[{"body": number}])
            received += bodies(driver.pushed(consumer, count=1))
        assert received == wanted
        driver.stop_all()


@pytest.mark.full
def test_the_java_client_opens_its_telemetry_stream_again(namesrv: str, java_grpc: GrpcProgram, tmp_path: Path) -> None:
    """It is cut off before the broker asks about transactions, which it does after a second."""
    with ExitStack() as stack:
        found = balanced(stack, namesrv, tmp_path, idle_s=1)
        run_scenario(java_grpc, found.endpoint, "check", home=tmp_path, security="plain")


def test_handles_are_renewed_where_a_client_has_one_proxy(
    namesrv: str, agent: ForeignAgent, admin: AdminClient, tmp_path: Path
) -> None:
    """The balancer chooses by the client's id: a listener that takes longer than the invisible time gets its message
    once."""
    renewal = {
        "defaultInvisibleTimeMills": "2000",
        "renewAheadTimeMillis": "1500",
        "renewSchedulePeriodMillis": "100",
    }
    with ExitStack() as stack:
        found = balanced(stack, namesrv, tmp_path, balance="hdr(x-mq-client-id)", **renewal)
        driver = GrpcDriver(agent, admin, found.endpoint)
        driver.make_topic("NORMAL", queues=1)
        consumer = driver.start("push", work_s=5.0)
        driver.send({"body": "slow"})
        assert [each["attempt"] for each in driver.pushed(consumer, count=1)] == [1]
        driver.send({"body": "next"})
        assert bodies(driver.pushed(consumer, count=1)) == ["next"]
        wait_until(lambda: {row.lag for row in admin.group_progress(driver.group)} == {0}, what="both are done with")
        assert driver.call("received", name=consumer, count=1, timeout_ms=3_000) == []
        driver.stop_all()


# -- who a client is ---------------------------------------------------------------------------------------------------


def test_a_trusted_balancer_says_who_a_client_is(driver: GrpcDriver, running: Balanced) -> None:
    driver.make_topic("NORMAL")
    driver.send({"body": "one"})
    consumer = driver.start("push")
    assert bodies(driver.pushed(consumer, count=1)) == ["one"]
    wait_until(lambda: running.client_addresses(driver.group), what="the consumer is registered")
    assert running.client_addresses(driver.group) == {"127.0.0.1"}


@pytest.mark.parametrize(("trusted", "counted"), [(SOURCE, "127.0.0.1"), ("", SOURCE)])
def test_quotas_count_the_client_whatever_it_claims(namesrv: str, tmp_path: Path, trusted: str, counted: str) -> None:
    """Without trust it is the balancer that is limited, with all its clients."""
    topic = f"Claimed{next(_numbers)}"
    with AdminClient(namesrv=namesrv) as admin:
        admin.create_topic(topic, queue_nums=1, attributes={"message.type": "NORMAL"})

    async def codes(port: int) -> list[int]:
        async with GrpcPeer(f"127.0.0.1:{port}") as peer:
            request, claim = send_request(message(topic)), {"x-forwarded-for": "203.0.113.1"}
            return [(await peer.call("SendMessage", request, metadata=claim)).status.code for _ in range(6)]

    with ExitStack() as stack:
        quotas = f"address {counted} sendRequests=1"
        found = balanced(stack, namesrv, tmp_path, trustedBalancers=trusted, quotas=quotas)
        # Each of the two proxies takes one send a second.
        taken = asyncio.run(codes(found.balancer.plain_port))
    assert taken[:2] == [Code.OK, Code.OK]
    assert Code.TOO_MANY_REQUESTS in taken[2:]
