"""One Spark session for all tests of this folder: starting a JVM takes longer than most of them.

No test has another session in this process: who needs other settings, or kills a driver, starts a process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures_tools import have
from thermocline.spark.access.blocking_store import close_stores
from tooling.java_libraries import find_s3a_jars
from tooling.system_packages import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SESSION_TIMEOUT_S = 900
CONTEXT: pytest.StashKey[object] = pytest.StashKey()


def pytest_report_header() -> str:
    """Which PySpark it is: another one may be on PYTHONPATH."""
    import pyspark

    return f"PySpark {pyspark.__version__}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the session share one worker, so that it is started once."""
    for item in items:
        if "the_session" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
            # A JVM that starts on a machine with much else to do takes minutes.
            item.add_marker(pytest.mark.timeout(SESSION_TIMEOUT_S))


@pytest.fixture(autouse=True)
def no_session_of_its_own(request: pytest.FixtureRequest) -> Iterator[None]:
    """A session that a test started unasked would be found, with other settings, by the tests after it."""
    yield
    pyspark = sys.modules.get("pyspark")
    if pyspark is not None and "the_session" not in request.fixturenames:
        found = pyspark.SparkContext._active_spark_context
        assert found is None or found is request.config.stash.get(CONTEXT, None), "the test started a session"


@pytest.fixture(scope="session", autouse=True)
def stores_closed_in_the_end() -> Iterator[None]:
    """What the tests of this folder have opened is closed before warnings are counted."""
    yield
    close_stores()


@pytest.fixture(scope="session")
def the_session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this process, of two cores; a task that fails is tried once more. Tests take `spark_session`."""
    pytest.importorskip("pyspark")
    have(lambda: find_java_home(with_compiler=False))
    from thermocline.spark.session import local_session

    folder: Path = tmp_path_factory.mktemp("spark")
    session = local_session(
        app_name="thermocline tests",
        settings={
            "spark.master": "local[2,2]",
            "spark.driver.memory": "1g",
            # A JVM takes jars when it starts, and this one is started once.
            "spark.jars": ",".join(map(str, have(find_s3a_jars))),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    request.config.stash[CONTEXT] = session.sparkContext
    yield session
    session.stop()


@pytest.fixture
def spark_session(the_session: SparkSession) -> Iterator[SparkSession]:
    """The session; it has to be running still when the test ends, without queries and with the settings it had."""
    before = settings_of(the_session)
    yield the_session
    context = the_session.sparkContext._jsc
    assert context is not None, "the test stopped the session of all tests"
    assert not context.sc().isStopped(), "the test stopped the session of all tests"
    running = the_session.streams.active
    for query in running:
        query.stop()
    changed = dict(before.items() ^ settings_of(the_session).items())
    for name in changed:
        if name in before:
            the_session.conf.set(name, before[name])
        else:
            the_session.conf.unset(name)
    assert not running, "the test left streaming queries running"
    assert not changed, "the test left settings in the session of all tests"


def settings_of(session: SparkSession) -> dict[str, str]:
    """What can be set in a running session."""
    settings = session._jsparkSession.sessionState().conf().settings()
    return {str(entry.getKey()): str(entry.getValue()) for entry in settings.entrySet()}
