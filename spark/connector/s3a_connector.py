"""The s3a connector for the installed PySpark: its jars, and the errors where it is missing or does not fit.

PySpark's wheel brings Hadoop's client without `hadoop-aws`. The connector must be of that Hadoop's version. It needs
the AWS SDK for Java: s3a-jars.lock lists the modules in use (13 MB), each with its SHA-256, instead of the jar with all
of them (`software.amazon.awssdk:bundle`, over 600 MB). HTTP client, Netty and logging are those that Spark brings.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thermocline.remoting.errors import InvalidRequestError, MQError, UnavailableError
from thermocline.spark.connector.maven_repository import Artifact, fetch_artifacts, find_artifacts
from thermocline.spark.connector.maven_settings import MavenSettings, read_maven_settings
from thermocline.spark.missing_extra import missing_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK = Path(__file__).resolve().parent / "s3a-jars.lock"
CONNECTOR_GROUP, CONNECTOR_NAME = "org.apache.hadoop", "hadoop-aws"
CONNECTOR_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
HADOOP_JAR = "hadoop-client-api-"
IVY_RESOLVER = "org/apache/ivy/plugins/resolver/IBiblioResolver.class"
"""Of the Ivy that Spark brings for `spark.jars.packages`: its default is Maven's central repository."""
_MAVEN_URL = re.compile(rb"https://[\x21-\x7e]+/maven2/")
CAUSES_MAX = 10
HOW = "start the session with local_session(s3a=True), or with it in spark.jars.packages"
_NOT_FOUND = ("java.lang.ClassNotFoundException", "java.lang.NoClassDefFoundError")
_DOES_NOT_FIT = (
    "java.lang.NoSuchMethodError",
    "java.lang.NoSuchFieldError",
    "java.lang.AbstractMethodError",
    "java.lang.IllegalAccessError",
    "java.lang.IncompatibleClassChangeError",
    "java.lang.UnsupportedClassVersionError",
)


