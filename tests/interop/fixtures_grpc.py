"""Fixtures of the tests with official gRPC clients: their programs, compiled where they have to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tests.interop import grpc_programs
from tests.interop.grpc_programs import GrpcProgram


@pytest.fixture(scope="session")
def java_grpc(jdk_home: Path, tmp_path_factory: pytest.TempPathFactory) -> GrpcProgram:
    return have(lambda: grpc_programs.java_program(jdk_home, tmp_path_factory.mktemp("java-grpc")))


@pytest.fixture(scope="session")
def go_grpc() -> GrpcProgram:
    return have(grpc_programs.go_program)


@pytest.fixture(scope="session")
def node_grpc() -> GrpcProgram:
    return have(grpc_programs.node_program)


@pytest.fixture(scope="session")
def rust_grpc() -> GrpcProgram:
    return have(grpc_programs.rust_program)


@pytest.fixture(scope="session")
def python_grpc_load() -> GrpcProgram:
    return have(grpc_programs.python_load_program)
