"""What every test may use. Fixtures for servers and tools live in `tests/fixtures_*.py`."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.unit_tests import ProgramGuard, is_unit, is_without_unit_tests
from thermocline.store.files.disk import RealDisk

pytest_plugins = [
    "tests.fixtures_tools",
    "tests.fixtures_s3",
    "tests.interop.fixtures_access_pair",
    "tests.interop.fixtures_cluster",
    "tests.interop.fixtures_foreign",
    "tests.interop.fixtures_go",
    "tests.interop.fixtures_grpc",
    "tests.interop.fixtures_secured",
]

# How full the disk of the machine that runs the tests is decides nothing: else a broker on a disk three quarters full
# seals at once what a test means to seal, and at nine tenths takes no message. Brokers in a test's own process have a
# `HalfFullDisk` instead.
DISK_RATIOS = ("MAX_USED_SPACE", "SPACE_CLEAN_FORCIBLY", "SPACE_WARNING_LEVEL")
LARGE_BYTES = 16 << 20
"""Log files of brokers are larger, what explains a failure is not."""
# Helper processes compete on equal terms with the tests beside them; else those are all that a busy machine computes.
HELPER_NICE = "0"
SPARK_CONF = Path(__file__).parent / "spark" / "conf"
"""Settings of every JVM of Spark that a test starts."""


def pytest_configure() -> None:
    # How long an example takes says how busy the machine is.
    hypothesis.settings.register_profile("any machine", deadline=None)
    hypothesis.settings.load_profile("any machine")
    os.environ.update({f"THERMOCLINE_DISK_{name}_RATIO": "99" for name in DISK_RATIOS})
    os.environ["THERMOCLINE_HELPER_NICE"] = HELPER_NICE
    os.environ.setdefault("SPARK_CONF_DIR", str(SPARK_CONF))
    # Without kept bytecode each process of each broker compiles some 400 modules: 1.1 s of computing a start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run tests marked `full` too, and `case_count` at its middle")
    parser.addoption("--unit", action="store_true", help="run only tests of `make test-unit` (tests/unit_tests.py)")
    parser.addoption(
        "--release", metavar="COMMIT", help="the earlier release that tests/releases/ takes for its partner"
    )
    parser.addoption("--soak", action="store_true", help="run tests that use `case_count` at their largest counts")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Under `make test-unit`, files of folders without unit tests are not even imported."""
    return True if config.getoption("--unit") and is_without_unit_tests(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not (config.getoption("--full") or config.getoption("--soak")):
        left_out = [item for item in items if item.get_closest_marker("full")]
        items[:] = [item for item in items if not item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
    if config.getoption("--unit"):
        config.hook.pytest_deselected(items=[item for item in items if not is_unit(item)])
        items[:] = [item for item in items if is_unit(item)]
    for item in items:
        if "case_count" in getattr(item, "fixturenames", ()):
            item.add_marker("soak")
        # Tests of one S3 server share it: on one worker it is started once.
        kind = getattr(item, "callspec", None) and item.callspec.params.get("s3_server_kind")
        if kind and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(f"s3-{kind}"))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave modules and collected tests, over a million objects in a whole run, out of later garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def case_count(request: pytest.FixtureRequest) -> Callable[..., int]:
    """`case_count(quick=5, full=20, soak=200)`: how many cases to try under `make test`, `make test-full`, `make soak`.

    Without `full`, `make test-full` tries as many as `make test`.
    """
    is_soak, is_full = (bool(request.config.getoption(name)) for name in ("--soak", "--full"))

    def choose(*, quick: int, full: int | None = None, soak: int) -> int:
        if is_soak:
            return soak
        return full if is_full and full is not None else quick

    return choose


@pytest.fixture(scope="module")
def new_module_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """`new_module_folder(name)`: a folder for the brokers that the tests of a module share.

    A broker takes a gigabyte of the disk for its first log file, and pytest would keep the folder until the run ends:
    what is large in it goes with the module.
    """
    folders: list[Path] = []

    def make(name: str) -> Path:
        folders.append(tmp_path_factory.mktemp(name))
        return folders[-1]

    yield make
    for path in (path for folder in folders for path in folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size >= LARGE_BYTES:
            path.unlink()


@pytest.fixture(scope="module")
def module_folder(new_module_folder: Callable[[str], Path]) -> Path:
    """One such folder."""
    return new_module_folder("module")


@pytest.fixture(scope="session")
def program_guard(request: pytest.FixtureRequest) -> ProgramGuard | None:
    """Under `make test-unit`: what fails tests that start programs."""
    return ProgramGuard() if request.config.getoption("--unit") else None


@pytest.fixture(autouse=True)
def no_program_in_unit_tests(program_guard: ProgramGuard | None) -> Iterator[None]:
    """A test of the fast inner loop starts no program."""
    with program_guard.during_a_test() if program_guard is not None else contextlib.nullcontext():
        yield


@pytest.fixture(autouse=True)
def no_store_left_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """A store that a test leaves open stays locked, and a later test's folder may have the same name."""
    yield
    folder = request.node.funcargs.get("tmp_path")
    if folder is not None:
        still_locked = [path for path in RealDisk._locked if path.startswith(f"{folder.resolve()}/")]
        assert still_locked == []