def locked_artifacts() -> tuple[Artifact, ...]:
    """What the lock file lists: a line of coordinates and SHA-256 each."""
    lines = [line.split() for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    return tuple(
        Artifact(group=group, name=name, version=version, sha256=sha256)
        for (group, name, version), sha256 in ((coordinates.split(":"), sha256) for coordinates, sha256 in lines)
    )


def hadoop_version(spark_home: Path) -> str | None:
    """Of the Hadoop whose client a Spark brings; None where it brings none under its usual name."""
    found = [jar.name.removeprefix(HADOOP_JAR).removesuffix(".jar") for jar in spark_home.glob(f"jars/{HADOOP_JAR}*")]
    return found[0] if len(found) == 1 else None


def connector_jars(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The jars for `spark.jars`, fetched by Maven's settings where they are missing; none where Spark has them itself.

    Raises:
        InvalidRequestError: The Hadoop of this PySpark is another one, or no repository gives the jars.
        UnavailableError: A repository gave no answer.
    """
    spark_home = _spark_home(environment)
    if any(spark_home.glob(f"jars/{CONNECTOR_NAME}-*.jar")):
        return ()
    artifacts = fitting_artifacts(hadoop_version(spark_home))
    try:
        return tuple(fetch_artifacts(artifacts, maven_settings(environment)))
    except MQError as error:
        kind = UnavailableError if isinstance(error, UnavailableError) else InvalidRequestError
        raise kind(
            "the s3a connector cannot be fetched by Maven's settings; put its jars into spark.jars, or ask for it in "
            f"spark.jars.packages: {artifacts[0].coordinates}",
            reason=error,
        ) from error


def found_connector_jars(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...] | None:
    """The jars for `spark.jars` where all of them are on this machine; None otherwise. Fetches nothing."""
    artifacts = locked_artifacts()
    found = find_artifacts(artifacts, maven_settings(environment))
    return tuple(found) if len(found) == len(artifacts) else None


def maven_settings(environment: Mapping[str, str]) -> MavenSettings:
    """Maven's settings on this machine, with the central repository that Spark asks too.

    Raises:
        InvalidRequestError: A settings file is no XML, or needs what only Maven can read; there is no Ivy.
    """
    homes = [_spark_home(environment), _spark_home({})] if environment.get("SPARK_HOME") else [_spark_home({})]
    return read_maven_settings(environment, central_url=central_url(homes))


def central_url(spark_homes: Iterable[Path]) -> str:
    """Where Maven's central repository is, by the first Ivy that one of these Sparks brings.

    Raises:
        InvalidRequestError: None of them brings one.
    """
    for home in spark_homes:
        for jar in home.glob("jars/ivy-*.jar"):
            with zipfile.ZipFile(jar) as archive:
                found = _MAVEN_URL.search(archive.read(IVY_RESOLVER))
            if found is not None:
                return found[0].decode()
    raise InvalidRequestError("this Spark brings no Ivy, whose class names Maven's central repository")


def fitting_artifacts(hadoop: str | None) -> tuple[Artifact, ...]:
    """The connector and what it needs, for this version of Hadoop; InvalidRequestError for another one."""
    artifacts = locked_artifacts()
    if hadoop != artifacts[0].version:
        raise InvalidRequestError(
            f"the s3a connector is set up for Hadoop {artifacts[0].version}; this Spark needs another one: put "
            f"{CONNECTOR_GROUP}:{CONNECTOR_NAME}:{hadoop or 'of its Hadoop'} into spark.jars.packages",
            hadoop=hadoop or "unknown",
        )
    return artifacts


def check_connector(spark: SparkSession) -> None:
    """InvalidRequestError, which names the missing artifact, when the session's JVM has no s3a connector."""
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    if configuration.getClassByNameOrNull(configuration.get("fs.s3a.impl") or CONNECTOR_CLASS) is None:
        raise _missing(hadoop_of(spark._jvm))


def hadoop_of(jvm: Any) -> str:
    """The version of the Hadoop in a JVM."""
    return str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())


def connector_error(hadoop: str, names: Sequence[str], texts: Sequence[str]) -> InvalidRequestError | None:
    """What Java's exceptions mean for the connector, if anything; by their classes and messages from the outermost on.

    Such a failure stays until the session has other jars: it is no failure of the store, and never retried.
    """
    if any(name in _NOT_FOUND for name in names):
        if any(CONNECTOR_CLASS in text for text in texts):
            return _missing(hadoop)
        reason = next(text for name, text in zip(names, texts, strict=True) if name in _NOT_FOUND)
        return InvalidRequestError(
            f"the s3a connector of this Spark session lacks a class: it needs {_coordinates(hadoop)} with all that it "
            f"depends on; {HOW}",
            reason=reason,
        )
    if any(name in _DOES_NOT_FIT for name in names):
        reason = next(f"{name}: {text}" for name, text in zip(names, texts, strict=True) if name in _DOES_NOT_FIT)
        return InvalidRequestError(
            f"the s3a connector of this Spark session does not fit its Hadoop: it needs {_coordinates(hadoop)}; {HOW}",
            reason=reason,
        )
    return None


def java_causes(error: Any) -> tuple[list[str], list[str]]:
    """Classes and messages of a Py4JJavaError's exceptions, from the outermost on."""
    names: list[str] = []
    texts: list[str] = []
    cause = error.java_exception
    while cause is not None and len(names) < CAUSES_MAX:
        names.append(str(cause.getClass().getName()))
        texts.append(str(cause.getMessage()))
        cause = cause.getCause()
    return names, texts


def _missing(hadoop: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"this Spark session has no s3a connector: PySpark does not bring {_coordinates(hadoop)}; {HOW}",
        hadoop=hadoop,
    )


def _coordinates(hadoop: str) -> str:
    return f"{CONNECTOR_GROUP}:{CONNECTOR_NAME}:{hadoop}"


def _spark_home(environment: Mapping[str, str]) -> Path:
    named = environment.get("SPARK_HOME")
    if named:
        return Path(named)
    try:
        import pyspark
    except ImportError as error:
        raise InvalidRequestError(missing_extra("PySpark", "spark")) from error
    return Path(pyspark.__file__).parent
