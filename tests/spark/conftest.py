"""One Spark session for all tests of this folder: starting a JVM takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures_tools import have
from thermocline.spark.access.blocking_store import close_stores
from tooling.system_packages import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SESSION_TIMEOUT_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the session share one worker, so that it is started once."""
    for item in items:
        if "spark_session" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
            # A JVM that starts on a machine with much else to do takes minutes.
            item.add_marker(pytest.mark.timeout(SESSION_TIMEOUT_S))


@pytest.fixture(scope="session", autouse=True)
def stores_closed_in_the_end() -> Iterator[None]:
    """What the tests of this folder have opened is closed before warnings are counted."""
    yield
    close_stores()


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two cores on this machine."""
    pytest.importorskip("pyspark")
    have(lambda: find_java_home(with_compiler=False))
    from thermocline.spark.session import local_session

    folder: Path = tmp_path_factory.mktemp("spark")
    session = local_session(
        app_name="thermocline tests",
        cores=2,
        settings={
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    yield session
    session.stop()
