"""Java libraries by Maven coordinates: the official RocketMQ software of two generations, its client and proxy for
gRPC, and Hadoop's s3a connector for Spark.

Each set is one pom file beside this one. RocketMQ's jars lie in one flat directory of the cache whose name carries a
digest of the pom, so a changed pin never meets an old directory; a directory under its final name is complete. Those of
the s3a connector are locked with their checksums, and fetched by the product itself (`spark/connector/`).
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

from thermocline.localstack import LocalStackError, ToolMissingError
from thermocline.localstack.made_once import made_once
from thermocline.remoting.errors import MQError
from thermocline.spark.connector.maven_repository import Artifact
from thermocline.spark.connector.s3a_connector import connector_jars, found_connector_jars, maven_settings
from tooling.system_packages import ensure_java_home, ensure_maven

TOOLING = Path(__file__).resolve().parent
CACHE = TOOLING.parent / ".cache"
OFFICIAL_ROCKETMQ = "official-rocketmq"
OFFICIAL_ROCKETMQ_4 = "official-rocketmq-4"
OFFICIAL_ROCKETMQ_GRPC = "official-rocketmq-grpc"
OFFICIAL_ROCKETMQ_PROXY = "official-rocketmq-proxy"
SPARK_S3A = "spark-s3a"
S3A_LOCK = TOOLING.parent / "spark" / "connector" / "s3a-jars.lock"
# Of a pinned plugin, so that the goals mean the same with every Maven.
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
LIST_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:list"
# Groups of what Spark brings itself, in versions of its own.
LEFT_TO_SPARK = ("io.netty", "org.apache.httpcomponents", "org.slf4j", "commons-logging", "commons-codec")


def jars_directory(name: str) -> Path:
    """Where the set's jars are, once fetched."""
    pom = (TOOLING / f"{name}.pom.xml").read_bytes()
    return CACHE / "jars" / f"{name}-{hashlib.sha256(pom).hexdigest()[:12]}"


def find_jars(name: str) -> Path:
    """The directory of the set's jars.

    Raises:
        ToolMissingError: They have not been fetched.
    """
    directory = jars_directory(name)
    if not directory.is_dir():
        raise ToolMissingError(f"the {name} jars are not here yet: `make test` fetches them.")
    return directory


def ensure_jars(name: str) -> Path:
    """Fetch the set unless it is there (up to half a minute, once).

    Raises:
        ToolMissingError: There is no Java or no Maven.
        LocalStackError: Maven failed; the message ends with what it said.
    """
    target = jars_directory(name)
    if target.is_dir():
        return target
    maven = ensure_maven()
    ensure_java_home(with_compiler=False)

    def fetch(partial: Path) -> None:
        pom = TOOLING / f"{name}.pom.xml"
        command = [str(maven), "-q", "-B", "-f", str(pom), COPY_GOAL, "-DincludeScope=runtime"]
        answer = subprocess.run([*command, f"-DoutputDirectory={partial}"], capture_output=True, text=True, check=False)
        if answer.returncode != 0 or not partial.is_dir():
            raise LocalStackError(f"the {name} jars could not be fetched:\n{(answer.stdout + answer.stderr)[-2_000:]}")

    return made_once(target, fetch, doing=f"fetching the {name} jars")


def find_s3a_jars() -> list[Path]:
    """The jars of the s3a connector, for `spark.jars`.

    Raises:
        ToolMissingError: They have not been fetched.
    """
    found = found_connector_jars()
    if found is None:
        raise ToolMissingError("the s3a connector's jars are not here yet: `make test` fetches them.")
    return list(found)


def ensure_s3a_jars() -> list[Path]:
    """Fetch them unless they are there (some seconds, once).

    Raises:
        LocalStackError: No repository of Maven's settings gave them.
    """
    try:
        return list(connector_jars())
    except MQError as error:
        raise LocalStackError(str(error)) from error


def lock_s3a_jars() -> None:
    """Write the lock file of the s3a connector: every artifact that the pom leads to and Spark does not bring itself.

    Raises:
        LocalStackError: Maven failed; the message ends with what it said.
    """
    pom = TOOLING / f"{SPARK_S3A}.pom.xml"
    ensure_java_home(with_compiler=False)
    with tempfile.TemporaryDirectory() as directory:
        listed = Path(directory) / "list"
        options = ["-q", "-B", "-f", str(pom), "-DincludeScope=runtime", f"-DoutputFile={listed}"]
        answer = subprocess.run([str(ensure_maven()), *options, LIST_GOAL], capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise LocalStackError(f"the s3a jars could not be listed:\n{(answer.stdout + answer.stderr)[-2_000:]}")
        found = re.findall(r"^ +([\w.-]+):([\w.-]+):jar:([\w.-]+):\w+", listed.read_text(), re.MULTILINE)
    repository = maven_settings(os.environ).local_repository
    lines = [f"# From tooling/{pom.name}, by `make lock`: coordinates and SHA-256. The connector stands first."]
    for group, name, version in found:
        if group not in LEFT_TO_SPARK:
            artifact = Artifact(group=group, name=name, version=version, sha256="")
            digest = hashlib.sha256((repository / artifact.path).read_bytes()).hexdigest()
            lines.append(f"{artifact.coordinates} {digest}")
    S3A_LOCK.write_text("\n".join(lines) + "\n")
    print(f"{S3A_LOCK.relative_to(TOOLING.parent)} is up to date with tooling/{pom.name}")
