"""The programs in docs/clients.md run as they stand, but for the addresses, against a broker and a proxy.

The one in Rust takes minutes to build, so it is built with the program of `tests/interop/test_grpc_rust.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.docs.command_lines import command_lines, is_daemon
from tests.docs.pages import DOCS, ROOT, code_blocks
from tests.fixtures_tools import have
from tests.full_cases import full
from tests.interop.built_programs import build_go_program
from tests.interop.proxy_daemons import ProxyDaemons, proxy_daemons
from thermocline.cli.main import main as thermocline
from tooling.java_libraries import OFFICIAL_ROCKETMQ, OFFICIAL_ROCKETMQ_GRPC, find_jars
from tooling.node_packages import ROCKETMQ_GRPC_NODE
from tooling.official_jvm import quick_jvm
from tooling.pinned_wheels import ROCKETMQ_GRPC_PYTHON
from tooling.rust_client import find_rust_client
from tooling.system_packages import find_java_home, find_node

pytestmark = pytest.mark.xdist_group("docs-clients")

PAGE = DOCS / "clients.md"
ENDPOINT, NAME_SERVER = "127.0.0.1:8081", "127.0.0.1:9876"
PINS = ROOT / "tests" / "interop"
RUST_PROGRAM = PINS / "rust_grpc" / "src" / "first_program.rs"
TIMEOUT_S = 120
DEFAULT_POLLS = {
    "grpcClientConsumerMinLongPollingTimeoutMillis": "5000",
    "grpcClientConsumerMaxLongPollingTimeoutMillis": "20000",
}
"""Of a proxy without settings; a client whose polls are too short for them would be refused."""

Start = Callable[[str, Path], tuple[Sequence[str], Mapping[str, str]]]
"""From a program's text and an empty folder to a command and what is different in its environment."""


def python_grpc(text: str, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    return [sys.executable, "-c", text], {"PYTHONPATH": str(have(ROCKETMQ_GRPC_PYTHON.find))}


def sdk(text: str, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    return [sys.executable, "-c", text], {}


def java(class_name: str, library: str) -> Start:
    def start(text: str, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        program = folder / f"{class_name}.java"
        program.write_text(text)
        command = have(lambda: find_java_home(with_compiler=True)) / "bin" / "java"
        jars = have(lambda: find_jars(library))
        return [str(command), *quick_jvm(folder, heap_mb=256), "-cp", f"{jars}/*", str(program)], {}

    return start


def go(pins: str) -> Start:
    def start(text: str, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        sources = folder / "first"
        sources.mkdir()
        for name in ("go.mod", "go.sum"):
            shutil.copy(PINS / pins / name, sources)
        (sources / "main.go").write_text(text)
        have(lambda: build_go_program(sources, folder / "program"))
        return [str(folder / "program")], {}

    return start


def node(text: str, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    modules = have(ROCKETMQ_GRPC_NODE.find) / "node_modules"
    return [str(have(find_node)), "-e", text], {"NODE_PATH": str(modules)}


STARTS: dict[str, tuple[str, Start]] = {
    "Python, gRPC": ("Python", python_grpc),
    "Java, gRPC": ("Java", java("First", OFFICIAL_ROCKETMQ_GRPC)),
    "Go, gRPC": ("Go", go("go_grpc")),
    "Node, gRPC": ("Node", node),
    "For comparison: Thermocline's Python SDK, remoting": ("the SDK", sdk),
    "For comparison: Java, remoting": ("Java remoting", java("FirstRemoting", OFFICIAL_ROCKETMQ)),
    "For comparison: Go, remoting": ("Go remoting", go("go")),
}
RUST = "Rust, gRPC"
QUICK = ("Python, gRPC", "Go, gRPC", "Node, gRPC", "For comparison: Thermocline's Python SDK, remoting")
"""Programs that start in little time."""


def programs() -> dict[str, str]:
    """The program under each heading."""
    return {block.headings[-1]: block.text for block in code_blocks(PAGE, "python", "java", "go", "javascript", "rust")}


@pytest.fixture(scope="module")
def daemons(new_module_folder: Callable[[str], Path]) -> Iterator[ProxyDaemons]:
    """A NameServer, a broker and a proxy, with the topic as the page makes it."""
    with proxy_daemons(new_module_folder("first-programs"), settings=DEFAULT_POLLS) as running:
        (command,) = [words for _, words in command_lines(PAGE) if not is_daemon(words)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NAMESRV_ADDR", running.namesrv)
            with pytest.raises(SystemExit) as ended:
                thermocline(command)
        assert ended.value.code in (0, None)
        yield running


def received(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """What a program says that it received."""
    finished = subprocess.run(
        command,
        capture_output=True,
        timeout=TIMEOUT_S,
        encoding="utf-8",
        check=False,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), **environment},
    )
    assert finished.returncode == 0, finished.stdout[-2_000:] + finished.stderr[-3_000:]
    return [line for line in finished.stdout.splitlines() if line.startswith("received ")]


def test_each_language_has_its_program() -> None:
    assert set(programs()) == {*STARTS, RUST}


@pytest.mark.parametrize("heading", [*QUICK, *full(*(heading for heading in STARTS if heading not in QUICK))])
def test_a_first_program_receives_what_it_sends(daemons: ProxyDaemons, tmp_path: Path, heading: str) -> None:
    sender, start = STARTS[heading]
    text = programs()[heading].replace(ENDPOINT, daemons.endpoint).replace(NAME_SERVER, daemons.namesrv)
    command, environment = start(text, tmp_path)
    assert received(command, tmp_path, environment) == [f"received hello from {sender}"]


def test_the_first_program_in_rust_receives_what_it_sends(daemons: ProxyDaemons, tmp_path: Path) -> None:
    assert RUST_PROGRAM.read_text() == programs()[RUST]
    command = [str(have(find_rust_client)), daemons.endpoint]
    assert received(command, tmp_path, {}) == ["received hello from Rust"]
