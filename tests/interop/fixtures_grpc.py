"""Fixtures of the tests with official gRPC clients: their programs, compiled where they have to be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop.built_programs import built_go_program
from tests.interop.grpc_programs import GrpcProgram
from tooling.java_libraries import OFFICIAL_ROCKETMQ_GRPC, find_jars
from tooling.node_packages import ROCKETMQ_GRPC_NODE
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON
from tooling.rust_client import find_rust_client
from tooling.system_packages import find_node

HERE = Path(__file__).resolve().parent
COMPILE_TIMEOUT_S = 200


@pytest.fixture(scope="session")
def java_grpc(jdk_home: Path, tmp_path_factory: pytest.TempPathFactory) -> GrpcProgram:
    """`java_grpc/GrpcClients.java`."""
    jars = have(lambda: find_jars(OFFICIAL_ROCKETMQ_GRPC))
    target = tmp_path_factory.mktemp("java-grpc")
    javac = [str(jdk_home / "bin" / "javac"), "-nowarn", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", str(target)]
    subprocess.run([*javac, str(HERE / "java_grpc" / "GrpcClients.java")], check=True, timeout=COMPILE_TIMEOUT_S)
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Duser.home={target}"]
    java = str(jdk_home / "bin" / "java")
    return GrpcProgram(language="Java", words=[java, *options, "-cp", f"{target}:{jars}/*", "GrpcClients"])


@pytest.fixture(scope="session")
def go_grpc() -> GrpcProgram:
    """`go_grpc/main.go`."""
    return GrpcProgram(language="Go", words=[str(have(lambda: built_go_program(HERE / "go_grpc", "go-grpc")))])


@pytest.fixture(scope="session")
def node_grpc() -> GrpcProgram:
    """`node_grpc/clients.js`."""
    modules = {"NODE_PATH": str(have(ROCKETMQ_GRPC_NODE.find) / "node_modules")}
    words = [str(have(find_node)), str(HERE / "node_grpc" / "clients.js")]
    return GrpcProgram(language="Node", words=words, environment=modules, takes_list=False)


@pytest.fixture(scope="session")
def rust_grpc() -> GrpcProgram:
    """`rust_grpc/src/main.rs`."""
    return GrpcProgram(language="Rust", words=[str(have(find_rust_client))])


@pytest.fixture(scope="session")
def python_grpc_load() -> GrpcProgram:
    """`grpc_python/load.py`, which has the one scenario `load`."""
    wheels = {"PYTHONPATH": str(have(ROCKETMQ_GRPC_PYTHON.find))}
    words = [sys.executable, str(HERE / "grpc_python" / "load.py")]
    return GrpcProgram(language="Python", words=words, environment=wheels)
