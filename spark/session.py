"""Local Spark sessions for the command line, the demo and tests: finds Java, sets Python and loopback, logs little.

Spark starts a JVM and finds its Python workers by environment variables, and both fail in obscure ways when the
variables are wrong; here a missing Java is one sentence. A cluster's own session needs nothing of this.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.connector.s3a_connector import check_connector, connector_jars
from thermocline.spark.missing_extra import missing_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("pyspark", "pyarrow", "pandas")
NOT_INSTALLED = missing_extra("PySpark", "spark")
JAVA_VERSION_MIN = 17
JAVA_ANSWER_TIMEOUT_S = 30
_VERSION = re.compile(r'version "(\d+)')
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by `spark-submit`: the JVM runs already, with its master and settings."""

# Settings of a session on one machine that Spark does not set by default.
LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}


def local_session(
    *,
    app_name: str = "thermocline",
    cores: int | None = None,
    settings: Mapping[str, str] | None = None,
    s3a: bool = False,
    environment: MutableMapping[str, str] = os.environ,
) -> SparkSession:
    """The session of this process, started on this machine when there is none; stop it with `.stop()`.

    `cores` None is all of them. `settings` go over LOCAL_SETTINGS. `s3a` gives it Hadoop's s3a connector, which PySpark
    does not bring: its jars are fetched by Maven's settings where they are missing (13 MB, once). What the JVM and the
    workers need is put into `environment` where it is not set yet.

    Raises:
        InvalidRequestError: PySpark is not installed, there is no Java of version 17 or newer, no repository has the
            connector, or the session that runs already was started without it.
        UnavailableError: A Maven repository gave no answer.
    """
    prepare_environment(environment)
    chosen = LOCAL_SETTINGS | dict(settings or {})
    if s3a and _running_session() is None:
        jars = [chosen.get("spark.jars", ""), *map(str, connector_jars(environment))]
        chosen["spark.jars"] = ",".join(filter(None, jars))
    builder = _session_class().builder.appName(app_name).master(f"local[{'*' if cores is None else cores}]")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if s3a:
        check_connector(session)
    return session


@contextmanager
def session_for_job(*, app_name: str, cores: int | None = None, s3a: bool = False) -> Iterator[SparkSession]:
    """The session of this process for one job; one that was started for it is stopped afterwards. `s3a`, and what is
    raised: as above.

    Under `spark-submit` it is that application's session, on its master and with its settings; else a local one.
    """
    prepare_environment(os.environ)
    found = _running_session()
    if found is not None:
        session = found
    elif SUBMITTED in os.environ:
        session = _session_class().builder.getOrCreate()
    else:
        session = local_session(app_name=app_name, cores=cores, s3a=s3a)
    try:
        if s3a:
            check_connector(session)
        yield session
    finally:
        if found is None:
            session.stop()


def check_packages() -> None:
    """InvalidRequestError where the extra `spark` is not installed: most modules of this package import it."""
    if any(importlib.util.find_spec(name) is None for name in PACKAGES):
        raise InvalidRequestError(NOT_INSTALLED)


def prepare_environment(environment: MutableMapping[str, str]) -> None:
    """Set what PySpark looks up before its JVM starts; values that are there stay.

    Raises:
        InvalidRequestError: There is no Java of version 17 or newer.
    """
    environment.setdefault("JAVA_HOME", str(find_java_home(environment)))
    # Workers must run this Python: the first `python3` on the PATH may have neither pyarrow nor this package.
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def find_java_home(environment: Mapping[str, str]) -> Path:
    """Where Java is: JAVA_HOME when it is set, else the `java` on the PATH.

    Raises:
        InvalidRequestError: There is none, or an older one.
    """
    named = environment.get("JAVA_HOME")
    if named:
        home = Path(named)
    else:
        on_path = shutil.which("java", path=environment.get("PATH"))
        if on_path is None:
            raise InvalidRequestError(f"Spark needs Java {JAVA_VERSION_MIN} or newer: install it or set JAVA_HOME")
        home = Path(on_path).resolve().parent.parent
    version = _java_version(home)
    if version is None:
        raise InvalidRequestError("JAVA_HOME holds no Java that answers", java_home=home)
    if version < JAVA_VERSION_MIN:
        raise InvalidRequestError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer: set JAVA_HOME to one", java_home=home, version=version
        )
    return home


def _running_session() -> SparkSession | None:
    """The session of this process, in whichever thread it was made; None when there is none."""
    session_class = _session_class()
    from pyspark.errors import PySparkRuntimeError

    try:
        return session_class.active()
    except PySparkRuntimeError as error:
        if error.getCondition() != "NO_ACTIVE_OR_DEFAULT_SESSION":
            raise
        return None


def _session_class() -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidRequestError(NOT_INSTALLED) from error
    return SparkSession


def _java_version(home: Path) -> int | None:
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"],
            capture_output=True,
            text=True,
            timeout=JAVA_ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr)
    # Java 8 calls itself 1.8.
    return None if answer.returncode or match is None else int(match[1])
