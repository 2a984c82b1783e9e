"""Finding Java and preparing the environment; starting Spark itself is tested by everything else here."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.session import find_java_home, prepare_environment, session_for_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fake_java(home: Path, version: str) -> Path:
    """A program that answers `-version` as Java does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return home


def test_java_home_is_looked_at_first(tmp_path: Path) -> None:
    named, on_path = fake_java(tmp_path / "named", "21.0.1"), fake_java(tmp_path / "path", "17.0.15")
    assert find_java_home({"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}) == named
    assert find_java_home({"PATH": str(on_path / "bin")}) == on_path


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_an_older_java_is_refused_by_its_version(tmp_path: Path, version: str) -> None:
    with pytest.raises(InvalidRequestError, match="Java 17"):
        find_java_home({"JAVA_HOME": str(fake_java(tmp_path, version))})


def test_no_java_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="JAVA_HOME"):
        find_java_home({"PATH": str(tmp_path)})
    with pytest.raises(InvalidRequestError, match="JAVA_HOME"):
        find_java_home({"JAVA_HOME": str(tmp_path / "nothing")})


def test_the_environment_is_completed_and_not_overridden(tmp_path: Path) -> None:
    home = fake_java(tmp_path, "17.0.1")
    environment = {"PATH": str(home / "bin"), "SPARK_LOCAL_IP": "10.0.0.1"}
    prepare_environment(environment)
    assert environment["JAVA_HOME"] == str(home)
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["SPARK_LOCAL_IP"] == "10.0.0.1"


def test_a_job_uses_the_running_session_whatever_thread_it_runs_in_and_leaves_it_running(
    spark_session: SparkSession,
) -> None:
    found: list[SparkSession] = []

    def job() -> None:
        with session_for_job(app_name="a job") as session:
            found.append(session)

    job()
    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
    assert [session.sparkContext for session in found] == [spark_session.sparkContext] * 2
    assert spark_session.range(3).count() == 3
