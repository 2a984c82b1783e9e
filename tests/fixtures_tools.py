"""Tools that some tests need and not every machine has.

A test whose tool is missing is skipped with the reason on a person's machine and fails with it when CI is set.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from thermocline.localstack import ToolMissingError
from tooling.java_libraries import OFFICIAL_ROCKETMQ, find_jars, find_s3a_jars
from tooling.system_packages import find_c_compiler, find_java_home

Tool = TypeVar("Tool")


def have(find: Callable[[], Tool]) -> Tool:
    """What `find()` returns; when it raises ToolMissingError the test is skipped, or fails in CI."""
    try:
        return find()
    except ToolMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have every tool: {error}", pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def java_home() -> Path:
    """A Java 17+ runtime."""
    return have(lambda: find_java_home(with_compiler=False))


@pytest.fixture(scope="session")
def jdk_home() -> Path:
    """A Java 17+ development kit."""
    return have(lambda: find_java_home(with_compiler=True))


@pytest.fixture(scope="session")
def official_jars() -> Path:
    """The directory of the official RocketMQ jars."""
    return have(lambda: find_jars(OFFICIAL_ROCKETMQ))


@pytest.fixture(scope="session")
def spark_s3a_jars() -> list[Path]:
    """Hadoop's s3a connector for PySpark, for `spark.jars`."""
    return have(find_s3a_jars)


@pytest.fixture(scope="session")
def c_compiler() -> Path:
    """A C compiler."""
    return have(find_c_compiler)
