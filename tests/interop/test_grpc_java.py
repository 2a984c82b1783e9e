"""RocketMQ's official Java client for gRPC, unmodified, through a proxy to a broker; `java_grpc/GrpcClients.java`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop.grpc_programs import SCENARIOS, make_places, run_scenario
from tests.interop.proxy_daemons import ProxyDaemons, proxy_daemons
from tooling.java_libraries import OFFICIAL_ROCKETMQ_GRPC, find_jars

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("interop-grpc")]

PROGRAM = Path(__file__).resolve().parent / "java_grpc" / "GrpcClients.java"
COMPILE_TIMEOUT_S = 200


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyDaemons]:
    """A NameServer, a broker and a proxy, with a topic of each type."""
    with proxy_daemons(tmp_path_factory.mktemp("proxy-java")) as running:
        make_places(running.namesrv, "Java")
        yield running


@pytest.fixture(scope="module")
def classes(jdk_home: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Java, and the class path of the compiled program."""
    jars = have(lambda: find_jars(OFFICIAL_ROCKETMQ_GRPC))
    target = tmp_path_factory.mktemp("java-grpc")
    javac = [str(jdk_home / "bin" / "javac"), "-nowarn", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", str(target)]
    subprocess.run([*javac, str(PROGRAM)], check=True, timeout=COMPILE_TIMEOUT_S)
    return jdk_home / "bin" / "java", f"{target}:{jars}/*"


@pytest.mark.parametrize(("scenario", "security"), [*((each, "plain") for each in SCENARIOS), ("transaction", "tls")])
def test_the_java_client_runs_a_scenario(
    daemons: ProxyDaemons, classes: tuple[Path, str], tmp_path: Path, scenario: str, security: str
) -> None:
    """TLS is what this client does unless it is told not to; it takes any certificate."""
    java, class_path = classes
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Duser.home={tmp_path}"]
    command = [str(java), *options, "-cp", class_path, "GrpcClients"]
    run_scenario(command, daemons.endpoint, "Java", scenario, security=security)
