"""Reading where the session of these tests does not reach: executors of their own, and the next PySpark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures_tools import have
from tooling.pyspark_overlay import find_overlay
from tooling.system_packages import find_java_home

pytest.importorskip("pyspark")
pytest.importorskip("pandas", reason="PySpark makes no mapInArrow without pandas")

ROOT = Path(__file__).resolve().parents[2]
# Several JVMs start, on a machine that may have much else to do.
TIMEOUT_S = 840


def check(folder: Path, *arguments: str, python_path: tuple[Path, ...] = ()) -> str:
    """Run the central checks in a process of their own; what they print."""
    have(lambda: find_java_home(with_compiler=False))
    places = [*map(str, python_path), str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    environment.pop("SPARK_HOME", None)
    command = [sys.executable, "-m", "tests.spark.central_checks", str(folder), *arguments]
    answer = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert answer.returncode == 0, answer.stderr[-8_000:]
    return answer.stdout


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(TIMEOUT_S + 60)
def test_executors_in_processes_of_their_own(tmp_path: Path) -> None:
    master = "local-cluster[2,1,1024]"
    assert f" {master}" in check(tmp_path, "--version", "4.", "--master", master, "--executors", "2")


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(TIMEOUT_S + 60)
def test_the_next_pyspark(tmp_path: Path) -> None:
    overlay = have(find_overlay)
    assert "checked 4.3" in check(tmp_path, "--version", "4.3", python_path=(overlay,))
