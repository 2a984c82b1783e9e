"""Reading where the session of these tests does not reach: executors of their own, and the next PySpark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tooling.pinned_wheels import PYSPARK_NEXT
from tooling.system_packages import find_java_home

pytest.importorskip("pyspark")
pytest.importorskip("pandas", reason="PySpark makes no mapInArrow without pandas")

ROOT = Path(__file__).resolve().parents[2]
# Several JVMs start, on a machine that may have much else to do.
TIMEOUT_S = 840
SUITE_TIMEOUT_S = 7_200
NEXT_VERSION = "4.3"


# One of each kind: streams, writes, snapshots with receipts, bodies as columns, both engines on an S3 server.
SAMPLE = (
    "streaming/test_stream_reader.py",
    "writing/test_stream_writes.py",
    "handoff/test_snapshot.py",
    "bodies/test_bodies_in_spark.py",
    "test_engines.py::test_both_engines_give_equal_rows_with_only_s3a_settings[minio]",
)


def check(folder: Path, *arguments: str, python_path: tuple[Path, ...] = ()) -> str:
    """Run the central checks in a process of their own; what they print."""
    return run(folder, "tests.spark.central_checks", str(folder), *arguments, python_path=python_path)


def run(
    folder: Path, module: str, *arguments: str, python_path: tuple[Path, ...] = (), timeout_s: float = TIMEOUT_S
) -> str:
    """Run a module in a process of its own; what it prints."""
    have(lambda: find_java_home(with_compiler=False))
    places = [*map(str, python_path), str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "SPARK_HOME"))}
    answer = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env=environment | {"PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-8_000:] + answer.stderr[-8_000:]
    return answer.stdout


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(TIMEOUT_S + 60)
def test_executors_in_processes_of_their_own(tmp_path: Path) -> None:
    master = "local-cluster[2,1,1024]"
    assert f" {master}" in check(tmp_path, "--version", "4.", "--master", master, "--executors", "2")


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(TIMEOUT_S + 60)
def test_the_next_pyspark(tmp_path: Path) -> None:
    overlay = have(PYSPARK_NEXT.find)
    assert f"checked {NEXT_VERSION}" in check(tmp_path, "--version", NEXT_VERSION, python_path=(overlay,))


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(SUITE_TIMEOUT_S + 60)
def test_the_next_pyspark_passes_the_tests_of_this_one(tmp_path: Path, case_count: Callable[..., int]) -> None:
    overlay = have(PYSPARK_NEXT.find)
    whole = bool(case_count(quick=0, soak=1))
    chosen = [ROOT / "tests/spark"] if whole else [ROOT / "tests/spark" / each for each in SAMPLE]
    output = run(
        ROOT,
        "pytest",
        *("--full", "-n", "0", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "inner")),
        *("--deselect", "tests/spark/test_other_processes.py"),
        *map(str, chosen),
        python_path=(overlay,),
        timeout_s=SUITE_TIMEOUT_S,
    )
    assert f"PySpark {NEXT_VERSION}" in output
